package app

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/api"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// serving opens an installation that could serve, and a repository to ask about.
func serving(t *testing.T, change func(*config.Config)) (*App, string) {
	t.Helper()
	dir := t.TempDir()
	repo := filepath.Join(dir, "shop")
	for _, args := range [][]string{
		{"init", "-q", "-b", "main", repo},
		{"-C", repo, "-c", "user.name=T", "-c", "user.email=t@example.com", "commit", "-q", "--allow-empty", "-m", "first"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	cfg := config.Default()
	cfg.Model = "anthropic/claude-sonnet-4-5"
	cfg.Serve.Queue = 2
	change(&cfg)
	a, err := Open(t.Context(), Options{
		Dir: filepath.Join(dir, "data"), Config: cfg, Now: time.Now, Dispatch: true, Logger: slog.New(slog.DiscardHandler),
		Getenv: func(k string) string { return map[string]string{"ANTHROPIC_API_KEY": "key-0123456789"}[k] },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a, repo
}

func TestAPITasks(t *testing.T) {
	a, repo := serving(t, func(*config.Config) {})
	tasks := a.desk()
	ask := func(key, issue string) (store.Task, bool, error) {
		return tasks.Create(t.Context(), api.Request{NewTask: api.NewTask{
			Repo: repo, Issue: issue, Key: key, RequestedBy: "ann", Priority: 1,
		}, Limits: task.Limits{Steps: 7, Tokens: 1 << 40, Cost: 1_000_000, Wall: time.Minute}})
	}
	one, made, err := ask("k", "It breaks.")
	if err != nil || !made || one.State != task.Queued {
		t.Fatalf("%+v %v %v", one, made, err)
	}
	if again, made, err := ask("k", "Something else."); err != nil || made || again.ID != one.ID {
		t.Fatalf("the same key: %+v %v %v", again, made, err)
	}
	if _, made, err := ask("", "It breaks."); err != nil || !made {
		t.Fatalf("without a key: %v %v", made, err)
	}
	if _, _, err := ask("k3", "A third."); task.ClassOf(err) != task.Overloaded {
		t.Fatalf("beyond the queue: %v", err)
	}
	all, err := a.queue.store.Unfinished(t.Context())
	if err != nil || len(all) != 2 || all[0].Job == 0 || all[0].Author != "ann" || all[0].Priority != 1 {
		t.Fatalf("%+v %v", all, err)
	}
	events, err := a.Store.Events(t.Context(), one.ID, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	// Only lower than what the operator allows: 7 steps, a dollar and a minute, but no more tokens.
	if p := string(events[0].Payload); !strings.Contains(p, `"tokens":8000000`) || !strings.Contains(p, `"steps":7`) || !strings.Contains(p, `60000000000`) {
		t.Errorf("limits: %s", p)
	}
	if v, err := tasks.Result(t.Context(), one.ID); err != nil || !strings.Contains(string(v), `"state":"queued"`) {
		t.Errorf("%s %v", v, err)
	}
	if _, err := tasks.Result(t.Context(), "t_00000000000000000000000000"); task.ClassOf(err) != task.NotFound {
		t.Errorf("%v", err)
	}
}

// TestFollowRefused: words that a task in review cannot be given now leave nothing behind, so that
// saying them again says them once.
func TestFollowRefused(t *testing.T) {
	a, repo := serving(t, func(*config.Config) {})
	ctx, d := t.Context(), a.desk()
	made, _, err := d.Create(ctx, api.Request{NewTask: api.NewTask{Repo: repo, Issue: "It breaks."}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.queue.store.Claim(ctx, store.Job{ID: mustJob(t, a), Task: made.ID}, "w", time.Minute, store.Caps{})
	if err != nil {
		t.Fatal(err)
	}
	var drafts []event.Draft
	for _, p := range []event.Payload{
		event.StateChanged{From: task.Queued, To: task.Preparing},
		event.StateChanged{From: task.Preparing, To: task.Working},
		event.StateChanged{From: task.Working, To: task.Verifying},
		event.StateChanged{From: task.Verifying, To: task.Publishing},
		event.StateChanged{From: task.Publishing, To: task.InReview},
	} {
		e, err := event.New(p)
		if err != nil {
			t.Fatal(err)
		}
		drafts = append(drafts, e)
	}
	if _, err := a.Store.Append(ctx, l, drafts...); err != nil {
		t.Fatal(err)
	}
	said := func() int {
		in, err := a.Store.Signals(ctx, made.ID)
		if err != nil {
			t.Fatal(err)
		}
		return len(in)
	}
	if err := d.Steer(ctx, made.ID, "olga", "use a set"); task.ClassOf(err) != task.Conflict || said() != 0 {
		t.Errorf("%v, and %d words are there", err, said())
	}
	if err := a.Store.Release(ctx, l); err != nil {
		t.Fatal(err)
	}
	if err := d.Steer(ctx, made.ID, "olga", "use a set"); err != nil || said() != 1 {
		t.Errorf("%v, and %d words are there", err, said())
	}
	if row, err := a.Store.Task(ctx, made.ID); err != nil || row.State != task.Working || row.Owner != "" {
		t.Errorf("%+v %v", row, err)
	}
}

func TestAPITasksRefuse(t *testing.T) {
	a, repo := serving(t, func(c *config.Config) { c.Serve.Repos = []string{"https://git.example.com/shop/*"} })
	_, err := a.desk().Repository(repo)
	if task.ClassOf(err) != task.Invalid || !strings.Contains(err.Error(), "serve.repos") {
		t.Errorf("%v", err)
	}
}

// TestOneOwner: a second service on the file is refused and told who the first is; a command
// that only looks is not.
func TestOneOwner(t *testing.T) {
	a, _ := serving(t, func(*config.Config) {})
	o := a.opts
	_, err := Open(t.Context(), o)
	if task.ClassOf(err) != task.Conflict || !strings.Contains(err.Error(), "process ") || !strings.Contains(err.Error(), "postgres") {
		t.Fatalf("%v", err)
	}
	o.Dispatch = false
	b, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestServiceSecretsAreMasked: what only the service is given must not be stored or shown.
func TestServiceSecretsAreMasked(t *testing.T) {
	env := map[string]string{"DAYBREAK_TOKEN": "api-token-canary-0123", "DSN": "postgres://daybreak:hunter2-canary@db.example.com/daybreak"}
	cfg := config.Default()
	cfg.Store = config.Store{Engine: config.Postgres, DSNEnv: "DSN"}
	a := &App{Config: cfg, opts: Options{Getenv: func(k string) string { return env[k] }}}
	out, _ := policy.NewRedactor(a.secrets()).Redact("a api-token-canary-0123 b hunter2-canary c")
	if strings.Contains(out, "canary") {
		t.Errorf("%q", out)
	}
}

// TestWhoIsDead: a process number counts only where it was given; on a file of one's own every
// other service is over.
func TestWhoIsDead(t *testing.T) {
	server := &App{Config: config.Config{Store: config.Store{Engine: config.Postgres}}}
	file := &App{Config: config.Config{Store: config.Store{Engine: config.SQLite}}}
	me := serviceOwner()
	cmd := exec.Command("true")
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	host, _, _ := strings.Cut(Owner(), ":")
	gone := host + ":" + strconv.Itoa(cmd.Process.Pid) + ":1"
	for _, tt := range []struct {
		owner        string
		server, file bool
	}{
		{me, false, false},
		{Owner(), false, false}, // a person's run
		{gone, true, true},
		{gone + "@" + place(), true, true},
		{gone + "@elsewhere", false, true},
		{Owner() + "@elsewhere", false, true},
	} {
		if got := server.dead(tt.owner); got != tt.server {
			t.Errorf("%s on a server: %v", tt.owner, got)
		}
		if got := file.dead(tt.owner); got != tt.file {
			t.Errorf("%s on a file: %v", tt.owner, got)
		}
	}
	if Gone(me) {
		t.Error("a person's run would take the task of this very service")
	}
}
