package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/tool"
)

// monorepoModule is the large tree of the measurements: 9,123 files, 2.45 million lines.
const monorepoModule = "k8s.io/kubernetes@v1.37.2"

// monorepo is a repository with the tree of [monorepoModule] as its first commit and 50 changed
// files as its second. The module is fetched by the machine's own Go client.
func (w *world) monorepo(ctx context.Context) (dir, first, second string, err error) {
	if m := w.mono; m != nil {
		return m[0], m[1], m[2], nil
	}
	defer func() {
		if err == nil {
			w.mono = []string{dir, first, second}
		}
	}()
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", monorepoModule)
	cmd.Dir = w.dir
	out, err := cmd.Output()
	var mod struct{ Dir, Error string }
	if jerr := json.Unmarshal(out, &mod); err != nil || jerr != nil || mod.Dir == "" {
		return "", "", "", fmt.Errorf("download %s: %w: %s", monorepoModule, errors.Join(err, jerr), mod.Error)
	}
	dir = filepath.Join(w.dir, "monorepo")
	if err := os.CopyFS(dir, os.DirFS(mod.Dir)); err != nil {
		return "", "", "", err
	}
	commit := func(message string) (string, error) {
		for _, args := range [][]string{
			{"add", "--all", "--force"},
			{"-c", "user.name=Bench", "-c", "user.email=bench@localhost", "commit", "-q", "--no-gpg-sign", "-m", message},
		} {
			if _, err := w.git(ctx, dir, nil, args...); err != nil {
				return "", err
			}
		}
		id, err := w.git(ctx, dir, nil, "rev-parse", "HEAD")
		return string(bytes.TrimSpace([]byte(id))), err
	}
	if _, err = w.git(ctx, dir, nil, "init", "-q", "-b", "main"); err != nil {
		return "", "", "", err
	}
	if first, err = commit("first"); err != nil {
		return "", "", "", err
	}
	changed, err := filepath.Glob(filepath.Join(dir, "pkg/kubelet/*/*.go"))
	if err != nil || len(changed) < 50 {
		return "", "", "", fmt.Errorf("%d files to change: %w", len(changed), err)
	}
	for i, f := range changed[:50] {
		if err := errors.Join(os.Chmod(f, 0o644), appendTo(f, fmt.Sprintf("\n// benchChange%d is new.\nfunc benchChange%d() {}\n", i, i))); err != nil {
			return "", "", "", err
		}
	}
	second, err = commit("second")
	return dir, first, second, err
}

func appendTo(name, text string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// unrecorded is nobody's record.
type unrecorded struct{}

func (unrecorded) Started(context.Context, sandbox.Spec, sandbox.Sandbox) error { return nil }
func (unrecorded) Ended(context.Context, string) error                          { return nil }
func (unrecorded) Log(context.Context, []byte) (string, error)                  { return "", nil }

// Queries of the measurement: what few files have, and what most have.
var (
	selective   = []string{"NewSchedulerCommand", `func \(p \*PriorityQueue\) \w+`, "ErrReasonPodBinding|errNoPodsFound", "syncLoopIteration", `TODO\(random`}
	unselective = []string{"err", "return", `\bfunc\b`, "[a-z]+Options", "the", `(?i)err\w+ :?=`}
)

func measureSearch(ctx context.Context, w *world, t *table) error {
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
		Runtime: rt, Git: a.Git, Snapshots: a.Snapshots, Sandbox: a.SandboxSpec("index"), Owner: "bench", Record: unrecorded{},
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if _, err := a.Snapshots.Forget(ctx, repo, "", nil); err != nil { // what other measurements left
		return err
	}
	snap, err := a.Snapshots.Prepare(ctx, snapshot.Source{Repo: repo, Ref: first})
	if err != nil {
		return err
	}
	begin := time.Now()
	snap, done, err := p.Index(ctx, snap)
	took := time.Since(begin)
	if err != nil || !done.Built {
		return fmt.Errorf("the index was not built: %w: %s", err, done.Trouble)
	}
	next, err := a.Snapshots.Prepare(ctx, snapshot.Source{Repo: repo, Ref: second})
	if err != nil {
		return err
	}
	begin = time.Now()
	_, later, err := p.Index(ctx, next)
	advance := time.Since(begin)
	if err != nil || !later.Advanced {
		return fmt.Errorf("the index was not advanced: %w: %s", err, later.Trouble)
	}
	if err := indexFigures(snap, done, took, advance, t); err != nil {
		return err
	}
	with, err := rt.Start(ctx, p.Spec("agent", snap))
	if err != nil {
		return err
	}
	err = w.searches(ctx, with, t)
	return errors.Join(err, with.Destroy(ctx))
}

// indexFigures says what the index costs, and, in this process, what building and opening take.
func indexFigures(snap snapshot.Snapshot, done prover.IndexDone, took, advance time.Duration, t *table) error {
	dir, err := os.MkdirTemp("", "daybreak-bench-index-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cmd := exec.Command("rg", "--no-config", "--hidden", "--glob", "!.git", "--files", "--null", "./")
	cmd.Dir = snap.Tree
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	var files []string
	for f := range bytes.SplitSeq(bytes.TrimSuffix(out, []byte{0}), []byte{0}) {
		files = append(files, filepath.Clean(string(f)))
	}
	begin := time.Now()
	stats, err := codesearch.Build(context.Background(), filepath.Join(dir, "x"), snap.Tree, files, codesearch.BuildOptions{Workers: 1})
	alone := time.Since(begin)
	if err != nil {
		return err
	}
	var opened []time.Duration
	for range 25 {
		begin := time.Now()
		x, err := codesearch.Open(snap.Index)
		if err != nil {
			return err
		}
		opened = append(opened, time.Since(begin))
		if err := x.Close(); err != nil {
			return err
		}
	}
	share := 100 * float64(done.Bytes) / float64(done.Stats.Text)
	rate := float64(stats.Text) / 1e6 / alone.Seconds()
	t.value("search index of its text, symbols included", fmt.Sprintf("%.1f %%", share), "≤ 35 %", share <= 35,
		fmt.Sprintf("%d files, %s of text, %d symbols", done.Stats.Files, mib(done.Stats.Text), done.Symbols))
	t.value("  building it on one core", fmt.Sprintf("%.0f MB/s", rate), "≥ 20 MB/s", rate >= 20, fmt.Sprintf("in a sandbox, with symbols: %s", millis(took)))
	t.value("  advancing it by 50 files", millis(advance), "", false, times(advance, took)+" building it, sandboxes included")
	t.durations("  opening it", opened, 5*time.Millisecond, 0, "")
	return nil
}

// searches times queries through the guest, beside ripgrep in the same sandbox, and counts what
// a navigation costs the model.
func (w *world) searches(ctx context.Context, box sandbox.Sandbox, t *table) error {
	for _, c := range []struct {
		what    string
		queries []string
		faster  float64
	}{{"search, selective queries", selective, 20}, {"search, unselective queries", unselective, 1}} {
		var ours, rg []time.Duration
		least, worst := 0.0, ""
		for _, q := range c.queries {
			for i := range w.runs + 1 {
				begin := time.Now()
				r, err := box.Guest().Search(ctx, guest.SearchRequest{Pattern: q, Case: "sensitive"})
				took := time.Since(begin)
				if err == nil && r.Error != "" {
					err = errors.New(r.Error)
				}
				if err != nil {
					return fmt.Errorf("search %q: %w", q, err)
				}
				begin = time.Now()
				res, err := box.Guest().Exec(ctx, guest.ExecRequest{Argv: []string{"rg", "--no-config", "--hidden", "--glob", "!.git", "--count", "-e", q, "./"}})
				if err != nil || res.ExitCode > 1 {
					return fmt.Errorf("rg %q: %w: %s", q, err, res.Head)
				}
				if i > 0 { // the first one warms the caches
					ours, rg = append(ours, took), append(rg, time.Since(begin))
				}
			}
			n := len(ours) - w.runs
			if x := float64(percentile(rg[n:], 50)) / float64(percentile(ours[n:], 50)); worst == "" || x < least {
				least, worst = x, q
			}
		}
		ratio := float64(percentile(rg, 50)) / float64(percentile(ours, 50))
		t.durations(c.what, ours, 0, 0, "rg --count "+millis(percentile(rg, 50)))
		t.value("  times as fast as rg", fmt.Sprintf("%.1f", ratio), fmt.Sprintf("≥ %.0f", c.faster), ratio >= c.faster, fmt.Sprintf("least %.1f, of %s", least, worst))
	}
	most := 0
	var times []time.Duration
	env := &tool.Env{Guest: box.Guest(), Seen: map[string]string{}}
	for _, name := range []string{"NewSchedulerCommand", "syncLoopIteration", "PriorityQueue.Add", "ValidatePod", "New", "Error", "NewPodWorkers"} {
		input, err := json.Marshal(map[string]string{"name": name})
		if err != nil {
			return err
		}
		begin := time.Now()
		r, err := tool.NewRegistry().Call(ctx, env, "symbols", input)
		if err != nil || r.IsError {
			return fmt.Errorf("symbols %s: %w: %s", name, err, r.Text)
		}
		times = append(times, time.Since(begin))
		most = max(most, (len(r.Text)+len(input)+2)/3)
	}
	t.value("navigation: definition and callers of a name, tokens at most", fmt.Sprint(most), "≤ 600", most <= 600, "by the agent's own upper estimate, 3 bytes a token")
	t.durations("  its time", times, 0, 0, "")
	return nil
}
