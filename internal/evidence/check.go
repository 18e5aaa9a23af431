package evidence

import (
	"bytes"
	"cmp"
	"context"
	"crypto"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Fault is one thing that is off.
type Fault struct {
	Part   string `json:"part"`   // "signature", "base", "head tree", "diff of the tests", "log root", …
	Detail string `json:"detail"` // one line
}

func (f Fault) String() string { return f.Part + ": " + f.Detail }

// partNames are the statement's fields in words.
func partNames() map[string]string {
	return map[string]string{
		"subject.0.digest.gitTree": "head tree", "subject.0.name": "repository",
		"predicate.base": "base", "predicate.tests": "diff of the tests", "predicate.source": "diff of the source",
		"predicate.configuration": "diff of the configuration", "predicate.environment": "environment", "predicate.sandbox": "sandbox",
		"predicate.commands": "commands", "predicate.results": "results", "predicate.verdict": "verdict", "predicate.log.task": "log",
		"predicate.log.seq": "log", "predicate.log.root": "log root", "predicate.verifier": "verifier", "predicate.made": "time",
	}
}

// Check verifies a bundle offline with the public key alone and lists what is off. An empty
// list means that the key's owner signed exactly this. The error is Invalid for what is no
// bundle at all; one that was a bundle and cannot be read has its one fault named, and the
// bundle is then empty.
func Check(ctx context.Context, file []byte, pub ed25519.PublicKey) (Bundle, []Fault, error) {
	b, exact, err := Parse(file)
	if err != nil {
		if f, was := damaged(file, cmp.Or(errors.Unwrap(err), err)); was {
			return Bundle{}, []Fault{f}, nil
		}
		return b, nil, err
	}
	var faults []Fault
	add := func(part, format string, args ...any) {
		faults = append(faults, Fault{part, fmt.Sprintf(format, args...)})
	}
	if !exact {
		add("form", "the file is not the canonical form of what it says%s", unlike(file, b))
	}
	payload, ok := decode64(b.Attestation.Payload)
	if !ok {
		add("statement", "it is not base64")
	}
	if b.Attestation.PayloadType != payloadType {
		add("statement", "it is of type %q, not %s", b.Attestation.PayloadType, payloadType)
	}
	if f, bad := checkSignature(ctx, b.Attestation, pub); bad {
		faults = append(faults, f)
	}
	want, err := statementOf(b.Record)
	if err != nil {
		return b, nil, noBundle(err)
	}
	wanted, err := Canonical(want)
	if err != nil {
		return b, nil, noBundle(err)
	}
	if ok && !bytes.Equal(wanted, payload) {
		faults = append(faults, differences(payload, wanted)...)
	}
	return b, faults, nil
}

// checkSignature wants exactly one signature, by the key.
func checkSignature(ctx context.Context, e dsse.Envelope, pub ed25519.PublicKey) (Fault, bool) {
	if len(e.Signatures) != 1 {
		return Fault{"signature", fmt.Sprintf("there are %d, not one", len(e.Signatures))}, true
	}
	s := e.Signatures[0]
	if id := event.KeyID(pub); s.KeyID != id {
		return Fault{"signature", fmt.Sprintf("it names key %q, and the key given is %s", s.KeyID, id)}, true
	}
	if _, ok := decode64(s.Sig); !ok {
		return Fault{"signature", "it is not base64"}, true
	}
	ev, err := dsse.NewEnvelopeVerifier(verifier{pub})
	if err == nil {
		_, err = ev.Verify(ctx, &e)
	}
	if err != nil {
		return Fault{"signature", "the key did not sign this statement"}, true
	}
	return Fault{}, false
}

// verifier is the key for the envelope's code.
type verifier struct{ pub ed25519.PublicKey }

func (v verifier) Verify(_ context.Context, data, sig []byte) error {
	if !ed25519.Verify(v.pub, data, sig) {
		return errors.New("bad signature")
	}
	return nil
}
func (v verifier) KeyID() (string, error)   { return event.KeyID(v.pub), nil }
func (v verifier) Public() crypto.PublicKey { return v.pub }

// differences names the fields in which the statement and the record disagree.
func differences(payload, wanted []byte) []Fault {
	var have, want any
	if err := json.Unmarshal(payload, &have); err != nil {
		return []Fault{{"statement", "it is no JSON"}}
	}
	if err := json.Unmarshal(wanted, &want); err != nil {
		return []Fault{{"statement", "it is no JSON"}}
	}
	a, b := map[string]string{}, map[string]string{}
	flatten("", have, a)
	flatten("", want, b)
	var out []Fault
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	names := partNames()
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if a[k] == b[k] {
			continue
		}
		part, known := names[k]
		if !known {
			part = "statement"
		}
		out = append(out, Fault{part, fmt.Sprintf("the statement says %s, the record %s", shown(a, k), shown(b, k))})
	}
	if len(out) == 0 { // the same values, written otherwise
		out = []Fault{{"statement", "it is not in canonical form"}}
	}
	return out
}

func shown(m map[string]string, k string) string {
	v, ok := m[k]
	if !ok {
		return "nothing"
	}
	if len(v) > 80 {
		v = v[:80] + "…"
	}
	return fmt.Sprintf("%q", v)
}

func flatten(at string, v any, out map[string]string) {
	join := func(k string) string { return strings.TrimPrefix(at+"."+k, ".") }
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			flatten(join(k), e, out)
		}
	case []any:
		for i, e := range v {
			flatten(join(fmt.Sprint(i)), e, out)
		}
	default:
		out[at] = fmt.Sprint(v)
	}
}

// Against holds a bundle against a repository: the base is there, and the difference to the
// head tree is the one that was verified. changes is what the repository has between the two.
func (b Bundle) Against(changes []git.Change) []Fault {
	var faults []Fault
	paths := func(list []File) []string {
		out := make([]string, len(list))
		for i, f := range list {
			out[i] = f.Path
		}
		return out
	}
	c := b.Record.Change
	have := changeOf(changes, paths(c.Tests), paths(c.Configuration))
	for _, part := range []struct {
		name       string
		want, have []File
	}{{"diff of the tests", c.Tests, have.Tests}, {"diff of the source", c.Source, have.Source}, {"diff of the configuration", c.Configuration, have.Configuration}} {
		byPath := map[string]File{}
		for _, f := range part.have {
			byPath[f.Path] = f
		}
		for _, f := range part.want {
			switch got, ok := byPath[f.Path]; {
			case !ok:
				faults = append(faults, Fault{part.name, fmt.Sprintf("%q is in the evidence and does not differ in the repository", f.Path)})
			case got != f:
				faults = append(faults, Fault{part.name, fmt.Sprintf("%q has other content in the repository", f.Path)})
			}
			delete(byPath, f.Path)
		}
		for _, p := range slices.Sorted(maps.Keys(byPath)) {
			faults = append(faults, Fault{part.name, fmt.Sprintf("%q differs in the repository and is not in the evidence", p)})
		}
	}
	return faults
}

// AgainstLog holds a bundle against the task's exported log.
func (b Bundle) AgainstLog(id task.ID, events []event.Event) []Fault {
	l := b.Record.Log
	switch {
	case l == nil:
		return []Fault{{"log", "the evidence names none: it was made without a task"}}
	case l.Task != id:
		return []Fault{{"log", fmt.Sprintf("it is of task %s, the evidence of %s", id, l.Task)}}
	}
	if err := event.VerifyChain(id, events); err != nil {
		return []Fault{{"log", err.Error()}}
	}
	if l.Seq < 1 || l.Seq > int64(len(events)) || events[l.Seq-1].Hash != l.Root {
		return []Fault{{"log root", fmt.Sprintf("record %d of the log is not the one that the evidence names", l.Seq)}}
	}
	return nil
}
