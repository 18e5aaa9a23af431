package evaluate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/eval"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// The judgements that only a true fix of a history can get.
const (
	ForPerson Judgement = "for a person"    // it really changes or loses an old test, or the like
	OtherTest Judgement = "test to rewrite" // its test does not build on the base
)

// derivation is everything that `eval cases` makes of instances.
type derivation struct {
	env   *kit.Env
	a     *app.App
	p     *prover.Prover
	dir   string
	o     CaseOptions
	mu    sync.Mutex
	tally tally
}

// tally is the sums so far.
type tally struct {
	faults    map[eval.Fault]*FaultSums
	languages map[string]*FaultSums
	total     FaultSums
	left      map[string]int // of cases not made, by fault and reason
}

func newTally() tally {
	return tally{map[eval.Fault]*FaultSums{}, map[string]*FaultSums{}, FaultSums{Type: "sums"}, map[string]int{}}
}

func (t *tally) add(f eval.Fault, language string, j Judgement) {
	if t.faults[f] == nil {
		t.faults[f] = &FaultSums{Type: "fault", Fault: f}
	}
	t.faults[f].add(j)
	t.total.add(j)
	if language == "" {
		return
	}
	if t.languages[language] == nil {
		t.languages[language] = &FaultSums{Type: "language", Language: language}
	}
	t.languages[language].add(j)
}

// fromInstances makes the cases of every instance and plays them.
func (d *derivation) fromInstances(ctx context.Context) error {
	instances, err := load(d.o.Instances, nil)
	if err != nil {
		return err
	}
	repos, err := filepath.Abs(d.o.Repos)
	if err != nil {
		return err
	}
	wanted := func(i eval.Instance, f eval.Fault) bool {
		return len(d.o.Only) == 0 || slices.ContainsFunc(d.o.Only, func(part string) bool { return strings.Contains(i.ID+"."+string(f), part) })
	}
	instances = slices.DeleteFunc(instances, func(i eval.Instance) bool {
		return !slices.ContainsFunc(i.Sample(d.o.Seed, d.o.Sample), func(f eval.Fault) bool { return wanted(i, f) })
	})
	if len(instances) == 0 {
		return &kit.ExitError{Code: kit.Usage, Err: fmt.Errorf("--only: no case of the instances has %s in its name", strings.Join(d.o.Only, " or "))}
	}
	if !d.o.JSON {
		fmt.Fprintf(d.env.Out, "%d instances; data below %s\n\n", len(instances), d.dir)
	}
	each(ctx, max(d.o.Jobs, 1), instances, func(i eval.Instance) {
		faults := slices.DeleteFunc(i.Sample(d.o.Seed, d.o.Sample), func(f eval.Fault) bool { return !wanted(i, f) })
		d.instance(ctx, repos, i, faults)
	})
	if ctx.Err() != nil {
		return &kit.ExitError{Code: kit.Stopped, Err: errors.New("interrupted; cases that had not ended are missing")}
	}
	d.tally.show(d.env, d.o.JSON)
	return d.tally.total.exit()
}

// instance makes and plays the cases of one instance.
func (d *derivation) instance(ctx context.Context, repos string, i eval.Instance, faults []eval.Fault) {
	g, err := open(ctx, d.a, d.p, d.dir, repos, i)
	var cases []eval.Derived
	var left []eval.Omitted
	if err == nil {
		cases, left, err = d.made(ctx, g, faults)
	}
	if ctx.Err() != nil {
		return
	}
	if err != nil { // nothing of it can be played
		for _, f := range faults {
			d.report(CaseOutcome{Type: "case", Case: i.ID + "." + string(f), Fault: f, Language: i.Language, Wanted: f.Wanted(), Judgement: NotPlayed, Reason: oneLine(err)})
		}
		return
	}
	d.mu.Lock()
	for _, l := range left {
		d.tally.left[string(l.Fault)+": "+l.Why]++
		if d.o.JSON {
			printJSON(d.env.Out, struct {
				Type string `json:"type"` // "omitted"
				eval.Omitted
			}{"omitted", l})
		}
	}
	d.mu.Unlock()
	for _, c := range cases {
		begin := d.a.Now()
		res, err := g.verify(ctx, c, d.o.Limit)
		o := CaseOutcome{
			Type: "case", Case: c.ID, Fault: c.Fault, Language: c.Language, How: c.How, Verdict: res.Verdict.Kind, Wanted: c.Wanted,
			Reason: res.Verdict.Reason, Seconds: d.a.Now().Sub(begin).Seconds(),
		}
		if err != nil {
			o.Reason = oneLine(err)
		}
		for _, f := range res.Verdict.Findings {
			o.Findings = append(o.Findings, string(f.Kind)+" "+f.Path+": "+f.Detail)
		}
		o.Judgement = judgeDerived(i, c, o.Verdict)
		if ctx.Err() != nil {
			return
		}
		d.report(o)
	}
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func (d *derivation) report(o CaseOutcome) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tally.add(o.Fault, o.Language, o.Judgement)
	if d.o.JSON {
		printJSON(d.env.Out, o)
		return
	}
	fmt.Fprintf(d.env.Out, "%-58s %-18s %-15s %6.1f s  %s\n", o.Case, o.Verdict, o.Judgement, o.Seconds, brief(o))
}

// judgeDerived compares a verdict with those that are right for the case.
func judgeDerived(i eval.Instance, c eval.Derived, v task.VerdictKind) Judgement {
	switch {
	case v == "" || v == task.EnvBlocked || v == task.VerificationFail:
		return NotPlayed
	case c.Fault == eval.TrueFix && v == task.NeedsHuman:
		return ForPerson
	case c.Fault == eval.TrueFix && v == task.WeakRed && (i.FailureKind == "compile" || i.FailureKind == "collect"):
		return OtherTest
	case slices.Contains(c.Wanted, v):
		return Right
	case c.Fault == eval.TrueFix:
		return FalseReject
	case v.Accepted() && v != task.NeedsHuman:
		return FalseAccept
	}
	return WrongReason
}

// kept is what has been made of an instance with one seed: labels cost many runs.
type kept struct {
	Cases []eval.Derived `json:"cases"`
	Left  []eval.Omitted `json:"left"`
}

// made makes what of the faults an earlier run with the same data and seed did not.
func (d *derivation) made(ctx context.Context, g ground, faults []eval.Fault) ([]eval.Derived, []eval.Omitted, error) {
	name := filepath.Join(d.dir, "eval", "derived", fmt.Sprintf("%s-%d.json", g.i.ID, d.o.Seed))
	var k kept
	if doc, err := os.ReadFile(name); err == nil && json.Unmarshal(doc, &k) != nil {
		k = kept{}
	}
	missing := slices.DeleteFunc(slices.Clone(faults), func(f eval.Fault) bool {
		return slices.ContainsFunc(k.Cases, func(c eval.Derived) bool { return c.Fault == f }) || slices.ContainsFunc(k.Left, func(l eval.Omitted) bool { return l.Fault == f })
	})
	if len(missing) > 0 {
		cases, left, err := g.derive(ctx, d.o.Limit, d.o.Seed, missing)
		if err != nil {
			return nil, nil, err
		}
		k.Cases, k.Left = append(k.Cases, cases...), append(k.Left, left...)
		doc, err := json.Marshal(k)
		if err == nil {
			err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, doc, 0o644))
		}
		if err != nil {
			return nil, nil, err
		}
	}
	of := func(f eval.Fault) bool { return !slices.Contains(faults, f) }
	cases := slices.DeleteFunc(slices.Clone(k.Cases), func(c eval.Derived) bool { return of(c.Fault) })
	order := eval.Faults()
	slices.SortStableFunc(cases, func(a, b eval.Derived) int {
		return cmp.Compare(slices.Index(order, a.Fault), slices.Index(order, b.Fault))
	})
	return cases, slices.DeleteFunc(slices.Clone(k.Left), func(l eval.Omitted) bool { return of(l.Fault) }), nil
}
