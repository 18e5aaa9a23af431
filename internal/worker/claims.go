package worker

import (
	"context"
	"slices"
	"strings"
	"unicode"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/proposal"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// checkClaims takes out of the agent's words what neither the change nor the base bears out, and
// records each sentence that goes. The same words give the same ones again after a crash.
func (r *run) checkClaims(ctx context.Context, sum event.Summary, v task.Verdict, in *proposal.Input) error {
	// What is about to be recorded once more must hold no secret either.
	w, title := &in.Submitted, in.Submitted.Title // the branch's name follows from the title as it is
	if err := r.clean([]outgoing{{"title", &title}, {"cause", &w.Cause}, {"fix", &w.Fix}}); err != nil {
		return err
	}
	diff, err := r.j.Load(ctx, sum.Exported.Diff)
	if err != nil {
		return err
	}
	if _, err := r.baseNames(ctx); err != nil {
		return err
	}
	paths := slices.Concat(r.names, sum.Exported.Paths)
	words := wordsOf(diff)
	for _, t := range v.Reproduction {
		for part := range wordsOf(t.Test) {
			words[part] = true
		}
	}
	has := func(n proposal.Name) (bool, error) {
		if n.Path {
			return proposal.HasPath(paths, n.Text), nil
		}
		if words[n.Text] {
			return true, nil
		}
		return r.cfg.Git.Mentions(ctx, r.snap.GitDir, r.snap.Base, n.Text)
	}
	var dropped []proposal.Claim
	for _, part := range []struct {
		where string
		text  *string
	}{{"cause", &w.Cause}, {"fix", &w.Fix}} {
		kept, gone, err := proposal.Filter(part.where, *part.text, has)
		if err != nil {
			return err
		}
		*part.text, dropped = kept, append(dropped, gone...)
	}
	in.Dropped = len(dropped)
	_, gone, err := proposal.Filter("title", title, has)
	if err != nil {
		return err
	}
	in.NoTitle = len(gone) > 0
	var record []event.Payload
	for _, c := range append(dropped, gone...) {
		e := event.ClaimDropped{Where: c.Where, Text: c.Text, Why: c.Why}
		if !slices.Contains(sum.Dropped, e) {
			record = append(record, e)
		}
	}
	if len(record) == 0 {
		return nil
	}
	_, err = r.j.Append(ctx, record...)
	return err
}

// wordsOf are the identifiers of a text.
func wordsOf(text string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.FieldsFunc(text, func(c rune) bool { return c != '_' && c != '$' && !unicode.IsLetter(c) && !unicode.IsDigit(c) }) {
		out[w] = true
	}
	return out
}
