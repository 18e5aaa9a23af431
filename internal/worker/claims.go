package worker

import (
	"context"
	"slices"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/proposal"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// checkClaims takes out of the agent's words what the change does not bear out, and records each sentence that goes. The same words give the same ones again after a crash.
func (r *run) checkClaims(ctx context.Context, sum event.Summary, v task.Verdict, in *proposal.Input) error {
	// What is about to be recorded once more must hold no secret either.
	w, title := &in.Submitted, in.Submitted.Title
	if err := r.clean([]outgoing{{"title", &title}, {"cause", &w.Cause}, {"fix", &w.Fix}}); err != nil {
		return err
	}
	facts, err := r.facts(ctx, sum, v)
	if err != nil {
		return err
	}
	for _, part := range []struct {
		where string
		text  *string
	}{{"cause", &w.Cause}, {"fix", &w.Fix}} {
		kept, gone := proposal.Filter(part.where, *part.text, facts)
		*part.text, in.Dropped = kept, append(in.Dropped, gone...)
	}
	_, gone := proposal.Filter("title", title, facts)
	in.NoTitle = len(gone) > 0
	var record []event.Payload
	for _, c := range slices.Concat(in.Dropped, gone) {
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

// Sizes of what the agent's words are looked up in; the difference counts in any case.
const (
	maxLookedUp    = 1 << 20 // bytes of a file
	maxLookedUpAll = 16 << 20
)

// facts are the change, the files that it touches on both sides, how the tests failed, and the issue.
func (r *run) facts(ctx context.Context, sum event.Summary, v task.Verdict) (*proposal.Facts, error) {
	diff, err := r.j.Load(ctx, sum.Exported.Diff)
	if err != nil {
		return nil, err
	}
	issue, err := r.j.Load(ctx, sum.Created.Issue)
	if err != nil {
		return nil, err
	}
	base, err := r.baseNames(ctx)
	if err != nil {
		return nil, err
	}
	after, err := r.cfg.Git.ListTree(ctx, r.snap.GitDir, sum.Exported.Tree)
	if err != nil {
		return nil, err
	}
	changed := setOf(sum.Exported.Paths)
	var touched []git.Entry
	left := int64(maxLookedUpAll)
	add := func(e git.Entry) {
		if changed[e.Path] && e.Size <= maxLookedUp && e.Size <= left {
			touched, left = append(touched, e), left-e.Size
		}
	}
	for _, e := range after {
		add(e)
	}
	for _, p := range sum.Exported.Paths {
		if e, ok := r.base[p]; ok {
			add(e)
		}
	}
	files, err := r.cfg.Git.Blobs(ctx, r.snap.GitDir, touched, maxLookedUp)
	if err != nil {
		return nil, err
	}
	texts := []string{diff}
	for _, b := range files {
		texts = append(texts, string(b))
	}
	for _, t := range v.Reproduction {
		texts = append(texts, t.Test, t.BaseSignature, t.BaseOutput)
	}
	return proposal.NewFacts(sum.Exported.Paths, base, texts, sum.Created.IssueTitle+"\n"+issue), nil
}
