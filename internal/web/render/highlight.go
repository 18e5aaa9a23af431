package render

import (
	"path"
	"strings"
	"sync"

	"github.com/alecthomas/chroma/v2"
	"github.com/alecthomas/chroma/v2/lexers"
)

// The caps of highlighting. What is longer is shown without colours.
const (
	maxHighlight     = 48 << 10 // bytes of one hunk
	maxHighlightLine = 1000     // bytes of one line
)

// maxLexers bounds the names whose language is remembered.
const maxLexers = 256

// Highlighter marks source code with classes, by the language that a file's name says. The zero
// value is ready; it is safe for concurrent use.
type Highlighter struct {
	mu    sync.Mutex
	known map[string]chroma.Lexer // by extension, or by name where there is none; nil: no language
}

// lexer finds a file's language. The search goes over every pattern there is, so it is remembered.
func (h *Highlighter) lexer(name string) chroma.Lexer {
	name = path.Base(name)
	if len(name) > 256 || !plain(name, true) {
		return nil
	}
	key := path.Ext(name)
	if key == "" || key == ".txt" { // CMakeLists.txt has a language of its own
		key = name
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if l, ok := h.known[key]; ok {
		return l
	}
	l := lexers.Match(name)
	if l != nil {
		l = chroma.Coalesce(l)
	}
	if h.known == nil || len(h.known) >= maxLexers {
		h.known = map[string]chroma.Lexer{}
	}
	h.known[key] = l
	return l
}

// mark returns the lines of a hunk with classes, or nil. Both sides are read as the file that they
// come from, so that an open string on one does not colour the other.
func (h *Highlighter) mark(l chroma.Lexer, lines []DiffLine) []HTML {
	if l == nil {
		return nil
	}
	size := 0
	for _, line := range lines {
		size += len(line.Text)
		if len(line.Text) > maxHighlightLine || strings.HasSuffix(line.Text, "\r") {
			return nil
		}
	}
	if size > maxHighlight {
		return nil
	}
	out := make([]HTML, len(lines))
	for _, side := range []byte{'-', '+'} {
		var src strings.Builder
		var at []int
		for i, line := range lines {
			if line.Kind == side || line.Kind == ' ' {
				src.WriteString(line.Text + "\n")
				at = append(at, i)
			} else if line.Kind == '\\' {
				out[i] = Lines(line.Text)
			}
		}
		marked := tokens(l, src.String())
		if len(marked) < len(at) {
			return nil
		}
		for k, i := range at {
			out[i] = marked[k]
		}
	}
	return out
}

// tokens returns the marked lines of a source, or nil when the lexer did not give it back as it is.
func tokens(l chroma.Lexer, src string) (out []HTML) {
	it, err := l.Tokenise(&chroma.TokeniseOptions{State: "root", EnsureLF: false}, src)
	if err != nil {
		return nil
	}
	var same strings.Builder
	var line strings.Builder
	for _, t := range it.Tokens() {
		same.WriteString(t.Value)
		class := chroma.StandardTypes[t.Type]
		for i, part := range strings.Split(t.Value, "\n") {
			if i > 0 {
				out = append(out, HTML(line.String()))
				line.Reset()
			}
			if part == "" {
				continue
			}
			if class == "" || t.Type == chroma.Text || t.Type == chroma.TextWhitespace {
				writeText(&line, part, false)
				continue
			}
			line.WriteString(`<span class="k-` + class + `">`)
			writeText(&line, part, false)
			line.WriteString(`</span>`)
		}
	}
	if same.String() != src {
		return nil
	}
	return out
}
