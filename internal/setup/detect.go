package setup

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode"
)

// Reads reports whether detection may want the content of the path. The caller reads no other.
func Reads(p string) bool {
	if strings.Count(p, "/") > maxDepth+1 {
		return false
	}
	switch path.Base(p) {
	case "go.mod", "go.work", "package.json", "yarn.lock", ".yarnrc.yml", "pyproject.toml", "setup.py", "setup.cfg",
		"Cargo.toml", "devcontainer.json", ".devcontainer.json":
		return true
	}
	return strings.HasSuffix(p, ".txt") && strings.Contains(p, "requirements") || path.Base(path.Dir(p)) == ".cargo"
}

// Detect finds what the repository's dependencies are prepared with. home is HOME in the
// sandbox, where virtual environments and gems go.
func Detect(t Tree, home string) Plan {
	t.Files = slices.DeleteFunc(slices.Clone(t.Files), func(f string) bool { return !fs.ValidPath(f) })
	d := &detector{tree: t, home: home, byDir: map[string][]string{}}
	for _, f := range t.Files {
		dir := path.Dir(f)
		if deep(dir) <= maxDepth && !foreign(dir) {
			d.byDir[dir] = append(d.byDir[dir], path.Base(f))
		}
	}
	for _, f := range t.Files {
		for dir := path.Dir(path.Dir(f)); d.byDir[path.Dir(f)] != nil && d.byDir[dir] == nil; dir = path.Dir(dir) {
			d.byDir[dir] = []string{}
		}
	}
	for dir := range d.byDir {
		d.dirs = append(d.dirs, dir)
	}
	slices.SortFunc(d.dirs, func(a, b string) int {
		if n := deep(a) - deep(b); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	d.golang()
	d.node()
	d.python()
	d.cargo()
	d.java()
	d.bundler()
	d.devcontainer()
	if d.full() {
		d.note("only the first %d steps are taken: name them under setup in .daybreak.yaml", maxSteps)
		d.plan.Steps = d.plan.Steps[:maxSteps]
	}
	if n := len(d.plan.Notes); n > maxNotes {
		d.plan.Notes = append(d.plan.Notes[:maxNotes], fmt.Sprintf("and %d more notes", n-maxNotes))
	}
	return d.plan
}

type detector struct {
	tree  Tree
	home  string
	dirs  []string            // with files, shallow first
	byDir map[string][]string // names of files
	plan  Plan
}

// foreign reports whether a directory holds somebody else's code, or material for tests: what
// is there is not prepared.
func foreign(dir string) bool {
	for _, part := range strings.Split(dir, "/") {
		switch part {
		case "node_modules", "vendor", "third_party", "testdata", "fixtures", "__fixtures__", "examples", "site-packages", "target", ".git":
			return true
		}
		if strings.HasPrefix(part, "_") {
			return true
		}
	}
	return false
}

func (d *detector) note(format string, args ...any) {
	d.plan.Notes = append(d.plan.Notes, plainLine(fmt.Sprintf(format, args...)))
}

// plainLine makes a text with names from the repository one short line of printable characters:
// notes are shown to people and told to the model.
func plainLine(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	const most = 400 // bytes
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// has reports whether the directory has the file.
func (d *detector) has(dir, name string) bool { return slices.Contains(d.byDir[dir], name) }

// file reports whether the tree has the path.
func (d *detector) file(p string) bool {
	_, ok := slices.BinarySearch(d.tree.Files, p)
	return ok
}

// full says that no more steps are looked for.
func (d *detector) full() bool { return len(d.plan.Steps) >= maxSteps }

// first is the first of names that the directory has, or "".
func (d *detector) first(dir string, names ...string) string {
	for _, n := range names {
		if d.has(dir, n) {
			return n
		}
	}
	return ""
}

func (d *detector) read(dir, name string) string { return string(d.tree.Read(path.Join(dir, name))) }

// below lists every file at or below dir, at any depth, with one of the base names, but for
// installed packages.
func (d *detector) below(dir string, names ...string) []string {
	var out []string
	for _, f := range d.tree.Files {
		if (dir == "." || strings.HasPrefix(f, dir+"/")) && slices.Contains(names, path.Base(f)) && !strings.Contains("/"+f, "/node_modules/") {
			out = append(out, f)
		}
	}
	return out
}

// present keeps of dir's names those that are there, as paths.
func (d *detector) present(dir string, names ...string) []string {
	var out []string
	for _, n := range names {
		if d.has(dir, n) {
			out = append(out, path.Join(dir, n))
		}
	}
	return out
}

// covered is the nearest of dirs that dir is inside of, or "".
func covered(dir string, dirs []string) (string, bool) {
	for p := dir; p != "."; {
		p = path.Dir(p)
		if slices.Contains(dirs, p) {
			return p, true
		}
	}
	return "", false
}

func (d *detector) add(part string, s Step) {
	s.part = part
	slices.Sort(s.Files)
	s.Files = slices.Compact(s.Files)
	d.plan.Steps = append(d.plan.Steps, s)
}

// nothing records an ecosystem at the top that has no dependencies.
func (d *detector) nothing(dir, part string) {
	if dir == "." {
		d.plan.others = append(d.plan.others, part)
	}
}

func (d *detector) env(kv string) {
	if !slices.Contains(d.plan.Env, kv) {
		d.plan.Env = append(d.plan.Env, kv)
	}
}
