package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
)

// largeFiles is the environment variable that says how many files the odd tree has.
const largeFiles = "DAYBREAK_BENCH_LARGE"

// measureLarge makes, advances and searches a tree of many files with what trees have that is odd.
func measureLarge(ctx context.Context, w *world, t *table) error {
	files := 20_000
	if v := os.Getenv(largeFiles); v != "" {
		var err error
		if files, err = strconv.Atoi(v); err != nil {
			return fmt.Errorf("%s: %w", largeFiles, err)
		}
	}
	repo, err := w.oddRepo(ctx, files)
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
		Runtime: rt, Git: a.Git, Snapshots: a.Snapshots, Sandbox: a.SandboxSpec("index"), Owner: "bench", Record: unrecorded{},
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	var took [2][2]time.Duration // tree, index; from nothing, advanced
	var snap snapshot.Snapshot
	for i, ref := range []string{"main~1", "main"} {
		id, _, err := a.Snapshots.Resolve(ctx, repo, ref)
		if err != nil {
			return err
		}
		begin := time.Now()
		if snap, err = a.Snapshots.Prepare(ctx, snapshot.Source{Repo: repo, Ref: id}); err != nil {
			return err
		}
		defer a.Snapshots.Done(snap)
		took[i][0] = time.Since(begin)
		begin = time.Now()
		var done prover.IndexDone
		if snap, done, err = p.Index(ctx, snap); err != nil || done.Trouble != "" || done.Advanced != (i == 1) {
			return fmt.Errorf("the index: %w %s, advanced: %v", err, done.Trouble, done.Advanced)
		}
		took[i][1] = time.Since(begin)
		what := fmt.Sprintf("odd tree of %d files, from nothing: tree", snap.Files)
		beside := fmt.Sprintf("%s of content; %d warnings", mib(snap.Bytes), len(snap.Warnings))
		if i == 1 {
			what, beside = "  advanced by 50 files: tree", times(took[1][0], took[0][0])
		}
		t.value(what, millis(took[i][0]), "", false, beside)
		beside = fmt.Sprintf("%d files, %s of text, %s of index, %d symbols", done.Stats.Files, mib(done.Stats.Text), mib(done.Bytes), done.Symbols)
		if i == 1 {
			beside = times(took[1][1], took[0][1])
		}
		t.value("    its search index and symbols", millis(took[i][1]), "", false, beside)
		if i == 0 {
			begin = time.Now()
			if err := a.Snapshots.Twin(ctx, snap); err != nil {
				return err
			}
			t.value("    its twin, which the next begins with, made beforehand", millis(time.Since(begin)), "", false, "")
		}
	}
	all := float64(took[1][0]+took[1][1]) / float64(took[0][0]+took[0][1])
	t.value("  advancing, as a share of building", fmt.Sprintf("%.1f %%", 100*all), "≤ 5 %", all <= 0.05, "")
	t.value("  memory at most, of the whole process", mib(peakMemory()), "", false, "")
	kept, err := a.Snapshots.List(ctx, nil)
	if err != nil {
		return err
	}
	for _, k := range kept {
		t.value("  disk: "+k.Kind, mib(k.Own), "", false, "its own; with its share of what is linked "+mib(k.Disk))
	}
	box, err := rt.Start(ctx, p.Spec("agent", snap))
	if err != nil {
		return err
	}
	err = w.oddSearches(ctx, box.Guest(), t)
	return errors.Join(err, box.Destroy(ctx))
}

// oddSearches times a few queries beside ripgrep.
func (w *world) oddSearches(ctx context.Context, g *guest.Client, t *table) error {
	for _, q := range []string{"needle4711", `func \w+ 77\b`, "x{40}end", "line"} {
		var ours, rg []time.Duration
		how := ""
		for range 4 {
			begin := time.Now()
			r, err := g.Search(ctx, guest.SearchRequest{Pattern: q, Case: "sensitive"})
			if err == nil && r.Error != "" {
				err = errors.New(r.Error)
			}
			if err != nil {
				return fmt.Errorf("search %q: %w", q, err)
			}
			how = "from the index"
			if !r.Indexed {
				how = "by ripgrep: too many files that only it can judge"
			}
			ours = append(ours, time.Since(begin))
			begin = time.Now()
			res, err := g.Exec(ctx, guest.ExecRequest{Argv: []string{"rg", "--no-config", "--hidden", "--glob", "!.git", "--count", "-e", q, "./"}, Timeout: 5 * time.Minute})
			if err != nil || res.ExitCode > 1 {
				return fmt.Errorf("rg %q: %w: %s", q, err, res.Head)
			}
			rg = append(rg, time.Since(begin))
		}
		t.durations("  search for "+q, ours[1:], 0, 0, how+"; rg --count "+millis(percentile(rg[1:], 50)))
	}
	return nil
}

// peakMemory is the most that this process had resident, 0 where the kernel does not say.
func peakMemory() int64 {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(rest, &kib) // 0
	return kib << 10
}

// oddRepo is a repository with the files, in two commits: deep paths, links, lines of a megabyte,
// text that is not UTF-8, binaries, pointers of Git LFS, names that differ in case, submodules.
func (w *world) oddRepo(ctx context.Context, files int) (string, error) {
	dir := filepath.Join(w.dir, "odd.git")
	if _, err := w.git(ctx, w.dir, nil, "init", "-q", "--bare", "-b", "main", dir); err != nil {
		return "", err
	}
	stream := filepath.Join(w.dir, "odd.stream")
	out, err := os.Create(stream)
	if err != nil {
		return "", err
	}
	b := bufio.NewWriterSize(out, 1<<20)
	commit := func(mark int, more string) {
		fmt.Fprintf(b, "commit refs/heads/main\nmark :%d\ncommitter Bench <bench@localhost> %d +0000\ndata 1\nc\n%s", mark, 1_700_000_000+mark, more)
	}
	commit(1, "")
	for i := range files {
		oddFile(b, i, oddPath(i), "")
	}
	commit(2, "from :1\n")
	for i := range 50 {
		switch n := (i*7919 + 3) % files; {
		case i < 30:
			oddFile(b, 8*(n/8)+1, oddPath(8*(n/8)+1), "changed")
		case i < 40:
			oddFile(b, n, fmt.Sprintf("added/%d/f%d.go", i%3, i), "added")
		default:
			fmt.Fprintf(b, "D %s\n", oddPath(n))
		}
	}
	if err := errors.Join(b.Flush(), out.Close()); err != nil {
		return "", err
	}
	text, err := os.ReadFile(stream)
	if err == nil {
		_, err = w.git(ctx, dir, text, "fast-import", "--quiet")
	}
	return dir, errors.Join(err, os.Remove(stream))
}

// oddPath is the path of a file by its number: 20 to a directory, some very deep.
func oddPath(i int) string {
	d := i / 20
	p := fmt.Sprintf("top%d/mid%d/dir%d", d%40, d/40%50, d)
	switch {
	case i%500 == 7:
		p += strings.Repeat("/deep", 60)
	case i%997 == 0:
		return fmt.Sprintf("%s/CASE%d", p, i)
	case i%997 == 1:
		return fmt.Sprintf("%s/case%d", p, i-1)
	}
	return fmt.Sprintf("%s/file%d.go", p, i)
}

// oddFile writes a command of fast-import for one file.
func oddFile(b io.Writer, i int, path, more string) {
	mode, text := "100644", ""
	switch {
	case i%10_007 == 3:
		fmt.Fprintf(b, "M 160000 %040x %s\n", i+1, path)
		return
	case i%101 == 2:
		mode, text = "120000", []string{"../up", "file0.go", "/etc/passwd"}[i%3]
	case i%5003 == 4:
		text = fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%064x\nsize %d\n", i, i)
	case i%25_013 == 5:
		text = strings.Repeat("x", 1<<20) + fmt.Sprintf("end%d\n", i)
	case i%103 == 6:
		text = fmt.Sprintf("caf\xe9 line needle%d\n\xff\xfe\n", i)
	case i%107 == 7:
		text = fmt.Sprintf("\x00\x01binary line %d\x00%s", i, strings.Repeat("\x7f\x00", 200))
	default:
		var s strings.Builder
		fmt.Fprintf(&s, "package p%d\n\n// needle%d is %s here.\n", i%1000, i, more)
		for k := range 6 + i%11 {
			fmt.Fprintf(&s, "func F%d_%d() int { return line(%d, %q) } // func x %d\n", i, k, i*k, fmt.Sprint(i%7919*k), i%100)
		}
		text = s.String()
	}
	fmt.Fprintf(b, "M %s inline %s\ndata %d\n%s\n", mode, path, len(text), text)
}
