package wire

import (
	"testing"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func TestOpen(t *testing.T) {
	ours := forge.PullRequest{Task: "t_1", Title: "Fix", Body: "Why.", Draft: true}
	there := func(title, body string, draft bool, s forge.PullState) *forge.PullRequest {
		return &forge.PullRequest{Number: 7, Title: title, Body: body, Draft: draft, State: s}
	}
	for name, c := range map[string]struct {
		finds   []*forge.PullRequest // what each search finds
		before  string               // the title that we gave it last
		refused task.Class           // of the call that creates
		did     string
		found   bool
		class   task.Class
	}{
		"new":                       {finds: []*forge.PullRequest{nil}, did: "create WIP: Fix"},
		"refused":                   {finds: []*forge.PullRequest{nil}, refused: task.Auth, did: "create WIP: Fix", class: task.Auth},
		"another run was faster":    {finds: []*forge.PullRequest{nil, there("Fix", "Why.\n", true, forge.PullOpen)}, refused: task.Conflict, did: "create WIP: Fix", found: true},
		"a conflict over another":   {finds: []*forge.PullRequest{nil, nil}, refused: task.Conflict, did: "create WIP: Fix", class: task.Conflict},
		"as it should be":           {finds: []*forge.PullRequest{there("Fix", "Why.", true, forge.PullOpen)}, found: true},
		"another title":             {finds: []*forge.PullRequest{there("Old", "Why.", true, forge.PullOpen)}, did: "edit WIP: Fix", found: true},
		"another body, made ready":  {finds: []*forge.PullRequest{there("Fix", "Old.", false, forge.PullOpen)}, did: "edit Fix", found: true},
		"our title of before":       {finds: []*forge.PullRequest{there("Old", "Why.", true, forge.PullOpen)}, before: "Old", did: "edit WIP: Fix", found: true},
		"a person's title":          {finds: []*forge.PullRequest{there("Theirs", "Old.", true, forge.PullOpen)}, before: "Old", did: "edit WIP: Theirs", found: true},
		"a person's title alone":    {finds: []*forge.PullRequest{there("Theirs", "Why.", true, forge.PullOpen)}, before: "Old", found: true},
		"another title, but closed": {finds: []*forge.PullRequest{there("Old", "Why.", true, forge.PullClosed)}, found: true},
	} {
		t.Run(name, func(t *testing.T) {
			did, searches := "", 0
			ours := ours
			ours.Before = c.before
			got, found, err := Pulls{
				Find: func() (*forge.PullRequest, error) { searches++; return c.finds[searches-1], nil },
				Create: func(title string) (forge.PullRequest, error) {
					did += "create " + title
					if c.refused != "" {
						return forge.PullRequest{}, &task.Error{Class: c.refused, Msg: "refused"}
					}
					return forge.PullRequest{Number: 7}, nil
				},
				Edit: func(number int, title string) (forge.PullRequest, error) {
					did += "edit " + title
					return forge.PullRequest{Number: number}, nil
				},
				Draft: "WIP: ", There: []task.Class{task.Conflict},
			}.Open(ours)
			if did != c.did || found != c.found || task.ClassOf(err) != c.class || searches != len(c.finds) {
				t.Errorf("did %q with %d searches, found %v, %v", did, searches, found, err)
			}
			if err == nil && (got.Number != 7 || got.Task != ours.Task) {
				t.Errorf("returned %+v", got)
			}
		})
	}
}
