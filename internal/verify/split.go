package verify

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/verify/tamper"
)

// parts is a change divided for the phases.
type parts struct {
	tests  []git.Change // with fixtures and snapshots
	source []git.Change // and everything that is no test and no configuration
	config []git.Change // decides what runs and how, hooks included
	hooks  []git.Change // of config and source: what is put back to the base's copy for row 15
	tamper tamper.Result
	old    map[string][]byte // base content of the changed paths; absent where new
	files  []string          // regular files of the base, sorted

	builders map[Kind]trust // see [builders]
	unsteady map[Kind]bool  // see [unsteady]
}

// split reads the base's side of the change and divides it. It never follows a link out of
// the checkout.
func (v *Verifier) split(job Job) (parts, error) {
	root, err := os.OpenRoot(job.Snapshot.Tree)
	if err != nil {
		return parts{}, &task.Error{Class: task.Internal, Msg: "the base checkout cannot be opened", Err: err}
	}
	defer root.Close()
	p := parts{old: map[string][]byte{}}
	if p.files, err = files(root.FS()); err != nil {
		return parts{}, &task.Error{Class: task.Internal, Msg: "the base checkout cannot be listed", Err: err}
	}
	p.builders, p.unsteady = builders(root.FS(), p.files), unsteady(root.FS(), p.files)
	if p.unsteady[KindCTest] { // what was built of the base may not be what is built now
		p.builders[KindCTest] = trustNone
	}
	if p.unsteady[KindCargo] {
		p.builders[KindCargo] = max(p.builders[KindCargo], trustForeign)
	}
	classify := func(f string) tamper.Class { return tamper.Classify(f, v.Settings.TestGlobs) }
	var diff []tamper.FileChange
	for _, c := range job.Changes {
		f := tamper.FileChange{Path: c.Path}
		if st, err := root.Lstat(c.Path); err == nil && st.Mode().IsRegular() {
			if f.Old, err = root.ReadFile(c.Path); err != nil {
				return parts{}, &task.Error{Class: task.Internal, Msg: fmt.Sprintf("the base's %q cannot be read", c.Path), Err: err}
			}
			if f.Old == nil {
				f.Old = []byte{}
			}
			f.OldMode = "100644"
			if st.Mode()&0o111 != 0 {
				f.OldMode = "100755"
			}
			p.old[c.Path] = f.Old
		}
		if !c.Deleted {
			f.New, f.NewMode = c.Content, fmt.Sprintf("%06o", c.Mode)
			if f.New == nil {
				f.New = []byte{}
			}
		}
		diff = append(diff, f)
	}
	p.tamper = tamper.Analyse(diff, classify)
	hooked, rewrites := map[string]bool{}, map[string]bool{}
	for _, f := range p.tamper.Findings {
		hooked[f.Path] = hooked[f.Path] || f.SubKind.Reconfigured()
		rewrites[f.Path] = rewrites[f.Path] || f.SubKind.Reconfigured() && !f.Ends()
	}
	for _, c := range job.Changes {
		class := classify(c.Path)
		_, old := p.old[c.Path]
		other := hookFile(c.Path) || !old && shadows(c.Path, job.Baseline.Plan) || foreign(c, p)
		hook := hooked[c.Path] && !calm(c.Path, p.old[c.Path], c.Content)
		switch {
		case goTests(c):
			p.tests = append(p.tests, c)
			if goChild.Match(c.Content) {
				p.mayEnd(c.Path)
			}
		case hook && !other && class.IsTests() && holdsTests(c):
			p.tests = append(p.tests, c)
			if rewrites[c.Path] || !forks.Match(c.Content) {
				p.hooks = append(p.hooks, c)
				continue
			}
			p.mayEnd(c.Path)
		case hook || other:
			p.config, p.hooks = append(p.config, c), append(p.hooks, c)
		case class.IsTests():
			p.tests = append(p.tests, c)
		case class == tamper.ClassConfig:
			p.config = append(p.config, c)
		default:
			p.source = append(p.source, c)
		}
	}
	return p, nil
}

// mayEnd has what ends a process in the file bind no more: it may be a child that ends.
func (p *parts) mayEnd(f string) {
	for i, x := range p.tamper.Findings {
		if x.Path == f && x.Ends() {
			p.tamper.Findings[i].Severity = "warn"
		}
	}
}

// hookFile reports whether runners load the path by its name alone, whatever is in it.
func hookFile(p string) bool {
	base := path.Base(p)
	for _, prefix := range []string{"jest.config.", "jest.setup.", "vitest.config.", "vitest.setup.", ".mocharc."} {
		if strings.HasPrefix(base, prefix) {
			return true
		}
	}
	if strings.HasSuffix(base, ".runsettings") || strings.HasPrefix(base, "phpunit.") && strings.Contains(base, ".xml") || strings.HasSuffix(p, ".cargo/config.toml") || strings.HasSuffix(p, ".cargo/config") || strings.HasSuffix(p, ".config/nextest.toml") || strings.Contains("/"+p, "/.mvn/") {
		return true
	}
	return slices.Contains([]string{
		".rspec", "spec_helper.rb", "rails_helper.rb", "junit-platform.properties", "CTestCustom.cmake", "CTestCustom.ctest", "CTestConfig.cmake", "init.gradle", ".bazelrc", "rust-toolchain", "rust-toolchain.toml",
		"conftest.py", "pytest.ini", ".pytest.ini", "tox.ini", "sitecustomize.py", "usercustomize.py", ".taprc", "go.work",
	}, base)
}

// runnerModules are what Python's test runners import before the tests: a file of that name in
// the directory they are started in comes first and becomes a part of them.
const runnerModules = " argparse array ast asyncio atexit attr attrs base64 bdb bisect bz2 calendar cmd code codeop collections colorsys concurrent configparser contextlib " +
	"contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis doctest email enum exceptiongroup execnet faulthandler fnmatch functools gc getpass gettext glob " +
	"hashlib html http importlib iniconfig inspect ipaddress itertools json keyword linecache locale logging lzma math multiprocessing numbers opcode operator optparse packaging pathlib pdb pickle pkgutil " +
	"platform pluggy pprint py pygments pytest quopri random re readline reprlib runpy select selectors shlex shutil signal socket ssl statistics string struct subprocess tempfile textwrap " +
	"threading time timeit token tokenize tomli tomllib traceback types typing typing_extensions unittest urllib uuid warnings weakref xdist xml zipfile zlib _pytest "

// shadows reports whether Python would import a new file in place of a module of its runner.
func shadows(p string, plan Plan) bool {
	dirs := []string{"."}
	for _, s := range plan.Suites {
		dirs = append(dirs, path.Clean(s.Dir))
	}
	dir, base := path.Dir(p), path.Base(p)
	name, ext, _ := strings.Cut(base, ".")
	if base == "__init__.py" && dir != "." {
		name, dir = path.Base(dir), path.Dir(dir)
	} else if ext != "py" && ext != "pyc" && !strings.HasSuffix(ext, "so") {
		return false
	}
	return slices.Contains(dirs, dir) && strings.Contains(runnerModules, " "+name+" ")
}

// foreign reports whether the change is in code of others, which tests lean on: a vendored
// package or an installed one.
func foreign(c git.Change, p parts) bool {
	for i := range len(c.Path) {
		if i > 0 && c.Path[i-1] != '/' {
			continue
		}
		if strings.HasPrefix(c.Path[i:], "node_modules/") {
			return true
		}
		if strings.HasPrefix(c.Path[i:], "vendor/") {
			if _, ok := slices.BinarySearch(p.files, c.Path[:i]+"vendor/modules.txt"); ok {
				return true
			}
		}
	}
	return false
}

var ownTests = regexp.MustCompile(`(?m)^func (?:Test[^a-z(]|Fuzz|Example)\w*\((?:\w+ \*testing\.[TF])?\)`)

// goTests reports whether a Go test file has tests of its own beside a TestMain. Putting the
// base's copy back would take the proof away with the hook, so such a file stays where it is:
// what its tests did is read from their events.
func goTests(c git.Change) bool {
	return strings.HasSuffix(c.Path, "_test.go") && !c.Deleted && ownTests.Match(c.Content)
}

// forks recognises a file that makes processes of its own: one of those may end as it likes, and
// takes no test's result with it.
var forks = regexp.MustCompile(`\bfork\b|\bforkpty\b|\bmultiprocessing\b`)

// goChild recognises a Go test file whose program is started again as a child, which is told by its
// environment or its arguments what to be. A test that ends has no result and is missed.
var goChild = regexp.MustCompile(`\bexec\.Command|\bos\.(Executable|Args|Getenv|LookupEnv)\b`)

var testsIn = map[string]*regexp.Regexp{
	".py":  regexp.MustCompile(`(?m)^\s*(?:async )?def test|^class \w*Test`),
	".js":  regexp.MustCompile(`\b(?:it|test|describe|suite)\b[\w.]*\s*\(`),
	".rb":  regexp.MustCompile(`(?m)^\s*(?:def test_|(?:it|specify|test|describe|context)\b.*(?:\bdo\b|\{))`),
	".php": regexp.MustCompile(`\bfunction test|@test\b|#\[Test|\b(?:it|test)\s*\(`),
	".jvm": regexp.MustCompile(`@\w*Test\b|\bextends\s+\w*(?:TestCase|Spec|Suite)\b`),
	".cs":  regexp.MustCompile(`\[\s*(?:Fact|Theory|Test|TestCase|TestMethod|DataTestMethod)\b`),
	".rs":  regexp.MustCompile(`#\[\s*(?:\w+::)*test\b`),
	".c":   regexp.MustCompile(`\b(?:\w*TEST\w*|SCENARIO|BOOST_AUTO_\w+)\s*\(|\bint\s+main\s*\(`),
}

var likeExt = map[string]string{
	".mjs": ".js", ".cjs": ".js", ".ts": ".js", ".mts": ".js", ".cts": ".js", ".jsx": ".js", ".tsx": ".js",
	".java": ".jvm", ".kt": ".jvm", ".scala": ".jvm", ".groovy": ".jvm", ".cc": ".c", ".cpp": ".c", ".cxx": ".c",
}

// holdsTests reports whether the file of the change has tests of its own. They are what must be
// red and green, whatever else is in the file; that is a finding, and where it could make an
// outcome up, row 15 asks what holds without the file.
func holdsTests(c git.Change) bool {
	ext := path.Ext(c.Path)
	re := testsIn[cmp.Or(likeExt[ext], ext)]
	return !c.Deleted && re != nil && re.Match(c.Content)
}

func paths(changes []git.Change) []string {
	out := make([]string, len(changes))
	for i, c := range changes {
		out[i] = c.Path
	}
	slices.Sort(out)
	return out
}

// overlay is the sorted list of regular files after the changes.
func overlay(base []string, changes []git.Change) []string {
	gone := map[string]bool{}
	var added []string
	for _, c := range changes {
		gone[c.Path] = true
		if !c.Deleted && c.Mode != 0o120000 {
			added = append(added, c.Path)
		}
	}
	out := slices.DeleteFunc(slices.Clone(base), func(f string) bool { return gone[f] })
	out = append(out, added...)
	slices.Sort(out)
	return out
}

// planFor is the base's plan; where the base has no tests at all, the plan for base + tests.
func (v *Verifier) planFor(job Job, p parts) (Plan, error) {
	if len(job.Baseline.Plan.Suites) > 0 {
		return job.Baseline.Plan, nil
	}
	root, err := os.OpenRoot(job.Snapshot.Tree)
	if err != nil {
		return Plan{}, &task.Error{Class: task.Internal, Msg: "the base checkout cannot be opened", Err: err}
	}
	defer root.Close()
	added := map[string]string{}
	for _, c := range p.tests {
		added[c.Path] = string(c.Content)
	}
	fsys := root.FS()
	return detectIn(overlay(p.files, p.tests), func(f string) string {
		if text, ok := added[f]; ok {
			return text
		}
		return readSome(fsys, f)
	}, job.Baseline.Tools), nil
}
