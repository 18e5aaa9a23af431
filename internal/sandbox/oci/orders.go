package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// order is one piece of work that needs privileges over a sandbox's mounts or processes. As
// root the worker does it itself; otherwise the holder does it, in the user's own namespaces,
// with the same code.
type order struct {
	Protocol int            `json:"protocol"`
	Place    place          `json:"place"`
	Do       string         `json:"do"`
	Rec      record         `json:"rec"`
	Limits   sandbox.Limits `json:"limits"`
	Spec     sandbox.Spec   `json:"spec"`
	Conf     *specs.Spec    `json:"conf,omitempty"`
	ID       string         `json:"id,omitempty"`     // of the container to run
	Bundle   string         `json:"bundle,omitempty"` //
	Keep     string         `json:"keep,omitempty"`   // directory to measure, until it passes
	Enough   int64          `json:"enough,omitempty"` // so many bytes
	Args     []string       `json:"args,omitempty"`   // of the exporter
}

// place is the part of a [Runtime] that orders depend on.
type place struct {
	Config orderConfig `json:"config"`
	Base   string      `json:"base"`
	Stand  standing    `json:"stand"`
}

type orderConfig struct {
	Dir, Runtime, Engine, Guest, RootFS, Etc, RunDir string
}

const (
	doShare    = "share"    // make what all sandboxes share
	doBuild    = "build"    // mount a sandbox's files and write its bundle
	doGive     = "give"     // fill the files that were left empty
	doRun      = "run"      // start a container on three given descriptors
	doMeasure  = "measure"  // sum up a kept directory
	doKill     = "kill"     // end all processes
	doPause    = "pause"    // stop the tasks of a runtime's own kernel
	doResume   = "resume"   //
	doHasFiles = "files"    // whether the sandbox's files are still there
	doReader   = "reader"   // build the exporter
	doUnread   = "unread"   // remove the exporter
	doTeardown = "teardown" // remove everything
	doLeave    = "leave"    // a holder without sandboxes ends
)

type answer struct {
	Size int64 `json:"size"` // of what was measured
	Ends bool  `json:"ends"` // the holder
}

// do has an order carried out by whoever may.
func (r *Runtime) do(ctx context.Context, o order, files ...*os.File) (answer, error) {
	return r.order(ctx, r.standing(), o, files...)
}

func (r *Runtime) order(ctx context.Context, stand standing, o order, files ...*os.File) (answer, error) {
	if r.holder == nil {
		return r.perform(ctx, o, files)
	}
	o.Protocol, o.Place = protocol, place{
		Config: orderConfig{r.cfg.Dir, r.cfg.Runtime, r.cfg.Engine, r.cfg.Guest, r.cfg.RootFS, r.cfg.Etc, r.cfg.RunDir},
		Base:   r.base, Stand: stand,
	}
	return r.holder.call(ctx, o, files)
}

// perform carries an order out in this process.
func (r *Runtime) perform(ctx context.Context, o order, files []*os.File) (answer, error) {
	s := &box{r: r, rec: o.Rec, limits: o.Limits}
	switch o.Do {
	case doShare:
		_, _, err := r.share()
		return answer{}, err
	case doBuild:
		return answer{}, s.build(o.Spec, o.Conf)
	case doGive:
		return answer{}, s.fillOwn(o.Spec.Files)
	case doRun:
		if len(files) != 3 {
			return answer{}, errors.New("three descriptors are needed")
		}
		return answer{}, r.runc(ctx, o.ID, o.Bundle, files)
	case doMeasure:
		n, err := sizeOf(ctx, o.Keep, o.Enough)
		return answer{Size: n}, err
	case doKill:
		return answer{}, r.killAll(ctx, o.Rec)
	case doPause, doResume:
		return answer{}, r.control(ctx, o.Do, o.Rec.ID)
	case doHasFiles:
		_, err := os.Stat(s.path(dirWork, "u"))
		return answer{}, err
	case doReader:
		return answer{}, s.exportRoot(o.Args)
	case doUnread:
		return answer{}, s.clearExporter(ctx)
	case doTeardown:
		return answer{}, r.teardown(ctx, o.Rec)
	}
	return answer{}, fmt.Errorf("unknown order %q", o.Do)
}

// runc runs the OCI runtime detached on the given standard streams.
func (r *Runtime) runc(ctx context.Context, id, bundle string, files []*os.File) error {
	args := append(r.engine.args(r.stand), "--root", r.stateDir(), "run", "--detach", "--bundle", bundle, id)
	cmd := exec.CommandContext(ctx, r.cfg.Runtime, args...)
	cmd.WaitDelay = time.Second
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = files[0], files[1], files[2]
	return cmd.Run()
}
