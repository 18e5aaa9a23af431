package tamper

import (
	"encoding/json"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
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

// hooks looks for new lines of a test or configuration file that change what outcomes mean.
func (a *analysis) hooks(c FileChange) {
	var list []pattern
	l := syntax.Of(c.Path)
	switch l {
	case syntax.Python:
		list = pyHooks
	case syntax.Go:
		list = goHooks
	case syntax.JavaScript:
		list = jsHooks
	default:
		list = otherHooks[l]
	}
	if list == nil {
		return
	}
	oldMain, newMain := mainText(c.Old, l), mainText(c.New, l)
	if l == syntax.Go && newMain != oldMain && newMain != "" {
		severity, what := "warn", "TestMain changed"
		if !strings.Contains(newMain, "m . Run (") || !regexp.MustCompile(`os \. Exit \( (\w+ )?\(? ?(m \. Run|code|status|rc|ret|exitCode|exit|result|res|r|c|v|exitVal|retCode)\b`).MatchString(newMain) && strings.Contains(newMain, "os . Exit") {
			severity, what = "block", "TestMain does not pass the tests' own result on"
		}
		line := 0
		for _, r := range rows(syntax.Lex(c.New, l)) {
			if strings.HasPrefix(join(r), "func TestMain (") {
				line = r[0].Line
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
				a.add(c.Path, row[0].Line, OutcomeHook, p.severity, p.what, "", s)
				return
			}
		}
	})
}

// harmlessExit are the usual last lines of a Python test file.
func harmlessExit(s string, l syntax.Lang) bool {
	return l == syntax.Python && (strings.HasPrefix(s, "sys . exit ( pytest . main") || strings.HasPrefix(s, "sys . exit ( unittest") || strings.HasPrefix(s, "raise "))
}

// mainText is the text of TestMain.
func mainText(src []byte, l syntax.Lang) string {
	if l != syntax.Go || src == nil {
		return ""
	}
	toks := syntax.Lex(src, l)
	for i := 0; i+1 < len(toks); i++ {
		if toks[i].Text == "func" && toks[i+1].Text == "TestMain" {
			j := i + 2
			for j < len(toks) && !(toks[j].Text == "}" && toks[j].Depth == 0) {
				j++
			}
			return join(toks[i:min(j+1, len(toks))])
		}
	}
	return ""
}

// newLines calls f for every row that the old text does not have.
func (a *analysis) newLines(c FileChange, l syntax.Lang, f func(row []token, text string, inMain bool)) {
	had := map[string]int{}
	for _, r := range rows(syntax.Lex(c.Old, l)) {
		had[join(r)]++
	}
	inMain := false
	for _, r := range rows(syntax.Lex(c.New, l)) {
		s := join(r)
		if l == syntax.Go && r[0].Depth == 0 {
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
	l := syntax.Of(c.Path)
	if l == syntax.None || c.New == nil {
		return
	}
	a.newLines(c, l, func(row []token, s string, _ bool) {
		for _, p := range detectors {
			if p.re.MatchString(s) {
				a.add(c.Path, row[0].Line, DetectsTests, p.severity, p.what, "", s)
				return
			}
		}
	})
}

// maxData is how large a file of data may be whose single values are taken for those of the tests:
// what is larger has all kinds of them.
const maxData = 16 << 10 // bytes

// testValues are the literals that tests of the change have, and their files of data; true for the
// telling ones.
func (a *analysis) testValues(changes []FileChange, classify func(string) Class) map[string]bool {
	out, quoted := map[string]bool{}, regexp.MustCompile(`"(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*'|\d[\d.]*`)
	for _, c := range changes {
		l, class := syntax.Of(c.Path), classify(c.Path)
		if c.New == nil || len(c.New) > maxFile || !class.IsTests() {
			continue
		}
		if l == syntax.None {
			text := strings.ReplaceAll(string(c.New), "\r\n", "\n")
			a.data = append(a.data, text)
			for _, v := range quoted.FindAllString(text, -1) {
				if len(text) > maxData {
					break
				}
				t := token{Kind: syntax.Number, Text: v}
				if v[0] == '"' || v[0] == '\'' {
					t.Kind = syntax.Text
				}
				out[value(v)] = out[value(v)] || telling(t)
			}
			continue
		}
		if class != ClassTest {
			continue
		}
		for _, t := range syntax.Lex(c.New, l) {
			if t.Kind == syntax.Number || t.Kind == syntax.Text {
				out[value(t.Text)] = out[value(t.Text)] || telling(t)
			}
		}
	}
	return out
}

// telling reports literals that are unlikely to be in two places by chance.
func telling(t token) bool {
	switch t.Kind {
	case syntax.Number:
		return len(strings.Trim(t.Text, "0._")) >= 2
	case syntax.Text:
		return len(value(t.Text)) >= 3
	}
	return false
}

// value is a literal as it is meant, so that one written with escapes is one over several lines.
func value(s string) string {
	return strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\t`, "\t", `\r`, "\r", `\"`, `"`, `\'`, `'`).Replace(unquote(s))
}

// wholeInput is from how many bytes on a literal of the tests that source compares with is an input
// as a whole, whatever the answer is.
const wholeInput = 24

// anyInput is from how many bytes on a literal is an input of some test, whose file may be an old one.
const anyInput = 80

// whole reports a comparison with a whole input, which may be in a file of the tests, or with a value
// that was written out as text.
func (a *analysis) whole(row []token, values map[string]bool) bool {
	for i, t := range row {
		if t.Kind != syntax.Text || !compared(row, i) {
			continue
		}
		v := value(t.Text)
		if len(v) >= anyInput || strings.Contains(strings.TrimSpace(v), "\n") || len(v) >= wholeInput && (values[v] || slices.ContainsFunc(a.data, func(text string) bool { return strings.Contains(text, v) })) || syntax.Has(row, "stringify", "dumps", "repr") {
			return true
		}
	}
	return false
}

// structure reports an answer that is a list or an object of nothing but literals, with at least
// one, and whether all of them are the tests' own.
func structure(answer []token, values map[string]bool) (is, theirs bool) {
	if len(answer) == 0 || !slices.Contains([]string{"[", "{", "("}, answer[0].Text) {
		return false, false
	}
	literal := false
	theirs = true
	open := 0
	for i, t := range answer {
		switch {
		case t.Kind == syntax.Word && i+1 < len(answer) && answer[i+1].Text == ":": // a key
		case t.Kind == syntax.Punct && (t.Text == "[" || t.Text == "{" || t.Text == "("):
			open++
		case t.Kind == syntax.Punct && (t.Text == "]" || t.Text == "}" || t.Text == ")"):
			if open--; open == 0 {
				return literal, theirs
			}
		case t.Kind == syntax.Number || t.Kind == syntax.Text:
			_, known := values[value(t.Text)]
			literal, theirs = true, theirs && known
		case t.Kind == syntax.Word && !slices.Contains([]string{"true", "false", "null", "undefined", "None", "True", "False"}, t.Text):
			return false, false
		}
	}
	return false, false
}

// copies looks for source that answers a test's input with the test's expected value: a new
// comparison with a literal of the tests, followed by the return of another one. Where one
// condition names two inputs of the tests, any value of theirs is an answer.
func (a *analysis) copies(c FileChange, values map[string]bool) {
	l := syntax.Of(c.Path)
	if l == syntax.None || c.New == nil || len(values) == 0 {
		return
	}
	var asked []token // the comparison whose answer may follow
	plain := false    // whether the answer may be any value
	input := false    // whether it may be anything written out
	a.newLines(c, l, func(row []token, s string, _ bool) {
		arm := (l == syntax.Rust || l == syntax.CSharp || l == syntax.Java) && row[0].Literal() && syntax.Has(row, "=>", "->")
		if arm || syntax.Has(row, "if", "case", "elif", "elsif", "when", "unless", "match", "?") {
			told, named := compares(row, values)
			if all := a.whole(row, values); told || named >= 2 || all {
				asked, plain, input = row, named >= 2, all
			}
		}
		if asked == nil || row[0].Line > asked[len(asked)-1].Line+2 {
			return
		}
		answer := answerOf(row, l, row[0].Line > asked[0].Line)
		if len(answer) > 0 && answer[0].Text == "-" {
			answer = answer[1:]
		}
		made, theirs := structure(answer, values)
		if len(answer) == 0 || !made && answer[0].Kind != syntax.Number && answer[0].Kind != syntax.Text {
			return
		}
		told, known := values[value(answer[0].Text)]
		if (told && telling(answer[0]) || plain && known || input || made && theirs) && (len(answer) == 1 || !isOperator(answer[1].Text)) {
			a.add(c.Path, asked[0].Line, CopiesTest, "warn", "source answers an input of the tests with a value that is written out", "", join(asked)+" "+s)
			asked = nil
		}
	})
}

// answerOf is what a row gives back: what follows a return or an arrow, or a value that stands
// alone where a block's last value is its result.
func answerOf(row []token, l syntax.Lang, below bool) []token {
	for i := len(row) - 1; i >= 0; i-- {
		switch row[i].Text {
		case "return", "?", "then":
			return row[i+1:]
		case "=>":
			if l == syntax.Rust || l == syntax.CSharp {
				return row[i+1:]
			}
		case "->":
			if l == syntax.Java {
				return row[i+1:]
			}
		case "{":
			if l == syntax.Rust && i+1 < len(row) {
				return row[i+1:]
			}
		}
	}
	if below && (l == syntax.Rust || l == syntax.Ruby) && len(row) <= 2 {
		return row
	}
	return nil
}

func isOperator(s string) bool {
	return slices.Contains([]string{"+", "-", "*", "/", "%", "."}, s)
}

// compares reports whether a row compares something with a telling literal of the tests, and how
// many literals of theirs with two digits or letters it names in comparisons.
func compares(row []token, values map[string]bool) (told bool, named int) {
	for i, t := range row {
		if t.Kind != syntax.Number && t.Kind != syntax.Text {
			continue
		}
		is, known := values[value(t.Text)]
		if !known || len(value(t.Text)) < 2 {
			continue
		}
		if compared(row, i) {
			named++
			told = told || is && telling(t)
		}
	}
	return told, named
}

// compared reports whether the literal at i is what something is compared with.
func compared(row []token, i int) bool {
	if i > 0 && slices.Contains([]string{"==", "===", "case", "is", "in", "-", "when", "eql?"}, row[i-1].Text) || i+1 < len(row) && slices.Contains([]string{"==", "===", "=>", "->", "|"}, row[i+1].Text) {
		return true
	}
	if i > 1 && row[i-1].Text == "(" && slices.Contains([]string{"equals", "Equals", "equalsIgnoreCase", "eql?", "eq", "compareTo"}, row[i-2].Text) || i+2 < len(row) && row[i+1].Text == "." && strings.HasPrefix(strings.ToLower(row[i+2].Text), "equals") {
		return true
	}
	return syntax.Has(row, "strcmp", "strncmp", "strcasecmp", "memcmp", "EqualFold")
}
