package github

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

const (
	forkOwner = "forker"
	forkToken = "fork-token"
	forkID    = 5811
)

// makeFork makes the fork, or something else of its name.
func (h *hub) makeFork(squat bool) {
	h.other, h.squat = filepath.Join(filepath.Dir(h.bare), "..", forkOwner, fakeRepo+".git"), squat
	gittest.Run(h.t, h.bare, "clone", "-q", "--bare", h.bare, h.other)
	gittest.Run(h.t, h.other, "config", "http.receivepack", "true")
}

func (h *hub) forkHead(branch string) string {
	if h.other == "" {
		return ""
	}
	return gittest.Run(h.t, h.other, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
}

func (h *hub) fork() (int, any) {
	if h.other == "" {
		return 404, object{"message": "Not Found"}
	}
	r := h.repo()
	r["id"], r["full_name"], r["owner"], r["fork"] = forkID, forkOwner+"/"+fakeRepo, userOf(forkOwner), !h.squat
	if !h.squat {
		r["parent"] = h.repo()
	}
	return 200, r
}

func (h *hub) forkIt(c call) (int, any) {
	if c.as != forkOwner || c.body["organization"] != nil {
		h.t.Errorf("%s forks for %v", c.as, c.body["organization"])
	}
	h.makeFork(false)
	_, r := h.fork()
	return 202, r
}

// TestForkAsksForLess: where branches go to a fork, the App only reads the code, and where it
// may do no more it lacks nothing.
func TestForkAsksForLess(t *testing.T) {
	h := newHub(t, describe(t, slices.Collect(maps.Keys(operations()))))
	fx := h.fixture(true)
	k := fx.Forked(t)
	h.contents = "read"
	s, err := k.Host.Standing(t.Context(), fx.Repo)
	if err != nil || len(s.Missing) != 0 {
		t.Errorf("missing %q, %v", s.Missing, err)
	}
	if _, err := k.Host.Credential(t.Context(), fx.Repo); err != nil || len(h.granted) == 0 {
		t.Fatal(err)
	}
	want := map[string]any{"contents": "read", "issues": "write", "pull_requests": "write", "checks": "write", "metadata": "read"}
	for _, g := range h.granted {
		if fmt.Sprint(g["permissions"]) != fmt.Sprint(want) {
			t.Errorf("a token was asked for with %v", g)
		}
	}
	if _, err := fx.Host.Standing(t.Context(), fx.Repo); err == nil || !strings.Contains(err.Error(), "not granted") {
		t.Errorf("without a fork it must write the code: %v", err)
	}
}
