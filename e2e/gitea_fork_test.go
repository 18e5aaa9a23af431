package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/forge/gitea/giteatest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// forks lets the branches go to a user of their own, who may only read the repository.
func (v *village) forks(owner string) {
	t := v.t
	t.Helper()
	v.tokens[owner] = v.User(t, owner, giteatest.Scopes()...)
	v.Collaborator(t, v.tokens["olga"], "olga/shop", owner, "read")
	token, file := filepath.Join(v.dir, "fork-token"), filepath.Join(v.dir, "daybreak.yaml")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(b), "{kind: gitea,", fmt.Sprintf("{kind: gitea, fork: {owner: %s, token_file: %q},", owner, token), 1)
	for name, text := range map[string]string{token: v.tokens[owner], file: text} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestGiteaFork: the branch goes to a fork, which is made, and the pull request comes from there, also
// after a review; the repository gets no branch; a stranger's pull request from a branch of the same
// name is nothing to the task.
func TestGiteaFork(t *testing.T) {
	const owner = "daybreak-forks"
	v := newVillage(t)
	v.forks(owner)
	v.register()
	v.serve = v.start(t, nil, "serve")
	v.serve.address(t)
	n := v.issue("rita", "Negative price again", "A coupon larger than the total: net(5, 8) gives -3.")
	v.labelled("wanda", n)
	<-v.model.thinking
	word := v.say("wanda", n, "keep the floor at zero")
	v.until("the word is taken up", func() bool { return v.seen(word) })
	v.model.letGo()
	v.asked(n)
	v.until("a pull request", v.state(n, task.InReview, task.Failed))
	if ps := v.pulls(); len(ps) != 1 {
		t.Fatalf("%d pull requests; the task: %s", len(ps), v.of(n)[0].Reason)
	}
	v.fromFork(n, owner)
	v.stranger(n)
	v.reviewed(n)
	v.fromFork(n, owner)
	v.merged(n)
	v.serve.end(t)
	v.secretsStay()
}

// fromFork: the pull request's branch is in the fork and nowhere else.
func (v *village) fromFork(n int, owner string) {
	t := v.t
	t.Helper()
	p, s := v.pulls()[0], v.of(n)[0]
	var at struct {
		Head struct {
			Sha  string
			Repo struct{ Fork bool }
			User struct{ Login string }
		}
	}
	v.Do(t, v.tokens["olga"], "GET", fmt.Sprintf("%s/pulls/%d", shop, s.PullRequest.Number), nil, &at)
	var b struct{ Commit struct{ ID string } }
	v.Do(t, v.tokens[owner], "GET", "/repos/"+owner+"/shop/branches/"+p.Head.Ref, nil, &b)
	if at.Head.User.Login != owner && !at.Head.Repo.Fork || at.Head.Sha != s.PullRequest.Head || b.Commit.ID != s.PullRequest.Head {
		t.Errorf("%+v, the fork's branch is at %s; recorded %+v", at.Head, b.Commit.ID, s.PullRequest)
	}
	var bs []struct{ Name string }
	v.Do(t, v.tokens["olga"], "GET", shop+"/branches", nil, &bs)
	if len(bs) != 1 || bs[0].Name != "main" {
		t.Errorf("the repository has the branches %+v", bs)
	}
}

// stranger: who may only read opens and closes a pull request from a branch of the task's name.
func (v *village) stranger(n int) {
	t := v.t
	t.Helper()
	branch := v.of(n)[0].PullRequest.Branch
	v.Do(t, v.tokens["rita"], "POST", shop+"/forks", map[string]any{}, nil)
	rita := "/repos/rita/shop"
	v.until("the fork is there", func() bool {
		code, _ := v.Try(t, v.tokens["rita"], "GET", rita+"/branches/main", nil, nil)
		return code < 300
	})
	v.Do(t, v.tokens["rita"], "POST", rita+"/contents/rita.txt", map[string]any{"content": "aGkK", "branch": "main", "new_branch": branch, "message": "hi"}, nil)
	var made struct{ Number int }
	v.Do(t, v.tokens["rita"], "POST", shop+"/pulls", map[string]any{"title": "hi", "head": "rita:" + branch, "base": "main"}, &made)
	v.Do(t, v.tokens["rita"], "PATCH", fmt.Sprintf("%s/pulls/%d", shop, made.Number), map[string]any{"state": "closed"}, nil)
	v.until("that is heard of", func() bool { return strings.Contains(v.serve.log(), "ignored: not our pull request") })
	if s := v.of(n)[0]; s.State != task.InReview || s.Ended != nil || s.Stop != nil {
		t.Errorf("the task is %s: %+v", s.State, s.Ended)
	}
}
