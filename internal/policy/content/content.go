// Package content decides about what the files of a change hold: characters that a reviewer
// does not see, what cannot be reviewed (binaries, endless lines, pointers to absent objects),
// lockfiles that lead elsewhere, and what the change makes run on other machines.
//
// Invariants: pure; only what the change brings is judged, never what the base has already;
// a finding shows no raw invisible or control character; whatever cannot be read is reported.
package content

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/daybreak-agent/daybreak/internal/policy/lockfile"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// File is one path of a change.
type File struct {
	Path    string
	Mode    uint32 // git's
	OldMode uint32 // 0 when the base has no such path
	Deleted bool
	Old     []byte // nil when the base has no such path, or when it is too large to be read
	New     []byte
}

// Limits are the caps. Zero values are the defaults.
type Limits struct {
	MaxLine     int  // bytes of one line; default [DefaultMaxLine]
	MaxNewLines int  // lines that the base's files do not have, lockfiles aside; default [DefaultMaxNewLines]
	Binaries    bool // binary files are proposed instead of held
}

// The default caps.
const (
	DefaultMaxLine     = 1 << 20
	DefaultMaxNewLines = 20_000
	maxShown           = 5 // findings of one kind in one file
)

const (
	modeExecutable = 0o100755
	modeLink       = 0o120000
)

// Decision is what content asks for beyond what the paths did. A finding of severity "block"
// forbids the change.
type Decision struct {
	Held     []string // paths that need a person's word, sorted
	Findings []task.Finding
}

// Review judges every file.
func (l Limits) Review(files []File) Decision {
	r := &review{limits: l, oids: map[string]bool{}}
	if r.limits.MaxLine <= 0 {
		r.limits.MaxLine = DefaultMaxLine
	}
	if r.limits.MaxNewLines <= 0 {
		r.limits.MaxNewLines = DefaultMaxNewLines
	}
	for _, f := range files {
		if oid, ok := pointer(f.Old); ok {
			r.oids[oid] = true
		}
	}
	for _, f := range files {
		r.file(f)
	}
	if r.lines > r.limits.MaxNewLines {
		r.add("cap", "block", "", 0, fmt.Sprintf("the change has %d new lines; at most %d are taken", r.lines, r.limits.MaxNewLines))
	}
	slices.Sort(r.out.Held)
	r.out.Held = slices.Compact(r.out.Held)
	return r.out
}

type review struct {
	limits Limits
	oids   map[string]bool // LFS objects that the base's files point to
	lines  int             // new ones so far
	out    Decision
}

func (r *review) add(kind, severity, path string, line int, detail string) {
	r.out.Findings = append(r.out.Findings, task.Finding{Kind: kind, Severity: severity, Path: path, Line: line, Detail: detail})
}

func (r *review) hold(p, detail string) {
	r.out.Held = append(r.out.Held, p)
	r.add("held_content", "warn", p, 0, detail)
}

func (r *review) file(f File) {
	if lockfile.Is(f.Path) && f.Mode != modeLink {
		r.lockfile(f)
	}
	if f.Deleted || f.Mode == modeLink {
		return
	}
	r.runs(f)
	if oid, ok := pointer(f.New); ok && !r.oids[oid] {
		r.hold(f.Path, fmt.Sprintf("is a Git LFS pointer to object %.12s…, which nothing in the base points to", oid))
		return
	}
	if binary(f.New) {
		if !r.limits.Binaries && !bytes.Equal(f.Old, f.New) {
			r.hold(f.Path, fmt.Sprintf("is binary (%d bytes), which nobody can review", len(f.New)))
		}
		return
	}
	added := newLines(f.Old, f.New)
	if !lockfile.Is(f.Path) {
		r.lines += len(added)
	}
	for _, n := range added {
		if len(n.text) > r.limits.MaxLine {
			r.add("cap", "block", f.Path, n.number, fmt.Sprintf("has a line of %d bytes; at most %d are taken", len(n.text), r.limits.MaxLine))
			return
		}
	}
	r.unseen(f, added)
	r.mixed(f, added)
}

func (r *review) lockfile(f File) {
	next := f.New
	if f.Deleted {
		next = nil
	} else if next == nil {
		next = []byte{}
	}
	changes, n := lockfile.Compare(f.Path, f.Old, next)
	if len(changes) == 0 {
		if n > 0 {
			r.add("lockfile", "info", f.Path, 0, fmt.Sprintf("%d locked packages differ, all from where packages came from before", n))
		}
		return
	}
	r.hold(f.Path, "is a lockfile that changes where packages come from or how they are checked")
	for i, c := range changes {
		if i == maxShown {
			r.add("lockfile", "warn", f.Path, 0, fmt.Sprintf("and %d more packages", len(changes)-i))
			return
		}
		r.out.Findings = append(r.out.Findings, task.Finding{
			Kind: "lockfile", Severity: "warn", Path: f.Path, Detail: escape(c.Package) + " " + escape(c.What), Old: escape(c.Old), New: escape(c.New),
		})
	}
}

// line is one that the base's file does not have.
type line struct {
	number int
	text   string
}

// newLines lists the lines of new that do not occur in old.
func newLines(old, new []byte) []line {
	had := map[string]bool{}
	for l := range strings.Lines(string(old)) {
		had[strings.TrimRight(l, "\r\n")] = true
	}
	var out []line
	n := 0
	for l := range strings.Lines(string(new)) {
		n++
		if l = strings.TrimRight(l, "\r\n"); !had[l] {
			out = append(out, line{n, l})
		}
	}
	return out
}

// binary follows git, and takes what is no UTF-8 in its greater part for binary as well.
func binary(b []byte) bool {
	head := b[:min(len(b), 8000)]
	if bytes.IndexByte(head, 0) >= 0 {
		return true
	}
	bad := 0
	for i := 0; i < len(head); {
		c, n := utf8.DecodeRune(head[i:])
		if c == utf8.RuneError && n == 1 {
			bad++
		}
		i += n
	}
	return bad*3 > len(head)
}

// pointer returns the object of a Git LFS pointer file.
func pointer(b []byte) (oid string, ok bool) {
	if len(b) > 1024 || !bytes.HasPrefix(b, []byte("version https://git-lfs.github.com/spec/v1\n")) {
		return "", false
	}
	for l := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(l, "oid sha256:"); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

// prose reports whether a file is for readers or translators, where the characters of
// right-to-left scripts belong.
func prose(p string) bool {
	switch strings.ToLower(path.Ext(p)) {
	case ".md", ".markdown", ".txt", ".rst", ".adoc", ".po", ".pot", ".xlf", ".xliff", ".strings", ".arb", ".resx", ".tex", ".srt", ".vtt":
		return true
	}
	return false
}
