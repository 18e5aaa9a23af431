package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"path"
	"regexp"
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
		"max": guest.MaxMatches, "files": guest.MaxNarrow,
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
			what = "No match. Ignored files (.gitignore) and .git are not searched; check case, escapes and paths."
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

// rank orders matches: definitions, source, tests, what is no code, and last what nobody edits.
type rank int

const (
	rankDefinition rank = iota
	rankSource
	rankTest
	rankOther
	rankAside
	ranks
)

func (r rank) title() string {
	return [...]string{"Definitions", "Source", "Tests", "Other files", "Generated and vendored"}[r]
}

// writeMatches groups matches by rank and file and returns how many were written.
func writeMatches(b *strings.Builder, in guest.SearchRequest, matches []guest.Match) int {
	groups := make([][]guest.Match, ranks)
	defines := definitionOf(in)
	rankOf := func(m guest.Match) rank {
		r := fileRank(m.Path)
		if r == rankSource && !m.Context && defines.MatchString(m.Text) {
			return rankDefinition
		}
		return r
	}
	for i, m := range matches {
		m.Path, m.Text = guest.Escape([]byte(m.Path), false), guest.Escape([]byte(m.Text), false)
		r := rankOf(m)
		if in.Context > 0 {
			r = fileRank(m.Path) // context must stay with its match
		}
		_ = i
		groups[r] = append(groups[r], m)
	}
	shown := 0
	for r, group := range groups {
		if len(group) == 0 {
			continue
		}
		fmt.Fprintf(b, "\n%s:\n", rank(r).title())
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

const definers = `(?:func(?:\s*\([^)]*\))?|def|class|struct|interface|type|enum|trait|impl|fn|const|var|let|static|module|namespace|function|package|macro_rules!|#define|protocol|object|record|union|typedef)`

var (
	word          = regexp.MustCompile(`^[\pL_$][\pL\pN_$]*$`)
	anyDefinition = regexp.MustCompile(`^\s*(?:[a-z]+\s+){0,4}` + definers + `\s+[*&\pL_$]`)
)

// definitionOf recognises the line that defines what the pattern names, or any definition
// when the pattern is not a name.
func definitionOf(in guest.SearchRequest) *regexp.Regexp {
	name := strings.TrimSuffix(strings.TrimPrefix(in.Pattern, `\b`), `\b`)
	if !word.MatchString(name) {
		return anyDefinition
	}
	re, err := regexp.Compile(`(?i)^\s*(?:[a-z]+\s+){0,4}` + definers + `\s+[*&]?` + regexp.QuoteMeta(name))
	if err != nil {
		return anyDefinition
	}
	return re
}

var (
	testPath = regexp.MustCompile(`(?i)(^|/)(tests?|testdata|specs?|__tests__|e2e|fixtures)/|(^|/)(test_[^/]*|conftest)\.[^/]*$|[._-](test|spec|tests)\.[^/]*$|(?-i:[a-z0-9](Test|Tests|Spec))\.[^/.]+$`)
	codeExts = []string{".go", ".py", ".js", ".ts", ".tsx", ".jsx", ".mjs", ".cjs", ".rs", ".java", ".kt", ".scala", ".c", ".h", ".cc", ".cpp", ".hpp", ".cs", ".rb", ".php", ".swift", ".m", ".ex", ".exs", ".erl", ".hs", ".ml", ".lua", ".pl", ".sh", ".bash", ".sql", ".vue", ".svelte", ".dart", ".zig", ".proto"}
)

func fileRank(p string) rank {
	switch {
	case guest.IsAside(p):
		return rankAside
	case !slices.Contains(codeExts, strings.ToLower(path.Ext(p))):
		return rankOther
	case testPath.MatchString(p):
		return rankTest
	}
	return rankSource
}
