package outcomes

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/outcome"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestCommand: the command reads what is recorded, in a directory of its own.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	st, err := sqlite.Open(t.Context(), filepath.Join(dir, "daybreak.db"), sqlite.Options{Now: clock, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	record(t, st, "1", "shop/cart", event.ModelResponded{Cost: 1_000_000, Priced: true, Tokens: task.Tokens{Input: 1, CacheRead: 3}},
		state(task.Queued, task.Preparing), state(task.Preparing, task.Working), state(task.Working, task.Verifying), state(task.Verifying, task.Publishing),
		event.PullRequestOpened{URL: "https://forge.test/1"}, state(task.Publishing, task.InReview),
		event.PullRequestEnded{Merged: true, At: now.Add(time.Hour)}, state(task.InReview, task.Merged))
	now = now.Add(40 * 24 * time.Hour)
	record(t, st, "2", "shop/\x1bpay", event.ModelResponded{Cost: 3_000_000, Priced: true}, state(task.Queued, task.Failed))
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		var out bytes.Buffer
		env := &kit.Env{Out: &out, Err: &out, Getenv: func(string) string { return "" }, Now: clock, Dir: dir}
		cmd := NewCmd(env)
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			return "error: " + err.Error()
		}
		return out.String()
	}
	text := run()
	for _, want := range []string{
		"merged of all       1 of 2 (50%)", "merged of decided   1 of 1 (100%)", "$4.0000 for all tasks, $4.0000 for each merged", "to merge 1h0m0s",
		"2: 1 failed, 1 merged", "of the merged, 1 are older",
		"0s in the middle, 0s for nine of ten", "cache hits          75% of", "declined            0 of 2 (0%)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("a repository's name reaches the terminal:\n%q", text)
	}
	var r outcome.Report
	if err := json.Unmarshal([]byte(run("--json", "--since", "30d", "--by", "week")), &r); err != nil {
		t.Fatal(err)
	}
	if r.Total.Tasks != 1 || r.Total.PerMerged != nil || r.Total.Cost != 3_000_000 || len(r.Groups) != 1 || r.Groups[0].Name != "2026-04-06" || len(r.Tasks) != 1 {
		t.Errorf("%+v", r)
	}
	for _, bad := range [][]string{{"--since", "soon"}, {"--since", "-3d"}, {"--by", "moon"}} {
		if got := run(bad...); !strings.HasPrefix(got, "error: --") {
			t.Errorf("%v: %s", bad, got)
		}
	}
	if got := run("--since", "2026-12-31"); got != "no tasks in that time\n" {
		t.Errorf("%q", got)
	}
}

func state(from, to task.State) event.StateChanged { return event.StateChanged{From: from, To: to} }

func record(t *testing.T, st *sqlite.Store, n, repo string, ps ...event.Payload) {
	t.Helper()
	ctx := context.Background()
	id := task.ID("t_" + strings.Repeat("0", 25) + n)
	drafts := func(ps ...event.Payload) (out []event.Draft) {
		for _, p := range ps {
			d, err := event.New(p)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, d)
		}
		return out
	}
	if _, _, err := st.Create(ctx, store.Task{ID: id, Repo: repo, Key: n}, drafts(event.TaskCreated{Repo: repo})); err != nil {
		t.Fatal(err)
	}
	l, err := st.Acquire(ctx, id, "test", time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Append(ctx, l, drafts(ps...)...); err != nil {
		t.Fatal(err)
	}
	if err := st.Release(ctx, l); err != nil {
		t.Fatal(err)
	}
}
