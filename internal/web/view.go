package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/a-h/templ"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/web/render"
)

func taskURL(id task.ID, rest string) templ.SafeURL {
	return templ.SafeURL("/tasks/" + string(id) + rest)
}

func textURL(id task.ID, seq int64) templ.SafeURL {
	return taskURL(id, "/texts/"+strconv.FormatInt(seq, 10))
}

func beforeURL(v *taskView, path, hash string) templ.SafeURL {
	return taskURL(v.ID, path+"?before="+strconv.FormatInt(v.Before, 10)+hash)
}

func repoFilter(repo string) templ.SafeURL {
	return templ.SafeURL("/?" + url.Values{"repo": {repo}}.Encode())
}

func plainText(s string) string { return render.Plain(s) }

func exact(s string) render.HTML { return render.Exact(s) }

// terminal is the head of what a command wrote.
func terminal(s string, most int) render.HTML {
	head, left := firstLines(s, most)
	h := render.Terminal(head)
	if left > 0 {
		h += render.HTML(fmt.Sprintf("\n<span class=\"cut\">… %s</span>", story.Plural(left, "more line")))
	}
	return h
}

func firstLines(s string, most int) (head string, left int) {
	at := 0
	for range most {
		i := strings.IndexByte(s[at:], '\n')
		if i < 0 {
			return s, 0
		}
		at += i + 1
	}
	rest := strings.TrimSuffix(s[at:], "\n")
	if s[at:] == "" {
		return strings.TrimSuffix(s, "\n"), 0
	}
	return strings.TrimSuffix(s[:at], "\n"), strings.Count(rest, "\n") + 1
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// headOf is the first n bytes of s, whole characters.
func headOf(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n]
}

func firsts[T any](s []T, n int) []T { return s[:min(n, len(s))] }

func firstOf(all ...string) string {
	for _, s := range all {
		if strings.TrimSpace(s) != "" {
			return s
		}
	}
	return ""
}

func toneIf(yes bool, then, otherwise string) string {
	if yes {
		return then
	}
	return otherwise
}

// readable is what a run wrote, without the wrapping of reports in JSON lines (go test -json).
func readable(log string) string {
	var b strings.Builder
	found := false
	for line := range strings.Lines(log) {
		if !strings.HasPrefix(line, `{"`) {
			if !found {
				b.WriteString(line)
			}
			continue
		}
		var e struct{ Output string }
		if json.Unmarshal([]byte(line), &e) == nil {
			if !found {
				b.Reset()
			}
			found = true
			b.WriteString(e.Output)
		}
	}
	return b.String()
}

// headOutput is what the tests wrote with the fix, where the verdict does not quote it: runs are
// of all declared tests together, so it stands with the first.
func headOutput(v *taskView, i int) string {
	if i > 0 {
		return ""
	}
	return readable(v.Docs.green)
}

// allFindings are those of the verdict and of policy, each once.
func allFindings(v *taskView) []task.Finding {
	var out []task.Finding
	seen := map[task.Finding]bool{}
	add := func(fs []task.Finding) {
		for _, f := range fs {
			if !seen[f] {
				seen[f] = true
				out = append(out, f)
			}
		}
	}
	if v.Docs.verdict != nil {
		add(v.Docs.verdict.Findings)
	}
	add(v.Sum().Findings)
	return out
}

func totals(files []render.File) (adds, dels int) {
	for _, f := range files {
		adds, dels = adds+f.Adds, dels+f.Dels
	}
	return adds, dels
}

// How much of a change a task's page holds, in lines; the rest is on demand.
const (
	diffBudget = 600
	fileBudget = 300
	fileWhole  = 20_000 // of one file on its own page
)

// fileBody renders the part of a file that the page's budget has room for.
func (s *Site) fileBody(f render.File, budget *int) (body render.HTML, left int) {
	if f.Binary {
		return "", 0
	}
	most := min(fileBudget, *budget)
	if most <= 0 {
		return "", f.Lines()
	}
	body, left = s.marks.Hunks(f, most)
	*budget -= f.Lines() - left
	return body, left
}

// banner says how the task stands, in a sentence.
type banner struct {
	Tone, Icon, Title, Say string
	Facts                  []bannerFact
}

type bannerFact struct{ Icon, Text string }

func bannerOf(v *taskView) banner {
	sum := v.Sum()
	b := banner{}
	var word string
	b.Tone, b.Icon, word = look(sum.State, sum.Waits(), sum.Parked())
	b.Title = strings.ToUpper(word[:1]) + word[1:]
	b.Say = sum.Reason
	d := v.Docs.verdict
	accepted := sum.Verification != nil && sum.Verification.Kind.Accepted()
	switch sum.State {
	case task.InReview, task.Merged, task.Closed, task.Publishing:
		if sum.Verification != nil {
			var kind string
			b.Tone, b.Icon, kind = verdictLook(sum.Verification.Kind)
			b.Title = strings.ToUpper(kind[:1]) + kind[1:]
			b.Say = sum.Verification.Reason
		}
		if sum.State == task.Merged {
			b.Icon, b.Title = "merge", b.Title+", merged"
		}
		if sum.State == task.Closed {
			b.Tone, b.Title = "idle", b.Title+", closed unmerged"
		}
		if sum.Waits() {
			b.Tone, b.Icon, b.Title = "wait", "hand", b.Title+", waits for approval"
		}
	case task.Declined:
		if sum.Declined != nil {
			b.Title, b.Say = "Declined: "+story.Words(sum.Declined.Kind), sum.Declined.Reason
			b.Facts = append(b.Facts, bannerFact{"dash", "Tried: " + flowing(sum.Declined.Tried)})
		}
	case task.Stopped:
		if sum.Stop != nil {
			b.Say = "by " + sum.Stop.Who + reasonOf(sum.Stop.Reason)
		}
	case task.Queued:
		b.Say = "It begins as soon as a worker is free."
	case task.Preparing, task.Working, task.Verifying:
		b.Say = firstOf(doing(v), sum.Reason)
		if words := lastWords(v); words != "" {
			b.Facts = append(b.Facts, bannerFact{"dash", words})
		}
	}
	if d != nil && (accepted || !sum.State.Done()) {
		for _, r := range d.Reproduction {
			b.Facts = append(b.Facts, bannerFact{"check", fmt.Sprintf("%s: %s without the fix, %s with it", shortTest(r.Test), word3(r.Base), word3(r.Head))})
		}
		if s := d.Suite; s.Command != "" {
			ic := "check"
			if s.NewFailures > 0 {
				ic = "cross"
			}
			b.Facts = append(b.Facts, bannerFact{ic, fmt.Sprintf("suite: %s passed, %s", story.Count(int64(s.Passed)), story.Plural(s.NewFailures, "new failure"))})
		}
		if g := d.Guard; g != nil {
			caught, survived, _ := task.Counts(append(append([]task.Probe(nil), g.Hunks...), g.Mutants...))
			b.Facts = append(b.Facts, bannerFact{toneIf(survived > 0, "warn", "check"), fmt.Sprintf("tests notice %d of %d parts of the fix undone or altered", caught, caught+survived)})
		}
	}
	if sum.Parked() {
		b.Say = sum.Asked.Question
	}
	b.Say = sentence(flowing(b.Say))
	return b
}

// sentence begins with a capital.
func sentence(s string) string {
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// flowing is a text of several lines as one that the page breaks.
func flowing(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", " ") }

func reasonOf(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}

func word3(s task.TestStatus) string {
	_, _, w := statusLook(s)
	return map[string]string{"pass": "passes", "fail": "fails"}[w] + map[bool]string{true: w}[w != "pass" && w != "fail"]
}

// shortTest is the last part of a test's id.
func shortTest(id string) string {
	if i := strings.LastIndex(id, "::"); i >= 0 && i+2 < len(id) {
		return id[i+2:]
	}
	return id
}

// lastWords is how what the model said last begins.
func lastWords(v *taskView) string {
	for i := len(v.Story.Items) - 1; i >= 0; i-- {
		st := v.Story.Items[i].Step
		if st == nil || st.Response == nil {
			continue
		}
		said, _ := story.Said(st.Response.Message.Inline)
		first, _, _ := strings.Cut(said, "\n")
		if first == "" {
			return ""
		}
		return fmt.Sprintf("step %d: %s", st.N, headOf(first, 240))
	}
	return ""
}

// doing is what happens right now.
func doing(v *taskView) string {
	sum := v.Sum()
	switch {
	case len(sum.OpenCalls) > 0:
		c := sum.OpenCalls[len(sum.OpenCalls)-1]
		return c.Name + " " + headOf(story.Argument(c.Args), 120)
	case sum.OpenRequest != nil:
		return "Waiting for the model, step " + strconv.Itoa(sum.OpenRequest.Step)
	case sum.SetupStep != nil:
		return "Preparing dependencies: " + sum.SetupStep.Command
	case sum.State == task.Verifying:
		return "Fresh checkouts, without and with the fix"
	}
	return ""
}

// arg is one argument of a call.
type arg struct {
	Name, Value string
	Long        bool
}

// argsOf are the arguments in the order in which the model gave them.
func argsOf(t event.Text) []arg {
	if t.Inline == "" {
		return nil
	}
	dec := json.NewDecoder(strings.NewReader(t.Inline))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return []arg{{"arguments", t.Inline, true}}
	}
	var out []arg
	for dec.More() && len(out) < 40 {
		name, err := dec.Token()
		if err != nil {
			return []arg{{"arguments", t.Inline, true}}
		}
		var rawValue json.RawMessage
		if err := dec.Decode(&rawValue); err != nil {
			return []arg{{"arguments", t.Inline, true}}
		}
		a := arg{Name: fmt.Sprint(name)}
		if json.Unmarshal(rawValue, &a.Value) != nil {
			var b bytes.Buffer
			_ = json.Compact(&b, rawValue) // it was decoded just now
			a.Value = b.String()
		}
		a.Long = strings.Contains(a.Value, "\n") || len(a.Value) > 120
		out = append(out, a)
	}
	return out
}

// maxSaid is how much of the model's words a row shows.
const maxSaid = 6000

// saidOf is what the model said in a step.
func (s *Site) saidOf(st *story.Step) (said, thinking string, cut bool) {
	if st.Response == nil {
		return "", "", false
	}
	text := st.Response.Message.Inline
	if st.Response.Message.Blob != "" {
		return "", "", true
	}
	said, thinking = story.Said(text)
	if len(said) > maxSaid {
		return headOf(said, maxSaid), thinking, true
	}
	return said, thinking, false
}

func respSeq(_ *taskView, it *story.Item) int64 { return it.Step.Replied }

// folded is a result with its middle left out.
type folded struct {
	Head, Tail  render.HTML
	Left, Lines int
}

// The parts of a result that a row shows.
const (
	headLines = 16
	tailLines = 10
	foldOver  = 36
)

func (s *Site) resultOf(c *story.Call) folded {
	t := c.Finished.Result
	if t.Blob != "" {
		return folded{Head: "", Left: max(1, t.Bytes/80), Lines: max(1, t.Bytes/80)}
	}
	return fold(t.Inline)
}

func fold(text string) folded {
	all := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	if len(all) <= foldOver {
		return folded{Head: render.Terminal(strings.Join(all, "")), Lines: len(all)}
	}
	return folded{
		Head: render.Terminal(strings.TrimSuffix(strings.Join(all[:headLines], ""), "\n")), Tail: render.Terminal(strings.Join(all[len(all)-tailLines:], "")),
		Left: len(all) - headLines - tailLines, Lines: len(all),
	}
}

func costOf(st *story.Step) string {
	var parts []string
	if r := st.Response; r != nil {
		t := r.Tokens.Add(r.Wasted)
		parts = append(parts, story.Count(t.Input+t.CacheWrite)+" in", story.Count(t.CacheRead)+" cached", story.Count(t.Output)+" out")
		if r.Priced {
			parts = append(parts, fmt.Sprintf("$%.4f", r.Cost.USD()))
		}
		parts = append(parts, story.Took(r.Millis))
		if r.Attempts > 1 {
			parts = append(parts, story.Plural(r.Attempts, "attempt"))
		}
	} else if f := st.Failed; f != nil && f.Cost > 0 {
		parts = append(parts, fmt.Sprintf("$%.4f", f.Cost.USD()))
	}
	return strings.Join(parts, " · ")
}

// groupWords names what a group of minor moments is about.
func groupWords(items []*story.Item) string {
	n := map[string]int{}
	var order []string
	for _, it := range items {
		w := it.Moment.Line.What
		if n[w] == 0 {
			order = append(order, w)
		}
		n[w]++
	}
	var parts []string
	for _, w := range firsts(order, 6) {
		if n[w] == 1 {
			parts = append(parts, w)
		} else {
			parts = append(parts, fmt.Sprintf("%s ×%d", w, n[w]))
		}
	}
	return strings.Join(parts, " · ")
}

// oneLine is an argument in a row's head: line ends are shown as ↵.
func oneLine(s string) string { return strings.ReplaceAll(strings.TrimSuffix(s, "\n"), "\n", " ↵ ") }

// placeOf is where a finding is: "path:line".
func placeOf(f task.Finding) string {
	if f.Line > 0 {
		return f.Path + ":" + strconv.Itoa(f.Line)
	}
	return f.Path
}
