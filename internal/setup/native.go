package setup

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

var (
	goRequire = regexp.MustCompile(`(?m)^\s*require\b`)
	goUse     = regexp.MustCompile(`(?m)^\s*(?:use\s+)?(\.{0,2}/?[\w./-]+)\s*(?://.*)?$`)
)

func (d *detector) golang() {
	spaces := map[string][]string{} // go.work's directory → its modules
	var workDirs []string
	for _, dir := range d.dirs {
		if d.full() {
			return
		}
		if d.has(dir, "go.work") {
			spaces[dir] = goModules(d.read(dir, "go.work"), dir)
			workDirs = append(workDirs, dir)
			d.goStep(dir, "go.work", d.below(dir, "go.mod", "go.sum", "go.work", "go.work.sum"))
		}
	}
	for _, dir := range d.dirs {
		if d.full() {
			return
		}
		if !d.has(dir, "go.mod") {
			continue
		}
		if at, ok := covered(dir, workDirs); ok && slices.Contains(spaces[at], dir) || d.has(dir, "go.work") {
			continue
		}
		if !goRequire.MatchString(d.read(dir, "go.mod")) {
			d.nothing(dir, "go")
			continue
		}
		if d.file(path.Join(dir, "vendor/modules.txt")) {
			d.note("%s: its dependencies are vendored", path.Join(dir, "go.mod"))
			d.nothing(dir, "go")
			continue
		}
		d.goStep(dir, "go.mod", d.present(dir, "go.mod", "go.sum"))
	}
}

func (d *detector) goStep(dir, manifest string, files []string) {
	d.add("go", Step{
		Name: "go modules", Run: "go mod download", Dir: dir, Needs: "go", Files: files,
		Why: path.Join(dir, manifest) + " requires modules",
	})
}

// goModules are the directories that a go.work uses.
func goModules(text, dir string) []string {
	var out []string
	block := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "use ("), line == "use(":
			block = true
			continue
		case line == ")":
			block = false
			continue
		}
		if m := goUse.FindStringSubmatch(line); m != nil && (block || strings.HasPrefix(line, "use ")) {
			out = append(out, path.Join(dir, m[1]))
		}
	}
	return out
}

type cargoTOML struct {
	Workspace    *map[string]any `toml:"workspace"`
	Dependencies map[string]any  `toml:"dependencies"`
	Dev          map[string]any  `toml:"dev-dependencies"`
	Build        map[string]any  `toml:"build-dependencies"`
	Target       map[string]any  `toml:"target"`
}

func (d *detector) cargo() {
	var taken []string
	for _, dir := range d.dirs {
		if d.full() {
			return
		}
		if !d.has(dir, "Cargo.toml") {
			continue
		}
		locked := d.has(dir, "Cargo.lock")
		if _, ok := covered(dir, taken); ok && !locked {
			continue
		}
		var c cargoTOML
		if _, err := toml.Decode(d.read(dir, "Cargo.toml"), &c); err != nil {
			d.note("%s cannot be read: %s", path.Join(dir, "Cargo.toml"), firstLine(err.Error()))
			continue
		}
		taken = append(taken, dir)
		if c.Workspace == nil && len(c.Dependencies)+len(c.Dev)+len(c.Build)+len(c.Target) == 0 {
			d.nothing(dir, "cargo")
			continue
		}
		if f := d.first(path.Join(dir, ".cargo"), "config.toml", "config"); f != "" && strings.Contains(d.read(path.Join(dir, ".cargo"), f), "replace-with") {
			d.note("%s: its crates are vendored", path.Join(dir, "Cargo.toml"))
			d.nothing(dir, "cargo")
			continue
		}
		s := Step{
			Name: "cargo", Run: "cargo fetch", Dir: dir, Needs: "cargo", Why: path.Join(dir, "Cargo.toml") + " has dependencies",
			Files: d.below(dir, "Cargo.toml", "Cargo.lock", "rust-toolchain", "rust-toolchain.toml"),
			// Its settings, which count from every directory above, name programs of the tree.
			Whole: d.cargoSettings(dir),
		}
		if locked {
			s.Run, s.Why = "cargo fetch --locked", path.Join(dir, "Cargo.lock")
		}
		d.add("cargo", s)
	}
}

// cargoSettings reports whether cargo finds settings of the repository when it runs in dir.
func (d *detector) cargoSettings(dir string) bool {
	names := []string{".cargo/config.toml", ".cargo/config"}
	return d.above(dir, names...) || slices.ContainsFunc(names, func(n string) bool { return d.file(path.Join(dir, n)) })
}

// above reports whether a directory above dir has one of the paths.
func (d *detector) above(dir string, names ...string) bool {
	for dir != "." {
		dir = path.Dir(dir)
		if slices.ContainsFunc(names, func(n string) bool { return d.file(path.Join(dir, n)) }) {
			return true
		}
	}
	return false
}

func (d *detector) java() {
	var poms, gradles []string
	for _, dir := range d.dirs {
		if d.full() {
			return
		}
		if d.has(dir, "pom.xml") {
			if _, ok := covered(dir, poms); !ok {
				poms = append(poms, dir)
				d.maven(dir)
			}
			continue
		}
		name := d.first(dir, "settings.gradle", "settings.gradle.kts", "build.gradle", "build.gradle.kts")
		if _, ok := covered(dir, append(gradles, poms...)); name == "" || ok {
			continue
		}
		gradles = append(gradles, dir)
		s := Step{
			Name: "gradle", Run: "gradle --no-daemon --console=plain testClasses", Dir: dir, Needs: "gradle", Why: path.Join(dir, name),
			Files: d.below(dir, "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts", "gradle.properties", "gradle.lockfile", "libs.versions.toml",
				"verification-metadata.xml", "gradle-wrapper.properties", "gradle-wrapper.jar", "gradlew"),
		}
		for _, f := range d.tree.Files {
			if in := strings.TrimPrefix(f, prefixOf(dir)); strings.HasPrefix(in, "buildSrc/") || strings.HasPrefix(in, "build-logic/") ||
				strings.HasSuffix(in, ".gradle") || strings.HasSuffix(in, ".gradle.kts") {
				s.Files = append(s.Files, f)
			}
		}
		if d.has(dir, "gradlew") {
			s.Run, s.Needs = "sh ./gradlew --no-daemon --console=plain testClasses", "java"
			s.Why += " with a wrapper"
		}
		d.add("gradle", s)
	}
}

// maven has two steps: go-offline does not see what Surefire chooses only when tests run.
func (d *detector) maven(dir string) {
	files := d.below(dir, "pom.xml", "maven.config", "extensions.xml")
	whole := d.file(path.Join(dir, ".mvn/jvm.config")) // it may name programs of the tree
	d.add("maven", Step{
		Name: "maven", Run: "mvn -B -ntp dependency:go-offline", Dir: dir, Needs: "mvn", Why: path.Join(dir, "pom.xml"), Files: files, Whole: whole,
	})
	d.add("maven", Step{
		Name: "maven's test runner", Dir: dir, Needs: "mvn", Why: "it is chosen only when tests run", Files: files, Whole: whole, Optional: true,
		Run: "mvn -B -ntp test -Dtest=DaybreakSelectsNone -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false && mvn -B -ntp clean",
	})
}

func (d *detector) bundler() {
	var taken []string
	for _, dir := range d.dirs {
		if d.full() {
			return
		}
		if !d.has(dir, "Gemfile") {
			continue
		}
		locked := d.has(dir, "Gemfile.lock")
		if _, ok := covered(dir, taken); ok && !locked {
			continue
		}
		taken = append(taken, dir)
		gems := "BUNDLE_PATH=" + path.Join(d.home, ".bundle/gems")
		d.env(gems)
		s := Step{
			Env:  []string{gems},
			Name: "bundler", Run: "bundle install", Dir: dir, Needs: "bundle", Why: path.Join(dir, "Gemfile"),
			Files: d.present(dir, "Gemfile", "Gemfile.lock", ".ruby-version"),
		}
		for _, n := range d.byDir[dir] {
			if strings.HasSuffix(n, ".gemspec") {
				s.Files = append(s.Files, path.Join(dir, n))
				s.Whole = true // a gemspec is code, and lists the files beside it
			}
		}
		if locked {
			s.Why, s.Env = path.Join(dir, "Gemfile.lock"), append(s.Env, "BUNDLE_FROZEN=true")
		}
		d.add("bundler", s)
	}
}

func firstLine(s string) string {
	l, _, _ := strings.Cut(s, "\n")
	return l
}
