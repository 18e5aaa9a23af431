package result

import (
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// ParseTRX reads what "dotnet test --logger trx" writes (the VSTest TeamTest schema of 2010). Ids
// are "class::method(parameters)". Passed alone is a pass: NotExecuted is a skip, and a test that
// was begun and not ended (Aborted, InProgress, Disconnected, NotRunnable, Pending) is
// [task.Missing]. The counters must agree with the results, else the report is [Partial].
func ParseTRX(r io.Reader, o Options) Report {
	o = o.withDefaults()
	m := &meter{r: r, left: o.MaxBytes}
	dec := xml.NewDecoder(newXMLText(m))
	dec.Entity = xml.HTMLEntity
	dec.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil }
	p := trxParser{o: o, classes: map[string]string{}, total: -1}
	err := p.run(dec)
	if m.over {
		return refuse(o)
	}
	rep := &p.rep
	switch {
	case !p.root:
		rep.Outcome = NoReport
		if err != nil && !errors.Is(err, io.EOF) {
			rep.problem("not a trx report: %v", err)
		}
		return *rep
	case err != nil:
		rep.Outcome = Partial
		rep.problem("the report is cut or broken: %v", err)
		p.cut = true
		if p.cur != nil {
			p.cur.outcome = "InProgress"
			p.done()
		}
	case p.aborted != "":
		rep.Outcome = Partial
		rep.problem("the run was aborted: %s", p.aborted)
	case p.total > len(p.cases):
		rep.Outcome = Partial
		rep.problem("the report says %d tests and holds %d", p.total, len(p.cases))
	default:
		rep.Outcome = Complete
	}
	for _, c := range p.cases { // the definitions stand after the results
		rep.Tests = append(rep.Tests, p.normal(c))
	}
	number(rep.Tests)
	return *rep
}

type trxCase struct {
	id, name, outcome, duration string
	message, stack, out         headTail
}

type trxParser struct {
	o       Options
	rep     Report
	root    bool
	elem    []string
	cur     *trxCase
	outer   []*trxCase
	def     string // id of the open definition
	cases   []*trxCase
	classes map[string]string // by test id
	total   int
	aborted string
	cut     bool
	info    bool // inside the run's own messages
}

func (p *trxParser) run(dec *xml.Decoder) error {
	for {
		tok, err := dec.Token()
		if err != nil {
			return err
		}
		switch t := tok.(type) {
		case xml.StartElement:
			if len(p.elem) >= maxXMLDepth {
				return errors.New("elements are nested too deeply")
			}
			if !p.root {
				if t.Name.Local != "TestRun" {
					return errors.New("the root element is <" + clip(t.Name.Local, 40) + ">")
				}
				p.root = true
			}
			p.elem = append(p.elem, t.Name.Local)
			p.start(t)
			if len(p.cases) >= p.o.MaxTests {
				return errors.New("too many tests: the rest was left out")
			}
		case xml.CharData:
			p.text(string(t))
		case xml.EndElement:
			if len(p.elem) > 0 {
				p.elem = p.elem[:len(p.elem)-1]
			}
			p.end(t.Name.Local)
			if p.root && len(p.elem) == 0 {
				return nil
			}
		}
	}
}

func (p *trxParser) start(e xml.StartElement) {
	switch e.Name.Local {
	case "UnitTestResult", "TestResult", "TestResultAggregation":
		c := &trxCase{
			id: attr(e, "testId"), name: clip(plain(attr(e, "testName")), 2000), outcome: attr(e, "outcome"), duration: attr(e, "duration"),
			message: headTail{max: p.o.MaxOutput}, stack: headTail{max: p.o.MaxOutput}, out: headTail{max: p.o.MaxOutput},
		}
		if p.cur != nil {
			p.outer = append(p.outer, p.cur)
		}
		p.cur = c
	case "UnitTest":
		p.def = attr(e, "id")
	case "TestMethod":
		class, _, _ := strings.Cut(attr(e, "className"), ", ") // the assembly's name may follow
		if p.def != "" {
			p.classes[p.def] = clip(plain(class), 1000)
		}
	case "Counters":
		if n, err := strconv.Atoi(attr(e, "total")); err == nil {
			p.total = n
		}
		for _, name := range []string{"aborted", "disconnected"} {
			if n := attr(e, name); n != "" && n != "0" {
				p.aborted = n + " tests " + name
			}
		}
	case "ResultSummary":
		if s := attr(e, "outcome"); s == "Aborted" || s == "Error" || s == "Timeout" {
			p.aborted = s
		}
	case "RunInfo":
		p.info = attr(e, "outcome") == "Error"
	}
}

func (p *trxParser) text(s string) {
	n := len(p.elem)
	if n == 0 {
		return
	}
	if p.cur == nil {
		if p.info && p.elem[n-1] == "Text" && strings.TrimSpace(s) != "" {
			p.rep.problem("%s", s)
			if strings.Contains(s, "aborted") || strings.Contains(s, "crashed") {
				p.aborted = firstLine(s)
			}
		}
		return
	}
	switch p.elem[n-1] {
	case "Message":
		p.cur.message.WriteString(s)
	case "StackTrace":
		p.cur.stack.WriteString(s)
	case "StdOut", "StdErr":
		p.cur.out.WriteString(s)
	}
}

func (p *trxParser) end(name string) {
	switch name {
	case "UnitTestResult", "TestResult", "TestResultAggregation":
		if p.cur != nil {
			p.done()
		}
	case "UnitTest":
		p.def = ""
	case "RunInfo":
		p.info = false
	}
}

func (p *trxParser) done() {
	p.cases = append(p.cases, p.cur)
	p.cur = nil
	if n := len(p.outer); n > 0 {
		p.cur, p.outer = p.outer[n-1], p.outer[:n-1]
	}
}

func (p *trxParser) normal(c *trxCase) Test {
	class := p.classes[c.id]
	t := Test{Suite: class, Name: c.name, Message: firstLines(c.message.String(), 20), Attempt: 1}
	if rest, ok := strings.CutPrefix(t.Name, class+"."); ok && class != "" {
		t.Name = rest
	}
	if i := strings.IndexAny(t.Name, "( "); i > 0 && strings.HasSuffix(t.Name, ")") {
		t.Name, t.Params = t.Name[:i], t.Name[i:]
	}
	t.ID = t.Name + t.Params
	if class != "" {
		t.ID = class + "::" + t.ID
	}
	t.Duration = trxDuration(c.duration)
	switch c.outcome {
	case "Passed", "PassedButRunAborted", "Warning":
		t.Status = task.Pass
	case "Failed", "Error":
		t.Status = task.Fail
	case "Timeout":
		t.Status = task.Timeout
	case "NotExecuted", "Inconclusive":
		t.Status = task.Skip
	default: // Aborted, InProgress, Disconnected, NotRunnable, Pending, Completed, none
		t.Status = task.Missing
		if t.Message == "" {
			t.Message = "the outcome is " + strconv.Quote(clip(c.outcome, 40))
		}
	}
	if p.cut && class == "" && c.id != "" { // it stands behind the cut, and the id needs it
		t.Status, t.Message = task.Missing, "the report ends before it says of which class this is"
	}
	stack := c.stack.String()
	t.Frame = p.o.netFrame(stack)
	t.Output = strings.TrimSpace(c.message.String() + "\n" + stack + "\n" + c.out.String())
	if t.Failed() {
		t.Signature = Signature(t.Message, t.Frame)
	}
	return t
}

// netFrame is the first frame of a .NET stack that has a file of the repository.
func (o Options) netFrame(stack string) string {
	for l := range strings.Lines(clip(stack, 64<<10)) {
		_, at, ok := strings.Cut(strings.TrimRight(l, "\r\n"), " in ")
		if !ok {
			continue
		}
		file, line, ok := cutLast(at, ":line ")
		if ok && o.ours(file) {
			return o.rel(strings.ReplaceAll(file, `\`, "/")) + ":" + line
		}
	}
	return ""
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// trxDuration reads "00:00:01.2345678".
func trxDuration(s string) time.Duration {
	part := strings.Split(s, ":")
	if len(part) != 3 {
		return 0
	}
	h, _ := strconv.Atoi(part[0])
	m, _ := strconv.Atoi(part[1])
	sec, _ := strconv.ParseFloat(part[2], 64)
	return seconds(float64(h)*3600 + float64(m)*60 + sec)
}

// firstLines keeps up to n lines that are not blank.
func firstLines(s string, n int) string {
	var keep []string
	for l := range strings.Lines(s) {
		if l = strings.TrimRight(l, "\r\n "); l != "" {
			keep = append(keep, l)
		}
		if len(keep) == n {
			break
		}
	}
	return clip(strings.Join(keep, "\n"), maxMessage)
}
