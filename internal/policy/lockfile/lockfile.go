// Package lockfile reads the lockfiles of package managers and says where two versions of one
// differ in what a reviewer must not miss: a package from another registry, from git, a URL or
// a file, without its checksum, or with another checksum for the same version.
//
// Invariants: pure; a format is read by its whole grammar, and a line or value that the grammar
// does not know makes the file unreadable instead of being passed over, because the package
// manager might read it; bounded by the size of its input.
package lockfile

import (
	"cmp"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Change is one difference that needs a person's word.
type Change struct {
	Package string // name, with its version where there is one
	What    string // what changed, in words
	Old     string // the source or checksum before, "" for none
	New     string
}

// entry is one locked package.
type entry struct {
	name    string
	version string
	kind    kind
	source  string   // as a reviewer should see it
	from    string   // registry: the part of the address that all its packages share
	sums    []string // sorted
	odd     string   // something about the entry that is suspicious by itself
}

type kind string

// The kinds of source. All but registry are reported when they are new.
const (
	registry kind = "the registry"
	gitRepo  kind = "a git repository"
	address  kind = "a plain address"
	local    kind = "a path"
	option   kind = "an option" // of the whole file, such as --index-url
)

type format struct {
	name  string
	parse func([]byte) (map[string]entry, error)
	// sums: every registry package has a checksum in this format.
	sums bool
}

// formatOf tells a lockfile by its name.
func formatOf(p string) (format, bool) {
	base := strings.ToLower(path.Base(p))
	switch base {
	case "go.sum", "go.work.sum":
		return format{"go.sum", parseGoSum, true}, true
	case "go.mod":
		return format{"go.mod", parseGoMod, false}, true
	case "package-lock.json", "npm-shrinkwrap.json":
		return format{"package-lock.json", parseNPM, true}, true
	case "yarn.lock":
		return format{"yarn.lock", parseYarn, false}, true
	case "pnpm-lock.yaml":
		return format{"pnpm-lock.yaml", parsePNPM, true}, true
	case "cargo.lock":
		return format{"Cargo.lock", parseCargo, true}, true
	case "poetry.lock":
		return format{"poetry.lock", parsePoetry, true}, true
	case "uv.lock":
		return format{"uv.lock", parseUV, true}, true
	case "gemfile.lock", "gems.locked":
		return format{"Gemfile.lock", parseGems, false}, true
	}
	if strings.HasSuffix(base, ".txt") && (strings.HasPrefix(base, "requirements") || strings.HasSuffix(base, "requirements.txt") ||
		strings.HasPrefix(base, "constraints") || path.Base(path.Dir(strings.ToLower(p))) == "requirements") {
		return format{"requirements", parseRequirements, false}, true
	}
	return format{}, false
}

// Is reports whether a path is a lockfile of a known format.
func Is(p string) bool {
	_, ok := formatOf(p)
	return ok
}

// Compare returns what needs a person's word between two versions of a lockfile; old is nil
// when the base has none, new is nil when the change deletes it. changed is the number of
// packages that differ in any way.
func Compare(p string, old, new []byte) (changes []Change, changed int) {
	f, ok := formatOf(p)
	if !ok {
		return nil, 0
	}
	before := map[string]entry{}
	if old != nil {
		var err error
		if before, err = f.parse(old); err != nil {
			before = map[string]entry{} // everything in the new one counts as new
		}
	}
	if new == nil {
		if f.name == "requirements" || f.name == "go.mod" && len(before) == 0 {
			return nil, len(before)
		}
		return []Change{{Package: path.Base(p), What: "is deleted: nothing holds the versions any more"}}, len(before)
	}
	after, err := f.parse(new)
	if err != nil {
		return []Change{{Package: path.Base(p), What: fmt.Sprintf("cannot be read as %s: %v", f.name, err)}}, 1
	}
	c := comparison{format: f, before: before, froms: map[string]bool{}}
	for _, e := range before {
		if e.kind == registry {
			c.froms[e.from] = true
			c.hadSums = c.hadSums || len(e.sums) > 0
		}
	}
	keys := make([]string, 0, len(after))
	for k := range after {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		changed += c.entry(k, after[k])
	}
	for k := range before {
		if _, ok := after[k]; !ok {
			changed++
		}
	}
	return c.changes, changed
}

type comparison struct {
	format  format
	before  map[string]entry
	froms   map[string]bool
	hadSums bool
	changes []Change
}

// entry compares one package and returns 1 if it differs at all.
func (c *comparison) entry(key string, e entry) int {
	o, had := c.before[key]
	if had && o.kind == e.kind && o.source == e.source && o.version == e.version && o.odd == e.odd && slices.Equal(o.sums, e.sums) {
		return 0
	}
	name := strings.TrimSpace(e.name + " " + e.version)
	add := func(what, old, new string) { c.changes = append(c.changes, Change{name, what, old, new}) }
	if e.odd != "" && e.odd != o.odd {
		add(e.odd, o.source, e.source)
	}
	switch {
	case e.kind == option:
		add("decides where packages come from", o.source, e.source)
		return 1
	case e.kind != registry:
		if !had || o.kind != e.kind || o.source != e.source {
			add("comes from "+string(e.kind), o.source, e.source)
		}
	case strings.HasPrefix(e.from, "http://") && !c.froms[e.from]:
		add("comes over a connection without encryption", o.source, e.source)
	case e.from != "" && !c.froms[e.from]:
		what := "comes from another registry than the packages so far"
		if len(c.froms) == 0 {
			what = "comes from a registry that nothing here came from so far"
		}
		add(what, o.source, e.source)
		c.froms[e.from] = true // once a registry is enough
	}
	old, new := strings.Join(o.sums, " "), strings.Join(e.sums, " ")
	switch {
	case len(e.sums) == 0 && len(o.sums) > 0:
		add("lost its checksum", old, "")
	case len(e.sums) == 0 && e.kind == registry && (c.format.sums || c.hadSums):
		add("has no checksum", "", e.source)
	case had && o.version == e.version && len(o.sums) > 0 && !slices.Equal(o.sums, e.sums):
		add("has another checksum for the same version", old, new)
	}
	return 1
}

// origin is the scheme and host of an address, with the path up to the package's name.
func origin(addr, name string) string {
	if i := strings.Index(addr, "/"+name+"/"); name != "" && i > 0 {
		return addr[:i]
	}
	u, err := url.Parse(addr)
	if err != nil {
		return addr
	}
	return u.Scheme + "://" + u.Host
}

// kindOf tells the source by an address.
func kindOf(addr string) kind {
	scheme, _, ok := strings.Cut(addr, ":")
	switch {
	case !ok:
		return local
	case strings.HasPrefix(scheme, "git") || scheme == "ssh" || strings.HasPrefix(scheme, "hg+") || strings.HasPrefix(scheme, "svn+") || strings.HasPrefix(scheme, "bzr+"):
		return gitRepo
	case scheme == "file" || scheme == "link" || scheme == "workspace" || scheme == "portal":
		return local
	}
	return address
}

func sorted(list ...string) []string {
	list = slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
	slices.SortFunc(list, cmp.Compare[string])
	return slices.Compact(list)
}
