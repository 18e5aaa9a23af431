// Package policy owns the pure decisions about untrusted text and paths: which paths of a
// change are refused or wait for a person's word, what is masked before it is stored, and how
// an issue's bytes become the text that people and the model see.
//
// Invariants: no I/O, no clock, no state; the same input gives the same decision; paths are
// judged after invisible code points are dropped, NFC and case folding, so that a name that
// some file system takes for another is judged as that other; nothing is hidden silently.
package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// PathChange is one path of a proposed change, as far as policy cares.
type PathChange struct {
	Path    string
	Mode    uint32 // git's: 0o100644, 0o100755, 0o120000, 0o160000
	Deleted bool
	Size    int64  // bytes of content
	Link    string // target text of a link
}

// Rules are the parameters of a review. Zero caps are the defaults.
type Rules struct {
	Protected     []string // further held paths, in the form of .gitignore lines without "!"
	Existing      []string // paths of the base tree, to find names that collide
	MaxFiles      int      // default [DefaultMaxFiles]
	MaxFileBytes  int64    // default [DefaultMaxFileBytes]
	MaxTotalBytes int64    // default [DefaultMaxTotalBytes]
}

// The default caps: well above any change a person would review.
const (
	DefaultMaxFiles      = 500
	DefaultMaxFileBytes  = 5 << 20
	DefaultMaxTotalBytes = 20 << 20
)

// Decision sorts the paths of a change. Every path is in exactly one list.
type Decision struct {
	Allowed  []string
	Held     []string // need a person's word
	Refused  []string // never leave the sandbox; for display, with odd characters written out
	Findings []task.Finding
}

// Blocked returns the first finding that forbids the change as a whole or a path of it.
func (d Decision) Blocked() (task.Finding, bool) {
	i := slices.IndexFunc(d.Findings, func(f task.Finding) bool { return f.Severity == "block" })
	if i < 0 {
		return task.Finding{}, false
	}
	return d.Findings[i], true
}

// Review decides about every path of a change.
func (r Rules) Review(changes []PathChange) Decision {
	var d Decision
	names := newNames(r.Existing, changes)
	maxFiles, maxFile, maxTotal := or(r.MaxFiles, DefaultMaxFiles), or(r.MaxFileBytes, DefaultMaxFileBytes), or(r.MaxTotalBytes, DefaultMaxTotalBytes)
	var total int64
	for _, c := range changes {
		if !c.Deleted {
			total += max(c.Size, 0)
		}
		why := refuse(c, names)
		if why == "" && !c.Deleted && (c.Size > maxFile || c.Size < 0) {
			why = fmt.Sprintf("has %d bytes; at most %d a file are taken", c.Size, maxFile)
		}
		if why != "" {
			d.Refused = append(d.Refused, visible(c.Path))
			d.Findings = append(d.Findings, task.Finding{Kind: "refused_path", Severity: "block", Path: visible(c.Path), Detail: why})
			continue
		}
		if why := hold(c.Path, r.Protected); why != "" {
			d.Held = append(d.Held, c.Path)
			d.Findings = append(d.Findings, task.Finding{Kind: "held_path", Severity: "warn", Path: c.Path, Detail: why})
			continue
		}
		d.Allowed = append(d.Allowed, c.Path)
	}
	if len(changes) > maxFiles {
		d.Findings = append(d.Findings, task.Finding{Kind: "cap", Severity: "block", Detail: fmt.Sprintf("the change has %d files; at most %d are taken", len(changes), maxFiles)})
	}
	if total > maxTotal {
		d.Findings = append(d.Findings, task.Finding{Kind: "cap", Severity: "block", Detail: fmt.Sprintf("the change has %d bytes; at most %d are taken", total, maxTotal)})
	}
	return d
}

func or[T int | int64](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

// refuse returns why a path can never be part of a commit, or "".
func refuse(c PathChange, n *names) string {
	p := c.Path
	switch {
	case p == "":
		return "is empty"
	case !utf8.ValidString(p):
		return "is not valid UTF-8"
	case strings.ContainsFunc(p, unicode.IsControl):
		return "has a control character"
	case strings.HasPrefix(p, "/"):
		return "is absolute"
	case strings.ContainsRune(p, '\\'):
		return "has a backslash, which is a separator elsewhere"
	case len(p) > 4096:
		return "is longer than 4096 bytes"
	case len(p) > 1 && p[1] == ':' && unicode.IsLetter(rune(p[0])):
		return "starts with a drive letter"
	}
	for comp := range strings.SplitSeq(p, "/") {
		if why := refuseComponent(comp, n.existing[p]); why != "" {
			return why
		}
	}
	if c.Mode == 0o160000 {
		return "is a submodule"
	}
	if c.Mode == 0o120000 && !c.Deleted {
		if why := refuseLink(p, c.Link); why != "" {
			return why
		}
	}
	if !c.Deleted {
		if other := n.collides(p); other != "" {
			return fmt.Sprintf("cannot be told from %q where names ignore case or accents' form", other)
		}
	}
	return ""
}

// refuseComponent judges one name. exists lets a path that the base already has keep a name
// that only some file systems refuse.
func refuseComponent(comp string, exists bool) string {
	switch {
	case comp == "":
		return "has an empty component"
	case comp == "." || comp == "..":
		return "has a . or .. component"
	case len(comp) > 255:
		return "has a name longer than 255 bytes"
	}
	if what := gitLookAlike(comp); what != "" {
		return what
	}
	if exists {
		return ""
	}
	switch {
	case strings.HasSuffix(comp, ".") || strings.HasSuffix(comp, " "):
		return "has a name that ends with a dot or a space"
	case strings.ContainsRune(comp, ':'):
		return "has a colon, which names a stream or a drive elsewhere"
	}
	return ""
}

// gitLookAlike finds names that git, HFS+ or NTFS take for .git or .gitmodules.
func gitLookAlike(comp string) string {
	name, _, _ := strings.Cut(fold(comp), ":") // an NTFS stream of the file
	name = strings.TrimRight(name, ". ")
	switch {
	case name == ".git" || name == "git~1" || shortName(name, "git"):
		return "is git's own directory under another spelling"
	case name == ".gitmodules" || shortName(name, "gitmod") || shortName(name, "gi7eba"):
		return "is .gitmodules: submodules are not taken"
	}
	return ""
}

// shortName matches the 8.3 forms "stem~1" … "stem~9".
func shortName(name, stem string) bool {
	rest, ok := strings.CutPrefix(name, stem+"~")
	return ok && rest != "" && strings.Trim(rest, "0123456789") == ""
}

// refuseLink judges a link by its text alone. Text that climbs after it descended is refused
// as well: where it ends depends on what the names in it are.
func refuseLink(at, target string) string {
	switch {
	case target == "":
		return "is a link to nothing"
	case !utf8.ValidString(target) || strings.ContainsFunc(target, unicode.IsControl):
		return "is a link whose text has control characters or is not UTF-8"
	case strings.HasPrefix(target, "/") || strings.ContainsAny(target, `\:`):
		return "is a link to an absolute path"
	case len(target) > 4096:
		return "is a link longer than 4096 bytes"
	}
	depth := strings.Count(at, "/")
	descended := false
	for comp := range strings.SplitSeq(target, "/") {
		switch {
		case comp == "" || comp == ".":
		case comp == "..":
			if descended {
				return "is a link that descends and climbs again"
			}
			if depth--; depth < 0 {
				return "is a link that leaves the tree"
			}
		default:
			descended = true
			if gitLookAlike(comp) != "" {
				return "is a link into git's own directory"
			}
		}
	}
	return ""
}

// fold is the form in which names are compared.
func fold(s string) string {
	ascii := true
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		return strings.ToLower(s)
	}
	s = strings.Map(func(r rune) rune {
		if Invisible(r) {
			return -1
		}
		return r
	}, s)
	return norm.NFC.String(cases.Fold().String(norm.NFC.String(s)))
}

// names finds paths, or directories of paths, that differ only in a way that folding removes.
type names struct {
	existing map[string]bool
	exact    map[string]bool   // paths and their directories, as spelled
	folded   map[string]string // folded path or directory → first spelling seen
}

func newNames(existing []string, changes []PathChange) *names {
	n := &names{existing: make(map[string]bool, len(existing)), exact: map[string]bool{}, folded: map[string]string{}}
	gone := map[string]bool{}
	for _, c := range changes {
		if c.Deleted {
			gone[c.Path] = true
		}
	}
	for _, p := range existing {
		n.existing[p] = true
		if !gone[p] {
			n.add(p)
		}
	}
	return n
}

func (n *names) add(p string) {
	for p != "." && p != "/" && p != "" {
		if n.exact[p] {
			return // its parents are there, too
		}
		n.exact[p] = true
		if key := fold(p); n.folded[key] == "" {
			n.folded[key] = p
		}
		p = path.Dir(p)
	}
}

// collides returns another spelling of p or of one of its directories, else adds p.
func (n *names) collides(p string) string {
	for q := p; q != "." && q != "/" && q != ""; q = path.Dir(q) {
		if n.exact[q] {
			break
		}
		if other, ok := n.folded[fold(q)]; ok {
			return other
		}
	}
	n.add(p)
	return ""
}

// visible writes control and invisible characters out, for findings and messages.
func visible(s string) string {
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !utf8.ValidString(s[i:min(i+utf8.UTFMax, len(s))]) && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsControl(r) || Invisible(r):
			fmt.Fprintf(&b, "[U+%04X]", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
