package eval

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/git"
)

// flakyRuns is how often a test that depends on the clock is run to see it fail.
const flakyRuns = 3

// text is a new file.
func text(name, content string) git.Change {
	return git.Change{Path: name, Mode: git.ModeFile, Content: []byte(content)}
}

var (
	jsRunner = regexp.MustCompile(`(?m)^.*require\(['"](?:tape|tap)['"]\).*$`)
	jsHandle = regexp.MustCompile(`(\w+)\s*\}?\s*=\s*require`)
)

// odd is a change without a fix whose test fails on the base, and for a reason that is not the bug.
func (d *deriver) odd(ctx context.Context, f Fault) (*Derived, error) {
	test, helper, name, err := d.oddFiles(ctx, f)
	if err != nil {
		return nil, err
	}
	command := d.i.command([]target{{test.Path, name}})
	on := func(changes ...git.Change) (string, error) {
		o, err := d.try(ctx, changes, command, d.patience())
		for id, state := range o.of {
			if _, n, _ := strings.Cut(id, "::"); n == name {
				return state, err
			}
		}
		return "", err
	}
	c := &Derived{Changes: []git.Change{test}, Tests: []string{name}}
	if f == FlakyTest {
		c.How = "no fix, and a test that depends on the clock"
		for range flakyRuns {
			if state, err := on(test); err != nil || state == failed {
				return c, err
			}
		}
		return nil, no("the test that depends on the clock did not fail")
	}
	c.How = map[Fault]string{CompileOnly: "no fix, and a test of a new function", WrongReason: "no fix, and a test that needs a new file"}[f]
	c.Changes = append(c.Changes, helper)
	for _, want := range []struct {
		pass    bool
		changes []git.Change
	}{{false, c.Changes[:1]}, {true, c.Changes}} {
		state, err := on(want.changes...)
		if err != nil {
			return nil, err
		}
		if (state == passed) != want.pass {
			return nil, no("its odd test does not run as it should here")
		}
	}
	return c, nil
}

// oddFiles are the new test, what it needs, and its name.
func (d *deriver) oddFiles(ctx context.Context, f Fault) (test, helper git.Change, name string, err error) {
	where, _, _ := strings.Cut(d.ids[0], "::")
	switch d.i.Language {
	case "go":
		dir := d.dir(where)
		pkg, err := d.goPackage(ctx, dir)
		if err != nil {
			return test, helper, "", err
		}
		imports := "\nimport \"testing\"\n"
		if pkgs := map[Fault]string{WrongReason: "os", FlakyTest: "time"}[f]; pkgs != "" {
			imports = fmt.Sprintf("\nimport (\n%s)\n", strings.Join(sortedLines(pkgs, "testing"), ""))
		}
		test = text(path.Join(dir, "odd_test.go"), "package "+pkg+"\n"+imports+Go.oddTest(f))
		helper = text(path.Join(dir, "rates.txt"), "1\n")
		if f == CompileOnly {
			helper = text(path.Join(dir, "odd.go"), "package "+pkg+"\n\nfunc brandNew() int { return 42 }\n")
		}
		return test, helper, "TestOdd", nil
	case "py":
		return d.oddPython(f)
	case "js":
		return d.oddNode(f, where)
	}
	return test, helper, "", no("no form of such a test is known in " + d.i.Language)
}

func sortedLines(pkgs ...string) []string {
	slices.Sort(pkgs)
	for n, p := range pkgs {
		pkgs[n] = fmt.Sprintf("\t%q\n", p)
	}
	return pkgs
}

func (d *deriver) goPackage(ctx context.Context, dir string) (string, error) {
	names, err := d.r.list(ctx, d.i.Base, dir)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			f, err := d.r.read(ctx, d.i.Base, name)
			if err != nil {
				return "", err
			}
			if m := goPackage.FindSubmatch(f.content); m != nil && string(m[1]) != "main" {
				return string(m[1]), nil
			}
		}
	}
	return "", no("its package has no source of its own")
}

func (d *deriver) oddPython(f Fault) (test, helper git.Change, name string, err error) {
	folder := "tests"
	for _, p := range d.i.TestFiles {
		if strings.HasSuffix(p, ".py") {
			folder = path.Dir(p)
		}
	}
	helper = text("rates.txt", "1\n")
	body := Pytest.oddTest(f)
	if d.i.unittest() {
		body = "import unittest\n\n\nclass OddTest(unittest.TestCase):" + Unittest.oddTest(f)
	}
	if f == CompileOnly {
		helper = text(path.Join(path.Dir(d.i.SourceFiles[0]), "odd_helper.py"), "def brand_new():\n    return 42\n")
		module := strings.ReplaceAll(strings.TrimSuffix(helper.Path, ".py"), "/", ".")
		body = strings.ReplaceAll(body, "from helper import", "from "+module+" import")
	}
	return text(path.Join(folder, "test_odd.py"), strings.TrimLeft(body, "\n")), helper, "test_odd", nil
}

func (d *deriver) oddNode(f Fault, where string) (test, helper git.Change, name string, err error) {
	line := ""
	for _, c := range d.tests {
		if c.Path == where {
			line = jsRunner.FindString(string(c.Content))
		}
	}
	m := jsHandle.FindStringSubmatch(line)
	if m == nil {
		return test, helper, "", no("its runner is not seen in " + where)
	}
	helper = text("rates.txt", "1\n")
	head, body := "", "t.ok(process.hrtime.bigint() / 1000n % 8n === 0n, 'not this time');"
	switch f {
	case CompileOnly:
		helper = text(path.Join(path.Dir(d.i.SourceFiles[0]), "odd-helper.js"), "'use strict';\n\nmodule.exports = function brandNew() {\n\treturn 42;\n};\n")
		up := strings.Repeat("../", strings.Count(where, "/"))
		head = "var brandNew = require('" + up + strings.TrimSuffix(helper.Path, ".js") + "');\n"
		body = "t.equal(brandNew(), 42);"
	case WrongReason:
		head = "var fs = require('fs');\n"
		body = "t.ok(fs.readFileSync('rates.txt', 'utf8'));"
	}
	content := fmt.Sprintf("'use strict';\n\n%s\n%s\n%s('odd', function (t) {\n\t%s\n\tt.end();\n});\n", line, head, m[1], body)
	return text(path.Join(path.Dir(where), "odd.js"), content), helper, "odd", nil
}
