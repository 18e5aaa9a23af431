package guest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

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
	res, limit, total := shape(r, files, false)
	res.Indexed = true
	if len(files) == 0 && !r.counts && s.mayBeLarge(ask) {
		res.Large, err = s.large(ctx, r, paths)
		return res, true, err
	}
	names := make([]string, len(asked))
	for i, f := range asked {
		names[i] = f.Path
	}
	base = base[:len(base)-len(globs)]
	globs, dirs = oneByOne(names)
	base = append(base, globs...)
	err = s.fill(&res, r, limit, total, func(w lines) ([]Match, string, error) {
		out, err := s.indexedLines(ctx, q, known, limit, w)
		if err != nil || len(asked) == 0 {
			return out, "", err
		}
		more, complaint, err := s.matchingLines(ctx, base, r.Pattern, dirs, w)
		return append(out, more...), complaint, err
	})
	return res, true, err
}

// mayBeLarge reports whether there may be files too large to be searched: in the tree that was
// indexed, or among these.
func (s *server) mayBeLarge(files []string) bool {
	return s.index.Stats().Skipped > 0 || slices.ContainsFunc(files, func(f string) bool {
		st, err := s.tree.root.Lstat(f)
		return err == nil && st.Size() > MaxSearched
	})
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
	changes, err := s.index.Changes(ctx, s.opts.Root, s.began, s.ignored)
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
	ask = append(ans.Ask, live...)
	for _, p := range q.Paths { // a file that is named is read to its end, whatever it holds
		if slices.Contains(ask, p) {
			return nil, nil, codesearch.ErrAsk
		}
	}
	return ans.Counts, ask, nil
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

// indexedLines reads lines of the files that the index counted.
func (s *server) indexedLines(ctx context.Context, q codesearch.Query, known []codesearch.Count, limit int, w lines) ([]Match, error) {
	tree, err := codesearch.OpenTree(s.opts.Root, nil)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	pick := codesearch.Pick{First: cmp.Or(w.each, limit), Around: w.context, Bytes: MaxMatchBytes + utf8.UTFMax}
	names := make([]string, len(known))
	for i, c := range known {
		names[i] = c.Path
		if w.only != nil {
			pick.Only = append(pick.Only, w.only[Escape([]byte(c.Path), false)])
		}
	}
	found, err := s.index.Lines(ctx, tree, q, names, pick)
	if err != nil {
		return nil, err
	}
	var out []Match
	for i, list := range found {
		for _, l := range list {
			if len(l.Text) == l.Size {
				l.Text = bytes.TrimSuffix(l.Text, []byte{'\r'})
				l.Size = len(l.Text)
			}
			out = append(out, Match{
				Path: Escape([]byte(names[i]), false), Line: l.Number, Context: !l.Match,
				Text: cutLine(l.Text, l.Size, MaxMatchBytes),
			})
		}
	}
	return out, nil
}
