package verify

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Tools says what is installed where tests run. Detection chooses by it where a repository
// can be tested in several ways.
type Tools struct {
	Pytest  bool     `json:"pytest"`
	Plugins []string `json:"plugins,omitempty"` // importable pytest plugins, as module names
	// Programs are those of [programs] that are on PATH, sorted.
	Programs []string `json:"programs,omitempty"`
}

const (
	maxDetectFile = 1 << 20 // bytes of a file that detection reads
	maxSuites     = 20
	maxWalk       = 400_000 // files
)

// files lists the regular files of the tree, sorted, without dependencies, version control
// and links.
func files(fsys fs.FS) ([]string, error) {
	var out []string
	err := fs.WalkDir(fsys, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && slices.Contains([]string{".git", "node_modules", ".venv", "venv", ".tox", "__pycache__"}, d.Name()) {
			return fs.SkipDir
		}
		if d.Type().IsRegular() {
			if len(out) == maxWalk {
				return errors.New("more than 400,000 files: name the test command in .daybreak.yaml")
			}
			out = append(out, p)
		}
		return nil
	})
	return out, err
}

// readSome reads up to [maxDetectFile] bytes of a regular file; anything else is "".
func readSome(fsys fs.FS, p string) string {
	f, err := fsys.Open(p)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return ""
	}
	b, err := io.ReadAll(io.LimitReader(f, maxDetectFile))
	if err != nil {
		return ""
	}
	return string(b)
}

// Detect finds how the repository in fsys is tested. It is a pure function of the tree, the
// tools and the repository's settings, which override it. fsys must not follow links out of
// the tree ([os.Root] does not). An empty plan means that no test framework was found; the
// error is about an unreadable tree or about settings that contradict themselves.
func Detect(fsys fs.FS, tools Tools, s Settings) (Plan, error) {
	if s.Test != "" {
		if s.Format == "" && len(s.Report) > 0 {
			s.Format = "junit"
		}
		return Plan{Suites: []Suite{{
			Kind: KindCustom, Dir: ".", Test: s.Test, TestOne: s.TestOne, Format: s.Format,
			Report: s.Report, Why: "the repository's settings name the test command",
		}}}, nil
	}
	if s.TestOne != "" || s.Format != "" || len(s.Report) > 0 {
		return Plan{}, &task.Error{
			Class: task.Invalid, Msg: "settings say how tests are read but not how they are run",
			Fix: "set the test command, or remove the other test settings",
		}
	}
	list, err := files(fsys)
	if err != nil {
		return Plan{}, &task.Error{Class: task.Internal, Msg: "the checkout cannot be listed", Err: err}
	}
	return detectIn(list, func(p string) string { return readSome(fsys, p) }, tools), nil
}

// detectIn is detection without settings on a sorted list of files.
func detectIn(list []string, read func(string) string, tools Tools) Plan {
	d := detector{read: read, files: list, tools: tools}
	d.golang()
	d.node()
	d.python()
	d.cargo()
	d.jvm()
	d.ctest()
	d.dotnet()
	d.rspec()
	d.phpunit()
	d.bazel()
	d.makefile()
	if len(d.plan.Suites) > maxSuites {
		d.note("%d test suites found, the first %d are run", len(d.plan.Suites), maxSuites)
		d.plan.Suites = d.plan.Suites[:maxSuites]
	}
	return d.plan
}

type detector struct {
	read  func(string) string
	files []string
	tools Tools
	plan  Plan
}

func (d *detector) note(format string, args ...any) {
	d.plan.Notes = append(d.plan.Notes, fmt.Sprintf(format, args...))
}

func (d *detector) add(s Suite) { d.plan.Suites = append(d.plan.Suites, s) }

func (d *detector) has(p string) bool {
	_, ok := slices.BinarySearch(d.files, p)
	return ok
}

func (d *detector) anyFile(match func(string) bool) (string, bool) {
	i := slices.IndexFunc(d.files, match)
	if i < 0 {
		return "", false
	}
	return d.files[i], true
}

func ignoredDir(p string) bool {
	for _, part := range strings.Split(path.Dir(p), "/") {
		if part == "testdata" || part == "vendor" || part == "third_party" || (strings.HasPrefix(part, "_") && part != "_test") {
			return true
		}
	}
	return false
}

var goModule = regexp.MustCompile(`(?m)^module\s+"?([^\s"]+)`)

func (d *detector) golang() {
	var mods []string
	for _, f := range d.files {
		if path.Base(f) == "go.mod" && !ignoredDir(f) {
			mods = append(mods, path.Dir(f))
		}
	}
	slices.SortFunc(mods, func(a, b string) int { return len(a) - len(b) })
	for _, dir := range mods {
		if !d.goTests(dir, mods) {
			d.note("%s: a Go module without tests", path.Join(dir, "go.mod"))
			continue
		}
		m := goModule.FindStringSubmatch(d.read(path.Join(dir, "go.mod")))
		if m == nil {
			d.note("%s names no module", path.Join(dir, "go.mod"))
			continue
		}
		d.add(Suite{Kind: KindGo, Dir: dir, Module: m[1], Why: path.Join(dir, "go.mod") + " with _test.go files below it"})
	}
}

// goTests reports whether a test file belongs to the module and not to one nested in it.
func (d *detector) goTests(dir string, mods []string) bool {
	_, ok := d.anyFile(func(f string) bool {
		return strings.HasSuffix(f, "_test.go") && !ignoredDir(f) && owner(f, mods) == dir
	})
	return ok
}

// owner is the deepest of dirs that f is below.
func owner(f string, dirs []string) string {
	best := ""
	for _, d := range dirs {
		if (d == "." || strings.HasPrefix(f, d+"/")) && (best == "" || best == "." || len(d) > len(best)) {
			best = d
		}
	}
	return best
}

var (
	pyTestFile   = regexp.MustCompile(`(^|/)(test_[^/]*|[^/]*_test)\.py$`)
	pyImport     = regexp.MustCompile(`(?m)^\s*(?:import|from)\s+pytest\b`)
	pyUnittest   = regexp.MustCompile(`(?m)^\s*(?:import|from)\s+unittest\b`)
	pyFunction   = regexp.MustCompile(`(?m)^(?:async )?def test`)
	iniSection   = regexp.MustCompile(`(?m)^\[(?:tool:)?pytest\]|^\[tool\.pytest`)
	iniAddopts   = regexp.MustCompile(`(?m)^\s*addopts\s*=\s*(.*(?:\n[ \t]+\S.*)*)`)
	iniTestpaths = regexp.MustCompile(`(?m)^\s*testpaths\s*=`)
)

func (d *detector) python() {
	var tests []string
	for _, f := range d.files {
		if pyTestFile.MatchString(f) && !ignoredDir(f) {
			tests = append(tests, f)
		}
	}
	config := ""
	for _, f := range []string{"pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg"} {
		if text := d.read(f); iniSection.MatchString(text) || (f == "pytest.ini" && d.has(f)) {
			config = f
			break
		}
	}
	if len(tests) == 0 {
		if config != "" {
			d.note("%s configures pytest, but there is no test_*.py or *_test.py", config)
		}
		return
	}
	usesPytest, usesUnittest := config != "" || d.has("conftest.py"), false
	for _, f := range tests[:min(len(tests), 50)] {
		text := d.read(f)
		usesPytest = usesPytest || pyImport.MatchString(text) || pyFunction.MatchString(text)
		usesUnittest = usesUnittest || pyUnittest.MatchString(text)
	}
	var env []string
	if dir := d.srcLayout(); dir != "" {
		env = append(env, "PYTHONPATH="+dir+":.")
	} else {
		env = append(env, "PYTHONPATH=.")
	}
	top := topDirs(tests)
	switch {
	case d.tools.Pytest:
		s := Suite{Kind: KindPytest, Dir: ".", Env: env, Why: fmt.Sprintf("pytest is installed and there are %d Python test files", len(tests))}
		text := d.read(config)
		if config != "" {
			s.Why = config + " configures pytest"
			if missing := d.missingPlugins(text); missing != "" {
				s.Flags = []string{"-o", "addopts="}
				d.note("addopts of %s are left out: they need %s, which is not installed", config, missing)
			}
		}
		if !iniTestpaths.MatchString(text) || config == "" {
			s.Targets = top
		}
		d.add(s)
	case usesUnittest || !usesPytest:
		s := Suite{Kind: KindUnittest, Dir: ".", Env: env, Why: "Python tests, and pytest is not installed"}
		if len(top) == 1 && top[0] != "." {
			s.Flags = []string{"-s", top[0], "-t", "."}
			if !d.has(path.Join(top[0], "__init__.py")) {
				s.Flags = []string{"-s", top[0]}
			}
		}
		d.add(s)
	default:
		d.note("the tests need pytest, which is not installed")
	}
}

// srcLayout is "src" when packages live below it.
func (d *detector) srcLayout() string {
	if _, ok := d.anyFile(func(f string) bool { return strings.HasPrefix(f, "src/") && strings.HasSuffix(f, ".py") }); ok {
		return "src"
	}
	return ""
}

// topDirs lists the first directories of the paths, or "." when a file is at the top.
func topDirs(paths []string) []string {
	var out []string
	for _, p := range paths {
		top, _, deep := strings.Cut(p, "/")
		if !deep {
			return []string{"."}
		}
		out = append(out, top)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	for _, name := range []string{"tests", "test"} {
		if slices.Contains(out, name) {
			// Examples and documentation often hold files named like tests.
			return []string{name}
		}
	}
	return out
}

// missingPlugins names the first option of addopts that needs a plugin which is not there.
func (d *detector) missingPlugins(config string) string {
	m := iniAddopts.FindStringSubmatch(config)
	if m == nil {
		return ""
	}
	known := []struct{ option, module string }{
		{"--cov", "pytest_cov"},
		{"-n", "xdist"},
		{"--numprocesses", "xdist"},
		{"--dist", "xdist"},
		{"--timeout", "pytest_timeout"},
		{"--asyncio-mode", "pytest_asyncio"},
		{"--benchmark", "pytest_benchmark"},
		{"--flake8", "pytest_flake8"},
		{"--mypy", "pytest_mypy"},
		{"--black", "pytest_black"},
		{"--random", "random_order"},
		{"--reruns", "pytest_rerunfailures"},
		{"--html", "pytest_html"},
		{"--snapshot", "syrupy"},
		{"--ruff", "pytest_ruff"},
	}
	for _, word := range strings.FieldsFunc(m[1], func(r rune) bool { return strings.ContainsRune(" \t\n\"'[],", r) }) {
		for _, k := range known {
			hit := strings.HasPrefix(word, k.option)
			if k.option == "-n" {
				hit = word == "-n" || regexp.MustCompile(`^-n(\d+|auto)$`).MatchString(word)
			}
			if hit && !slices.Contains(d.tools.Plugins, k.module) {
				return k.module
			}
		}
	}
	return ""
}

type packageJSON struct {
	Scripts map[string]string `json:"scripts"`
	Dev     map[string]string `json:"devDependencies"`
	Deps    map[string]string `json:"dependencies"`
}

func (d *detector) node() {
	for _, f := range d.files {
		if path.Base(f) != "package.json" || ignoredDir(f) {
			continue
		}
		var p packageJSON
		if err := json.Unmarshal([]byte(strings.TrimPrefix(d.read(f), "\ufeff")), &p); err != nil {
			d.note("%s is not valid JSON", f)
			continue
		}
		if len(p.Scripts) == 0 {
			continue
		}
		d.nodeScript(path.Dir(f), p)
	}
}
