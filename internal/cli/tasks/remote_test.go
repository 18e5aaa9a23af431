package tasks

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/outcomes"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const someTask = task.ID("t_01kh0000000000000000000001")

// installed is an installation with one recorded task, and its service.
func installed(t *testing.T) (a *app.App, srv *httptest.Server) {
	t.Helper()
	token := func(k string) string { return map[string]string{"DAYBREAK_TOKEN": "an-operators-token"}[k] }
	a, err := app.Open(t.Context(), app.Options{Dir: t.TempDir(), Config: config.Default(), Getenv: token, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	ctx := t.Context()
	long, err := a.Store.PutBlob(ctx, []byte("--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := event.New(event.TaskCreated{Repo: "/srv/shop", IssueTitle: "It breaks", Issue: event.Text{Inline: "It breaks", Bytes: 9}, Limits: task.Limits{Steps: 9}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Store.Create(ctx, store.Task{ID: someTask, Key: "k", Repo: "/srv/shop", Title: "It breaks"}, []event.Draft{first}); err != nil {
		t.Fatal(err)
	}
	l, err := a.Store.Acquire(ctx, someTask, "me", time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 600 { // more than a page
		var p event.Payload = event.Noticed{Step: i, What: "idle", Text: "go on"}
		if i == 0 {
			p = event.WorkspaceSaved{Why: "step", Files: 1, Diff: event.Text{Blob: long, Bytes: 40}}
		}
		d, err := event.New(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Store.Append(ctx, l, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Store.Release(ctx, l); err != nil {
		t.Fatal(err)
	}
	hub := a.Hub()
	t.Cleanup(hub.Close)
	s, err := a.Server(ctx, func(context.Context) error { return nil }, hub, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	srv = httptest.NewServer(s.Handler())
	t.Cleanup(srv.Close)
	return a, srv
}

// run runs a command line against this machine's store, or with a server against that.
func run(t *testing.T, dir, server, token string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	env := &kit.Env{Out: &out, Err: &out, Now: time.Now, Dir: dir, Getenv: func(k string) string {
		return map[string]string{"DAYBREAK_SERVER": server, "DAYBREAK_TOKEN": token, "HOME": dir}[k]
	}}
	root := &cobra.Command{Use: "daybreak", SilenceErrors: true, SilenceUsage: true}
	root.AddCommand(NewCmd(env), outcomes.NewCmd(env))
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestClient: with a server set the commands print what they print beside its store.
func TestClient(t *testing.T) {
	a, srv := installed(t)
	_, token, err := access.CreateToken(t.Context(), a.Store.(store.Access), nil, time.Now(), access.NewToken{Name: "laptop", Scopes: []access.Scope{access.Read, access.Steer, access.Budget}})
	if err != nil {
		t.Fatal(err)
	}
	id := string(someTask)
	for _, args := range [][]string{
		{"task", "ls"},
		{"task", "ls", "--state", "queued", "--limit", "1"},
		{"task", "ls", "--state", "merged"},
		{"task", "show", id},
		{"task", "show", id, "--full"},
		{"task", "show", "--json"},
		{"task", "diff", id[20:]},
		{"task", "export", id},
		{"task", "verify-log", id},
		{"outcomes", "--by", "month", "--since", "30d"},
		{"outcomes"},
	} {
		here, err := run(t, a.Dir, "", "", args...)
		if err != nil || here == "" {
			t.Fatalf("%v: %v", args, err)
		}
		there, err := run(t, t.TempDir(), srv.URL, token, args...)
		if err != nil || there != here {
			t.Errorf("%v: %v\n%.300s\nhere\n%.300s", args, err, there, here)
		}
	}
	for _, args := range [][]string{{"task", "steer", id, "use", "a", "set"}, {"task", "budget", id, "--steps", "20"}, {"task", "stop", id, "--reason", "enough"}} {
		if out, err := run(t, t.TempDir(), srv.URL, token, args...); err != nil || out == "" {
			t.Errorf("%v: %q %v", args, out, err)
		}
	}
	in, err := a.Store.Signals(t.Context(), someTask)
	if err != nil || len(in) != 4 || in[0].Text != "use a set" || in[0].Who != "token:laptop" || in[3].Kind != store.Stop || in[3].Text != "enough" {
		t.Errorf("%+v %v", in, err)
	}
}

// TestClientRefused: what a server refuses is said in one line, and a token goes nowhere else.
func TestClientRefused(t *testing.T) {
	a, srv := installed(t)
	_, token, err := access.CreateToken(t.Context(), a.Store.(store.Access), nil, time.Now(), access.NewToken{Name: "laptop", Scopes: []access.Scope{access.Read}})
	if err != nil {
		t.Fatal(err)
	}
	leaked := make(chan string, 1)
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case leaked <- r.Header.Get("Authorization"):
		default:
		}
	}))
	t.Cleanup(elsewhere.Close)
	redirects := httptest.NewServer(http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect))
	t.Cleanup(redirects.Close)
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	id := string(someTask)
	for _, tt := range []struct {
		server, token string
		args          []string
		class         task.Class
		says          string
	}{
		{srv.URL, "wrong", []string{"task", "ls"}, task.Auth, "does not know the token; set DAYBREAK_TOKEN"},
		{srv.URL, "", []string{"task", "ls"}, task.Invalid, "no token"},
		{srv.URL, token, []string{"task", "stop", id}, task.Auth, "you may not do that"},
		{srv.URL, token, []string{"task", "approve", id}, task.Auth, "you may not do that"},
		{srv.URL, "an-operators-token", []string{"task", "approve", id}, task.Conflict, "no change that waits"},
		{srv.URL, token, []string{"task", "show", "t_01kh0000000000000000000009"}, task.NotFound, "no such task"},
		{srv.URL, token, []string{"task", "show", "nothing"}, task.NotFound, `no task "nothing"`},
		{srv.URL, token, []string{"outcomes", "--by", "mood"}, task.Invalid, "repository, week or month"},
		{redirects.URL, token, []string{"task", "ls"}, task.Unavailable, "like no Daybreak server: 307"},
		{closed.URL, token, []string{"task", "ls"}, task.Unavailable, "start it there with `daybreak serve`"},
		{"http://daybreak.example", token, []string{"task", "ls"}, task.Invalid, "in the clear"},
		{"daybreak.example", token, []string{"task", "ls"}, task.Invalid, "write its address"},
	} {
		out, err := run(t, t.TempDir(), tt.server, tt.token, tt.args...)
		if task.ClassOf(err) != tt.class || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") || out != "" {
			t.Errorf("%s %v: %s %v %q", tt.server, tt.args, task.ClassOf(err), err, out)
		}
		if err != nil && len(tt.token) > 10 && strings.Contains(err.Error(), tt.token) {
			t.Errorf("the token is in %v", err)
		}
	}
	select {
	case a := <-leaked:
		t.Errorf("the token went after a redirect: %q", a)
	default:
	}
}
