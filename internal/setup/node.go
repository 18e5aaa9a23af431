package setup

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"
)

type packageJSON struct {
	Manager    string          `json:"packageManager"`
	Scripts    map[string]any  `json:"scripts"`
	Deps       map[string]any  `json:"dependencies"`
	Dev        map[string]any  `json:"devDependencies"`
	Optional   map[string]any  `json:"optionalDependencies"`
	Workspaces json.RawMessage `json:"workspaces"`
}

// installScripts are run by every package manager when it installs the package itself.
var installScripts = []string{"preinstall", "install", "postinstall", "prepublish", "preprepare", "prepare", "postprepare"}

func (p packageJSON) installs() bool {
	return slices.ContainsFunc(installScripts, func(s string) bool { _, ok := p.Scripts[s]; return ok })
}

// neighbours reports whether a dependency is a directory of the repository, whose own scripts a
// package manager runs.
func (p packageJSON) neighbours() bool {
	for _, deps := range []map[string]any{p.Deps, p.Dev, p.Optional} {
		for _, v := range deps {
			s, _ := v.(string)
			to, file := strings.CutPrefix(s, "file:")
			if strings.HasPrefix(s, "link:") || strings.HasPrefix(s, "portal:") || file && !strings.HasSuffix(to, ".tgz") && !strings.HasSuffix(to, ".tar.gz") {
				return true
			}
		}
	}
	return false
}

// nodeLocks say which manager wrote them, in the order in which they are believed.
var nodeLocks = []struct{ file, manager string }{
	{"pnpm-lock.yaml", "pnpm"},
	{"yarn.lock", "yarn"},
	{"bun.lock", "bun"},
	{"bun.lockb", "bun"},
	{"npm-shrinkwrap.json", "npm"},
	{"package-lock.json", "npm"},
}

func (d *detector) node() {
	var taken, spaces []string
	for _, dir := range d.dirs {
		if d.full() {
			return
		}
		if !d.has(dir, "package.json") {
			continue
		}
		var p packageJSON
		if json.Unmarshal([]byte(strings.TrimPrefix(d.read(dir, "package.json"), "\ufeff")), &p) != nil {
			d.note("%s is no JSON object that a package manager reads", path.Join(dir, "package.json"))
			continue
		}
		lock, manager := d.nodeLock(dir, p)
		if _, ok := covered(dir, spaces); ok && lock == "" {
			continue // a member of a workspace above
		}
		if _, ok := covered(dir, taken); ok && lock == "" && len(p.Deps)+len(p.Dev) == 0 {
			continue
		}
		workspace := len(p.Workspaces) > 0 && string(p.Workspaces) != "null" || d.has(dir, "pnpm-workspace.yaml")
		if len(p.Deps)+len(p.Dev)+len(p.Optional) == 0 && !workspace {
			d.nothing(dir, "node")
			continue
		}
		taken = append(taken, dir)
		if workspace {
			spaces = append(spaces, dir)
		}
		d.nodeStep(dir, p, lock, manager, workspace)
	}
}

// nodeLock finds the lockfile and the manager of a package. What packageManager says counts
// where several lockfiles are there.
func (d *detector) nodeLock(dir string, p packageJSON) (lock, manager string) {
	want, _, _ := strings.Cut(p.Manager, "@")
	for _, l := range nodeLocks {
		if d.has(dir, l.file) && (lock == "" || l.manager == want && manager != want) {
			lock, manager = l.file, l.manager
		}
	}
	if lock == "" {
		manager = "npm"
		if slices.Contains([]string{"pnpm", "yarn", "bun"}, want) {
			manager = want
		}
	}
	return lock, manager
}

var (
	yarnPath  = regexp.MustCompile(`(?m)^yarnPath:\s*"?(\.yarn/[\w./-]+)"?\s*$`)
	yarnBerry = regexp.MustCompile(`(?m)^__metadata:`)
)

func (d *detector) nodeStep(dir string, p packageJSON, lock, manager string, workspace bool) {
	s := Step{Name: manager, Dir: dir, Needs: manager, Why: path.Join(dir, lock), Whole: p.installs() || p.neighbours()}
	// Code of the repository too: hooks of pnpm, and what settings of directories above name.
	s.Whole = s.Whole || d.has(dir, ".pnpmfile.cjs") || d.above(dir, ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs")
	s.Files = d.present(dir, lock, ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmfile.cjs", "pnpm-workspace.yaml", "package.json")
	if workspace {
		for _, f := range d.below(dir, "package.json") {
			s.Files = append(s.Files, f)
			var member packageJSON
			s.Whole = s.Whole || json.Unmarshal(d.tree.Read(f), &member) == nil && (member.installs() || member.neighbours())
		}
	}
	for _, f := range d.tree.Files {
		if strings.HasPrefix(f, path.Join(dir, ".yarn")+"/") || strings.HasPrefix(f, path.Join(dir, "patches")+"/") {
			s.Files = append(s.Files, f)
		}
	}
	if lock == "" {
		s.Why = path.Join(dir, "package.json") + " without a lockfile: versions may differ from day to day"
	}
	switch manager {
	case "npm":
		s.Run = "npm ci --no-audit --no-fund"
		if lock == "" {
			s.Run = "npm install --no-save --no-package-lock --no-audit --no-fund"
		}
	case "pnpm":
		s.Run = "pnpm install --frozen-lockfile"
		if lock == "" {
			s.Run = "pnpm install --no-lockfile"
		}
	case "yarn":
		s.Run = "yarn install --frozen-lockfile --non-interactive"
		if lock == "" {
			s.Run = "yarn install --no-lockfile --non-interactive"
		}
		if d.berry(dir, p) {
			s.Name, s.Run = "yarn berry", "yarn install --immutable"
			if m := yarnPath.FindStringSubmatch(d.read(dir, ".yarnrc.yml")); m != nil && d.file(path.Join(dir, m[1])) && path.Clean(m[1]) == m[1] {
				s.Run, s.Needs = "node "+quote(m[1])+" install --immutable", "node"
			}
		}
	default:
		d.note("%s: bun is not supported, its packages are not installed; name a command under setup in .daybreak.yaml", s.Why)
		d.nothing(dir, "node")
		return
	}
	d.add("node", s)
}

// berry reports whether the package uses Yarn 2 or later.
func (d *detector) berry(dir string, p packageJSON) bool {
	_, version, _ := strings.Cut(p.Manager, "@")
	if strings.HasPrefix(p.Manager, "yarn@") {
		return !strings.HasPrefix(version, "1.")
	}
	return d.has(dir, ".yarnrc.yml") || yarnBerry.MatchString(d.read(dir, "yarn.lock"))
}
