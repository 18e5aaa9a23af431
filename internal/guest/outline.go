package guest

import (
	"bytes"
	"cmp"
	"context"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
	"github.com/daybreak-agent/daybreak/internal/codesearch/symbols"
)

// nearness orders paths by how far they are from a place in the tree.
type nearness struct{ near string }

// compare puts the nearer path first; what is generated or vendored comes last.
func (n nearness) compare(a, b string) int {
	return cmp.Or(cmp.Compare(aside(a), aside(b)), cmp.Compare(n.steps(a), n.steps(b)), cmp.Compare(tested(a), tested(b)))
}

// steps is how many directories lie between; 0 for the very file.
func (n nearness) steps(p string) int {
	switch {
	case n.near == "" || n.near == "." || p == n.near:
		return 0
	case strings.HasPrefix(p, n.near+"/"):
		return 1 + strings.Count(p[len(n.near)+1:], "/")
	}
	a, b := strings.Split(path.Dir(n.near), "/"), strings.Split(path.Dir(p), "/")
	same := 0
	for same < len(a) && same < len(b) && a[same] == b[same] {
		same++
	}
	return 1 + len(a) + len(b) - 2*same
}

var (
	asidePath = regexp.MustCompile(`(?i)(^|/)(vendor|third_party|node_modules|dist|generated|external)/|(^|/)zz_generated|\.pb\.go$|_generated\.|\.gen\.|\.min\.`)
	testPath  = regexp.MustCompile(`(?i)(^|/)(tests?|testdata|__tests__|e2e|fixtures)/|_test\.|(^|/)test_|\.(test|spec)\.`)
)

// IsAside reports whether a path is of a file that is generated or vendored, by its name.
func IsAside(p string) bool { return asidePath.MatchString(p) }

func aside(p string) int {
	if IsAside(p) {
		return 1
	}
	return 0
}

func tested(p string) int {
	if testPath.MatchString(p) {
		return 1
	}
	return 0
}

// withText adds the lines that define the symbols, as they are in the files now.
func (s *server) withText(tags []symbols.Tag) []Symbol {
	out := make([]Symbol, len(tags))
	texts := map[string][][]byte{}
	for i, t := range tags {
		lines, ok := texts[t.Path]
		if !ok {
			lines = s.linesOf(t.Path)
			texts[t.Path] = lines
		}
		out[i] = Symbol{Name: t.Name, Path: Escape([]byte(t.Path), false), Line: t.Line, Kind: t.Kind, Scope: t.Scope}
		if t.Line <= len(lines) {
			text := bytes.TrimSpace(lines[t.Line-1])
			out[i].Text = cutLine(text, len(text), maxSymbolLine)
		}
	}
	return out
}

// linesOf reads a file of the tree; one that cannot be read has none.
func (s *server) linesOf(p string) [][]byte {
	f, err := s.tree.open(p)
	if err != nil {
		return nil
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() || st.Size() > codesearch.MaxFileSize {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(f, codesearch.MaxFileSize))
	if err != nil {
		return nil
	}
	return bytes.Split(b, []byte{'\n'})
}

// uses adds the lines that use a name: of all files the counts, of the nearest the lines.
func (s *server) uses(ctx context.Context, name, near string, limit int, defined map[string]bool, res *SymbolsResult) error {
	r := SearchRequest{Pattern: wordPattern(name), Case: "sensitive", counts: true}
	all, err := s.search(ctx, r)
	if err != nil {
		return err
	}
	if all.Error != "" {
		res.Error = all.Error
		return nil
	}
	at := nearness{near}
	slices.SortStableFunc(all.Files, func(a, b FileCount) int { return at.compare(a.Path, b.Path) })
	own := map[string]int{} // lines that define it
	for d := range defined {
		own[d[:strings.LastIndexByte(d, ':')]]++
	}
	for i := range all.Files {
		f := &all.Files[i]
		f.Count = max(f.Count-own[f.Path], 0)
		res.Uses += f.Count
	}
	res.Files = slices.DeleteFunc(all.Files, func(f FileCount) bool { return f.Count == 0 })
	if all.Truncated && len(all.Files) >= MaxFiles {
		res.Partial = cmp.Or(res.Partial, "uses were counted in the first "+strconv.Itoa(MaxFiles)+" files")
	}
	var paths []string
	lines := 0
	for _, f := range res.Files {
		if strings.ContainsRune(f.Path, '\\') { // it was escaped and is another name
			continue
		}
		paths = append(paths, f.Path)
		if lines += f.Count; len(paths) == maxNearFiles || lines >= limit {
			break
		}
	}
	if len(paths) == 0 {
		return nil
	}
	r.Paths, r.Max, r.counts = paths, limit+len(defined), false
	found, err := s.search(ctx, r)
	if err != nil || found.Error != "" {
		res.Error = found.Error
		return err
	}
	in, err := s.enclosing(ctx, paths)
	if err != nil {
		return err
	}
	slices.SortStableFunc(found.Matches, func(a, b Match) int {
		return cmp.Or(at.compare(a.Path, b.Path), strings.Compare(a.Path, b.Path), cmp.Compare(remark(a.Text), remark(b.Text)))
	})
	for _, m := range found.Matches {
		if defined[m.Path+":"+strconv.Itoa(m.Line)] || len(res.Refs) == limit {
			continue
		}
		text := strings.TrimSpace(m.Text)
		if len(text) > maxSymbolLine {
			text = strings.ToValidUTF8(text[:maxSymbolLine], "") + "…"
		}
		res.Refs = append(res.Refs, Ref{Path: m.Path, Line: m.Line, Text: text, In: in.at(m.Path, m.Line)})
	}
	return nil
}

// remark puts comments behind code.
func remark(line string) int {
	line = strings.TrimSpace(line)
	for _, c := range []string{"//", "#", "/*", "*", "--", `"""`} {
		if strings.HasPrefix(line, c) {
			return 1
		}
	}
	return 0
}

// scopes are what begins where, by file.
type scopes map[string][]symbols.Tag

// enclosing reads which functions and types begin where. Without ctags there are none.
func (s *server) enclosing(ctx context.Context, files []string) (scopes, error) {
	tags, _, err := symbols.Scan(ctx, files, symbols.Options{Start: s.ctags})
	if err != nil {
		return nil, ctx.Err()
	}
	out := scopes{}
	for _, t := range tags {
		switch t.Kind {
		case "func", "function", "method", "struct", "class", "interface", "type", "trait", "subroutine", "generator", "macro", "singletonMethod":
			out[t.Path] = append(out[t.Path], t)
		case "member":
			if strings.HasSuffix(t.Path, ".py") { // ctags' word for a method there
				out[t.Path] = append(out[t.Path], t)
			}
		}
	}
	for _, list := range out {
		slices.SortFunc(list, func(a, b symbols.Tag) int { return cmp.Compare(a.Line, b.Line) })
	}
	return out, nil
}

// at is the latest beginning before a line.
func (c scopes) at(p string, line int) string {
	in := ""
	for _, t := range c[p] {
		if t.Line > line {
			break
		}
		in = t.Name
		if i := strings.LastIndexByte(t.Scope, '.'); i >= 0 && strings.HasSuffix(p, ".go") { // "pkg.Type"
			in = t.Scope[i+1:] + "." + in
		} else if t.Scope != "" && !strings.HasSuffix(p, ".go") {
			in = t.Scope + "." + in
		}
	}
	return in
}

// outline lists what a file defines, or the files right in a directory.
func (s *server) outline(ctx context.Context, at string, most int) (SymbolsResult, error) {
	if at == "" {
		return SymbolsResult{Error: "give a name, or a path for its outline"}, nil
	}
	var res SymbolsResult
	files := []string{at}
	st, err := s.tree.root.Stat(at)
	if err != nil {
		return SymbolsResult{Error: oneLine(plainPathError(at, err).Error())}, nil
	}
	if st.IsDir() {
		if files, err = s.filesIn(at); err != nil {
			return res, err
		}
		if len(files) > maxOutline {
			files, res.Partial = files[:maxOutline], "only the first "+strconv.Itoa(maxOutline)+" files were looked at"
		}
	}
	tags, slow, err := symbols.Scan(ctx, files, symbols.Options{Start: s.ctags})
	if err != nil {
		return res, err
	}
	if len(slow) > 0 {
		res.Partial = "ctags could not read " + Escape([]byte(strings.Join(slow[:min(len(slow), 5)], ", ")), false)
	}
	if st.IsDir() { // what is part of something is for the file's own outline
		tags = slices.DeleteFunc(tags, func(t symbols.Tag) bool { return weight(t)%2 == 1 && t.Kind != "var" && t.Kind != "const" })
	}
	slices.SortStableFunc(tags, func(a, b symbols.Tag) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	res.More = max(len(tags)-most, 0)
	res.Symbols = s.withText(tags[:min(len(tags), most)])
	s.goHead(files, &res)
	if res.Package != "" && st.IsDir() {
		if err := s.importers(ctx, at, &res); err != nil {
			return res, err
		}
	}
	return res, nil
}

var goModule = regexp.MustCompile(`(?m)^module\s+"?([^\s"]+)`)

// importers adds the files that import the Go package in a directory, nearest first.
func (s *server) importers(ctx context.Context, dir string, res *SymbolsResult) error {
	for top := dir; ; top = path.Dir(top) {
		m := goModule.FindSubmatch(bytes.Join(s.linesOf(path.Join(top, "go.mod")), []byte{'\n'}))
		if m == nil && top != "." {
			continue
		}
		if m == nil {
			return nil
		}
		name := path.Join(string(m[1]), strings.TrimPrefix(strings.TrimPrefix(dir, top), "/"))
		found, err := s.search(ctx, SearchRequest{Pattern: strconv.Quote(name), Literal: true, Case: "sensitive", Globs: []string{"*.go"}, Max: 1})
		if err != nil {
			return err
		}
		at := nearness{dir}
		slices.SortStableFunc(found.Files, func(a, b FileCount) int { return at.compare(a.Path, b.Path) })
		res.Files, res.Uses = found.Files, len(found.Files)
		return nil
	}
}

func (s *server) filesIn(dir string) ([]string, error) {
	entries, err := fs.ReadDir(s.tree.root.FS(), dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() {
			out = append(out, path.Join(dir, e.Name()))
		}
	}
	return out, nil
}

// goHead adds the package and the imports of Go files, which their first lines have.
func (s *server) goHead(files []string, res *SymbolsResult) {
	imports := map[string]bool{}
	for _, f := range files {
		if path.Ext(f) != ".go" || tested(f) == 1 && len(files) > 1 {
			continue
		}
		text := bytes.Join(s.linesOf(f), []byte{'\n'})
		ast, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ImportsOnly)
		if err != nil {
			continue
		}
		res.Package = ast.Name.Name
		for _, i := range ast.Imports {
			if p, err := strconv.Unquote(i.Path.Value); err == nil {
				imports[Escape([]byte(p), false)] = true
			}
		}
	}
	for p := range imports {
		res.Imports = append(res.Imports, p)
	}
	slices.Sort(res.Imports)
}
