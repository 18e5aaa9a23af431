// Package forge is the seam to where code and its reviews live. Adapters live in
// forge/<vendor>, what they share on the wire in forge/wire, the suite that each passes in
// forge/forgetest.
//
// Invariants: there is no call that merges, approves, marks ready, dismisses a review or
// changes a protection; opening a pull request is found again by its head branch, so that
// doing it twice opens one; a push goes to the task's own branch only, under a lease on its
// expected old value; a repository is held to the number it was registered with.
package forge

import (
	"context"
	"time"
)

// PullRequest is what a person reviews.
type PullRequest struct {
	Task   string
	Repo   string // as in the task
	Base   string // target branch, may be empty for a forge without one
	Branch string // head branch, "daybreak/<task>-<slug>"
	Head   string // commit id
	Title  string
	Before string // the title that we gave it last: one that people gave it since stays; "" for a new one
	Body   string // Markdown
	Draft  bool
	URL    string            // or path; set by the forge
	Files  map[string][]byte // documents that go with it (evidence), by name

	// What a [Host] adds. Number is 0 for a forge without numbers.
	Number      int
	State       PullState // "" for a forge that does not know
	MergedBy    User
	MergeCommit string
	Ended       time.Time // when it was merged or closed
}

// PullState is where a pull request stands.
type PullState string

// The states.
const (
	PullOpen   PullState = "open"
	PullMerged PullState = "merged"
	PullClosed PullState = "closed" // without a merge
)

// Push names the commit to publish.
type Push struct {
	GitDir string // bare repository of ours that has the commit
	Repo   string
	Branch string // without refs/heads/
	Commit string
	Old    string // what the branch must point at now; "" when it must not exist
}

// Forge is one place.
type Forge interface {
	// Name is for records: "local", "github", …
	Name() string
	// Push publishes the commit on the branch. When the branch already is at Commit it
	// succeeds with found true. A branch at any other value than Old is class Conflict.
	Push(ctx context.Context, p Push) (found bool, err error)
	// FindPullRequest returns nil when there is none for the branch.
	FindPullRequest(ctx context.Context, repo, branch string) (*PullRequest, error)
	// OpenPullRequest opens it once; when one exists for the branch it is updated and
	// returned with found true.
	OpenPullRequest(ctx context.Context, pr PullRequest) (opened PullRequest, found bool, err error)
	// Home is the address, for git, of the repository in which a branch of a repository's pull
	// requests lies: the repository, or a fork of it.
	Home(ctx context.Context, repo, branch string) (string, error)
}
