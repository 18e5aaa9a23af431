package verify

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/result"
)

// What compiled languages, Ruby, PHP and Bazel are run by. Build directories live below HOME, where
// the base's own run leaves them for every later bench: what a change placed is newer and is built
// again.
const (
	// BuildHome is where builds are kept below HOME.
	BuildHome = ".cache/daybreak"
	buildHome = `"$HOME/` + BuildHome
	// offline is a tool's option while there is no way to the registries, see [Offline].
	offline = `off=%s; if [ "${CARGO_NET_OFFLINE-}" = false ]; then off=; fi; `
)

// native reports whether the kind is driven by this file.
func (k Kind) native() bool {
	return slices.Contains([]Kind{KindCargo, KindMaven, KindGradle, KindCTest, KindDotnet, KindRSpec, KindPHPUnit, KindBazel}, k)
}

// nativeCommands builds the one process that runs the places, or the whole suite when places is nil
// or names the suite alone.
func (s Suite) nativeCommands(i int, places []Place, report string) []command {
	if slices.ContainsFunc(places, func(p Place) bool { return p.Name == "" && p.File == "" && p.Group == "" && p.Reach == "" }) {
		places = nil
	}
	switch s.Kind {
	case KindCargo:
		return s.cargoCommands(i, places, report)
	case KindMaven:
		return s.mavenCommands(i, places)
	case KindGradle:
		return s.gradleCommands(i, places, report)
	case KindCTest:
		return s.ctestCommands(i, places, report)
	case KindDotnet:
		return s.dotnetCommands(i, places, report)
	case KindRSpec:
		return s.rspecCommands(i, places, report)
	case KindPHPUnit:
		return s.phpunitCommands(i, places, report)
	}
	return s.bazelCommands(i, places, report)
}

// words sorts and quotes a set of arguments.
func words(list []string) string {
	slices.Sort(list)
	return quoteAll(slices.Compact(list))
}

// parted takes the parts of the build that are to be run as a whole out of the places.
func parted(places []Place) (parts []string, rest []Place) {
	for _, p := range places {
		if p.Reach != "" {
			parts = append(parts, p.Reach)
		} else {
			rest = append(rest, p)
		}
	}
	slices.Sort(parts)
	return slices.Compact(parts), rest
}

func spaced(args string) string {
	if args == "" {
		return ""
	}
	return " " + args
}

// ended appends the line without which a report of text counts as cut.
func ended(shell, report string) string {
	return "code=0; {\n" + shell + "\n} > " + report + " 2>&1 || code=$?; printf '\\n%s%d\\n' " + quote(result.EndMark) + ` "$code" >> ` + report + `; exit "$code"`
}

// cargoGroup reads the group of a test: "shop (src/lib.rs)".
var cargoGroup = regexp.MustCompile(`^(\S+) \((.+)\)$`)

// cargoTarget is the option that selects the target of a group, or of a file of integration tests;
// "" for all.
func cargoTarget(p Place) string {
	program, file := "", p.File
	if m := cargoGroup.FindStringSubmatch(p.Group); m != nil {
		program, file = m[1], m[2]
	}
	stem := strings.TrimSuffix(path.Base(file), ".rs")
	if stem == "main" || stem == "mod" {
		stem = path.Base(path.Dir(file))
	}
	glob := strings.ReplaceAll(program, "_", "?") // "-" of a target's name is "_" in its program's
	switch {
	case file == "doc":
		return "--doc"
	case file == "src/main.rs" || strings.HasPrefix(file, "src/bin/"):
		return "--bin " + quote(glob)
	case strings.HasPrefix(file, "examples/"):
		return "--example " + quote(cmp.Or(glob, stem))
	case strings.HasPrefix(file, "benches/"):
		return "--bench " + quote(cmp.Or(glob, stem))
	case program == "" && strings.Contains("/"+file, "/tests/"): // a path below the work tree
		rest := ("/" + file)[strings.LastIndex("/"+file, "/tests/")+len("/tests/"):]
		if dir, base, deep := strings.Cut(rest, "/"); deep && base != "main.rs" {
			return "--tests" // a module that several targets may share, but no documentation test
		} else if deep {
			return "--test " + quote(dir)
		}
		return "--test " + quote(stem)
	case strings.HasPrefix(file, "tests/") && strings.ReplaceAll(stem, "-", "_") == program:
		return "--test " + quote(stem)
	case strings.HasPrefix(file, "tests/"):
		return "--test " + quote(glob)
	case program != "":
		return "--lib"
	}
	return ""
}

// cargoRun is one process of cargo: which targets, and which of their tests.
type cargoRun struct {
	parts          []string // packages of the workspace; nil: all
	targets, names []string // nil: all
	doc            bool
}

// build are the arguments that say what is compiled.
func (s Suite) build(r cargoRun) string {
	flags := slices.Clone(s.Flags)
	if len(r.parts) > 0 {
		flags = slices.DeleteFunc(flags, func(f string) bool { return f == "--workspace" })
	}
	for _, p := range r.parts {
		flags = append(flags, "-p", p)
	}
	args := spaced(quoteAll(flags))
	if len(r.targets) > 0 {
		args += " " + strings.Join(slices.Compact(slices.Sorted(slices.Values(r.targets))), " ")
	}
	return args
}

func (s Suite) cargoCommands(i int, places []Place, report string) []command {
	var out []command
	for n, r := range cargoRuns(places) {
		args := s.build(r)
		if len(r.names) > 0 {
			args += " -- "
			if !r.doc {
				args += "--exact "
			}
			args += words(r.names)
		}
		file := numbered(report, n, ".txt")
		shell := "export CARGO_TARGET_DIR=" + s.buildDir(i) + "; " + ended("cargo test --no-fail-fast"+args, file)
		out = append(out, s.command(i, shell, "cargo test"+args, "cargo", file))
	}
	return out
}

// cargoRuns parts whole packages, and documentation tests, which are named in another way, from the others.
func cargoRuns(places []Place) []cargoRun {
	if places == nil {
		return []cargoRun{{}}
	}
	var out []cargoRun
	parts, places := parted(places)
	if len(parts) > 0 {
		out = append(out, cargoRun{parts: parts})
	}
	var targets, names, docs []string
	all, whole, allDocs := false, false, false
	for _, p := range places {
		t := cargoTarget(p)
		switch {
		case t == "--doc" && p.Name == "":
			allDocs = true
		case t == "--doc":
			docs = append(docs, p.Name+" (line")
		default:
			all, whole = all || t == "", whole || p.Name == ""
			targets, names = append(targets, t), append(names, p.Name)
		}
	}
	if len(targets) > 0 {
		if all {
			targets = nil
		}
		if whole {
			names = nil
		}
		out = append(out, cargoRun{targets: targets, names: names})
	}
	if len(docs) > 0 || allDocs {
		if allDocs {
			docs = nil
		}
		out = append(out, cargoRun{targets: []string{"--doc"}, names: docs, doc: true})
	}
	return out
}

// class is the class of a place: as the report says it, or the name of the file.
func (p Place) class() string {
	if p.Group != "" {
		return p.Group
	}
	return strings.TrimSuffix(path.Base(p.File), path.Ext(p.File))
}

var plainMethod = regexp.MustCompile(`^[\p{L}_$][\p{L}\p{N}_$]*`)

// method is the method of a test's name, without parameters, or "" where the name is words of its
// own.
func (p Place) method() string {
	m := plainMethod.FindString(p.Name)
	if rest := p.Name[len(m):]; m == "" || p.Name == p.Group || rest != "" && !strings.ContainsAny(rest[:1], "([{") {
		return ""
	}
	return m
}

func (s Suite) mavenCommands(i int, places []Place) []command {
	args := " test"
	parts, places := parted(places)
	if len(parts) > 0 { // with what they are built on
		args = " -pl " + quote(strings.Join(parts, ",")) + " -am" + args
	}
	if places != nil {
		var tests []string
		for _, p := range places {
			t := p.class() + "*" // the classes nested in it have longer names,
			if m := p.method(); m != "" {
				t += "#" + m + "*" // and so has a method with parameters
			}
			tests = append(tests, t)
		}
		slices.Sort(tests)
		args = " -Dtest=" + quote(strings.Join(slices.Compact(tests), ",")) + args
	}
	run := cmp.Or(s.Test, "mvn")
	// That one test fails must not keep the next module from being tested: what failed is read from the files.
	shell := fmt.Sprintf(offline, "-o") + run + " -B -ntp $off -Dstyle.color=never -Dmaven.test.failure.ignore=true -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false" + args
	c := s.command(i, shell, run+args, "junit", "")
	c.globs = []string{path.Join(s.Dir, "**/target/surefire-reports/TEST-*.xml")}
	c.console = "maven"
	return []command{c}
}

// gradleInit makes Gradle run every test that is asked for, once and now.
const gradleInit = `allprojects { tasks.withType(Test) { filter { failOnNoMatchingTests = false }; ignoreFailures = true; outputs.upToDateWhen { false }; outputs.cacheIf { false } } }`

func (s Suite) gradleCommands(i int, places []Place, report string) []command {
	if parts, rest := parted(places); len(parts) > 0 {
		args := ""
		for _, p := range parts {
			args += " " + quote(strings.TrimSuffix(p, ":")+":test")
		}
		out := []command{s.gradleCommand(i, 0, args, report)}
		if len(rest) > 0 {
			out = append(out, s.gradleCommand(i, 1, gradleTests(rest), report))
		}
		return out
	}
	args := " test"
	if places != nil {
		args = gradleTests(places)
	}
	return []command{s.gradleCommand(i, 0, args, report)}
}

func gradleTests(places []Place) string {
	var tests []string
	for _, p := range places {
		t := p.class() + "*"
		if p.Group == "" {
			t = "*" + t
		}
		if m := p.method(); m != "" {
			t += "." + m + "*"
		}
		tests = append(tests, t)
	}
	slices.Sort(tests)
	args := " test"
	for _, t := range slices.Compact(tests) {
		args += " --tests " + quote(t)
	}
	return args
}

func (s Suite) gradleCommand(i, n int, args, report string) command {
	run := cmp.Or(s.Test, "gradle")
	r := numbered(report, n, ".init.gradle")
	shell := fmt.Sprintf(offline, "--offline") + "printf %s " + quote(gradleInit) + " > " + r + "; " + run + " --no-daemon --console=plain $off --continue -I " + r + args
	c := s.command(i, shell, run+args, "junit", "")
	c.globs = []string{path.Join(s.Dir, "**/build/test-results/**/TEST-*.xml")}
	c.console = "gradle"
	return c
}

func (s Suite) ctestCommands(i int, places []Place, report string) []command {
	args := ""
	if places != nil {
		var names []string
		for _, p := range places {
			names = append(names, regexpQuote(cmp.Or(p.Name, p.Group))) // a program is a group of its own
		}
		slices.Sort(names)
		args = " -R " + quote("^("+strings.Join(slices.Compact(names), "|")+")$")
	}
	r := numbered(report, 0, ".xml")
	build, human := s.cmakeBuild(i)
	// What does not build is a test that did not run; the others still tell. make leaves the program
	// of an earlier tree where the new one does not compile: it must not be run in its place.
	shell := build + ` -- -k || { find "$build" -type f -perm -100 -exec grep -lZ '^.ELF' {} + | xargs -0r rm -f --; cmake --build "$build" --parallel 2 -- -k || true; }; ctest --test-dir "$build" --output-junit ` + r + args
	c := s.command(i, shell, human+" && ctest --test-dir build"+args, "junit", r)
	c.console = "ctest"
	return []command{c}
}

// cmakeBuild configures and compiles. Options of make may follow it.
func (s Suite) cmakeBuild(i int) (shell, human string) {
	flags := spaced(quoteAll(s.Flags))
	return "set -e; build=" + s.buildDir(i) + `; cmake -G "Unix Makefiles" -S . -B "$build"` + flags + ` -Wno-dev; cmake --build "$build" --parallel 2`,
		"cmake -B build" + flags + " && cmake --build build"
}

func (s Suite) dotnetCommands(i int, places []Place, report string) []command {
	args := spaced(quoteAll(s.Targets))
	if places != nil {
		var tests []string
		for _, p := range places {
			t := p.class()
			if m := p.method(); m != "" {
				t += "." + m
			}
			tests = append(tests, "FullyQualifiedName~"+t)
		}
		slices.Sort(tests)
		args += " --filter " + quote(strings.Join(slices.Compact(tests), "|"))
	}
	dir := numbered(report, 0, ".trx")
	c := s.command(i, "dotnet test --nologo --logger trx --results-directory "+dir+args, "dotnet test"+args, "trx", "")
	c.globs, c.console = []string{dir + "/**/*.trx"}, "trx"
	return []command{c}
}

func (s Suite) rspecCommands(i int, places []Place, report string) []command {
	var files []string
	for _, p := range places {
		files = append(files, fileArg(s.local(p.File)))
	}
	run := cmp.Or(s.Test, "rspec")
	r := numbered(report, 0, ".json")
	args := spaced(words(files))
	return []command{s.command(i, run+" --no-color --order defined --format json --out "+r+args, run+args, "rspec", r)}
}

func (s Suite) phpunitCommands(i int, places []Place, report string) []command {
	args := ""
	if places != nil {
		var tests []string
		for _, p := range places {
			t := regexpQuote(p.class()) + "::"
			if p.Name != "" {
				t += regexpQuote(p.Name) + "(?: |$)"
			}
			tests = append(tests, t)
		}
		slices.Sort(tests)
		args = " --filter " + quote("/(?:"+strings.Join(slices.Compact(tests), "|")+")/")
	}
	args += spaced(quoteAll(s.Targets))
	r := numbered(report, 0, ".xml")
	shell := "p=vendor/bin/phpunit; if ! [ -f $p ]; then p=phpunit; fi; $p --colors=never --do-not-cache-result --log-junit " + r + args
	c := s.command(i, shell, "phpunit"+args, "junit", r)
	c.console = "phpunit"
	return []command{c}
}

// bazelQuery asks what a query finds, one label a line.
func (s Suite) bazelQuery(i int, query string) command {
	run := cmp.Or(s.Test, "bazel")
	return s.command(i, run+" query --noshow_progress --color=no --output=label "+quote(query), run+" query "+quote(query), "", "")
}

func (s Suite) bazelCommands(i int, places []Place, report string) []command {
	targets := []string{"//..."}
	if places != nil && !slices.ContainsFunc(places, func(p Place) bool { return !strings.HasPrefix(p.Group, "//") }) {
		targets = nil
		for _, p := range places {
			targets = append(targets, p.Group)
		}
	}
	args := " " + words(targets)
	r := numbered(report, 0, ".json")
	run := cmp.Or(s.Test, "bazel")
	c := s.command(i, run+" test --noshow_progress --color=no --keep_going --nocache_test_results --build_event_json_file="+r+args, run+" test"+args, "bazel", r)
	c.globs = []string{path.Join(s.Dir, "bazel-testlogs/**/test.xml")}
	return []command{c}
}

// nativeExts are the files that a kind's tests are written in.
func (k Kind) nativeExts() []string {
	switch k {
	case KindCargo:
		return []string{".rs"}
	case KindMaven, KindGradle:
		return []string{".java", ".kt", ".scala", ".groovy"}
	case KindCTest:
		return []string{".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".inl", ".m"}
	case KindDotnet:
		return []string{".cs", ".fs", ".vb"}
	case KindRSpec:
		return []string{".rb"}
	case KindPHPUnit:
		return []string{".php"}
	}
	return nil
}

// nativeScope is where the tests of a changed test file are, before their ids are known: the file
// where the runner takes one, else the suite.
func (s Suite) nativeScope(i int, file string) (Place, bool) {
	ext := path.Ext(file)
	if s.Kind == KindBazel {
		return Place{Suite: i}, true
	}
	if !slices.Contains(s.Kind.nativeExts(), ext) {
		return Place{Suite: i}, slices.Contains([]Kind{KindCTest, KindCargo}, s.Kind) // data that tests read
	}
	switch s.Kind {
	case KindCargo:
		if cargoTarget(Place{File: file}) != "" {
			return Place{Suite: i, File: file}, true
		}
		return Place{Suite: i}, true
	case KindCTest:
		return Place{Suite: i}, true
	case KindRSpec:
		if !strings.HasSuffix(file, "_spec.rb") {
			return Place{Suite: i}, true
		}
	}
	return Place{Suite: i, File: file}, true
}
