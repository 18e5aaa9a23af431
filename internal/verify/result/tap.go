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

var (
	tapTest      = regexp.MustCompile(`^( *)(not )?ok\b(?: +(\d+))?( +-)?(?: +(.*))?$`)
	tapPlan      = regexp.MustCompile(`^( *)1\.\.(\d+)(?:\s*#.*)?\s*$`)
	tapDirective = regexp.MustCompile(`(?i)(?:^|[^\\])#\s*(skip|todo)\S*\s*(.*)$`)
	tapTime      = regexp.MustCompile(`\s+#\s*time=\S+`)
	tapComment   = regexp.MustCompile(`^( *)# (Subtest: )?(.*)$`)
)

const (
	maxTAPIndent = 160 // 40 levels: more is not a test but something printed
	maxTAPID     = 4000
)

// tapLevel is what is open at one indentation.
type tapLevel struct {
	plan, seen int   // plan is -1 until told
	tests      []int // indexes of tests that have no parent yet
}

type tapParser struct {
	o       Options
	rep     Report
	levels  map[int]*tapLevel
	last    int // test that a diagnostic block belongs to, or -1
	yaml    []string
	yIndent int // indentation of the open block, or -1
	yBytes  int
	any     bool
	nested  bool // "# Subtest" was seen: lines are tests, not assertions
	group   string
	groups  map[string]int
	suite   map[int]bool // entries of node's describe
	subs    map[int]bool // entries that have children
	short   bool
	bailed  bool
	open    map[int]string // "# Subtest" by indentation
	braces  []int          // parents whose children follow in braces
}

// ParseTAP reads the Test Anything Protocol: node --test, tap, tape, and others. Subtests get
// ids "parent > child" by indentation, whichever order the runner prints them in. Tape reports
// assertions, so there a test is what a "# name" line opens. A missing or short plan and "Bail
// out!" make the report [Partial]. A cancelled test is [task.Timeout] if it ran, else
// [task.Missing]; node's line for a whole file is no test.
func ParseTAP(r io.Reader, o Options) Report {
	o = o.withDefaults()
	m := &meter{r: r, left: o.MaxBytes}
	in := newLines(m)
	p := tapParser{
		o: o, levels: map[int]*tapLevel{}, last: -1, yIndent: -1, groups: map[string]int{},
		suite: map[int]bool{}, subs: map[int]bool{}, open: map[int]string{},
	}
	for {
		line, _, ok := in.next()
		if !ok {
			break
		}
		p.line(line)
		if len(p.rep.Tests) > o.MaxTests {
			p.rep.problem("too many tests: the rest was left out")
			p.short = true
			break
		}
	}
	if m.over {
		return refuse(o)
	}
	return p.finish()
}

func (p *tapParser) level(indent int) *tapLevel {
	l := p.levels[indent]
	if l == nil {
		l = &tapLevel{plan: -1}
		p.levels[indent] = l
	}
	return l
}

func (p *tapParser) line(l string) {
	if p.yIndent >= 0 {
		p.yamlLine(l)
		return
	}
	trimmed := strings.TrimLeft(l, " ")
	indent := len(l) - len(trimmed)
	switch {
	case trimmed == "---":
		if p.last >= 0 {
			p.yIndent, p.yaml, p.yBytes = indent, nil, 0
		}
	case trimmed == "}" && len(p.braces) > 0:
		n := len(p.braces) - 1
		p.adopt(p.braces[n], indent)
		p.braces = p.braces[:n]
	case strings.HasPrefix(trimmed, "Bail out!"):
		p.bailed, p.any = true, true
		p.rep.problem("%s", trimmed)
	case strings.HasPrefix(l, "TAP version"):
		p.any = true
	default:
		if m := tapPlan.FindStringSubmatch(l); m != nil {
			n, err := strconv.Atoi(m[2])
			if err == nil {
				p.level(indent).plan = n
				p.any = true
			}
			return
		}
		if m := tapTest.FindStringSubmatch(l); m != nil && indent <= maxTAPIndent {
			p.any = true
			p.test(indent, m)
			return
		}
		if m := tapComment.FindStringSubmatch(l); m != nil {
			p.comment(indent, m)
		}
	}
}

func (p *tapParser) comment(indent int, m []string) {
	if m[2] != "" {
		p.nested = true
		p.open[indent] = m[3]
		return
	}
	if !p.nested && indent == 0 && p.level(0).plan < 0 {
		p.group = strings.TrimSpace(m[3])
	}
}

func (p *tapParser) yamlLine(l string) {
	if strings.TrimSpace(l) == "..." && len(l)-len(strings.TrimLeft(l, " ")) <= p.yIndent {
		p.diagnose()
		return
	}
	if p.yBytes += len(l); p.yBytes < p.o.MaxOutput {
		p.yaml = append(p.yaml, l)
	}
}

func (p *tapParser) test(indent int, m []string) {
	name, brace := strings.CutSuffix(strings.TrimSpace(m[5]), "{")
	name = strings.TrimSpace(tapTime.ReplaceAllString(name, ""))
	st := task.Pass
	if m[2] != "" {
		st = task.Fail
	}
	msg := ""
	if d := tapDirective.FindStringSubmatchIndex(name); d != nil {
		kind, reason := name[d[2]:d[3]], strings.TrimSpace(name[d[4]:d[5]])
		hash := strings.LastIndexByte(name[:d[2]], '#')
		name, msg = strings.TrimSpace(name[:hash]), reason
		switch {
		case strings.EqualFold(kind, "skip"):
			st = task.Skip
		case st == task.Fail:
			st = task.XFail
		default:
			st = task.Skip
		}
	}
	name = strings.ReplaceAll(strings.ReplaceAll(name, `\#`, "#"), `\\`, `\`)
	if name == "" {
		name = "test " + m[3]
	}
	name = clip(plain(name), 500)
	lv := p.level(indent)
	lv.seen++
	if p.group != "" && !p.nested && indent == 0 && m[4] == "" {
		p.assertion(name, st, msg)
		return
	}
	i := len(p.rep.Tests)
	p.rep.Tests = append(p.rep.Tests, Test{ID: p.o.rel(name), Name: name, Status: st, Message: msg, Attempt: 1})
	lv.tests = append(lv.tests, i)
	p.last = i
	if brace {
		p.braces = append(p.braces, i)
		return
	}
	p.adopt(i, indent)
}

// adopt makes everything deeper than the indentation a child of the test.
func (p *tapParser) adopt(parent, indent int) {
	for depth, lv := range p.levels {
		if depth <= indent {
			continue
		}
		for _, i := range lv.tests {
			t := &p.rep.Tests[i]
			t.ID = clip(p.rep.Tests[parent].ID+" > "+t.ID, maxTAPID)
			p.subs[parent] = true
		}
		if lv.seen < lv.plan {
			p.short = true
			p.rep.problem("%s: %d of %d subtests were reported", p.rep.Tests[parent].Name, lv.seen, lv.plan)
		}
		// The parent's own level now carries the children, so that its parent prefixes them too.
		p.level(indent).tests = append(p.level(indent).tests, lv.tests...)
		delete(p.levels, depth)
	}
}

// assertion counts one line of tape for the test that the last comment named.
func (p *tapParser) assertion(name string, st task.TestStatus, msg string) {
	i, ok := p.groups[p.group]
	if !ok {
		i = len(p.rep.Tests)
		p.groups[p.group] = i
		if st == task.Fail {
			msg = name
		}
		p.rep.Tests = append(p.rep.Tests, Test{ID: p.group, Name: p.group, Status: st, Message: msg, Attempt: 1})
	}
	t := &p.rep.Tests[i]
	if st == task.Fail && t.Status != task.Fail {
		t.Status, t.Message = task.Fail, name
	}
	if t.Status == task.Skip && st == task.Pass {
		t.Status, t.Message = st, ""
	}
	p.last = i
}

// diagnose takes up the YAML block that has just ended.
func (p *tapParser) diagnose() {
	f := yamlFields(p.yaml)
	p.yIndent = -1
	i := p.last
	if i < 0 || i >= len(p.rep.Tests) {
		return
	}
	t := &p.rep.Tests[i]
	if d, err := strconv.ParseFloat(f["duration_ms"], 64); err == nil {
		t.Duration = seconds(d / 1000)
	}
	if f["type"] == "suite" {
		p.suite[i] = true
	}
	if t.Status != task.Fail || t.Output != "" {
		p.yaml = nil
		return
	}
	t.Output = plain(strings.Join(p.yaml, "\n"))
	p.yaml = nil
	t.Frame = p.o.firstFrame(f["stack"])
	if t.Frame == "" {
		t.Frame = p.o.firstFrame(f["at"])
	}
	switch {
	case f["error"] != "":
		t.Message = f["error"]
		if n := f["name"]; n != "" && n != "Error" && n != t.Name {
			t.Message = n + ": " + t.Message
		}
	case f["message"] != "":
		t.Message = f["message"]
	case f["diff"] != "":
		t.Message = strings.TrimPrefix(t.Message+": ", ": ") + "expected (-) and actual (+) differ: " + changedLines(f["diff"])
	case f["expected"] != "" || f["actual"] != "" || f["wanted"] != "" || f["found"] != "":
		// node-tap says wanted, found and compare.
		said := []string{t.Message, cmp.Or(f["operator"], f["compare"])}
		said = slices.DeleteFunc(said, func(s string) bool { return s == "" })
		said = append(said, "expected "+cmp.Or(f["expected"], f["wanted"])+", actual "+cmp.Or(f["actual"], f["found"]))
		t.Message = strings.Join(said, ": ")
	}
	t.Message = clip(plain(t.Message), maxMessage)
	switch f["failureType"] {
	case "cancelledByParent":
		t.Status = task.Missing
		if t.Duration > 0 {
			t.Status = task.Timeout
		}
	case "testTimeoutFailure":
		t.Status = task.Timeout
	case "hookFailed":
		t.Status = task.Errored
	case "subtestsFailed":
		p.subs[i] = true
	}
}

// changedLines are the lines of a diff that begin with a sign, in one line.
func changedLines(diff string) string {
	var out []string
	for _, l := range strings.Split(diff, "\n") {
		if (strings.HasPrefix(l, "-") || strings.HasPrefix(l, "+")) && !strings.HasPrefix(l, "--- ") && !strings.HasPrefix(l, "+++ ") {
			out = append(out, strings.Join(strings.Fields(l), " "))
		}
	}
	return strings.Join(out, " ")
}

// yamlFields reads the top-level keys of a diagnostic block, which are indented as its first
// line is; nested structures are left out.
func yamlFields(block []string) map[string]string {
	f := map[string]string{}
	key, literal, base := "", false, -1
	for _, l := range block {
		trimmed := strings.TrimLeft(l, " ")
		indent := len(l) - len(trimmed)
		if trimmed == "" {
			if literal {
				f[key] += "\n"
			}
			continue
		}
		if base < 0 {
			base = indent
		}
		if indent > base {
			if literal {
				f[key] += strings.TrimSpace(trimmed) + "\n"
			}
			continue
		}
		k, v, ok := strings.Cut(trimmed, ":")
		if !ok || indent < base {
			literal = false
			continue
		}
		key, v = strings.TrimSpace(k), strings.TrimSpace(v)
		literal = strings.HasPrefix(v, "|") || strings.HasPrefix(v, ">")
		if literal {
			v = ""
		}
		if len(v) >= 2 && (v[0] == '\'' || v[0] == '"') && v[len(v)-1] == v[0] {
			v = strings.ReplaceAll(v[1:len(v)-1], "''", "'")
		}
		f[key] = v
	}
	for k := range f {
		f[k] = strings.TrimSpace(f[k])
	}
	return f
}

func (p *tapParser) finish() Report {
	rep := &p.rep
	if !p.any {
		rep.Outcome = NoReport
		return *rep
	}
	rep.Outcome = Complete
	top := p.level(0)
	switch {
	case p.bailed:
		rep.Outcome = Partial
	case top.plan < 0:
		rep.Outcome = Partial
		rep.problem("the report has no plan: the run ended early")
		if i, ok := p.groups[p.group]; ok && !rep.Tests[i].Failed() {
			rep.Tests[i].Status, rep.Tests[i].Message = task.Missing, "began and the run ended early"
		}
	case top.seen < top.plan:
		rep.Outcome = Partial
		rep.problem("%d of %d planned tests were reported", top.seen, top.plan)
	case p.short || p.yIndent >= 0:
		rep.Outcome = Partial
	}
	p.orphans()
	kept := rep.Tests[:0:0]
	for i, t := range rep.Tests {
		if !p.keep(i, &t) {
			continue
		}
		if t.Failed() {
			if t.Message == "" {
				t.Message = "not ok"
			}
			t.Signature = Signature(t.Message, t.Frame)
		} else {
			t.Frame = ""
		}
		if j := strings.LastIndex(t.ID, " > "); j >= 0 {
			t.Suite = t.ID[:j]
		}
		kept = append(kept, t)
	}
	rep.Tests = kept
	number(rep.Tests)
	return *rep
}

// orphans names subtests whose parent never came.
func (p *tapParser) orphans() {
	for depth, lv := range p.levels {
		if depth == 0 || len(lv.tests) == 0 {
			continue
		}
		p.rep.Outcome = Partial
		for _, i := range lv.tests {
			for d := depth - 4; d >= 0; d -= 4 {
				if n := p.open[d]; n != "" {
					p.rep.Tests[i].ID = n + " > " + p.rep.Tests[i].ID
				}
			}
		}
	}
}

// keep decides whether an entry is a test, and settles entries that stand for a whole file.
func (p *tapParser) keep(i int, t *Test) bool {
	if isScript(t.Name) {
		name := p.o.rel(t.Name)
		switch {
		case p.subs[i]:
			return false
		case t.Failed():
			t.ID, t.Status = name, task.Errored
			p.rep.BuildFailed = appendNew(p.rep.BuildFailed, name)
			p.rep.problem("%s: the file did not load: %s", name, t.Message)
			return true
		case t.Status == task.Pass:
			p.rep.problem("%s: no test of the file was reported: it has none, or the process ended early", name)
			return false
		}
	}
	if p.suite[i] { // describe: only its own trouble counts
		return t.Status == task.Errored || (t.Failed() && !p.subs[i])
	}
	return true
}
