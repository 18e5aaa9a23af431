package web

import (
	"context"
	"net/http"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/outcome"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/storybook"
)

// withBook reads tasks of the storybook beside those of the store. Lists are the store's.
type withBook struct {
	Source
	book *storybook.Book
}

// Task implements Source.
func (w withBook) Task(ctx context.Context, id task.ID) (store.Task, error) {
	if w.book.Has(id) {
		return w.book.Task(ctx, id)
	}
	return w.Source.Task(ctx, id)
}

// Events implements Source.
func (w withBook) Events(ctx context.Context, id task.ID, after int64, limit int) ([]event.Event, error) {
	if w.book.Has(id) {
		return w.book.Events(ctx, id, after, limit)
	}
	return w.Source.Events(ctx, id, after, limit)
}

// Blob implements Source.
func (w withBook) Blob(ctx context.Context, digest string) ([]byte, error) {
	if b, err := w.book.Blob(ctx, digest); err == nil {
		return b, nil
	}
	return w.Source.Blob(ctx, digest)
}

// storybook lists the hard states as the list of tasks shows them.
func (s *Site) storybook(w http.ResponseWriter, r *http.Request) error {
	v := bookView{list: listView{Now: s.cfg.Now()}}
	for _, st := range s.book.Stories() {
		row, err := s.row(r.Context(), st.Row)
		if err != nil {
			return err
		}
		v.list.Rows = append(v.list.Rows, row)
		v.names = append(v.names, st.Name)
	}
	s.write(w, r, http.StatusOK, storybookPage(s.head(r, "Storybook", "storybook"), v))
	return nil
}

func (s *Site) storybookEmpty(w http.ResponseWriter, r *http.Request) error {
	s.write(w, r, http.StatusOK, tasksPage(s.head(r, "Tasks", "storybook"), listView{Now: s.cfg.Now()}))
	return nil
}

// storybookFleet shows a busy fleet, or one in which nothing happens, as an operator sees it.
func (s *Site) storybookFleet(w http.ResponseWriter, r *http.Request) error {
	f := overview.Fleet{}
	if r.URL.Path == "/storybook/fleet" {
		f = storybook.Fleet(s.cfg.Now())
	}
	s.write(w, r, http.StatusOK, fleetPage(s.head(r, "Fleet", "storybook"), newFleetView(f, true, s.cfg.Now())))
	return nil
}

// storybookOutcomes shows a year of outcomes, by the page's own filter, or none at all.
func (s *Site) storybookOutcomes(w http.ResponseWriter, r *http.Request) error {
	now := s.cfg.Now()
	v := outcomesView{Since: "365d", By: "month"}
	if r.URL.Query().Get("by") == "week" {
		v.By = "week"
	}
	var all []outcome.Outcome
	var repos []string
	if r.URL.Path == "/storybook/outcomes" {
		all, repos = storybook.Outcomes(now)
	}
	s.write(w, r, http.StatusOK, outcomesPage(s.head(r, "Outcomes", "storybook"), newOutcomesView(v, all, repos, now)))
	return nil
}

type bookView struct {
	list  listView
	names []string
}
