package tamper

import (
	"encoding/json"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// config handles files that decide what runs and how. Lock files and dependency lists are
// "info": they are of interest, but a rerun with the base's copies would prove nothing.
func (a *analysis) config(c FileChange) {
	base := strings.ToLower(path.Base(c.Path))
	severity, what := "warn", "runner configuration changed"
	switch {
	case base == "package.json":
		if !packageRuns(c) {
			severity, what = "info", "dependencies or metadata changed"
		}
	case base == "pyproject.toml" || base == "setup.cfg":
		if sameSections(c) {
			severity, what = "info", "dependencies or metadata changed"
		}
	case strings.HasPrefix(base, "go.") || strings.HasPrefix(base, "requirements") || strings.Contains(base, "lock") || base == "go.sum" || base == "npm-shrinkwrap.json" || base == "cargo.toml" || base == "pipfile":
		severity, what = "info", "dependencies changed"
		if base == "go.work" {
			severity, what = "warn", "the workspace changed"
		}
	case strings.HasPrefix(c.Path, ".github/") || strings.HasPrefix(c.Path, ".gitlab") || strings.HasPrefix(c.Path, ".circleci/") || base == "jenkinsfile" || base == "dockerfile":
		severity, what = "info", "CI changed"
	}
	old, now, line, _ := lostLines(c.Old, c.New)
	if old == "" && now == "" {
		now, _, line, _ = lostLines(c.New, c.Old)
	}
	a.add(c.Path, line, RunnerConfig, severity, what, old, now)
	a.hooks(c)
}

// packageRuns reports whether a package.json changed in what runs tests.
func packageRuns(c FileChange) bool {
	var o, n map[string]any
	if c.Old != nil && json.Unmarshal(c.Old, &o) != nil || c.New == nil || json.Unmarshal(c.New, &n) != nil {
		return true
	}
	for _, k := range []string{"scripts", "jest", "mocha", "ava", "vitest", "tap", "nyc", "c8", "type", "imports", "exports", "workspaces", "babel"} {
		if !reflect.DeepEqual(o[k], n[k]) {
			return true
		}
	}
	return false
}

var iniSection = regexp.MustCompile(`^\s*\[+([^\]]+)\]+`)

// sameSections reports whether the sections that configure a runner are as before.
func sameSections(c FileChange) bool {
	pick := func(b []byte) string {
		var out []string
		in := false
		for _, l := range splitLines(b) {
			if m := iniSection.FindStringSubmatch(l); m != nil {
				in = strings.Contains(m[1], "pytest") || strings.Contains(m[1], "coverage") || strings.Contains(m[1], "tox") || strings.Contains(m[1], "entry") || strings.Contains(m[1], "hatch.envs") || strings.Contains(m[1], "unittest")
			}
			if in && strings.TrimSpace(l) != "" {
				out = append(out, l)
			}
		}
		return strings.Join(out, "\n")
	}
	return pick(c.Old) == pick(c.New)
}

// pattern is something that code says, as space-joined tokens.
type pattern struct {
	re       *regexp.Regexp
	severity string
	what     string
}

var (
	pyHooks = []pattern{
		{regexp.MustCompile(`^def (pytest_runtest_makereport|pytest_runtest_call|pytest_pyfunc_call|pytest_runtest_protocol|pytest_sessionfinish|pytest_report_teststatus|pytest_runtest_logreport|pytest_exception_interact|pytest_assertrepr_compare|pytest_runtest_setup) `), "block", "a hook that can rewrite outcomes"},
		{regexp.MustCompile(`^def (pytest_collection_modifyitems|pytest_ignore_collect|pytest_itemcollected|pytest_pycollect_makeitem|pytest_generate_tests|pytest_deselected|pytest_configure|pytest_load_initial_conftests|pytest_cmdline_main|pytest_unconfigure|pytest_collect_file) `), "warn", "a hook that decides what runs"},
		{regexp.MustCompile(`\bos \. _exit \(`), "block", "the process ends from inside a test"},
		{regexp.MustCompile(`\bsys \. exit \(|^(exit|quit) \(`), "warn", "the process may end from inside a test"},
		{regexp.MustCompile(`\b(exitstatus|outcome) = |\. (outcome|wasxfail|longrepr) = |force_result`), "block", "an outcome is assigned"},
		{regexp.MustCompile(`^pytest_plugins\b`), "warn", "a plugin is loaded"},
	}
	goHooks = []pattern{
		{regexp.MustCompile(`^func TestMain \(`), "warn", "TestMain is new"},
		{regexp.MustCompile(`\bos \. Exit \( 0 \)`), "block", "the process ends with success from inside a test"},
		{regexp.MustCompile(`\bsyscall \. Exit \(|\bos \. Exit \(|runtime \. Goexit \(`), "warn", "the process or a test may end early"},
		{regexp.MustCompile(`\bflag \. Set \( "test\.`), "block", "the test runner's flags are set by the test"},
	}
	jsHooks = []pattern{
		{regexp.MustCompile(`\bprocess \. (exit|reallyExit|abort|kill) \(`), "block", "the process ends from inside a test"},
		{regexp.MustCompile(`\bprocess \. exitCode = `), "block", "the exit code is set by a test"},
		{regexp.MustCompile(`\b(process \. on \( ["'](exit|uncaughtException|unhandledRejection)["'])`), "warn", "errors or the exit are taken over"},
		{regexp.MustCompile(`\b(globalThis|global) \. (expect|test|it|describe|assert) = |\bexpect \. extend \(|\bassert \. \w+ = |\bjest \. (retryTimes|setTimeout) \(`), "warn", "the test framework is changed"},
	}
	detectors = []pattern{
		{regexp.MustCompile(`\btesting \. Testing \(`), "block", "source asks whether it is being tested"},
		{regexp.MustCompile(`\bflag \. Lookup \( ["` + "`" + `]test\.`), "block", "source asks whether it is being tested"},
		{regexp.MustCompile(`["'` + "`" + `]-test\.[\w.]*["'` + "`" + `]|\.test["'` + "`" + `] \).*os \. Args|os \. Args.*\.test["'` + "`" + `]`), "block", "source looks for the test binary's name or flags"},
		{regexp.MustCompile(`PYTEST_CURRENT_TEST|JEST_WORKER_ID|VITEST_WORKER_ID|VITEST_POOL_ID|NODE_TEST_CONTEXT|MOCHA_COLORS|PYTEST_VERSION`), "block", "source reads a variable of the test runner"},
		{regexp.MustCompile(`["'](pytest|unittest|_pytest)["'] in sys \. modules|sys \. modules \. get \( ["'](pytest|unittest)|sys \. modules \[ ["'](pytest|unittest)`), "block", "source looks for the test framework"},
		{regexp.MustCompile(`["'](pytest|unittest)["'] in sys \. argv`), "block", "source looks for the test framework"},
		{regexp.MustCompile(`^(import|from) (_pytest|pluggy)\b|^import (pytest|unittest)( ,| as |$)|^from (pytest|unittest( \. (case|suite|result|runner|loader|main))?) import |^import unittest \. (case|suite|result|runner|loader|main)\b`), "block", "source reaches into the test framework"},
		{regexp.MustCompile(`\b(require \( |from |import )["'](node:test|@jest/globals|vitest|mocha|expect)["']`), "block", "source reaches into the test framework"},
		{regexp.MustCompile(`\bassert( \. strict)? \. \w+ = |\b(globalThis|global) \. (expect|test|it|describe|assert) = `), "block", "source changes what assertions do"},
		{regexp.MustCompile(`\bNODE_ENV\b.*(={2,3}|!==?) ["']test["']|["']test["'] (={2,3}|!==?) .*\bNODE_ENV\b`), "warn", "source behaves differently under tests"},
		{regexp.MustCompile(`typeof (jest|describe|it|vi|mocha) \b`), "block", "source looks for the test framework"},
	}
)

// hooks looks for new lines of a test or configuration file that change what outcomes mean.
func (a *analysis) hooks(c FileChange) {
	var list []pattern
	l := langOf(c.Path)
	switch l {
	case langPython:
		list = pyHooks
	case langGo:
		list = goHooks
	case langJS:
		list = jsHooks
	default:
		return
	}
	oldMain, newMain := mainText(c.Old, l), mainText(c.New, l)
	if l == langGo && newMain != oldMain && newMain != "" {
		severity, what := "warn", "TestMain changed"
		if !strings.Contains(newMain, "m . Run (") || !regexp.MustCompile(`os \. Exit \( (\w+ )?\(? ?(m \. Run|code|status|rc|ret|exitCode|exit|result|res|r|c|v|exitVal|retCode)\b`).MatchString(newMain) && strings.Contains(newMain, "os . Exit") {
			severity, what = "block", "TestMain does not pass the tests' own result on"
		}
		line := 0
		for _, r := range rows(lex(c.New, l)) {
			if strings.HasPrefix(join(r), "func TestMain (") {
				line = r[0].line
			}
		}
		a.add(c.Path, line, OutcomeHook, severity, what, oldMain, newMain)
	}
	a.newLines(c, l, func(row []token, s string, inMain bool) {
		for _, p := range list {
			if p.re.MatchString(s) && !inMain && !harmlessExit(s, l) {
				if strings.HasPrefix(s, "func TestMain") {
					continue
				}
				a.add(c.Path, row[0].line, OutcomeHook, p.severity, p.what, "", s)
				return
			}
		}
	})
}

// harmlessExit are the usual last lines of a Python test file.
func harmlessExit(s string, l lang) bool {
	return l == langPython && (strings.HasPrefix(s, "sys . exit ( pytest . main") || strings.HasPrefix(s, "sys . exit ( unittest") || strings.HasPrefix(s, "raise "))
}

// mainText is the text of TestMain.
func mainText(src []byte, l lang) string {
	if l != langGo || src == nil {
		return ""
	}
	toks := lex(src, l)
	for i := 0; i+1 < len(toks); i++ {
		if toks[i].s == "func" && toks[i+1].s == "TestMain" {
			j := i + 2
			for j < len(toks) && !(toks[j].s == "}" && toks[j].depth == 0) {
				j++
			}
			return join(toks[i:min(j+1, len(toks))])
		}
	}
	return ""
}

func langOf(p string) lang {
	switch path.Ext(p) {
	case ".py":
		return langPython
	case ".go":
		return langGo
	case ".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts":
		return langJS
	}
	return lang(255)
}

// newLines calls f for every row that the old text does not have.
func (a *analysis) newLines(c FileChange, l lang, f func(row []token, text string, inMain bool)) {
	had := map[string]int{}
	for _, r := range rows(lex(c.Old, l)) {
		had[join(r)]++
	}
	inMain := false
	for _, r := range rows(lex(c.New, l)) {
		s := join(r)
		if l == langGo && r[0].depth == 0 {
			inMain = strings.HasPrefix(s, "func TestMain (")
		}
		if had[s] > 0 {
			had[s]--
			continue
		}
		f(r, s, inMain)
	}
}

// detects looks in source for new code that treats tests apart.
func (a *analysis) detects(c FileChange) {
	l := langOf(c.Path)
	if l == lang(255) || c.New == nil {
		return
	}
	a.newLines(c, l, func(row []token, s string, _ bool) {
		for _, p := range detectors {
			if p.re.MatchString(s) {
				a.add(c.Path, row[0].line, DetectsTests, p.severity, p.what, "", s)
				return
			}
		}
	})
}

// testValues are the literals that tests of the change have; true for the telling ones.
func (a *analysis) testValues(changes []FileChange, classify func(string) Class) map[string]bool {
	out := map[string]bool{}
	for _, c := range changes {
		l := langOf(c.Path)
		if l == lang(255) || c.New == nil || len(c.New) > maxFile || classify(c.Path) != ClassTest {
			continue
		}
		for _, t := range lex(c.New, l) {
			if t.kind == number || t.kind == text {
				out[unquote(t.s)] = out[unquote(t.s)] || telling(t)
			}
		}
	}
	return out
}

// telling reports literals that are unlikely to be in two places by chance.
func telling(t token) bool {
	switch t.kind {
	case number:
		return len(strings.Trim(t.s, "0._")) >= 2
	case text:
		return len(unquote(t.s)) >= 3
	}
	return false
}

// copies looks for source that answers a test's input with the test's expected value: a new
// comparison with a literal of the tests, followed by the return of another one. Where one
// condition names two inputs of the tests, any value of theirs is an answer.
func (a *analysis) copies(c FileChange, values map[string]bool) {
	l := langOf(c.Path)
	if l == lang(255) || c.New == nil || len(values) == 0 {
		return
	}
	var asked []token // the comparison whose answer may follow
	plain := false    // whether the answer may be any value
	a.newLines(c, l, func(row []token, s string, _ bool) {
		if slices.ContainsFunc(row, func(t token) bool {
			return t.s == "if" || t.s == "case" || t.s == "elif" || t.s == "?"
		}) {
			told, named := compares(row, values)
			if told || named >= 2 {
				asked, plain = row, named >= 2
			}
		}
		if asked == nil || row[0].line > asked[len(asked)-1].line+2 {
			return
		}
		i := slices.IndexFunc(row, func(t token) bool { return t.s == "return" || t.s == "?" })
		if i < 0 {
			return
		}
		answer := row[i+1:]
		if len(answer) > 0 && answer[0].s == "-" {
			answer = answer[1:]
		}
		if len(answer) == 0 || answer[0].kind != number && answer[0].kind != text {
			return
		}
		told, known := values[unquote(answer[0].s)]
		if (told && telling(answer[0]) || plain && known) && (len(answer) == 1 || !isOperator(answer[1].s)) {
			a.add(c.Path, asked[0].line, CopiesTest, "warn", "needs a person: source answers a value of the tests with another value of the tests", "", join(asked)+" "+s)
			asked = nil
		}
	})
}

func isOperator(s string) bool {
	return slices.Contains([]string{"+", "-", "*", "/", "%", "."}, s)
}

// compares reports whether a row compares something with a telling literal of the tests, and how
// many literals of theirs with two digits or letters it names in comparisons.
func compares(row []token, values map[string]bool) (told bool, named int) {
	for i, t := range row {
		if t.kind != number && t.kind != text {
			continue
		}
		is, known := values[unquote(t.s)]
		if !known || len(unquote(t.s)) < 2 {
			continue
		}
		if i > 0 && slices.Contains([]string{"==", "===", "case", "is", "in", "-"}, row[i-1].s) || i+1 < len(row) && (row[i+1].s == "==" || row[i+1].s == "===") {
			named++
			told = told || is && telling(t)
		}
	}
	return told, named
}
