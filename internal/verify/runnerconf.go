package verify

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// build is a file that says what is built and tested, in one. A fix may well have to touch it: a new
// test of CMake is a new line there, a new dependency one in a pom. Only a change of lines that can
// turn an outcome round is one of the runner's configuration; what is left out of a run is missed in
// the results anyway.
type build struct {
	name  func(base string) bool
	turns *regexp.Regexp // in a line that came or went
	kept  *regexp.Regexp // a line that must not go: what it said may now say something else
}

func builds() []build {
	ends := func(suffixes ...string) func(string) bool {
		return func(base string) bool {
			return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(base, s) })
		}
	}
	return []build{
		{
			named("CMakeLists.txt"),
			regexp.MustCompile(`(?i)PROPERT(Y|IES)|REGULAR_EXPRESSION|WILL_FAIL|SKIP_|DISABLED|CTEST_|NDEBUG|BUILD_TYPE|_FLAGS|_OPTIONS|_DEFINITIONS|\b(function|macro|include|execute_process|add_custom_\w+|configure_file|file|string|cmake_policy|set_source_files_properties)\s*\(|#\[|\]\]`),
			regexp.MustCompile(`(?i)add_test|add_executable|discover_tests|enable_testing`),
		},
		{
			named("pom.xml"),
			regexp.MustCompile(`(?i)surefire|failsafe|skip|argLine|ignore|<(test|include|exclude|groups|plugin|execution|profile|configuration|systemProperty\w*|rerun\w*)s?\b|<!--|-->|CDATA|junit\.|<module|<(testS|s)ourceDirectory|<parent`),
			nil,
		},
		{
			named("Cargo.toml"),
			regexp.MustCompile(`\[(lib|bin|test|bench|example|profile|target|patch|replace|workspace)|\[\[|\b(harness|test|doctest|bench|autotests|autobins|build|panic|debug-assertions|overflow-checks|default|path|members|exclude)\s*=|"""|'''`),
			nil,
		},
		{
			ends(".csproj", ".fsproj", ".vbproj"),
			regexp.MustCompile(`(?i)<(Target|Import|Exec|Compile|Using|PropertyGroup|DefineConstants|RunSettings\w*|VSTest\w*|IsTestProject)|<!--|-->|Condition=`),
			nil,
		},
	}
}

// calm reports whether the change of a build file leaves alone what turns outcomes round.
func calm(p string, old, now []byte) bool {
	for _, b := range builds() {
		if !b.name(path.Base(p)) || len(old) == 0 || len(now) == 0 {
			continue
		}
		gone, came := lineDiff(old, now)
		if slices.ContainsFunc(slices.Concat(gone, came), b.turns.MatchString) {
			return false
		}
		return b.kept == nil || !slices.ContainsFunc(gone, b.kept.MatchString)
	}
	return false
}

// lineDiff lists the lines that only the old or only the new text has, with those that are there
// more often.
func lineDiff(old, now []byte) (gone, came []string) {
	count := map[string]int{}
	for l := range strings.Lines(string(now)) {
		count[strings.TrimSpace(l)]++
	}
	for l := range strings.Lines(string(old)) {
		l = strings.TrimSpace(l)
		if count[l]--; count[l] < 0 {
			gone = append(gone, l)
		}
	}
	for l := range strings.Lines(string(now)) {
		l = strings.TrimSpace(l)
		if count[l] > 0 {
			count[l]--
			came = append(came, l)
		}
	}
	return gone, came
}
