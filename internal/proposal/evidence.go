package proposal

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// EvidenceFile is the name of the signed bundle among the pull request's files.
const EvidenceFile = "evidence.json"

// Evidence names the signed bundle of the verification.
type Evidence struct {
	Digest string // "sha256:…" of the file
	Key    string // id of the key that signed it
}

// Comment is the verdict on a change that has no task, as Markdown for a comment in a forge.
// head names the change in the clone of whoever repeats the proof.
func Comment(v task.Verdict, head, sandbox string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "### Daybreak: %s\n\n%s\n\n", kindOf(v), text(v.Reason, 600))
	if len(v.Reproduction) > 0 {
		rerun := proofLine(v, head)
		if !v.Kind.Accepted() {
			rerun = ""
		}
		writeRuns(&b, v, rerun)
	} else if v.Kind == task.EnvBlocked {
		b.WriteString(unblock)
	} else if v.Suite.Command != "" && len(v.Phases) > 0 {
		writeSuite(&b, v.Suite)
	}
	if len(v.Findings) > 0 {
		b.WriteString("#### Please look at\n\n")
		listFindings(&b, slices.Clone(v.Findings))
	}
	if v.Detail != "" && !v.Kind.Accepted() {
		details(&b, "What was seen", fence("text", tail(visible(v.Detail), maxOutput)))
	}
	fmt.Fprintf(&b, "<sub>base %s, tree %s, %s, verifier %s</sub>\n", code(v.Base), code(v.HeadTree), text(cmp.Or(sandbox, "sandboxed"), 200), code(v.Verifier))
	return b.String()
}

// unblock is the way out where nothing could be run.
const unblock = "Nothing was run against the change, so nothing is said of it. Make the suite run on the base first: name how it is run (`build`, `test`) and how its " +
	"dependencies are installed (`setup`) in `.daybreak.yaml` there, or have the operator of this installation give its sandbox what is missing (`sandbox.mounts`, `sandbox.env`, `sandbox.setup`, `network`, or higher limits).\n\n"

// meaning says in words what an accepted verdict promises, and what it does not.
func meaning(v task.Verdict) string {
	switch v.Kind {
	case task.Verified:
		return "the test fails on the old code for the right reason, passes with the change, and the suite is no worse than before"
	case task.VerifiedWeak:
		return "the test fails before and passes after, but it does not guard the change well"
	case task.VerifiedScript:
		return "a script shows the difference; the repository has no test that guards it"
	case task.NeedsHuman:
		out := "it works, but " + cmp.Or(text(v.Reason, 600), "a person must judge what it does to tests") + "; **please decide whether that is right**"
		if len(v.Findings) > 0 {
			out += " (see the findings)"
		}
		return out
	}
	return "not verified"
}

func writeProof(b *strings.Builder, in Input, branch string) {
	v := in.Verdict
	fmt.Fprintf(b, "## Proof\n\n**%s**: %s.\n\n", kindOf(v), meaning(v))
	writeRuns(b, v, cmp.Or(in.Rerun, proofLine(v, branch)))
	if e := in.Evidence; e.Digest != "" {
		fmt.Fprintf(b, "Signed evidence: %s, %s, by key %s. It verifies offline in any clone that has this branch:\n\n", code(EvidenceFile), code(e.Digest), code(e.Key))
		b.WriteString(fence("sh", "daybreak verify-evidence "+EvidenceFile+" --key KEY --repo .") + "\n")
	}
}

// writeRuns shows what was seen of the reproduction and the suite, and how to see it again.
func writeRuns(b *strings.Builder, v task.Verdict, rerun string) {
	if len(v.Reproduction) == 0 {
		b.WriteString("No reproduction test was recorded.\n\n")
		writeSuite(b, v.Suite)
		return
	}
	b.WriteString("| reproduction test | old code + test | with the change |\n|---|---|---|\n")
	for i, r := range v.Reproduction {
		if i == maxRows {
			fmt.Fprintf(b, "| and %d more | | |\n", len(v.Reproduction)-i)
			break
		}
		base := status(r.Base, r.BaseFailed, r.BaseRuns)
		if r.BaseSignature != "" {
			base += ": " + cell(r.BaseSignature)
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", cell(r.Test), base, status(r.Head, r.HeadFailed, r.HeadRuns))
	}
	b.WriteString("\n")
	writeSuite(b, v.Suite)
	writeGuard(b, v.Guard)
	if rerun != "" {
		needs := ""
		if len(links(v)) > 0 {
			needs = " and its dependencies installed"
		}
		fmt.Fprintf(b, "Repeat the proof in one line, in a clone that has this branch%s (it must fail first, then pass):\n\n", needs)
		b.WriteString(fence("sh", rerun) + "\n")
	}
	for i, r := range v.Reproduction {
		if i == 3 {
			break
		}
		if r.BaseOutput != "" {
			details(b, "Output of "+line(r.Test, 100)+" on the old code", fence("text", tail(visible(r.BaseOutput), maxOutput)))
		}
	}
}

func status(s task.TestStatus, failed, runs int) string {
	icon := "⚪"
	switch s {
	case task.Pass:
		icon = "🟢"
	case task.Fail, task.Errored, task.Timeout:
		icon = "🔴"
	}
	out := icon + " " + line(string(s), 20)
	if failed > 0 {
		return fmt.Sprintf("🔴 failed in %d of %d runs", failed, runs)
	}
	if runs > 1 && s != task.Flaky {
		out += fmt.Sprintf(" (%d of %d runs)", runs, runs)
	}
	return out
}

// writeGuard says how well the tests hold the change.
func writeGuard(b *strings.Builder, g *task.Guard) {
	if g == nil {
		return
	}
	var parts []string
	if caught, survived, _ := task.Counts(g.Hunks); caught+survived > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s undone alone", caught, count(caught+survived, "part")))
	}
	if caught, survived, _ := task.Counts(g.Mutants); caught+survived > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s of the changed lines", caught, count(caught+survived, "small mutant")))
	}
	if len(parts) > 0 {
		fmt.Fprintf(b, "The tests notice %s.", strings.Join(parts, " and "))
	}
	if c := g.Coverage; c != nil {
		fmt.Fprintf(b, " The reproduction runs %d of %s that can run (%s).", c.Run, count(c.Lines, "changed line"), text(c.Tool, 60))
	}
	if g.Note != "" {
		fmt.Fprintf(b, " %s.", text(strings.ToUpper(g.Note[:1])+g.Note[1:], 400))
	}
	b.WriteString("\n\n")
	for _, m := range g.Mutants {
		if m.Outcome == task.Survived {
			fmt.Fprintf(b, "- unnoticed: %s line %d, %s: %s → %s\n", code(m.Path), m.Line, text(m.What, 60), code(m.Old), code(m.New))
		}
	}
	if _, survived, _ := task.Counts(g.Mutants); survived > 0 {
		b.WriteString("\n")
	}
}

func writeSuite(b *strings.Builder, s task.SuiteResult) {
	if s.Command == "" {
		b.WriteString("The repository's suite was not run.\n\n")
		return
	}
	fmt.Fprintf(b, "Whole suite, %s: %d passed, %s, %d skipped; %d failed on the old code already.\n\n",
		code(s.Command), s.Passed, count(s.NewFailures, "new failure"), s.Skipped, s.BaselineFailed)
	list := func(what string, ids []string) {
		if len(ids) == 0 {
			return
		}
		fmt.Fprintf(b, "%s:\n", what)
		for i, id := range ids {
			if i == maxRows {
				fmt.Fprintf(b, "- and %d more\n", len(ids)-i)
				break
			}
			fmt.Fprintf(b, "- %s\n", code(id))
		}
		b.WriteString("\n")
	}
	list("Flaky, seen to fail without this change too, now or in a verification before", s.Flaky)
	list("Unsteady with this change", s.Unsteady)
	list("Failing now", s.NewlyFailing)
	list("Passed before and gone or skipped now", s.Lost)
}
