package forge

import (
	"context"
	"net/http"
	"time"
)

// Host is a forge on which people write: it has issues, comments, permissions and deliveries.
// A repository is named by the URL that a task has; every call for one that was not
// registered, or that is another one by now, is class Invalid or Conflict. Errors have the
// classes Auth, NotFound, RateLimited (with RetryAfter), Transient, Conflict and Invalid.
type Host interface {
	Forge
	Capabilities() Capabilities

	// Repository asks for a repository by its URL, registered or not.
	Repository(ctx context.Context, repo string) (Repository, error)
	// Standing is what registering a repository looks at.
	Standing(ctx context.Context, repo string) (Standing, error)

	// Issue reads an issue; on a forge that numbers both together, also a pull request's text.
	Issue(ctx context.Context, repo string, number int) (Issue, error)
	// Changed lists open issues and pull requests that changed at or after since, oldest
	// first, with the label when one is given. At most [MaxItems].
	Changed(ctx context.Context, repo, label string, since time.Time) ([]Issue, error)
	// Acts lists who labelled and assigned an issue and when, oldest first.
	Acts(ctx context.Context, repo string, number int) ([]Act, error)
	// Comments lists what people wrote below an issue or a pull request, oldest first.
	Comments(ctx context.Context, repo string, at Ref) ([]Comment, error)
	// ReviewComments lists what people wrote at lines of a pull request, oldest first.
	ReviewComments(ctx context.Context, repo string, number int) ([]Comment, error)
	// Permission asks what a user may do at this moment; None for one who does not exist.
	Permission(ctx context.Context, repo, user string) (Permission, error)

	// PullRequest reads one by its number.
	PullRequest(ctx context.Context, repo string, number int) (PullRequest, error)
	// Comment adds a comment to an issue or a pull request and returns its id.
	Comment(ctx context.Context, repo string, at Ref, body string) (id string, err error)
	// EditComment replaces the text of a comment of ours.
	EditComment(ctx context.Context, repo string, at Ref, id, body string) error
	// Reply answers a review comment where the forge can, or else comments below.
	Reply(ctx context.Context, repo string, number int, to Comment, body string) (id string, err error)
	// Acknowledge marks a comment, or with id "" the issue, as seen. Doing it twice is once.
	Acknowledge(ctx context.Context, repo string, at Ref, id string) error
	// SetStatus shows the state of a task at a commit; the newest one of a task stands.
	SetStatus(ctx context.Context, repo, commit string, s Status) error

	// Verify checks that a request came from the forge, with one secret, in constant time,
	// over the raw bytes. Class Auth when it did not.
	Verify(h http.Header, body, secret []byte) error
	// Parse reads a verified request. Kind [Ignored] is for what Daybreak does not act on;
	// class Invalid for what cannot be read.
	Parse(h http.Header, body []byte) (Delivery, error)

	// Credential is what git shows for a repository: short-lived and for that repository alone
	// where the forge can.
	Credential(ctx context.Context, repo string) (Credential, error)
}

// Ref is where people talk: an issue, or a pull request. Some forges number the two apart.
type Ref struct {
	Number int
	Pull   bool
}

// MaxItems bounds every list that is read from a forge; one that is longer is cut, and
// Truncated errors say so where that matters.
const MaxItems = 1000

// Capabilities says what a forge can do, so that nobody has to guess. The zero value is the
// least.
type Capabilities struct {
	TokenPerRepository bool   // the credential is for one repository
	TokenLifetime      string // in words, for the record
	CheckRuns          bool   // a status has text and buttons, not only a word
	Assign             bool   // Daybreak's user can be an assignee
	ReviewReplies      bool   // a review comment can be answered in its thread
	Redelivers         bool   // a lost delivery is sent again by itself or can be asked for
	DraftBy            string // "flag" or the prefix of the title
	SignedTime         bool   // a delivery's signature covers its time
	Hunks              bool   // a comment at a line comes with the lines above it
	PullMark           string // before a pull request's number, "" is "#"
	WholeLabels        bool   // a delivery says which labels are there, not which is new
}

// Repository is one repository as the forge knows it.
type Repository struct {
	ID            string // the forge's number: survives a rename and is never given again
	Path          string // "owner/name"
	URL           string // for people
	Clone         string // for git
	DefaultBranch string
	Private       bool
	Archived      bool
}

// User is somebody on a forge. The zero value stands for one who is gone.
type User struct {
	ID   string
	Name string
	Bot  bool // an app or a service account
}

// Issue is an issue, or a pull request's opening text.
type Issue struct {
	Number      int
	Title, Body string
	URL         string
	Author      User
	Open        bool
	PullRequest bool
	Created     time.Time
	Updated     time.Time // of anything on it: text, labels, comments
	Labels      []string
	Assignees   []string
}

// Act is a label or an assignment that somebody made.
type Act struct {
	Kind Kind // [Labeled], [Assigned]; "" for anything else that moved Updated
	Who  User
	What string // the label, or the assignee's name
	At   time.Time
}

// Comment is one person's text. The fields from Path on are those of a review comment.
type Comment struct {
	ID       string
	Author   User
	Body     string
	URL      string
	Created  time.Time
	Updated  time.Time
	Internal bool // not for everybody who reads the issue

	Path     string
	Line     int    // in the new file; 0 when the line is not there any more
	Original int    // the line at the time of writing
	Commit   string // that the comment was written on
	Hunk     string // the lines above it, as a diff
	Thread   string // what a reply goes to; "" when the forge has no threads
	Review   string // that it was submitted with
}

// Permission is what a user may do, in order.
type Permission int

// The permissions.
const (
	None Permission = iota
	Read
	Write // may push, and so may steer
	Admin
)

// String is for people.
func (p Permission) String() string { return [...]string{"none", "read", "write", "admin"}[p] }

// StatusState is a word at a commit.
type StatusState string

// The states of a status.
const (
	StatusPending StatusState = "pending"
	StatusSuccess StatusState = "success"
	StatusFailure StatusState = "failure"
	StatusStopped StatusState = "stopped"
)

// Status is what a forge shows at a commit.
type Status struct {
	Task    string
	State   StatusState
	Title   string // at most 140 characters
	Summary string // Markdown, where the forge has room for it
	URL     string // of the record, may be empty
	Stop    bool   // offer a button that stops the task, where the forge has buttons
}

// Credential is what git shows: a user name and a secret, until Expires (zero: unknown).
type Credential struct {
	Username, Secret string
	Expires          time.Time
}

// Standing is what a forge says about a repository before it is registered. Unknown holds, in
// words, what the token may not see.
type Standing struct {
	Repository Repository
	Bot        User
	May        Permission // of Daybreak's own user
	Missing    []string   // rights that it lacks, in words
	TooMuch    []string   // rights that it should not have, in words
	Protection Protection // of the default branch
	Secrets    []string   // names of secrets that workflows of this repository can use
	Steer      []string   // names of those who may steer
	Unknown    []string
}

// Protection is how a branch is protected.
type Protection struct {
	On           bool
	Approvals    int  // that a merge needs
	Stale        bool // new commits dismiss approvals
	LastPusher   bool // the one who pushed last cannot be the approver
	OwnersReview bool
	BotPushes    bool // Daybreak's user could push to it
	BotMerges    bool // Daybreak's user could merge into it once approved
}

// Kind is what a delivery says has happened.
type Kind string

// The kinds. A pull request's comment has Pull set.
const (
	Ignored         Kind = "ignored"
	Ping            Kind = "ping"
	Labeled         Kind = "labeled"
	Assigned        Kind = "assigned"
	Edited          Kind = "edited"       // an issue's text
	Commented       Kind = "commented"    // a new comment, not an edit
	ReviewCommented Kind = "review_line"  // a comment at a line
	Reviewed        Kind = "reviewed"     // a review was submitted
	PullEnded       Kind = "pull_ended"   // merged or closed
	Pushed          Kind = "pushed"       // a branch moved
	StopPressed     Kind = "stop_pressed" // the button of a status
	RetryPressed    Kind = "retry_pressed"
)

// Delivery is a webhook's content in one form for all forges. Nothing in it is believed beyond
// what the signature proves: that the forge sent it. Who may act is asked of the forge.
type Delivery struct {
	ID         string    `json:"id"` // the forge's, the same when it is sent again
	Forge      string    `json:"forge"`
	Kind       Kind      `json:"kind"`
	At         time.Time `json:"at"` // of the event, zero when the forge does not say
	Repository string    `json:"repository"`
	Path       string    `json:"path"`
	Sender     User      `json:"sender"`
	Issue      *Issue    `json:"issue,omitempty"`
	Labels     []string  `json:"labels,omitempty"` // that were added; where the forge says only what is there now, all of them
	Assignees  []string  `json:"assignees,omitempty"`
	Comment    *Comment  `json:"comment,omitempty"`
	Verdict    string    `json:"verdict,omitempty"` // of a review: "approved", "changes_requested", "commented"
	Pull       *Pull     `json:"pull,omitempty"`
	Branch     string    `json:"branch,omitempty"` // that moved
	Before     string    `json:"before,omitempty"`
	After      string    `json:"after,omitempty"`
	Task       string    `json:"task,omitempty"` // of a pressed button
}

// Pull is what a delivery says of a pull request.
type Pull struct {
	Number      int       `json:"number"`
	Branch      string    `json:"branch"`
	Head        string    `json:"head"`
	State       PullState `json:"state"`
	MergedBy    User      `json:"merged_by"`
	MergeCommit string    `json:"merge_commit,omitempty"`
}
