// Package storybook holds tasks in hard states, for looking at pages and for their tests: huge
// changes, thousands of events, texts that try to act, every way to end.
//
// Invariants: every task is a log of real events, sealed and folded like any other; the same
// instant gives the same logs; none of it touches a store.
package storybook

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Book is a set of tasks in hard states. It is read-only and safe for concurrent use.
type Book struct {
	tasks map[task.ID]*Story
	order []task.ID
	blobs map[string][]byte
}

// Story is one task of the book.
type Story struct {
	Name string // in words
	Row  store.Task
	Log  []event.Event
}

// New writes the book as it would have been recorded at an instant.
func New(at time.Time) (*Book, error) {
	b := &Book{tasks: map[task.ID]*Story{}, blobs: map[string][]byte{}}
	for i, s := range []struct {
		name  string
		write func(*log)
	}{
		{"verified, a pull request is open", verified},
		{"hostile text everywhere", hostile},
		{"5,000 events", func(l *log) { long(l, 5000) }},
		{"a huge change", huge},
		{"not verified: tests were loosened", loosened},
		{"a verified change that waits for approval", held},
		{"the agent asks a question", asking},
		{"at work: a command runs", working},
		{"declined", declined},
		{"out of budget", exhausted},
		{"stopped by a person", stopped},
		{"failed before it began: setup", setupFailed},
		{"queued", func(l *log) { l.create("Add a dark theme to the settings page", "Please.") }},
	} {
		if err := b.write(ID(i+1), s.name, at.Add(-time.Duration(i)*47*time.Minute), s.write); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// Long is a book of one task, [ID](1), with about as many events.
func Long(at time.Time, events int) (*Book, error) {
	b := &Book{tasks: map[task.ID]*Story{}, blobs: map[string][]byte{}}
	return b, b.write(ID(1), "long", at, func(l *log) { long(l, events) })
}

func (b *Book) write(id task.ID, name string, at time.Time, write func(*log)) error {
	l := &log{id: id, at: at, book: b}
	write(l)
	if l.err != nil {
		return fmt.Errorf("storybook: %s: %w", name, l.err)
	}
	return b.put(name, l.events)
}

// ID is the id of the nth task of the book, from 1.
func ID(n int) task.ID { return task.ID(fmt.Sprintf("t_00000000000000storybook%03d", n)) }

// put adds a log under its task.
func (b *Book) put(name string, events []event.Event) error {
	sum, err := event.Fold(events)
	if err != nil {
		return fmt.Errorf("storybook: %s: %w", name, err)
	}
	row := store.Task{
		ID: sum.Task, State: sum.State, Repo: sum.Created.Repo, Title: sum.Created.IssueTitle, Created: sum.CreatedAt, Updated: sum.UpdatedAt,
		LastSeq: sum.LastSeq, Author: sum.Created.RequestedBy,
	}
	b.tasks[sum.Task] = &Story{Name: name, Row: row, Log: events}
	b.order = append(b.order, sum.Task)
	return nil
}

// Stories are the tasks in order.
func (b *Book) Stories() []*Story {
	out := make([]*Story, 0, len(b.order))
	for _, id := range b.order {
		out = append(out, b.tasks[id])
	}
	return out
}

// Has reports whether a task is one of the book.
func (b *Book) Has(id task.ID) bool { return b != nil && b.tasks[id] != nil }

// Task returns a row. Class NotFound.
func (b *Book) Task(_ context.Context, id task.ID) (store.Task, error) {
	if s := b.tasks[id]; s != nil {
		return s.Row, nil
	}
	return store.Task{}, &task.Error{Class: task.NotFound, Msg: "no such task"}
}

// Tasks lists all rows; the filter's limit alone is heeded.
func (b *Book) Tasks(_ context.Context, f store.Filter) ([]store.Task, error) {
	var out []store.Task
	for _, s := range b.Stories() {
		out = append(out, s.Row)
	}
	if f.Limit > 0 && f.Limit < len(out) {
		out = out[:f.Limit]
	}
	return out, nil
}

// Events returns records after a number, at most limit (0: all).
func (b *Book) Events(_ context.Context, id task.ID, after int64, limit int) ([]event.Event, error) {
	s := b.tasks[id]
	if s == nil {
		return nil, &task.Error{Class: task.NotFound, Msg: "no such task"}
	}
	log := s.Log[min(int(after), len(s.Log)):]
	if limit > 0 && limit < len(log) {
		log = log[:limit]
	}
	return slices.Clone(log), nil
}

// Blob returns a blob. Class NotFound.
func (b *Book) Blob(_ context.Context, digest string) ([]byte, error) {
	if data, ok := b.blobs[digest]; ok {
		return data, nil
	}
	return nil, &task.Error{Class: task.NotFound, Msg: "no such blob"}
}

// log writes one task's events.
type log struct {
	id       task.ID
	at       time.Time
	epoch    int64
	step     int
	verified int64 // seq of the newest verdict
	events   []event.Event
	book     *Book
	err      error
}

// add appends an event some time after the one before.
func (l *log) add(after time.Duration, p event.Payload) {
	d, err := event.New(p)
	if err == nil {
		d, err = d.Canonical()
	}
	if err != nil {
		l.err = err
		return
	}
	prev := event.Genesis(l.id)
	if n := len(l.events); n > 0 {
		prev = l.events[n-1].Hash
	}
	l.at = l.at.Add(after)
	l.events = append(l.events, event.Seal(l.id, int64(len(l.events))+1, l.epoch, l.at, prev, d))
}

// text spills as a store does.
func (l *log) text(s string) event.Text {
	if len(s) <= event.InlineLimit && strings.ToValidUTF8(s, "") == s {
		return event.Text{Inline: s, Bytes: len(s)}
	}
	sum := sha256.Sum256([]byte(s))
	digest := hex.EncodeToString(sum[:])
	l.book.blobs[digest] = []byte(s)
	return event.Text{Blob: digest, Bytes: len(s)}
}

func (l *log) json(v any) event.Text {
	b, err := json.Marshal(v)
	if err != nil {
		l.err = err
	}
	return l.text(string(b))
}

// blob keeps a run's output and returns its name.
func (l *log) blob(s string) string {
	sum := sha256.Sum256([]byte(s))
	digest := hex.EncodeToString(sum[:])
	l.book.blobs[digest] = []byte(s)
	return digest
}
