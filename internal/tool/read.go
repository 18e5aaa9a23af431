package tool

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/model"
)

//go:embed read.md
var readText string

const maxPath = 4096

// read shows a file or a directory.
type read struct{ schema }

func newRead() Tool {
	return read{schema{
		{name: "path", kind: "string", required: true, max: maxPath},
		{name: "offset", kind: "integer", about: "first line, from 1"},
		{name: "limit", kind: "integer", max: 100_000, about: fmt.Sprintf("lines, default %d", guest.DefaultLines)},
	}}
}

func (t read) Spec() model.ToolSpec {
	return model.ToolSpec{Name: "read", Schema: t.JSON(), Description: describe(readText, map[string]any{
		"lines": number(guest.DefaultLines), "bytes": number(guest.MaxReadBytes), "line": number(guest.MaxLineBytes),
	})}
}

func (t read) Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error) {
	var in struct {
		Path   string `json:"path"`
		Offset int    `json:"offset"`
		Limit  int    `json:"limit"`
	}
	if problem := t.decode("read", input, &in); problem != "" {
		return failed(problem), nil
	}
	r, err := env.Guest.Read(ctx, guest.ReadRequest{Path: in.Path, Offset: in.Offset, Limit: in.Limit})
	if err != nil {
		return fromGuest(err)
	}
	if r.Kind == guest.KindText && r.SHA256 != "" {
		env.Remember(in.Path, r.SHA256)
	}
	return shapeRead(clean(in.Path), max(in.Offset, 1), r), nil
}

func shapeRead(p string, first int, r guest.ReadResult) Result {
	var b strings.Builder
	switch r.Kind {
	case guest.KindText:
	case guest.KindDir:
		fmt.Fprintf(&b, "%s is a directory with %s:\n", p, entries(r.Total))
		writeCapped(&b, cleanAll(r.Entries))
		if r.Cut {
			fmt.Fprintf(&b, "… only the first %s are shown; use search with files to narrow.\n", number(len(r.Entries)))
		}
		return Result{Text: b.String()}
	case guest.KindModule:
		return Result{Text: fmt.Sprintf("%s is a git submodule: another repository, not part of this one, and not to be changed here. It holds %s.\n%s",
			p, entries(r.Total), clip(strings.Join(cleanAll(r.Entries), "\n"), 4000))}
	case guest.KindLFS:
		return Result{Text: fmt.Sprintf("%s is a Git LFS pointer, %s: its content is stored elsewhere and is not here. It cannot be edited.\n%s", p, count(r.Size, "byte"), clip(strings.Join(cleanAll(r.Lines), "\n"), 1000))}
	case guest.KindBinary:
		return failed(fmt.Sprintf("%s is a binary file of %s. Inspect it with run (file, xxd, strings) if you must.", p, count(r.Size, "byte")))
	case guest.KindLink:
		return failed(fmt.Sprintf("%s is or goes through a link to %s, which is outside the work tree or does not exist.", p, clean(r.Target)))
	default:
		return failed(p + " is neither a file nor a directory.")
	}
	switch {
	case r.Total == 0:
		return Result{Text: p + " is empty (0 lines)."}
	case len(r.Lines) == 0:
		return failed(fmt.Sprintf("%s has only %s; offset %s is beyond its end.", p, count(r.Total, "line"), number(first)))
	}
	last := first + len(r.Lines) - 1
	fmt.Fprintf(&b, "%s, lines %d-%d of %s%s\n", p, first, last, number(r.Total), readNotes(r))
	for i, l := range cleanAll(r.Lines) {
		fmt.Fprintf(&b, "%6d\t%s\n", first+i, l)
	}
	if last < r.Total {
		fmt.Fprintf(&b, "… %s more; read on with offset %d.\n", count(r.Total-last, "line"), last+1)
	}
	return Result{Text: b.String()}
}

func readNotes(r guest.ReadResult) string {
	s := ""
	if r.CRLF {
		s += "; CRLF line ends, kept by edit"
	}
	if r.Latin1 {
		s += `; not UTF-8: \xNN stands for one byte`
	}
	if r.SHA256 == "" {
		s += "; too large to edit"
	}
	return s
}

func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return number(n) + " entries"
}

// writeCapped writes lines until a result is full.
func writeCapped(b *strings.Builder, lines []string) {
	for i, l := range lines {
		if b.Len()+len(l) > maxResult {
			fmt.Fprintf(b, "… and %s more\n", number(len(lines)-i))
			return
		}
		b.WriteString(l + "\n")
	}
}
