package result

import (
	"encoding/xml"
	"errors"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

const maxXMLDepth = 200

// ParseJUnit reads JUnit XML of any dialect: pytest (with junit_family=xunit1 the ids are
// pytest's own node ids), jest-junit, Surefire, Gradle, ctest, node. Control characters, Latin-1
// and UTF-16 are cleaned on the way in.
//
// <failure> is [task.Fail]. <error> is [task.Errored] where it is about set-up, tear-down,
// collection or loading, and [task.Fail] where an exception left the test's body: Surefire and
// unittest call those errors. Ids are "classname::name".
func ParseJUnit(r io.Reader, o Options) Report {
	o = o.withDefaults()
	m := &meter{r: r, left: o.MaxBytes}
	dec := xml.NewDecoder(newXMLText(m))
	dec.Entity = xml.HTMLEntity
	dec.CharsetReader = func(_ string, in io.Reader) (io.Reader, error) { return in, nil } // already UTF-8
	p := junitParser{o: o, byID: map[string]int{}}
	err := p.run(dec)
	if m.over {
		return refuse(o)
	}
	rep := &p.rep
	switch {
	case !p.root:
		rep.Outcome = NoReport
		if err != nil && !errors.Is(err, io.EOF) {
			rep.problem("not JUnit XML: %v", err)
		}
		return *rep
	case err != nil:
		rep.Outcome = Partial
		rep.problem("the report is cut or broken: %v", err)
		if p.tc != nil {
			p.tc.status = task.Missing
			p.tc.message = "the report ends in the middle of this test"
			p.closeCase()
		}
	default:
		rep.Outcome = Complete
		if p.partial {
			rep.Outcome = Partial
		}
	}
	number(rep.Tests)
	return *rep
}

type junitSuite struct {
	name            string
	claimed, failed int // failures and errors: as the attributes say, as seen
	tests           int // closed in it
	out             headTail
}

type junitCase struct {
	name, class, file, attrStatus string
	status                        task.TestStatus
	message, detail, etype        string
	frame                         string // where the dialect says it apart
	duration                      float64
	attempt                       int
	flaky, errored                bool
	out                           headTail
}

type junitParser struct {
	o       Options
	rep     Report
	byID    map[string]int
	suites  []junitSuite
	tc      *junitCase
	root    bool
	partial bool
	elem    []string
	text    *headTail // where character data goes, nil for nowhere
}

// run reads to the end of the root element. A nil error means that the root was closed.
func (p *junitParser) run(dec *xml.Decoder) error {
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
				if n := t.Name.Local; n != "testsuites" && n != "testsuite" {
					return errors.New("the root element is <" + clip(n, 40) + ">")
				}
				p.root = true
			}
			p.elem = append(p.elem, t.Name.Local)
			p.start(t)
			if len(p.rep.Tests) >= p.o.MaxTests {
				return errors.New("too many tests: the rest was left out")
			}
		case xml.CharData:
			if p.text != nil {
				p.text.WriteString(string(t))
			}
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

func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (p *junitParser) start(e xml.StartElement) {
	switch e.Name.Local {
	case "testsuite":
		f, _ := strconv.Atoi(attr(e, "failures"))
		n, _ := strconv.Atoi(attr(e, "errors"))
		p.suites = append(p.suites, junitSuite{name: clip(attr(e, "name"), 500), claimed: f + n, out: headTail{max: p.o.MaxOutput}})
	case "testcase":
		d, _ := strconv.ParseFloat(strings.ReplaceAll(attr(e, "time"), ",", ""), 64)
		p.tc = &junitCase{
			name: clip(plain(attr(e, "name")), 2000), class: clip(attr(e, "classname"), 1000), file: p.o.rel(attr(e, "file")),
			attrStatus: attr(e, "status"), duration: d, attempt: 1, out: headTail{max: p.o.MaxOutput},
		}
	case "failure", "error", "skipped", "flakyFailure", "flakyError", "rerunFailure", "rerunError":
		p.problemElement(e)
	case "system-out", "system-err":
		if p.tc != nil && p.text == nil {
			p.text = &p.tc.out
		} else if n := len(p.suites); p.tc == nil && n > 0 {
			p.text = &p.suites[n-1].out
		}
	}
}

func (p *junitParser) problemElement(e xml.StartElement) {
	tc := p.tc
	if tc == nil {
		return
	}
	msg := clip(plain(attr(e, "message")), maxMessage)
	take := func(s task.TestStatus) {
		if tc.status == task.Fail && s != task.Fail { // a failure outranks what follows it
			return
		}
		tc.status, tc.message, tc.etype = s, msg, attr(e, "type")
		if s != task.Skip && s != task.XFail {
			p.text = &headTail{max: p.o.MaxOutput}
		}
	}
	switch e.Name.Local {
	case "failure":
		if tc.status == task.Skip && tc.etype == "todo" {
			tc.status = task.XFail
			return
		}
		take(task.Fail)
	case "error":
		tc.errored = true
		take(task.Errored)
	case "skipped":
		if tc.status == "" {
			take(task.Skip)
			if tc.etype == "pytest.xfail" {
				tc.status = task.XFail
			}
		}
	case "flakyFailure", "flakyError":
		tc.flaky = true
		tc.attempt++
		if tc.message == "" {
			tc.message = msg
		}
	default:
		tc.attempt++
	}
}

func (p *junitParser) end(name string) {
	switch name {
	case "failure", "error":
		if p.tc != nil && p.text != nil {
			p.tc.detail = p.text.String()
		}
		p.text = nil
	case "system-out", "system-err", "skipped", "flakyFailure", "flakyError", "rerunFailure", "rerunError":
		if p.text != nil && (p.tc == nil || p.text == &p.tc.out) {
			p.text = nil
		}
	case "testcase":
		if p.tc != nil {
			p.closeCase()
		}
	case "testsuite":
		n := len(p.suites)
		if n == 0 {
			return
		}
		s := p.suites[n-1]
		p.suites = p.suites[:n-1]
		if last := len(p.rep.Tests) - 1; s.tests == 1 && last >= 0 && p.rep.Tests[last].Output == "" {
			p.rep.Tests[last].Output = strings.TrimSpace(s.out.String())
		}
		if n > 1 {
			p.suites[n-2].failed += s.failed
		}
		if s.claimed > 0 && s.failed == 0 {
			p.partial = true
			p.rep.FailedSuites = appendNew(p.rep.FailedSuites, s.name)
			p.rep.problem("%s: says %d failures, but none of its tests is one", s.name, s.claimed)
		}
	}
}

// closeCase turns the open test case into a test.
func (p *junitParser) closeCase() {
	tc := p.tc
	p.tc, p.text = nil, nil
	t := p.normal(tc)
	if t.ID == "" {
		return
	}
	if (t.Failed() || tc.flaky) && len(p.suites) > 0 {
		p.suites[len(p.suites)-1].failed++
	}
	if i, ok := p.byID[t.ID]; ok && tc.errored && strings.HasPrefix(tc.message, "failed on teardown") {
		old := &p.rep.Tests[i] // pytest writes a second case for it
		if !old.Failed() {
			old.Status, old.Message, old.Frame, old.Signature = t.Status, t.Message, t.Frame, t.Signature
		}
		old.Output = clip(old.Output+"\n"+t.Output, 2*p.o.MaxOutput)
		return
	}
	if n := len(p.suites); n > 0 {
		p.suites[n-1].tests++
	}
	p.byID[t.ID] = len(p.rep.Tests)
	p.rep.Tests = append(p.rep.Tests, t)
}

func (p *junitParser) normal(tc *junitCase) Test {
	t := Test{File: tc.file, Status: tc.status, Message: tc.message, Duration: seconds(tc.duration), Attempt: tc.attempt}
	t.Suite, t.Name, t.Params = p.names(tc)
	if t.Status == "" {
		t.Status = task.Pass
		if tc.flaky {
			t.Status = task.Flaky
		}
	}
	p.ctest(tc, &t)
	phpunit(tc, &t)
	if strings.HasPrefix(tc.etype, "test ") && cargoPanic.MatchString(tc.detail) { // nextest: "test failure with exit code 101"
		t.Message, tc.frame = p.o.rustMessage(tc.detail, tc.name)
		tc.etype = ""
	}
	t.ID = p.id(tc)
	if tc.etype != "" && t.Failed() && !strings.Contains(t.Message, tc.etype) && !strings.HasSuffix(tc.etype, "Failure") && tc.etype != "failed" {
		t.Message = strings.TrimSuffix(tc.etype+": "+t.Message, ": ")
	}
	if t.Failed() && t.Message == "" {
		t.Message = firstLine(tc.detail)
	}
	if t.Failed() && t.Message == "" && tc.attrStatus == "fail" {
		t.Message = p.o.outputMessage(tc.out.String()) // ctest has the output alone
	}
	t.Frame = p.o.firstFrame(tc.detail)
	if file, line, ok := cutLast(tc.frame, ":"); ok && p.o.ours(file) {
		t.Frame = p.o.rel(file) + ":" + line
	}
	t.Output = strings.TrimSpace(tc.detail + "\n" + tc.out.String())
	collection := tc.message == "collection failure" || (tc.errored && tc.class == "" && tc.message == "collection error")
	switch {
	case collection:
		if tc.file == "" {
			t.ID = tc.name
		} else {
			t.ID = tc.file
		}
		t.Message = lastError(tc.detail)
		p.rep.BuildFailed = appendNew(p.rep.BuildFailed, t.ID)
		p.rep.problem("%s: could not be collected: %s", t.ID, t.Message)
	case t.Status == task.Errored && strings.HasSuffix(tc.etype, "TestTimedOutException"):
		t.Status = task.Timeout
	case t.Status == task.Errored && p.inBody(tc):
		t.Status = task.Fail
	case t.Status == task.Fail && (tc.etype == "testTimeoutFailure" || tc.etype == "test timeout"): // node, nextest
		t.Status = task.Timeout
	case t.Status == task.Fail && tc.etype == "cancelledByParent":
		t.Status = task.Missing
		if tc.duration > 0 {
			t.Status = task.Timeout
		}
	case isScript(tc.name) && len(p.suites) == 0: // node's line for a whole file
		p.wholeFile(tc, &t)
	}
	if t.Failed() {
		t.Signature = Signature(t.Message, t.Frame)
	}
	return t
}

// wholeFile handles node's entry for a file of which no test was reported: it did not load, or
// the process ended inside it. It is never a test.
func (p *junitParser) wholeFile(tc *junitCase, t *Test) {
	name := p.o.rel(tc.name)
	if t.Failed() {
		t.ID, t.Status = name, task.Errored
		p.rep.BuildFailed = appendNew(p.rep.BuildFailed, name)
		p.rep.problem("%s: the file did not load: %s", name, t.Message)
		return
	}
	t.ID = ""
	p.rep.problem("%s: no test of the file was reported: it has none, or the process ended early", name)
}

// inBody reports whether an <error> is an exception from the test itself.
func (p *junitParser) inBody(tc *junitCase) bool {
	if tc.class == "" || tc.name == "" || tc.name == "initializationError" || tc.class == tc.name {
		return false
	}
	for _, s := range []string{"failed on setup", "failed on teardown", "collection"} {
		if strings.HasPrefix(tc.message, s) {
			return false
		}
	}
	for _, s := range []string{"ClassNotFound", "NoClassDefFound", "ExceptionInInitializer", "UnsupportedClassVersion", "ParameterResolution", "RiskyTestError"} {
		if strings.Contains(tc.etype, s) {
			return false
		}
	}
	if strings.Contains(tc.detail, "@BeforeAll") || strings.Contains(tc.detail, "@BeforeEach") {
		return false
	}
	return strings.TrimSpace(tc.detail) != ""
}

// ctest marks tests whose program is missing as "notrun" with a <skipped>, and those that
// skipped themselves alike; one that is switched off is "disabled" and has no mark at all.
func (p *junitParser) ctest(tc *junitCase, t *Test) {
	switch {
	case tc.attrStatus == "disabled" && t.Status == task.Pass:
		t.Status, t.Message = task.Skip, "disabled"
	case tc.attrStatus == "notrun" && t.Status == task.Skip && !strings.HasPrefix(tc.message, "SKIP_"):
		t.Status = task.Missing
		p.partial = true
		p.rep.problem("%s: not run: %s", tc.name, tc.message)
		if strings.Contains(tc.message, "executable") {
			p.rep.BuildFailed = appendNew(p.rep.BuildFailed, tc.name)
		}
	}
}

var phpData = regexp.MustCompile(`^(\S+) with data set (.+)$`)

// phpunit takes the data set's name from the test's, and the message from below the test's name.
func phpunit(tc *junitCase, t *Test) {
	if !strings.HasSuffix(tc.file, ".php") {
		return
	}
	if m := phpData.FindStringSubmatch(tc.name); m != nil {
		t.Name, t.Params = m[1], m[2]
	}
	if !t.Failed() {
		return
	}
	_, text, _ := strings.Cut(tc.detail, "\n")
	text, stack, _ := strings.Cut(text, "\n\n")
	t.Message = firstLines(text, 20)
	if path, line, ok := cutLast(firstLine(stack), ":"); ok && path != "" {
		tc.frame = path + ":" + line
	}
}

var outputFailure = regexp.MustCompile(`(?im)^.*(?:\bassert|\bfail(?:ed|ure)?\b|\berror\b|\bexpected\b|^not ok\b).*$`)

// outputMessage is what a test program that only printed said of its failure: the first few lines
// that name one, else the last line.
func (o Options) outputMessage(out string) string {
	var keep []string
	if o.Root != "" {
		out = strings.ReplaceAll(out, strings.TrimSuffix(o.Root, "/")+"/", "")
	}
	for _, l := range outputFailure.FindAllString(clip(out, 64<<10), 3) {
		keep = append(keep, strings.TrimSpace(l))
	}
	if len(keep) == 0 {
		return clip(lastLine(out), maxMessage)
	}
	return clip(strings.Join(keep, "\n"), maxMessage)
}

func isScript(name string) bool {
	return slices.Contains([]string{".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"}, path.Ext(name)) && strings.Contains(name, "/")
}

func (p *junitParser) suitePath() string {
	var parts []string
	for _, s := range p.suites {
		if s.name != "" {
			parts = append(parts, s.name)
		}
	}
	return strings.Join(parts, " > ")
}

// names splits the case into suite, name and parameters ("test_x[1-a]").
func (p *junitParser) names(tc *junitCase) (suite, name, params string) {
	suite, name = tc.class, tc.name
	if suite == "" || suite == "test" {
		suite = p.suitePath()
	}
	if i := strings.IndexByte(name, '['); i > 0 && strings.HasSuffix(name, "]") {
		name, params = name[:i], name[i+1:len(name)-1]
	}
	return suite, name, params
}

func (p *junitParser) id(tc *junitCase) string {
	if tc.file != "" && strings.HasSuffix(tc.file, ".py") && tc.class != "" {
		module := strings.ReplaceAll(strings.TrimSuffix(tc.file, ".py"), "/", ".")
		class := strings.TrimPrefix(strings.TrimPrefix(tc.class, module), ".")
		if class == tc.class { // a rootdir above the module's own
			return tc.class + "::" + tc.name
		}
		if class != "" {
			class = strings.ReplaceAll(class, ".", "::") + "::"
		}
		return tc.file + "::" + class + tc.name
	}
	switch {
	case tc.class == "" || tc.class == "test": // node's classname is always "test"
		if s := p.suitePath(); s != "" && s != "pytest" {
			return s + " > " + tc.name
		}
		return tc.name
	case tc.class == tc.name:
		return tc.name
	}
	return tc.class + "::" + tc.name
}

// lastError is the last line of a Python traceback that names an error.
func lastError(detail string) string {
	ls := strings.Split(strings.TrimSpace(detail), "\n")
	for i := len(ls) - 1; i >= 0; i-- {
		l := strings.TrimSpace(strings.TrimPrefix(ls[i], "E "))
		if l != "" {
			return clip(l, maxMessage)
		}
	}
	return ""
}
