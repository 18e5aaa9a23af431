package sqlite

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
)

// BenchmarkAppend is one acknowledged, synced append of one event of ordinary size.
func BenchmarkAppend(b *testing.B) { benchmarkAppend(b, 1, 2000) }

// BenchmarkAppendStep is the burst around one step: a reply, a call, its result, the clock.
func BenchmarkAppendStep(b *testing.B) { benchmarkAppend(b, 4, 8000) }

func benchmarkAppend(b *testing.B, events, size int) {
	s := openNew(b)
	id := storetest.New(b, s, 1)
	l := storetest.Lease(b, s, id)
	drafts := make([]event.Draft, events)
	for i := range drafts {
		drafts[i] = storetest.Draft(b, event.Noticed{Text: strings.Repeat("x", size)})
	}
	took := make([]time.Duration, 0, 1024)
	for b.Loop() {
		start := time.Now()
		if _, err := s.Append(b.Context(), l, drafts...); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds())/1000, "p95-ms")
}

// BenchmarkFold reads and folds a log of 600 events: what a resume or `task show` pays.
func BenchmarkFold(b *testing.B) {
	s := openNew(b)
	id := storetest.New(b, s, 1)
	l := storetest.Lease(b, s, id)
	drafts := make([]event.Draft, 600)
	for i := range drafts {
		drafts[i] = storetest.Draft(b, event.ToolFinished{Step: i, Call: "c", Result: event.Text{Inline: strings.Repeat("x", 2000)}})
	}
	if _, err := s.Append(b.Context(), l, drafts...); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		events, err := s.Events(b.Context(), id, 0, 0)
		if err != nil {
			b.Fatal(err)
		}
		if err := event.VerifyChain(id, events); err != nil {
			b.Fatal(err)
		}
		if _, err := event.Fold(events); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen is what every command pays before it does anything: an up-to-date file.
func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "daybreak.db")
	for b.Loop() {
		s, err := Open(b.Context(), path, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
