package web

import (
	"container/list"
	"context"
	"sync"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// shelfSize is how many folded tasks are kept.
const shelfSize = 12

// shelf keeps folded tasks, so that a viewer who comes back, or one of many, costs only what is
// new in the log.
type shelf struct {
	src Source

	mu    sync.Mutex
	books map[task.ID]*list.Element
	order *list.List // of *book, the newest use first
}

// book is a folded task with what was rendered of it. Its fields are used under mu.
type book struct {
	id task.ID

	mu    sync.Mutex
	story *story.Story
	made  map[string]string // rendered pieces of the story as it is now
	docs  docs
}

func newShelf(src Source) *shelf {
	return &shelf{src: src, books: map[task.ID]*list.Element{}, order: list.New()}
}

func (s *shelf) book(id task.ID) *book {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.books[id]; ok {
		s.order.MoveToFront(e)
		return e.Value.(*book)
	}
	b := &book{id: id, story: story.New(), made: map[string]string{}}
	s.books[id] = s.order.PushFront(b)
	if s.order.Len() > shelfSize {
		last := s.order.Back()
		delete(s.books, last.Value.(*book).id)
		s.order.Remove(last)
	}
	return b
}

// with calls f with the task's story at record seq or later; 0 means as new as the store has it.
// f must keep nothing of the story.
func (s *shelf) with(ctx context.Context, id task.ID, seq int64, f func(*book) error) error {
	b := s.book(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if seq == 0 || b.story.Sum.LastSeq < seq {
		events, err := s.src.Events(ctx, id, b.story.Sum.LastSeq, 0)
		if err != nil {
			return err
		}
		for _, e := range events {
			if err := b.story.Apply(e); err != nil {
				b.story, b.docs, b.made = story.New(), docs{}, map[string]string{}
				return err
			}
		}
		if len(events) > 0 {
			clear(b.made)
		}
	}
	return f(b)
}

// piece returns what make renders, made once for the story as it is now.
func (b *book) piece(name string, make func() (string, error)) (string, error) {
	if p, ok := b.made[name]; ok {
		return p, nil
	}
	p, err := make()
	if err == nil {
		b.made[name] = p
	}
	return p, err
}

// load returns the whole string of a text.
func (s *shelf) load(ctx context.Context, t event.Text) (string, error) {
	if t.Blob == "" {
		return t.Inline, nil
	}
	data, err := s.src.Blob(ctx, t.Blob)
	return string(data), err
}

// facts are what a row of the list shows beyond the store's row. They are kept per task and folded
// on from the last record seen.
type facts struct {
	src Source

	mu   sync.Mutex
	kept map[task.ID]fact
}

// maxFacts bounds the tasks whose facts are kept.
const maxFacts = 4096

type fact struct {
	seq      int64
	cost     task.MicroUSD
	steps    int
	verdict  task.VerdictKind
	pr       string // https address, or ""
	prNumber int
	by       string
	held     bool
	asked    bool
}

func newFacts(src Source) *facts { return &facts{src: src, kept: map[task.ID]fact{}} }

func (f *facts) of(ctx context.Context, t store.Task) (fact, error) {
	f.mu.Lock()
	k := f.kept[t.ID]
	f.mu.Unlock()
	if k.seq >= t.LastSeq {
		return k, nil
	}
	events, err := f.src.Events(ctx, t.ID, k.seq, 0)
	if err != nil {
		return k, err
	}
	for _, e := range events {
		if err := k.take(e); err != nil {
			return k, err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.kept) >= maxFacts {
		clear(f.kept)
	}
	f.kept[t.ID] = k
	return k, nil
}

func (k *fact) take(e event.Event) error {
	k.seq = e.Seq
	switch e.Kind {
	case "task.created", "model.response", "model.failed", "verification.finished", "pull_request.opened", "state.changed",
		"publication.held", "publication.approved", "question.asked", "question.answered":
	default:
		return nil
	}
	p, err := event.Decode(e)
	if err != nil {
		return err
	}
	switch p := p.(type) {
	case *event.TaskCreated:
		k.by = p.RequestedBy
	case *event.ModelResponded:
		k.cost, k.steps = k.cost+p.Cost, k.steps+1
	case *event.ModelFailed:
		k.cost, k.steps = k.cost+p.Cost, k.steps+1
	case *event.VerificationFinished:
		k.verdict = p.Kind
	case *event.PullRequestOpened:
		k.pr, k.prNumber = p.URL, p.Number
	case *event.StateChanged:
		k.held, k.asked = false, false
	case *event.QuestionAsked:
		k.asked = true
	case *event.QuestionAnswered:
		k.asked = false
	case *event.PublicationHeld:
		k.held = true
	case *event.PublicationApproved:
		k.held = false
	}
	return nil
}
