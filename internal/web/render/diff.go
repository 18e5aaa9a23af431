package render

import (
	"strconv"
	"strings"
)

// File is one file of a change.
type File struct {
	Old, New   string // names as recorded; the same unless it was renamed
	Status     string // "added", "deleted", "renamed", "changed"
	Notes      []string
	Binary     bool
	Adds, Dels int
	Hunks      []Hunk
}

// Hunk is one stretch of lines.
type Hunk struct {
	Context string // what git found to say where it is
	Lines   []DiffLine
}

// DiffLine is one line of a hunk. Numbers are 0 where the side does not have it.
type DiffLine struct {
	Kind     byte // ' ', '+', '-', '\\'
	Old, New int
	Text     string
}

// Name is what the file is called after the change.
func (f File) Name() string {
	if f.Status == "deleted" {
		return f.Old
	}
	return f.New
}

// Lines counts the lines of all hunks.
func (f File) Lines() int {
	n := 0
	for _, h := range f.Hunks {
		n += len(h.Lines)
	}
	return n
}

// ParseDiff reads a unified diff as git writes it. Lines inside a hunk are counted, so that a file
// which looks like a diff is not taken for one; what is no diff gives no files.
func ParseDiff(s string) []File {
	var files []File
	var f *File
	var oldLeft, newLeft, oldAt, newAt int
	for line := range strings.Lines(s) {
		line = strings.TrimSuffix(line, "\n")
		if f != nil && len(f.Hunks) > 0 {
			h := &f.Hunks[len(f.Hunks)-1]
			if strings.HasPrefix(line, `\`) {
				h.Lines = append(h.Lines, DiffLine{'\\', 0, 0, strings.TrimPrefix(line, `\ `)})
				continue
			}
			if oldLeft > 0 || newLeft > 0 {
				kind, text := byte(' '), ""
				if line != "" {
					kind, text = line[0], line[1:]
				}
				switch kind {
				case '+':
					h.Lines = append(h.Lines, DiffLine{'+', 0, newAt, text})
					f.Adds, newLeft, newAt = f.Adds+1, newLeft-1, newAt+1
				case '-':
					h.Lines = append(h.Lines, DiffLine{'-', oldAt, 0, text})
					f.Dels, oldLeft, oldAt = f.Dels+1, oldLeft-1, oldAt+1
				default:
					h.Lines = append(h.Lines, DiffLine{' ', oldAt, newAt, text})
					oldLeft, newLeft, oldAt, newAt = oldLeft-1, newLeft-1, oldAt+1, newAt+1
				}
				continue
			}
		}
		switch {
		case strings.HasPrefix(line, "diff --git "):
			old, now := gitNames(strings.TrimPrefix(line, "diff --git "))
			files = append(files, File{Old: old, New: now, Status: "changed"})
			f = &files[len(files)-1]
		case f == nil:
		case strings.HasPrefix(line, "@@ "):
			var ctx string
			oldAt, oldLeft, newAt, newLeft, ctx = hunkHead(line)
			f.Hunks = append(f.Hunks, Hunk{Context: ctx})
		default:
			f.head(line)
		}
	}
	return files
}

// head takes a line between "diff --git" and the first hunk.
func (f *File) head(line string) {
	key, rest, _ := strings.Cut(line, " ")
	switch {
	case strings.HasPrefix(line, "new file mode "):
		f.Status = "added"
		if m := strings.TrimPrefix(line, "new file mode "); m != "100644" {
			f.Notes = append(f.Notes, "mode "+m)
		}
	case strings.HasPrefix(line, "deleted file mode "):
		f.Status = "deleted"
	case strings.HasPrefix(line, "old mode "), strings.HasPrefix(line, "new mode "):
		f.Notes = append(f.Notes, line)
	case strings.HasPrefix(line, "rename from "):
		f.Status, f.Old = "renamed", unquote(strings.TrimPrefix(line, "rename from "))
	case strings.HasPrefix(line, "rename to "):
		f.New = unquote(strings.TrimPrefix(line, "rename to "))
	case key == "---" && rest != "/dev/null":
		f.Old = strings.TrimPrefix(unquote(strings.TrimSuffix(rest, "\t")), "a/")
	case key == "+++" && rest != "/dev/null":
		f.New = strings.TrimPrefix(unquote(strings.TrimSuffix(rest, "\t")), "b/")
	case strings.HasPrefix(line, "Binary files "), line == "GIT binary patch":
		f.Binary = true
	}
}

// gitNames splits "a/x b/x". Names with blanks are ambiguous here; the lines that follow say them
// again.
func gitNames(s string) (old, now string) {
	if strings.HasPrefix(s, `"`) {
		if end := closingQuote(s); end > 0 {
			return strings.TrimPrefix(unquote(s[:end+1]), "a/"), strings.TrimPrefix(unquote(strings.TrimSpace(s[end+1:])), "b/")
		}
	}
	if n := len(s) / 2; len(s)%2 == 1 && s[n] == ' ' && strings.TrimPrefix(s[:n], "a/") == strings.TrimPrefix(s[n+1:], "b/") {
		return strings.TrimPrefix(s[:n], "a/"), strings.TrimPrefix(s[n+1:], "b/")
	}
	o, n, _ := strings.Cut(s, " b/")
	return strings.TrimPrefix(o, "a/"), unquote(n)
}

func closingQuote(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}

// unquote undoes git's C quoting of a name.
func unquote(s string) string {
	if len(s) < 2 || s[0] != '"' || s[len(s)-1] != '"' {
		return s
	}
	s = s[1 : len(s)-1]
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if k := strings.IndexByte("abtnvfr", s[i]); k >= 0 {
			b.WriteByte("\a\b\t\n\v\f\r"[k])
			continue
		}
		if i+2 < len(s) {
			if n, err := strconv.ParseUint(s[i:i+3], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 2
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// hunkHead reads "@@ -1,4 +1,5 @@ context".
func hunkHead(line string) (oldAt, oldLen, newAt, newLen int, context string) {
	head, context, _ := strings.Cut(strings.TrimPrefix(line, "@@ "), " @@")
	o, n, _ := strings.Cut(head, " ")
	oldAt, oldLen = span(strings.TrimPrefix(o, "-"))
	newAt, newLen = span(strings.TrimPrefix(n, "+"))
	return oldAt, oldLen, newAt, newLen, strings.TrimSpace(context)
}

func span(s string) (at, n int) {
	a, l, ok := strings.Cut(s, ",")
	at, _ = strconv.Atoi(a)
	if !ok {
		return at, 1
	}
	n, _ = strconv.Atoi(l)
	return at, n
}

// Hunks renders at most most lines of a file, highlighted by the language that its name says, and
// how many lines are left.
func (h *Highlighter) Hunks(f File, most int) (out HTML, left int) {
	var b strings.Builder
	shown := 0
	lexer := h.lexer(f.Name())
	for _, k := range f.Hunks {
		if shown >= most {
			left += len(k.Lines)
			continue
		}
		lines := k.Lines
		if n := most - shown; len(lines) > n {
			left += len(lines) - n
			lines = lines[:n]
		}
		shown += len(lines)
		if k.Context != "" || len(f.Hunks) > 1 {
			b.WriteString(`<div class="hunk">`)
			writeText(&b, clip(k.Context, 200), true)
			b.WriteString("</div>")
		}
		marked := h.mark(lexer, lines)
		for i, l := range lines {
			diffLine(&b, l, marked, i)
		}
	}
	return HTML(b.String()), left
}

func diffLine(b *strings.Builder, l DiffLine, marked []HTML, i int) {
	class, sign := "l", " "
	switch l.Kind {
	case '+':
		class, sign = "l a", "+"
	case '-':
		class, sign = "l d", "-"
	case '\\':
		class, sign = "l n", " "
	}
	b.WriteString(`<div class="` + class + `"`)
	if l.Old > 0 {
		b.WriteString(` data-o="` + strconv.Itoa(l.Old) + `"`)
	}
	if l.New > 0 {
		b.WriteString(` data-n="` + strconv.Itoa(l.New) + `"`)
	}
	b.WriteString(`><code>` + sign)
	if marked != nil {
		b.WriteString(string(marked[i]))
	} else {
		b.WriteString(string(Lines(strings.TrimSuffix(l.Text, "\r"))))
		if strings.HasSuffix(l.Text, "\r") {
			writeText(b, "\r", false)
		}
	}
	b.WriteString("</code></div>\n")
}
