package prover

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// purposeAgent is the sandbox that searches.
const purposeAgent = "agent"

// purposeIndex is the sandbox in which the search index is built.
const purposeIndex = "index"

// What size of a tree means for its search index, in bytes of its files. Below IndexFrom ripgrep
// needs no index: it is as fast without one. Above IndexAtOnce building takes longer than a few
// seconds on two processors, too long to wait for.
const (
	IndexFrom   = 2 << 20
	IndexAtOnce = 192 << 20
)

// indexTime is the limit of building an index.
const indexTime = 10 * time.Minute

// IndexDone says how it stands with a search index.
type IndexDone struct {
	guest.Indexed
	Bytes  int64 // of all its files
	Cached bool  // it was there already
	Built  bool  // it was made now
	// Trouble is why there is none, or why it was made anew: one line, empty when all is well.
	Trouble string
}

// Indexed is the snapshot with its search index, if it has one. A damaged one is not taken, and
// Trouble says so.
func (p *Prover) Indexed(s snapshot.Snapshot) (snapshot.Snapshot, IndexDone, error) {
	x, err := p.cfg.Snapshots.Index(s)
	switch task.ClassOf(err) {
	case task.NotFound:
		return s, IndexDone{}, nil
	case task.Invalid:
		return s, IndexDone{Trouble: oneLine(err.Error(), 300)}, nil
	}
	if err != nil {
		return s, IndexDone{}, err
	}
	done := IndexDone{Cached: true}
	return take(s, x, done)
}

func take(s snapshot.Snapshot, x snapshot.Index, done IndexDone) (snapshot.Snapshot, IndexDone, error) {
	if err := json.Unmarshal(x.Record, &done.Indexed); err != nil {
		return s, done, fmt.Errorf("record of the search index of snapshot %s: %w", s.Digest, err)
	}
	s.Index, done.Bytes = x.Dir, x.Bytes
	return s, done, nil
}

// Index makes sure of the search index of the snapshot with its layers, by advancing an earlier
// one where there is one, and returns the snapshot with it. That it cannot be built is no error
// but Trouble: searches work without. Errors are what the owner of the sandboxes cannot record,
// and ctx's end.
func (p *Prover) Index(ctx context.Context, s snapshot.Snapshot) (snapshot.Snapshot, IndexDone, error) {
	return p.IndexTelling(ctx, s, func(string, int, int) {})
}

// IndexTelling is Index with a report of how far it is.
func (p *Prover) IndexTelling(ctx context.Context, s snapshot.Snapshot, tell git.Progress) (snapshot.Snapshot, IndexDone, error) {
	got, done, err := p.Indexed(s)
	if err != nil || done.Cached {
		return got, done, err
	}
	m, x, err := p.cfg.Snapshots.BeginIndex(ctx, s)
	if err != nil {
		done.Trouble = oneLine(err.Error(), 300)
		return s, done, context.Cause(ctx)
	}
	if m == nil { // another process made it meanwhile
		done.Cached = true
		return take(s, x, done)
	}
	built, end, trouble, err := p.buildIndex(ctx, s, m, tell)
	ended := make(chan error, 1)
	go func() { ended <- end() }() // nobody waits for the sandbox to be gone
	if trouble == nil && err == nil {
		var record []byte
		if record, trouble = json.Marshal(built); trouble == nil {
			x, trouble = m.Commit(record)
		}
	}
	err = errors.Join(err, <-ended)
	if trouble = errors.Join(trouble, m.Abandon()); trouble == nil && err == nil {
		done.Built = true
		return take(s, x, done)
	}
	if trouble != nil {
		done.Trouble = oneLine("the search index could not be built: "+trouble.Error(), 300)
	}
	return s, done, cmp.Or(err, context.Cause(ctx))
}

// buildIndex builds the index in a sandbox of its own, which reaches nothing, and takes it out
// through the channel to the guest. end ends the sandbox, trouble is why that cannot be done, err that
// it could not be recorded.
func (p *Prover) buildIndex(ctx context.Context, s snapshot.Snapshot, m *snapshot.IndexMaking, tell git.Progress) (
	done guest.Indexed, end func() error, trouble, err error,
) {
	spec := p.Spec(purposeIndex, s)
	spec.Home, spec.System, spec.Index = sandbox.Layers{}, sandbox.Layers{}, ""
	argv := []string{sandbox.GuestPath, "index", "--out", indexOut}
	since, earlier, release := p.since(ctx, s, &spec)
	end = func() error { release(); return nil }
	box, trouble := p.cfg.Runtime.Start(ctx, spec)
	if trouble != nil {
		return done, end, trouble, nil
	}
	end = func() error {
		defer release()
		ctx := context.WithoutCancel(ctx)
		if err := box.Destroy(ctx); err != nil {
			return err
		}
		return p.cfg.Record.Ended(ctx, box.Handle().ID)
	}
	if err := p.cfg.Record.Started(ctx, spec, box); err != nil {
		return done, end, nil, err
	}
	changed := since()
	if changed != nil {
		argv = append(argv, "--from", sandbox.IndexDir)
	}
	g := box.Guest()
	res, trouble := follow(ctx, g, guest.ExecRequest{
		Argv: argv, Stdin: guest.WriteChanges(changed), Timeout: indexTime, Head: guest.MaxKeep, Background: true,
	}, tell)
	switch {
	case trouble != nil:
	case res.TimedOut:
		trouble = fmt.Errorf("it took more than %s", indexTime)
	case res.ExitCode != 0 || res.Error != "":
		trouble = fmt.Errorf("exit code %d: %s", res.ExitCode, strings.Join(lastLines(output(res), 1), ""))
	default:
		done, trouble = guest.ReadIndexed(res.Head)
	}
	if trouble != nil {
		return done, end, trouble, nil
	}
	for _, f := range done.Kept {
		if err := m.Keep(earlier, f.Name, f.Size); err != nil {
			return done, end, err, nil
		}
	}
	return done, end, takeOut(ctx, g, done.Files, m), nil
}

const (
	indexTick  = 500 * time.Millisecond // how often it is asked how far an index is
	indexGrace = time.Minute            // to a sandbox to say that its time was over
)

// follow runs a background command to its end and tells its progress. When ctx ends it, or the
// sandbox does not although its time is over, it dies with that.
func follow(ctx context.Context, g *guest.Client, r guest.ExecRequest, tell git.Progress) (guest.ExecResult, error) {
	ctx, stop := context.WithTimeoutCause(ctx, r.Timeout+indexGrace, errors.New("the sandbox does not end what it was given time for"))
	defer stop()
	res, err := g.Exec(ctx, r)
	for err == nil && res.Running {
		if res, err = g.Wait(ctx, res.Proc, int64(indexTick)); err != nil {
			break
		}
		if stage, done, total, ok := guest.ReadProgress(string(guest.LastLine(res.Head))); ok {
			tell(stage, done, total)
		}
	}
	return res, err
}

// indexOut is where the index is built inside.
const indexOut = sandbox.TempDir + "/index"

// takeOut reads the files of a built index through the guest.
func takeOut(ctx context.Context, g *guest.Client, files []guest.IndexedFile, m *snapshot.IndexMaking) error {
	ctx, stop := context.WithTimeoutCause(ctx, indexTime, fmt.Errorf("it could not be taken out within %s", indexTime))
	defer stop()
	for _, f := range files {
		err := m.Add(f.Name, func(w io.Writer) error { return g.Copy(ctx, w, indexOut+"/"+f.Name, f.Size) })
		if err != nil {
			return err
		}
	}
	return nil
}

// since gives the sandbox an earlier index, which is held until release. changed waits for the names
// of the files that differ since, which are sought while the sandbox starts; nil: the index is of no
// use after all.
func (p *Prover) since(ctx context.Context, s snapshot.Snapshot, spec *sandbox.Spec) (changed func() []guest.IndexChange, x snapshot.Index, release func()) {
	nothing, none := func() []guest.IndexChange { return nil }, func() {}
	x, base, err := p.cfg.Snapshots.Earlier(ctx, s)
	if err != nil {
		return nothing, x, none // there is none
	}
	release, ok := p.cfg.Snapshots.HoldPaths(ctx, []string{x.Dir})
	if !ok {
		return nothing, snapshot.Index{}, none // collected just now
	}
	spec.Index = x.Dir
	found := make(chan []guest.IndexChange, 1)
	go func() { found <- p.changes(ctx, s, base) }()
	return func() []guest.IndexChange { return <-found }, x, release
}

// changes are the files that differ from an earlier commit, nil when those are too many, or when the
// mirror no longer has it.
func (p *Prover) changes(ctx context.Context, s snapshot.Snapshot, base string) []guest.IndexChange {
	diffs, err := p.cfg.Git.ChangedPaths(ctx, s.GitDir, base, s.Base)
	if err != nil {
		return nil
	}
	changed, size := []guest.IndexChange{}, 0
	for _, d := range diffs {
		changed = append(changed, guest.IndexChange{Path: d.Path, How: became(d)})
		size += len(d.Path) + 2
	}
	if size > maxChangedNames {
		return nil
	}
	return changed
}

// became says it by the modes: links and submodules are no files to an index.
func became(d git.PathDiff) guest.IndexHow {
	file := func(mode uint32) bool { return mode == git.ModeFile || mode == git.ModeExecutable }
	switch {
	case !file(d.NewMode):
		return guest.IndexGone
	case !file(d.OldMode):
		return guest.IndexAdded
	}
	return guest.IndexWritten
}

// maxChangedNames is when advancing an index is no gain.
const maxChangedNames = 8 << 20
