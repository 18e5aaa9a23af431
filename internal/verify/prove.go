package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/tamper"
)

// Verify runs the protocol on a change: split, red, green, regression, tamper, verdict. The
// verdict says what was concluded; the error is the harness's own trouble, and the verdict then
// is [task.VerificationFail] with what was recorded until then. Later phases are left out as
// soon as a row of the table applies.
func (v *Verifier) Verify(ctx context.Context, job Job) (task.Verdict, error) {
	p, err := v.newProof(job)
	if err != nil {
		return failed(task.Verdict{Base: job.Snapshot.Base, HeadTree: job.HeadTree, Verifier: Version}, err)
	}
	verdict, err := p.prove(ctx)
	if derr := p.dropBuilds(); derr != nil { // what stays is swept away later
		v.logger().WarnContext(ctx, "what was built for a verification is not removed", "error", derr)
	}
	return verdict, err
}

func (p *proof) prove(ctx context.Context) (task.Verdict, error) {
	job := p.job
	if k, reason := decideRed(Facts{NoChange: p.facts.NoChange, Blocked: p.facts.Blocked, Tests: []TestFacts{{}}}); k != "" {
		return p.conclude(k, reason, job.Baseline.Detail), nil
	}
	job.progress("P3", "the tests on the base, which they must fail")
	rec, err := p.red(ctx, redRuns)
	p.phase(rec)
	if err != nil {
		return failed(p.verdict, err)
	}
	if k, reason := decideRed(p.facts); k != "" {
		return p.conclude(k, reason, p.redOutput()), nil
	}
	if err := p.green(ctx); err != nil {
		return failed(p.verdict, err)
	}
	if err := p.guard(ctx); err != nil {
		return failed(p.verdict, err)
	}
	if k, _ := Decide(p.facts); k == task.Verified || k == task.NeedsHuman {
		if err := p.probe(ctx); err != nil {
			return failed(p.verdict, err)
		}
	}
	k, reason := Decide(p.facts)
	detail := ""
	if !k.Accepted() {
		detail = p.headOutput()
	}
	return p.conclude(k, reason, detail), nil
}

func failed(v task.Verdict, err error) (task.Verdict, error) {
	v.Kind, v.Reason = task.VerificationFail, "the verifier itself failed: "+oneLine(err.Error(), 300)
	return v, err
}

// guard is P7: what the change does to the tests themselves.
func (p *proof) guard(ctx context.Context) error {
	start := p.v.Now()
	rec := task.PhaseRecord{Phase: "P7", Name: "tamper", Complete: true}
	p.facts.found(p.parts.tamper.Where(func(tamper.SubKind) bool { return true }))
	p.verdict.Suite.Lost = p.facts.Lost
	rec.Note = plural(len(p.parts.tamper.Findings), "finding")
	var err error
	if k, _ := Decide(p.facts); k.Accepted() {
		note := rec.Note
		err = p.copies(ctx, &rec)
		if rec.Note != note {
			rec.Note = note + "; " + rec.Note
		}
	}
	rec.Millis = p.v.Now().Sub(start).Milliseconds()
	p.phase(rec)
	return err
}

// found takes up what the tamper report found. What blocks ends in no accepted verdict; of what
// warns, all but what runs settle waits for a person.
func (f *Facts) found(findings []tamper.Finding) {
	for _, x := range findings {
		line := fmt.Sprintf("%s:%d %s", x.Path, x.Line, strings.TrimPrefix(x.Detail, "needs a person: ")) // the row says it
		block := x.Severity == "block"
		switch {
		case x.SubKind == tamper.TestRenamed && !block:
			// Its body is as it was: the results say whether it still runs.
		case x.SubKind.Lost() && block && slices.ContainsFunc(f.Lost, func(id string) bool { return strings.Contains(x.Detail, lastWord(id)) }):
			// The results said it already.
		case x.SubKind.Lost() && (block || x.SubKind != tamper.TestSkipped):
			f.Lost = append(f.Lost, line)
		case x.SubKind.Reconfigured() && !block:
			// Row 15 runs it.
		case block && !x.SubKind.Weakened():
			f.Tampering = append(f.Tampering, line)
		case block:
			f.Lost = append(f.Lost, line)
		default:
			f.Weakened = append(f.Weakened, line)
		}
	}
}

// conclude is P8.
func (p *proof) conclude(k task.VerdictKind, reason, detail string) task.Verdict {
	p.verdict.Kind, p.verdict.Reason, p.verdict.Detail = k, oneLine(reason, 1500), detail
	p.verdict.Reproduction, p.verdict.Table = p.reproductions(), p.table()
	p.phase(task.PhaseRecord{Phase: "P8", Name: "verdict", Note: string(k), Complete: true})
	return p.verdict
}

func (p *proof) reproductions() []task.Reproduction {
	out := []task.Reproduction{}
	for _, t := range p.facts.Tests {
		r := task.Reproduction{Test: t.Test, Base: summary(t.Red), Head: summary(t.Green), BaseRuns: len(t.Red), HeadRuns: len(t.Green)}
		if r.Base == task.Flaky {
			r.BaseFailed = howMany(t.Red, Seen.failed)
		}
		if r.Head == task.Flaky {
			r.HeadFailed = howMany(t.Green, Seen.failed)
		}
		if pl, ok := p.places[t.Test]; ok {
			plan := p.plan
			if p.racing {
				plan, _ = plan.racing()
			}
			r.Rerun = plan.rerun(pl)
		}
		for _, s := range t.Red {
			if s.failed() {
				r.BaseSignature = oneLine(s.Signature, 600)
				break
			}
		}
		if c, ok := p.redSaw[t.Test]; ok {
			r.BaseOutput = said(c)
		}
		if c, ok := p.headSaw[t.Test]; ok && c.Failed() {
			r.HeadOutput = said(c)
		}
		out = append(out, r)
	}
	return out
}

// said is a test's message and what it printed.
func said(c Case) string {
	if c.Message == "" || strings.Contains(c.Output, c.Message) {
		return tail(c.Output, maxCaseOutput)
	}
	return tail(c.Message+"\n"+c.Output, maxCaseOutput)
}

// summary is the status of several runs; "" for none.
func summary(runs []Seen) task.TestStatus {
	if len(runs) == 0 {
		return ""
	}
	for _, s := range runs[1:] {
		if s.Status != runs[0].Status {
			return task.Flaky
		}
	}
	return runs[0].Status
}

func (p *proof) redOutput() string {
	var b strings.Builder
	for _, t := range p.facts.Tests {
		if c, ok := p.redSaw[t.Test]; ok && b.Len() < 2*maxCaseOutput {
			fmt.Fprintf(&b, "%s on base + tests: %s\n%s\n", t.Test, c.Status, said(c))
		}
	}
	if b.Len() == 0 && p.facts.Undeclared && len(p.reds) > 0 {
		b.WriteString(p.reds[len(p.reds)-1].output)
	}
	return strings.TrimSpace(b.String())
}

func (p *proof) headOutput() string {
	var b strings.Builder
	for _, id := range append(testIDs(p.facts.Tests), p.facts.Regressions...) {
		id = cmp.Or(p.known(id), id)
		c, ok := p.headSaw[id]
		if !ok {
			c, ok = p.suiteSaw[id]
		}
		if ok && c.Failed() && b.Len() < 2*maxCaseOutput {
			fmt.Fprintf(&b, "%s with the change: %s\n%s\n", id, c.Status, said(c))
		}
	}
	return strings.TrimSpace(b.String())
}

func testIDs(tests []TestFacts) []string {
	out := make([]string, len(tests))
	for i, t := range tests {
		out[i] = t.Test
	}
	return out
}

// Reproduce runs the declared tests once on base + tests and says whether they fail for the
// right reason. It changes nothing: [Verifier.Verify] runs them again.
func (v *Verifier) Reproduce(ctx context.Context, job Job) (Reproduced, error) {
	p, err := v.newProof(job)
	if err != nil {
		return Reproduced{Kind: task.VerificationFail}, err
	}
	if p.facts.NoChange && len(job.Declared) > 0 {
		// A test that is in the base already needs no change to fail.
		p, err = v.newProofOnBase(job)
		if err != nil {
			return Reproduced{Kind: task.VerificationFail}, err
		}
	}
	out := Reproduced{Tests: []task.Reproduction{}}
	if k, reason := decideRed(Facts{NoChange: p.facts.NoChange, Blocked: p.facts.Blocked, Tests: []TestFacts{{}}}); k != "" {
		out.Kind, out.Text = k, reason
		if job.Baseline.Detail != "" {
			out.Text += "\n\n" + job.Baseline.Detail
		}
		return out, nil
	}
	job.progress("P3", "the tests on the base, which they must fail")
	p.once = true
	out.Phase, err = p.red(ctx, 1)
	if err != nil {
		out.Kind = task.VerificationFail
		return out, err
	}
	kind, reason := decideRed(p.facts)
	if kind == "" {
		kind = task.Verified
	}
	out.Kind, out.Tests = kind, p.reproductions()
	for _, r := range out.Phase.Runs {
		out.Command = r.Command
	}
	out.Text = p.tell(kind, reason, out)
	return out, nil
}

// tell writes the answer for the model.
func (p *proof) tell(kind task.VerdictKind, reason string, r Reproduced) string {
	var b strings.Builder
	if kind == task.Verified {
		b.WriteString("fails for the right reason on the base")
	} else {
		fmt.Fprintf(&b, "refused (%s): %s", kind, reason)
	}
	fmt.Fprintf(&b, "\nran on base + %s", plural(len(p.placed), "placed file"))
	if len(p.placed) > 0 {
		fmt.Fprintf(&b, " (%s)", some(paths(p.placed)))
	}
	b.WriteString(":")
	for _, run := range r.Phase.Runs {
		fmt.Fprintf(&b, "\n  $ %s → exit %d, %d passed, %d failed, %d skipped, %d not run, %s, %d ms", run.Command, run.ExitCode,
			run.Passed, run.Failed, run.Skipped, run.NotRun, run.Outcome, run.Millis)
	}
	for _, t := range r.Tests {
		fmt.Fprintf(&b, "\n\n%s: %s", t.Test, t.Base)
		if was, ok := p.job.Baseline.Tests[t.Test]; ok {
			fmt.Fprintf(&b, " (on the untouched base: %s)", was)
			if was == task.Fail && oneLine(p.job.Baseline.Signatures[t.Test], 600) == t.BaseSignature && len(p.parts.tests) > 0 {
				b.WriteString("; it failed in the same way before your test change, so the new part shows nothing yet")
			}
		}
		if t.BaseOutput != "" {
			fmt.Fprintf(&b, "\n%s", strings.TrimSpace(tail(t.BaseOutput, 3<<10)))
		}
		if t.Rerun != "" {
			fmt.Fprintf(&b, "\nrerun: %s", t.Rerun)
		}
	}
	return b.String()
}

// newProofOnBase is a proof about tests that the base has already.
func (v *Verifier) newProofOnBase(job Job) (*proof, error) {
	p, err := v.newProof(job)
	if err != nil || p.facts.Blocked != "" {
		return p, err
	}
	p.facts.NoChange = false
	if p.parts, err = v.split(job); err != nil {
		return nil, err
	}
	if p.plan, err = v.planFor(job, p.parts); err != nil {
		return nil, err
	}
	if len(p.plan.Suites) == 0 {
		p.scripts()
	}
	return p, nil
}
