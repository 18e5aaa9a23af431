package intake

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Landed is a commit on a target branch.
type Landed struct {
	ID      string
	By      string
	At      time.Time
	Message string
}

// RevertWindow is how long after a merge a revert counts against it.
const RevertWindow = 30 * 24 * time.Hour

// revertsEvery is how often a repository's target branches are looked at.
const revertsEvery = time.Hour

// pollReverts looks for commits that take back what was merged, on the branches it was merged
// into.
func (in *Intake) pollReverts(ctx context.Context, p place) error {
	now := in.cfg.Now().UTC()
	if in.cfg.Landed == nil {
		return nil
	}
	due := false
	key := "reverts/" + p.Forge + "/" + p.ID
	if err := in.cfg.Store.Update(ctx, key, func(old []byte) ([]byte, error) {
		var last time.Time
		if len(old) > 0 {
			if err := last.UnmarshalText(old); err != nil {
				return nil, err
			}
		}
		if due = now.Sub(last) >= revertsEvery; !due {
			return old, nil
		}
		return now.MarshalText()
	}); err != nil || !due {
		return err
	}
	ts, err := in.cfg.Store.Tasks(ctx, store.Filter{Repo: p.URL, States: []task.State{task.Merged, task.Stopped}, Limit: 10_000})
	if err != nil {
		return err
	}
	merged := map[string][]event.Summary{} // by target
	oldest := map[string]time.Time{}
	for _, t := range ts {
		if now.Sub(t.Updated) > RevertWindow+24*time.Hour {
			continue
		}
		sum, err := in.summary(ctx, t.ID)
		if err != nil {
			return err
		}
		to := sum.Created.Target
		if sum.Ended == nil || !sum.Ended.Merged || sum.Reverted != nil || to == "" || sum.PullRequest == nil || sum.Created.Origin == nil || sum.Created.Origin.Repository != p.ID {
			continue
		}
		merged[to] = append(merged[to], sum)
		if at := sum.Ended.At; oldest[to].IsZero() || at.Before(oldest[to]) {
			oldest[to] = at
		}
	}
	var errs []error
	for to, sums := range merged {
		landed, err := in.cfg.Landed(ctx, p.URL, to, oldest[to])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, sum := range sums {
			errs = append(errs, in.markReverted(ctx, p, sum, landed))
		}
	}
	return errors.Join(errs...)
}

// markReverted records the oldest commit that says it takes the task's change back.
func (in *Intake) markReverted(ctx context.Context, p place, sum event.Summary, landed []Landed) error {
	end := sum.Ended.At.Add(RevertWindow)
	for i := len(landed) - 1; i >= 0; i-- {
		c := landed[i]
		if c.At.After(end) || c.ID == sum.Ended.Commit || !reverts(c.Message, p.Path, sum.Ended.Number, sum.Ended.Commit, sum.PullRequest.Head) {
			continue
		}
		err := in.move(ctx, sum.Task, event.PullRequestReverted{Commit: c.ID, By: clean(c.By), At: c.At})
		if err == nil {
			in.cfg.Logger.InfoContext(ctx, "what was merged was taken back", "task", sum.Task, "commit", c.ID)
		}
		return err
	}
	return nil
}

// reverts reports whether a commit's message says that it takes back one of the commits, or the
// pull request by its number, in the words that git and the forges write.
func reverts(message, path string, number int, commits ...string) bool {
	byCommit := regexp.MustCompile(`(?i)\breverts?\s+commits?\s+([0-9a-f]{7,40})\b`)
	for _, m := range byCommit.FindAllStringSubmatch(message, -1) {
		for _, c := range commits {
			if c != "" && strings.HasPrefix(c, strings.ToLower(m[1])) {
				return true
			}
		}
	}
	byNumber := regexp.MustCompile(`(?i)\breverts?\s+(?:(?:merge|pull) request\s+)?([\w./-]*)[#!](\d{1,9})\b`)
	for _, m := range byNumber.FindAllStringSubmatch(message, -1) {
		if (m[1] == "" || strings.EqualFold(m[1], path)) && number > 0 && m[2] == strconv.Itoa(number) {
			return true
		}
	}
	return false
}
