package route

import (
	"context"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/forge"
)

// place remembers what was asked of it.
type place struct {
	forge.Host
	name string
	kept []forge.PullRequest
}

func (p *place) Name() string { return p.name }

func (p *place) Push(context.Context, forge.Push) (bool, error) { return p.name == "hub", nil }

func (p *place) OpenPullRequest(_ context.Context, pr forge.PullRequest) (forge.PullRequest, bool, error) {
	pr.URL = p.name + "/1"
	return pr, false, nil
}

func (p *place) Keep(pr forge.PullRequest) error { p.kept = append(p.kept, pr); return nil }

func TestRoute(t *testing.T) {
	here, hub := &place{name: "here"}, &place{name: "hub"}
	r := New(here, Entry{URL: "https://git.example.com/forge/", Host: hub})
	for repo, want := range map[string]bool{
		"https://git.example.com/forge/a/b.git": true, "https://GIT.example.com/forge/a/b": true,
		"https://git.example.com/forgery/a/b": false, "https://git.example.com/forge": false, "https://git.example.com.evil/forge/a/b": false, "/srv/a": false, "": false,
	} {
		if got, err := r.Push(t.Context(), forge.Push{Repo: repo}); err != nil || got != want {
			t.Errorf("%q went to the hub: %v", repo, got)
		}
	}
	pr := forge.PullRequest{Repo: "https://git.example.com/forge/a/b", Files: map[string][]byte{"e.json": []byte("1")}}
	got, _, err := r.OpenPullRequest(t.Context(), pr)
	if err != nil || got.URL != "hub/1" || len(here.kept) != 1 || here.kept[0].URL != "hub/1" || string(here.kept[0].Files["e.json"]) != "1" {
		t.Errorf("%+v, kept %+v, %v", got, here.kept, err)
	}
}
