package mutate

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
)

// goEdits finds edits in Go by its syntax tree. What does not parse has none.
func goEdits(text []byte, changed map[int]bool) []edit {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil
	}
	g := goFinder{fset: fset, text: text, changed: changed}
	ast.Inspect(f, g.visit)
	return g.out
}

type goFinder struct {
	fset    *token.FileSet
	text    []byte
	changed map[int]bool
	out     []edit
}

func (g *goFinder) at(p token.Pos) int { return g.fset.Position(p).Offset }

func (g *goFinder) replace(from, to token.Pos, by, operator string, rank int) {
	if g.changed[g.fset.Position(from).Line] {
		g.out = append(g.out, edit{g.at(from), g.at(to), by, operator, rank})
	}
}

func (g *goFinder) source(n ast.Node) string { return string(g.text[g.at(n.Pos()):g.at(n.End())]) }

func (g *goFinder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.IMPORT && n.Tok != token.TYPE
	case *ast.IfStmt:
		g.replace(n.Cond.Pos(), n.Cond.End(), "!("+g.source(n.Cond)+")", "negated condition", rankNegate)
		g.replace(n.Cond.Pos(), n.Cond.End(), "("+g.source(n.Cond)+") || true", "condition always true", rankConstant)
		g.replace(n.Cond.Pos(), n.Cond.End(), "("+g.source(n.Cond)+") && false", "condition never true", rankReturn)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			g.replace(n.Pos(), n.X.Pos(), "", "removed negation", rankNegate)
		}
	case *ast.BinaryExpr:
		g.binary(n)
	case *ast.BasicLit:
		if v, err := strconv.ParseInt(n.Value, 10, 32); err == nil && n.Kind == token.INT {
			g.replace(n.Pos(), n.End(), strconv.FormatInt(v+1, 10), "other number", rankConstant)
			if v > 0 {
				g.replace(n.Pos(), n.End(), strconv.FormatInt(v-1, 10), "other number", rankBoundary)
			}
		}
	case *ast.Ident:
		if by := map[string]string{"true": "false", "false": "true"}[n.Name]; by != "" {
			g.replace(n.Pos(), n.End(), by, "swapped truth value", rankSwap)
		}
	case *ast.CallExpr:
		if id, ok := n.Fun.(*ast.Ident); ok {
			if by := map[string]string{"min": "max", "max": "min"}[id.Name]; by != "" {
				g.replace(id.Pos(), id.End(), by, "swapped function", rankSwap)
			}
		}
	case *ast.ReturnStmt:
		if k := len(n.Results); k > 0 {
			if id, ok := n.Results[k-1].(*ast.Ident); ok && id.Name == "err" {
				g.replace(id.Pos(), id.End(), "nil", "dropped error", rankReturn)
			}
		}
	case *ast.BlockStmt:
		g.statements(n.List)
	case *ast.CaseClause:
		g.statements(n.Body)
	}
	return true
}

func (g *goFinder) binary(n *ast.BinaryExpr) {
	swap := map[token.Token]token.Token{
		token.LAND: token.LOR, token.LOR: token.LAND, token.EQL: token.NEQ, token.NEQ: token.EQL,
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
	}
	negate := map[token.Token]token.Token{token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR}
	move := map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	end := n.OpPos + token.Pos(len(n.Op.String()))
	if by, ok := swap[n.Op]; ok && !(n.Op == token.ADD && (text(n.X) || text(n.Y))) {
		g.replace(n.OpPos, end, by.String(), "swapped operator", rankSwap)
	}
	if by, ok := negate[n.Op]; ok {
		g.replace(n.OpPos, end, by.String(), "negated comparison", rankNegate)
	}
	if by, ok := move[n.Op]; ok {
		g.replace(n.OpPos, end, by.String(), "moved boundary", rankBoundary)
	}
}

// text reports whether an operand is plainly a string, which has no minus.
func text(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.BasicLit:
		return e.Kind == token.STRING
	case *ast.BinaryExpr:
		return text(e.X) || text(e.Y)
	}
	return false
}

// statements deletes what leaves the rest well-formed: calls, and assignments to what is there
// already.
func (g *goFinder) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt:
			g.replace(s.Pos(), s.End(), "", "deleted statement", rankDelete)
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				g.replace(s.Pos(), s.End(), "", "deleted statement", rankDelete)
			}
		}
	}
}
