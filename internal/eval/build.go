package eval

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// What the tools take in one call; chunk is how much base64 goes into one command.
const (
	chunk    = 60_000 // a multiple of 4, below the 64 KiB of a command
	maxWrite = 1 << 20
	maxTests = 20
	maxTitle = 120
)

// BuildTranscript makes the transcript of a model that does what the variant says, from the
// instance's repository: a checkout or a bare repository with the whole history. Files are
// taken away before they are written, so that nothing has to be read first. A variant that must
// be refused ends with a decline.
func BuildTranscript(ctx context.Context, i Instance, repoDir string, v Variant) ([]byte, error) {
	if !slices.Contains(Variants(), v) {
		return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("unknown variant %q", v), Fix: fmt.Sprintf("use one of %v", Variants())}
	}
	if problem := i.problem(); problem != "" {
		return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("instance %s: %s", i.ID, problem)}
	}
	r := repo{dir: repoDir}
	if err := r.check(ctx, i.Base, i.Fix); err != nil {
		return nil, err
	}
	tests, err := i.testEdits(ctx, r, v)
	if err != nil {
		return nil, err
	}
	var source []file
	if v == Gold || v == WeakTest {
		if source, err = r.readAll(ctx, i.Fix, slices.Concat(i.SourceFiles, i.OtherFiles)); err != nil {
			return nil, err
		}
	}
	s := &script{}
	s.header(fmt.Sprintf("%s-%s", i.ID, v), firstLine(i.Subject, i.Title))
	s.turn("A look at what is here.", "", newCall("run").text("command", "ls"))
	s.writeFiles("run", tests)
	s.turn("Does the test show the bug?", s.called, newCall("reproduce").list("tests", i.declared()).list("files", i.named(tests)))
	s.writeFiles("reproduce", source)
	s.turn("Done, as far as I can tell.", s.called, newCall("submit").
		text("title", clip(firstLine(i.Subject, i.Title), maxTitle)).
		text("cause", firstLine(i.Title, i.Subject)).
		text("fix", fmt.Sprintf("The change in %s.", strings.Join(i.SourceFiles, ", "))).
		list("tests", i.declared()))
	if v != Gold {
		s.turn("It was refused, and I have nothing better.", "submit", newCall("decline").
			text("kind", "cannot_reproduce").
			text("reason", "The verification refused the change.").
			text("tried", fmt.Sprintf("The variant %q of instance %s.", v, i.ID)))
	}
	return s.out.Bytes(), nil
}

// declared is as many of the instance's tests as one call takes.
func (i Instance) declared() []string {
	tests := i.Tests()
	return tests[:min(len(tests), maxTests)]
}

// named is the files that a reproduction names: the ones written, or the instance's own where
// the variant leaves them alone.
func (i Instance) named(tests []file) []string {
	if len(tests) == 0 {
		return i.TestFiles
	}
	var out []string
	for _, f := range tests {
		if !f.absent {
			out = append(out, f.path)
		}
	}
	return out
}

func firstLine(choices ...string) string {
	for _, c := range choices {
		if line, _, _ := strings.Cut(strings.TrimSpace(c), "\n"); line != "" {
			return line
		}
	}
	return ""
}

func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// script writes the YAML of a transcript. Every string is a double-quoted scalar in JSON's
// notation, which YAML reads as it is.
type script struct {
	out    bytes.Buffer
	called string // the tool that the last turn called
}

func (s *script) header(name, description string) {
	fmt.Fprintf(&s.out, "transcript: 1\nname: %s\ndescription: %s\n", quoted(name), quoted(description))
}

// turn adds a reply with calls of one tool; it expects a result of another, unless that is "".
func (s *script) turn(text, expect string, calls ...*toolCall) {
	s.out.WriteString("---\n")
	if expect != "" {
		fmt.Fprintf(&s.out, "expect:\n  - tool: %s\n", expect)
	}
	fmt.Fprintf(&s.out, "text: %s\ncalls:\n", quoted(text))
	for _, c := range calls {
		s.called = c.name
		fmt.Fprintf(&s.out, "  - name: %s\n    input:\n", c.name)
		s.out.Write(c.input.Bytes())
	}
}

// writeFiles adds the turns that bring files to their content. The old ones go first, in a turn
// of their own, since nothing says that the calls of one turn run one after the other.
func (s *script) writeFiles(expect string, files []file) {
	if len(files) == 0 {
		return
	}
	var all, modes []string
	var writes []*toolCall
	var raw []file
	for _, f := range files {
		all = append(all, shellQuote(f.path))
		if f.executable {
			modes = append(modes, shellQuote(f.path))
		}
		switch {
		case f.absent:
		case len(f.content) <= maxWrite && utf8.Valid(f.content) && !bytes.ContainsRune(f.content, 0):
			writes = append(writes, newCall("write").text("path", f.path).text("content", string(f.content)))
		default:
			raw = append(raw, f)
		}
	}
	s.turn("These files are written anew.", expect, newCall("run").text("command", "rm -f -- "+strings.Join(all, " ")))
	if len(writes) > 0 {
		s.turn("Their text.", "run", writes...)
	}
	for _, f := range raw {
		s.writeRaw(f)
	}
	if len(modes) > 0 {
		s.turn("Their modes.", s.called, newCall("run").text("command", "chmod +x -- "+strings.Join(modes, " ")))
	}
}

// writeRaw sends bytes that are no text through the shell.
func (s *script) writeRaw(f file) {
	dir := "mkdir -p -- \"$(dirname -- " + shellQuote(f.path) + ")\" && "
	for n, part := range slices.Collect(slices.Chunk([]byte(base64.StdEncoding.EncodeToString(f.content)), chunk)) {
		arrow := ">>"
		if n == 0 {
			arrow = ">"
		}
		s.turn("Bytes that are no text.", s.called, newCall("run").text("command", fmt.Sprintf("%sprintf %%s %s | base64 -d %s %s", dir, part, arrow, shellQuote("./"+f.path))))
	}
}

type toolCall struct {
	name  string
	input bytes.Buffer
}

func newCall(name string) *toolCall { return &toolCall{name: name} }

func (c *toolCall) text(key, value string) *toolCall {
	fmt.Fprintf(&c.input, "      %s: %s\n", key, quoted(value))
	return c
}

func (c *toolCall) list(key string, values []string) *toolCall {
	fmt.Fprintf(&c.input, "      %s:\n", key)
	for _, v := range values {
		fmt.Fprintf(&c.input, "        - %s\n", quoted(v))
	}
	return c
}

// quoted is the text in JSON's notation. YAML knows no surrogate pairs, and JSON's encoder
// writes none.
func quoted(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes
	return strings.TrimSuffix(b.String(), "\n")
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
