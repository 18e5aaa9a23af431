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

//go:embed edit.md
var editText string

const maxEditText = 256 << 10

// edit replaces an exact piece of a file.
type edit struct{ schema }

func newEdit() Tool {
	return edit{schema{
		{name: "path", kind: "string", required: true, max: maxPath},
		{name: "old", kind: "string", required: true, max: maxEditText, about: "exact text to replace, without line numbers"},
		{name: "new", kind: "string", required: true, max: maxEditText},
		{name: "all", kind: "boolean", about: "replace every occurrence"},
	}}
}

func (t edit) Spec() model.ToolSpec {
	return model.ToolSpec{Name: "edit", Schema: t.JSON(), Description: describe(editText, nil)}
}

func (t edit) Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error) {
	var in struct {
		Path string `json:"path"`
		Old  string `json:"old"`
		New  string `json:"new"`
		All  bool   `json:"all"`
	}
	if problem := t.decode("edit", input, &in); problem != "" {
		return failed(problem), nil
	}
	r, err := env.Guest.Edit(ctx, guest.EditRequest{Path: in.Path, Old: []byte(in.Old), New: []byte(in.New), SHA256: env.seen(in.Path), All: in.All})
	if err != nil {
		return fromGuest(err)
	}
	if r.SHA256 != "" && (r.OK || len(r.Nearest) > 0) {
		env.Remember(in.Path, r.SHA256) // what is shown below is the file as it is
	}
	return shapeEdit(clean(in.Path), r), nil
}

func shapeEdit(p string, r guest.EditResult) Result {
	if !r.OK {
		return failed(editProblem(p, r))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Edited %s: %s, from line %d.\n", p, count(r.Replaced, "replacement"), r.Line)
	if r.Whitespace {
		b.WriteString("Note: old matched only after ignoring leading white space; the file's indentation was used. Check the result.\n")
	}
	if r.Unescaped {
		b.WriteString("Note: \\xNN in old and new was taken as the byte it stands for.\n")
	}
	writeCapped(&b, cleanAll(r.After))
	b.WriteString(syntaxNote(r.Syntax))
	return Result{Text: b.String()}
}

func syntaxNote(errs []string) string {
	if len(errs) == 0 {
		return ""
	}
	return "Syntax errors that this change added:\n  " + strings.Join(cleanAll(errs), "\n  ") + "\n"
}

// editProblem says why nothing was written and what to do instead.
func editProblem(p string, r guest.EditResult) string {
	shown := ""
	if len(r.Nearest) > 0 {
		shown = "\n" + strings.Join(cleanAll(r.Nearest), "\n")
	}
	var lines []string
	for _, n := range r.Matches {
		lines = append(lines, number(n))
	}
	switch r.Problem {
	case "no_match":
		if shown == "" {
			return fmt.Sprintf("Nothing was changed: old does not occur in %s, and no line resembles it.", p)
		}
		return fmt.Sprintf("Nothing was changed: old does not occur in %s. The nearest lines are:%s", p, shown)
	case "many_matches":
		return fmt.Sprintf("Nothing was changed: old occurs more than once in %s, at lines %s. Add surrounding lines to make it unique, or set all.", p, strings.Join(lines, ", "))
	case "not_read":
		return fmt.Sprintf("Nothing was changed: %s has not been read yet.%s", p, orRead(shown))
	case "changed":
		return fmt.Sprintf("Nothing was changed: %s is not as you last saw it; something has changed it since.%s", p, orRead(shown))
	case "missing":
		return fmt.Sprintf("Nothing was changed: %s does not exist. Use write to make a new file.", p)
	case "same":
		return "Nothing was changed: old and new are the same, or give the same file."
	case "empty_old":
		return "Nothing was changed: old is empty. Quote the text at the place you mean, or use write for a whole file."
	}
	return pathProblem(p, r)
}

func orRead(shown string) string {
	if shown == "" {
		return " Read it, then edit."
	}
	return " The text around the place you mean is now as follows; repeat the edit if it still fits:" + shown
}

// pathProblem says why a path cannot be changed at all.
func pathProblem(p string, r guest.EditResult) string {
	switch r.Problem {
	case "lfs_pointer":
		return fmt.Sprintf("Refused: %s is a Git LFS pointer; its content is not here and the pointer must not be edited.", p)
	case "submodule":
		return fmt.Sprintf("Refused: %s lies in a git submodule, which is another repository.", p)
	case "binary":
		return fmt.Sprintf("Refused: %s is a binary file.", p)
	case "outside":
		return fmt.Sprintf("Refused: %s is outside the work tree; only files in it can be changed.", p)
	case "link":
		return fmt.Sprintf("Refused: %s is or goes through a link to %s. Change the file it points to, if that is in the work tree.", p, clean(r.Target))
	case "directory":
		return fmt.Sprintf("Refused: %s is a directory.", p)
	case "not_directory":
		return fmt.Sprintf("Refused: a parent of %s is a file.", p)
	case "too_large":
		return fmt.Sprintf("Refused: %s is, or would become, too large to edit.", p)
	case "other":
		return fmt.Sprintf("Refused: %s is not a regular file.", p)
	}
	return fmt.Sprintf("Refused: %s cannot be changed (%s).", p, clean(clip(r.Problem, 40)))
}
