package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
	"github.com/daybreak-agent/daybreak/internal/sandbox/warm"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
)

// measureMonorepo times what stands between a task on a large repository and its first command.
func measureMonorepo(ctx context.Context, w *world, t *table) error {
	repo, first, second, err := w.monorepo(ctx)
	if err != nil {
		return err
	}
	a, err := w.open(ctx, "")
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	rt, err := a.Runtime()
	if err != nil {
		return err
	}
	p := prover.New(prover.Config{
		Runtime: rt, Git: a.Git, Snapshots: a.Snapshots, Sandbox: a.SandboxSpec(""), Owner: "bench", Record: unrecorded{},
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	clone, worktree, err := w.plainGit(ctx, repo)
	if err != nil {
		return err
	}
	snap, err := builds(ctx, a, p, repo, first, second, clone, t)
	if err != nil {
		return err
	}
	defer a.Snapshots.Done(snap)
	runc, err := w.plainRunc(ctx, w.runs)
	if err != nil {
		return err
	}
	spec := p.Spec("agent", snap)
	spec.Task = "bench"
	if err := starts(ctx, w, a, rt, spec, clone, worktree, runc, t); err != nil {
		return err
	}
	return handedOut(ctx, w, rt, spec, runc, t)
}

// plainGit times what people do instead.
func (w *world) plainGit(ctx context.Context, repo string) (clone, worktree time.Duration, err error) {
	var clones, trees []time.Duration
	for i := range 3 {
		at := filepath.Join(w.dir, "clone"+strconv.Itoa(i))
		begin := time.Now()
		if _, err := w.git(ctx, w.dir, nil, "clone", "-q", "--shared", repo, at); err != nil {
			return 0, 0, err
		}
		clones = append(clones, time.Since(begin))
		begin = time.Now()
		if _, err := w.git(ctx, repo, nil, "worktree", "add", "-q", "--detach", at+"-tree", "main"); err != nil {
			return 0, 0, err
		}
		trees = append(trees, time.Since(begin))
	}
	// They stay until the end: ext4 makes files several times as slowly for minutes after as many were deleted.
	return percentile(clones, 50), percentile(trees, 50), err
}

// builds times snapshots from nothing and from the one before, with and without their indexes.
func builds(ctx context.Context, a *app.App, p *prover.Prover, repo, first, second string, clone time.Duration, t *table) (snapshot.Snapshot, error) {
	var snap snapshot.Snapshot
	var tree, advanced, whole, wholeAdvanced, twins, wholeLinked []time.Duration
	make := func(ref string) (alone, all time.Duration, err error) {
		if _, _, err = a.Snapshots.Resolve(ctx, repo, ref); err != nil { // the fetch is not counted
			return 0, 0, err
		}
		begin := time.Now()
		if snap, err = a.Snapshots.Prepare(ctx, snapshot.Source{Repo: repo, Ref: ref}); err != nil {
			return 0, 0, err
		}
		alone = time.Since(begin)
		a.Snapshots.Done(snap)
		if snap.Cached {
			return 0, 0, errors.New("the snapshot was there already")
		}
		_, done, err := p.Index(ctx, snap)
		if err == nil && done.Trouble != "" {
			err = errors.New(done.Trouble)
		}
		return alone, time.Since(begin), err
	}
	for range 3 {
		if _, err := a.Snapshots.Forget(ctx, repo, "", nil); err != nil {
			return snap, err
		}
		alone, all, err := make(first)
		if err != nil {
			return snap, err
		}
		tree, whole = append(tree, alone), append(whole, all)
		from := snap
		if _, all, err = make(second); err != nil {
			return snap, err
		}
		wholeLinked = append(wholeLinked, all)
		if _, err := a.Snapshots.Forget(ctx, repo, second, nil); err != nil {
			return snap, err
		}
		begin := time.Now()
		if err := a.Snapshots.Twin(ctx, from); err != nil {
			return snap, err
		}
		twins = append(twins, time.Since(begin))
		if alone, all, err = make(second); err != nil {
			return snap, err
		}
		advanced, wholeAdvanced = append(advanced, alone), append(wholeAdvanced, all)
	}
	share := func(a, b []time.Duration) (string, bool) {
		x := float64(percentile(a, 50)) / float64(percentile(b, 50))
		return fmt.Sprintf("%.1f %%", 100*x), x <= 0.05
	}
	t.durations(fmt.Sprintf("snapshot of %d files from nothing: tree and git index", snap.Files), tree, 0, 0,
		fmt.Sprintf("git clone --shared %s: %s", millis(clone), times(percentile(tree, 50), clone)))
	t.durations("  advanced by a 50-file commit", advanced, 0, 0, "")
	t.durations("  from nothing, with its search index and symbols", whole, 0, 0, "")
	t.durations("  advanced, with its search index and symbols", wholeAdvanced, 0, 0, "")
	t.durations("  the twin that it begins with, made beforehand", twins, 0, 0, "")
	figure, met := share(wholeAdvanced, whole)
	alone, _ := share(advanced, tree)
	linked, _ := share(wholeLinked, whole)
	t.value("  advancing, as a share of building", figure, "≤ 5 %", met, "without a twin: "+linked+"; of the tree and git index alone: "+alone)
	all, err := a.Snapshots.List(ctx, nil)
	if err != nil {
		return snap, err
	}
	for _, k := range all {
		if k.Digest == snap.Digest {
			t.value("  disk of its own of an advanced snapshot", mib(k.Own), "", false, "of "+mib(k.Bytes)+" of content; directories, the packs that changed and its indexes are most of it")
		}
	}
	snap, err = a.Snapshots.Prepare(ctx, snapshot.Source{Repo: repo, Ref: second})
	if err == nil {
		snap, _, err = p.Indexed(snap)
	}
	return snap, err
}

// starts times fresh sandboxes on the snapshot.
func starts(ctx context.Context, w *world, a *app.App, rt *oci.Runtime, spec sandbox.Spec, clone, worktree time.Duration, runc []time.Duration, t *table) error {
	var ready, ends []time.Duration
	disk := int64(0)
	for range w.runs {
		before, err := onDisk(a.Dir)
		if err != nil {
			return err
		}
		box, err := rt.Start(ctx, spec)
		if err != nil {
			return err
		}
		ready = append(ready, box.Info().Ready)
		after, err := onDisk(a.Dir)
		if err != nil {
			return err
		}
		disk = max(disk, after-before)
		begin := time.Now()
		if err := box.Destroy(ctx); err != nil {
			return err
		}
		ends = append(ends, time.Since(begin))
	}
	p50 := percentile(ready, 50)
	t.durations("sandbox on it, until its guest answers", ready, 150*time.Millisecond, 0, fmt.Sprintf("git clone --shared %s: %s; git worktree add %s: %s; runc run true %s: %s",
		millis(clone), times(p50, clone), millis(worktree), times(p50, worktree), millis(percentile(runc, 50)), times(p50, percentile(runc, 50))))
	t.value("  disk of its own before any write", fmt.Sprintf("%d KiB", disk>>10), "≤ 1 MiB", disk <= 1<<20, "what it writes is memory")
	t.durations("  its end", ends, 100*time.Millisecond, 0, "")
	return nil
}

// handedOut times sandboxes that were ready.
func handedOut(ctx context.Context, w *world, rt *oci.Runtime, spec sandbox.Spec, runc []time.Duration, t *table) error {
	pool := warm.New(warm.Config{
		Runtime: rt, Dir: filepath.Join(w.dir, "ready"), Count: 2, Memory: 1 << 30, Idle: time.Hour, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	var took []time.Duration
	err := func() error {
		for range w.runs + 1 {
			begin := time.Now()
			box, err := pool.Start(ctx, spec)
			if err != nil {
				return err
			}
			took = append(took, time.Since(begin))
			if err := box.Destroy(ctx); err != nil {
				return err
			}
			look := time.NewTicker(5 * time.Millisecond)
			for pool.Stats().Ready == 0 && ctx.Err() == nil {
				<-look.C
			}
			look.Stop()
		}
		return nil
	}()
	s := pool.Stats()
	if err = errors.Join(err, pool.Close(ctx)); err != nil {
		return err
	}
	if s.Claimed != w.runs {
		return fmt.Errorf("%d of %d sandboxes were ready", s.Claimed, w.runs)
	}
	took = took[1:] // the first was asked for before any was ready
	t.durations("sandbox that was ready, until it is handed out", took, 15*time.Millisecond, 0,
		fmt.Sprintf("runc run true %s: %s; one that waits takes %s of memory", millis(percentile(runc, 50)), times(percentile(took, 50), percentile(runc, 50)), mib(s.Memory/int64(max(s.Ready, 1)))))
	return nil
}

// onDisk are the bytes of what an installation has for its sandboxes.
func onDisk(dir string) (n int64, err error) {
	err = filepath.WalkDir(filepath.Join(dir, "sandboxes"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok {
			n += st.Blocks * 512
		}
		return nil
	})
	return n, err
}
