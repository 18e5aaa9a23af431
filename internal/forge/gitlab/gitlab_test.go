package gitlab

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/forge/forgetest"
	"github.com/daybreak-agent/daybreak/internal/forge/wire"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

func fixture(t *testing.T) forgetest.HostFixture {
	t.Helper()
	return newLab(t).fixture(t)
}

func (l *lab) fixture(t *testing.T) forgetest.HostFixture {
	t.Helper()
	g := forgetest.Git(t)
	cfg := Config{
		Name: "gitlab", URL: l.srv.URL, Token: fakeToken, Git: g, Now: time.Now, Wire: wire.Config{Internal: true},
		Pinned: func(p string) string {
			if p == fakePath {
				return strconv.Itoa(fakeID)
			}
			return ""
		},
	}
	f, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	gitdir, commit := forgetest.Ours(t, g, l.bare)
	locked := func(do func()) { l.mu.Lock(); defer l.mu.Unlock(); do() }
	issue := func(n int) object { return l.issues[n-1] }
	labels := func(n int) (out []object) {
		for _, x := range issue(n)["labels"].([]string) {
			out = append(out, object{"title": x})
		}
		return out
	}
	attributes := func(n int, action string) object {
		i := issue(n)
		return object{"id": 900 + n, "iid": n, "title": i["title"], "description": i["description"], "state": "opened", "action": action, "created_at": i["created_at"], "updated_at": i["updated_at"]}
	}
	end := func(by string, pull int, state, action string) {
		locked(func() {
			m := l.merges[pull-1]
			m["state"] = state
			a := object{"iid": pull, "state": state, "action": action, "source_branch": m["source_branch"], "updated_at": l.now()}
			if state == "merged" {
				m["merge_user"], m["merged_at"] = userOf(by), l.now()
				head := l.head(fmt.Sprint(m["source_branch"]))
				m["merge_commit_sha"] = gittest.Run(t, l.bare, "commit-tree", "-p", "main", "-p", head, "-m", "merge", head+"^{tree}")
				a["merge_commit_sha"] = m["merge_commit_sha"]
			} else {
				m["closed_at"] = l.now()
			}
			l.tell("Merge Request Hook", object{"object_kind": "merge_request", "user": userOf(by), "object_attributes": a})
		})
	}
	// On GitLab an issue and a merge request may have the same number; the suite's words on a pull
	// request go to the merge request once there is one of that number that is no issue.
	place := func(n int) string {
		if n > len(l.issues) || len(l.merges) >= n {
			return fmt.Sprint("merge_requests/", n)
		}
		return fmt.Sprint("issues/", n)
	}
	return forgetest.HostFixture{
		Fixture: forgetest.Fixture{
			Forge: f, Repo: l.srv.URL + "/" + fakePath + ".git", Base: "main", GitDir: gitdir, Commit: commit,
			Head: func(_ *testing.T, branch string) string { return l.head(branch) },
			SomebodyPushes: func(t *testing.T, branch, commit string) {
				gittest.Run(t, gitdir, "push", "-q", "--force", l.bare, commit+":refs/heads/"+branch)
			},
		},
		Host: f, Writer: "wanda", Reader: "rita", Stranger: "stan", Bot: "bot", Secret: []byte(fakeSecret),
		Forked: func(t *testing.T) forgetest.Forked {
			cfg.Fork = wire.Fork{Owner: "forks/daybreak", Token: forkToken}
			k, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return forgetest.Forked{
				Host: k, Owner: "forks/daybreak", Token: forkToken, Head: func(_ *testing.T, branch string) string { return l.forkHead(branch) },
				Squat: func(t *testing.T) { locked(func() { l.fork(true) }) },
			}
		},
		OpenIssue: func(_ *testing.T, by, title, body string) (n int) {
			locked(func() {
				n = len(l.issues) + 1
				now := l.now()
				l.issues = append(l.issues, object{"id": 900 + n, "iid": n, "title": title, "description": body, "state": "opened", "author": userOf(by), "labels": []string{}, "created_at": now, "updated_at": now, "web_url": "https://example.com/i"})
			})
			return n
		},
		EditIssue: func(_ *testing.T, by string, n int, body string) {
			locked(func() {
				issue(n)["description"], issue(n)["updated_at"] = body, l.now()
				l.tell("Issue Hook", object{"object_kind": "issue", "user": userOf(by), "object_attributes": attributes(n, "update"), "labels": labels(n), "changes": object{"description": object{"previous": "x", "current": body}}})
			})
		},
		Label: func(_ *testing.T, by string, n int, name string) {
			locked(func() {
				was := labels(n)
				now := l.now()
				issue(n)["labels"], issue(n)["updated_at"] = append(issue(n)["labels"].([]string), name), now
				l.labels[n] = append(l.labels[n], object{"id": 1, "action": "add", "user": userOf(by), "created_at": now, "label": object{"name": name}})
				l.tell("Issue Hook", object{"object_kind": "issue", "user": userOf(by), "object_attributes": attributes(n, "update"), "labels": labels(n), "changes": object{"labels": object{"previous": was, "current": labels(n)}}})
			})
		},
		Say: func(_ *testing.T, by string, n int, body string) (id string) {
			locked(func() {
				at := place(n)
				x := l.say(by, at, body)
				id = fmt.Sprint(x["id"])
				what := object{"object_kind": "note", "user": userOf(by), "object_attributes": object{"id": x["id"], "note": body, "noteable_type": "Issue", "action": "create", "created_at": x["created_at"], "updated_at": x["created_at"]}}
				if strings.HasPrefix(at, "merge") {
					what["object_attributes"].(object)["noteable_type"] = "MergeRequest"
					what["merge_request"] = object{"iid": n, "state": "opened", "source_branch": l.merges[n-1]["source_branch"]}
				} else {
					what["issue"] = attributes(n, "")
				}
				l.tell("Note Hook", what)
			})
			return id
		},
		SayAgain: func(_ *testing.T, _, id, body string) {
			locked(func() {
				for _, ns := range l.notes {
					for _, n := range ns {
						if fmt.Sprint(n["id"]) == id {
							n["body"], n["updated_at"] = body, l.now()
						}
					}
				}
			})
		},
		SayAt: func(_ *testing.T, by string, pull int, path string, line int, body string) {
			locked(func() {
				l.seq++
				now := l.now()
				head := l.head(fmt.Sprint(l.merges[pull-1]["source_branch"]))
				l.lines = append(l.lines, object{"id": l.seq, "body": body, "author": userOf(by), "created_at": now, "updated_at": now, "type": "DiffNote", "position": object{"new_path": path, "new_line": line, "head_sha": head, "position_type": "text"}})
			})
		},
		MakeReady: func(_ *testing.T, _ string, pull int) {
			locked(func() {
				l.merges[pull-1]["title"] = strings.TrimPrefix(fmt.Sprint(l.merges[pull-1]["title"]), "Draft: ")
			})
		},
		Merge:   func(_ *testing.T, by string, pull int) { end(by, pull, "merged", "merge") },
		Close:   func(_ *testing.T, by string, pull int) { end(by, pull, "closed", "close") },
		Replace: func(*testing.T) { locked(func() { l.id++ }) },
		Statuses: func(_ *testing.T, commit string) (out []string) {
			locked(func() {
				for _, s := range l.statuses {
					if s["sha"] == commit {
						out = append(out, fmt.Sprint(s["state"], ": ", s["description"]))
					}
				}
			})
			slices.Reverse(out)
			return out
		},
		Reactions: func(_ *testing.T, n int, comment string) (got int) {
			locked(func() { got = l.awards[fmt.Sprint(n, "/", comment)] })
			return got
		},
		Next: func(t *testing.T) forgetest.Delivered {
			return l.hook.Next(t, func(d forgetest.Delivered) bool {
				got, err := f.Parse(d.Header, d.Body)
				return err != nil || got.Kind != forge.Ignored
			})
		},
		Requests: func() (out []string) {
			locked(func() { out = slices.Clone(l.requests) })
			return out
		},
	}
}

// TestFake is the suite against a fake; no real GitLab is part of the tests.
func TestFake(t *testing.T) {
	t.Run("branches", func(t *testing.T) {
		forgetest.Run(t, func(t *testing.T) forgetest.Fixture { return fixture(t).Fixture })
	})
	t.Run("people", func(t *testing.T) { forgetest.RunHost(t, fixture) })
}

// TestForkAsksForLess: where branches go to a fork, a token that only reads with git is enough.
func TestForkAsksForLess(t *testing.T) {
	l := newLab(t)
	fx := l.fixture(t)
	k := fx.Forked(t)
	for scope, want := range map[string][2]string{
		"read_repository": {"the scope write_repository", ""}, "write_repository": {}, "read_user": {"the scope write_repository", "the scope read_repository"},
	} {
		l.scopes = []string{"api", scope}
		for i, h := range []forge.Host{fx.Host, k.Host} {
			if s, err := h.Standing(t.Context(), fx.Repo); err != nil || strings.Join(s.Missing, ", ") != want[i] {
				t.Errorf("with %s, fork %v: missing %q, %v", scope, i == 1, s.Missing, err)
			}
		}
	}
}

// TestProtectedFor: a rule that names a user is about that user, whatever its level says; one that
// names a group is not known to be about ours.
func TestProtectedFor(t *testing.T) {
	l := newLab(t)
	fx := l.fixture(t)
	me := userOf("bot")["id"]
	for name, c := range map[string]struct {
		push, merge object
		pushes      bool
		merges      bool
		unknown     string
	}{
		"maintainers": {push: object{"access_level": 40}, merge: object{"access_level": 40}},
		"developers":  {push: object{"access_level": 0}, merge: object{"access_level": 30}, merges: true},
		"us":          {push: object{"access_level": 40, "user_id": me}, merge: object{"access_level": 40, "user_id": me}, pushes: true, merges: true},
		"another":     {push: object{"access_level": 30, "user_id": 77}, merge: object{"access_level": 30, "user_id": 77}},
		"a key":       {push: object{"access_level": 30, "deploy_key_id": 3}, merge: object{"access_level": 40}},
		"a group":     {push: object{"access_level": 30, "group_id": 7}, merge: object{"access_level": 40}, unknown: "in a group that may push to"},
	} {
		l.protected = object{"name": "main", "push_access_levels": []object{c.push}, "merge_access_levels": []object{c.merge}}
		s, err := fx.Host.Standing(t.Context(), fx.Repo)
		p, unknown := s.Protection, strings.Join(s.Unknown, "; ")
		if err != nil || !p.On || p.BotPushes != c.pushes || p.BotMerges != c.merges || strings.Contains(unknown, "in a group") != (c.unknown != "") || !strings.Contains(unknown, c.unknown) {
			t.Errorf("%s: %+v, unknown: %s, %v", name, p, unknown, err)
		}
	}
}

// TestGenuineWebhooks reads the payloads that come with GitLab's own client.
func TestGenuineWebhooks(t *testing.T) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "gitlab.com/gitlab-org/api/client-go").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "testdata", "webhooks", "*.json"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d payloads, %v", len(files), err)
	}
	event := map[string]string{"issue.json": "Issue Hook", "note_issue.json": "Note Hook", "note_merge_request.json": "Note Hook", "merge_request.json": "Merge Request Hook", "push.json": "Push Hook"}
	want := map[string]forge.Kind{"note_issue.json": forge.Commented, "note_merge_request.json": forge.Commented, "push.json": forge.Pushed}
	f := &Forge{cfg: Config{Name: "gitlab"}}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		kind := event[name]
		if kind == "" {
			kind = "Other Hook"
		}
		d, err := f.Parse(http.Header{"X-Gitlab-Event": {kind}, "Idempotency-Key": {"x"}}, b)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if w := want[name]; w != "" && (d.Kind != w || d.Repository == "0" || d.Sender.Name == "") {
			t.Errorf("%s: %+v", name, d)
		}
		if d.Comment != nil && (d.Comment.Created.IsZero() || d.Comment.Body == "") {
			t.Errorf("%s: %+v", name, d.Comment)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("Issue Hook", []byte(`{"object_kind":"issue","changes":{"labels":{"current":[{"title":"x"}]}}}`))
	f.Add("Note Hook", []byte(`{"object_kind":"note","object_attributes":{"noteable_type":"Issue"},"issue":{}}`))
	f.Fuzz(func(_ *testing.T, event string, body []byte) {
		h := &Forge{cfg: Config{Name: "gitlab"}}
		_, _ = h.Parse(http.Header{"X-Gitlab-Event": {event}, "Idempotency-Key": {"x"}}, body)
	})
}
