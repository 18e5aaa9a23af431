package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store/postgres/pgtest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func askFiles(t *testing.T) *txtar.Archive {
	t.Helper()
	need(t, "python3")
	files, err := txtar.ParseFile("testdata/ask.txtar")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// summary is what the record says of a task now.
func (in installation) summary(t *testing.T, id task.ID) (s event.Summary) {
	t.Helper()
	cfg, err := config.Load(filepath.Join(in.dir, "daybreak.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.Open(t.Context(), app.Options{Dir: in.data(), Config: cfg, Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	events, err := a.Store.Events(t.Context(), id, 0, 0)
	if err == nil {
		s, err = event.Fold(events)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// asks waits until the task rests with its nth question, which nobody works on.
func (in installation) asks(t *testing.T, id task.ID, n int) event.Summary {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(100 * time.Millisecond) {
		if s := in.summary(t, id); s.Parked() && s.Asked.N == n && len(s.Sandboxes) == 0 {
			return s
		} else if s.State.Done() {
			t.Fatalf("the task is %s: %s", s.State, s.Reason)
		}
	}
	t.Fatalf("question %d was not asked: %+v", n, in.summary(t, id).State)
	return event.Summary{}
}

// TestServeAsk: a question lets the task rest without a worker or a sandbox; an answer over the API,
// or at the command line, lets it go on with its files; there are only so many questions.
func TestServeAsk(t *testing.T) {
	files := askFiles(t)
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			dsn := ""
			if engine == "postgres" {
				dsn = pgtest.Start(t).Database(t)
			}
			in := service(t, files, dsn, "")
			p := in.start(t, nil, "serve")
			id := in.ask(t, p)
			if code, _ := p.call(t, "POST", "/api/tasks/"+string(id)+"/answer", apiToken, map[string]any{"text": "nobody asked"}); code != http.StatusConflict {
				t.Errorf("before there is a question: %d", code)
			}
			before := in.asks(t, id, 1)
			if code, got := p.call(t, "GET", "/api/tasks/"+string(id), apiToken, nil); code != http.StatusOK || got["question"] != "Zero, or an error?" || got["state"] != "working" {
				t.Errorf("%d %v", code, got)
			}
			if out := in.output(t, "sandbox", "ls"); strings.Contains(out, string(id)) { // those that are kept ready are nobody's
				t.Errorf("while it rests: %s", out)
			}
			if code, got := p.call(t, "POST", "/api/tasks/"+string(id)+"/answer", apiToken, map[string]any{"text": "zero please", "by": "root"}); code != http.StatusAccepted {
				t.Errorf("%d %v", code, got)
			}
			after := in.asks(t, id, 2)
			if out := in.output(t, "task", "show", string(id)); !strings.Contains(out, "question to people: Is the name of the test right?") || !strings.Contains(out, "root answered") {
				t.Errorf("%s", out)
			}
			if after.Spent.Steps != before.Spent.Steps+1 {
				t.Errorf("%d steps, then %d", before.Spent.Steps, after.Spent.Steps)
			}
			in.output(t, "task", "answer", string(id), "yes,", "it is")
			if got := in.wait(t, id); got != task.InReview {
				t.Errorf("the task is %s", got)
			}
			p.end(t)
			for i, n := range in.model.Requests() {
				if n != 1 {
					t.Errorf("turn %d was asked for %d times", i+1, n)
				}
			}
			if err := in.model.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestServeAskKill kills the service as its task asks, while it rests, and as it takes the answer
// up; the answer is given once, and nothing is lost or paid for twice.
func TestServeAskKill(t *testing.T) {
	files := askFiles(t)
	for _, at := range []string{"question.asked", "rests", "question.answered"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			in := service(t, files, "", "")
			target := fingerprint(filepath.Join(in.dir, "shop"))
			var killed atomic.Bool
			dead := make(chan struct{})
			hear := func(l said) {
				if (l.kv["kind"] == at || at == "rests" && l.msg == "a task rests until a person has a word for it") && killed.CompareAndSwap(false, true) {
					_ = l.from.cmd.Process.Kill()
					close(dead)
				}
			}
			p := in.start(t, hear, "serve")
			id := in.ask(t, p)
			again := func() {
				<-dead
				<-p.done
				p = in.start(t, nil, "serve")
			}
			if at != "question.answered" {
				again()
			}
			in.asks(t, id, 1)
			in.output(t, "task", "answer", string(id), "zero please")
			if at == "question.answered" {
				again()
			}
			in.asks(t, id, 2)
			in.output(t, "task", "steer", string(id), "yes, it is")
			if got := in.wait(t, id); got != task.InReview {
				t.Errorf("the task is %s", got)
			}
			p.end(t)
			o := outcome{name: at, killed: true}
			in.judge(t, &o, target)
			if o.asked != 0 {
				t.Errorf("%d calls were made again", o.asked)
			}
		})
	}
}
