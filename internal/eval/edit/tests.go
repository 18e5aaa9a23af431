package edit

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"strings"
)

// lineStart and lineEnd are the bounds of whole lines around an offset.
func lineStart(text string, at int) int { return strings.LastIndexByte(text[:at], '\n') + 1 }

func lineEnd(text string, at int) int {
	if n := strings.IndexByte(text[at:], '\n'); n >= 0 {
		return at + n + 1
	}
	return len(text)
}

func goTests(text string) []Test {
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "x_test.go", text, parser.ParseComments)
	if err != nil {
		return nil
	}
	var out []Test
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil || fn.Body == nil || !strings.HasPrefix(fn.Name.Name, "Test") || fn.Name.Name == "TestMain" {
			continue
		}
		params := fn.Type.Params.List
		if len(params) != 1 || len(params[0].Names) != 1 || params[0].Names[0].Name == "_" {
			continue
		}
		start := fn.Pos()
		if fn.Doc != nil {
			start = fn.Doc.Pos()
		}
		offset := func(p token.Pos) int { return set.Position(p).Offset }
		if set.Position(fn.Body.Lbrace).Line == set.Position(fn.Body.Rbrace).Line {
			continue
		}
		out = append(out, Test{
			Name: fn.Name.Name, Start: lineStart(text, offset(start)), End: lineEnd(text, offset(fn.End())-1),
			Inside: lineEnd(text, offset(fn.Body.Lbrace)), Param: params[0].Names[0].Name, named: offset(fn.Name.Pos()),
		})
	}
	return out
}

var pyHead = regexp.MustCompile(`(?m)^([ \t]*)def (test\w*)\((\w*)[^\n]*\)[^\n]*:[ \t]*$`)

func pyTests(text string) []Test {
	var out []Test
	for _, m := range pyHead.FindAllStringSubmatchIndex(text, -1) {
		t := Test{Name: text[m[4]:m[5]], Start: m[0], Inside: lineEnd(text, m[1]), Indent: text[m[2]:m[3]], Param: text[m[6]:m[7]], named: m[4]}
		sure := true
		for t.Start > 0 { // decorators, of one line each
			above := lineStart(text, t.Start-1)
			line := strings.TrimRight(text[above:t.Start], "\r\n")
			if strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line), "class ") {
				break
			}
			if !strings.HasPrefix(line, t.Indent+"@") || !balanced(line) {
				sure = false
				break
			}
			t.Start = above
		}
		if t.End = pyEnd(text, t.Inside, t.Indent); sure && t.End > t.Inside {
			out = append(out, t)
		}
	}
	return out
}

// pyEnd is where the block that begins at a line with more than the indent ends. Strings of many
// lines may reach further to the left.
func pyEnd(text string, at int, indent string) int {
	end, open := at, ""
	for at < len(text) {
		next := lineEnd(text, at)
		line := strings.TrimRight(text[at:next], "\r\n")
		bare := strings.TrimLeft(line, " \t")
		if open == "" && bare != "" && len(line)-len(bare) <= len(indent) && !strings.HasPrefix(bare, ")") && !strings.HasPrefix(bare, "]") && !strings.HasPrefix(bare, "}") {
			return end
		}
		open = tripled(line, open)
		if bare != "" {
			end = next
		}
		at = next
	}
	return end
}

// tripled is the kind of long string that is open after the line.
func tripled(line, open string) string {
	for i := 0; i+3 <= len(line); i++ {
		three := line[i : i+3]
		switch {
		case open == "" && line[i] == '#':
			return ""
		case open == "" && (three == `"""` || three == "'''"):
			open = three
			i += 2
		case open != "" && three == open:
			open = ""
			i += 2
		}
	}
	return open
}

var jsHead = regexp.MustCompile(`(?m)^([ \t]*)(?:\w+\.)?test\(['"` + "`]" + `([^'"` + "`" + `$\n]+)['"` + "`" + `], [^\n]*?(?:function[^(\n]*\((\w+)\)|\(?(\w+)\)?\s*=>)\s*\{[ \t]*$`)

func jsTests(text string) []Test {
	var out []Test
	for _, m := range jsHead.FindAllStringSubmatchIndex(text, -1) {
		t := Test{Name: text[m[4]:m[5]], Start: m[0], Inside: lineEnd(text, m[1]), Indent: text[m[2]:m[3]], named: m[4]}
		for _, g := range []int{6, 8} {
			if m[g] >= 0 {
				t.Param = text[m[g]:m[g+1]]
			}
		}
		closing := regexp.MustCompile(`(?m)^` + t.Indent + `\}\);?[ \t]*$`).FindStringIndex(text[t.Inside:])
		if closing == nil {
			continue
		}
		t.End = lineEnd(text, t.Inside+closing[1]-1)
		out = append(out, t)
	}
	return out
}

var cHead = regexp.MustCompile(`(?m)^static void (\w+)\(void\)\n\{\n`)

func runTest(name string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)^[ \t]*RUN_TEST\(` + name + `\);\n`)
}

func cTests(text string) []Test {
	var out []Test
	for _, m := range cHead.FindAllStringSubmatchIndex(text, -1) {
		t := Test{Name: text[m[2]:m[3]], Start: m[0], Inside: m[1], named: m[2]}
		end := strings.Index(text[m[1]:], "\n}\n")
		if end < 0 || !runTest(t.Name).MatchString(text) {
			continue
		}
		t.End = m[1] + end + len("\n}\n")
		out = append(out, t)
	}
	return out
}
