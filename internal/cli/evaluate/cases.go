package evaluate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/eval"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// CaseOptions are the flags of `eval cases`.
type CaseOptions struct {
	Instances, Repos string // cases made from these, in place of the generated modules
	Sample           int
	Seed             uint64
	Only             []string
	Limit            time.Duration
	Jobs             int
	JSON, Keep       bool
}

// CaseOutcome is what came of one generated case.
type CaseOutcome struct {
	Type      string             `json:"type"` // "case"
	Case      string             `json:"case"`
	Fault     eval.Fault         `json:"fault"`
	Language  string             `json:"language,omitempty"` // of an instance
	How       string             `json:"how,omitempty"`
	Verdict   task.VerdictKind   `json:"verdict"`
	Wanted    []task.VerdictKind `json:"wanted"`
	Judgement Judgement          `json:"judgement"`
	Reason    string             `json:"reason"`
	Findings  []string           `json:"findings,omitempty"`
	Seconds   float64            `json:"seconds"`
}

// FaultSums are the counts of the cases of one fault or language.
type FaultSums struct {
	Type     string     `json:"type"` // "fault", "language", and "sums" for all together
	Fault    eval.Fault `json:"fault,omitempty"`
	Language string     `json:"language,omitempty"`
	Counts
}

// NewCasesCmd makes the command "cases", to be added below "eval".
func NewCasesCmd(env *kit.Env) *cobra.Command {
	var o CaseOptions
	cmd := &cobra.Command{
		Use:   "cases",
		Short: "Measure the verifier on generated changes: true fixes, and nineteen ways not to be one",
		Long: "Generates small repositories in several languages, and for each a true fix and a change with each known fault,\n" +
			"and verifies all of them as `daybreak verify` does. With --instances the cases are made from historical fixes,\n" +
			"each labelled by running its tests. Prints false accepts and false rejects by fault. The exit code is 0 when\n" +
			"every verdict is as it should be, 6 when one is not, 1 when a case could not be played.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cases(cmd.Context(), env, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Instances, "instances", "", "make the cases from the historical fixes in this file, one instance a line")
	f.StringVar(&o.Repos, "repos", "", "folder with the instances' repositories: owner+name, owner/name or name")
	f.IntVar(&o.Sample, "sample", 0, "make at most so many faulty changes of each instance (0: all)")
	f.Uint64Var(&o.Seed, "seed", 1, "of what is chosen from an instance")
	cmd.MarkFlagsRequiredTogether("instances", "repos")
	f.StringSliceVar(&o.Only, "only", nil, "play only cases whose name has one of these parts, such as price-go, or hang")
	f.DurationVar(&o.Limit, "timeout", 2*time.Minute, "of one run of a suite; a case that hangs takes it whole, several times")
	f.IntVar(&o.Jobs, "jobs", 1, "how many cases run at once")
	f.BoolVar(&o.JSON, "json", false, "print one JSON object a line: each case, then the sums")
	f.BoolVar(&o.Keep, "keep", false, "without --dir: keep the temporary data and say where it is")
	return cmd
}

func cases(ctx context.Context, env *kit.Env, o CaseOptions) error {
	all := eval.Select(eval.Cases(), o.Only)
	if o.Instances == "" && len(all) == 0 {
		return &kit.ExitError{Code: kit.Usage, Err: fmt.Errorf("--only: no case has %s in its name", strings.Join(o.Only, " or "))}
	}
	dir, remove, err := directory(env, o.Keep)
	if err != nil {
		return err
	}
	defer remove()
	here := *env
	here.Dir = dir
	a, err := here.Open(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	p, err := a.Prover()
	if err != nil {
		return err
	}
	if o.Instances != "" {
		d := derivation{env: env, a: a, p: p, dir: dir, o: o, tally: newTally()}
		return d.fromInstances(ctx)
	}
	return generated(ctx, env, a, p, dir, o, all)
}

// generated plays the cases of the small modules.
func generated(ctx context.Context, env *kit.Env, a *app.App, p *prover.Prover, dir string, o CaseOptions, all []eval.Case) error {
	if !o.JSON {
		fmt.Fprintf(env.Out, "%d cases; data below %s\n\n", len(all), dir)
	}
	var mu sync.Mutex
	sums := newTally()
	each(ctx, max(o.Jobs, 1), all, func(c eval.Case) {
		out := playCase(ctx, a, p, dir, c, o.Limit)
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return
		}
		sums.add(c.Fault, "", out.Judgement)
		if o.JSON {
			printJSON(env.Out, out)
		} else {
			fmt.Fprintf(env.Out, "%-38s %-18s %-13s %6.1f s  %s\n", out.Case, out.Verdict, out.Judgement, out.Seconds, brief(out))
		}
	})
	if ctx.Err() != nil {
		return &kit.ExitError{Code: kit.Stopped, Err: errors.New("interrupted; cases that had not ended are missing")}
	}
	sums.show(env, o.JSON)
	return sums.total.exit()
}

// brief says more only of what was not right.
func brief(o CaseOutcome) string {
	if o.Judgement == Right {
		return ""
	}
	return taskview.Escape(o.Reason)
}

// show prints the sums by fault, by language where cases have one, and of what was not made.
func (t *tally) show(env *kit.Env, asJSON bool) {
	head := func(what string) {
		if !asJSON {
			fmt.Fprintf(env.Out, "\n%-22s %6s %6s %13s %13s %12s %13s %16s %10s\n", what, "cases", "right", "false accept", "false reject", "wrong reason", ForPerson, OtherTest, "not played")
		}
	}
	row := func(name string, s FaultSums) {
		if asJSON {
			printJSON(env.Out, s)
			return
		}
		fmt.Fprintf(env.Out, "%-22s %6d %6d %13d %13d %12d %13d %16d %10d\n", name, s.Cases, s.Right, s.FalseAccepts, s.FalseRejects, s.WrongReasons, s.ForPersons, s.OtherTests, s.NotPlayed)
	}
	head("fault")
	for _, f := range eval.Faults() {
		if s := t.faults[f]; s != nil {
			row(string(f), *s)
		}
	}
	row("all", t.total)
	if len(t.languages) > 0 {
		head("language")
	}
	for _, l := range slices.Sorted(maps.Keys(t.languages)) {
		row(l, *t.languages[l])
	}
	if len(t.left) > 0 && !asJSON {
		fmt.Fprintf(env.Out, "\nnot made\n")
		for _, why := range slices.Sorted(maps.Keys(t.left)) {
			fmt.Fprintf(env.Out, "%6d  %s\n", t.left[why], taskview.Escape(why))
		}
	}
}

func playCase(ctx context.Context, a *app.App, p *prover.Prover, dir string, c eval.Case, limit time.Duration) CaseOutcome {
	begin := a.Now()
	o := CaseOutcome{Type: "case", Case: c.ID, Fault: c.Fault, Wanted: c.Fault.Wanted()}
	repo := filepath.Join(dir, "eval", "cases", c.ID)
	base, head, err := eval.WriteCase(ctx, repo, c, limit)
	var out prover.Outcome
	if err == nil {
		out, err = p.Change(ctx, prover.Request{Repo: repo, Base: base, Head: head, Tests: c.Tests, Environment: a.Environment()})
	}
	o.Verdict, o.Reason, o.Seconds = out.Verdict.Kind, out.Verdict.Reason, a.Now().Sub(begin).Seconds()
	if err != nil {
		o.Reason = strings.Join(strings.Fields(err.Error()), " ")
	}
	o.Judgement = judgeCase(c.Fault, o.Verdict)
	return o
}

// judgeCase compares a verdict with those that are right. A change that waits for a person's word
// is not accepted.
func judgeCase(f eval.Fault, v task.VerdictKind) Judgement {
	switch {
	case v == "" || v == task.EnvBlocked || v == task.VerificationFail:
		return NotPlayed
	case slices.Contains(f.Wanted(), v):
		return Right
	case f == eval.TrueFix:
		return FalseReject
	case v.Accepted() && v != task.NeedsHuman:
		return FalseAccept
	}
	return WrongReason
}
