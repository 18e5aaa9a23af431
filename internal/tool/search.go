package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/model"
)

//go:embed search.md
var searchText string

const (
	maxPattern     = 2_000
	maxSearchLists = 20
	maxContext     = 10
	broadDirs      = 20 // directories and files named when there are too many
)

// search finds text or files.
type search struct{ schema }

func newSearch() Tool {
	return search{schema{
		{name: "pattern", kind: "string", max: maxPattern, about: "regex"},
		{name: "literal", kind: "boolean", about: "pattern is plain text"},
		{name: "paths", kind: "strings", items: maxSearchLists, max: maxPath, about: "files or directories to search"},
		{name: "globs", kind: "strings", items: maxSearchLists, max: 500, about: "such as *.go or !vendor/**"},
		{name: "case", kind: "string", enum: []string{"smart", "sensitive", "insensitive"}, about: "default smart"},
		{name: "context", kind: "integer", max: maxContext, about: "lines around each match"},
		{name: "files", kind: "boolean", about: "list file names instead"},
	}}
}

func (t search) Spec() model.ToolSpec {
	return model.ToolSpec{Name: "search", Schema: t.JSON(), Description: describe(searchText, map[string]any{
		"max": guest.MaxMatches, "files": guest.MaxNarrow, "size": guest.MaxSearched >> 20,
	})}
}

func (t search) Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error) {
	var in guest.SearchRequest
	if problem := t.decode("search", input, &in); problem != "" {
		return failed(problem), nil
	}
	if in.Pattern == "" && !in.Files {
		return failed("search needs a pattern, or files set to list file names by globs."), nil
	}
	if in.Pattern != "" && in.Files {
		return failed("search: files lists names by globs and takes no pattern; leave out one of the two."), nil
	}
	r, err := env.Guest.Search(ctx, in)
	if err != nil {
		return fromGuest(err)
	}
	return shapeSearch(in, r), nil
}

func shapeSearch(in guest.SearchRequest, r guest.SearchResult) Result {
	if r.Error != "" {
		return failed("The search failed: " + clean(clip(r.Error, 2000)))
	}
	for i := range r.Files {
		r.Files[i].Path = guest.Escape([]byte(r.Files[i].Path), false)
	}
	if len(r.Files) == 0 {
		what := "No file matches the globs."
		if !in.Files {
			what = fmt.Sprintf("No match. Ignored files (.gitignore), .git and files over %d MB are not searched unless paths names the file; check case, escapes and paths.", guest.MaxSearched>>20)
			var large []string
			for _, p := range r.Large[:min(len(r.Large), broadDirs)] {
				large = append(large, guest.Escape([]byte(clip(p, 300)), false))
			}
			if len(large) > 0 {
				what += " Too large here: " + strings.Join(large, ", ") + "."
			}
		}
		return Result{Text: what}
	}
	var b strings.Builder
	if in.Files {
		fmt.Fprintf(&b, "%s%s:\n", count(len(r.Files), "file"), orMore(r.Truncated))
		var names []string
		for _, f := range r.Files {
			names = append(names, f.Path)
		}
		writeCapped(&b, names)
		return Result{Text: b.String()}
	}
	total := 0
	for _, f := range r.Files {
		total += f.Count
	}
	if len(r.Files) > guest.MaxNarrow {
		return Result{Text: tooBroad(r, total)}
	}
	fmt.Fprintf(&b, "%s in %s\n", count(total, "matching line"), count(len(r.Files), "file"))
	slices.SortStableFunc(r.Files, func(a, b guest.FileCount) int { return b.Count - a.Count })
	for _, f := range r.Files {
		fmt.Fprintf(&b, "%6d  %s\n", f.Count, f.Path)
	}
	shown := writeMatches(&b, in, r.Matches)
	if shown < total {
		fmt.Fprintf(&b, "\n%s of %s shown; narrow the search to see the others.\n", number(shown), number(total))
	}
	return Result{Text: b.String()}
}

func orMore(more bool) string {
	if more {
		return " or more, the first are"
	}
	return ""
}

// tooBroad names where the matches are, for the model to narrow.
func tooBroad(r guest.SearchResult, total int) string {
	var b strings.Builder
	more := ""
	if r.Truncated {
		more = " or more"
	}
	fmt.Fprintf(&b, "%s in %s%s: too many to show. Narrow the search with paths, globs or a stricter pattern.\n", count(total, "matching line"), count(len(r.Files), "file"), more)
	dirs := make(map[string]int)
	for _, f := range r.Files {
		dir := path.Dir(f.Path)
		if parts := strings.SplitN(dir, "/", 3); len(parts) > 2 {
			dir = parts[0] + "/" + parts[1]
		}
		dirs[dir] += f.Count
	}
	var list []guest.FileCount
	for d, n := range dirs {
		list = append(list, guest.FileCount{Path: d + "/", Count: n})
	}
	writeTop(&b, "Matching lines by directory:", list)
	writeTop(&b, "Files with the most:", r.Files)
	return b.String()
}

func writeTop(b *strings.Builder, title string, list []guest.FileCount) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b guest.FileCount) int {
		if a.Count != b.Count {
			return b.Count - a.Count
		}
		return strings.Compare(a.Path, b.Path)
	})
	b.WriteString(title + "\n")
	for _, f := range list[:min(len(list), broadDirs)] {
		fmt.Fprintf(b, "%6d  %s\n", f.Count, clip(f.Path, 300))
	}
}

// title of a group of matches.
func title(r guest.Rank) string {
	return [...]string{"Definitions", "Source", "Tests", "Other files", "Generated and vendored"}[r]
}

// blocks takes matches apart where lines between them are missing.
func blocks(matches []guest.Match) (out [][]guest.Match) {
	for i, m := range matches {
		if i == 0 || m.Path != matches[i-1].Path || m.Line != matches[i-1].Line+1 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], m)
	}
	return out
}

// writeMatches groups matches by rank and file, each with what stands around it, and returns how
// many were written.
func writeMatches(b *strings.Builder, in guest.SearchRequest, matches []guest.Match) int {
	groups := make([][]guest.Match, guest.Ranks)
	ranking := guest.RankingOf(in)
	for i, m := range matches {
		matches[i].Path, matches[i].Text = guest.Escape([]byte(m.Path), false), guest.Escape([]byte(m.Text), false)
	}
	list := blocks(matches)
	if in.Context == 0 { // each is its own
		list = slices.Collect(slices.Chunk(matches, 1))
	}
	for _, block := range list {
		r := guest.RankAside
		for _, m := range block {
			r = min(r, ranking.Of(m))
		}
		groups[r] = append(groups[r], block...)
	}
	shown := 0
	for r, group := range groups {
		if len(group) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s:\n", title(guest.Rank(r)))
		last, line := "", 0
		for _, m := range group {
			if b.Len()+len(m.Text)+len(m.Path) > maxResult {
				return shown
			}
			if m.Path != last {
				fmt.Fprintf(b, "%s\n", m.Path)
			} else if in.Context > 0 && m.Line > line+1 {
				b.WriteString("     …\n")
			}
			last, line = m.Path, m.Line
			mark := ":"
			if m.Context {
				mark = "-"
			} else {
				shown++
			}
			fmt.Fprintf(b, "%6d%s %s\n", m.Line, mark, m.Text)
		}
	}
	return shown
}
