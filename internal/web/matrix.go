package web

import (
	"fmt"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// matrixShown is how many tests stand unfolded above the others.
const matrixShown = 40

// matrixView is what each run showed of each test of interest.
type matrixView struct {
	Runs  []matrixRun
	First []matrixRow // what decides
	More  []matrixRow // folded
	Left  int         // that the record leaves out
}

type matrixRun struct {
	Phase, What, Where, Took string
}

type matrixRow struct {
	Test, Why, Rerun string
	Cells            []matrixCell
}

// matrixCell is one test in one run; without a word it was no part of it.
type matrixCell struct{ Tone, Word, Took string }

// matrixOf lays out a table; nil for none. Tests that show the bug, came out otherwise or flicker
// come first, those that only are new after them.
func matrixOf(t *task.Table) *matrixView {
	if t == nil || len(t.Tests) == 0 || len(t.Runs) == 0 {
		return nil
	}
	m := &matrixView{Left: t.Left}
	total, seen := map[string]int{}, map[string]int{}
	kind := func(r task.TableRun) string { return r.Phase + " " + r.What }
	for _, r := range t.Runs {
		total[kind(r)]++
	}
	for _, r := range t.Runs {
		x := matrixRun{Phase: r.Phase, What: r.What, Took: story.Took(r.Millis)}
		seen[kind(r)]++
		if r.Path != "" {
			x.Where = fmt.Sprintf("%s:%d", r.Path, r.Line)
		} else if n := total[kind(r)]; n > 1 {
			x.What = fmt.Sprintf("%s %d/%d", r.What, seen[kind(r)], n)
		}
		m.Runs = append(m.Runs, x)
	}
	for i, row := range t.Tests {
		x := matrixRow{Test: row.Test, Why: whyShown(row.Why), Rerun: row.Rerun}
		for _, r := range t.Runs {
			c := matrixCell{}
			if s, ok := r.At(i); ok {
				c.Tone, _, c.Word = statusLook(s)
				if i < len(r.Took) && r.Took[i] > 0 {
					c.Took = story.Took(r.Took[i])
				}
			}
			x.Cells = append(x.Cells, c)
		}
		if row.Why != "new" && len(m.First) < matrixShown {
			m.First = append(m.First, x)
		} else {
			m.More = append(m.More, x)
		}
	}
	return m
}

func whyShown(why string) string {
	switch why {
	case "reproduction":
		return "shows the bug"
	case "regression":
		return "newly failing"
	case "flaky":
		return "runs disagree"
	case "changed":
		return "came out otherwise"
	}
	return why
}

// named reports whether the matrix has a test.
func (m *matrixView) named(test string) bool {
	is := func(r matrixRow) bool { return r.Test == test }
	return m != nil && (slices.ContainsFunc(m.First, is) || slices.ContainsFunc(m.More, is))
}
