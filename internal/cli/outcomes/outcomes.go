// Package outcomes owns `daybreak outcomes`: what became of the tasks, and what it cost.
//
// Invariants: it changes nothing; every rate is printed with its denominator; the cost of what
// was merged includes that of every other task.
package outcomes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/outcome"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// maxTasks is how many tasks are looked at, newest first.
const maxTasks = 100_000

// NewCmd makes the command.
func NewCmd(env *kit.Env) *cobra.Command {
	var since, by, repo string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "outcomes", Args: cobra.NoArgs,
		Short: "What became of the tasks: merge rates, reverts, rework, declines, times, cache hits and the cost of what was merged",
		Long: "Adds up the recorded tasks. A merge rate is over all tasks (those under way as well) and over the ones that a person\n" +
			"decided by merging or closing. The cost of a merged pull request is that of all tasks, failed, declined and stopped ones\n" +
			"too, over the merged ones. A revert counts when it came within 30 days of the merge.",
		Example: "  daybreak outcomes --since 90d --by month\n  daybreak outcomes --json | jq .total.usd_per_merged",
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := outcome.Grouping(by)
			if err != nil {
				return err
			}
			from, err := outcome.ParseSince(since, env.Now())
			if err != nil {
				return err
			}
			if c, err := env.Server(); err != nil {
				return err
			} else if c != nil {
				r, err := c.Outcomes(cmd.Context(), since, by, repo)
				if err != nil {
					return err
				}
				return show(env.Out, r, asJSON)
			}
			a, err := env.Open(cmd.Context(), nil)
			if err != nil {
				return err
			}
			if err := a.Settle(cmd.Context()); err != nil { // what is known is shown all the same
				env.Print(err)
			}
			os, err := collect(cmd.Context(), a.Store, from, repo)
			if err = errors.Join(err, a.Close()); err != nil {
				return err
			}
			return show(env.Out, outcome.NewReport(from, by, key, env.Now(), os), asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&since, "since", "", "only tasks made since then: a time back such as 30d or 12h, or a day such as 2026-01-31")
	f.StringVar(&by, "by", "repository", "also by: repository, week or month")
	f.StringVar(&repo, "repo", "", "only this repository")
	f.BoolVar(&asJSON, "json", false, "print one JSON object, with every task")
	return cmd
}

// collect folds every task that was made since then, one log at a time.
func collect(ctx context.Context, st store.Store, since time.Time, repo string) ([]outcome.Outcome, error) {
	ts, err := st.Tasks(ctx, store.Filter{Repo: repo, Limit: maxTasks})
	if err != nil {
		return nil, err
	}
	out := []outcome.Outcome{}
	for _, t := range ts {
		if t.Created.Before(since) {
			continue
		}
		events, err := st.Events(ctx, t.ID, 0, 0)
		if err != nil {
			return nil, err
		}
		o, err := outcome.Of(events)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func show(w io.Writer, r outcome.Report, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	return Print(w, r)
}

// Print writes a report for people.
func Print(w io.Writer, r outcome.Report) error {
	t := r.Total
	if t.Tasks == 0 {
		_, err := fmt.Fprintln(w, "no tasks in that time")
		return err
	}
	ended := []string{}
	for _, s := range slices.Sorted(maps.Keys(t.States)) {
		ended = append(ended, fmt.Sprintf("%d %s", t.States[s], strings.ReplaceAll(string(s), "_", " ")))
	}
	lines := []string{
		fmt.Sprintf("tasks               %d: %s", t.Tasks, strings.Join(ended, ", ")),
		fmt.Sprintf("merged of all       %s", rate(t.Merged, t.Tasks)),
		fmt.Sprintf("merged of decided   %s", rate(t.Merged, t.Decided)),
		fmt.Sprintf("reverted in 30 days %s; of the merged, %d are older than that", rate(t.Reverted, t.Merged), t.Settled),
		fmt.Sprintf("reworked            %s pull requests; %d follow-ups, %d pushes by people", rate(t.Reworked, t.PullRequests), t.FollowUps, t.Pushes),
		fmt.Sprintf("declined            %s", rate(t.States[task.Declined], t.Tasks)+reasons(t.Declines)),
		fmt.Sprintf("to a pull request   %s in the middle, %s for nine of ten; to merge %s in the middle", took(t.MedianPR, t.PullRequests), took(t.P90PR, t.PullRequests), took(t.MedianMerge, t.Merged)),
		fmt.Sprintf("cache hits          %s", share(t.CacheHits)+" of the tokens that models were sent"),
		fmt.Sprintf("cost                %s for all tasks, %s for each merged pull request", t.Cost, perMerged(t)),
	}
	if t.Unpriced > 0 {
		lines = append(lines, fmt.Sprintf("                    %d of the tasks used a model without a known price, so that is the least it cost", t.Unpriced))
	}
	for _, l := range lines {
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	fmt.Fprintln(w)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(tw, "%s\tTASKS\tOF ALL\tOF DECIDED\tREVERTED\tREWORKED\tCOST\tPER MERGED\n", strings.ToUpper(r.By))
	for _, g := range r.Groups {
		fmt.Fprintf(tw, "%s\t%d\t%s\t%s\t%d\t%d\t%s\t%s\n", taskview.Escape(g.Name), g.Tasks,
			rate(g.Merged, g.Tasks), rate(g.Merged, g.Decided), g.Reverted, g.Reworked, g.Cost, perMerged(g))
	}
	return tw.Flush()
}

// rate is a share with its denominator.
func rate(part, whole int) string {
	if whole == 0 {
		return "0 of 0"
	}
	return fmt.Sprintf("%d of %d (%.0f%%)", part, whole, 100*float64(part)/float64(whole))
}

// reasons lists why tasks were declined.
func reasons(n map[string]int) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(n)) {
		out = append(out, fmt.Sprintf("%d %s", n[k], taskview.Escape(strings.ReplaceAll(k, "_", " "))))
	}
	if len(out) == 0 {
		return ""
	}
	return ": " + strings.Join(out, ", ")
}

func share(f *float64) string {
	if f == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100**f)
}

func perMerged(t outcome.Totals) string {
	if t.PerMerged == nil {
		return "-"
	}
	return fmt.Sprintf("$%.4f", *t.PerMerged)
}

func took(ms int64, of int) string {
	if of == 0 {
		return "-"
	}
	return (time.Duration(ms) * time.Millisecond).Round(time.Second).String()
}
