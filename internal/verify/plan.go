package verify

import (
	"cmp"
	"path"
	"slices"
	"strings"
)

// Kind names a test runner that the verifier knows how to drive.
type Kind string

// The runners. Script is the absence of one: each "test" is a script of the change and its exit
// code the only result.
const (
	KindGo       Kind = "go"
	KindPytest   Kind = "pytest"
	KindUnittest Kind = "unittest"
	KindNode     Kind = "node" // node --test, one process a file
	KindTAP      Kind = "tap"  // node FILE writing TAP: tape, node-tap, one process a file
	KindJest     Kind = "jest" //
	KindVitest   Kind = "vitest"
	KindMocha    Kind = "mocha"
	KindCargo    Kind = "cargo"
	KindMaven    Kind = "maven"
	KindGradle   Kind = "gradle"
	KindCTest    Kind = "ctest" // a CMake project
	KindDotnet   Kind = "dotnet"
	KindRSpec    Kind = "rspec"
	KindPHPUnit  Kind = "phpunit"
	KindBazel    Kind = "bazel"
	KindCustom   Kind = "custom" // the repository's own words, see [Settings]
)

// Suite is one way in which the repository runs tests. It holds no absolute path.
type Suite struct {
	Kind    Kind     `json:"kind"`
	Dir     string   `json:"dir"`               // below the work tree; "." is its root
	Module  string   `json:"module,omitempty"`  // Go module path
	Flags   []string `json:"flags,omitempty"`   // the repository's own arguments that are kept
	Targets []string `json:"targets,omitempty"` // what the runner is pointed at
	Globs   []string `json:"globs,omitempty"`   // files run one by one, relative to Dir
	Env     []string `json:"env,omitempty"`
	Test    string   `json:"test,omitempty"`     // custom: whole suite; elsewhere: the program, where it is not the kind's own
	TestOne string   `json:"test_one,omitempty"` // custom
	Format  string   `json:"format,omitempty"`   // custom
	Report  []string `json:"report,omitempty"`   // custom: globs below the work tree
	Race    bool     `json:"race,omitempty"`     // go: under the race detector
	Why     string   `json:"why"`                // what made detection choose it
}

// Plan is everything that is run, in order. An empty plan means that no test framework was
// found.
type Plan struct {
	Suites []Suite  `json:"suites"`
	Notes  []string `json:"notes,omitempty"` // what was looked at and not taken, one line each
}

// Place is where a test lives, enough to run it alone.
type Place struct {
	Suite int    `json:"s"`           // index in [Plan.Suites]
	Group string `json:"g,omitempty"` // package or class, as the runner says it
	File  string `json:"f,omitempty"` // below the work tree
	Name  string `json:"n,omitempty"`
	Param string `json:"p,omitempty"`
	// Reach makes it the place of all tests of a part of the build (a package of Cargo, a module of
	// Maven, a project of Gradle), or of those that jest or vitest relates to a file.
	Reach string `json:"r,omitempty"`
}

// command is one process of a run.
type command struct {
	suite  int
	shell  string   // run by bash -c in dir
	dir    string   // below the work tree
	env    []string //
	format string   // result parser; "" reads the exit code only
	report string   // file inside the sandbox, written by the runner or by our redirection
	globs  []string // patterns of report files below the work tree, beside report; removed before the command runs
	// console is for [result.Report.Console]: the tool whose own output says what reports leave out.
	console string
	file    string // the one test file that runs, below the work tree; ids are put under it
	human   string // what a person would type at the top of the repository
}

// baseEnv is fixed for every run: the same clock, words and order everywhere. Where packages
// come from, if from anywhere, is the bench's to say.
func baseEnv() []string {
	return []string{
		"TZ=UTC", "LC_ALL=C.UTF-8", "LANG=C.UTF-8", "NO_COLOR=1", "FORCE_COLOR=0", "TERM=dumb", "CI=true",
		"PYTHONHASHSEED=0", "PYTHONUNBUFFERED=1",
		"CCACHE_RECACHE=1", "SCCACHE_RECACHE=1", // what they keep of the base may miss a file that is new
	}
}

// Offline tells tool chains not to look for a network that is not there, so that what is
// missing is named at once. It is the environment of every sandbox of a task; one with a way to
// the registries overrides it.
func Offline() []string {
	return []string{
		"GOPROXY=off", "GOTOOLCHAIN=local", "GOSUMDB=off", "GOVCS=*:off",
		"npm_config_offline=true", "npm_config_update_notifier=false", "CARGO_NET_OFFLINE=true", "PYTHONDONTWRITEBYTECODE=1",
	}
}

// quote makes s one word of the shell, whatever bytes it holds. NUL cannot be passed to a
// process and is dropped.
func quote(s string) string {
	s = strings.ReplaceAll(s, "\x00", "")
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@%+,-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func quoteAll(list []string) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = quote(s)
	}
	return strings.Join(out, " ")
}

// fileArg keeps a path from being read as an option.
func fileArg(p string) string {
	if strings.HasPrefix(p, "-") {
		return "./" + p
	}
	return p
}

// commands builds the processes that run the suite's tests at the places, or all of them when
// places is nil. files are the regular files of the tree being run. report is a path prefix
// inside the sandbox that nothing else knows.
func (p Plan) commands(i int, places []Place, files []string, report string) []command {
	s := p.Suites[i]
	if places != nil {
		places = slices.DeleteFunc(slices.Clone(places), func(pl Place) bool { return pl.Suite != i })
		if len(places) == 0 {
			return nil
		}
	}
	switch s.Kind {
	case KindGo:
		return s.goCommands(i, places, report)
	case KindPytest:
		return s.pytestCommands(i, places, report)
	case KindUnittest:
		return s.unittestCommands(i, places, report)
	case KindNode, KindTAP:
		return s.perFileCommands(i, places, files, report)
	case KindJest, KindVitest, KindMocha:
		return s.nodeRunnerCommands(i, places, report)
	}
	if s.Kind.native() {
		return s.nativeCommands(i, places, report)
	}
	return s.customCommands(i, places, report)
}

func (s Suite) human(text string) string {
	if s.Dir == "." || s.Dir == "" {
		return text
	}
	return "(cd " + quote(fileArg(s.Dir)) + " && " + text + ")"
}

func (s Suite) command(i int, shell, human, format, report string) command {
	return command{
		suite: i, shell: shell, dir: s.Dir, env: append(baseEnv(), s.Env...), format: format,
		report: report, human: s.human(human),
	}
}

// goCommands runs one process for the suite, or one per set of packages that share a -run
// expression.
func (s Suite) goCommands(i int, places []Place, report string) []command {
	run := func(n int, expr string, pkgs []string) command {
		args := ""
		if s.Race {
			args = " -race"
		}
		if expr != "" {
			args += " -run " + quote(expr)
		}
		args += " " + quoteAll(pkgs)
		r := numbered(report, n, ".json")
		return s.command(i, "go test -json -vet=off -count=1"+args+" > "+r, "go test"+args, "go", r)
	}
	if places == nil {
		return []command{run(0, "", []string{"./..."})}
	}
	byPkg := map[string][]string{}
	whole := map[string]bool{}
	for _, p := range places {
		pkg := s.goPackage(p)
		if p.Name == "" {
			whole[pkg] = true
		}
		byPkg[pkg] = append(byPkg[pkg], goTop(p.Name))
	}
	var out []command
	byExpr := map[string][]string{}
	for pkg, names := range byPkg {
		expr := ""
		if !whole[pkg] {
			slices.Sort(names)
			expr = goRunExpr(slices.Compact(names))
		}
		byExpr[expr] = append(byExpr[expr], pkg)
	}
	for _, expr := range sortedKeys(byExpr) {
		slices.Sort(byExpr[expr])
		out = append(out, run(len(out), expr, byExpr[expr]))
	}
	return out
}

// goTop is the top-level test function: -run patterns for subtests do not compose across
// functions, and the parent's set-up is needed anyway.
func goTop(name string) string {
	top, _, _ := strings.Cut(name, "/")
	return top
}

func goRunExpr(names []string) string {
	esc := make([]string, len(names))
	for i, n := range names {
		esc[i] = regexpQuote(n)
	}
	if len(esc) == 1 {
		return "^" + esc[0] + "$"
	}
	return "^(" + strings.Join(esc, "|") + ")$"
}

// goPackage is the package as an argument for the go command, run in the suite's directory.
func (s Suite) goPackage(p Place) string {
	if p.Group != "" {
		if p.Group == s.Module {
			return "."
		}
		if rest, ok := strings.CutPrefix(p.Group, s.Module+"/"); ok && s.Module != "" {
			return "./" + rest
		}
		return p.Group
	}
	dir := s.local(path.Dir(p.File))
	if dir == "." {
		return "."
	}
	return "./" + dir
}

// local makes a path below the work tree relative to the suite's directory.
func (s Suite) local(p string) string {
	if s.Dir == "." || s.Dir == "" {
		return p
	}
	if p == s.Dir {
		return "."
	}
	return strings.TrimPrefix(p, s.Dir+"/")
}

func (s Suite) pytestCommands(i int, places []Place, report string) []command {
	r := numbered(report, 0, ".xml")
	own := "python3 -m pytest -q -p no:cacheprovider -p no:randomly --color=no --continue-on-collection-errors -o junit_family=xunit1"
	if len(s.Flags) > 0 {
		own += " " + quoteAll(s.Flags)
	}
	own += " -rX" // passes that were not expected are in no other report
	targets := s.Targets
	if places != nil {
		targets = nil
		for _, p := range places {
			targets = append(targets, s.nodeID(p))
		}
		slices.Sort(targets)
		targets = slices.Compact(targets)
	}
	tail := ""
	for _, t := range targets {
		tail += " " + quote(fileArg(t))
	}
	env := ""
	for _, e := range s.Env {
		if strings.HasPrefix(e, "PYTHONPATH=") {
			env = e + " "
		}
	}
	c := s.command(i, own+" --junitxml="+r+tail, env+"python3 -m pytest"+tail, "junit", r)
	c.console = "pytest"
	return []command{c}
}

// nodeID is pytest's name of a test: path, classes, function. Parameters are left out, since
// their printed form is not always what selects them.
func (s Suite) nodeID(p Place) string {
	id := s.local(p.File)
	if p.Name == "" {
		return id
	}
	module := strings.ReplaceAll(strings.TrimSuffix(id, ".py"), "/", ".")
	class := ""
	if p.Group == module || p.Group == "" {
	} else if rest, ok := strings.CutPrefix(p.Group, module+"."); ok {
		class = rest
	} else if at := strings.LastIndex("."+p.Group, "."+path.Base(module)+"."); at >= 0 {
		class = ("." + p.Group)[at+len("."+path.Base(module)+"."):]
	}
	for _, c := range strings.Split(class, ".") {
		if c != "" {
			id += "::" + c
		}
	}
	name, _, _ := strings.Cut(p.Name, "[")
	return id + "::" + name
}

func (s Suite) unittestCommands(i int, places []Place, report string) []command {
	r := numbered(report, 0, ".txt")
	args := " discover -v " + quoteAll(s.Flags)
	human := "python3 -m unittest" + strings.TrimRight(args, " ")
	shell := human
	if places != nil {
		var ids []string
		for _, p := range places {
			ids = append(ids, s.unittestID(p))
		}
		slices.Sort(ids)
		human = "python3 -m unittest -v " + quoteAll(slices.Compact(ids))
		shell = human
	}
	return []command{s.command(i, shell+" > "+r+" 2>&1", human, "unittest", r)}
}

func (s Suite) unittestID(p Place) string {
	if p.Group == "" {
		return strings.ReplaceAll(strings.TrimSuffix(s.local(p.File), ".py"), "/", ".")
	}
	if p.Name == "" {
		return p.Group
	}
	return p.Group + "." + p.Name
}

func (s Suite) perFileCommands(i int, places []Place, files []string, report string) []command {
	list := s.match(files)
	switch {
	case places == nil && files == nil:
		list = s.Globs // for people: nothing runs without the tree's files
	case places != nil:
		list = nil
		for _, p := range places {
			list = append(list, s.local(p.File))
		}
		slices.Sort(list)
		list = slices.Compact(list)
	}
	var out []command
	for n, f := range list {
		r := numbered(report, n, ".tap")
		flags := ""
		if len(s.Flags) > 0 {
			flags = quoteAll(s.Flags) + " "
		}
		arg := quote(fileArg(f))
		if files == nil && places == nil {
			arg = f
		}
		var c command
		if s.Kind == KindNode {
			c = s.command(i, "node "+flags+"--test --test-reporter=tap --test-reporter-destination="+r+" "+arg, "node "+flags+"--test "+arg, "tap", r)
		} else {
			c = s.command(i, "node "+flags+arg+" > "+r, "node "+flags+arg, "tap", r)
		}
		c.file = path.Join(s.Dir, f)
		out = append(out, c)
	}
	return out
}

// match lists the files of the tree that the suite runs one by one, relative to Dir.
func (s Suite) match(files []string) []string {
	var out []string
	for _, f := range files {
		if s.Dir != "." && !strings.HasPrefix(f, s.Dir+"/") {
			continue
		}
		l := s.local(f)
		if slices.ContainsFunc(s.Globs, func(g string) bool { return globMatch(g, l) }) && !strings.Contains("/"+l, "/node_modules/") {
			out = append(out, l)
		}
	}
	slices.Sort(out)
	return out
}

func (s Suite) nodeRunnerCommands(i int, places []Place, report string) []command {
	r := numbered(report, 0, ".json")
	flags := ""
	if len(s.Flags) > 0 {
		flags = " " + quoteAll(s.Flags)
	}
	related := slices.ContainsFunc(places, func(p Place) bool { return p.Reach != "" })
	var own, human, format string
	switch s.Kind {
	case KindJest:
		own, human, format = "jest --ci --json --outputFile="+r+flags, "npx jest"+flags, "jest"
		if related {
			own, human = own+" --passWithNoTests --findRelatedTests", human+" --findRelatedTests"
		} else if places != nil {
			own, human = own+" --runTestsByPath", human+" --runTestsByPath"
		}
	case KindVitest:
		verb := "vitest run"
		if related {
			verb = "vitest related --run --passWithNoTests"
		}
		own, human, format = verb+" --reporter=json --outputFile="+r+flags, "npx "+verb+flags, "jest"
	default:
		own, human, format = "mocha --reporter json --reporter-option output="+r+flags, "npx mocha"+flags, "mocha"
	}
	var list []string
	for _, p := range places {
		if f := cmp.Or(p.Reach, p.File); f != "" {
			list = append(list, s.local(f))
		}
	}
	slices.Sort(list)
	tail := ""
	for _, f := range slices.Compact(list) {
		tail += " " + quote(fileArg(f))
	}
	if places == nil && s.Kind == KindMocha && len(s.Targets) > 0 {
		tail = " " + quoteAll(s.Targets)
	}
	return []command{s.command(i, `PATH="`+s.nodeBins()+`:$PATH" `+own+tail, human+tail, format, r)}
}

// nodeBins is where a package's programs are: beside it, or with the workspace that it is a
// member of, as a package manager's own "run" has it.
func (s Suite) nodeBins() string {
	bins, up := "$PWD/node_modules/.bin", "$PWD"
	if s.Dir != "." && s.Dir != "" {
		for range strings.Count(s.Dir, "/") + 1 {
			up += "/.."
			bins += ":" + up + "/node_modules/.bin"
		}
	}
	return bins
}

func (s Suite) customCommands(i int, places []Place, report string) []command {
	text := s.Test
	if places != nil && s.TestOne != "" {
		var ids []string
		for _, p := range places {
			ids = append(ids, cmp.Or(p.Name, p.File))
		}
		slices.Sort(ids)
		text = strings.ReplaceAll(s.TestOne, "{tests}", quoteAll(slices.Compact(ids)))
	}
	c := s.command(i, text, text, s.Format, "")
	if len(s.Report) > 0 {
		c.globs = s.Report
		return []command{c}
	}
	if s.Format != "" {
		c.report = numbered(report, 0, ".out")
		switch s.Format {
		case "cargo":
			c.shell = ended(text, c.report)
		case "unittest":
			c.shell = "{\n" + text + "\n} > " + c.report + " 2>&1"
		default:
			c.shell = "{\n" + text + "\n} > " + c.report
		}
	}
	return []command{c}
}

// rerun is the line with which a person runs this one test at the top of the repository.
func (p Plan) rerun(pl Place) string {
	if pl.Suite >= len(p.Suites) {
		return ""
	}
	s := p.Suites[pl.Suite]
	if s.Kind == KindNode && pl.Name != "" {
		top, _, _ := strings.Cut(pl.Name, " > ")
		return s.human("node --test --test-name-pattern " + quote("^"+regexpQuote(top)+"$") + " " + quote(fileArg(s.local(pl.File))))
	}
	if s.Kind == KindRSpec && pl.Name != "" {
		cs := p.commands(pl.Suite, []Place{pl}, nil, "")
		return strings.TrimSuffix(cs[0].human, ")") + " -e " + quote(pl.Name) + suffixIf(cs[0].human, ")")
	}
	if (s.Kind == KindJest || s.Kind == KindVitest) && pl.Name != "" {
		cs := p.commands(pl.Suite, []Place{pl}, nil, "")
		return strings.TrimSuffix(cs[0].human, ")") + " -t " + quote(regexpQuote(pl.Name)) + suffixIf(cs[0].human, ")")
	}
	cs := p.commands(pl.Suite, []Place{pl}, nil, "")
	if len(cs) == 0 {
		return ""
	}
	return cs[0].human
}

func suffixIf(s, suffix string) string {
	if strings.HasSuffix(s, suffix) {
		return suffix
	}
	return ""
}

// exitCodes reports whether nothing but exit codes is known of the tests: an oracle, but none
// that shows which test did what.
func (p Plan) exitCodes() bool {
	return len(p.Suites) > 0 && !slices.ContainsFunc(p.Suites, func(s Suite) bool { return s.Kind != KindCustom || s.Format != "" })
}

// racing is the plan under the race detector. ok is false where no suite has one.
func (p Plan) racing() (Plan, bool) {
	out := Plan{Suites: slices.Clone(p.Suites), Notes: p.Notes}
	ok := false
	for i, s := range out.Suites {
		out.Suites[i].Race = s.Kind == KindGo
		ok = ok || s.Kind == KindGo
	}
	return out, ok
}

// Runner says in one line how the suites are run and read.
func (p Plan) Runner() string {
	var parts []string
	for i, s := range p.Suites {
		switch {
		case s.Kind == KindCustom:
			parts = append(parts, s.Test+" ("+cmp.Or(s.Format, "exit code")+")")
		case len(s.Globs) > 0:
			parts = append(parts, s.human("node "+strings.Join(s.Globs, " "))+" ("+string(s.Kind)+")")
		default:
			parts = append(parts, p.commands(i, nil, nil, "")[0].human+" ("+string(s.Kind)+")")
		}
	}
	if len(parts) == 0 {
		return "no test framework found"
	}
	return strings.Join(parts, "; ")
}
