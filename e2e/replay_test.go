package e2e

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// A task that rested twice until people answered is run again run by run: their words come from
// the record as well.
func TestReplayOfQuestions(t *testing.T) {
	in := service(t, askFiles(t), "", "")
	p := in.start(t, nil, "serve")
	id := in.ask(t, p)
	in.asks(t, id, 1)
	in.output(t, "task", "answer", string(id), "zero please")
	in.asks(t, id, 2)
	in.output(t, "task", "answer", string(id), "yes, it is")
	if got := in.wait(t, id); got != task.InReview {
		t.Fatalf("the task is %s\n%s", got, p.log())
	}
	p.end(t)
	before := in.output(t, "task", "export", string(id))
	if out := in.output(t, "task", "replay", string(id)); !strings.HasPrefix(out, "no divergence: 5 requests, ") || !strings.Contains(out, ", tree ") {
		t.Errorf("%s", out)
	}
	if in.output(t, "task", "export", string(id)) != before {
		t.Error("the record is another one after its replay")
	}
}

// replayed runs a task again and holds what is said of it against the beginning of a line and a note. The record must be the same afterwards.
func (in installation) replayed(t *testing.T, id task.ID, begins, note string) {
	t.Helper()
	before := in.output(t, "task", "export", string(id))
	out := in.output(t, "task", "replay", string(id))
	if !strings.HasPrefix(out, begins) || !strings.Contains(out, ", tree ") || !strings.Contains(out, note) {
		t.Errorf("want %q…, note %q:\n%s", begins, note, out)
	}
	if in.output(t, "task", "export", string(id)) != before {
		t.Error("the record is another one after its replay")
	}
}

// reviewed steers a task in review and waits until it is there again, with a further commit.
func (in installation) reviewed(t *testing.T, p *process, id task.ID, text string) event.Summary {
	t.Helper()
	first := in.summary(t, id).PullRequest.Head
	if code, got := p.call(t, "POST", "/api/tasks/"+string(id)+"/steer", apiToken, map[string]any{"text": text}); code != http.StatusAccepted {
		t.Fatalf("%d %v", code, got)
	}
	in.until(t, id, "the follow-up", func(s event.Summary) bool { return s.State != task.InReview || s.PullRequest.Head != first })
	if got := in.wait(t, id); got != task.InReview {
		t.Fatalf("the task is %s", got)
	}
	return in.summary(t, id)
}

// A review that led to a further commit is run again after the first run, each from where the task
// stood; so is one that began with what people had pushed to the branch meanwhile, on a target
// branch that had moved.
func TestReplayOfFollowUps(t *testing.T) {
	need(t, "python3")
	for name, pushes := range map[string]bool{"a review": false, "a push": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := txtar.ParseFile("testdata/follow.txtar")
			if err != nil {
				t.Fatal(err)
			}
			in := service(t, files, "", "")
			p := in.start(t, nil, "serve")
			id := in.ask(t, p)
			if got := in.wait(t, id); got != task.InReview {
				t.Fatalf("the task is %s\n%s", got, p.log())
			}
			if pushes {
				in.push(t, in.summary(t, id).PullRequest.Branch, "NOTES.md", "Sold as seen.\n")
			}
			s := in.reviewed(t, p, id, "say why, in a comment")
			if (s.Adopted != nil) != pushes {
				t.Fatalf("adopted: %+v", s.Adopted)
			}
			p.end(t)
			in.replayed(t, id, "no divergence: 4 requests, ", "")
		})
	}
}

// push commits a file on a branch, as a person does who merges the target branch into it first.
func (in installation) push(t *testing.T, branch, name, text string) {
	t.Helper()
	in.commit(t, "sizes.py", "SIZES = []\n")
	dir := filepath.Join(in.dir, "theirs")
	git := func(args ...string) {
		t.Helper()
		if out, err := gitIn(filepath.Join(in.dir, "shop"), args...); err != nil {
			t.Fatalf("git %v: %s", args, out)
		}
	}
	git("worktree", "add", "--quiet", dir, branch)
	git("-C", dir, "merge", "--quiet", "--message=merge", "main")
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	git("-C", dir, "add", name)
	git("-C", dir, "commit", "--quiet", "--message="+name)
	git("worktree", "remove", dir)
}

// A change that was put on a new base is run again up to where it was proven first, and it is said
// what is left out.
func TestReplayOfARebase(t *testing.T) {
	need(t, "python3")
	files, err := txtar.ParseFile("testdata/kill.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files.Files {
		if f.Name == "fix.yaml" { // the first turn waits for the other's commit
			files.Files[i].Data = bytes.Replace(f.Data, []byte("calls:"), []byte("delay_ms: 1000\ncalls:"), 1)
		}
	}
	in := service(t, files, "", "")
	p := in.start(t, nil, "serve")
	id := in.ask(t, p)
	in.until(t, id, "a base", func(s event.Summary) bool { return s.Baseline != nil })
	in.commit(t, "sizes.py", "SIZES = []\n")
	in.model.letGo()
	if got := in.wait(t, id); got != task.InReview {
		t.Fatalf("the task is %s\n%s", got, p.log())
	}
	if s := in.summary(t, id); s.Rebased == nil {
		t.Fatal("it was not put on the new base")
	}
	p.end(t)
	in.replayed(t, id, "no divergence: 7 requests, ", "that part is not replayed, `daybreak verify --base ")
}
