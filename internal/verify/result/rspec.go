package result

import (
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

type rspecExample struct {
	ID              string // by position: "./spec/a_spec.rb[1:2:1]"
	Description     string
	FullDescription string   `json:"full_description"`
	Status          string   // passed, failed, pending
	FilePath        string   `json:"file_path"`
	LineNumber      int      `json:"line_number"`
	RunTime         *float64 `json:"run_time"`
	PendingMessage  string   `json:"pending_message"`
	Exception       *struct {
		Class, Message string
		Backtrace      []string
	}
}

type rspecSummary struct {
	Examples int `json:"example_count"`
	Failures int `json:"failure_count"`
	Outside  int `json:"errors_outside_of_examples_count"`
}

// ParseRSpec reads what "rspec --format json" writes. Ids are "file::full description"; RSpec's own
// are positions, which a new example above changes, and number only those that are otherwise alike.
// A file that does not load keeps every example from running: it is in BuildFailed.
func ParseRSpec(r io.Reader, o Options) Report {
	o = o.withDefaults()
	m := &meter{r: r, left: o.MaxBytes}
	rep := Report{Outcome: Complete}
	var all []rspecExample
	var sum *rspecSummary
	var messages []string
	seen := false
	err := walkJSON(m, map[string]func(*json.Decoder) error{
		"messages": func(d *json.Decoder) error {
			return each(func(s string) error {
				if len(messages) < maxProblems {
					messages = append(messages, plain(clip(s, o.MaxOutput)))
				}
				return nil
			})(d)
		},
		"examples": func(d *json.Decoder) error {
			seen = true
			return each(func(e rspecExample) error {
				if len(all) >= o.MaxTests {
					return errors.New("too many tests: the rest was left out")
				}
				all = append(all, e)
				return nil
			})(d)
		},
		"summary": func(d *json.Decoder) error { return d.Decode(&sum) },
	})
	if m.over {
		return refuse(o)
	}
	switch {
	case !seen:
		rep.Outcome = NoReport
		if err != nil {
			rep.problem("not an RSpec report: %v", err)
		}
		return rep
	case err != nil:
		rep.Outcome = Partial
		rep.problem("the report is cut or broken: %v", err)
	case sum == nil:
		rep.Outcome = Partial
		rep.problem("the report has no summary")
	case sum.Examples != len(all):
		rep.Outcome = Partial
		rep.problem("the report says %d examples and holds %d", sum.Examples, len(all))
	}
	slices.SortStableFunc(all, func(a, b rspecExample) int { return comparePositions(a.ID, b.ID) })
	for _, e := range all {
		rep.Tests = append(rep.Tests, rspecTest(e, o))
	}
	if sum != nil && sum.Outside > 0 {
		rep.rspecOutside(messages, o)
	}
	number(rep.Tests)
	return rep
}

func rspecTest(e rspecExample, o Options) Test {
	file := o.rel(e.FilePath)
	full := strings.TrimSpace(plain(clip(e.FullDescription, 2000)))
	if full == "" {
		full = plain(clip(e.Description, 2000))
	}
	t := Test{ID: file + "::" + full, File: file, Name: full, Attempt: 1}
	t.Suite = strings.TrimSpace(strings.TrimSuffix(full, plain(e.Description)))
	if e.RunTime != nil {
		t.Duration = seconds(*e.RunTime)
	}
	switch e.Status {
	case "passed":
		t.Status = task.Pass
	case "failed":
		t.Status = task.Fail
	case "pending":
		t.Status, t.Message = task.Skip, clip(plain(e.PendingMessage), maxMessage)
	default:
		t.Status = task.Missing
	}
	if x := e.Exception; x != nil && t.Failed() {
		t.Message = firstLines(plain(x.Message), 20)
		if !strings.HasPrefix(x.Class, "RSpec::Expectations::") {
			t.Message = clip(x.Class+": "+t.Message, maxMessage)
		}
		for _, l := range x.Backtrace {
			path, rest, ok := strings.Cut(l, ":")
			if line, _, _ := strings.Cut(rest, ":"); ok && t.Frame == "" && o.ours(path) && !strings.Contains(path, "/gems/") && strings.HasSuffix(path, ".rb") {
				t.Frame = o.rel(path) + ":" + line
			}
		}
		t.Output = clip(plain(x.Class+": "+x.Message+"\n"+strings.Join(x.Backtrace, "\n")), o.MaxOutput)
		t.Signature = Signature(t.Message, t.Frame)
	}
	return t
}

// rspecOutside reads the messages about what went wrong outside examples.
func (rep *Report) rspecOutside(messages []string, o Options) {
	for _, msg := range messages {
		text := strings.TrimSpace(msg)
		first := firstLine(text)
		reason := first
		if _, after, ok := strings.Cut(text, "\n\n"); ok {
			for part := range strings.SplitSeq(after, "\n\n") {
				if part = strings.TrimSpace(part); errorStart(part) {
					reason = strings.Join(strings.Fields(part), " ")
					break
				}
			}
		}
		if m := rspecLoading.FindStringSubmatch(first); m != nil {
			file := o.rel(m[1])
			rep.BuildFailed = appendNew(rep.BuildFailed, file)
			rep.problem("%s: did not load: %s", file, reason)
		} else if strings.HasPrefix(first, "An error occurred") {
			rep.FailedSuites = appendNew(rep.FailedSuites, clip(first, 200))
			rep.problem("%s: %s", first, reason)
		}
	}
	if len(rep.BuildFailed)+len(rep.FailedSuites) == 0 {
		rep.Outcome = Partial
		rep.problem("errors happened outside of examples")
	}
}

var rspecLoading = regexp.MustCompile(`while loading (\S+\.rb)`)

// errorStart reports whether a line names a Ruby error class first.
func errorStart(l string) bool {
	name, _, ok := strings.Cut(l, ":")
	return ok && !strings.ContainsAny(name, " /\n") && (strings.HasSuffix(name, "Error") || strings.HasSuffix(name, "Exception"))
}

// comparePositions orders "file[1:10]" after "file[1:9]".
func comparePositions(a, b string) int {
	fa, pa, _ := strings.Cut(a, "[")
	fb, pb, _ := strings.Cut(b, "[")
	if c := strings.Compare(fa, fb); c != 0 {
		return c
	}
	xs, ys := strings.Split(strings.TrimSuffix(pa, "]"), ":"), strings.Split(strings.TrimSuffix(pb, "]"), ":")
	for i := range min(len(xs), len(ys)) {
		if len(xs[i]) != len(ys[i]) {
			return len(xs[i]) - len(ys[i])
		}
		if c := strings.Compare(xs[i], ys[i]); c != 0 {
			return c
		}
	}
	return len(xs) - len(ys)
}
