// Package probe is the self-test of a sandbox: it tries, from inside, what a sandbox must not
// allow, and says what happened. It owns the attempts, the form in which they are told, and
// what is expected of each.
//
// Invariants: an attempt is harmless where it succeeds; no packet is sent unless loopback is
// the only interface; what comes out of a sandbox is read with bounds; an attempt that was
// not told, or that nothing is expected of, counts as unexpected.
package probe

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// Observation is one attempt and its outcome.
type Observation struct {
	Area  string `json:"area"`  // "identity", "host", …
	Name  string `json:"name"`  // what the expectation is found by; unique
	Tried string `json:"tried"` // for people
	Got   string `json:"got"`   // an errno's name, "ok" or what was read
}

// Options say what the sandbox is said to have.
type Options struct {
	Ports []int // of loopback, at which the package mirror answers
}

// maxGot bounds one outcome, in bytes.
const maxGot = 2048

// prober tells observations one by one, so that those before a crash are not lost.
type prober struct {
	opts Options
	out  *json.Encoder
	err  error
}

func (p *prober) say(area, name, tried, got string) {
	if len(got) > maxGot {
		got = got[:maxGot-3] + "…"
	}
	if err := p.out.Encode(Observation{Area: area, Name: name, Tried: tried, Got: got}); err != nil && p.err == nil {
		p.err = err
	}
}

// Run makes every attempt in this process and writes one [Observation] a line.
func Run(out io.Writer, opts Options) error {
	p := &prober{opts: opts, out: json.NewEncoder(out)}
	p.descriptors() // first: later attempts open some
	p.identity()
	p.host()
	p.tasks()
	p.mounts()
	p.proc()
	p.namespaces()
	p.calls()
	p.sockets()
	p.network()
	p.mirror()
	p.devices()
	p.environment()
	p.limits()
	p.say(areaEnd, "end", "make every attempt", "ok")
	return p.err
}

// Areas, in the order in which they are told.
const (
	areaDescriptors = "descriptors"
	areaIdentity    = "identity"
	areaHost        = "host"
	areaTasks       = "tasks"
	areaMounts      = "mounts"
	areaProc        = "proc"
	areaNamespaces  = "namespaces"
	areaCalls       = "system calls"
	areaSockets     = "sockets"
	areaNetwork     = "network"
	areaMirror      = "mirror"
	areaDevices     = "devices"
	areaEnvironment = "environment"
	areaLimits      = "limits"
	areaEnd         = "end"
)

// Bounds of what [Decode] reads.
const (
	maxObservations = 1024
	maxLine         = 8 << 10
)

// Decode reads what [Run] wrote inside. Every byte of it counts as hostile: lines, their
// number and their texts are bounded, and texts hold no control characters.
func Decode(in io.Reader) ([]Observation, error) {
	sc := newLines(in)
	var out []Observation
	for sc.Scan() {
		if len(out) == maxObservations {
			return nil, fmt.Errorf("more than %d observations", maxObservations)
		}
		o, err := decodeLine(sc.Bytes())
		if err != nil {
			return nil, fmt.Errorf("observation %d: %w", len(out)+1, err)
		}
		out = append(out, o)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("observation %d: %w", len(out)+1, err)
	}
	return out, nil
}

// readSmall reads the beginning of a file.
func readSmall(name string, most int64) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, most))
	return string(b), err
}
