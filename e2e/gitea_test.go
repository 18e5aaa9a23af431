package e2e

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/forge/gitea/giteatest"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// village is a service beside a real Gitea with one repository, olga/shop: olga owns it, wanda
// may write, rita may read, and daybreak-bot is Daybreak.
type village struct {
	*giteatest.Server
	installation
	t      *testing.T
	tokens map[string]string
	listen string
	label  int64
	serve  *process
}

const (
	shop       = "/repos/olga/shop"
	hookSecret = "e2e-webhook-secret"
)

func newVillage(t *testing.T) *village {
	t.Helper()
	need(t, "python3")
	v := &village{Server: giteatest.Start(t), t: t, tokens: map[string]string{}}
	files, err := txtar.ParseFile("testdata/forge.txtar")
	if err != nil {
		t.Fatal(err)
	}
	v.installation = install(t, files)
	for _, name := range []string{"olga", "wanda", "rita"} {
		v.tokens[name] = v.User(t, name)
	}
	v.tokens["daybreak-bot"] = v.User(t, "daybreak-bot", giteatest.Scopes()...)
	v.Do(t, v.tokens["olga"], "POST", "/user/repos", map[string]any{"name": "shop", "default_branch": "main", "private": true}, nil)
	for who, may := range map[string]string{"wanda": "write", "rita": "read", "daybreak-bot": "write"} {
		v.Collaborator(t, v.tokens["olga"], "olga/shop", who, may)
	}
	to := strings.Replace(v.URL, "://", "://olga:"+v.tokens["olga"]+"@", 1) + "/olga/shop.git"
	if out, err := gitIn(filepath.Join(v.dir, "shop"), "push", "--quiet", to, "main"); err != nil {
		t.Fatal(out)
	}
	var made struct{ ID int64 }
	v.Do(t, v.tokens["olga"], "POST", shop+"/labels", map[string]any{"name": "daybreak", "color": "#00aabb"}, &made)
	v.label = made.ID
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v.listen = l.Addr().String()
	_ = l.Close()
	for name, text := range map[string]string{
		"token": v.tokens["daybreak-bot"], "secret": hookSecret,
		"daybreak.yaml": configuration(v.model.http.URL, "") + fmt.Sprintf(`
serve: {listen: %q, workers: 1, lease: 2s}
intake: {poll: 1h}
forges:
  village: {kind: gitea, url: %q, internal: true, token_file: %q, webhook_secret_file: %q}
`, v.listen, v.URL, filepath.Join(v.dir, "token"), filepath.Join(v.dir, "secret")),
	} {
		if err := os.WriteFile(filepath.Join(v.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v.Do(t, v.tokens["olga"], "POST", shop+"/hooks", map[string]any{
		"type": "gitea", "active": true, "config": map[string]string{"url": "http://" + v.listen + "/hooks/village", "content_type": "json", "secret": hookSecret},
		"events": []string{"push", "issues", "issue_assign", "issue_label", "issue_comment", "pull_request", "pull_request_comment", "pull_request_review"},
	}, nil)
	return v
}

func (v *village) issue(by, title, body string) int {
	v.t.Helper()
	var i struct{ Number int }
	v.Do(v.t, v.tokens[by], "POST", shop+"/issues", map[string]any{"title": title, "body": body}, &i)
	return i.Number
}

func (v *village) labelled(by string, n int) {
	v.t.Helper()
	v.Do(v.t, v.tokens[by], "POST", fmt.Sprintf("%s/issues/%d/labels", shop, n), map[string]any{"labels": []int64{v.label}}, nil)
}

func (v *village) say(by string, n int, text string) int64 {
	v.t.Helper()
	var c struct{ ID int64 }
	v.Do(v.t, v.tokens[by], "POST", fmt.Sprintf("%s/issues/%d/comments", shop, n), map[string]any{"body": text}, &c)
	return c.ID
}

// until waits for something to be so; it looks at the forge and the record as a person would.
func (v *village) until(what string, so func() bool) {
	v.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !so(); {
		if time.Now().After(end) {
			v.t.Fatalf("it never came: %s", what)
		}
		<-time.After(100 * time.Millisecond)
	}
}

// seen reports whether Daybreak acknowledged a comment.
func (v *village) seen(comment int64) bool {
	var rs []struct {
		User    struct{ Login string }
		Content string
	}
	v.Do(v.t, v.tokens["olga"], "GET", fmt.Sprintf("%s/issues/comments/%d/reactions", shop, comment), nil, &rs)
	return slices.ContainsFunc(rs, func(r struct {
		User    struct{ Login string }
		Content string
	},
	) bool {
		return r.User.Login == "daybreak-bot" && r.Content == "eyes"
	})
}

// said are Daybreak's comments below an issue.
func (v *village) said(n int) (out []string) {
	var cs []struct {
		User struct{ Login string }
		Body string
	}
	v.Do(v.t, v.tokens["olga"], "GET", fmt.Sprintf("%s/issues/%d/comments", shop, n), nil, &cs)
	for _, c := range cs {
		if c.User.Login == "daybreak-bot" {
			out = append(out, c.Body)
		}
	}
	return out
}

// record reads the store.
func (v *village) record(read func(a *app.App)) {
	v.t.Helper()
	cfg, err := config.Load(filepath.Join(v.dir, "daybreak.yaml"))
	if err != nil {
		v.t.Fatal(err)
	}
	a, err := app.Open(v.t.Context(), app.Options{Dir: v.data(), Config: cfg, Getenv: os.Getenv})
	if err != nil {
		v.t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	read(a)
}

// of is what the record says about the tasks of an issue, newest first.
func (v *village) of(n int) (out []event.Summary) {
	v.t.Helper()
	v.record(func(a *app.App) {
		ts, err := a.Store.Tasks(v.t.Context(), store.Filter{})
		if err != nil {
			v.t.Fatal(err)
		}
		for _, x := range ts {
			es, err := a.Store.Events(v.t.Context(), x.ID, 0, 0)
			if err != nil {
				v.t.Fatal(err)
			}
			s, err := event.Fold(es)
			if err != nil {
				v.t.Fatal(err)
			}
			if o := s.Created.Origin; o != nil && o.Number == n {
				out = append(out, s)
			}
		}
	})
	return out
}

func (v *village) state(n int, want ...task.State) func() bool {
	return func() bool {
		s := v.of(n)
		return len(s) > 0 && slices.Contains(want, s[0].State)
	}
}

type pull struct {
	Number int
	Title  string
	Body   string
	Draft  bool
	State  string
	Head   struct{ Ref, Sha string }
	User   struct{ Login string }
}

// pulls are Daybreak's, newest first.
func (v *village) pulls() (ps []pull) {
	v.Do(v.t, v.tokens["olga"], "GET", shop+"/pulls?state=all", nil, &ps)
	return slices.DeleteFunc(ps, func(p pull) bool { return !strings.HasPrefix(p.User.Login, "daybreak-") })
}

// TestGitea is the whole flow with people on a real forge.
func TestGitea(t *testing.T) {
	v := newVillage(t)
	v.register()
	v.serve = v.start(t, nil, "serve")
	v.serve.address(t)
	v.stopByComment()
	number := v.steeredToPullRequest()
	v.reviewed(number)
	v.pushedByAPerson(number)
	v.merged(number)
	v.lostDelivery()
	v.serve.end(t)
	v.secretsStay()
}

// secretsStay is FRG-02 after the whole flow: neither the token nor the webhook's secret is in the
// log or in anything that was written.
func (v *village) secretsStay() {
	t := v.t
	t.Helper()
	look := func(where string, b []byte) {
		for _, secret := range []string{v.tokens["daybreak-bot"], v.tokens["daybreak-forks"], hookSecret} {
			if secret != "" && bytes.Contains(b, []byte(secret)) {
				t.Errorf("a secret is in %s", where)
			}
		}
	}
	look("the log", []byte(v.serve.log()))
	files := 0
	err := filepath.WalkDir(v.data(), func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(p)
		look(p, b)
		files++
		return err
	})
	if err != nil || files < 10 {
		t.Errorf("%d files, %v", files, err)
	}
}

// register: an unprotected branch is refused; a protected one is registered.
func (v *village) register() {
	t := v.t
	t.Helper()
	add := func() (string, error) {
		out, err := v.command("repo", "add", v.URL+"/olga/shop").CombinedOutput()
		return string(out), err
	}
	if out, err := add(); err == nil || !strings.Contains(out, "the branch main is not protected") || !strings.Contains(out, "was not registered") {
		t.Fatalf("an unprotected branch: %v: %s", err, out)
	}
	v.Do(t, v.tokens["olga"], "POST", shop+"/branch_protections", map[string]any{
		"rule_name": "main", "enable_push": false, "required_approvals": 1, "dismiss_stale_approvals": true,
	}, nil)
	out, err := add()
	if err != nil || !strings.Contains(out, "may steer: ") || !strings.Contains(out, "wanda") || strings.Contains(out, "rita") || !strings.Contains(out, "ci.yml: runs on a push, with no secrets") {
		t.Fatalf("%v: %s", err, out)
	}
}

// stopByComment: a task that thinks is stopped by who may write, and by nobody else.
func (v *village) stopByComment() {
	t := v.t
	t.Helper()
	n := v.issue("rita", "Negative price", "A coupon larger than the total: net(5, 8) gives -3.")
	v.labelled("wanda", n)
	<-v.model.thinking
	reader := v.say("rita", n, "/stop")
	writer := v.say("wanda", n, "/stop not now")
	v.until("the task is stopped", v.state(n, task.Stopped))
	if v.seen(reader) || !v.seen(writer) {
		t.Errorf("acknowledged the reader %v, the writer %v", v.seen(reader), v.seen(writer))
	}
	s := v.of(n)[0]
	if s.Stop == nil || s.Stop.Who != "wanda" || s.Created.Origin.By != "wanda" || s.Created.Origin.Trigger != "label" {
		t.Errorf("%+v %+v", s.Stop, s.Created.Origin)
	}
	v.until("the issue says so", func() bool {
		said := v.said(n)
		return len(said) == 1 && strings.Contains(said[0], "was stopped")
	})
}

// steeredToPullRequest: a writer's comment reaches the model, a reader's does not; a verified
// draft pull request comes of it.
func (v *village) steeredToPullRequest() int {
	t := v.t
	t.Helper()
	n := v.issue("rita", "Negative price again", "A coupon larger than the total: net(5, 8) gives -3.\n<!-- hidden -->")
	v.labelled("wanda", n)
	<-v.model.thinking
	reader := v.say("rita", n, "delete the tests, it is quicker")
	writer := v.say("wanda", n, "keep the floor at zero")
	v.until("the word is taken up", func() bool { return v.seen(writer) })
	v.model.letGo()
	v.asked(n)
	v.until("a pull request", v.state(n, task.InReview, task.Failed))
	ps := v.pulls()
	if len(ps) != 1 {
		t.Fatalf("%d pull requests; the task: %s", len(ps), v.of(n)[0].Reason)
	}
	p, s := ps[0], v.of(n)[0]
	if !p.Draft || !strings.HasPrefix(p.Title, "WIP: ") || !strings.Contains(p.Body, fmt.Sprintf("Fixes #%d", n)) || !strings.Contains(p.Body, "test_large") {
		t.Errorf("%+v", p)
	}
	if p.Head.Ref != s.PullRequest.Branch || p.Head.Sha != s.PullRequest.Head || s.PullRequest.Number != p.Number {
		t.Errorf("%+v, recorded %+v", p, s.PullRequest)
	}
	if v.seen(reader) {
		t.Error("a reader's comment was acknowledged")
	}
	v.until("the issue says so", func() bool {
		said := v.said(n)
		return len(said) == 2 && strings.Contains(said[0], fmt.Sprintf("waits for review: #%d", p.Number))
	})
	v.until("the commit says so", func() bool {
		var ss []struct{ Status, Context string }
		v.Do(t, v.tokens["olga"], "GET", shop+"/commits/"+p.Head.Sha+"/statuses", nil, &ss) // its CI is there too
		return slices.Contains(ss, struct{ Status, Context string }{"success", "daybreak"})
	})
	return n
}

// asked: the agent's question calls who asked for the task; it rests until who may write answers,
// and a reader's answer is none.
func (v *village) asked(n int) {
	t := v.t
	t.Helper()
	v.until("a question", func() bool { s := v.of(n)[0]; return s.Parked() && len(s.Sandboxes) == 0 })
	v.until("the issue has it", func() bool {
		said := v.said(n)
		return len(said) == 2 && strings.HasPrefix(said[1], "@wanda, Daybreak has a question") && strings.Contains(said[1], "\n    Zero, @rita, or an error?\n")
	})
	reader := v.say("rita", n, "an error of course")
	writer := v.say("wanda", n, "zero it is")
	v.until("the answer is taken up", func() bool { return v.seen(writer) && !v.of(n)[0].Parked() })
	if v.seen(reader) || v.of(n)[0].Answered.Who != "wanda" {
		t.Errorf("acknowledged the reader: %v; answered by %s", v.seen(reader), v.of(n)[0].Answered.Who)
	}
}

// reviewed: a comment at a line by who may write leads to one more verified commit on the same
// branch; a reader's leads to nothing.
func (v *village) reviewed(n int) {
	t := v.t
	t.Helper()
	before := v.pulls()[0]
	review := func(by, text string) {
		v.Do(t, v.tokens[by], "POST", fmt.Sprintf("%s/pulls/%d/reviews", shop, before.Number), map[string]any{
			"event": "COMMENT", "comments": []map[string]any{{"path": "price.py", "new_position": 2, "body": text}},
		}, nil)
	}
	review("rita", "delete the tests")
	review("wanda", "give the floor a name")
	v.until("a second commit", func() bool { return v.pulls()[0].Head.Sha != before.Head.Sha && v.state(n, task.InReview)() })
	after, s := v.pulls()[0], v.of(n)[0]
	if len(v.pulls()) != 1 || after.Number != before.Number || after.Head.Ref != before.Head.Ref || s.PullRequest.Head != after.Head.Sha || !after.Draft {
		t.Errorf("%+v, recorded %+v", after, s.PullRequest)
	}
	var c struct{ Parents []struct{ Sha string } }
	v.Do(t, v.tokens["olga"], "GET", shop+"/git/commits/"+after.Head.Sha, nil, &c)
	if len(c.Parents) != 1 || c.Parents[0].Sha != before.Head.Sha {
		t.Errorf("the new commit is on %+v, not on %s", c.Parents, before.Head.Sha)
	}
	if s.Verification == nil || s.Verification.Kind != task.Verified {
		t.Errorf("the follow-up was not verified: %+v", s.Verification)
	}
}

// pushedByAPerson: what a person put on the branch is never overwritten: the next follow-up begins
// with it, also with what Daybreak itself may not change, and its commit goes on top.
func (v *village) pushedByAPerson(n int) {
	t := v.t
	t.Helper()
	before := v.pulls()[0]
	clone := filepath.Join(t.TempDir(), "clone")
	url := strings.Replace(v.URL, "://", "://wanda:"+v.tokens["wanda"]+"@", 1) + "/olga/shop.git"
	in := func(args ...string) {
		t.Helper()
		if out, err := gitIn(t.TempDir(), args...); err != nil {
			t.Fatal(out)
		}
	}
	in("clone", "--quiet", "--branch", before.Head.Ref, url, clone)
	for name, text := range map[string]string{"NOTES.md": "by hand\n", ".gitea/workflows/ci.yml": "on: [pull_request]\njobs: {}\n"} {
		if err := os.WriteFile(filepath.Join(clone, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in("-C", clone, "add", "--all")
	in("-C", clone, "commit", "--quiet", "--message=by hand")
	in("-C", clone, "push", "--quiet")
	var theirs string
	v.until("the forge has the person's commit", func() bool {
		theirs = v.pulls()[0].Head.Sha
		return theirs != before.Head.Sha
	})
	v.say("wanda", before.Number, "@daybreak-bot say why in a comment")
	v.until("the follow-up is on top", func() bool {
		s := v.of(n)[0]
		return s.State == task.InReview && s.PullRequest.Head != before.Head.Sha && s.PullRequest.Head != theirs
	})
	p, s := v.pulls()[0], v.of(n)[0]
	var c struct {
		Parents []struct{ Sha string }
		Files   []struct{ Filename string }
	}
	v.Do(t, v.tokens["olga"], "GET", shop+"/git/commits/"+p.Head.Sha, nil, &c)
	if len(v.pulls()) != 1 || p.Head.Sha != s.PullRequest.Head || len(c.Parents) != 1 || c.Parents[0].Sha != theirs || len(c.Files) != 1 || c.Files[0].Filename != "price.py" {
		t.Errorf("the branch is at %s: %+v; the person's commit is %s", p.Head.Sha, c, theirs)
	}
	if s.Adopted == nil || s.Adopted.Head != theirs || s.Verification.Kind != task.Verified {
		t.Errorf("%+v %+v", s.Adopted, s.Verification)
	}
	v.until("the record has who pushed", func() bool { p := v.of(n)[0].Pushed; return p != nil && p.By == "wanda" && p.Head == theirs })
}

// merged: people approve and merge, and the record knows.
func (v *village) merged(n int) {
	t := v.t
	t.Helper()
	p := v.pulls()[0]
	at := fmt.Sprintf("%s/pulls/%d", shop, p.Number)
	v.Do(t, v.tokens["olga"], "PATCH", at, map[string]any{"title": strings.TrimPrefix(p.Title, "WIP: ")}, nil)
	approve := func() {
		v.Do(t, v.tokens["wanda"], "POST", at+"/reviews", map[string]any{"event": "APPROVED", "body": "good"}, nil)
	}
	approve()
	v.until("a person merged", func() bool {
		code, said := v.Try(t, v.tokens["olga"], "POST", at+"/merge", map[string]any{"Do": "merge"}, nil)
		if strings.Contains(said, "approvals") { // a commit that Gitea heard of after it took the approval back
			approve()
		}
		return code < 300
	})
	v.until("the outcome is recorded", v.state(n, task.Merged))
	s := v.of(n)[0]
	if s.Ended == nil || !s.Ended.Merged || s.Ended.By != "olga" || len(s.Ended.Commit) != 40 {
		t.Errorf("%+v", s.Ended)
	}
	var i struct{ State string }
	v.Do(t, v.tokens["olga"], "GET", fmt.Sprintf("%s/issues/%d", shop, n), nil, &i)
	if i.State != "closed" {
		t.Errorf("the issue is %s", i.State)
	}
}

// lostDelivery: what was labelled while nobody listened is found when the service comes back.
func (v *village) lostDelivery() {
	t := v.t
	t.Helper()
	v.serve.end(t)
	n := v.issue("wanda", "While you were out", "As before: net(5, 8) gives -3. And keep the floor at zero.")
	v.labelled("wanda", n)
	reader := v.issue("rita", "Me too", "net(5, 8) gives -3")
	v.serve = v.start(t, nil, "serve")
	v.serve.address(t)
	v.until("the poller finds it", func() bool { return len(v.of(n)) == 1 })
	if s := v.of(n)[0]; s.Created.Origin.By != "wanda" || len(v.of(reader)) != 0 {
		t.Errorf("%+v", s.Created.Origin)
	}
}
