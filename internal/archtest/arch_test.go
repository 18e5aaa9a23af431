// Package archtest holds the architecture to the code: who may import whom, that every
// package says what it owns, how large files and functions may be, and that the paths that
// documents name exist.
//
// Invariants: it opens the files itself, so that its result is never a stale cache entry.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	module       = "github.com/daybreak-agent/daybreak"
	maxFile      = 600
	maxFunc      = 100
	maxMain      = 60
	maxDirectDep = 40
)

// may is the table of ARCHITECTURE.md: for each package below internal/, the packages of the
// module it may import. A row "x/*" stands for every package below x. What is not listed fails.
var may = map[string][]string{
	"task":     {},
	"event":    {"task"},
	"policy":   {"task", "event"},
	"model":    {"task"},
	"guest":    {"task", "guest/forward", "codesearch", "codesearch/*"},
	"sandbox":  {"guest", "task"},
	"tool":     {"model", "sandbox", "policy", "guest", "task"},
	"git":      {"task"},
	"git/*":    {"task", "git"},
	"snapshot": {"sandbox", "git", "task"},
	"mirror":   {"task", "event", "policy"},

	"mirror/service": {"task", "mirror"},
	"network":        {"task", "sandbox", "policy/lockfile"},
	"forge":          {"task"},
	"store":          {"task", "event"},
	"dispatch":       {"task", "event", "store"},
	"agent":          {"task", "event", "policy", "model", "tool"},
	"verify":         {"task", "event", "sandbox", "git", "guest", "snapshot", "verify/result", "verify/tamper", "verify/mutate", "verify/impact", "verify/syntax"},

	"codesearch":         {},
	"codesearch/symbols": {},

	"verify/impact": {},
	"verify/result": {"task"},
	"verify/syntax": {},
	"verify/tamper": {"task", "verify/syntax"},
	"verify/mutate": {"verify/syntax"},

	"policy/secrets":   {"policy"},
	"policy/content":   {"policy", "policy/lockfile", "task"},
	"policy/lockfile":  {},
	"policy/pipelines": {},

	"proposal": {"task", "event", "verify"},
	"outcome":  {"task", "event"},
	"action":   {"task", "event", "store", "forge"},
	"intake":   {"task", "event", "policy", "store", "forge"},
	"worker": {
		"task", "event", "policy", "policy/*", "model", "sandbox", "guest", "tool", "git", "snapshot", "forge", "store",
		"agent", "verify", "verify/*", "prover", "evidence", "proposal", "action", "config", "network", "notify",
	},
	"setup":    {"task"},
	"evidence": {"task", "event", "git"},
	"prover":   {"task", "guest", "setup", "sandbox", "git", "snapshot", "verify", "config", "policy/lockfile"},
	"live":     {"task", "event", "store"},
	"access":   {"task", "store", "forge"},
	"server":   {"task", "access"},
	"overview": {"task", "event", "store", "access", "outcome"},
	"api":      {"task", "event", "store", "access", "live", "outcome", "overview"},

	"api/client": {"task", "event", "store", "api", "outcome"},
	"story":      {"task", "event"},
	"web":        {"task", "event", "policy", "store", "live", "access", "story", "outcome", "overview", "web/*"},
	"web/*":      {"task", "event", "policy", "store", "outcome", "overview"},
	"config":     {"task"},
	"demo":       {"task", "git"},
	"eval":       {"task", "event", "worker", "model", "model/scripted", "model/scripted/*", "git", "eval/edit"},
	"eval/edit":  {},

	"replay":    {"task", "event", "model", "tool", "guest", "agent", "store", "worker"},
	"notify":    {"task"},
	"telemetry": {"task", "event"},

	// adapters, decorators, suites: their seam and the core
	"notify/*":         {"task", "notify"},
	"telemetry/*":      {"telemetry"},
	"model/*":          {"task", "model", "model/*", "model/scripted/*"},
	"model/scripted/*": {"task"},
	"sandbox/*":        {"task", "sandbox", "sandbox/*", "guest"},
	"store/*":          {"task", "event", "store", "store/*"},
	"store/postgres/*": {},
	"dispatch/*":       {"task", "store", "dispatch"},
	"forge/*":          {"task", "forge", "forge/*", "git", "git/*"},
	"forge/gitea/*":    {},
	"guest/forward":    {},
	"guest/probe":      {},

	"cli":            {"*"},
	"cli/*":          {"*"},
	"cli/taskview":   {"task", "event", "store", "story"},
	"cli/modelserve": {"task", "model", "model/scripted", "model/scripted/*", "cli/*"},
	"app":            {"*"},
	"archtest":       {"task"},
}

// adapters are what only app (and a suite beside them) may name.
var adapters = []string{"sandbox/oci", "store/sqlite", "store/postgres", "dispatch/river", "model/anthropic", "model/openai", "forge/local", "forge/gitea", "forge/github", "forge/gitlab", "notify/webhook", "notify/mail", "telemetry/prom", "telemetry/otlp"}

func TestImports(t *testing.T) {
	each(t, func(name string, f *ast.File, fset *token.FileSet) {
		pkg, inInternal := strings.CutPrefix(path.Dir(name), "internal/")
		if strings.HasSuffix(name, "_test.go") {
			return // tests may reach further: suites, fakes, whole flows
		}
		for _, imp := range f.Imports {
			to, ours := strings.CutPrefix(strings.Trim(imp.Path.Value, `"`), module+"/internal/")
			if !ours {
				continue
			}
			if !inInternal {
				allowed := map[string][]string{"cmd/daybreak": {"app", "cli", "config"}, "cmd/daybreak-guest": {"guest", "guest/probe"}}[path.Dir(name)]
				if dir := path.Dir(name); dir != "bench" && !matches(allowed, to) {
					t.Errorf("%s imports internal/%s: a command may import %v", name, to, allowed)
				}
				continue
			}
			row, ok := rowOf(pkg)
			if !ok {
				t.Errorf("internal/%s has no row in the table: add one here and in ARCHITECTURE.md", pkg)
				return
			}
			if !matches(row, to) {
				t.Errorf("%s imports internal/%s: internal/%s may import %v", name, to, pkg, row)
			}
			if slices.Contains(adapters, to) && pkg != "app" && !strings.HasPrefix(pkg, "cli/") && path.Dir(pkg) != path.Dir(to) {
				t.Errorf("%s names the adapter internal/%s: only internal/app may", name, to)
			}
		}
	})
}

func rowOf(pkg string) ([]string, bool) {
	if row, ok := may[pkg]; ok {
		return row, true
	}
	row, ok := may[path.Dir(pkg)+"/*"]
	return row, ok
}

func matches(row []string, to string) bool {
	return slices.ContainsFunc(row, func(r string) bool {
		return r == "*" || r == to || (strings.HasSuffix(r, "/*") && path.Dir(to) == strings.TrimSuffix(r, "/*"))
	})
}

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func TestSizes(t *testing.T) {
	each(t, func(name string, f *ast.File, fset *token.FileSet) {
		lines := fset.File(f.Pos()).LineCount()
		exempt := strings.HasSuffix(path.Dir(name), "test") || strings.HasSuffix(name, "_test.go") || strings.HasSuffix(name, "_table.go")
		if lines > maxFile && !exempt {
			t.Errorf("%s has %d lines, at most %d are allowed: split it", name, lines, maxFile)
		}
		if path.Dir(name) == "cmd/daybreak" && lines > maxMain {
			t.Errorf("%s has %d lines, main may have %d", name, lines, maxMain)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if fn.Name.Name == "init" && fn.Recv == nil {
				t.Errorf("%s has an init function", name)
			}
			n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1
			if n > maxFunc && !exempt {
				t.Errorf("%s: %s has %d lines, at most %d are allowed", name, fn.Name.Name, n, maxFunc)
			}
		}
	})
}

func TestPackageComments(t *testing.T) {
	has := map[string]bool{}
	each(t, func(name string, f *ast.File, _ *token.FileSet) {
		dir := path.Dir(name)
		if strings.HasSuffix(f.Name.Name, "_test") {
			return
		}
		has[dir] = has[dir] || (f.Doc != nil && len(f.Doc.Text()) > 60)
	})
	for dir, ok := range has {
		if !ok {
			t.Errorf("package %s does not say what it owns and what holds there", dir)
		}
	}
}

// TestNoStoredContexts: a context is an argument, never a field, because a field outlives the
// call it was made for.
func TestNoStoredContexts(t *testing.T) {
	each(t, func(name string, f *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			st, ok := n.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range st.Fields.List {
				if sel, ok := field.Type.(*ast.SelectorExpr); ok && fmt.Sprint(sel.X, ".", sel.Sel) == "context.Context" {
					t.Errorf("%s: a struct stores a context", fset.Position(field.Pos()))
				}
			}
			return true
		})
	})
}

// TestDirectDependencies holds their number down.
func TestDirectDependencies(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for l := range strings.SplitSeq(string(b), "\n") {
		if strings.HasPrefix(l, "\t") && !strings.Contains(l, "// indirect") {
			n++
		}
	}
	if n > maxDirectDep {
		t.Errorf("%d direct dependencies, at most %d are allowed", n, maxDirectDep)
	}
}

var pathInDoc = regexp.MustCompile("`((?:internal|cmd|e2e|docs|scripts|tools|bench)/[A-Za-z0-9_./-]*)`")

// TestDocumentsPaths: a path that a document names exists.
func TestDocumentsPaths(t *testing.T) {
	top := root(t)
	docs, err := filepath.Glob(filepath.Join(top, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(top, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) == 0 {
		t.Fatal("no documents found")
	}
	for _, d := range append(docs, more...) {
		b, err := os.ReadFile(d)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range pathInDoc.FindAllStringSubmatch(string(b), -1) {
			if _, err := os.Stat(filepath.Join(top, m[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", filepath.Base(d), m[1])
			}
		}
	}
}

func root(t *testing.T) string {
	t.Helper()
	d, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// each parses every Go file of the module outside testdata and other modules.
func each(t *testing.T, f func(name string, file *ast.File, fset *token.FileSet)) {
	t.Helper()
	top := root(t)
	n := 0
	err := filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(top, p)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if base := path.Base(name); name == "tools" || name == "internal/warm" || base == "testdata" || base == "sample" || (len(base) > 1 && base[0] == '.') {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if generated.Match(src) {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		n++
		f(name, file, fset)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n < 20 {
		t.Fatalf("only %d files were seen: the walk is broken", n)
	}
}
