package tamper

import (
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// readGo models a Go test file: one unit a function, one for everything else at the top level.
func readGo(p string, src []byte) model {
	fset := gotoken.NewFileSet()
	f, err := parser.ParseFile(fset, p, src, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return model{broken: err.Error()}
	}
	g := goReader{fset: fset, toks: syntax.Lex(src, syntax.Go), file: f}
	var m model
	rest := unit{name: "package-level declarations", line: 1}
	isTestFile := strings.HasSuffix(path.Base(p), "_test.go")
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			if gd, isGen := d.(*ast.GenDecl); !isGen || gd.Tok != gotoken.IMPORT {
				rest.toks = append(rest.toks, g.between(d.Pos(), d.End())...)
			}
			continue
		}
		m.units = append(m.units, g.function(fn, isTestFile))
	}
	for _, c := range f.Comments {
		if c.Pos() > f.Package {
			break
		}
		for _, l := range c.List {
			if strings.HasPrefix(l.Text, "//go:build ") && excludes(l.Text) {
				rest.skip, rest.skipAt = skips, fset.Position(l.Pos()).Line
			}
		}
	}
	m.units = append(m.units, rest)
	return m
}

// excludes reports build constraints that no ordinary run meets.
func excludes(constraint string) bool {
	return slices.ContainsFunc(strings.FieldsFunc(constraint, func(r rune) bool { return !unicode.IsLetter(r) && r != '_' }), func(w string) bool {
		return w == "ignore" || w == "never" || w == "none" || w == "disabled" || w == "skip"
	})
}

type goReader struct {
	fset *gotoken.FileSet
	toks []token
	file *ast.File
}

// between returns the tokens on the lines from one position to another, cut to them.
func (g goReader) between(from, to gotoken.Pos) []token {
	a, b := g.fset.Position(from), g.fset.Position(to)
	i, _ := slices.BinarySearchFunc(g.toks, a.Line, func(t token, l int) int { return t.Line - l })
	j := i
	for j < len(g.toks) && g.toks[j].Line <= b.Line {
		j++
	}
	return g.toks[i:j]
}

func (g goReader) function(fn *ast.FuncDecl, testFile bool) unit {
	name := fn.Name.Name
	u := unit{name: name, line: g.fset.Position(fn.Pos()).Line, toks: g.between(fn.Pos(), fn.End())}
	isTest := isGoTest(name)
	if fn.Recv != nil && len(fn.Recv.List) == 1 {
		u.name = recvName(fn.Recv.List[0].Type) + "." + name
		isTest = strings.HasPrefix(name, "Test") && len(fn.Type.Params.List) == 0
	}
	u.test = testFile && isTest && name != "TestMain"
	if fn.Body == nil {
		return u
	}
	u.body = g.between(fn.Body.Pos(), fn.Body.End())
	if len(u.body) > 0 && u.body[0].Line == u.line {
		if i := slices.IndexFunc(u.body, func(t token) bool { return t.Text == "{" && t.Depth == 0 }); i >= 0 {
			u.body = u.body[i:]
		}
	}
	u.empty = len(fn.Body.List) == 0
	if len(fn.Body.List) > 0 {
		_, u.empty = fn.Body.List[0].(*ast.ReturnStmt)
		u.empty = u.empty && u.test
	}
	g.walk(fn.Body, nil, 0, &u)
	lineGuards(&u)
	return u
}

// lineGuards gives checks their guards by their lines: those of the line's last token, so that a
// condition that is itself the check counts the same for each.
func lineGuards(u *unit) {
	if len(u.asserts) == 0 {
		return
	}
	at := make(map[int]guard, len(u.body))
	closing := syntax.Partners(u.body)
	for i, g := range guardsOf(u.body, closing, syntax.Go) {
		at[u.body[i].Line] = g
	}
	for i := range u.asserts {
		u.asserts[i].guard = at[u.asserts[i].line]
		// pos is an offset in the file until here
		u.asserts[i].pos, _ = slices.BinarySearchFunc(u.body, u.asserts[i].pos, func(t token, at int) int { return t.At - at })
	}
	bury(u, deadParts(u.body, closing, syntax.Go))
}

func isGoTest(name string) bool {
	for _, p := range []string{"Test", "Fuzz", "Example", "Benchmark"} {
		if rest, ok := strings.CutPrefix(name, p); ok {
			return rest == "" || !unicode.IsLower([]rune(rest)[0])
		}
	}
	return false
}

func recvName(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return recvName(x.X)
	case *ast.IndexExpr:
		return recvName(x.X)
	case *ast.Ident:
		return x.Name
	}
	return "?"
}

// walk collects checks, skips and subtests. cond is the innermost condition that leads here.
func (g goReader) walk(n ast.Node, cond []token, depth int, u *unit) {
	ast.Inspect(n, func(c ast.Node) bool {
		if c == n {
			return true
		}
		switch x := c.(type) {
		case *ast.IfStmt:
			head := g.ifHead(x)
			if x.Init != nil {
				g.walkExpr(x.Init, head, depth, u)
			}
			g.walkExpr(x.Cond, cond, depth, u)
			g.walk(x.Body, head, depth+1, u)
			if x.Else != nil {
				g.walk(wrap(x.Else), append([]token{{Kind: syntax.Word, Text: "else"}}, head...), depth+1, u)
			}
			return false
		case *ast.CaseClause:
			var head []token
			for _, e := range x.List {
				head = append(head, g.expr(e)...)
			}
			if x.List == nil {
				head = []token{{Kind: syntax.Word, Text: "default"}}
			}
			for _, s := range x.Body {
				g.walk(wrap(s), head, depth+1, u)
			}
			return false
		case *ast.CallExpr:
			g.call(x, cond, depth, u)
		}
		return true
	})
}

// wrap makes a statement a child, so that walk looks at the statement itself too.
func wrap(s ast.Stmt) ast.Node { return &ast.BlockStmt{List: []ast.Stmt{s}} }

func (g goReader) walkExpr(n ast.Node, cond []token, depth int, u *unit) {
	ast.Inspect(n, func(c ast.Node) bool {
		if x, ok := c.(*ast.CallExpr); ok {
			g.call(x, cond, depth, u)
		}
		return true
	})
}

func (g goReader) ifHead(x *ast.IfStmt) []token {
	var head []token
	if x.Init != nil {
		head = append(g.expr(x.Init), token{Kind: syntax.Punct, Text: ";"})
	}
	return append(head, g.expr(x.Cond)...)
}

// expr is a node's tokens with their lines; what a function literal does is walked apart.
func (g goReader) expr(n ast.Node) []token {
	var out []token
	ast.Inspect(n, func(c ast.Node) bool {
		line := 0
		if c != nil && c.Pos().IsValid() {
			line = g.fset.Position(c.Pos()).Line
		}
		put := func(k syntax.Kind, s string) { out = append(out, token{Kind: k, Text: s, Line: line}) }
		switch x := c.(type) {
		case *ast.BinaryExpr:
			out = append(append(out, g.expr(x.X)...), token{Kind: syntax.Punct, Text: x.Op.String(), Line: line})
			out = append(out, g.expr(x.Y)...)
			return false
		case *ast.UnaryExpr:
			put(syntax.Punct, x.Op.String())
		case *ast.AssignStmt:
			for _, l := range x.Lhs {
				out = append(out, g.expr(l)...)
			}
			put(syntax.Punct, x.Tok.String())
			for _, r := range x.Rhs {
				out = append(out, g.expr(r)...)
			}
			return false
		case *ast.SelectorExpr:
			out = append(append(out, g.expr(x.X)...), token{Kind: syntax.Punct, Text: ".", Line: line}, token{Kind: syntax.Word, Text: x.Sel.Name, Line: line})
			return false
		case *ast.CallExpr:
			out = append(append(out, g.expr(x.Fun)...), token{Kind: syntax.Punct, Text: "(", Line: line})
			for _, e := range x.Args {
				out = append(append(out, g.expr(e)...), token{Kind: syntax.Punct, Text: ",", Line: line})
			}
			out = append(out, token{Kind: syntax.Punct, Text: ")", Line: line})
			return false
		case *ast.FuncLit:
			put(syntax.Word, "func")
			return false
		case *ast.Ident:
			put(syntax.Word, x.Name)
		case *ast.BasicLit:
			k := syntax.Number
			if x.Kind == gotoken.STRING || x.Kind == gotoken.CHAR {
				k = syntax.Text
			}
			put(k, x.Value)
		case *ast.CompositeLit:
			put(syntax.Punct, "{")
		}
		return true
	})
	return out
}

// maxCheck is how many bytes of a check are compared as a whole.
const maxCheck = 2 << 10

var goFails = []string{"Error", "Errorf", "Fatal", "Fatalf", "Fail", "FailNow"}

var goPackages = []string{"assert", "require", "check", "must", "qt", "td", "is", "gt", "tassert", "trequire", "testify", "ginkgo", "gomega"}

var goChecks = []string{
	"Equal", "EqualValues", "NotEqual", "Exactly", "Nil", "NotNil", "True", "False", "NoError", "Error", "ErrorIs", "ErrorAs", "ErrorContains", "EqualError", "Contains", "NotContains", "Len", "Empty", "NotEmpty",
	"ElementsMatch", "Subset", "JSONEq", "YAMLEq", "Regexp", "InDelta", "InEpsilon", "Panics", "NotPanics", "PanicsWithValue", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Zero", "NotZero", "WithinDuration", "Eventually", "Never",
	"DeepEqual", "Assert", "Check", "NilError", "Expect", "Same", "Implements", "IsType", "FileExists", "To", "ToNot", "NotTo", "Should", "ShouldNot",
}

func (g goReader) call(x *ast.CallExpr, cond []token, depth int, u *unit) {
	line, at := g.fset.Position(x.Pos()).Line, g.fset.Position(x.Pos()).Offset
	sel, ok := x.Fun.(*ast.SelectorExpr)
	if !ok {
		g.helper(x, cond, u)
		return
	}
	name := sel.Sel.Name
	recv, _ := sel.X.(*ast.Ident)
	switch {
	case recv != nil && slices.Contains(goFails, name) && isT(recv.Name):
		toks := append(slices.Clone(cond), token{Kind: syntax.Word, Text: failing, Line: line})
		if len(cond) == 0 {
			toks = append(g.expr(x), toks...)
		}
		u.asserts = append(u.asserts, assertion{toks: toks, line: line, strength: goStrength(cond), pos: at})
	case (name == "Skip" || name == "Skipf" || name == "SkipNow") && (recv != nil || name != "Skip"):
		k := skips
		if depth > 0 {
			k = skipsSometimes
		}
		if k > u.skip {
			u.skip, u.skipAt = k, line
		}
	case name == "Run" && len(x.Args) == 2:
		if lit, ok := x.Args[0].(*ast.BasicLit); ok && lit.Kind == gotoken.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				u.subs = append(u.subs, s)
			}
		}
	case slices.Contains(goChecks, name) && (recv != nil && (slices.Contains(goPackages, recv.Name) || isSuite(recv.Name)) || chained(sel.X)):
		if x.End()-x.Pos() > maxCheck { // a change in it is seen as a changed row
			u.asserts = append(u.asserts, assertion{toks: []token{{Kind: syntax.Word, Text: name + " of something long"}}, line: line, strength: 3, pos: at})
			return
		}
		toks := slices.Clone(g.expr(x.Fun))
		for i, e := range x.Args {
			if i > 0 && isMessage(x.Args, i, name) {
				break
			}
			toks = append(append(toks, g.expr(e)...), token{Kind: syntax.Punct, Text: ",", Line: line})
		}
		for i := range toks { // require and assert differ in when they stop, not in what they check
			if toks[i].Text == "require" {
				toks[i].Text = "assert"
			}
		}
		u.asserts = append(u.asserts, assertion{toks: toks, line: line, strength: strengthOf(toks), pos: at})
	}
}

// helper takes calls of plain functions that check: a panic below a condition, and a function
// that is called so and is given the test.
func (g goReader) helper(x *ast.CallExpr, cond []token, u *unit) {
	f, ok := x.Fun.(*ast.Ident)
	if !ok {
		return
	}
	line, at := g.fset.Position(x.Pos()).Line, g.fset.Position(x.Pos()).Offset
	if f.Name == "panic" && len(cond) > 0 {
		toks := append(slices.Clone(cond), token{Kind: syntax.Word, Text: failing, Line: line}, token{Kind: syntax.Word, Text: "panic", Line: line})
		u.asserts = append(u.asserts, assertion{toks: toks, line: line, strength: goStrength(cond), by: "a panic", pos: at})
		return
	}
	name := strings.ToLower(f.Name)
	checks := slices.ContainsFunc([]string{"check", "assert", "require", "verify", "expect", "must", "compare", "validate"}, func(p string) bool { return strings.HasPrefix(name, p) })
	given := slices.ContainsFunc(x.Args, func(a ast.Expr) bool {
		id, ok := a.(*ast.Ident)
		return ok && isT(id.Name)
	})
	if checks && given && x.End()-x.Pos() <= maxCheck {
		u.asserts = append(u.asserts, assertion{toks: g.expr(x), line: line, strength: 3, by: f.Name, pos: at})
	}
}

// failing stands for what a test does when a condition holds.
const failing = "→fail"

// narrowed reports a condition for failing that asks for more than before.
func narrowed(r, x []token) bool {
	ands := func(toks []token) int {
		n := 0
		for _, t := range toks {
			if t.Text == "&&" || t.Text == "false" {
				n++
			}
		}
		return n
	}
	return syntax.Has(r, failing) && syntax.Has(x, failing) && ands(x) > ands(r)
}

func isT(name string) bool {
	switch name {
	case "t", "tb", "b", "f", "tt", "t1", "t2", "tc", "c", "T", "TB":
		return true
	}
	return false
}

func isSuite(name string) bool {
	switch name {
	case "s", "suite", "ts", "c", "a", "r", "g", "assertions":
		return true
	}
	return false
}

// chained reports receivers like s.Require() and Expect(x).
func chained(e ast.Expr) bool {
	c, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	switch f := c.Fun.(type) {
	case *ast.SelectorExpr:
		return f.Sel.Name == "Require" || f.Sel.Name == "Assert" || f.Sel.Name == "Expect" || f.Sel.Name == "Ω"
	case *ast.Ident:
		return f.Name == "Expect" || f.Name == "Ω" || f.Name == "Eventually" || f.Name == "Consistently"
	}
	return false
}

// isMessage reports whether the argument is the trailing explanation of a check: a string
// after the arguments that the check needs.
func isMessage(args []ast.Expr, i int, name string) bool {
	need := 3
	switch name {
	case "Nil", "NotNil", "True", "False", "NoError", "Error", "Empty", "NotEmpty", "Zero", "NotZero", "Panics", "NotPanics", "NilError":
		need = 2
	case "InDelta", "InEpsilon", "WithinDuration", "Eventually", "Never":
		need = 4
	}
	lit, ok := args[i].(*ast.BasicLit)
	return i >= need && ok && lit.Kind == gotoken.STRING
}

// goStrength grades the condition under which a test fails: failing unless equal is strongest.
func goStrength(cond []token) int {
	s := 1
	for i, t := range cond {
		next := ""
		if i+1 < len(cond) {
			next = cond[i+1].Text
		}
		switch t.Text {
		case "!=":
			if next != "nil" {
				return 3
			}
			s = max(s, 2)
		case "Diff", "DeepEqual", "Equal", "Compare":
			return 3
		case "Contains", "HasPrefix", "HasSuffix", "MatchString", "Is", "As":
			s = max(s, 2)
		}
	}
	return s
}
