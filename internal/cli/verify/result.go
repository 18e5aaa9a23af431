package verify

import (
	"cmp"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/evidence"
	"github.com/daybreak-agent/daybreak/internal/proposal"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Result is what `--json` prints: the fields it shares with the result of a task have the same
// names there.
type Result struct {
	Type         string              `json:"type"` // "result"
	Repo         string              `json:"repo"`
	Base         string              `json:"base"` // commit id
	Head         string              `json:"head"`
	Verdict      task.VerdictKind    `json:"verdict"`
	Reason       string              `json:"reason"`
	Reproduction []task.Reproduction `json:"reproduction"`
	Suite        task.SuiteResult    `json:"suite"`
	Findings     []task.Finding      `json:"findings"`
	Timing       Timing              `json:"timing_ms"`
	Sandbox      task.Isolation      `json:"sandbox"`
	Evidence     string              `json:"evidence,omitempty"` // digest of the signed account
	Document     task.Verdict        `json:"document"`           // all of it: phases, commands, trees, logs
}

// Timing is in milliseconds.
type Timing struct {
	Verify int64 `json:"verify"`
}

func newResult(repo string, o Options, out prover.Outcome, signed []byte) Result {
	v := out.Verdict
	r := Result{
		Type: "result", Repo: repo, Base: out.Base, Head: out.Head, Verdict: v.Kind, Reason: v.Reason,
		Reproduction: append([]task.Reproduction{}, v.Reproduction...), Suite: v.Suite, Findings: append([]task.Finding{}, v.Findings...),
		Timing: Timing{out.Took.Milliseconds()}, Sandbox: v.Sandbox, Document: v,
	}
	if signed != nil {
		r.Evidence = evidence.Digest(signed)
	}
	if r.Suite.Flaky == nil {
		r.Suite.Flaky = []string{}
	}
	return r
}

func asJSON(r Result) ([]byte, error) {
	b, err := json.Marshal(r)
	return append(b, '\n'), err
}

func asMarkdown(r Result) ([]byte, error) {
	return []byte(proposal.Comment(r.Document, r.Head, strings.TrimSpace(r.Sandbox.Runtime+" "+r.Sandbox.Isolation))), nil
}

type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
	Out     string        `xml:"system-out,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// asJUnit shows each promise of the protocol as a test: that the reproduction fails before and
// passes after, that the suite is no worse, and the verdict.
func asJUnit(r Result) ([]byte, error) {
	s := junitSuite{Name: "daybreak verify", Time: fmt.Sprintf("%.3f", float64(r.Timing.Verify)/1000)}
	add := func(class, name string, ok bool, message, text string) {
		c := junitCase{Class: class, Name: xmlText(name)}
		if !ok {
			c.Failure = &junitFailure{Message: xmlText(message), Type: string(r.Verdict), Text: xmlText(text)}
			s.Failures++
		} else {
			c.Out = xmlText(text)
		}
		s.Cases = append(s.Cases, c)
		s.Tests++
	}
	for _, t := range r.Reproduction {
		// What fails in some runs only shows the bug where the protocol has taken it.
		failed := t.Base == task.Fail || t.Base == task.Errored || t.Base == task.Timeout || t.Base == task.Flaky && r.Verdict.Accepted()
		base := times(t.Base, t.BaseFailed, t.BaseRuns) + " on the base"
		add("red: fails on the base", t.Test, failed, base, strings.TrimSpace(base+"\n"+cmp.Or(t.BaseOutput, t.BaseSignature)))
		if t.Head != "" {
			add("green: passes with the change", t.Test, t.Head == task.Pass, times(t.Head, t.HeadFailed, t.HeadRuns)+" with the change", t.HeadOutput)
		}
	}
	for _, id := range r.Suite.NewlyFailing {
		add("suite: no worse than before", id, false, "it passed on the base and does not with the change", "")
	}
	for _, id := range r.Suite.Lost {
		add("suite: no worse than before", id, false, "it passed on the base and is gone or skipped with the change", "")
	}
	ok := exitOf(r.Document) == nil
	text := cmp.Or(r.Document.Detail, r.Reason)
	if ok {
		text = r.Reason
	}
	if g := r.Document.Guard; g != nil && g.Note != "" {
		text += "\nguard: " + g.Note
	}
	add("verdict", string(r.Verdict), ok, r.Reason, text)
	b, err := xml.MarshalIndent(s, "", "  ")
	return append([]byte(xml.Header), append(b, '\n')...), err
}

// xmlText drops what XML cannot hold.
func xmlText(s string) string {
	return strings.Map(func(c rune) rune {
		if c == utf8.RuneError || c < ' ' && c != '\n' && c != '\t' || c == 0xFFFE || c == 0xFFFF {
			return '\uFFFD'
		}
		return c
	}, s)
}

// view shows progress and the result to a person.
type view struct {
	env   *kit.Env
	quiet bool
	last  string
}

// begin says what is verified, once that was found.
func (v *view) begin(o Options) {
	if !v.quiet {
		fmt.Fprintf(v.env.Out, "Verifying %s against %s\n", taskview.Escape(o.Head), taskview.Escape(o.Base))
	}
}

func (v *view) stage(note string) {
	if !v.quiet && note != v.last {
		v.last = note
		fmt.Fprintf(v.env.Out, "  · %s\n", taskview.Escape(note))
	}
}

func (v *view) end(r Result) {
	w := v.env.Out
	head := strings.ToUpper(string(r.Verdict[:1])) + strings.ReplaceAll(string(r.Verdict[1:]), "_", " ")
	fmt.Fprintf(w, "\n%s: %s\n", head, taskview.Escape(r.Reason))
	for _, t := range r.Reproduction {
		fmt.Fprintf(w, "  proof     %s: %s\n", short(t.Test), taskview.Escape(course(t)))
		if t.BaseSignature != "" {
			fmt.Fprintf(w, "            before: %s\n", short(t.BaseSignature))
		}
		if t.Rerun != "" {
			fmt.Fprintf(w, "            again:  %s\n", taskview.Escape(t.Rerun))
		}
	}
	if s := r.Suite; s.Command != "" && s.Passed+s.NewFailures > 0 {
		fmt.Fprintf(w, "  suite     %s: %d passed, %d new failures, %d skipped; %d failed before\n", taskview.Escape(s.Command), s.Passed, s.NewFailures, s.Skipped, s.BaselineFailed)
	}
	if g := r.Document.Guard; g != nil {
		parts, missed, _ := task.Counts(g.Hunks)
		caught, survived, _ := task.Counts(g.Mutants)
		fmt.Fprintf(w, "  guard     the tests notice %d of %d parts undone, %d of %d mutants", parts, parts+missed, caught, caught+survived)
		if c := g.Coverage; c != nil {
			fmt.Fprintf(w, "; they run %d of %d changed lines", c.Run, c.Lines)
		}
		fmt.Fprintln(w)
		for _, m := range g.Mutants {
			if m.Outcome == task.Survived {
				fmt.Fprintf(w, "            unnoticed: %s:%d %s: %s → %s\n", taskview.Escape(m.Path), m.Line, m.What, taskview.Escape(m.Old), taskview.Escape(m.New))
			}
		}
		if g.Note != "" {
			fmt.Fprintf(w, "            %s\n", taskview.Escape(g.Note))
		}
	}
	list := func(what string, ids []string) {
		for i, id := range ids {
			if i == 10 {
				fmt.Fprintf(w, "            and %d more\n", len(ids)-i)
				return
			}
			fmt.Fprintf(w, "  %-9s %s\n", what, short(id))
		}
	}
	list("broken", r.Suite.NewlyFailing)
	list("lost", r.Suite.Lost)
	list("flaky", r.Suite.Flaky)
	list("unsteady", r.Suite.Unsteady)
	for _, f := range r.Findings {
		at := f.Path
		if f.Line > 0 {
			at = fmt.Sprintf("%s:%d", f.Path, f.Line)
		}
		fmt.Fprintf(w, "  %-9s %s: %s\n", f.Severity, taskview.Escape(at), taskview.Escape(f.Detail))
		for _, side := range []struct{ sign, text string }{{"-", f.Old}, {"+", f.New}} {
			for _, l := range strings.FieldsFunc(side.text, func(r rune) bool { return r == '\n' }) {
				fmt.Fprintf(w, "            %s %s\n", side.sign, taskview.Escape(l))
			}
		}
	}
	if note := prepared(r.Document); note != "" && !r.Verdict.Accepted() {
		fmt.Fprintf(w, "  detected  %s\n", taskview.Escape(note))
	}
	if r.Document.Detail != "" && !r.Verdict.Accepted() {
		fmt.Fprintf(w, "\n%s\n\n", taskview.EscapeLines(strings.TrimSpace(r.Document.Detail)))
	}
	fmt.Fprintf(w, "  compared  %.12s (base) and %.12s (head)\n", r.Base, r.Head)
	if r.Sandbox.Runtime != "" {
		fmt.Fprintf(w, "  isolation %s, %s\n", r.Sandbox.Runtime, r.Sandbox.Isolation)
	}
	if r.Evidence != "" {
		fmt.Fprintf(w, "  evidence  %s\n", r.Evidence)
	}
	fmt.Fprintf(w, "  took      %s\n", (time.Duration(r.Timing.Verify) * time.Millisecond).Round(100*time.Millisecond))
}

// short is a name that a change's author chose as long as they liked.
func short(name string) string {
	const most = 300
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return taskview.Escape(name)
}

// prepared is what P0 found out about how the repository is tested.
func prepared(v task.Verdict) string {
	for _, p := range v.Phases {
		if p.Phase == "P0" {
			return p.Note
		}
	}
	return ""
}

// course is what a test did before and after.
func course(t task.Reproduction) string {
	out := times(t.Base, t.BaseFailed, t.BaseRuns) + " on the base"
	if t.Head != "" {
		out += ", " + times(t.Head, t.HeadFailed, t.HeadRuns) + " with the change"
	}
	return out
}

// times says in how many runs a test did what it did.
func times(s task.TestStatus, failed, runs int) string {
	switch {
	case failed > 0:
		return fmt.Sprintf("failed in %d of %d runs", failed, runs)
	case s == task.Flaky:
		return fmt.Sprintf("runs disagree, %d in all", runs)
	case runs > 1:
		return fmt.Sprintf("%s in %d runs", s, runs)
	}
	return string(s)
}
