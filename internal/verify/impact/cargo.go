package impact

import (
	"path"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

type cargoDep struct {
	Path    string
	Package string
}

// UnmarshalTOML takes a dependency in any of its forms: most are a version alone.
func (d *cargoDep) UnmarshalTOML(v any) error {
	if table, ok := v.(map[string]any); ok {
		d.Path, _ = table["path"].(string)
		d.Package, _ = table["package"].(string)
	}
	return nil
}

type cargoDeps struct {
	Deps map[string]cargoDep `toml:"dependencies"`
	Dev  map[string]cargoDep `toml:"dev-dependencies"`
	Dev2 map[string]cargoDep `toml:"dev_dependencies"`
	Bld  map[string]cargoDep `toml:"build-dependencies"`
	Bld2 map[string]cargoDep `toml:"build_dependencies"`
}

func (d cargoDeps) each(f func(name string, d cargoDep)) {
	for _, m := range []map[string]cargoDep{d.Deps, d.Dev, d.Dev2, d.Bld, d.Bld2} {
		for name, dep := range m {
			f(name, dep)
		}
	}
}

type cargoTarget struct {
	Name string
	Path string
	Mac1 bool `toml:"proc-macro"`
	Mac2 bool `toml:"proc_macro"`
}

type cargoManifest struct {
	Package *struct {
		Name  string
		Build any // a path, or false
	}
	Lib       cargoTarget
	Bin       []cargoTarget
	Target    map[string]cargoDeps
	Workspace *struct {
		Members []string
		Exclude []string
		Deps    map[string]cargoDep `toml:"dependencies"`
	}
	cargoDeps
	dir string
}

// Cargo reads the manifests of the workspace, or of the package, at dir. A dependency counts by
// its path and by its name, so that what a workspace inherits and what is patched counts as well.
func Cargo(t Tree, dir string) Build {
	var list []cargoManifest
	for _, f := range below(t.Files, ".", func(base string) bool { return base == "Cargo.toml" }) {
		m, why := readCargo(t, f)
		if why != "" {
			if within(f, dir) {
				return unknown(why)
			}
			continue
		}
		if m.Package != nil || m.dir == dir {
			list = append(list, m)
		}
		if len(list) > maxParts {
			return unknown("more packages than are looked at")
		}
	}
	i := slices.IndexFunc(list, func(m cargoManifest) bool { return m.dir == dir })
	if i < 0 {
		return unknown(path.Join(dir, "Cargo.toml") + " cannot be read")
	}
	top := list[i]
	scripts := map[string]bool{}
	b := Build{whole: func(f string) bool {
		base := path.Base(f)
		return scripts[f] || slices.Contains([]string{"Cargo.toml", "Cargo.lock", "build.rs"}, base) ||
			strings.HasPrefix(base, "rust-toolchain") || strings.Contains("/"+f, "/.cargo/")
	}}
	at := map[string]int{} // directory → part
	for _, m := range list {
		if m.Package == nil {
			continue
		}
		at[m.dir] = len(b.Parts)
		p := Part{Name: m.Package.Name, Dir: m.dir, always: m.Lib.Mac1 || m.Lib.Mac2}
		if script, ok := m.Package.Build.(string); ok {
			scripts[path.Join(m.dir, script)] = true
		}
		p.Programs = append(p.Programs, strings.ReplaceAll(p.Name, "-", "_"), p.Name, m.Lib.Name)
		for _, bin := range m.Bin {
			p.Programs = append(p.Programs, bin.Name, strings.ReplaceAll(bin.Name, "-", "_"))
		}
		b.Parts = append(b.Parts, p)
	}
	names := b.names()
	for _, m := range list {
		from, ok := at[m.dir]
		if !ok {
			continue
		}
		why := ""
		link := func(name string, d cargoDep) {
			for _, n := range []string{name, d.Package} {
				for _, to := range names[n] {
					b.need(from, to)
				}
			}
			if d.Path == "" {
				return
			}
			p, in := inside(m.dir, d.Path)
			if to, ok := at[p]; in && ok {
				b.need(from, to)
			} else if in && within(m.dir, dir) {
				why = path.Join(m.dir, "Cargo.toml") + " names " + d.Path + ", where no package is"
			}
		}
		m.every(link)
		if top.Workspace != nil { // what is inherited has its name, or another one, there
			for name, d := range top.Workspace.Deps {
				if d.Package != "" && m.uses(name) {
					link(d.Package, cargoDep{})
				}
			}
		}
		if why != "" {
			return unknown(why)
		}
	}
	if why := b.cargoMembers(top, at); why != "" {
		return unknown(why)
	}
	b.reads(t, []string{".rs", ".toml"})
	return b
}

// every visits the dependencies, those for some targets alone with them.
func (m cargoManifest) every(f func(name string, d cargoDep)) {
	m.each(f)
	for _, deps := range m.Target {
		deps.each(f)
	}
}

// uses reports whether the manifest has a dependency of that name.
func (m cargoManifest) uses(name string) (yes bool) {
	m.every(func(n string, _ cargoDep) { yes = yes || n == name })
	return yes
}

func readCargo(t Tree, f string) (m cargoManifest, why string) {
	text := t.Read(f)
	if len(text) > maxBuild || nested(text) {
		return m, f + " is too large or too deep to be read"
	}
	if err := toml.Unmarshal(text, &m); err != nil {
		return m, f + " cannot be read"
	}
	m.dir = path.Dir(f)
	if m.Package != nil && m.Package.Name == "" {
		return m, f + " names no package"
	}
	return m, ""
}

// cargoMembers marks what "cargo test -p" takes: the members by their patterns, and what they need
// by path below the workspace.
func (b *Build) cargoMembers(top cargoManifest, at map[string]int) string {
	if i, ok := at[top.dir]; ok {
		b.Parts[i].Tested = true
	}
	if top.Workspace != nil {
		for _, m := range top.Workspace.Members {
			pattern, ok := inside(top.dir, m)
			if _, err := path.Match(pattern, ""); !ok || err != nil || strings.Contains(pattern, "**") {
				return "the member " + m + " of the workspace is not understood"
			}
			for dir, i := range at {
				if hit, _ := path.Match(pattern, dir); hit {
					b.Parts[i].Tested = true
				}
			}
		}
		for changed := true; changed; {
			changed = false
			for to, from := range b.needed {
				p := &b.Parts[to]
				if !p.Tested && within(p.Dir, top.dir) && b.anyTested(from) {
					p.Tested, changed = true, true
				}
			}
		}
		for _, x := range top.Workspace.Exclude {
			p, _ := inside(top.dir, x)
			for i := range b.Parts {
				if dir := b.Parts[i].Dir; dir != top.dir && within(dir, p) {
					b.Parts[i].Tested = false
				}
			}
		}
	}
	seen := map[string]bool{}
	for _, p := range b.Parts {
		if p.Tested && seen[p.Name] {
			return "two packages are named " + p.Name
		}
		seen[p.Name] = seen[p.Name] || p.Tested
	}
	return ""
}

func (b *Build) anyTested(parts map[int]bool) bool {
	for i := range parts {
		if b.Parts[i].Tested {
			return true
		}
	}
	return false
}
