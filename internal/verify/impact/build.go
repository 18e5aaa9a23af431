package impact

import (
	"bytes"
	"cmp"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// maxBuild is how much of a build file is read: what is longer is not understood.
const maxBuild = 512 << 10

// maxParts is the largest build that is looked at.
const maxParts = 5_000

// Part is a package, module or project of a build: the smallest thing that the build tool tests
// alone.
type Part struct {
	Name     string   // as the build tool selects it
	Dir      string   // below the work tree; "." is its root
	Programs []string // Cargo: what its library and its programs are called in their own output
	Tested   bool     // it can be asked for by its name

	always bool // a change in it may reach anything
}

// Build is what a build tool's own files say of the parts and of what needs what.
type Build struct {
	Parts   []Part
	Unknown string // why nothing can be told; "" where it can

	needed map[int]map[int]bool // part → parts that need it
	at     map[string][]int     // directory → parts, see Owners
	whole  func(f string) bool  // a changed file that decides what is built
}

func unknown(why string) Build { return Build{Unknown: why} }

// maxReads is how often strings of sources that name something above them are followed.
const maxReads = 200_000

// Owners are the parts of a file: those of the deepest directory that has any.
func (b *Build) Owners(f string) []int {
	if b.at == nil {
		b.at = map[string][]int{}
		for i, p := range b.Parts {
			b.at[p.Dir] = append(b.at[p.Dir], i)
		}
	}
	for dir := f; ; dir = path.Dir(dir) {
		if here := b.at[dir]; len(here) > 0 || dir == "." || dir == "/" {
			return here
		}
	}
}

func within(f, dir string) bool { return dir == "." || f == dir || strings.HasPrefix(f, dir+"/") }

var (
	// made are files from which code is made, by whom cannot be told.
	made = regexp.MustCompile(`\.(proto|fbs|thrift|avsc|avdl|g4|y|lalrpop|pest|xsd|wsdl|graphqls?|capnp|smithy)$|(?i)(^|/)(openapi|swagger)[^/]*\.(ya?ml|json)$|(^|/)(generated|gen)/`)
	// layout is where the source of a part lies.
	layout = regexp.MustCompile(`^(src|tests|benches|examples)/`)
)

// partOf is the part of a changed file, -1 for none. whole says why anything may be reached.
func (b *Build) partOf(f string) (part int, whole string) {
	owners := b.Owners(f)
	if b.whole != nil && b.whole(f) {
		return -1, f + " decides what is built"
	}
	if len(owners) == 0 {
		return -1, ""
	}
	p := b.Parts[owners[0]]
	local := strings.TrimPrefix(f, p.Dir+"/")
	holds := slices.ContainsFunc(b.Parts, func(q Part) bool { return q.Dir != p.Dir && within(q.Dir, p.Dir) })
	switch {
	case len(owners) > 1:
		return -1, f + " belongs to several parts of the build"
	case p.always:
		return -1, f + " is part of " + p.Name + ", which runs while others are built"
	case made.MatchString(f):
		return -1, f + " is what code is generated from, or generated"
	case holds && !layout.MatchString(local) && !plain.MatchString(f):
		return -1, f + " may be shared by the parts of the build below it"
	}
	return owners[0], ""
}

// reach adds a part and all that need it, directly or not.
func (b *Build) reach(part int, out map[int]bool) {
	todo := []int{part}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !out[n] {
			out[n] = true
			todo = slices.AppendSeq(todo, maps.Keys(b.needed[n]))
		}
	}
}

func (b *Build) need(from, to int) {
	if b.needed == nil {
		b.needed = map[int]map[int]bool{}
	}
	if b.needed[to] == nil {
		b.needed[to] = map[int]bool{}
	}
	b.needed[to][from] = true
}

// names finds the parts of each name.
func (b *Build) names() map[string][]int {
	out := map[string][]int{}
	for i, p := range b.Parts {
		out[p.Name] = append(out[p.Name], i)
	}
	return out
}

// upward are the strings of source code that name something above where they stand.
var upward = regexp.MustCompile(`["'=>]([^"'<>\s]{0,500}\.\.[/\\][^"'<>\n]{0,500}|\.\.)["'<]`)

// reads adds what sources name beyond their own part: files that are included, read by tests or
// compiled from elsewhere.
func (b *Build) reads(t Tree, exts []string) {
	left := maxReads
	seen := map[string]bool{}
	for _, f := range t.Files {
		owners := b.Owners(f)
		if len(owners) == 0 || !slices.Contains(exts, path.Ext(f)) {
			continue
		}
		source := t.Read(f)
		if !bytes.Contains(source, []byte("..")) {
			continue
		}
		for _, m := range upward.FindAllSubmatch(source, -1) {
			text := strings.ReplaceAll(string(m[1]), `\`, "/")
			if i := strings.Index(text, ".."); i > 0 && strings.ContainsAny(text[:i], "*${") {
				text = text[i:] // after what is filled in
			}
			text, _, _ = strings.Cut(text, "*")
			for _, from := range owners {
				for _, base := range []string{path.Dir(f), b.Parts[from].Dir} {
					at := path.Join(base, text)
					key := b.Parts[from].Name + "\x00" + at
					if at == "." || seen[key] {
						continue
					}
					seen[key] = true
					if left -= 1 + len(b.Parts)/64; left < 0 {
						b.Unknown = "sources name too many files beyond their own directories"
						return
					}
					b.readsAt(from, at)
				}
			}
		}
	}
}

// readsAt makes a part need the one that a path lies in, and those below the path.
func (b *Build) readsAt(from int, at string) {
	for _, to := range b.Owners(at) {
		b.need(from, to)
	}
	for to, p := range b.Parts {
		if within(p.Dir, at) {
			b.need(from, to)
		}
	}
}

// inside joins a path of a build file with its directory. It reports false for one that leaves the
// tree.
func inside(dir, p string) (string, bool) {
	p = strings.ReplaceAll(p, `\`, "/")
	if path.IsAbs(p) || strings.ContainsAny(p, "\x00:") {
		return "", false
	}
	at := path.Join(dir, p)
	return at, at != ".." && !strings.HasPrefix(at, "../")
}

// below lists the files of a base name below dir, the shortest paths first.
func below(files []string, dir string, named func(base string) bool) []string {
	var out []string
	for _, f := range files {
		if within(f, dir) && named(path.Base(f)) {
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return out
}

// nested reports whether brackets go deeper than any build file needs: parsers recurse.
func nested(text []byte) bool {
	n := 0
	for _, c := range text {
		switch c {
		case '[', '{', '(':
			if n++; n > 100 {
				return true
			}
		case ']', '}', ')':
			n = max(0, n-1)
		}
	}
	return false
}
