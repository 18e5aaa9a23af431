package github

import (
	"path/filepath"

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
