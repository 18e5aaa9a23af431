package result

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// walkJSON reads one object and hands the value of each known key to its function. It is how a
// cut file keeps what it had: arrays are read element by element.
func walkJSON(r io.Reader, keys map[string]func(*json.Decoder) error) error {
	br := bufio.NewReader(r)
	for { // runners print other things before the object when it goes to the output
		b, err := br.Peek(1)
		if err != nil {
			return errors.New("no JSON object")
		}
		if b[0] == '{' {
			break
		}
		if _, err := br.ReadSlice('\n'); err != nil && err != bufio.ErrBufferFull {
			return errors.New("no JSON object")
		}
	}
	dec := json.NewDecoder(br)
	if _, err := dec.Token(); err != nil {
		return err
	}
	for dec.More() {
		k, err := dec.Token()
		if err != nil {
			return err
		}
		read := keys[fmt.Sprint(k)]
		if read == nil {
			read = func(d *json.Decoder) error { var skip json.RawMessage; return d.Decode(&skip) }
		}
		if err := read(dec); err != nil {
			return err
		}
	}
	_, err := dec.Token()
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// each reads an array and calls f for every element; null is an empty array.
func each[T any](f func(T) error) func(*json.Decoder) error {
	return func(d *json.Decoder) error {
		t, err := d.Token()
		if err != nil || t == nil {
			return err
		}
		if t != json.Delim('[') {
			return errors.New("an array was expected")
		}
		for d.More() {
			var v T
			if err := d.Decode(&v); err != nil {
				return err
			}
			if err := f(v); err != nil {
				return err
			}
		}
		_, err = d.Token()
		return err
	}
}

type jestSuite struct {
	Name             string
	Status           string
	Message          string
	AssertionResults []struct {
		AncestorTitles  []string
		FullName        string
		Title           string
		Status          string
		Duration        *float64
		FailureMessages []string
		Invocations     int
	}
}

// ParseJest reads what "jest --json --outputFile" and vitest's JSON reporter write. Ids are
// "file::full name". A suite that does not load is one [task.Errored] test named after its
// file, and is in BuildFailed. A file that is absent although the run ended (process.exit in a
// test) is the caller's to notice: an empty input is [NoReport].
func ParseJest(r io.Reader, o Options) Report {
	o = o.withDefaults()
	m := &meter{r: r, left: o.MaxBytes}
	rep := Report{Outcome: Complete}
	interrupted, seen := false, false
	total := -1
	err := walkJSON(m, map[string]func(*json.Decoder) error{
		"wasInterrupted": func(d *json.Decoder) error { return d.Decode(&interrupted) },
		"numTotalTests":  func(d *json.Decoder) error { return d.Decode(&total) },
		"testResults": func(d *json.Decoder) error {
			seen = true
			return each(func(s jestSuite) error {
				rep.jestSuite(s, o)
				if len(rep.Tests) > o.MaxTests {
					return errors.New("too many tests: the rest was left out")
				}
				return nil
			})(d)
		},
	})
	if m.over {
		return refuse(o)
	}
	switch {
	case !seen:
		rep.Outcome = NoReport
		if err != nil {
			rep.problem("not a jest report: %v", err)
		}
	case err != nil:
		rep.Outcome = Partial
		rep.problem("the report is cut or broken: %v", err)
	case interrupted:
		rep.Outcome = Partial
		rep.problem("the run was interrupted")
	case total > len(rep.Tests):
		rep.Outcome = Partial
		rep.problem("the report says %d tests and holds %d", total, len(rep.Tests))
	case len(rep.FailedSuites) > 0:
		rep.Outcome = Partial
	}
	number(rep.Tests)
	return rep
}

// vitestTimeout is what vitest since 3 leaves of the message of a test or hook that ran out of time.
const vitestTimeout = "Error: STACK_TRACE_ERROR"

func (rep *Report) jestSuite(s jestSuite, o Options) {
	file := o.rel(s.Name)
	failed := 0
	for _, a := range s.AssertionResults {
		full := strings.TrimSpace(a.FullName)
		if full == "" {
			full = strings.TrimSpace(strings.Join(append(a.AncestorTitles, a.Title), " "))
		}
		t := Test{ID: file + "::" + full, Suite: strings.TrimSpace(strings.Join(a.AncestorTitles, " > ")), File: file, Name: a.Title, Attempt: max(1, a.Invocations)}
		t.Suite = strings.TrimPrefix(t.Suite, "> ")
		if a.Duration != nil {
			t.Duration = seconds(*a.Duration / 1000)
		}
		switch a.Status {
		case "passed":
			t.Status = task.Pass
			if t.Attempt > 1 || len(a.FailureMessages) > 0 {
				t.Status, t.Attempt = task.Flaky, max(2, t.Attempt) // of vitest's tries only the failures are told
			}
		case "failed":
			t.Status = task.Fail
			failed++
			t.Output = clip(plain(strings.Join(a.FailureMessages, "\n")), o.MaxOutput)
			t.Message, t.Frame = jsMessage(t.Output), o.firstFrame(t.Output)
			if t.Message == vitestTimeout {
				t.Message = "Error: Test or hook timed out"
			}
			for _, sign := range []string{"Exceeded timeout of", "Test timed out in", "Hook timed out in", "Test or hook timed out"} {
				if strings.Contains(t.Message, sign) {
					t.Status = task.Timeout
				}
			}
			t.Signature = Signature(t.Message, t.Frame)
		case "pending", "skipped", "todo", "disabled":
			t.Status = task.Skip
			t.Message = a.Status
		default:
			t.Status = task.Missing
			rep.problem("%s: unknown status %q", t.ID, a.Status)
		}
		rep.Tests = append(rep.Tests, t)
	}
	msg := plain(s.Message)
	unloaded := len(s.AssertionResults) == 0 && msg != "" // vitest 0 calls that passed
	if s.Status != "failed" && !unloaded || failed > 0 {
		return
	}
	if o.Root != "" {
		msg = strings.ReplaceAll(msg, strings.TrimSuffix(o.Root, "/")+"/", "")
	}
	if len(s.AssertionResults) > 0 {
		rep.FailedSuites = appendNew(rep.FailedSuites, file)
		rep.problem("%s: the suite failed although none of its tests did: %s", file, msg)
		return
	}
	t := Test{ID: file, File: file, Status: task.Errored, Message: suiteMessage(msg), Output: clip(msg, o.MaxOutput), Attempt: 1}
	t.Signature = Signature(t.Message, "")
	rep.Tests = append(rep.Tests, t)
	rep.BuildFailed = appendNew(rep.BuildFailed, file)
	rep.problem("%s: the suite did not load: %s", file, t.Message)
}

// suiteMessage finds the error in jest's long text about a suite that does not load.
func suiteMessage(msg string) string {
	first := ""
	for l := range strings.SplitSeq(msg, "\n") {
		l = strings.TrimSpace(l)
		if i := strings.Index(l, "Error: "); i >= 0 && i < 40 {
			return clip(l, maxMessage)
		}
		if first == "" && l != "" && !strings.HasPrefix(l, "●") {
			first = l
		}
	}
	return clip(first, maxMessage)
}

// jsMessage is a JavaScript error's text without its stack.
func jsMessage(s string) string {
	var keep []string
	for l := range strings.SplitSeq(s, "\n") {
		if strings.HasPrefix(strings.TrimSpace(l), "at ") && len(keep) > 0 {
			break
		}
		if strings.TrimSpace(l) != "" {
			keep = append(keep, l)
		}
		if len(keep) == 20 {
			break
		}
	}
	return clip(strings.Join(keep, "\n"), maxMessage)
}

type mochaTest struct {
	Title, FullTitle, File string
	Duration               float64
	CurrentRetry           int
	Err                    struct {
		Message json.RawMessage // mostly a string
		Stack   json.RawMessage
		Code    json.RawMessage
	}
}

func (t mochaTest) key() string { return t.File + "\x00" + t.FullTitle }

func jsonText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	if string(raw) == "null" {
		return ""
	}
	return string(raw)
}

// ParseMocha reads mocha's JSON reporter, from a file or after other output. Ids are
// "file::full title"; a failed hook is a [task.Errored] entry named after the hook. A test is a
// pass only if it is listed among the passes.
func ParseMocha(r io.Reader, o Options) Report {
	o = o.withDefaults()
	m := &meter{r: r, left: o.MaxBytes}
	rep := Report{Outcome: Complete}
	var all, failures []mochaTest
	pending, passes := map[string]bool{}, map[string]bool{}
	n := 0
	into := func(f func(mochaTest)) func(*json.Decoder) error {
		return each(func(t mochaTest) error {
			if n++; n > 3*o.MaxTests {
				return errors.New("too many tests: the rest was left out")
			}
			f(t)
			return nil
		})
	}
	seen := false
	var stats struct{ Tests, Failures int }
	err := walkJSON(m, map[string]func(*json.Decoder) error{
		"stats":    func(d *json.Decoder) error { return d.Decode(&stats) },
		"tests":    func(d *json.Decoder) error { seen = true; return into(func(t mochaTest) { all = append(all, t) })(d) },
		"pending":  into(func(t mochaTest) { pending[t.key()] = true }),
		"failures": into(func(t mochaTest) { failures = append(failures, t) }),
		"passes":   into(func(t mochaTest) { passes[t.key()] = true }),
	})
	if m.over {
		return refuse(o)
	}
	switch {
	case !seen:
		rep.Outcome = NoReport
		if err != nil {
			rep.problem("not a mocha report: %v", err)
		}
		return rep
	case err != nil:
		rep.Outcome = Partial
		rep.problem("the report is cut or broken: %v", err)
	case stats.Failures > len(failures):
		rep.Outcome = Partial
		rep.problem("the report says %d failures and holds %d", stats.Failures, len(failures))
	}
	rep.mocha(all, failures, pending, passes, o)
	number(rep.Tests)
	return rep
}

func (rep *Report) mocha(all, failures []mochaTest, pending, passes map[string]bool, o Options) {
	failed := map[string]mochaTest{}
	for _, f := range failures {
		if _, ok := failed[f.key()]; !ok {
			failed[f.key()] = f
		}
	}
	known := map[string]bool{}
	add := func(m mochaTest, s task.TestStatus) {
		file := o.rel(m.File)
		t := Test{
			ID: m.FullTitle, Suite: strings.TrimSpace(strings.TrimSuffix(m.FullTitle, m.Title)), File: file, Name: m.Title,
			Status: s, Duration: seconds(m.Duration / 1000), Attempt: 1 + max(0, m.CurrentRetry),
		}
		if file != "" {
			t.ID = file + "::" + m.FullTitle
		}
		if t.Failed() {
			stack := plain(jsonText(m.Err.Stack))
			t.Message = jsMessage(plain(jsonText(m.Err.Message)))
			if t.Message == "" {
				t.Message = jsMessage(stack)
			}
			t.Output, t.Frame = clip(stack, o.MaxOutput), o.firstFrame(stack)
			t.Signature = Signature(t.Message, t.Frame)
			if jsonText(m.Err.Code) == "ERR_MOCHA_TIMEOUT" {
				t.Status = task.Timeout
			}
		}
		rep.Tests = append(rep.Tests, t)
	}
	for _, m := range all {
		k := m.key()
		known[k] = true
		switch f, bad := failed[k]; {
		case bad:
			add(f, task.Fail)
		case len(m.Err.Message)+len(m.Err.Stack) > 0:
			add(m, task.Fail)
		case pending[k]:
			add(m, task.Skip)
		case passes[k]:
			add(m, task.Pass)
		default:
			add(m, task.Missing)
			rep.Outcome = Partial
		}
	}
	for _, f := range failures {
		if !known[f.key()] {
			known[f.key()] = true
			add(f, task.Errored)
			rep.problem("%s: %s", f.FullTitle, jsonText(f.Err.Message))
		}
	}
}
