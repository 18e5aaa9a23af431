package tamper

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// Classify says which part of a change a path belongs to. extraTestGlobs are patterns of tests
// beside the ecosystems' own: "*" within a component, "**" across components, and a pattern
// that ends in "/" is a directory. Configuration beats tests, snapshots beat tests, the extra
// globs beat all but conftest.py and the runner's own files.
func Classify(p string, extraTestGlobs []string) Class {
	p = path.Clean(strings.ReplaceAll(p, "\\", "/"))
	base := path.Base(p)
	low := strings.ToLower(base)
	dirs := strings.Split(strings.ToLower(path.Dir(p)), "/")
	if low == "conftest.py" { // holds fixtures, and hooks: those give findings of their own
		return ClassTest
	}
	if isConfig(p, low, dirs) {
		return ClassConfig
	}
	if isSnapshot(low, dirs) {
		return ClassSnapshot
	}
	for _, g := range extraTestGlobs {
		if globMatch(g, p) {
			return ClassTest
		}
	}
	if isTest(base, low, dirs) {
		return ClassTest
	}
	if slices.Contains(docExts, path.Ext(low)) || low == "license" || low == "notice" || low == "authors" || low == ".gitignore" {
		return ClassOther
	}
	return ClassSource
}

var (
	docExts     = []string{".md", ".rst", ".adoc", ".png", ".jpg", ".jpeg", ".gif", ".svg", ".pdf", ".ico"}
	configNames = []string{
		"pytest.ini", ".pytest.ini", "setup.cfg", "setup.py", "tox.ini", "pyproject.toml", "noxfile.py", ".coveragerc", "pipfile", "pipfile.lock", "poetry.lock", "uv.lock", "sitecustomize.py", "usercustomize.py",
		"package.json", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "pnpm-workspace.yaml", "tsconfig.json", "tsconfig.test.json", "bunfig.toml", ".npmrc", ".taprc", ".c8rc.json", ".nycrc", ".babelrc", "lerna.json", "nx.json", "turbo.json",
		"go.mod", "go.sum", "go.work", "go.work.sum", "makefile", "gnumakefile", "justfile", "taskfile.yml", "taskfile.yaml", "rakefile", ".rspec", "phpunit.xml", "phpunit.xml.dist",
		"cargo.toml", "cargo.lock", "pom.xml", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.properties", "cmakelists.txt", "ctestconfig.cmake", "dockerfile",
		".gitlab-ci.yml", ".travis.yml", "appveyor.yml", "azure-pipelines.yml", "jenkinsfile", ".daybreak.yaml", ".pre-commit-config.yaml",
	}
	configForms = regexp.MustCompile(`^(jest|vitest|vite|ava|karma|babel|playwright|cypress|wdio|nyc|rollup|webpack)\.(config|conf|setup)(\.[\w-]+)*\.([cm]?[jt]s|json)$|^jest\.(setup|preset|config)[\w.-]*$|^vitest\.(setup|workspace)[\w.-]*$|^\.mocharc(\.\w+)?$|^(jest|vitest)[-_.]?setup.*\.[cm]?[jt]sx?$|^setup-?tests?\.[cm]?[jt]sx?$|^requirements[\w.-]*\.txt$|^\.babelrc(\.\w+)?$`)
	testForms   = regexp.MustCompile(`^test_.*\.(py|sh)$|^.*_tests?\.(py|sh|go|c|cc|cpp|rb|exs|dart)$|^tests?\.py$|\.(test|spec|tests|cy)\.[cm]?[jt]sx?$|^tests?\.[cm]?[jt]sx?$|_spec\.rb$|\.bats$|-test\.[cm]?[jt]sx?$|_test\.[cm]?[jt]sx?$|^test-.*\.[cm]?[jt]sx?$`)
	javaTest    = regexp.MustCompile(`^(Test\w+|\w+(Tests?|TestCase|IT|Spec))\.(java|kt|scala|groovy|cs|php)$`)
	testDirs    = []string{"test", "tests", "_test", "_tests", "testing", "testdata", "__tests__", "__mocks__", "__fixtures__", "fixtures", "spec", "specs", "e2e", "test-data", "test_data", "testutil", "testutils", "test-utils"}
)

func isConfig(p, low string, dirs []string) bool {
	if slices.Contains(configNames, low) || configForms.MatchString(low) {
		// Files named like configuration inside test data are data.
		return !slices.Contains(dirs, "testdata") && !slices.Contains(dirs, "fixtures") && !slices.Contains(dirs, "__fixtures__")
	}
	return strings.HasPrefix(p, ".github/") || strings.HasPrefix(p, ".circleci/") || strings.HasPrefix(p, ".buildkite/") || strings.HasPrefix(p, ".gitlab/")
}

func isSnapshot(low string, dirs []string) bool {
	if slices.Contains(dirs, "__snapshots__") || slices.Contains(dirs, "snapshots") || slices.Contains(dirs, "__image_snapshots__") {
		return true
	}
	switch path.Ext(low) {
	case ".snap", ".golden", ".ambr", ".approved":
		return true
	}
	return strings.Contains(low, ".golden.") || strings.Contains(low, ".approved.") || slices.Contains(dirs, "golden") && slices.Contains(dirs, "testdata")
}

func isTest(base, low string, dirs []string) bool {
	if testForms.MatchString(low) || javaTest.MatchString(base) {
		return true
	}
	ext := path.Ext(low)
	for i, d := range dirs {
		if ext == ".cs" && (strings.HasSuffix(d, ".tests") || strings.HasSuffix(d, ".test") || strings.HasSuffix(d, ".specs") || strings.HasSuffix(d, ".unittests") || strings.HasSuffix(d, ".integrationtests")) {
			return true
		}
		if !slices.Contains(testDirs, d) {
			continue
		}
		if ext == ".go" { // Go tests are named, not placed
			return d == "testdata"
		}
		switch d {
		case "testing", "testutil", "testutils", "test-utils", "spec", "specs", "fixtures":
			return i == 0 || d == "fixtures" || ext != ".py" && d != "testing"
		}
		return true
	}
	return false
}

// globMatch matches component by component; "**" stands for any number of components.
func globMatch(pattern, p string) bool {
	pattern = strings.TrimPrefix(pattern, "./")
	if strings.HasSuffix(pattern, "/") {
		pattern += "**"
	}
	return MatchParts(strings.Split(pattern, "/"), strings.Split(p, "/"))
}

// MatchParts matches the components of a whole path; "**" stands for any number of them. The
// patterns come from repositories: going back to the newest "**" alone keeps it from taking
// exponential time. A malformed pattern matches nothing.
func MatchParts(pattern, parts []string) bool {
	star, from := -1, 0
	for i, j := 0, 0; i < len(pattern) || j < len(parts); {
		if i < len(pattern) && pattern[i] == "**" {
			star, from = i, j
			i++
			continue
		}
		if i < len(pattern) && j < len(parts) {
			if ok, err := path.Match(pattern[i], parts[j]); ok && err == nil {
				i, j = i+1, j+1
				continue
			}
		}
		if star < 0 || from >= len(parts) {
			return false
		}
		from++
		i, j = star+1, from
	}
	return true
}
