package verify

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Programs that detection asks for, beside Python's.
func programs() []string {
	return []string{"cargo", "cargo-nextest", "mvn", "gradle", "java", "cmake", "ctest", "dotnet", "rspec", "bundle", "phpunit", "php", "bazel", "bazelisk"}
}

// installed reports whether a program is there, and says so in the plan where it is not.
func (d *detector) installed(why string, names ...string) bool {
	for _, n := range names {
		if slices.Contains(d.tools.Programs, n) {
			return true
		}
	}
	d.note("%s, but %s is not installed", why, strings.Join(names, " or "))
	return false
}

// tops are the directories that hold one of the names and are below no other that does.
func (d *detector) tops(match func(base string) bool) []string {
	var out []string
	for _, f := range d.files {
		if !match(path.Base(f)) || ignoredDir(f) {
			continue
		}
		out = append(out, path.Dir(f))
	}
	slices.SortFunc(out, func(a, b string) int { return len(a) - len(b) })
	var tops []string
	for _, dir := range out {
		if owner(dir+"/x", tops) == "" && !slices.Contains(tops, dir) {
			tops = append(tops, dir)
		}
	}
	return tops
}

func named(names ...string) func(string) bool {
	return func(base string) bool { return slices.Contains(names, base) }
}

// below lists the files below dir.
func (d *detector) below(dir string) []string {
	if dir == "." {
		return d.files
	}
	var out []string
	for _, f := range d.files {
		if strings.HasPrefix(f, dir+"/") {
			out = append(out, f)
		}
	}
	return out
}

// anyText reports whether one of up to 400 files that match holds the expression.
func (d *detector) anyText(files []string, match func(string) bool, re *regexp.Regexp) (string, bool) {
	left := 400
	for _, f := range files {
		if !match(f) {
			continue
		}
		if left--; left < 0 {
			break
		}
		if re.MatchString(d.read(f)) {
			return f, true
		}
	}
	return "", false
}

var (
	cargoWorkspace = regexp.MustCompile(`(?m)^\s*\[workspace\b`)
	cargoPackage   = regexp.MustCompile(`(?m)^\s*\[package\]`)
	rustTest       = regexp.MustCompile(`(?m)#\[(?:\w+::)*test\b|#\[cfg\(test\)\]|^\s*//[/!] ` + "```")
)

// cargo takes each package that is no member of a workspace above it.
func (d *detector) cargo() {
	var taken, spaces []string
	var manifests []string
	for _, f := range d.files {
		if path.Base(f) == "Cargo.toml" && !ignoredDir(f) {
			manifests = append(manifests, f)
		}
	}
	slices.SortFunc(manifests, func(a, b string) int { return len(path.Dir(a)) - len(path.Dir(b)) })
	for _, f := range manifests {
		dir := path.Dir(f)
		text := d.read(f)
		space := cargoWorkspace.MatchString(text)
		if owner(dir+"/x", spaces) != "" || !space && !cargoPackage.MatchString(text) {
			continue
		}
		rust := func(p string) bool {
			return strings.HasSuffix(p, ".rs") && (space || owner(p, append(taken, dir)) == dir)
		}
		if _, ok := d.anyText(d.below(dir), rust, rustTest); !ok {
			d.note("%s: a crate without tests", f)
			continue
		}
		if !d.installed(f+" with Rust tests", "cargo") {
			continue
		}
		s := Suite{Kind: KindCargo, Dir: dir, Env: []string{"CARGO_TERM_COLOR=never", "RUST_BACKTRACE=0"}, Why: "found " + f + ": cargo test"}
		if space {
			spaces = append(spaces, dir)
			s.Flags = []string{"--workspace"}
			s.Why += " of its workspace"
		}
		if c := path.Join(dir, ".config/nextest.toml"); d.has(c) {
			s.Why += " (" + c + " configures nextest, which runs the same tests)"
		}
		taken = append(taken, dir)
		d.add(s)
	}
}

var jvmTest = regexp.MustCompile(`(^|/)src/\w*[tT]est\w*/(java|kotlin|groovy|scala)/.*\.(java|kt|groovy|scala)$`)

// jvm finds Maven and Gradle; where a directory has both, the one that is installed.
func (d *detector) jvm() {
	poms := d.tops(named("pom.xml"))
	for _, dir := range poms {
		f := path.Join(dir, "pom.xml")
		if !slices.ContainsFunc(d.below(dir), jvmTest.MatchString) {
			d.note("%s: a project without tests below src/test", f)
			continue
		}
		if s := (Suite{Kind: KindMaven, Dir: dir, Why: "found " + f + ": mvn test"}); slices.Contains(d.tools.Programs, "mvn") {
			d.add(s)
		} else if d.has(path.Join(dir, "mvnw")) && slices.Contains(d.tools.Programs, "java") {
			s.Test, s.Why = "sh ./mvnw", "found "+f+" and mvnw: ./mvnw test"
			d.add(s)
		} else if d.gradleAt(dir) == "" {
			d.installed(f+" with tests", "mvn")
		}
	}
	for _, dir := range d.tops(named("settings.gradle", "settings.gradle.kts", "build.gradle", "build.gradle.kts")) {
		if slices.ContainsFunc(d.plan.Suites, func(s Suite) bool { return s.Kind == KindMaven && s.Dir == dir }) {
			d.note("%s: mvn runs the tests of this directory", path.Join(dir, d.gradleAt(dir)))
			continue
		}
		f := path.Join(dir, d.gradleAt(dir))
		if !slices.ContainsFunc(d.below(dir), jvmTest.MatchString) {
			d.note("%s: a project without tests below src/test", f)
			continue
		}
		s := Suite{Kind: KindGradle, Dir: dir, Why: "found " + f + ": gradle test"}
		if d.has(path.Join(dir, "gradlew")) && slices.Contains(d.tools.Programs, "java") {
			s.Test, s.Why = "sh ./gradlew", "found "+f+" and gradlew: ./gradlew test"
		} else if !d.installed(f+" with tests", "gradle") {
			continue
		}
		d.add(s)
	}
}

// gradleAt is the name of the Gradle build of a directory, or "".
func (d *detector) gradleAt(dir string) string {
	for _, n := range []string{"settings.gradle", "settings.gradle.kts", "build.gradle", "build.gradle.kts"} {
		if d.has(path.Join(dir, n)) {
			return n
		}
	}
	return ""
}

var (
	cmakeTests   = regexp.MustCompile(`(?im)^\s*(?:enable_testing\s*\(|include\s*\(\s*CTest\s*\)|add_test\s*\(|\w*discover_tests\s*\()`)
	cmakeProject = regexp.MustCompile(`(?im)^\s*project\s*\(`)
	cmakeOff     = regexp.MustCompile(`(?im)^\s*(?:option|cmake_dependent_option)\s*\(\s*(\w*(?:TESTS?|TESTING))\s+"[^"]*"\s+(?:OFF|FALSE|0)\b`)
	makeTest     = regexp.MustCompile(`(?m)^(check|test)\s*:`)
)

// ctest takes each top CMake project that registers tests. Tests that an option leaves out by
// default are switched on.
func (d *detector) ctest() {
	for _, dir := range d.tops(named("CMakeLists.txt")) {
		f := path.Join(dir, "CMakeLists.txt")
		text := d.read(f)
		if !cmakeProject.MatchString(text) {
			continue
		}
		cmake := func(p string) bool {
			return (path.Base(p) == "CMakeLists.txt" || strings.HasSuffix(p, ".cmake")) && !ignoredDir(p)
		}
		where, ok := d.anyText(d.below(dir), cmake, cmakeTests)
		if !ok {
			d.note("%s registers no tests with ctest", f)
			continue
		}
		if !d.installed(f+" with tests", "cmake") || !d.installed(f+" with tests", "ctest") {
			continue
		}
		s := Suite{Kind: KindCTest, Dir: dir, Why: fmt.Sprintf("found %s, and tests in %s: cmake, then ctest", f, where)}
		for _, m := range cmakeOff.FindAllStringSubmatch(text, 5) {
			s.Flags = append(s.Flags, "-D"+m[1]+"=ON")
			s.Why += "; its option " + m[1] + " is switched on"
		}
		d.add(s)
	}
}

// dotnet takes each top solution, and projects of tests that no solution is above.
func (d *detector) dotnet() {
	isSolution := func(base string) bool { return strings.HasSuffix(base, ".sln") || strings.HasSuffix(base, ".slnx") }
	isProject := func(p string) bool {
		ext := path.Ext(p)
		return ext == ".csproj" || ext == ".fsproj" || ext == ".vbproj"
	}
	sdk := regexp.MustCompile(`Microsoft\.NET\.Test\.Sdk|MSTest\.Sdk|TUnit`)
	solutions := d.tops(isSolution)
	var projects []string
	for _, f := range d.files {
		if isProject(f) && !ignoredDir(f) && sdk.MatchString(d.read(f)) {
			projects = append(projects, f)
		}
	}
	seen := map[string]bool{}
	for _, f := range projects {
		dir, target := owner(f, solutions), ""
		why := f
		if dir == "" {
			dir, target = path.Dir(f), path.Base(f)
		} else if i := slices.IndexFunc(d.files, func(p string) bool { return path.Dir(p) == dir && isSolution(path.Base(p)) }); i >= 0 {
			target, why = path.Base(d.files[i]), d.files[i]
		}
		if seen[dir+"/"+target] {
			continue
		}
		seen[dir+"/"+target] = true
		if !d.installed(why+" with tests", "dotnet") {
			continue
		}
		d.add(Suite{
			Kind: KindDotnet, Dir: dir, Targets: []string{target}, Why: "found " + why + ": dotnet test",
			Env: []string{"DOTNET_CLI_TELEMETRY_OPTOUT=1", "DOTNET_NOLOGO=1", "DOTNET_SKIP_FIRST_TIME_EXPERIENCE=1"},
		})
	}
}

// rspec takes each directory whose spec directory holds examples.
func (d *detector) rspec() {
	var seen []string
	for _, f := range d.files {
		i := strings.LastIndex("/"+f, "/spec/")
		if !strings.HasSuffix(f, "_spec.rb") || ignoredDir(f) || i < 0 {
			continue
		}
		if dir := path.Clean("./" + f[:max(0, i-1)]); owner(f, seen) == "" {
			seen = append(seen, dir)
			s := Suite{Kind: KindRSpec, Dir: dir, Why: "found " + f + " and its like: rspec"}
			if d.has(path.Join(dir, "Gemfile.lock")) && slices.Contains(d.tools.Programs, "bundle") {
				s.Test, s.Why = "bundle exec rspec", s.Why+" of "+path.Join(dir, "Gemfile.lock")
			} else if !d.installed(f+" is an RSpec file", "rspec") {
				continue
			}
			d.add(s)
		}
	}
}

// phpunit takes each directory with a configuration, or with Composer's word for it and tests.
func (d *detector) phpunit() {
	config := named("phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml")
	isTest := func(f string) bool { return strings.HasSuffix(f, "Test.php") }
	for _, dir := range d.tops(func(base string) bool { return config(base) || base == "composer.json" }) {
		tests := d.below(dir)
		if i := slices.IndexFunc(tests, isTest); i < 0 {
			continue
		}
		s := Suite{Kind: KindPHPUnit, Dir: dir}
		if i := slices.IndexFunc(d.files, func(f string) bool { return path.Dir(f) == dir && config(path.Base(f)) }); i >= 0 {
			s.Why = "found " + d.files[i] + ": phpunit"
		} else if c := path.Join(dir, "composer.json"); strings.Contains(d.read(c), "phpunit/phpunit") {
			s.Why = c + " names phpunit"
			var local []string
			for _, f := range tests {
				if isTest(f) {
					local = append(local, s.local(f))
				}
			}
			if top := topDirs(local); len(top) == 1 {
				s.Targets = top
			}
		} else {
			continue
		}
		if d.installed(s.Why, "phpunit", "php") {
			d.add(s)
		}
	}
}

var bazelTest = regexp.MustCompile(`(?m)^\s*\w*_test\s*\(`)

// bazel is asked only where nothing else runs the tests: it would run the same ones again.
func (d *detector) bazel() {
	i := slices.IndexFunc(d.files, named("MODULE.bazel", "WORKSPACE", "WORKSPACE.bazel"))
	if i < 0 {
		return
	}
	build, ok := d.anyText(d.files, func(p string) bool { return path.Base(p) == "BUILD" || path.Base(p) == "BUILD.bazel" }, bazelTest)
	if !ok {
		return
	}
	if len(d.plan.Suites) > 0 {
		d.note("%s: Bazel is left out, since other runners were found", d.files[i])
		return
	}
	if !d.installed(d.files[i]+", and tests in "+build, "bazel", "bazelisk") {
		return
	}
	s := Suite{Kind: KindBazel, Dir: ".", Why: "found " + d.files[i] + ", and tests in " + build + ": bazel test //..."}
	if !slices.Contains(d.tools.Programs, "bazel") {
		s.Test = "bazelisk"
	}
	d.add(s)
}

// makefile only says where a person has to.
func (d *detector) makefile() {
	if len(d.plan.Suites) > 0 {
		return
	}
	for _, f := range []string{"Makefile", "makefile", "GNUmakefile", "Makefile.am"} {
		if m := makeTest.FindStringSubmatch(d.read(f)); m != nil {
			d.note("%s has a target %q, whose output is of no known form: name it under test in .daybreak.yaml, with its format", f, m[1])
			return
		}
	}
}
