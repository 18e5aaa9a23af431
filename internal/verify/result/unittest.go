package result

import (
	"io"
	"regexp"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

var (
	utHeader  = regexp.MustCompile(`^\s*(\w+) \(([\w.<>]+)\)(?: \[.*?\]| \(.*?\))*(?: \.\.\. ?(.*))?$`)
	utDocLine = regexp.MustCompile(`^.* \.\.\. ?(.*)$`)
	utSection = regexp.MustCompile(`^(FAIL|ERROR|UNEXPECTED SUCCESS): (\w+) \(([\w.<>]+)\)(.*)$`)
	utRan     = regexp.MustCompile(`^Ran (\d+) tests? in `)
)

// ParseUnittest reads the text of "python3 -m unittest -v", for repositories without a reporter.
// Ids are "module.Class::test". The sections at the end are the authority on failures; "ok" is
// believed only before a summary. A failure of a subTest is its test's.
func ParseUnittest(r io.Reader, o Options) Report {
	o = o.withDefaults()
	m := &meter{r: r, left: o.MaxBytes}
	in := newLines(m)
	p := utParser{o: o, byID: map[string]int{}, cur: -1, sec: -1}
	for {
		line, _, ok := in.next()
		if !ok {
			break
		}
		p.line(plain(line))
		if len(p.rep.Tests) > o.MaxTests {
			p.rep.problem("too many tests: the rest was left out")
			p.ended = false
			break
		}
	}
	if m.over {
		return refuse(o)
	}
	p.flush()
	rep := &p.rep
	switch {
	case len(rep.Tests) == 0 && !p.ended:
		rep.Outcome = NoReport
	case p.ended:
		rep.Outcome = Complete
	default:
		rep.Outcome = Partial
		rep.problem("the output has no summary: the run ended early")
	}
	for i := range rep.Tests {
		t := &rep.Tests[i]
		if t.Status == "" {
			t.Status, t.Message = task.Missing, "began and has no result"
			rep.Outcome = Partial
		}
	}
	return *rep
}

type utParser struct {
	o     Options
	rep   Report
	byID  map[string]int
	cur   int // the test whose status is awaited, or -1
	sec   int // the test whose section is being read, or -1
	kind  string
	text  headTail
	ended bool
	tail  bool // the sections have begun
}

func (p *utParser) line(l string) {
	if m := utSection.FindStringSubmatch(l); m != nil && p.tail {
		p.flush()
		p.sec, p.kind, p.text = p.test(m[2], m[3]), m[1], headTail{max: p.o.MaxOutput}
		return
	}
	switch {
	case strings.HasPrefix(l, "======================================================================"):
		p.flush()
		p.tail, p.cur = true, -1
		return
	case utRan.MatchString(l):
		p.flush()
		p.ended, p.tail = true, true
		return
	}
	if p.tail {
		if p.sec >= 0 {
			p.text.WriteString(l + "\n")
		}
		return
	}
	if m := utHeader.FindStringSubmatch(l); m != nil && strings.Contains(m[2], ".") {
		i := p.test(m[1], m[2])
		p.cur = i
		p.status(m[3])
		return
	}
	if p.cur < 0 {
		return
	}
	if m := utDocLine.FindStringSubmatch(l); m != nil && p.status(m[1]) {
		return
	}
	if !p.status(l) && strings.HasSuffix(l, "ok") { // printed text without a line end, then the status
		p.status("ok")
	}
}

// test finds or adds a test. Python 3.11 and later repeat the method in the brackets.
func (p *utParser) test(name, where string) int {
	class := strings.TrimSuffix(where, "."+name)
	t := Test{ID: class + "::" + name, Suite: class, Name: name, Attempt: 1}
	if strings.HasPrefix(class, "unittest.loader._FailedTest") {
		t.ID, t.Suite = name, ""
	}
	if i, ok := p.byID[t.ID]; ok {
		return i
	}
	p.byID[t.ID] = len(p.rep.Tests)
	p.rep.Tests = append(p.rep.Tests, t)
	return len(p.rep.Tests) - 1
}

func (p *utParser) status(s string) bool {
	s = strings.TrimSpace(s)
	t := &p.rep.Tests[p.cur]
	var st task.TestStatus
	switch {
	case s == "ok":
		st = task.Pass
	case s == "FAIL":
		st = task.Fail
	case s == "ERROR":
		st = task.Errored
	case s == "expected failure":
		st = task.XFail
	case s == "unexpected success":
		st = task.Fail
		t.Message = s
	case strings.HasPrefix(s, "skipped"):
		st = task.Skip
		t.Message = strings.Trim(strings.TrimPrefix(s, "skipped"), " '\"")
	default:
		return false
	}
	if !t.Failed() {
		t.Status = st
	}
	p.cur = -1
	return true
}

// flush takes up the section that ends here.
func (p *utParser) flush() {
	if p.sec < 0 {
		return
	}
	t := &p.rep.Tests[p.sec]
	p.sec = -1
	body := p.text.String()
	first := t.Output == ""
	t.Output = clip(t.Output+strings.TrimSpace(body)+"\n", 2*p.o.MaxOutput)
	switch {
	case p.kind == "FAIL" || p.kind == "UNEXPECTED SUCCESS":
		t.Status = task.Fail
	case t.Suite == "":
		t.Status = task.Errored
		p.rep.BuildFailed = appendNew(p.rep.BuildFailed, t.ID)
		p.rep.problem("%s: could not be imported: %s", t.ID, lastError(body))
	case strings.Contains(body, ", in setUp") || strings.Contains(body, ", in tearDown") || strings.Contains(body, ", in setUpClass"):
		t.Status = task.Errored
	default:
		t.Status = task.Fail // an exception in the test's body
	}
	if first {
		if p.kind != "UNEXPECTED SUCCESS" {
			t.Message = pyError(body)
		}
		t.Frame = p.o.firstFrame(body)
		t.Signature = Signature(t.Message, t.Frame)
	}
}

// pyError is the text after a traceback: from the first line without indent to the end.
func pyError(body string) string {
	_, after, ok := strings.Cut(body, "Traceback (most recent call last):\n")
	if !ok {
		return clip(strings.TrimSpace(body), maxMessage)
	}
	for i, l := range strings.Split(after, "\n") {
		if l != "" && l[0] != ' ' {
			rest := strings.Join(strings.Split(after, "\n")[i:], "\n")
			return clip(strings.TrimSpace(rest), maxMessage)
		}
	}
	return lastError(body)
}
