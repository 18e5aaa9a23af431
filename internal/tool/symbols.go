package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/model"
)

//go:embed symbols.md
var symbolsText string

const (
	maxSymbolName    = 256
	maxSymbolEntries = 200
	shortSymbols     = 5  // definitions when nobody asks for more,
	shortRefs        = 14 // and uses,
	shortOutline     = 80 // and entries of an outline
	shortImporters   = 10
	shortNavigation  = 1_650 // bytes of an answer, with which it costs less than 600 tokens
	restFiles        = 5     // files named of those whose uses are not shown
)

// symbolsTool answers where names are defined and used.
type symbolsTool struct{ schema }

func newSymbols() Tool {
	return symbolsTool{schema{
		{name: "name", kind: "string", max: maxSymbolName},
		{name: "path", kind: "string", max: maxPath, about: "file or directory"},
		{name: "max", kind: "integer", max: maxSymbolEntries, about: "entries of each kind"},
	}}
}

func (t symbolsTool) Spec() model.ToolSpec {
	return model.ToolSpec{Name: "symbols", Schema: t.JSON(), Description: describe(symbolsText, nil)}
}

func (t symbolsTool) Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error) {
	var in struct {
		Name string `json:"name"`
		Path string `json:"path"`
		Max  int    `json:"max"`
	}
	if problem := t.decode("symbols", input, &in); problem != "" {
		return failed(problem), nil
	}
	if in.Name == "" && in.Path == "" {
		return failed("symbols needs a name, or a path for its outline."), nil
	}
	q := guest.SymbolsRequest{Name: in.Name, Path: in.Path, Max: in.Max, Refs: in.Max}
	room := maxResult
	if in.Max == 0 {
		q.Max, q.Refs, room = shortSymbols, shortRefs, shortNavigation
	}
	if in.Name == "" {
		q.Refs, room = 0, maxResult
		if in.Max == 0 {
			q.Max = shortOutline
		}
	}
	r, err := env.Guest.Symbols(ctx, q)
	if err != nil {
		return fromGuest(err)
	}
	if r.Error != "" {
		return failed("symbols: " + sentence(clean(clip(r.Error, 2000)))), nil
	}
	if in.Name == "" {
		return shapeOutline(in.Path, r), nil
	}
	return shapeSymbols(in.Name, room, r), nil
}

// shapeSymbols writes definitions, then uses, into about room bytes.
func shapeSymbols(name string, room int, r guest.SymbolsResult) Result {
	name = guest.Escape([]byte(clip(name, maxSymbolName)), false)
	var b strings.Builder
	switch all := len(r.Symbols) + r.More; {
	case all == 0:
		fmt.Fprintf(&b, "No definition of %s is known.\n", name)
	case r.How == "case":
		fmt.Fprintf(&b, "No %s, but with other letters' case:\n", name)
	case r.How == "prefix":
		fmt.Fprintf(&b, "No %s, but names that begin so:\n", name)
	case r.How == "unqualified":
		fmt.Fprintf(&b, "None in that scope; elsewhere:\n")
	}
	shown := 0
	for i, s := range r.Symbols {
		line := fmt.Sprintf("%s:%d %s: %s\n", clean1(s.Path), s.Line, clean1(s.Kind), clip(clean1(s.Text), 160))
		if i > 0 && b.Len()+len(line) > room/2 {
			break
		}
		b.WriteString(line)
		shown++
	}
	if rest := len(r.Symbols) + r.More - shown; rest > 0 {
		fmt.Fprintf(&b, "… and %s more; qualify the name, or set path or max\n", number(rest))
	}
	if r.How != "prefix" {
		writeUses(&b, room, r)
	}
	if r.Partial != "" {
		fmt.Fprintf(&b, "(%s)\n", clean1(clip(r.Partial, 300)))
	}
	return Result{Text: b.String()}
}

func clean1(s string) string { return guest.Escape([]byte(s), false) }

// writeUses groups the uses by file, nearest first, and says how many others there are.
func writeUses(b *strings.Builder, room int, r guest.SymbolsResult) {
	if r.Uses == 0 {
		if len(r.Symbols) > 0 {
			b.WriteString("No other line has the name.\n")
		}
		return
	}
	fmt.Fprintf(b, "%s in %s:\n", count(r.Uses, "use"), count(len(r.Files), "file"))
	given := map[string]int{}
	last := ""
	for _, u := range r.Refs {
		line := fmt.Sprintf("%5d: %s\n", u.Line, clip(clean1(u.Text), 110))
		if u.In != "" {
			line = fmt.Sprintf("%5d %s: %s\n", u.Line, clip(clean1(u.In), 60), clip(clean1(u.Text), 110))
		}
		if u.Path != last {
			line = clean1(u.Path) + "\n" + line
		}
		if b.Len()+len(line) > room-200 { // what follows needs some
			break
		}
		b.WriteString(line)
		last = u.Path
		given[u.Path]++
	}
	var rest []string
	more, files := 0, 0
	for _, f := range r.Files {
		n := f.Count - given[f.Path]
		if n <= 0 {
			continue
		}
		more += n
		files++
		if given[f.Path] == 0 && len(rest) < restFiles {
			rest = append(rest, fmt.Sprintf("%s %d", clip(clean1(f.Path), 60), n))
		}
	}
	if more == 0 {
		return
	}
	fmt.Fprintf(b, "… %s more in %s", number(more), count(files, "file"))
	for i := range rest {
		if b.Len()+len(rest[i]) > room {
			break
		}
		b.WriteString([]string{": ", ", "}[min(i, 1)] + rest[i])
	}
	b.WriteByte('\n')
}

// shapeOutline writes what a file or the files of a directory define.
func shapeOutline(at string, r guest.SymbolsResult) Result {
	at = guest.Escape([]byte(clip(at, maxPath)), false)
	var b strings.Builder
	if r.Package != "" {
		fmt.Fprintf(&b, "package %s", clean1(r.Package))
		if n := len(r.Imports); n > 0 {
			fmt.Fprintf(&b, ", imports %s", clip(clean1(strings.Join(r.Imports, " ")), 1500))
		}
		b.WriteByte('\n')
	}
	if n := len(r.Files); n > 0 {
		var names []string
		for _, f := range r.Files[:min(n, shortImporters)] {
			names = append(names, clean1(f.Path))
		}
		fmt.Fprintf(&b, "imported by %s: %s", count(n, "file"), clip(strings.Join(names, " "), 1000))
		if n > shortImporters {
			b.WriteString(" …")
		}
		b.WriteByte('\n')
	}
	if len(r.Symbols) == 0 {
		fmt.Fprintf(&b, "%s defines nothing that ctags knows.\n", at)
		return Result{Text: b.String()}
	}
	last := ""
	for i, s := range r.Symbols {
		if b.Len() > maxResult {
			r.More += len(r.Symbols) - i
			break
		}
		if s.Path != last {
			fmt.Fprintf(&b, "%s\n", clean1(s.Path))
			last = s.Path
		}
		text := clip(clean1(s.Text), 140)
		if !strings.Contains(text, s.Name) || slices.Contains([]string{"", s.Name}, text) {
			text = clean1(s.Kind + " " + s.Name)
		}
		fmt.Fprintf(&b, "%5d: %s\n", s.Line, text)
	}
	if r.More > 0 {
		fmt.Fprintf(&b, "… and %s more; set max, or read the file\n", number(r.More))
	}
	if r.Partial != "" {
		fmt.Fprintf(&b, "(%s)\n", clean1(clip(r.Partial, 300)))
	}
	return Result{Text: b.String()}
}
