package gitea

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/forgetest"
	"github.com/daybreak-agent/daybreak/internal/forge/gitea/giteatest"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

const hookSecret = "a webhook's secret"

// world is one server with its users; every fixture is a repository of its own.
type world struct {
	*giteatest.Server
	tokens map[string]string
	n      int
}

func newWorld(t *testing.T) *world {
	w := &world{Server: giteatest.Start(t), tokens: map[string]string{}}
	for _, name := range []string{"olga", "wanda", "rita", "stan"} {
		w.tokens[name] = w.User(t, name)
	}
	w.tokens["daybreak-bot"] = w.User(t, "daybreak-bot", giteatest.Scopes()...)
	return w
}

func (w *world) fixture(t *testing.T) forgetest.HostFixture {
	t.Helper()
	w.n++
	name := fmt.Sprintf("shop%d", w.n)
	path := "olga/" + name
	var made struct {
		ID int64 `json:"id"`
	}
	create := func() {
		w.Do(t, w.tokens["olga"], "POST", "/user/repos", map[string]any{"name": name, "default_branch": "main"}, &made)
	}
	create()
	for who, may := range map[string]string{"wanda": "write", "rita": "read", "daybreak-bot": "write"} {
		w.Collaborator(t, w.tokens["olga"], path, who, may)
	}
	as := func(who string) string {
		return strings.Replace(w.URL, "://", "://"+who+":"+w.tokens[who]+"@", 1) + "/" + path + ".git"
	}
	seed := forgetest.Seed(t, as("olga"))
	settled := func() { // what a first push means is worked out in the background
		for empty := true; empty; {
			var r struct{ Empty bool }
			w.Do(t, w.tokens["olga"], "GET", "/repos/"+path, nil, &r)
			if empty = r.Empty; empty {
				<-time.After(20 * time.Millisecond)
			}
		}
	}
	settled()
	var label struct {
		ID int64 `json:"id"`
	}
	w.Do(t, w.tokens["olga"], "POST", "/repos/"+path+"/labels", map[string]any{"name": "daybreak", "color": "#00aabb"}, &label)
	hook := forgetest.Receive(t)
	w.Do(t, w.tokens["olga"], "POST", "/repos/"+path+"/hooks", map[string]any{
		"type": "gitea", "active": true, "config": map[string]string{"url": hook.URL, "content_type": "json", "secret": hookSecret},
		"events": []string{"push", "issues", "issue_assign", "issue_label", "issue_comment", "pull_request", "pull_request_comment", "pull_request_review", "pull_request_sync"},
	}, nil)
	front := forgetest.Record(t, w.URL)
	g := forgetest.Git(t)
	pinned := strconv.FormatInt(made.ID, 10)
	cfg := Config{
		Name: "gitea", URL: front.URL, Token: w.tokens["daybreak-bot"], Git: g, Now: time.Now, Wire: wire.Config{Internal: true},
		Pinned: func(p string) string {
			if p == path {
				return pinned
			}
			return ""
		},
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	gitdir, commit := forgetest.Ours(t, g, seed)
	repo := "/repos/" + path
	return forgetest.HostFixture{
		Fixture: forgetest.Fixture{
			Forge: f, Repo: front.URL + "/" + path + ".git", Base: "main", GitDir: gitdir, Commit: commit,
			Head: func(t *testing.T, branch string) string {
				line := gittest.Run(t, seed, "ls-remote", as("olga"), "refs/heads/"+branch)
				id, _, _ := strings.Cut(line, "\t")
				return id
			},
			SomebodyPushes: func(t *testing.T, branch, commit string) {
				gittest.Run(t, gitdir, "push", "-q", "--force", as("wanda"), commit+":refs/heads/"+branch)
			},
		},
		Host: f, Writer: "wanda", Reader: "rita", Stranger: "stan", Bot: "daybreak-bot", Secret: []byte(hookSecret),
		Forked: func(t *testing.T) forgetest.Forked {
			if w.tokens["daybreak-forks"] == "" {
				w.tokens["daybreak-forks"] = w.User(t, "daybreak-forks", giteatest.Scopes()...)
			}
			token := w.tokens["daybreak-forks"]
			cfg.Fork = wire.Fork{Owner: "daybreak-forks", Token: token}
			k, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return forgetest.Forked{
				Host: k, Owner: "daybreak-forks", Token: token,
				Head: func(t *testing.T, branch string) string {
					line := gittest.Run(t, seed, "ls-remote", strings.Replace(w.URL, "://", "://daybreak-forks:"+token+"@", 1)+"/daybreak-forks/"+name+".git", "refs/heads/"+branch)
					id, _, _ := strings.Cut(line, "\t")
					return id
				},
				Squat: func(t *testing.T) {
					w.Do(t, w.tokens["olga"], "POST", "/user/repos", map[string]any{"name": name + "-other", "auto_init": true, "default_branch": "main"}, nil)
					w.Do(t, token, "POST", "/repos/olga/"+name+"-other/forks", map[string]any{"name": name}, nil)
				},
			}
		},
		OpenIssue: func(t *testing.T, by, title, body string) int {
			var i struct{ Number int }
			w.Do(t, w.tokens[by], "POST", repo+"/issues", map[string]any{"title": title, "body": body}, &i)
			return i.Number
		},
		EditIssue: func(t *testing.T, by string, issue int, body string) {
			w.Do(t, w.tokens[by], "PATCH", fmt.Sprintf("%s/issues/%d", repo, issue), map[string]any{"body": body}, nil)
		},
		Label: func(t *testing.T, by string, issue int, name string) {
			w.Do(t, w.tokens[by], "POST", fmt.Sprintf("%s/issues/%d/labels", repo, issue), map[string]any{"labels": []int64{label.ID}}, nil)
		},
		Assign: func(t *testing.T, by string, issue int, who string) {
			w.Do(t, w.tokens[by], "PATCH", fmt.Sprintf("%s/issues/%d", repo, issue), map[string]any{"assignees": []string{who}}, nil)
		},
		Say: func(t *testing.T, by string, issue int, body string) string {
			var c struct{ ID int64 }
			w.Do(t, w.tokens[by], "POST", fmt.Sprintf("%s/issues/%d/comments", repo, issue), map[string]any{"body": body}, &c)
			return strconv.FormatInt(c.ID, 10)
		},
		SayAgain: func(t *testing.T, by, id, body string) {
			w.Do(t, w.tokens[by], "PATCH", repo+"/issues/comments/"+id, map[string]any{"body": body}, nil)
		},
		SayAt: func(t *testing.T, by string, pull int, path string, line int, body string) {
			w.Do(t, w.tokens[by], "POST", fmt.Sprintf("%s/pulls/%d/reviews", repo, pull), map[string]any{
				"event": "COMMENT", "comments": []map[string]any{{"path": path, "new_position": line, "body": body}},
			}, nil)
		},
		MakeReady: func(t *testing.T, by string, pull int) {
			var p struct{ Title string }
			w.Do(t, w.tokens[by], "GET", fmt.Sprintf("%s/pulls/%d", repo, pull), nil, &p)
			w.Do(t, w.tokens[by], "PATCH", fmt.Sprintf("%s/pulls/%d", repo, pull), map[string]any{"title": strings.TrimPrefix(p.Title, draftPrefix)}, nil)
		},
		Merge: func(t *testing.T, by string, pull int) {
			for try := 0; ; try++ { // the server checks for conflicts in the background first
				code, answer := w.Try(t, w.tokens[by], "POST", fmt.Sprintf("%s/pulls/%d/merge", repo, pull), map[string]any{"Do": "merge"}, nil)
				if code < 300 {
					return
				}
				if try > 100 {
					t.Fatal(code, answer)
				}
				<-time.After(50 * time.Millisecond)
			}
		},
		Close: func(t *testing.T, by string, pull int) {
			w.Do(t, w.tokens[by], "PATCH", fmt.Sprintf("%s/pulls/%d", repo, pull), map[string]any{"state": "closed"}, nil)
		},
		Replace: func(t *testing.T) {
			w.Do(t, w.tokens["olga"], "DELETE", repo, nil, nil)
			create()
			w.Collaborator(t, w.tokens["olga"], path, "daybreak-bot", "write")
			gittest.Run(t, seed, "push", "-q", as("olga"), "main:refs/heads/main")
			settled()
		},
		Statuses: func(t *testing.T, commit string) []string {
			var ss []struct {
				ID                  int64
				Status, Description string
			}
			w.Do(t, w.tokens["olga"], "GET", repo+"/commits/"+commit+"/statuses", nil, &ss)
			slices.SortFunc(ss, func(a, b struct {
				ID                  int64
				Status, Description string
			},
			) int {
				return cmp.Compare(b.ID, a.ID)
			})
			var out []string
			for _, s := range ss {
				out = append(out, s.Status+": "+s.Description)
			}
			return out
		},
		Reactions: func(t *testing.T, issue int, id string) int {
			at := fmt.Sprintf("%s/issues/%d/reactions", repo, issue)
			if id != "" {
				at = repo + "/issues/comments/" + id + "/reactions"
			}
			var rs []struct {
				User struct{ Login string }
			}
			w.Do(t, w.tokens["olga"], "GET", at, nil, &rs)
			n := 0
			for _, r := range rs {
				if r.User.Login == "daybreak-bot" {
					n++
				}
			}
			return n
		},
		Next: func(t *testing.T) forgetest.Delivered {
			return hook.Next(t, func(d forgetest.Delivered) bool {
				got, err := f.Parse(d.Header, d.Body)
				return err != nil || got.Kind != forge.Ignored && got.Branch != "main"
			})
		},
		Requests: front.Requests,
	}
}

// TestRealServer is the suite against a Gitea of the test's own.
func TestRealServer(t *testing.T) {
	w := newWorld(t)
	t.Run("branches", func(t *testing.T) {
		forgetest.Run(t, func(t *testing.T) forgetest.Fixture { return w.fixture(t).Fixture })
	})
	t.Run("people", func(t *testing.T) { forgetest.RunHost(t, w.fixture) })
}
