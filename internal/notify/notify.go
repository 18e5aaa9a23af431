// Package notify is the seam to those who are told when people should look: what a note says, and
// the one call that sends it. Adapters: `webhook`, `mail`.
//
// Invariants: a note holds facts of the record and links alone, no word of a model; a title that
// somebody wrote is one short line without control characters; an error of a sender names no
// secret, and its class says whether sending again makes sense.
package notify

import (
	"context"
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// About says what a note is about.
type About string

// What people are told of.
const (
	PullRequest About = "pull_request" // one is ready
	Waiting     About = "waiting"      // a change or a question waits for a person
	Exhausted   About = "exhausted"    // a budget ran out
)

// Note is what is told.
type Note struct {
	Key   string // the same note has the same key
	About About
	Task  task.ID
	Repo  string // path or URL, without credentials
	Title string // of the issue
	// Fact is one line: the verdict, what is waited for, which budget.
	Fact string
	Page string // address of the task's page, "" where none is known
	Link string // address of the pull request, or of the issue; may be a path, or ""
}

// Sender sends notes.
type Sender interface {
	Send(ctx context.Context, n Note) error
	Name() string // "webhook" or "mail"
}

// maxTitle is how much of a title is told, in characters.
const maxTitle = 120

// Line is a text as one line without control and invisible characters, cut to a length.
func Line(s string) string {
	var b strings.Builder
	n := 0
	for _, word := range strings.Fields(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		if !unicode.IsPrint(r) { // format characters reverse and hide text
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))) {
		if n > 0 {
			b.WriteByte(' ')
			n++
		}
		for _, r := range word {
			if n >= maxTitle {
				return b.String() + "…"
			}
			b.WriteRune(r)
			n++
		}
	}
	return b.String()
}

// Subject is what a note is about in one line.
func (n Note) Subject() string {
	what := map[About]string{
		PullRequest: "Pull request ready", Waiting: "Waiting for you", Exhausted: "Budget used up",
	}[n.About]
	return fmt.Sprintf("%s: %s: %s", what, Line(path.Base(strings.TrimSuffix(n.Repo, ".git"))), Line(n.Title))
}

// Web reports whether an address can be opened in a browser, and is told as a link.
func Web(address string) bool {
	return strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://")
}
