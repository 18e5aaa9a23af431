package forgetest

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Delivered is one request that the forge sent to a webhook.
type Delivered struct {
	Header http.Header
	Body   []byte
}

// HostFixture is a forge with people: Writer may write to the repository, Reader may read it,
// Stranger is a user with no part in it. The functions act as the named user.
type HostFixture struct {
	Fixture
	Host                     forge.Host
	Writer, Reader, Stranger string
	Bot                      string // Daybreak's user
	Secret                   []byte // of the webhook

	OpenIssue func(t *testing.T, by, title, body string) int
	EditIssue func(t *testing.T, by string, issue int, body string)
	Label     func(t *testing.T, by string, issue int, label string)
	Assign    func(t *testing.T, by string, issue int, who string)
	Say       func(t *testing.T, by string, issue int, body string) string
	SayAgain  func(t *testing.T, by, comment, body string) // edits it
	SayAt     func(t *testing.T, by string, pull int, path string, line int, body string)
	MakeReady func(t *testing.T, by string, pull int)
	Merge     func(t *testing.T, by string, pull int)
	Close     func(t *testing.T, by string, pull int)
	// Replace deletes the repository and puts another one under its name.
	Replace func(t *testing.T)
	// Statuses are what the forge shows at a commit, as "state: text".
	Statuses func(t *testing.T, commit string) []string
	// Reactions counts those of Daybreak's user on a comment, or with "" on the issue.
	Reactions func(t *testing.T, issue int, comment string) int
	// Next waits for the next delivery that the adapter does not ignore.
	Next func(t *testing.T) Delivered
	// Forked is the adapter with branches in a fork that does not exist yet, for whose owner it has a
	// token that is good for nothing else.
	Forked func(t *testing.T) Forked
	// Requests are all that the adapter sent so far, as "METHOD /path body".
	Requests func() []string
}

// Forked is a forge whose branches go to a fork.
type Forked struct {
	Host         forge.Host
	Owner, Token string
	// Head tells where a branch is in the fork.
	Head func(t *testing.T, branch string) string
	// Squat takes the fork's name for another repository.
	Squat func(t *testing.T)
}

// RunHost runs the suite of forges with people, and asserts that nothing the adapter ever sends
// merges, approves, makes ready, dismisses or changes a protection.
func RunHost(t *testing.T, fresh func(t *testing.T) HostFixture) {
	for _, c := range []struct {
		name string
		test func(*testing.T, HostFixture)
	}{
		{"a repository has a number; one that is not registered is refused", repository},
		{"another repository under the same name is refused: FRG-06", replaced},
		{"an issue as it is", readIssue},
		{"what changed since", changed},
		{"who labelled when", acts},
		{"comments, and one of ours that is edited", comments},
		{"who may steer is asked of the forge: INT-04", permission},
		{"a pull request that a person merged", merged},
		{"a pull request that a person closed", closed},
		{"a draft stays one, and what a person made ready stays ready", draft},
		{"comments at lines", lines},
		{"a status at a commit", status},
		{"a credential", credential},
		{"what registering looks at", standing},
		{"branches in a fork", forked},
		{"what is no fork of ours is not pushed to", squatted},
		{"deliveries are proven and read: HOOK-01", deliveries},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fresh(t)
			t.Cleanup(func() { neverTheLastWord(t, f.Requests()) })
			c.test(t, f)
		})
	}
}

// neverTheLastWord is FRG-05.
func neverTheLastWord(t *testing.T, requests []string) {
	t.Helper()
	if len(requests) == 0 {
		t.Error("no request was recorded: the check proves nothing")
	}
	bad := []*regexp.Regexp{
		regexp.MustCompile(`^[A-Z]+ \S*/merges?(/|\?| |$)`),
		regexp.MustCompile(`^(POST|PUT|PATCH|DELETE) \S*/(reviews|approve|unapprove|approvals|dismissals|ready_for_review|graphql|update-branch)(/|\?| |$)`),
		regexp.MustCompile(`^(POST|PUT|PATCH|DELETE) \S*(protect|hooks|secrets|variables|collaborators|members|/keys|workflows|dispatches|releases|/tags)`),
		regexp.MustCompile(`^(PATCH|PUT) \S*/pulls/\d+.*("draft"|"state":")`),
		regexp.MustCompile(`merge_when_pipeline_succeeds|auto_merge`),
	}
	for _, r := range requests {
		for _, b := range bad {
			if b.MatchString(r) {
				t.Errorf("a request that only a person may make: %s", r)
			}
		}
	}
}

func repository(t *testing.T, f HostFixture) {
	r, err := f.Host.Repository(t.Context(), f.Repo)
	if err != nil || r.ID == "" || r.DefaultBranch != f.Base || r.Path == "" || r.Archived {
		t.Fatalf("%+v %v", r, err)
	}
	if !strings.HasPrefix(r.Clone, strings.TrimSuffix(f.Repo, ".git")) {
		t.Errorf("clone address %q, the repository is %q", r.Clone, f.Repo)
	}
	other := strings.TrimSuffix(strings.TrimSuffix(f.Repo, ".git"), "/") + "-other"
	_, err = f.Host.Comment(t.Context(), other, forge.Ref{Number: 1}, "x")
	wantClass(t, err, task.Invalid)
	for _, bad := range []string{"", "http://127.0.0.1:1/a/b", "file:///etc", "gopher://x/y/z", f.Repo + "?x=1", strings.TrimSuffix(f.Repo, ".git") + "/../../x", "http://user:pw@127.0.0.1/a/b"} {
		_, err := f.Host.Repository(t.Context(), bad)
		wantClass(t, err, task.Invalid)
	}
}

func replaced(t *testing.T, f HostFixture) {
	n := f.OpenIssue(t, f.Writer, "A bug", "text")
	f.Replace(t)
	c := f.Commit(t, "one")
	_, err := f.Host.Push(t.Context(), f.push(c, ""))
	wantClass(t, err, task.Conflict)
	_, err = f.Host.Comment(t.Context(), f.Repo, forge.Ref{Number: n}, "x")
	wantClass(t, err, task.Conflict)
	if at := f.Head(t, branch); at != "" {
		t.Errorf("pushed to another repository: %s", at)
	}
}

func readIssue(t *testing.T, f HostFixture) {
	n := f.OpenIssue(t, f.Reader, "Total is wrong", "line\n\n<!-- hidden -->\nend")
	f.Label(t, f.Writer, n, "daybreak")
	i, err := f.Host.Issue(t.Context(), f.Repo, n)
	if err != nil {
		t.Fatal(err)
	}
	if i.Number != n || i.Title != "Total is wrong" || i.Body != "line\n\n<!-- hidden -->\nend" || i.Author.Name != f.Reader || i.Author.ID == "" ||
		!i.Open || i.PullRequest || !slices.Equal(i.Labels, []string{"daybreak"}) || i.URL == "" {
		t.Errorf("%+v", i)
	}
	if i.Created.IsZero() || i.Updated.Before(i.Created) {
		t.Errorf("created %v, updated %v", i.Created, i.Updated)
	}
	_, err = f.Host.Issue(t.Context(), f.Repo, 9999)
	wantClass(t, err, task.NotFound)
}

func changed(t *testing.T, f HostFixture) {
	one := f.OpenIssue(t, f.Reader, "one", "1")
	two := f.OpenIssue(t, f.Reader, "two", "2")
	f.Label(t, f.Writer, two, "daybreak")
	numbers := func(label string, since time.Time) []int {
		is, err := f.Host.Changed(t.Context(), f.Repo, label, since)
		if err != nil {
			t.Fatal(err)
		}
		var out []int
		for _, i := range is {
			out = append(out, i.Number)
		}
		return out
	}
	if got := numbers("", time.Time{}); len(got) != 2 || !slices.Contains(got, one) {
		t.Errorf("all: %v", got)
	}
	if got := numbers("daybreak", time.Now().Add(-time.Hour)); !slices.Equal(got, []int{two}) {
		t.Errorf("labelled: %v, want %d", got, two)
	}
	if got := numbers("", time.Now().Add(time.Hour)); len(got) != 0 {
		t.Errorf("from the future: %v", got)
	}
}

func acts(t *testing.T, f HostFixture) {
	n := f.OpenIssue(t, f.Reader, "one", "1")
	f.Label(t, f.Writer, n, "daybreak")
	as, err := f.Host.Acts(t.Context(), f.Repo, n)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(as, func(a forge.Act) bool { return a.Kind == forge.Labeled })
	if i < 0 || as[i].Who.Name != f.Writer || as[i].What != "daybreak" || time.Since(as[i].At).Abs() > time.Hour {
		t.Fatalf("%+v", as)
	}
	if !f.Host.Capabilities().Assign {
		return
	}
	f.Assign(t, f.Writer, n, f.Bot)
	as, err = f.Host.Acts(t.Context(), f.Repo, n)
	if err != nil || !slices.ContainsFunc(as, func(a forge.Act) bool { return a.Kind == forge.Assigned && a.What == f.Bot && a.Who.Name == f.Writer }) {
		t.Errorf("%+v %v", as, err)
	}
}

func comments(t *testing.T, f HostFixture) {
	n := f.OpenIssue(t, f.Reader, "one", "1")
	first := f.Say(t, f.Writer, n, "please use tabs")
	id, err := f.Host.Comment(t.Context(), f.Repo, forge.Ref{Number: n}, "working on it")
	if err != nil || id == "" {
		t.Fatal(id, err)
	}
	if err := f.Host.EditComment(t.Context(), f.Repo, forge.Ref{Number: n}, id, "done"); err != nil {
		t.Fatal(err)
	}
	f.SayAgain(t, f.Writer, first, "please use spaces")
	cs, err := f.Host.Comments(t.Context(), f.Repo, forge.Ref{Number: n})
	if err != nil || len(cs) != 2 {
		t.Fatalf("%+v %v", cs, err)
	}
	if cs[0].ID != first || cs[0].Author.Name != f.Writer || cs[0].Body != "please use spaces" || cs[0].Updated.Before(cs[0].Created) || cs[0].Created.IsZero() {
		t.Errorf("%+v", cs[0])
	}
	if cs[1].ID != id || cs[1].Body != "done" || cs[1].Author.Name != f.Bot {
		t.Errorf("%+v", cs[1])
	}
	for range 2 {
		if err := f.Host.Acknowledge(t.Context(), f.Repo, forge.Ref{Number: n}, first); err != nil {
			t.Fatal(err)
		}
		if err := f.Host.Acknowledge(t.Context(), f.Repo, forge.Ref{Number: n}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := f.Reactions(t, n, first), f.Reactions(t, n, ""); a != 1 || b != 1 {
		t.Errorf("%d and %d reactions, want one each", a, b)
	}
}

func permission(t *testing.T, f HostFixture) {
	for _, c := range []struct {
		who   string
		steer bool
	}{{f.Writer, true}, {f.Reader, false}, {f.Stranger, false}, {"nobody-at-all", false}, {"", false}} {
		p, err := f.Host.Permission(t.Context(), f.Repo, c.who)
		if err != nil || p >= forge.Write != c.steer {
			t.Errorf("%q: %v %v", c.who, p, err)
		}
	}
}

// opened pushes and opens a pull request.
func (f HostFixture) opened(t *testing.T) forge.PullRequest {
	t.Helper()
	c := f.Commit(t, "one")
	f.mustPush(t, c, "", false)
	pr, found, err := f.Host.OpenPullRequest(t.Context(), f.pullRequest(c))
	if err != nil || found || pr.Number == 0 || pr.State != forge.PullOpen || !pr.Draft || pr.Title != "Fix the total" {
		t.Fatalf("%+v %v %v", pr, found, err)
	}
	return pr
}

func merged(t *testing.T, f HostFixture) {
	pr := f.opened(t)
	f.MakeReady(t, f.Writer, pr.Number)
	f.Merge(t, f.Writer, pr.Number)
	got, err := f.Host.PullRequest(t.Context(), f.Repo, pr.Number)
	if err != nil || got.State != forge.PullMerged || got.MergedBy.Name != f.Writer || len(got.MergeCommit) != 40 || got.Ended.IsZero() || got.Branch != branch {
		t.Errorf("%+v %v", got, err)
	}
	again, found, err := f.Host.OpenPullRequest(t.Context(), f.pullRequest(pr.Head))
	if err != nil || !found || again.Number != pr.Number || again.State != forge.PullMerged {
		t.Errorf("opened a second one: %+v %v %v", again, found, err)
	}
}

func closed(t *testing.T, f HostFixture) {
	pr := f.opened(t)
	f.Close(t, f.Writer, pr.Number)
	got, err := f.Host.PullRequest(t.Context(), f.Repo, pr.Number)
	if err != nil || got.State != forge.PullClosed || got.Ended.IsZero() || got.MergeCommit != "" {
		t.Errorf("%+v %v", got, err)
	}
}

func draft(t *testing.T, f HostFixture) {
	pr := f.opened(t)
	next := f.pullRequest(pr.Head)
	next.Title = "Fix the total of a cart"
	got, _, err := f.Host.OpenPullRequest(t.Context(), next)
	if err != nil || !got.Draft || got.Title != next.Title {
		t.Fatalf("%+v %v", got, err)
	}
	f.MakeReady(t, f.Writer, pr.Number)
	next.Body = "more\n"
	got, found, err := f.Host.OpenPullRequest(t.Context(), next)
	if err != nil || !found || got.Draft || strings.TrimSpace(got.Body) != "more" || got.Title != next.Title {
		t.Errorf("%+v %v", got, err)
	}
}

func lines(t *testing.T, f HostFixture) {
	pr := f.opened(t)
	f.SayAt(t, f.Writer, pr.Number, "a.txt", 1, "call it b")
	cs, err := f.Host.ReviewComments(t.Context(), f.Repo, pr.Number)
	if err != nil || len(cs) != 1 {
		t.Fatalf("%+v %v", cs, err)
	}
	c := cs[0]
	if c.Author.Name != f.Writer || c.Body != "call it b" || c.Path != "a.txt" || c.Line != 1 || strings.HasPrefix(c.Hunk, "@@") != f.Host.Capabilities().Hunks || c.ID == "" || c.Commit != pr.Head {
		t.Errorf("%+v", c)
	}
	if _, err := f.Host.Reply(t.Context(), f.Repo, pr.Number, c, "done"); err != nil {
		t.Error(err)
	}
}

func status(t *testing.T, f HostFixture) {
	pr := f.opened(t)
	for _, s := range []forge.Status{
		{Task: "t_1", State: forge.StatusPending, Title: "working", Stop: true},
		{Task: "t_1", State: forge.StatusSuccess, Title: "verified", Summary: "**one** test"},
	} {
		if err := f.Host.SetStatus(t.Context(), f.Repo, pr.Head, s); err != nil {
			t.Fatal(err)
		}
	}
	got := f.Statuses(t, pr.Head)
	if len(got) == 0 || got[0] != "success: verified" {
		t.Errorf("%q", got)
	}
}

func credential(t *testing.T, f HostFixture) {
	c, err := f.Host.Credential(t.Context(), f.Repo)
	if err != nil || c.Username == "" || c.Secret == "" {
		t.Fatalf("%v", err)
	}
	_, err = f.Host.Credential(t.Context(), strings.TrimSuffix(f.Repo, ".git")+"-other")
	wantClass(t, err, task.Invalid)
}

func standing(t *testing.T, f HostFixture) {
	s, err := f.Host.Standing(t.Context(), f.Repo)
	if err != nil {
		t.Fatal(err)
	}
	if s.Bot.Name != f.Bot || s.May < forge.Write || len(s.Missing) > 0 || s.Repository.ID == "" {
		t.Errorf("%+v", s)
	}
	if !slices.Contains(s.Steer, f.Writer) || slices.Contains(s.Steer, f.Reader) {
		t.Errorf("may steer: %v", s.Steer)
	}
	if s.Protection.On {
		t.Errorf("protected: %+v", s.Protection)
	}
}

func deliveries(t *testing.T, f HostFixture) {
	want := func(kind forge.Kind) forge.Delivery {
		t.Helper()
		got := f.Next(t)
		if err := f.Host.Verify(got.Header, got.Body, f.Secret); err != nil {
			t.Fatal(err)
		}
		notProven(t, f, got)
		d, err := f.Host.Parse(got.Header, got.Body)
		if err != nil || d.Kind != kind || d.ID == "" || d.Repository == "" || d.Sender.Name == "" {
			t.Fatalf("want %s: %+v %v", kind, d, err)
		}
		if r, err := f.Host.Repository(t.Context(), f.Repo); err != nil || r.ID != d.Repository {
			t.Errorf("repository %q, want %q (%v)", d.Repository, r.ID, err)
		}
		return d
	}
	n := f.OpenIssue(t, f.Reader, "Total is wrong", "text")
	f.Label(t, f.Writer, n, "daybreak")
	if d := want(forge.Labeled); d.Issue == nil || d.Issue.Number != n || d.Issue.Body != "text" || d.Sender.Name != f.Writer || !slices.Contains(d.Labels, "daybreak") {
		t.Errorf("%+v %+v", d, d.Issue)
	}
	f.EditIssue(t, f.Reader, n, "another text")
	if d := want(forge.Edited); d.Issue == nil || d.Issue.Number != n || d.Issue.Body != "another text" || d.Sender.Name != f.Reader {
		t.Errorf("%+v", d)
	}
	if f.Host.Capabilities().Assign {
		f.Assign(t, f.Writer, n, f.Bot)
		if d := want(forge.Assigned); !slices.Contains(d.Assignees, f.Bot) || d.Sender.Name != f.Writer {
			t.Errorf("%+v", d)
		}
	}
	id := f.Say(t, f.Writer, n, "/stop")
	if d := want(forge.Commented); d.Comment == nil || d.Comment.ID != id || d.Comment.Body != "/stop" || d.Comment.Author.Name != f.Writer || d.Issue.Number != n || d.Pull != nil {
		t.Errorf("%+v", d)
	}
	pr := f.opened(t)
	if d := want(forge.Pushed); d.Branch != branch || d.After != pr.Head || d.Sender.Name != f.Bot {
		t.Errorf("%+v", d)
	}
	f.Say(t, f.Writer, pr.Number, "rename it")
	if d := want(forge.Commented); d.Pull == nil || d.Pull.Number != pr.Number || d.Comment.Body != "rename it" {
		t.Errorf("%+v", d)
	}
	f.MakeReady(t, f.Writer, pr.Number)
	f.Merge(t, f.Writer, pr.Number)
	for {
		got := f.Next(t)
		d, err := f.Host.Parse(got.Header, got.Body)
		if err != nil {
			t.Fatal(err)
		}
		if d.Kind != forge.PullEnded {
			continue // the base branch moved, the issue closed
		}
		if d.Pull.Number != pr.Number || d.Pull.State != forge.PullMerged || d.Pull.MergedBy.Name != f.Writer || len(d.Pull.MergeCommit) != 40 || d.Pull.Branch != branch {
			t.Errorf("%+v", d.Pull)
		}
		return
	}
}

// notProven changes a delivery in every way that matters: none may pass.
func notProven(t *testing.T, f HostFixture, good Delivered) {
	t.Helper()
	refused := func(what string, h http.Header, body, secret []byte) {
		t.Helper()
		if err := f.Host.Verify(h, body, secret); task.ClassOf(err) != task.Auth {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("another secret", good.Header, good.Body, []byte("another secret of any length at all"))
	refused("no secret", good.Header, good.Body, nil)
	refused("no header", http.Header{}, good.Body, f.Secret)
	if f.Host.Name() != "gitlab" { // whose token is not over the body
		changed := slices.Clone(good.Body)
		changed[len(changed)/2] ^= 1
		refused("one bit", good.Header, changed, f.Secret)
		refused("cut", good.Header, good.Body[:len(good.Body)-1], f.Secret)
	}
	for name, vs := range good.Header {
		if !strings.Contains(name, "Signature") && !strings.Contains(name, "Token") {
			continue
		}
		for _, v := range []string{"", vs[0][:len(vs[0])-1], vs[0] + "0", "é" + vs[0], strings.Replace(vs[0], "sha256=", "sha1=", 1) + " "} {
			h := http.Header{}
			for _, n := range []string{"X-Gitea-Signature", "X-Hub-Signature-256", "X-Gitlab-Token"} {
				h[n] = []string{v}
			}
			refused("signature "+v, h, good.Body, f.Secret)
		}
		twice := http.Header{}
		for _, n := range []string{"X-Gitea-Signature", "X-Hub-Signature-256", "X-Gitlab-Token"} {
			if s := good.Header.Get(n); s != "" {
				twice[n] = []string{s, s}
			}
		}
		refused("two signatures", twice, good.Body, f.Secret)
	}
}
