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

//go:embed write.md
var writeText string

const maxWriteText = 1 << 20

// write creates or replaces a whole file.
type write struct{ schema }

func newWrite() Tool {
	return write{schema{
		{name: "path", kind: "string", required: true, max: maxPath},
		{name: "content", kind: "string", required: true, max: maxWriteText},
	}}
}

func (t write) Spec() model.ToolSpec {
	return model.ToolSpec{Name: "write", Schema: t.JSON(), Description: describe(writeText, map[string]any{"max": number(maxWriteText)})}
}

func (t write) Call(ctx context.Context, env *Env, input json.RawMessage) (Result, error) {
	var in struct {
		Path    string `json:"path"`
		Content string `json:"content"`
	}
	if problem := t.decode("write", input, &in); problem != "" {
		return failed(problem), nil
	}
	r, err := env.Guest.Write(ctx, guest.WriteRequest{Path: in.Path, Content: []byte(in.Content), SHA256: env.seen(in.Path)})
	if err != nil {
		return fromGuest(err)
	}
	if r.OK {
		env.Remember(in.Path, r.SHA256)
	}
	return shapeWrite(clean(in.Path), r), nil
}

func shapeWrite(p string, r guest.EditResult) Result {
	if !r.OK {
		switch r.Problem {
		case "not_read":
			return failed(fmt.Sprintf("Nothing was written: %s exists and has not been read yet. Read it first; prefer edit for a small change.", p))
		case "changed":
			return failed(fmt.Sprintf("Nothing was written: %s is not as you last saw it; something has changed it since. Read it again.", p))
		case "same":
			return failed(fmt.Sprintf("Nothing was written: %s already has this content.", p))
		}
		return failed(pathProblem(p, r))
	}
	var b strings.Builder
	verb := "Replaced"
	if r.Created {
		verb = "Created"
	}
	fmt.Fprintf(&b, "%s %s (%s).\n", verb, p, count(r.Replaced, "line"))
	if r.KeptCRLF {
		b.WriteString("Note: the file's CRLF line ends were kept.\n")
	}
	if r.KeptBOM {
		b.WriteString("Note: the file's byte-order mark was kept.\n")
	}
	b.WriteString(syntaxNote(r.Syntax))
	return Result{Text: b.String()}
}
