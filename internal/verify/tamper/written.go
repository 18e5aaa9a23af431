package tamper

import (
	"slices"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/verify/syntax"
)

// written is a file's text beside its tokens, to quote it as its author wrote it.
type written struct {
	src    string
	toks   []token
	joined string
	starts []int // of each token in joined
}

func writtenOf(src []byte, l syntax.Lang) *written {
	w := &written{src: string(src), toks: syntax.Lex(src, l)}
	at := 0
	for _, t := range w.toks {
		w.starts = append(w.starts, at)
		at += len(t.Text) + 1
	}
	w.joined = join(w.toks)
	return w
}

// quote gives the place of the file whose tokens are the text; the text itself where it is nowhere.
func (w *written) quote(text string) string {
	for from := 0; text != ""; {
		i := strings.Index(w.joined[from:], text)
		if i < 0 {
			break
		}
		i += from
		first, ok := slices.BinarySearch(w.starts, i)
		after, whole := slices.BinarySearch(w.starts, i+len(text)+1)
		if ok && (whole || i+len(text) == len(w.joined)) {
			return w.between(w.toks[first], w.toks[after-1], text)
		}
		from = i + 1
	}
	return text
}

// between cuts out what the two tokens enclose, its lines moved left as far as its first one is.
func (w *written) between(first, last token, text string) string {
	end := last.At + len(last.Text)
	if first.At >= end || end > len(w.src) || w.src[last.At:end] != last.Text {
		return text // a token that is not written as it reads
	}
	begin := strings.LastIndexByte(w.src[:first.At], '\n') + 1
	margin := w.src[begin:first.At]
	cut := w.src[first.At:end]
	if strings.TrimSpace(margin) == "" {
		cut = strings.ReplaceAll(cut, "\n"+margin, "\n")
	}
	return cut
}

// asWritten quotes the file at the path, before or after the change.
func (a *analysis) asWritten(path, text string, after bool) string {
	i := slices.IndexFunc(a.changes, func(c FileChange) bool { return c.Path == path })
	l := syntax.Of(path)
	if i < 0 || l == syntax.None || !strings.Contains(text, " ") {
		return text
	}
	w := a.texts[i][side(after)]
	if w == nil {
		src := a.changes[i].Old
		if after {
			src = a.changes[i].New
		}
		w = writtenOf(src, l)
		a.texts[i][side(after)] = w
	}
	return w.quote(text)
}

func side(after bool) int {
	if after {
		return 1
	}
	return 0
}
