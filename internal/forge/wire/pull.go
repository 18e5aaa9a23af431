package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Pulls are the calls that opening the pull request of one branch takes.
type Pulls struct {
	// Find returns the newest one of the branch, nil when there is none.
	Find func() (*forge.PullRequest, error)
	// Create opens a new one; Edit gives the title and our body to one that is there.
	Create func(title string) (forge.PullRequest, error)
	Edit   func(number int, title string) (forge.PullRequest, error)
	// Draft is the prefix that makes a title a draft's, "" where a draft has a flag.
	Draft string
	// There are the classes of a refusal to create that may mean that it is there already.
	There []task.Class
}

// Open opens pr unless its branch has one, and says whether it was there. An open one that was
// there is given our title and body; what a person made of its title and of its being a draft stays.
func (p Pulls) Open(pr forge.PullRequest) (forge.PullRequest, bool, error) {
	titled := func(title string, draft bool) string {
		if draft {
			return p.Draft + title
		}
		return title
	}
	merged := func(theirs forge.PullRequest) forge.PullRequest { // with what only we know of it
		theirs.Task, theirs.Files = pr.Task, pr.Files
		return theirs
	}
	old, err := p.Find()
	if err != nil {
		return pr, false, err
	}
	if old == nil {
		made, err := p.Create(titled(pr.Title, pr.Draft))
		if err == nil {
			return merged(made), false, nil
		}
		if !slices.Contains(p.There, task.ClassOf(err)) {
			return pr, false, err
		}
		var ferr error
		if old, ferr = p.Find(); ferr != nil || old == nil { // else another run was faster
			return pr, false, err
		}
	}
	title := pr.Title
	if pr.Before != "" && old.Title != pr.Before {
		title = old.Title
	}
	if old.State == forge.PullOpen && (old.Title != title || strings.TrimSpace(old.Body) != strings.TrimSpace(pr.Body)) {
		done, err := p.Edit(old.Number, titled(title, old.Draft))
		if err != nil {
			return pr, false, err
		}
		return merged(done), true, nil
	}
	return merged(*old), true, nil
}

// CheckCommit refuses what is not the id of a commit.
func CheckCommit(commit string) error {
	if !git.IsID(commit) {
		return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not a commit", commit)}
	}
	return nil
}

// CommentNumber reads the id of a comment on a forge that numbers them.
func CommentNumber(id string) (int64, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n <= 0 {
		return 0, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not the number of a comment", id)}
	}
	return n, nil
}

// Time is t in UTC, the zero time for none.
func Time(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}
