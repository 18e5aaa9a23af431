package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
	"github.com/daybreak-agent/daybreak/internal/codesearch/symbols"
)

const (
	symbolsTimeout = 30 * time.Second
	maxSymbolName  = 256
	maxFound       = 2_000 // definitions that are ranked
	maxLive        = 1_000 // changed files whose symbols are read again
	maxScanned     = 200   // files that ctags looks at when there are no prepared symbols
	maxOutline     = 400   // files of a directory's outline
	maxNearFiles   = 24    // files whose uses are read
	maxSymbolLine  = 200   // bytes of a symbol's line
)

// openSymbols maps the symbols beside the search index.
func openSymbols(opts ServerOptions) *symbols.File {
	f, err := symbols.Open(filepath.Join(opts.Index, SymbolsFile))
	if err != nil {
		return nil
	}
	return f
}

// symbols answers a SymbolsRequest.
func (s *server) symbols(ctx context.Context, r SymbolsRequest) (SymbolsResult, error) {
	ctx, cancel := context.WithTimeout(ctx, symbolsTimeout)
	defer cancel()
	near := ""
	if r.Path != "" {
		paths, problem := s.searchPaths([]string{r.Path})
		if problem != "" {
			return SymbolsResult{Error: problem}, nil
		}
		near = path.Clean(paths[0])
	}
	if r.Max <= 0 || r.Max > maxFound {
		r.Max = MaxSymbols
	}
	if r.Name == "" {
		return s.outline(ctx, near, r.Max)
	}
	q := readName(r.Name)
	if q.name == "" || len(q.name) > maxSymbolName {
		return SymbolsResult{Error: fmt.Sprintf("%q is no name of a symbol", Escape([]byte(cutName(r.Name)), false))}, nil
	}
	tags, res, err := s.definitions(ctx, q, near)
	if err != nil {
		return res, err
	}
	if near == "" && len(tags) > 0 {
		near = tags[0].Path
	}
	res.More = max(len(tags)-r.Max, 0)
	defined := make(map[string]bool)
	for _, t := range tags {
		defined[fmt.Sprintf("%s:%d", Escape([]byte(t.Path), false), t.Line)] = true
	}
	res.Symbols = s.withText(tags[:min(len(tags), r.Max)])
	if r.Refs > 0 && res.How != "prefix" { // else it is no one name
		name := q.name
		if len(tags) > 0 && res.How == "case" {
			name = tags[0].Name
		}
		err = s.uses(ctx, name, near, min(r.Refs, MaxRefs), defined, &res)
	}
	return res, err
}

func cutName(s string) string { return s[:min(len(s), maxSymbolName)] }

// symbolName is a name as people write it: with what it is part of.
type symbolName struct {
	scope string // "" for any
	name  string
}

// readName takes "(*T).Do()", "pkg.Func", "ns::f" and "Class#method" apart.
func readName(s string) symbolName {
	s = strings.TrimSpace(s)
	if i := strings.LastIndexByte(s, '('); i > 0 && strings.HasSuffix(s, ")") {
		s = s[:i]
	}
	s = strings.NewReplacer("(", "", ")", "", "*", "", "::", ".", "#", ".").Replace(s)
	scope, name := "", s
	if i := strings.LastIndexByte(s, '.'); i >= 0 {
		scope, name = s[:i], s[i+1:]
		if i := strings.LastIndexByte(scope, '.'); i >= 0 {
			scope = scope[i+1:]
		}
	}
	return symbolName{path.Base(scope), name}
}

// within reports whether a definition belongs to the scope that was named: a type, a package or
// a file's directory.
func (q symbolName) within(t symbols.Tag) bool {
	return q.scope == "." || q.scope == "" || slices.Contains(strings.FieldsFunc(t.Scope, func(r rune) bool { return r == '.' || r == ':' }), q.scope) ||
		path.Base(path.Dir(t.Path)) == q.scope
}

// definitions finds what defines a name: as it is written, else without regard to case, else
// what begins so.
func (s *server) definitions(ctx context.Context, q symbolName, near string) (tags []symbols.Tag, res SymbolsResult, err error) {
	find, indexed, err := s.finder(ctx, near, &res)
	if err != nil {
		return nil, res, err
	}
	res.Indexed = indexed
	for _, way := range []struct {
		m   symbols.Match
		how string
	}{{symbols.Exact, ""}, {symbols.Folded, "case"}, {symbols.Prefix, "prefix"}} {
		if tags, err = find(q.name, way.m); err != nil {
			return nil, res, err
		}
		if res.How = way.how; len(tags) > 0 {
			break
		}
	}
	if len(tags) == 0 {
		res.How = ""
		return nil, res, nil
	}
	own := slices.DeleteFunc(slices.Clone(tags), func(t symbols.Tag) bool { return !q.within(t) })
	if len(own) > 0 {
		tags = own
	} else {
		res.How = cmp.Or(res.How, "unqualified")
	}
	at := nearness{near}
	slices.SortStableFunc(tags, func(a, b symbols.Tag) int {
		return cmp.Or(cmp.Compare(weight(a), weight(b)), at.compare(a.Path, b.Path), strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return tags, res, nil
}

// weight puts what stands for itself before what is part of something.
func weight(t symbols.Tag) int {
	w := 0
	switch t.Kind {
	case "member", "field", "property", "enumerator", "variable", "var", "constant", "const", "methodSpec":
		w = 1
	case "target", "section", "subsection", "chapter", "subsubsection":
		w = 3
	}
	if IsAside(t.Path) {
		w += 2
	}
	return w
}

// finder is how definitions are looked up now: in the prepared symbols, corrected by what was
// changed since, or, where there are none that can be told from the changed ones, by ctags over
// the files that have the name.
func (s *server) finder(ctx context.Context, near string, res *SymbolsResult) (find func(string, symbols.Match) ([]symbols.Tag, error), indexed bool, err error) {
	scan := func(name string, m symbols.Match) ([]symbols.Tag, error) { return s.scanFor(ctx, name, m, near, res) }
	if s.names == nil {
		return scan, false, nil
	}
	changes, err := s.index.Changes(ctx, s.opts.Root, s.began, s.ignored)
	if err != nil || len(changes.Files) > maxLive {
		return scan, false, ctx.Err()
	}
	fresh, err := s.liveTags(ctx, changes.Files)
	if err != nil {
		return scan, false, ctx.Err()
	}
	return func(name string, m symbols.Match) (out []symbols.Tag, err error) {
		err = s.names.Find(name, m, func(tags []symbols.Tag) bool {
			for _, t := range tags {
				if !changes.Skip(t.Path) && s.there(t.Path) {
					out = append(out, t)
				}
			}
			return len(out) < maxFound
		})
		if err != nil {
			return scan(name, m) // damaged
		}
		for _, t := range fresh {
			if m.Meets(t.Name, name) {
				out = append(out, t)
			}
		}
		return out, nil
	}, true, nil
}

// there reports whether a file is still in the tree.
func (s *server) there(p string) bool {
	st, err := s.tree.root.Lstat(p)
	return err == nil && st.Mode().IsRegular()
}

// liveTags remembers what ctags said about changed files, by their change time.
type liveTags struct {
	mu    sync.Mutex
	files map[string]liveFile
}

type liveFile struct {
	changed int64
	tags    []symbols.Tag
}

// liveTags reads the symbols of changed files that a search looks at.
func (s *server) liveTags(ctx context.Context, files []string) ([]symbols.Tag, error) {
	s.live.mu.Lock()
	defer s.live.mu.Unlock()
	if s.live.files == nil {
		s.live.files = map[string]liveFile{}
	}
	var again []string
	times := map[string]int64{}
	for _, f := range files {
		st, err := s.tree.root.Lstat(f)
		if err != nil || !st.Mode().IsRegular() || st.Size() > codesearch.MaxFileSize {
			delete(s.live.files, f)
			continue
		}
		times[f] = codesearch.ChangeTime(st)
		if old, ok := s.live.files[f]; !ok || old.changed != times[f] {
			again = append(again, f)
		}
	}
	if len(again) > 0 {
		tags, _, err := symbols.Scan(ctx, again, symbols.Options{Start: s.ctags, Group: 10 * time.Second})
		if err != nil {
			return nil, err
		}
		for _, f := range again {
			s.live.files[f] = liveFile{changed: times[f]}
		}
		for _, t := range tags {
			l := s.live.files[t.Path]
			l.tags = append(l.tags, t)
			s.live.files[t.Path] = l
		}
	}
	var out []symbols.Tag
	for _, f := range files {
		if _, ok := times[f]; ok {
			out = append(out, s.live.files[f].tags...)
		}
	}
	return out, nil
}

// ctags runs it as a helper of ours. It implements symbols.Start.
func (s *server) ctags(ctx context.Context, argv []string, read func(io.Reader) error) error {
	res, err := s.helper(ctx, argv, read)
	switch {
	case errors.Is(err, errNoHelper):
		return symbols.ErrNoProgram
	case err != nil:
		return err
	case res.ExitCode != 0:
		return fmt.Errorf("ctags ended with exit code %d", res.ExitCode)
	}
	return nil
}

// scanFor asks ctags about the files that have the name: those first where a line looks like a
// definition of it.
func (s *server) scanFor(ctx context.Context, name string, m symbols.Match, near string, res *SymbolsResult) ([]symbols.Tag, error) {
	r := SearchRequest{Pattern: wordPattern(name), Case: "sensitive"}
	if m != symbols.Exact {
		r.Case = "insensitive"
	}
	if m == symbols.Prefix {
		r.Pattern = `\b` + regexp.QuoteMeta(name) + `\w*`
	}
	any := r.Pattern
	for _, r.Pattern = range []string{definer + any, any} {
		files, _, err := s.countLines(ctx, rgArgs(r), r.Pattern, []string{"./"})
		if err != nil {
			return nil, err
		}
		list := make([]string, len(files))
		for i, f := range files {
			list[i] = f.Path
		}
		at := nearness{near}
		slices.SortStableFunc(list, at.compare)
		res.Partial = ""
		if n := len(list); n > maxScanned {
			list = list[:maxScanned]
			res.Partial = fmt.Sprintf("definitions were looked for in %d of the %d files that have the name", maxScanned, n)
		}
		tags, _, err := symbols.Scan(ctx, list, symbols.Options{Start: s.ctags})
		if err != nil {
			return nil, err
		}
		tags = slices.DeleteFunc(tags, func(t symbols.Tag) bool { return !m.Meets(t.Name, name) })
		if len(tags) > 0 {
			return tags, nil
		}
	}
	return nil, nil
}

// definer is how most languages begin a line that defines something.
const definer = `(?:^|[\s(])(?:func(?:\s*\([^)]*\))?|def|class|struct|interface|type|enum|trait|fn|const|var|let|static|module|function|record|union|typedef|#define)\s+[*&]?`

// wordPattern matches a name where it stands for itself.
func wordPattern(name string) string {
	p := regexp.QuoteMeta(name)
	if isWord(name[0]) {
		p = `\b` + p
	}
	if isWord(name[len(name)-1]) {
		p += `\b`
	}
	return p
}

func isWord(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
