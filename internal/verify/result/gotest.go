package result

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// goEvent is one line of cmd/test2json's output.
type goEvent struct {
	Action      string
	Package     string
	ImportPath  string
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string
}

type goTest struct {
	name    string
	status  task.TestStatus // "" until a final event
	paused  bool
	elapsed float64
	out     headTail
	attempt int
}

type goPackage struct {
	path    string
	tests   []*goTest
	last    map[string]*goTest // the current attempt by name
	out     headTail           // the package's own output
	final   string
	build   string // import path whose build failed
	setup   bool   // "[setup failed]" or "[build failed]" in the output
	crash   headTail
	inCrash bool
	began   bool // a goroutine's stack followed the panic line
}

// ParseGo reads the output of "go test -json". Only a test's own final event makes it a pass,
// whatever the package says: TestMain may ignore the code. A test that has begun and has no
// final event is the culprit if the panic or the timeout names it, else [task.Missing].
// Packages that do not build are in BuildFailed, vet failures among them (the problem says
// "vet"); they have no tests.
func ParseGo(r io.Reader, o Options) Report {
	o = o.withDefaults()
	m := &meter{r: r, left: o.MaxBytes}
	in := newLines(m)
	p := goParser{o: o, byPath: map[string]*goPackage{}, builds: map[string]*headTail{}}
	for {
		line, ended, ok := in.next()
		if !ok {
			break
		}
		p.line(line, ended)
	}
	if m.over {
		return refuse(o)
	}
	if in.err != nil {
		p.rep.problem("reading the report: %v", in.err)
		p.cut = true
	}
	return p.finish()
}

type goParser struct {
	o       Options
	rep     Report
	pkgs    []*goPackage
	byPath  map[string]*goPackage
	builds  map[string]*headTail
	order   []string // of builds that failed
	events  int
	tests   int
	cut     bool
	tooMany bool
}

func (p *goParser) line(line string, ended bool) {
	if strings.TrimSpace(line) == "" {
		return
	}
	var e goEvent
	if line[0] != '{' || json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
		if !ended && line[0] == '{' {
			p.cut = true
			p.rep.problem("the report ends in the middle of a line")
			return
		}
		p.rep.problem("not of the report: %s", line)
		return
	}
	p.events++
	switch e.Action {
	case "build-output":
		b := p.builds[e.ImportPath]
		if b == nil {
			b = &headTail{max: 8 << 10}
			p.builds[e.ImportPath] = b
		}
		b.WriteString(e.Output)
		return
	case "build-fail":
		p.order = append(p.order, e.ImportPath)
		return
	}
	if e.Package == "" {
		return
	}
	pkg := p.byPath[e.Package]
	if pkg == nil {
		pkg = &goPackage{path: e.Package, last: map[string]*goTest{}, out: headTail{max: 8 << 10}, crash: headTail{max: 64 << 10}}
		p.byPath[e.Package] = pkg
		p.pkgs = append(p.pkgs, pkg)
	}
	p.event(pkg, e)
}

func (p *goParser) event(pkg *goPackage, e goEvent) {
	if e.Action == "output" {
		pkg.watch(e.Output)
	}
	if e.Test == "" {
		switch e.Action {
		case "output":
			pkg.out.WriteString(e.Output)
			if strings.HasPrefix(e.Output, "FAIL\t") && (strings.Contains(e.Output, "[build failed]") || strings.Contains(e.Output, "[setup failed]")) {
				pkg.setup = true
			}
		case "pass", "fail", "skip":
			pkg.final, pkg.build = e.Action, e.FailedBuild
		}
		return
	}
	t := pkg.last[e.Test]
	if t == nil || (e.Action == "run" && t.status != "") {
		if p.tests++; p.tests > p.o.MaxTests {
			p.tooMany = true
			return
		}
		n := 1
		if t != nil {
			n = t.attempt + 1
		}
		t = &goTest{name: e.Test, attempt: n, out: headTail{max: p.o.MaxOutput}}
		pkg.last[e.Test] = t
		pkg.tests = append(pkg.tests, t)
	}
	switch e.Action {
	case "output":
		if !goFraming(e.Output) {
			t.out.WriteString(e.Output)
		}
	case "pause":
		t.paused = true
	case "cont":
		t.paused = false
	case "pass":
		t.end(task.Pass, e.Elapsed)
	case "fail":
		t.end(task.Fail, e.Elapsed)
	case "skip":
		t.end(task.Skip, e.Elapsed)
	}
}

// end sets the final status; a failure once told is never taken back.
func (t *goTest) end(s task.TestStatus, elapsed float64) {
	if t.status != task.Fail {
		t.status = s
	}
	t.elapsed = elapsed
}

func goFraming(s string) bool {
	return strings.HasPrefix(s, "=== RUN ") || strings.HasPrefix(s, "=== PAUSE ") || strings.HasPrefix(s, "=== CONT ") || strings.HasPrefix(s, "=== NAME ")
}

// watch collects what follows a panic or a fatal error, whichever test it was printed under.
func (pkg *goPackage) watch(s string) {
	if strings.HasPrefix(s, "panic: ") || strings.HasPrefix(s, "fatal error: ") {
		pkg.inCrash = true
	}
	if pkg.inCrash {
		pkg.crash.WriteString(s)
		if goStack.MatchString(s) {
			pkg.began = true
		}
	}
}

var (
	goStack    = regexp.MustCompile(`^goroutine \d+ .*\[`)
	goRunning  = regexp.MustCompile(`(?m)^\t\t(\S+) \([^)]*\)$`)
	goTestName = regexp.MustCompile(`\.((?:Test|Fuzz|Example|Benchmark)\w*)(?:[.(\[ ]|$)`)
	goLogLine  = regexp.MustCompile(`^.*?\s{4}([\w.\-/]+\.go):(\d+): (.*)$`)
	goPosition = regexp.MustCompile(`^\t(\S+\.go):(\d+)( \+0x[0-9a-f]+)?$`)
)

func (p *goParser) finish() Report {
	rep := &p.rep
	rep.Outcome = Complete
	if p.events == 0 {
		rep.Outcome = NoReport
		return *rep
	}
	if p.cut || p.tooMany {
		rep.Outcome = Partial
	}
	if p.tooMany {
		rep.problem("more than %d tests: the rest was left out", p.o.MaxTests)
	}
	for _, pkg := range p.pkgs {
		p.finishPackage(pkg)
	}
	for _, path := range p.order {
		b, _, _ := strings.Cut(path, " [")
		named := slices.ContainsFunc(p.pkgs, func(k *goPackage) bool { return k.build == path })
		if !named {
			rep.BuildFailed = appendNew(rep.BuildFailed, b)
			rep.problem("%s: %s", b, p.buildReason(path))
		}
	}
	number(rep.Tests)
	return *rep
}

func (p *goParser) finishPackage(pkg *goPackage) {
	rep := &p.rep
	crash := pkg.crash.String()
	crashed := pkg.inCrash && pkg.began && pkg.final != "pass"
	culprits := map[string]task.TestStatus{}
	if crashed || pkg.final != "pass" {
		culprits = pkg.culprits(crash, crashed)
	}
	failed := 0
	for _, t := range pkg.tests {
		nt := p.test(pkg, t, culprits, crash, crashed)
		if nt.Failed() {
			failed++
		}
		if nt.Status == task.Missing {
			rep.Outcome = Partial
		}
		rep.Tests = append(rep.Tests, nt)
	}
	switch {
	case pkg.build != "" || pkg.setup:
		rep.BuildFailed = appendNew(rep.BuildFailed, pkg.path)
		rep.problem("%s: %s", pkg.path, p.buildReason(pkg.build))
	case pkg.final == "":
		rep.Outcome = Partial
		rep.problem("%s: the report has no end for this package", pkg.path)
	case crashed:
		rep.Outcome = Partial
		rep.problem("%s: %s; later tests of the package did not run", pkg.path, firstLine(crash))
	case pkg.final == "fail" && failed == 0:
		rep.Outcome = Partial
		rep.FailedSuites = appendNew(rep.FailedSuites, pkg.path)
		rep.problem("%s: the package failed although no test of it did: %s", pkg.path, lastLines(pkg.out.String(), 3))
	case pkg.final == "pass" && failed > 0:
		rep.problem("%s: the package passed although %d of its tests failed", pkg.path, failed)
	}
}

func (p *goParser) buildReason(path string) string {
	b := p.builds[path]
	if b == nil {
		return "build failed"
	}
	what, first := "build failed", ""
	for l := range strings.SplitSeq(b.String(), "\n") {
		switch {
		case strings.HasPrefix(l, "# ["):
			what = "vet failed"
		case l != "" && !strings.HasPrefix(l, "#") && first == "":
			first = l
		}
	}
	return what + ": " + first
}

// culprits says which unfinished tests the crash is about.
func (pkg *goPackage) culprits(crash string, crashed bool) map[string]task.TestStatus {
	out := map[string]task.TestStatus{}
	var open []*goTest // running, not waiting for their parallel turn
	for _, t := range pkg.last {
		if t.status == "" && !t.paused {
			open = append(open, t)
		}
	}
	if !crashed || len(open) == 0 {
		return out
	}
	if strings.HasPrefix(crash, "panic: test timed out") {
		for _, m := range goRunning.FindAllStringSubmatch(crash, 1000) {
			out[m[1]] = task.Timeout
		}
		if len(out) > 0 {
			return out
		}
		for _, t := range open {
			out[t.name] = task.Timeout
		}
		return out
	}
	stack, _, _ := strings.Cut(afterStackStart(crash), "\n\n")
	for _, m := range goTestName.FindAllStringSubmatch(stack, 200) {
		for _, t := range open {
			if t.name == m[1] || strings.HasPrefix(t.name, m[1]+"/") {
				out[t.name] = task.Fail
			}
		}
	}
	if len(out) == 0 && onlyOne(open) {
		for _, t := range open {
			out[t.name] = task.Fail
		}
	}
	return out
}

// onlyOne reports whether the running tests are one test and its parents.
func onlyOne(open []*goTest) bool {
	deepest := slices.MaxFunc(open, func(a, b *goTest) int { return len(a.name) - len(b.name) })
	return !slices.ContainsFunc(open, func(t *goTest) bool {
		return t != deepest && !strings.HasPrefix(deepest.name, t.name+"/")
	})
}

func afterStackStart(crash string) string {
	for i := 0; i < len(crash); {
		j := strings.IndexByte(crash[i:], '\n')
		if goStack.MatchString(crash[i:]) {
			return crash[i:]
		}
		if j < 0 {
			break
		}
		i += j + 1
	}
	return ""
}

func (p *goParser) test(pkg *goPackage, t *goTest, culprits map[string]task.TestStatus, crash string, crashed bool) Test {
	name, params, _ := strings.Cut(t.name, "/")
	nt := Test{
		ID: pkg.path + "::" + t.name, Suite: pkg.path, Name: name, Params: params, Status: t.status,
		Output: t.out.String(), Duration: seconds(t.elapsed), Attempt: t.attempt,
	}
	if nt.Status == "" {
		nt.Status = task.Missing
		if s, ok := culprits[t.name]; ok && pkg.last[t.name] == t {
			nt.Status = s
			nt.Message, nt.Frame = firstLine(crash), p.panicFrame(crash)
		}
	}
	if nt.Status == task.Missing {
		nt.Message = "began and has no result"
	}
	if nt.Status == task.Fail && nt.Message == "" {
		if crashed && (strings.Contains(nt.Output, "\npanic: ") || strings.HasPrefix(nt.Output, "panic: ") || strings.Contains(nt.Output, "fatal error: ")) {
			nt.Message, nt.Frame = firstLine(crash), p.panicFrame(crash)
		} else {
			nt.Message, nt.Frame = goMessage(nt.Output)
		}
	}
	if nt.Failed() {
		nt.Signature = Signature(nt.Message, nt.Frame)
	}
	return nt
}

// goMessage takes the last thing that the test logged, with the lines that continue it: what
// t.Fatal says is last, and logs look the same as errors.
func goMessage(out string) (message, frame string) {
	var cur []string
	for l := range strings.SplitSeq(out, "\n") {
		if m := goLogLine.FindStringSubmatch(l); m != nil {
			cur, frame = []string{m[3]}, m[1]+":"+m[2]
			continue
		}
		if strings.HasPrefix(l, "--- ") {
			continue
		}
		if frame != "" && strings.HasPrefix(l, "        ") && len(cur) < 20 {
			cur = append(cur, strings.TrimSpace(l))
		}
	}
	if frame == "" {
		for l := range strings.SplitSeq(out, "\n") {
			if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "--- ") && len(cur) < 10 {
				cur = append(cur, l)
			}
		}
	}
	return clip(strings.TrimSpace(strings.Join(cur, "\n")), maxMessage), frame
}

// panicFrame is the first frame of the panicking goroutine outside the runtime and testing.
func (p *goParser) panicFrame(crash string) string {
	stack, _, _ := strings.Cut(afterStackStart(crash), "\n\n")
	for l := range strings.SplitSeq(stack, "\n") {
		m := goPosition.FindStringSubmatch(l)
		if m == nil || strings.Contains(m[1], "/src/runtime/") || strings.Contains(m[1], "/src/testing/") || !p.o.ours(m[1]) {
			continue
		}
		return p.o.rel(m[1]) + ":" + m[2]
	}
	return ""
}

func seconds(s float64) time.Duration {
	if !(s > 0 && s < 1e9) { // also NaN
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

func firstLine(s string) string {
	l, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	l = strings.TrimSuffix(strings.TrimSpace(l), " [recovered]")
	return clip(strings.TrimSuffix(l, " [recovered, repanicked]"), maxMessage)
}

func lastLines(s string, n int) string {
	ls := strings.Split(strings.TrimSpace(s), "\n")
	return fmt.Sprint(strings.Join(ls[max(0, len(ls)-n):], " | "))
}
