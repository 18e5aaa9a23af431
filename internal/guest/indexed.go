package guest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
)

// maxAsk is how many files ripgrep is asked about one by one.
const maxAsk = 1_000

// openIndex maps the search index. A search works without one, only slower.
func openIndex(opts ServerOptions) *codesearch.Index {
	if opts.Index == "" {
		return nil
	}
	x, err := codesearch.Open(opts.Index)
	if err != nil {
		return nil
	}
	return x
}

// searchIndexed answers from the index what it knows, and asks ripgrep about the rest: files that
// were changed since, and those which only it can judge. It reports false for a search that is
// ripgrep's alone.
func (s *server) searchIndexed(ctx context.Context, r SearchRequest, paths []string) (SearchResult, bool, error) {
	if s.index == nil || r.Files {
		return SearchResult{}, false, nil
	}
	q := indexQuery(r, paths)
	known, ask, err := s.askIndex(ctx, q)
	if errors.Is(err, codesearch.ErrAsk) || ctx.Err() != nil {
		return SearchResult{}, false, nil
	}
	if err != nil {
		return SearchResult{}, false, nil // damaged, or a file that cannot be read: ripgrep goes on
	}
	base := append(rgArgs(SearchRequest{Literal: r.Literal, Case: r.Case}), "--max-depth", "1")
	globs, dirs := oneByOne(ask)
	base = append(base, globs...)
	var asked []FileCount
	if len(ask) > 0 {
		out := ""
		if asked, out, err = s.countLines(ctx, base, r.Pattern, dirs); err != nil || out != "" {
			return SearchResult{Error: out}, true, err
		}
	}
	files := slices.Clone(asked)
	for _, c := range known {
		files = append(files, FileCount{Path: c.Path, Count: c.Lines})
	}
	slices.SortFunc(files, func(a, b FileCount) int { return strings.Compare(a.Path, b.Path) })
	res, limit, each := shape(r, files, false)
	res.Indexed = true
	if limit == 0 {
		return res, true, nil
	}
	res.Matches, res.Error, err = s.indexedLines(ctx, q, r, known, limit, each)
	if err != nil {
		return SearchResult{}, true, err
	}
	if len(asked) > 0 {
		names := make([]string, len(asked))
		for i, f := range asked {
			names[i] = f.Path
		}
		globs, dirs := oneByOne(names)
		more, out, err := s.matchingLines(ctx, append(base[:len(base)-len(globs)], globs...), r, dirs, limit, each)
		if err != nil {
			return SearchResult{}, true, err
		}
		res.Matches, res.Error = append(res.Matches, more...), cmp.Or(res.Error, out)
	}
	slices.SortStableFunc(res.Matches, func(a, b Match) int { return strings.Compare(a.Path, b.Path) })
	res.Matches = cutMatches(res.Matches, limit)
	return res, true, nil
}

// cutMatches keeps the first limit matches and what stands around them.
func cutMatches(list []Match, limit int) []Match {
	n := 0
	for i, m := range list {
		if m.Context {
			continue
		}
		if n++; n > limit {
			return list[:i]
		}
	}
	return list
}

func indexQuery(r SearchRequest, paths []string) codesearch.Query {
	q := codesearch.Query{Pattern: r.Pattern, Literal: r.Literal, Globs: r.Globs}
	switch r.Case {
	case "sensitive":
	case "insensitive":
		q.IgnoreCase = true
	default:
		p := codesearch.ReadPattern(r.Pattern)
		if r.Literal {
			p = codesearch.ReadLiteral(r.Pattern)
		}
		q.IgnoreCase = p.SmartCase()
	}
	for _, p := range paths {
		q.Paths = append(q.Paths, path.Clean(p))
	}
	return q
}

// askIndex returns what the index knows and the files it cannot speak about.
func (s *server) askIndex(ctx context.Context, q codesearch.Query) (known []codesearch.Count, ask []string, err error) {
	if s.rulesTouched() {
		return nil, nil, codesearch.ErrAsk
	}
	changes, err := s.index.Changes(ctx, s.opts.Root, s.began)
	if err != nil {
		return nil, nil, err
	}
	if changes.Rules {
		return nil, nil, codesearch.ErrAsk
	}
	for _, p := range q.Paths { // what is ignored is searched when it is named
		if ok, err := s.index.Holds(p); err != nil || !ok {
			return nil, nil, cmp.Or(err, codesearch.ErrAsk)
		}
	}
	live, err := q.Wants(changes.Files)
	if err != nil {
		return nil, nil, err
	}
	if q.MostAsk = maxAsk - len(live); q.MostAsk <= 0 {
		return nil, nil, codesearch.ErrAsk
	}
	tree, err := codesearch.OpenTree(s.opts.Root, changes.Skip)
	if err != nil {
		return nil, nil, err
	}
	defer tree.Close()
	ans, err := s.index.Search(ctx, tree, q)
	if err != nil {
		return nil, nil, err
	}
	if live, err = s.notIgnored(ctx, live); err != nil {
		return nil, nil, err
	}
	ask = append(ans.Ask, live...)
	for _, p := range q.Paths { // a file that is named is read to its end, whatever it holds
		if slices.Contains(ask, p) {
			return nil, nil, codesearch.ErrAsk
		}
	}
	return ans.Counts, ask, nil
}

// rulesTouched reports whether there may be rules about ignored files outside the work tree's own.
func (s *server) rulesTouched() bool {
	home, _ := os.UserHomeDir()
	for _, p := range []string{".gitconfig", ".config/git/ignore", ".config/git/config"} {
		if _, err := os.Stat(filepath.Join(home, p)); home != "" && err == nil {
			return true
		}
	}
	for _, p := range []string{".git/info/exclude", ".git/config"} {
		if codesearch.ChangedSince(filepath.Join(s.opts.Root, p), s.began) {
			return true
		}
	}
	return false
}

// checkIgnore prints those of its arguments that git ignores, a NUL after each.
const checkIgnore = `printf '%s\0' "$@" | git check-ignore --no-index -z --stdin`

// notIgnored drops the new files that a search of the tree passes over.
func (s *server) notIgnored(ctx context.Context, files []string) ([]string, error) {
	var fresh []string
	for _, f := range files {
		if ok, err := s.index.Has(f); err != nil {
			return nil, err
		} else if !ok {
			fresh = append(fresh, f)
		}
	}
	if len(fresh) == 0 {
		return files, nil
	}
	if s.index.ForeignRules() {
		return nil, codesearch.ErrAsk
	}
	ignored := make(map[string]bool)
	_, err := s.helper(ctx, append([]string{"sh", "-c", checkIgnore, "sh"}, fresh...), func(in io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(in, maxCountBytes))
		for _, f := range bytes.Split(b, []byte{0}) {
			ignored[string(f)] = true
		}
		return ignoreEOF(err)
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(files), func(f string) bool { return ignored[f] }), nil
}

// oneByOne makes ripgrep look at these files and no others, as it looks at files that it finds
// itself: at those which it is given by name it looks in another way.
func oneByOne(files []string) (globs, dirs []string) {
	for _, f := range files {
		globs = append(globs, "--glob", codesearch.GlobFor(f))
		dirs = append(dirs, "./"+path.Dir(f))
	}
	slices.Sort(dirs)
	return globs, slices.Compact(dirs)
}

// indexedLines reads the matching lines of the files that the index counted.
func (s *server) indexedLines(ctx context.Context, q codesearch.Query, r SearchRequest, known []codesearch.Count, limit, each int) ([]Match, string, error) {
	tree, err := codesearch.OpenTree(s.opts.Root, nil)
	if err != nil {
		return nil, "", err
	}
	defer tree.Close()
	var names []string
	for _, c := range known {
		names = append(names, c.Path)
	}
	if each == 0 {
		each = limit
	}
	lines, err := s.index.Lines(ctx, tree, q, names, each, contextLines(r))
	if err != nil {
		return nil, "", err
	}
	var out []Match
	for i, list := range lines {
		for _, l := range list {
			text := bytes.TrimSuffix(l.Text, []byte{'\r'})
			out = append(out, Match{
				Path: Escape([]byte(names[i]), false), Line: max(l.Number, -l.Number), Context: l.Number < 0,
				Text: cutLine(text, len(text), MaxMatchBytes),
			})
		}
	}
	return out, "", nil
}
