package result

import (
	"cmp"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// EndMark begins the line that the verifier's own command writes after a runner whose text has
// no end of its own: [ParseCargo] calls a report without it cut.
const EndMark = "daybreak: the command ended with "

var (
	cargoRunning = regexp.MustCompile(`^\s+Running (unittests )?(?:(\S+) )?\(?(\S*?)\)?$`)
	cargoDoc     = regexp.MustCompile(`^\s+Doc-tests (\S+)$`)
	cargoCount   = regexp.MustCompile(`^running (\d+) tests?$`)
	cargoTest    = regexp.MustCompile(`^(.*?)test (\S.*?) \.\.\. ?(.*)$`)
	cargoResult  = regexp.MustCompile(`^(ok|FAILED|ignored(?:, .*)?|bench: .*)$`)
	cargoSummary = regexp.MustCompile(`^test result: (?:ok|FAILED)\. (\d+) passed; (\d+) failed; (\d+) ignored; (\d+) measured; \d+ filtered out`)
	cargoBlock   = regexp.MustCompile(`^---- (.+) stdout ----$`)
	cargoNoBuild = regexp.MustCompile("^error: could not compile `([^`]+)`(?: \\(([^)]*)\\))?")
	cargoFailed  = regexp.MustCompile("^error: (?:doc)?test failed, to rerun pass `")
	cargoDied    = regexp.MustCompile(`^\s+process didn't exit successfully: .* \(((?:signal|exit)[^)]*)\)$`)
	cargoThread  = regexp.MustCompile(`^thread '(.+?)' (?:\(\d+\) )?(panicked at|` + overflowed + `)`)
	cargoInner   = regexp.MustCompile(`test \S[^\n]*? \.\.\. (?:ok|FAILED|ignored)`)
	cargoPanic   = regexp.MustCompile(`(?m)^thread '(.+?)' (?:\(\d+\) )?panicked at (?:'((?s:.*?))', )?(\S+?):(\d+):\d+:?$`)
	cargoHash    = regexp.MustCompile(`-[0-9a-f]{16}(\.exe)?$`)
	cargoLine    = regexp.MustCompile(` \(line (\d+)\)`)
	cargoError   = regexp.MustCompile(`^error(\[E\d+\])?: `)
	cargoAt      = regexp.MustCompile(`^\s+--> (\S+?):\d+:\d+$`)
	cargoExpect  = regexp.MustCompile(`(?s)note: panic did not contain expected string.*|note: test did not panic as expected.*`)
)

// ParseCargo reads the text of "cargo test", cargo's own lines and libtest's together. Ids are
// "target (path)::module::test"; those of documentation tests are without their line numbers, and
// several of one item are numbered in the order of their lines. What the tests print beside the
// capture may stand anywhere in a line: a result is believed when the summary's numbers agree.
// A target that ends without its summary died or left: its test is the culprit where a thread
// names it, the others are not in the report. Nothing after a failed build has run.
func ParseCargo(r io.Reader, o Options) Report {
	o = o.withDefaults()
	m := &meter{r: r, left: o.MaxBytes}
	in := newLines(m)
	p := cargoParser{o: o}
	for {
		line, _, ok := in.next()
		if !ok {
			break
		}
		p.read(plain(line))
		if p.count > o.MaxTests {
			p.rep.problem("too many tests: the rest was left out")
			p.partial = true
			break
		}
	}
	if m.over {
		return refuse(o)
	}
	p.release(p.held)
	p.close()
	rep := &p.rep
	switch {
	case !p.seen:
		rep.Outcome = NoReport
		if p.firstErr != "" {
			rep.problem("%s", p.firstErr)
		}
		return *rep
	case p.partial:
		rep.Outcome = Partial
	case !p.ended:
		rep.Outcome = Partial
		rep.problem("the output is cut: it ends before the command did")
	default:
		rep.Outcome = Complete
	}
	number(rep.Tests)
	return *rep
}

type cargoCase struct {
	name      string
	line      int // of a documentation test
	status    task.TestStatus
	message   string
	tentative bool // the result shared its line with something printed
	out       headTail
}

// cargoTarget is one test program, or the documentation tests of a crate.
type cargoTarget struct {
	group, file string
	doc         bool
	began       bool // "running N tests" was seen
	open        bool // and its summary was not
	known       map[string]*cargoCase
	tests       []*cargoCase
	group0      int // tests before the current group of results
	failed      bool
	died        string
	said        headTail // printed beside the capture
	culprit     string
}

type cargoParser struct {
	o        Options
	rep      Report
	cur      *cargoTarget
	wait     *cargoCase // began on a line of its own: its result comes
	block    *cargoCase // whose output is being read
	quoted   *cargoCase // whose output was read before what looks like the list of failures
	listed   int        // names in that list
	section  string     // "", "results", "failures", "list"
	errText  string     // the compiler's last error, to be placed
	firstErr string     // what cargo or the compiler said first
	held     []string   // lines among which the words about a stack may be
	count    int
	seen     bool
	ended    bool
	partial  bool
}

// overflowed ends what the standard library says of a stack, piece by piece: what other tests say
// at the time stands between the pieces.
const overflowed = "has overflowed its stack"

// maxTangle is over how many lines those pieces are looked for.
const maxTangle = 8

// read takes the pieces apart from what stands between them.
func (p *cargoParser) read(l string) {
	if len(p.held) == 0 && (p.cur == nil || p.section != "results" || !strings.HasPrefix(l, "thread '") || cargoThread.MatchString(l)) {
		p.line(l)
		return
	}
	p.held = append(p.held, l)
	text := strings.Join(p.held, "\n")
	end := strings.Index(text, overflowed)
	if end < 0 {
		if len(p.held) == maxTangle || strings.HasPrefix(l, EndMark) {
			p.release(p.held)
		}
		return
	}
	text = text[:end+len(overflowed)]
	lines, words := cargoInner.FindAllString(text, -1), strings.ReplaceAll(cargoInner.ReplaceAllString(text, ""), "\n", "")
	for _, result := range []string{"ok", "FAILED"} {
		if rest, ok := strings.CutPrefix(words, "thread '"+result); ok && p.wait != nil { // of the test that began before
			lines, words = slices.Insert(lines, 0, result), "thread '"+rest
			break
		}
	}
	p.release(append(lines, words))
}

func (p *cargoParser) release(lines []string) {
	p.held = nil
	for _, l := range lines {
		p.line(l)
	}
}

func (p *cargoParser) line(l string) {
	p.ended = false
	if strings.HasPrefix(l, EndMark) {
		p.ended = true
		return
	}
	quoted := p.section == "failures" || p.section == "list" // what tests printed may look like anything
	if !quoted && p.cargoOwn(l) || p.cur == nil {
		return
	}
	if m := cargoCount.FindStringSubmatch(l); m != nil && !p.cur.open {
		p.cur.began, p.cur.open, p.cur.group0 = true, true, len(p.cur.tests)
		p.section, p.block, p.wait = "results", nil, nil
		return
	}
	if m := cargoSummary.FindStringSubmatch(l); m != nil && p.cur.open && p.section != "failures" && (p.section != "list" || p.listed > 0) {
		p.summary(m[1:])
		return
	}
	switch p.section {
	case "results":
		p.result(l)
	case "failures":
		p.failure(l)
	case "list":
		p.list(l)
	}
}

// list reads the names that libtest repeats before the summary. Anything else says that the words
// before it were some test's output.
func (p *cargoParser) list(l string) {
	if c := p.cur.known[strings.TrimSpace(l)]; c != nil && strings.HasPrefix(l, "    ") {
		c.status, c.tentative = task.Fail, false
		p.listed++
	} else if strings.TrimSpace(l) != "" {
		p.section, p.block = "failures", p.quoted
		p.failure(l)
	}
}

// cargoOwn handles the lines of cargo itself and of the compiler.
func (p *cargoParser) cargoOwn(l string) bool {
	if m := cargoRunning.FindStringSubmatch(l); m != nil && (m[2] != "" || strings.Contains(m[3], "/deps/")) {
		p.target(m[1] != "", m[2], m[3])
		return true
	}
	if m := cargoDoc.FindStringSubmatch(l); m != nil {
		p.close()
		p.cur = &cargoTarget{group: m[1] + " (doc)", doc: true, known: map[string]*cargoCase{}}
		p.seen = true
		return true
	}
	if m := cargoNoBuild.FindStringSubmatch(l); m != nil {
		name := m[1]
		if m[2] != "" {
			name += " (" + strings.ReplaceAll(m[2], `"`, "") + ")"
		}
		p.seen = true
		p.rep.BuildFailed = appendNew(p.rep.BuildFailed, name)
		p.rep.problem("%s: %s", name, l)
		return true
	}
	if p.cur == nil {
		if cargoError.MatchString(l) {
			p.errText = l
			p.firstErr = cmp.Or(p.firstErr, l)
		} else if m := cargoAt.FindStringSubmatch(l); m != nil && p.errText != "" {
			p.rep.problem("%s: %s", p.o.rel(m[1]), p.errText)
			p.errText = ""
		}
		return false
	}
	if cargoFailed.MatchString(l) {
		p.cur.failed = true
		return true
	}
	if m := cargoDied.FindStringSubmatch(l); m != nil && p.cur.failed {
		p.cur.died = m[1]
		return true
	}
	return false
}

func (p *cargoParser) target(unit bool, file, program string) {
	p.close()
	name := cargoHash.ReplaceAllString(program[strings.LastIndexByte(program, '/')+1:], "")
	p.cur = &cargoTarget{group: name, file: file, known: map[string]*cargoCase{}}
	if file != "" && file != program {
		p.cur.group = name + " (" + file + ")"
	}
	if unit {
		p.cur.file = "" // a unit test may be in any module of the crate
	}
	p.section, p.seen = "", true
}

// test finds or adds a test by the name that libtest prints.
func (p *cargoParser) test(printed string) *cargoCase {
	name := printed
	for _, tail := range []string{" - should panic", " - compile fail", " - compile"} {
		name = strings.TrimSuffix(name, tail)
	}
	if c := p.cur.known[name]; c != nil {
		return c
	}
	c := &cargoCase{name: clip(name, 2000), out: headTail{max: p.o.MaxOutput}}
	if m := cargoLine.FindStringSubmatch(name); m != nil && p.cur.doc {
		c.line, _ = strconv.Atoi(m[1])
		c.name = clip(cargoLine.ReplaceAllString(name, ""), 2000)
	}
	p.cur.known[name] = c
	p.cur.tests = append(p.cur.tests, c)
	p.count++
	return c
}

func (p *cargoParser) result(l string) {
	if l == "failures:" {
		p.section, p.wait = "failures", nil
		return
	}
	if m := cargoThread.FindStringSubmatch(l); m != nil {
		p.cur.culprit = m[1]
	}
	m := cargoTest.FindStringSubmatch(l)
	if m == nil {
		if name, ok := strings.CutSuffix(l, " has been running for over 60 seconds"); ok && strings.HasPrefix(l, "test ") {
			p.test(strings.TrimPrefix(name, "test "))
			return
		}
		if p.wait != nil && p.take(p.wait, l, true) {
			p.wait = nil
			return
		}
		p.cur.said.max = p.o.MaxOutput
		p.cur.said.WriteString(l + "\n")
		return
	}
	c := p.test(m[2])
	if c.status != "" { // printed twice: by whom is not known
		p.partial = true
		p.rep.problem("%s: has two results", c.name)
		c.status = task.Fail
		return
	}
	if !p.take(c, m[3], m[1] != "") {
		p.wait = c
	}
}

// take reads a result. Text of the test may stand before it.
func (p *cargoParser) take(c *cargoCase, text string, shared bool) bool {
	m := cargoResult.FindStringSubmatch(text)
	if m == nil {
		for _, end := range []string{"ok", "FAILED"} {
			if strings.HasSuffix(text, end) {
				m, shared = []string{text, end}, true
			}
		}
	}
	if m == nil {
		return false
	}
	c.tentative = shared
	switch {
	case m[1] == "FAILED":
		c.status = task.Fail
	case strings.HasPrefix(m[1], "ignored"):
		c.status, c.message = task.Skip, strings.TrimPrefix(strings.TrimPrefix(m[1], "ignored"), ", ")
	default:
		c.status = task.Pass
	}
	return true
}

func (p *cargoParser) failure(l string) {
	if m := cargoBlock.FindStringSubmatch(l); m != nil && p.cur.known[m[1]] != nil {
		p.block = p.cur.known[m[1]]
		return
	}
	if l == "failures:" {
		p.section, p.quoted, p.block, p.listed = "list", p.block, nil, 0
		return
	}
	if p.block != nil {
		p.block.out.WriteString(l + "\n")
	}
}

// summary closes a group of results and holds its numbers against what was read.
func (p *cargoParser) summary(want []string) {
	p.cur.open, p.section, p.wait, p.block = false, "", nil, nil
	got := map[task.TestStatus]int{}
	list := p.cur.tests[p.cur.group0:]
	for _, c := range list {
		got[c.status]++
	}
	n := make([]int, len(want))
	for i, s := range want {
		n[i], _ = strconv.Atoi(s)
	}
	if got[task.Pass] == n[0]+n[3] && got[task.Fail] == n[1] && got[task.Skip] == n[2] {
		return
	}
	p.partial = true
	p.rep.problem("%s: says %d passed, %d failed, %d ignored, and shows %d, %d, %d", p.cur.group, n[0]+n[3], n[1], n[2], got[task.Pass], got[task.Fail], got[task.Skip])
	for _, c := range list {
		if c.tentative {
			c.status, c.message = task.Missing, "its result is in the middle of other output"
		}
	}
}

// close turns the current target's tests into the report's.
func (p *cargoParser) close() {
	t := p.cur
	p.cur, p.section, p.wait, p.block = nil, "", nil, nil
	if t == nil {
		return
	}
	if t.open {
		p.crashed(t)
	} else if t.failed && !slices.ContainsFunc(t.tests, func(c *cargoCase) bool { return c.status == task.Fail }) {
		p.rep.FailedSuites = appendNew(p.rep.FailedSuites, t.group)
		p.rep.problem("%s: failed without a failing test (%s)", t.group, t.died)
	} else if !t.began && !t.doc {
		p.rep.problem("%s: has a runner of its own, whose tests are not known", t.group)
	}
	if t.doc {
		slices.SortStableFunc(t.tests, func(a, b *cargoCase) int {
			if a.name != b.name {
				return strings.Compare(a.name, b.name)
			}
			return a.line - b.line
		})
	}
	for _, c := range t.tests {
		p.rep.Tests = append(p.rep.Tests, p.normal(t, c))
	}
}

// crashed is a target whose program ended before its summary.
func (p *cargoParser) crashed(t *cargoTarget) {
	p.partial = true
	why := t.died
	if why == "" {
		why = "nothing says why"
	}
	p.rep.problem("%s: ended before its summary: %s", t.group, why)
	for _, c := range t.tests {
		if t.doc && c.status != "" { // which of several alike they are is known only from all of them
			c.status, c.message = task.Missing, "the report ends among the documentation tests"
		}
	}
	if t.culprit == "" || !t.failed {
		return
	}
	p.cur = t // for test
	c := p.test(t.culprit)
	p.cur = nil
	if c.status == "" {
		c.status = task.Fail
		c.out.WriteString(t.said.String())
		c.message = why
		for l := range strings.Lines(t.said.String()) {
			if m := cargoThread.FindStringSubmatch(l); m != nil && m[1] == t.culprit {
				c.message = strings.TrimSpace(l[strings.LastIndex(l, m[2]):]) + " (" + why + ")"
			}
		}
	}
}

func (p *cargoParser) normal(t *cargoTarget, c *cargoCase) Test {
	x := Test{ID: t.group + "::" + c.name, Suite: t.group, File: t.file, Name: c.name, Status: c.status, Message: c.message, Attempt: 1}
	if t.doc {
		x.File, _, _ = strings.Cut(c.name, " - ")
	}
	if x.Status == "" {
		x.Status, x.Message = task.Missing, "began and has no result"
		p.partial = true
	}
	x.Output = strings.TrimSpace(c.out.String())
	if x.Failed() {
		if x.Message == "" {
			x.Message, x.Frame = p.o.rustMessage(x.Output, c.name)
		}
		x.Signature = Signature(x.Message, x.Frame)
	}
	return x
}

// rustMessage is what a failing test says last of itself, and where. Names and numbers of threads
// are left out.
func (o Options) rustMessage(out, name string) (message, frame string) {
	if m := cargoExpect.FindString(out); m != "" {
		return clip(strings.Join(strings.Fields(m), " "), maxMessage), ""
	}
	all := cargoPanic.FindAllStringSubmatchIndex(out, 100)
	if len(all) == 0 {
		for l := range strings.Lines(out) {
			if strings.HasPrefix(l, "Error: ") || cargoError.MatchString(l) {
				return clip(strings.TrimSpace(l), maxMessage), ""
			}
		}
		return clip(lastLine(out), maxMessage), ""
	}
	at := all[0]
	for _, m := range all {
		if out[m[2]:m[3]] == name {
			at = m
		}
	}
	if file := out[at[6]:at[7]]; o.ours(file) && !strings.HasPrefix(file, "/rustc/") && !strings.Contains(file, "/rustdoctest") && !strings.Contains(file, "/registry/src/") {
		frame = o.rel(file) + ":" + out[at[8]:at[9]]
	}
	if at[4] >= 0 { // before Rust 1.73 the message stands in the line
		return clip(out[at[4]:at[5]], maxMessage), frame
	}
	var keep []string
	for l := range strings.Lines(out[at[1]:]) {
		l = strings.TrimRight(l, "\n")
		if strings.HasPrefix(l, "stack backtrace:") || strings.HasPrefix(l, "note: ") || cargoThread.MatchString(l) || len(keep) == 20 {
			break
		}
		if strings.TrimSpace(l) != "" {
			keep = append(keep, l)
		}
	}
	return clip(strings.Join(keep, "\n"), maxMessage), frame
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
