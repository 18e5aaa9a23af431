package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
)

// Bench runs plain commands on the base of an instance. What a case is labelled follows from it
// and from nothing that verifies.
type Bench interface {
	// Try puts the changes over the base, takes back those of earlier calls, and runs the command
	// at the top of the repository.
	Try(ctx context.Context, changes []git.Change, shell string, limit time.Duration) (Tried, error)
}

// Tried is how a command ended.
type Tried struct {
	Output   string
	TimedOut bool
	Took     time.Duration
}

// The outcomes of tests as their runners print them.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
)

// outcomes are the results of one run by id, in the form of [Instance.FailToPass].
type outcomes struct {
	of       map[string]string
	broken   bool // something did not build, load or end well without a failing test
	timedOut bool
	took     time.Duration
}

// all reports whether every test has the outcome.
func (o outcomes) all(ids []string, want string) bool {
	return !slices.ContainsFunc(ids, func(id string) bool { return o.of[id] != want })
}

// worse lists the ids that pass in one run and have another outcome in the next, sorted.
func (o outcomes) worse(next outcomes) []string {
	var out []string
	for id, was := range o.of {
		if was == passed && next.of[id] != passed {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// target is a test to run: a file, and the name of the function or "" for all.
type target struct{ file, name string }

// suiteCommand runs the whole suite as it was replayed.
func (i Instance) suiteCommand() string {
	switch i.Language {
	case "go":
		_, pkgs, _ := strings.Cut(i.TestCommand, "-count=1 ")
		return goCommand("", pkgs)
	case "py":
		if i.unittest() {
			return "python3 -m unittest -v 2>&1"
		}
		_, args, _ := strings.Cut(i.TestCommand, "pytest")
		return pytestCommand(slices.DeleteFunc(strings.Fields(args), func(a string) bool { return strings.HasPrefix(a, "-") || strings.Contains(a, "=") }))
	case "js":
		return nodeCommand("$(find test -name '*.js' | sort)")
	}
	return cCommand
}

// command runs the targets alone.
func (i Instance) command(targets []target) string {
	var files, names, dirs []string
	for _, t := range targets {
		files, names = append(files, shellQuote(t.file)), append(names, t.name)
		dirs = append(dirs, shellQuote("./"+path.Dir(t.file)))
	}
	for _, l := range []*[]string{&files, &names, &dirs} {
		slices.Sort(*l)
		*l = slices.Compact(*l)
	}
	switch i.Language {
	case "go":
		expr := ""
		if !slices.Contains(names, "") {
			expr = "^(" + strings.Join(names, "|") + ")$"
		}
		return goCommand(expr, strings.Join(dirs, " "))
	case "py":
		if i.unittest() {
			var modules []string
			for _, t := range targets {
				modules = append(modules, strings.ReplaceAll(strings.TrimSuffix(t.file, ".py"), "/", "."))
			}
			slices.Sort(modules)
			return "python3 -m unittest -v " + strings.Join(slices.Compact(modules), " ") + " 2>&1"
		}
		return pytestCommand(files)
	case "js":
		return nodeCommand(strings.Join(files, " "))
	}
	return cCommand
}

func (i Instance) unittest() bool { return strings.Contains(i.TestCommand, "unittest") }

func goCommand(expr, pkgs string) string {
	run := ""
	if expr != "" {
		run = " -run " + shellQuote(expr)
	}
	return "go test -json -vet=off -count=1" + run + " " + pkgs + ` 2>&1 | grep -E '"Action":"(pass|fail|skip)"|build failed|setup failed'`
}

func pytestCommand(files []string) string {
	return "PYTHONPATH=. /usr/bin/python3 -m pytest -v -o addopts= -p no:cacheprovider --color=no --tb=no " + strings.Join(files, " ") + " 2>&1"
}

func nodeCommand(files string) string {
	return `for f in ` + files + `; do echo "#file $f"; node "$f" 2>&1; echo "#exit $?"; done`
}

const cCommand = `(cmake -S . -B build-eval -DENABLE_CJSON_TEST=On && make -C build-eval) >build-eval.log 2>&1 || echo "#broken"; cd build-eval && ctest 2>&1`

// read parses what the commands above print.
func (i Instance) read(t Tried) outcomes {
	o := outcomes{of: map[string]string{}, timedOut: t.TimedOut, took: t.Took}
	switch {
	case i.Language == "go":
		o.readGo(t.Output)
	case i.Language == "py" && i.unittest():
		o.readUnittest(t.Output)
	case i.Language == "py":
		o.readPytest(t.Output)
	case i.Language == "js":
		o.readTAP(t.Output)
	default:
		o.readCTest(t.Output)
	}
	return o
}

func (o *outcomes) readGo(text string) {
	for line := range strings.Lines(text) {
		var e struct{ Action, Package, Test string }
		if json.Unmarshal([]byte(line), &e) != nil {
			o.broken = o.broken || strings.Contains(line, "build failed") || strings.Contains(line, "setup failed")
			continue
		}
		where := strings.TrimPrefix(e.Package, "github.com/")
		if e.Test != "" && (e.Action == passed || e.Action == failed || e.Action == skipped) {
			o.of[where+"::"+e.Test] = e.Action
		}
		o.broken = o.broken || strings.Contains(line, "build failed")
	}
}

var (
	pytestLine   = regexp.MustCompile(`^(\S+?)\.py::(\S.*?) (PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b`)
	unittestLine = regexp.MustCompile(`^(\w+) \(([\w.]+)\)`)
	unittestEnd  = regexp.MustCompile(`\.\.\. (ok|FAIL|ERROR|skipped.*|expected failure)$`)
	tapLine      = regexp.MustCompile(`^(not )?ok \d+(?: -)? ?(.*?)(?: # time=.*)?(?: \{)?$`)
	ctestLine    = regexp.MustCompile(`^\s*\d+/\d+ Test +#\d+: (\S+) \.*\s*(Passed|\*\*\*\w+|\*\*\*Not Run)`)
)

func (o *outcomes) readPytest(text string) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		m := pytestLine.FindStringSubmatch(line)
		if m == nil {
			o.broken = o.broken || strings.HasPrefix(line, "ERROR ") || strings.HasPrefix(line, "INTERNALERROR")
			continue
		}
		where, name := strings.ReplaceAll(m[1], "/", "."), m[2]
		bracket := strings.IndexByte(name, '[')
		if bracket < 0 {
			bracket = len(name)
		}
		if at := strings.LastIndex(name[:bracket], "::"); at >= 0 {
			where, name = where+"."+strings.ReplaceAll(name[:at], "::", "."), name[at+2:]
		}
		o.of[where+"::"+name] = map[string]string{"PASSED": passed, "XPASS": passed, "SKIPPED": skipped, "XFAIL": skipped}[m[3]]
		if o.of[where+"::"+name] == "" {
			o.of[where+"::"+name] = failed
		}
	}
}

func (o *outcomes) readUnittest(text string) {
	id := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if m := unittestLine.FindStringSubmatch(line); m != nil {
			id = m[2] + "::" + m[1]
		}
		if m := unittestEnd.FindStringSubmatch(line); m != nil && id != "" {
			o.of[id] = map[string]string{"ok": passed, "FAIL": failed, "ERROR": failed}[m[1]]
			if o.of[id] == "" {
				o.of[id] = skipped
			}
			id = ""
		}
		o.broken = o.broken || strings.Contains(line, "_FailedTest") || strings.HasPrefix(line, "ImportError") || strings.HasPrefix(line, "SyntaxError")
	}
}

// readTAP knows tape, whose tests are comments before their assertions, and tap, whose subtests
// are lines of their own.
func (o *outcomes) readTAP(text string) {
	file, test, plan := "", "", false
	nested := strings.Contains(text, "# Subtest")
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "#file "):
			file, test, plan = line[6:], "", false
			nested = false
		case strings.HasPrefix(line, "# Subtest: "):
			nested = true
		case strings.HasPrefix(line, "#exit "):
			o.broken = o.broken || !plan && line != "#exit 0"
		case strings.HasPrefix(line, "1.."):
			plan = true
		case strings.HasPrefix(line, "# ") && !nested:
			test = strings.TrimPrefix(line, "# ")
		default:
			m := tapLine.FindStringSubmatch(line)
			if m == nil {
				continue
			}
			name := m[2]
			if test != "" && !nested {
				name = test
			}
			id, state := file+"::"+name, passed
			if strings.Contains(line, "# SKIP") {
				state = skipped
			}
			if m[1] != "" || o.of[id] == failed {
				state = failed
			}
			o.of[id] = state
		}
	}
}

func (o *outcomes) readCTest(text string) {
	for line := range strings.Lines(text) {
		o.broken = o.broken || strings.HasPrefix(line, "#broken")
		if m := ctestLine.FindStringSubmatch(line); m != nil {
			o.of[m[1]+"::"+m[1]] = failed
			if m[2] == "Passed" {
				o.of[m[1]+"::"+m[1]] = passed
			}
		}
	}
}

// span is a run of lines that a fix replaces: n old lines from the line old, m new ones from new.
type span struct{ old, n, new, m int }

var hunkHead = regexp.MustCompile(`(?m)^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@`)

// spans are the changed places of a file between two commits.
func (r repo) spans(ctx context.Context, from, to, name string) ([]span, error) {
	out, err := r.git(ctx, "diff", "--unified=0", "--no-color", "--no-ext-diff", "--no-renames", from, to, "--", name)
	if err != nil {
		return nil, err
	}
	var list []span
	for _, m := range hunkHead.FindAllSubmatch(out, -1) {
		number := func(b []byte) int {
			n := 1
			if len(b) > 0 {
				_, _ = fmt.Sscan(string(b), &n)
			}
			return n
		}
		list = append(list, span{number(m[1]), number(m[2]), number(m[3]), number(m[4])})
	}
	return list, nil
}

// without is the text with the fix but for one place, which is as it was.
func without(before, after []byte, s span) []byte {
	old, lines := bytes.SplitAfter(before, []byte("\n")), bytes.SplitAfter(after, []byte("\n"))
	cut := func(first, n int) (int, int) { // a span of no lines names the line before it
		if n == 0 {
			return first, first
		}
		return first - 1, first - 1 + n
	}
	a, b := cut(s.old, s.n)
	c, d := cut(s.new, s.m)
	return bytes.Join(slices.Concat(lines[:c], old[a:b], lines[d:]), nil)
}
