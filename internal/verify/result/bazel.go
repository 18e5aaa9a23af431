package result

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// bepEvent is what is read of one line of "bazel test --build_event_json_file" (the message
// build_event_stream.BuildEvent as JSON).
type bepEvent struct {
	ID struct {
		TestResult      *bepLabel
		TestSummary     *bepLabel
		TargetCompleted *bepLabel
		ActionCompleted *bepLabel
		BuildFinished   *struct{}
	}
	TestResult *struct {
		Status                    string
		StatusDetails             string
		CachedLocally             bool
		TestAttemptDurationMillis json.Number
	}
	TestSummary *struct{ OverallStatus string }
	Completed   *struct {
		Success       bool
		FailureDetail *struct{ Message string }
	}
	Aborted *struct{ Reason, Description string }
	Action  *struct {
		Success       bool
		FailureDetail *struct{ Message string }
	}
	Progress    *struct{ Stderr string }
	LastMessage bool
}

type bepLabel struct {
	Label               string
	Run, Shard, Attempt int
}

type bepTarget struct {
	label   string
	last    string // status of the newest attempt, of the worst run and shard
	overall string
	attempt int
	detail  string
}

// ParseBazel reads Bazel's two kinds of reports, told apart by their first byte: the Build Event
// Protocol as JSON lines, and the test.xml of one target, which is JUnit's. A target is one test,
// its label the id; FLAKY is [task.Flaky], and a target of which nothing is said in the end did
// not run. A stream without its last message is [Partial].
func ParseBazel(r io.Reader, o Options) Report {
	o = o.withDefaults()
	br := bufio.NewReader(r)
	head, _ := br.Peek(64)
	if head = bytes.TrimLeft(head, " \r\n\t\xef\xbb\xbf"); len(head) > 0 && head[0] == '<' {
		rep := ParseJUnit(br, o)
		for i := range rep.Tests {
			o.bazelOwn(&rep.Tests[i])
		}
		return rep
	}
	m := &meter{r: br, left: o.MaxBytes}
	p := bepParser{o: o, by: map[string]*bepTarget{}}
	in := newLines(m)
	for {
		line, _, ok := in.next()
		if !ok {
			break
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		var e bepEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			if p.seen || !strings.HasPrefix(line, "{") {
				p.rep.problem("not an event: %s", clip(line, 80))
			}
			p.broken = true
			continue
		}
		p.event(e)
		if len(p.order) > o.MaxTests {
			p.broken = true
			p.rep.problem("too many tests: the rest was left out")
			break
		}
	}
	if m.over {
		return refuse(o)
	}
	return p.report()
}

// bazelOwn gives the case that Bazel makes up for a target without a report of its own the
// target's label, and what it printed for a message.
func (o Options) bazelOwn(t *Test) {
	pkg, name, ok := cutLast(t.Name, "/")
	if !ok || t.Suite != t.Name {
		return
	}
	t.ID = "//" + pkg + ":" + name
	t.Suite, t.Name = t.ID, t.ID
	if t.Status == task.Errored {
		t.Status = task.Fail
	}
	_, text, ok := strings.Cut(t.Output, strings.Repeat("-", 77)+"\n")
	if ok && t.Failed() {
		if m := o.outputMessage(strings.TrimSuffix(text, "]]>")); m != "" {
			t.Message = m
		}
		t.Signature = Signature(t.Message, t.Frame)
	}
}

// MergeBazel joins the event stream with the test.xml files. Of a target that has no tests of its
// own the stream says how it ended, the file what it printed.
func MergeBazel(reports ...Report) Report {
	stream := map[string]bool{}
	said := map[string]Test{}
	var keep []Report
	for _, r := range reports {
		for _, t := range r.Tests {
			if old, ok := said[t.ID]; strings.HasPrefix(t.ID, "//") && t.Suite == t.ID {
				stream[t.ID] = stream[t.ID] || t.Output == ""
				if !ok || len(t.Output) > len(old.Output) {
					said[t.ID] = t
				}
			}
		}
	}
	for _, r := range reports {
		var tests []Test
		for _, t := range r.Tests {
			if x, ok := said[t.ID]; ok {
				if t.Output != "" && stream[t.ID] {
					continue // the stream's entry is the one that stays
				}
				if t.Failed() && x.Failed() {
					t.Message, t.Output, t.Signature = x.Message, x.Output, x.Signature
				}
			}
			tests = append(tests, t)
		}
		r.Tests = tests
		keep = append(keep, r)
	}
	return Merge(keep...)
}

type bepParser struct {
	o            Options
	rep          Report
	by           map[string]*bepTarget
	order        []*bepTarget
	failedBuild  []string
	seen, broken bool
	last         bool
}

func (p *bepParser) target(label string) *bepTarget {
	if t := p.by[label]; t != nil {
		return t
	}
	t := &bepTarget{label: label}
	p.by[label] = t
	p.order = append(p.order, t)
	return t
}

// rank orders the statuses of a target's runs and shards: the worst stands.
func bepRank(s string) int {
	return slices.Index([]string{"PASSED", "FLAKY", "NO_STATUS", "INCOMPLETE", "TIMEOUT", "REMOTE_FAILURE", "TOOL_HALTED_BEFORE_TESTING", "FAILED_TO_BUILD", "FAILED"}, s)
}

func (p *bepParser) event(e bepEvent) {
	switch id := e.ID; {
	case id.TestResult != nil && e.TestResult != nil:
		p.seen = true
		t := p.target(clip(plain(id.TestResult.Label), 1000))
		t.attempt = max(t.attempt, id.TestResult.Attempt)
		if s := e.TestResult.Status; t.last == "" || bepRank(s) > bepRank(t.last) || id.TestResult.Attempt > 1 {
			t.last, t.detail = s, clip(plain(e.TestResult.StatusDetails), maxMessage)
		}
	case id.TestSummary != nil && e.TestSummary != nil:
		p.seen = true
		p.target(clip(plain(id.TestSummary.Label), 1000)).overall = e.TestSummary.OverallStatus
	case id.TargetCompleted != nil:
		p.seen = true
		p.completed(clip(plain(id.TargetCompleted.Label), 1000), e)
	case id.ActionCompleted != nil && e.Action != nil && !e.Action.Success && e.Action.FailureDetail != nil:
		p.rep.problem("%s: %s", id.ActionCompleted.Label, e.Action.FailureDetail.Message)
	case id.BuildFinished != nil:
		p.seen = true
	}
	if e.LastMessage {
		p.last, p.seen = true, true
	}
}

func (p *bepParser) completed(label string, e bepEvent) {
	switch {
	case e.Aborted != nil && e.Aborted.Reason != "SKIPPED" && e.Aborted.Reason != "NO_BUILD":
		p.failedBuild = appendNew(p.failedBuild, label)
		p.rep.problem("%s: %s: %s", label, e.Aborted.Reason, e.Aborted.Description)
	case e.Completed != nil && !e.Completed.Success:
		p.failedBuild = appendNew(p.failedBuild, label)
		if f := e.Completed.FailureDetail; f != nil {
			p.rep.problem("%s: did not build: %s", label, f.Message)
		}
	}
}

func (p *bepParser) report() Report {
	rep := &p.rep
	switch {
	case !p.seen:
		rep.Outcome = NoReport
		return *rep
	case !p.last:
		rep.Outcome = Partial
		rep.problem("the stream has no last message: the build ended early")
	case p.broken:
		rep.Outcome = Partial
	default:
		rep.Outcome = Complete
	}
	for _, t := range p.order {
		if s := t.status(); s == "FAILED_TO_BUILD" {
			rep.BuildFailed = appendNew(rep.BuildFailed, t.label)
		} else {
			rep.Tests = append(rep.Tests, t.normal(s))
		}
	}
	for _, label := range p.failedBuild {
		rep.BuildFailed = appendNew(rep.BuildFailed, label)
	}
	return *rep
}

// status is the summary's. Without one the stream was cut, and a pass of one attempt, run or shard
// is none of the target.
func (t *bepTarget) status() string {
	if t.overall == "" && t.last == "PASSED" {
		return "NO_STATUS"
	}
	return cmp.Or(t.overall, t.last)
}

func (t *bepTarget) normal(s string) Test {
	x := Test{ID: t.label, Suite: t.label, Name: t.label, Message: t.detail, Attempt: max(1, t.attempt)}
	switch s {
	case "PASSED":
		x.Status = task.Pass
		if t.last != "" && t.last != "PASSED" {
			x.Status = task.Flaky // the summary speaks of several attempts
		}
	case "FLAKY":
		x.Status = task.Flaky
	case "FAILED":
		x.Status = task.Fail
	case "TIMEOUT":
		x.Status = task.Timeout
	case "REMOTE_FAILURE", "TOOL_HALTED_BEFORE_TESTING":
		x.Status = task.Errored
	default: // NO_STATUS, INCOMPLETE, none
		x.Status = task.Missing
	}
	if x.Failed() && x.Message == "" {
		x.Message = "the target ended with " + s
	}
	if x.Failed() {
		x.Signature = Signature(x.Message, "")
	}
	return x
}
