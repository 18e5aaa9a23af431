package repo

import (
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/policy/pipelines"
)

// TestJudge: what lets nobody stand between an agent and the default branch is refused.
func TestJudge(t *testing.T) {
	good := forge.Standing{
		Repository: forge.Repository{Path: "a/b", DefaultBranch: "main"}, Bot: forge.User{Name: "bot"}, May: forge.Write, Steer: []string{"wanda"},
		Protection: forge.Protection{On: true, Approvals: 1, Stale: true},
	}
	for name, c := range map[string]struct {
		change func(*forge.Standing)
		want   string // severity and a part of the text, "" for nothing
	}{
		"good":            {func(*forge.Standing) {}, ""},
		"unprotected":     {func(s *forge.Standing) { s.Protection = forge.Protection{} }, "refuse is not protected"},
		"bot pushes":      {func(s *forge.Standing) { s.Protection.BotPushes = true }, "refuse may push"},
		"no approval":     {func(s *forge.Standing) { s.Protection.Approvals = 0 }, "warn needs no approval"},
		"stale approvals": {func(s *forge.Standing) { s.Protection.Stale = false }, "warn stays good"},
		"archived":        {func(s *forge.Standing) { s.Repository.Archived = true }, "refuse archived"},
		"too little":      {func(s *forge.Standing) { s.Missing = []string{"write access to the code"} }, "refuse lacks write access"},
		"too much":        {func(s *forge.Standing) { s.TooMuch = []string{"it may administer"} }, "warn more rights"},
		"nobody":          {func(s *forge.Standing) { s.Steer = nil }, "warn nobody can ask"},
		"not told":        {func(s *forge.Standing) { s.Unknown = []string{"the scopes"} }, "note does not say the scopes"},
	} {
		s := good
		c.change(&s)
		got := judge(s)
		if c.want == "" {
			if len(got) != 0 {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		sev, part, _ := strings.Cut(c.want, " ")
		if len(got) != 1 || got[0].Severity != pipelines.Severity(sev) || !strings.Contains(got[0].Text, part) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
}
