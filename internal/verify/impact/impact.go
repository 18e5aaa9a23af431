// Package impact owns which tests of a tree a change can reach, as far as imports and build files
// tell: Go packages, Python modules, JavaScript and TypeScript files with the packages of a
// workspace; and the parts of a build, as Cargo, Maven and Gradle name them.
//
// Invariants: it is pure; what is reached is an order in which to run tests, never a reason not
// to run one; where imports and build files say too little (what is computed, lockfiles, data that
// nobody names) it says so, with the reason, instead of guessing. Links are not followed.
package impact

import (
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MaxFiles is the largest tree that is looked at.
const MaxFiles = 50_000

// Tree is the tree with the change in it.
type Tree struct {
	Files []string                 // regular files, slash-separated, sorted
	Read  func(name string) []byte // the text of one, nil when it cannot be had
}

// Reach is what a change can reach.
type Reach struct {
	Files map[string]bool // what imports a changed file, directly or not, and the changed files
	Parts []map[int]bool  // for each build, the parts that need a changed file
	Whole string          // why anything may be reached; "" where the rest holds
}

// Reached finds what a change of some files can reach. Removed files count as changed.
func Reached(t Tree, builds []Build, changed []string) Reach {
	if len(t.Files) > MaxFiles {
		return Reach{Whole: fmt.Sprintf("the tree has more than %d files", MaxFiles)}
	}
	out := Reach{Parts: make([]map[int]bool, len(builds))}
	for i, b := range builds {
		out.Parts[i] = map[int]bool{}
		if b.Unknown != "" {
			return Reach{Whole: b.Unknown}
		}
	}
	g := newGraph(t, changed)
	var nodes []string
	for _, f := range changed {
		mine, found, why := g.nodesOf(f)
		nodes = append(nodes, mine...)
		for i, b := range builds {
			part, whole := b.partOf(f)
			if why == "" {
				why = whole
			}
			if part >= 0 {
				found = true
				b.reach(part, out.Parts[i])
			}
		}
		if why != "" {
			return Reach{Whole: why}
		}
		if !found && !plain.MatchString(f) {
			return Reach{Whole: f + " belongs to nothing whose dependants are known"}
		}
	}
	out.Files = g.files(t.Files, g.closure(nodes))
	return out
}

// closure is the nodes and all that import them.
func (g *graph) closure(nodes []string) map[string]bool {
	out := map[string]bool{}
	var todo []string
	reach := func(node string) {
		if !out[node] {
			out[node] = true
			todo = append(todo, node)
		}
	}
	for _, n := range nodes {
		reach(n)
	}
	for len(todo) > 0 {
		n := todo[0]
		todo = todo[1:]
		for _, up := range g.importers[n] {
			reach(up)
		}
		if dir := g.home(n); dir != "" {
			reach(workspace + dir)
		}
	}
	return out
}

type lang int

const (
	other lang = iota
	golang
	python
	javascript
)

func language(f string) lang {
	switch path.Ext(f) {
	case ".go":
		return golang
	case ".py":
		return python
	case ".js", ".jsx", ".ts", ".tsx", ".mjs", ".cjs", ".mts", ".cts", ".vue", ".svelte":
		return javascript
	}
	return other
}

// Script reports whether a file is one of JavaScript or TypeScript.
func Script(f string) bool { return language(f) == javascript }

// Nodes that are no files.
const (
	goPackage = "\x00go "      // a directory's package, as others import it
	goTests   = "\x00go test " // and with its tests
	workspace = "\x00npm "     // a package of the workspace
)

var (
	moduleLine  = regexp.MustCompile(`(?m)^module\s+"?([^\s"]+)`)
	packageName = regexp.MustCompile(`(?m)^\s*"name"\s*:\s*"([^"]+)"`)
	pyImport    = regexp.MustCompile(`(?m)^[ \t]*(?:from[ \t]+(\.*[\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n#]+)|import[ \t]+([^\n#]+))`)
	jsImport    = regexp.MustCompile(`(?:\bfrom|\bimport|\brequire\s*\(|\bimport\s*\()\s*["'` + "`" + `]([^"'` + "`" + `\n]+)["'` + "`" + `]|\bjest\.mock\(\s*["']([^"'\n]+)["']`)
	words       = regexp.MustCompile(`[\w.]+`)
)

// graph knows who imports what.
type graph struct {
	exists    map[string]bool
	suffixes  map[string][]string // the ends of files' paths, without extension → files
	modules   map[string]string   // Go module → directory
	packages  map[string]string   // npm package → directory
	imports   map[string][]string // node → what it imports, as written: Go and npm, resolved at the end
	importers map[string][]string // node → nodes that import it
}

// newGraph reads a tree. What was removed from it is there as well: others may still import it.
func newGraph(t Tree, removed []string) *graph {
	g := &graph{
		exists: map[string]bool{}, suffixes: map[string][]string{}, modules: map[string]string{}, packages: map[string]string{},
		imports: map[string][]string{}, importers: map[string][]string{},
	}
	for _, f := range slices.Concat(t.Files, removed) {
		if g.exists[f] {
			continue
		}
		g.exists[f] = true
		if l := language(f); l != python && l != javascript {
			continue
		}
		stem := strings.TrimSuffix(f, path.Ext(f))
		if b := path.Base(stem); b == "__init__" || b == "index" {
			stem = path.Dir(stem)
		}
		parts := strings.Split(stem, "/")
		if len(parts) > 8 {
			g.suffixes[stem] = append(g.suffixes[stem], f) // what a relative import says
		}
		for i := max(0, len(parts)-8); i < len(parts); i++ {
			end := strings.Join(parts[i:], "/")
			g.suffixes[end] = append(g.suffixes[end], f)
		}
	}
	for _, f := range t.Files {
		switch language(f) {
		case golang:
			g.goFile(f, t.Read(f))
		case python:
			g.pythonFile(f, t.Read(f))
		case javascript:
			g.scriptFile(f, t.Read(f))
		}
		switch path.Base(f) {
		case "go.mod":
			if m := moduleLine.FindSubmatch(t.Read(f)); m != nil {
				g.modules[string(m[1])] = path.Dir(f)
			}
		case "package.json":
			if m := packageName.FindSubmatch(t.Read(f)); m != nil {
				g.packages[string(m[1])] = path.Dir(f)
			}
		}
	}
	g.resolve()
	return g
}

func (g *graph) edge(from, to string) { g.importers[to] = append(g.importers[to], from) }

func (g *graph) goFile(f string, text []byte) {
	dir, node := path.Dir(f), goPackage+path.Dir(f)
	if strings.HasSuffix(f, "_test.go") {
		node = goTests + dir
	}
	if len(g.importers[goPackage+dir]) == 0 || !slices.Contains(g.importers[goPackage+dir], goTests+dir) {
		g.edge(goTests+dir, goPackage+dir)
	}
	ast, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ImportsOnly)
	if err != nil {
		return
	}
	for _, i := range ast.Imports {
		if p, err := strconv.Unquote(i.Path.Value); err == nil && strings.Contains(p, "/") {
			g.imports[node] = append(g.imports[node], p)
		}
	}
}

func (g *graph) pythonFile(f string, text []byte) {
	for dir := path.Dir(f); ; dir = path.Dir(dir) { // a test has what the conftest.py above it has
		if c := path.Join(dir, "conftest.py"); c != f && g.exists[c] {
			g.edge(f, c)
		}
		if dir == "." {
			break
		}
	}
	for _, m := range pyImport.FindAllSubmatch(text, -1) {
		from, names := string(m[1]), words.FindAllString(string(m[2]), -1)
		if len(m[3]) > 0 {
			for part := range strings.SplitSeq(string(m[3]), ",") {
				if w := words.FindString(part); w != "" {
					g.module(f, strings.ReplaceAll(w, ".", "/"))
				}
			}
			continue
		}
		base := strings.ReplaceAll(strings.TrimLeft(from, "."), ".", "/")
		if up := len(from) - len(strings.TrimLeft(from, ".")); up > 0 {
			dir := path.Dir(f)
			for range up - 1 {
				dir = path.Dir(dir)
			}
			base = path.Join(dir, base)
		}
		g.module(f, base)
		for _, n := range names {
			g.module(f, path.Join(base, n))
		}
	}
}

// module adds an import of all files that a module's path may stand for, and of the packages
// around it.
func (g *graph) module(f, p string) {
	for ; p != "." && p != "" && p != "/"; p = path.Dir(p) {
		for _, to := range g.suffixes[p] {
			if to != f && language(to) == language(f) {
				g.edge(f, to)
			}
		}
	}
}

func (g *graph) scriptFile(f string, text []byte) {
	for _, m := range jsImport.FindAllSubmatch(text, -1) {
		p := string(m[1]) + string(m[2])
		switch {
		case strings.HasPrefix(p, "."):
			at := path.Join(path.Dir(f), p)
			if g.exists[at] {
				g.edge(f, at)
				continue
			}
			stem := at
			if language(at) == javascript { // TypeScript names what it is compiled to
				stem = strings.TrimSuffix(at, path.Ext(at))
			}
			for _, to := range g.suffixes[stem] {
				if strings.HasPrefix(to, stem) {
					g.edge(f, to)
				}
			}
		case strings.HasPrefix(p, "@/"), strings.HasPrefix(p, "~/"), strings.HasPrefix(p, "#"):
			p = strings.TrimLeft(p, "@~#/")
			for _, to := range g.suffixes[strings.TrimSuffix(p, path.Ext(p))] {
				g.edge(f, to)
			}
		default:
			g.imports[f] = append(g.imports[f], p)
			p = strings.TrimPrefix(p, "/")
			if language(p) == javascript {
				p = strings.TrimSuffix(p, path.Ext(p))
			}
			for _, to := range g.suffixes[p] { // below a root that a configuration names
				if to != f {
					g.edge(f, to)
				}
			}
		}
	}
}

// resolve finds what Go packages and packages of the workspace are meant.
func (g *graph) resolve() {
	for _, node := range slices.Sorted(maps.Keys(g.imports)) {
		for _, p := range g.imports[node] {
			if strings.HasPrefix(node, "\x00go") {
				for m := p; m != "." && m != "/"; m = path.Dir(m) {
					if dir, ok := g.modules[m]; ok {
						g.edge(node, goPackage+path.Join(dir, strings.TrimPrefix(p, m)))
						break
					}
				}
				continue
			}
			for m := p; m != "." && m != "/"; m = path.Dir(m) {
				if dir, ok := g.packages[m]; ok {
					g.edge(node, workspace+dir)
					break
				}
			}
		}
	}
}

// home is the directory of the workspace's package that a script belongs to; "" for none.
func (g *graph) home(node string) string {
	if language(node) != javascript || strings.HasPrefix(node, "\x00") {
		return ""
	}
	dirs := slices.Collect(maps.Values(g.packages))
	for dir := path.Dir(node); ; dir = path.Dir(dir) {
		if slices.Contains(dirs, dir) {
			return dir
		}
		if dir == "." {
			return ""
		}
	}
}

// plain are files that no test depends on.
var plain = regexp.MustCompile(`(?i)(^|/)(readme|changelog|changes|license|licence|notice|authors|contributing|codeowners|security)[^/]*$|\.(md|rst|adoc)$|^docs?/|^\.github/`)

// told are files that decide what is built and how, whatever imports say.
var told = []string{"go.mod", "go.sum", "go.work", "package.json", "Makefile", "Dockerfile"}

// nodesOf are the nodes of a changed file. It reports whether it is one whose importers are known,
// and why anything may be reached, if so.
func (g *graph) nodesOf(f string) (nodes []string, found bool, whole string) {
	switch {
	case language(f) == golang && strings.HasSuffix(f, "_test.go"):
		return []string{goTests + path.Dir(f)}, true, ""
	case language(f) == golang:
		return []string{goPackage + path.Dir(f)}, true, ""
	case language(f) != other:
		return []string{f}, true, ""
	}
	base := path.Base(f)
	if strings.HasPrefix(base, ".") || slices.Contains(told, base) || strings.Contains(base, "lock") {
		return nil, false, f + " decides what is built"
	}
	// What lies in or below a Go package is embedded by it or is data of its tests.
	for dir := path.Dir(f); ; dir = path.Dir(dir) {
		if len(g.importers[goPackage+dir]) > 0 {
			return []string{goPackage + dir}, true, ""
		}
		if dir == "." {
			return nil, false, ""
		}
	}
}

// files turns nodes into files: of a Go package all that lie in its directory.
func (g *graph) files(all []string, nodes map[string]bool) map[string]bool {
	out := map[string]bool{}
	for _, f := range all {
		reached := nodes[f]
		if language(f) == golang {
			dir := path.Dir(f)
			reached = nodes[goPackage+dir] || strings.HasSuffix(f, "_test.go") && nodes[goTests+dir]
		}
		if reached {
			out[f] = true
		}
	}
	return out
}
