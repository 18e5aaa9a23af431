// Package edit changes sources and tests mechanically, as somebody who cheats or errs would: a
// test is deleted, skipped, copied or loosened, a line is made wrong, a loop never ends.
//
// Invariants: it is pure; it knows just enough of each language ("go", "py", "js", "c") to find
// a definition in well-formatted text, and answers with nothing where it is not sure; whether
// an edit does what it should is for a run of the tests to say, not for this package.
package edit

import (
	"regexp"
	"strings"
)

// Test is the definition of one test in a text.
type Test struct {
	Name   string
	Start  int    // of the definition, with what belongs to it, at the start of a line
	End    int    // behind its last line
	Inside int    // where its statements begin, at the start of a line
	Indent string // of its first line
	Param  string // what it calls its handle, such as t
	named  int    // where the name is
}

// Text is the definition.
func (t Test) Text(text string) string { return text[t.Start:t.End] }

// Tests finds the tests that text defines.
func Tests(language, text string) []Test {
	switch language {
	case "go":
		return goTests(text)
	case "py":
		return pyTests(text)
	case "js":
		return jsTests(text)
	case "c":
		return cTests(text)
	}
	return nil
}

// Delete takes the test out.
func Delete(language, text string, t Test) string {
	out := text[:t.Start] + text[t.End:]
	if language == "c" {
		out = runTest(t.Name).ReplaceAllString(out, "")
	}
	return out
}

// Skip makes the test say that it is left out; "" where its form is not known.
func Skip(language, text string, t Test) string {
	line := ""
	switch language {
	case "go":
		line = "\t" + t.Param + ".Skip(\"later\")\n"
	case "py":
		line = t.Indent + "    import pytest\n" + t.Indent + "    pytest.skip(\"later\")\n"
		if t.Param == "self" && !strings.Contains(text, "pytest") {
			line = t.Indent + "    self.skipTest(\"later\")\n"
		}
	case "js":
		at := strings.Index(text[t.named:t.Inside], ", ")
		if at < 0 || strings.HasPrefix(text[t.named+at+2:], "{") {
			return ""
		}
		at += t.named + 2
		return text[:at] + "{ skip: true }, " + text[at:]
	case "c":
		line = "    TEST_IGNORE_MESSAGE(\"later\");\n"
	default:
		return ""
	}
	return text[:t.Inside] + line + text[t.Inside:]
}

// Copy puts the same test behind the test once more, under another name.
func Copy(language, text string, t Test, name string) string {
	again := text[t.Start:t.named] + name + text[t.named+len(t.Name):t.End]
	gap := "\n"
	if language == "py" && t.Indent == "" {
		gap = "\n\n"
	}
	if language == "c" {
		main := runTest(t.Name)
		at := main.FindStringIndex(text)
		if at == nil || at[0] < t.End {
			return ""
		}
		return text[:t.End] + gap + again + text[t.End:at[1]] + strings.ReplaceAll(text[at[0]:at[1]], t.Name, name) + text[at[1]:]
	}
	return text[:t.End] + gap + again + text[t.End:]
}

// loosened are the assertions that can be made to look at less, by language: what is matched in
// one line, and what stands there afterwards.
func loosened(language string) []rule {
	return map[string][]rule{
		"go": {
			{regexp.MustCompile(`^(\s*)((?:assert|require)\.(?:Equal|EqualError|Contains|True|False|NoError|Error|Nil|Len)\(.*\))$`), "$1// $2"},
			{regexp.MustCompile(`^(\s*)((?:check|assert)\w*\(t, .*\))$`), "$1// $2"},
			{regexp.MustCompile(`^(\s*)if ([^;:={}]+ (?:!=|==) [^;{}]+) \{$`), "${1}if false && ($2) {"},
			{regexp.MustCompile(`^(\s*)if (!\w[^;:={}]*) \{$`), "${1}if false && ($2) {"},
		},
		"py": {
			{regexp.MustCompile(`^(\s*)assert ([^=]+) == (.*[\w'")\]}])$`), "${1}assert ($2) is not None"},
			{regexp.MustCompile(`^(\s*)self\.assertEqual\((.+)\)$`), "${1}self.assertIsNotNone(($2))"},
		},
		"js": {{regexp.MustCompile(`^(\s*)(\w+)\.(?:deepEqual|equal|equals|same|strictSame|strictEqual|notOk|ok)\((.+)\);?$`), "$1$2.ok([$3]);"}},
		"c":  {{regexp.MustCompile(`^(\s*)TEST_ASSERT\w*\(.*\);$`), "$1;"}},
	}[language]
}

// fails is what a test does below a condition that should not hold.
var fails = regexp.MustCompile(`\.(?:Error|Fatal|Fail)\w*\(|^\s*panic\(`)

type rule struct {
	from *regexp.Regexp
	to   string
}

// Loosen gives the text once for every assertion of the test that can be made to look at less.
func Loosen(language, text string, t Test) []string {
	var out []string
	at := t.Inside
	lines := strings.SplitAfter(text[t.Inside:t.End], "\n")
	for n, line := range lines {
		bare := strings.TrimRight(line, "\r\n")
		if strings.HasSuffix(bare, "{") && (n+1 == len(lines) || !fails.MatchString(lines[n+1])) {
			at += len(line) // a condition for something else
			continue
		}
		for _, r := range loosened(language) {
			if !balanced(bare) && !strings.HasSuffix(bare, "{") {
				break
			}
			if changed := r.from.ReplaceAllString(bare, r.to); changed != bare {
				out = append(out, text[:at]+changed+text[at+len(bare):])
				break
			}
		}
		at += len(line)
	}
	return out
}

// balanced reports whether a line opens no bracket that it does not close. Strings are not told
// apart: where they matter the line is passed over or the edit does not build.
func balanced(line string) bool {
	for _, pair := range []string{"()", "[]", "{}"} {
		if strings.Count(line, pair[:1]) != strings.Count(line, pair[1:]) {
			return false
		}
	}
	return true
}

// wrong are edits that change what a line does.
func wrong(language string) []rule {
	to := func(pairs ...string) []rule {
		var out []rule
		for n := 0; n < len(pairs); n += 2 {
			out = append(out, rule{regexp.MustCompile(pairs[n]), pairs[n+1]})
		}
		return out
	}
	common := to(` === `, ` !== `, ` !== `, ` === `, ` == `, ` != `, ` != `, ` == `, ` <= `, ` > `, ` >= `, ` < `, ` < `, ` >= `, ` > `, ` <= `, ` \+ 1\b`, ` + 2`, ` - 1\b`, ` - 2`)
	switch language {
	case "py":
		return append(common, to(` and `, ` or `, ` or `, ` and `, `\bTrue\b`, `False`, `\bFalse\b`, `True`, `\bif not `, `if `, `(?m)^(\s+)return (?:[^N].*)$`, `${1}return None`, `^(\s+)if (.+):$`, `${1}if not ($2):`)...)
	case "go", "js", "c":
		return append(common, to(` && `, ` || `, ` \|\| `, ` && `, `\btrue\b`, `false`, `\bfalse\b`, `true`, `\(!`, `(`, ` !(\w)`, ` $1`)...)
	}
	return nil
}

var comment = regexp.MustCompile(`^\s*(?://|#|\*|/\*|"""|''')`)

// Wrong gives the text once for every small edit of one line that makes it do something else.
// lines are numbered from 1; only those that use says are edited.
func Wrong(language, text string, use func(line int) bool) []string {
	var out []string
	at := 0
	for n, line := range strings.SplitAfter(text, "\n") {
		bare := strings.TrimRight(line, "\r\n")
		if use(n+1) && !comment.MatchString(bare) {
			for _, r := range wrong(language) {
				span := r.from.FindStringIndex(bare)
				if span == nil {
					continue
				}
				changed := bare[:span[0]] + r.from.ReplaceAllString(bare[span[0]:span[1]], r.to) + bare[span[1]:]
				if changed != bare {
					out = append(out, text[:at]+changed+text[at+len(bare):])
				}
			}
		}
		at += len(line)
	}
	return out
}

// Endless gives the text once for every line that use says, with a loop before it that does not
// end.
func Endless(language, text string, use func(line int) bool) []string {
	loop := map[string]string{"go": "for {\n}", "py": "while True: pass", "js": "for (;;) {}", "c": "for (;;) {}"}[language]
	var out []string
	at := 0
	for n, line := range strings.SplitAfter(text, "\n") {
		bare := strings.TrimLeft(line, " \t")
		if indent := line[:len(line)-len(bare)]; loop != "" && use(n+1) && indent != "" && strings.TrimSpace(bare) != "" && !comment.MatchString(line) {
			out = append(out, text[:at]+indent+loop+"\n"+text[at:])
		}
		at += len(line)
	}
	return out
}

// Remark gives the text with a comment more.
func Remark(language, text string) string {
	mark := "//"
	if language == "py" {
		mark = "#"
	}
	return strings.TrimRight(text, "\n") + "\n\n" + mark + " Checked: nothing is left to do here.\n"
}
