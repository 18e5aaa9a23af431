package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// built is a tree compiled once for all runs of it. It holds what the build step left in a bench of
// its own, in which no test ran; runs start from it and change only their own copy. What builds the
// tree could have done the same in each of the runs, so it gains nothing by being run once; but
// where the change itself says how things are built, each run builds for itself, and where the base
// builds something else each time, each run has a build of its own that was made apart.
type built struct {
	snapshot snapshot.Snapshot
	placed   time.Time // zero: nothing is built
	digest   string    // of what the build left, see [layerDigest]
	drop     func() error
	once     bool // for one bench, which drops it: the next build may come out otherwise
}

// builtOf compiles a tree, or takes what was compiled of it. places are the tests that are needed,
// nil for all. Of what does not build nothing is kept.
func (p *proof) builtOf(ctx context.Context, placed []git.Change, places []Place, rec *task.PhaseRecord) (built, error) {
	tree := treeDigest(p.job.Snapshot.Base, placed)
	if b, ok := p.builds[tree]; ok {
		return b, nil
	}
	var steps []command
	fresh := false
	for i, s := range p.plan.Suites {
		fresh = fresh || p.parts.unsteady[s.Kind]
		mine := places
		if places != nil {
			mine = slices.DeleteFunc(slices.Clone(places), func(pl Place) bool { return pl.Suite != i })
			if len(mine) == 0 {
				continue
			}
		}
		steps = append(steps, s.buildSteps(i, mine)...)
	}
	b := built{snapshot: p.job.Snapshot, drop: func() error { return nil }}
	if p.once || len(placed) == 0 || len(steps) == 0 || p.buildsByItself(placed) {
		return b, nil
	}
	got, err := p.compile(ctx, placed, steps, rec)
	if err != nil {
		return b, err
	}
	if !got.placed.IsZero() {
		b = got
	}
	if fresh {
		b.once = true
		return b, nil
	}
	p.keepBuilt(tree, b)
	return b, nil
}

// keepBuilt has a build removed at the end.
func (p *proof) keepBuilt(name string, b built) {
	if p.builds == nil {
		p.builds = map[string]built{}
	}
	p.builds[name] = b
}

// compile runs the steps in a bench whose HOME becomes a layer. A zero placed says that something
// did not build.
func (p *proof) compile(ctx context.Context, placed []git.Change, steps []command, rec *task.PhaseRecord) (out built, err error) {
	v := p.v
	box, snap, drop, err := v.Lab.BuildBench(ctx, p.job.Snapshot)
	if err != nil {
		return out, fmt.Errorf("sandbox for build: %w", err)
	}
	bench := &bench{v: v, box: box, base: p.job.Snapshot.Base}
	good, first := false, len(rec.Runs)
	defer func() {
		err = errors.Join(err, bench.close(ctx, "build"))
		if err == nil && good {
			// What cannot be read cannot be named: then each run builds for itself.
			out.digest, good = layerDigest(ctx, snap.Built)
		}
		if err != nil || !good {
			out, err = built{}, errors.Join(err, drop())
			return
		}
		for i := range rec.Runs[first:] {
			rec.Runs[first+i].Build = out.digest
		}
	}()
	g := box.Guest()
	if err := place(ctx, g, placed); err != nil {
		return out, err
	}
	at, err := v.age(ctx, g, request{place: placed, plan: p.plan, parts: &p.parts})
	if err != nil {
		return out, err
	}
	deadline := at.Add(v.timeout())
	for _, c := range steps {
		var show ran
		res, err := v.exec(ctx, g, c, deadline, &show)
		if err != nil && g.Err() != nil && ctx.Err() == nil {
			good = false
			return out, nil // a limit took the bench; the runs will say so
		}
		if err != nil {
			return out, err
		}
		r := task.RunRecord{Command: c.human, ExitCode: res.ExitCode, Millis: res.Wall.Milliseconds(), Outcome: "built"}
		if r.Log, err = v.Lab.Log(ctx, logText(c, res, nil)); err != nil {
			return out, fmt.Errorf("store the log of %q: %w", c.human, err)
		}
		good = res.ExitCode == 0 && !res.TimedOut
		if !good {
			r.Outcome = "not built"
		}
		rec.Runs = append(rec.Runs, r)
		if !good {
			return out, nil
		}
	}
	return built{snapshot: snap, placed: at, drop: drop}, nil
}

// dropBuilds removes what was compiled.
func (p *proof) dropBuilds() error {
	var err error
	for _, b := range p.builds {
		err = errors.Join(err, b.drop())
	}
	p.builds = nil
	return err
}

// buildSteps are the commands that compile what the suite's own command would compile before it
// runs the places; none where that cannot be parted from running.
func (s Suite) buildSteps(i int, places []Place) []command {
	switch s.Kind {
	case KindCargo:
		var out []command
		for _, r := range cargoRuns(places) {
			if !r.doc { // documentation tests are compiled while they run
				human := "cargo test --no-run" + s.build(r)
				out = append(out, s.command(i, "export CARGO_TARGET_DIR="+s.buildDir(i)+"; "+human, human, "", ""))
			}
		}
		return out
	case KindCTest:
		shell, human := s.cmakeBuild(i)
		return []command{s.command(i, shell, human, "", "")}
	}
	return nil
}

// atBuild names files that run, or say what runs, while a tree is built.
var atBuild = regexp.MustCompile(`(^|/)(build\.rs|Cargo\.(toml|lock)|\.cargo/.*|rust-toolchain(\.toml)?|CMakeLists\.txt|CMake\w*Presets\.json|(GNU)?[mM]akefile.*|configure|[^/]*\.(cmake|cmake\.in|mk|am|ac|sh|bash|py|pl|rb|awk|js|mjs|lua|tcl))$`)

// buildsByItself reports whether the change takes part in saying how the tree is built.
func (p *proof) buildsByItself(placed []git.Change) bool {
	root, err := os.OpenRoot(p.job.Snapshot.Tree)
	if err != nil {
		return true
	}
	defer root.Close()
	fsys := root.FS()
	return slices.ContainsFunc(placed, func(c git.Change) bool {
		if atBuild.MatchString(c.Path) || c.Mode == git.ModeLink || c.Mode&0o111 != 0 || varies(c) {
			return true
		}
		for dir := path.Dir(c.Path); path.Ext(c.Path) == ".rs"; dir = path.Dir(dir) {
			manifest := path.Join(dir, "Cargo.toml")
			if _, ok := slices.BinarySearch(p.parts.files, manifest); ok {
				return procMacro.MatchString(readSome(fsys, manifest))
			}
			if dir == "." {
				break
			}
		}
		return false
	})
}
