package setup

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

type pyproject struct {
	Project struct {
		Name         string              `toml:"name"`
		Dependencies []string            `toml:"dependencies"`
		Optional     map[string][]string `toml:"optional-dependencies"`
		Dynamic      []string            `toml:"dynamic"`
	} `toml:"project"`
	Groups map[string][]any `toml:"dependency-groups"` // PEP 735
	Tool   struct {
		Poetry map[string]any `toml:"poetry"`
	} `toml:"tool"`
}

// testExtras are the names under which projects keep what their tests need.
var testExtras = []string{"test", "tests", "testing", "dev", "develop", "development"}

// requirementFiles are taken together, so that pip resolves them as one.
var requirementFiles = []string{
	"requirements.txt", "requirements-dev.txt", "requirements_dev.txt", "dev-requirements.txt", "requirements-test.txt",
	"requirements-tests.txt", "requirements_test.txt", "test-requirements.txt", "test_requirements.txt",
}

// legacyRequires is how setup.py and setup.cfg name dependencies.
var legacyRequires = regexp.MustCompile(`\b(install_requires|extras_require|tests_require)\b`)

// venvName is the directory of the one virtual environment, below HOME.
const venvName = ".venv"

func (d *detector) python() {
	var taken []string
	for _, dir := range d.dirs {
		if d.full() {
			return
		}
		if d.first(dir, "pyproject.toml", "setup.py", "setup.cfg", "Pipfile", "uv.lock", "poetry.lock") == "" && len(d.requirements(dir)) == 0 {
			continue
		}
		if _, ok := covered(dir, taken); ok && d.first(dir, "uv.lock", "poetry.lock", "Pipfile.lock") == "" {
			continue
		}
		if d.pythonIn(dir) {
			taken = append(taken, dir)
		}
	}
}

// pythonIn adds the steps of one project and reports whether it is one.
func (d *detector) pythonIn(dir string) bool {
	locked := func(name, lock, run string, env ...string) {
		d.pyStep(Step{
			Name: name, Run: run, Dir: dir, Needs: name, Why: path.Join(dir, lock), Env: env,
			Files: d.present(dir, lock, "pyproject.toml", "Pipfile", "setup.py", "setup.cfg", "poetry.toml", "uv.toml", ".python-version"),
			Whole: d.pyBuilds(dir),
		})
	}
	switch {
	case d.has(dir, "uv.lock"):
		// Inexact, since other projects may share the environment. Extras that exclude each other are legal in a lockfile; then none is taken.
		place := "UV_PROJECT_ENVIRONMENT=" + path.Join(d.home, venvName)
		d.env("VIRTUAL_ENV=" + path.Join(d.home, venvName))
		d.env(place)
		locked("uv", "uv.lock", "uv sync --frozen --inexact --all-extras || uv sync --frozen --inexact", place, "UV_PYTHON_DOWNLOADS=never")
	case d.has(dir, "poetry.lock"):
		locked("poetry", "poetry.lock", "poetry install --no-interaction --all-extras")
	case d.has(dir, "Pipfile.lock"):
		locked("pipenv", "Pipfile.lock", "pipenv sync --dev", "PIPENV_NOSPIN=1", "PIPENV_VERBOSITY=-1")
	case d.has(dir, "Pipfile"):
		d.note("%s has no lockfile: its packages are not installed", path.Join(dir, "Pipfile"))
		d.nothing(dir, "python")
	default:
		return d.pip(dir)
	}
	return true
}

// requirements lists the requirement files of a project that ask for something.
func (d *detector) requirements(dir string) []string {
	var out []string
	take := func(in string, names []string) {
		for _, n := range names {
			if d.has(in, n) && asks(d.read(in, n)) {
				out = append(out, path.Join(in, n))
			}
		}
	}
	take(dir, requirementFiles)
	sub := path.Join(dir, "requirements")
	var names []string
	for _, group := range [][]string{{"dev.txt", "develop.txt", "development.txt"}, {"test.txt", "tests.txt", "testing.txt"}, {"base.txt", "main.txt", "requirements.txt"}} {
		if n := d.first(sub, group...); n != "" {
			names = append(names, n)
		}
	}
	if path.Base(dir) != "requirements" {
		take(sub, names)
	}
	return out
}

func asks(text string) bool {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return true
		}
	}
	return false
}

// pip installs what requirement files, the project's metadata and its dependency groups name.
// The project itself is installed editable, so that its tests run what is in the work tree.
func (d *detector) pip(dir string) bool {
	var p pyproject
	if d.has(dir, "pyproject.toml") {
		if _, err := toml.Decode(d.read(dir, "pyproject.toml"), &p); err != nil {
			d.note("%s cannot be read: %s", path.Join(dir, "pyproject.toml"), firstLine(err.Error()))
		}
	}
	files := d.requirements(dir)
	var args, extras, why []string
	for _, f := range files {
		args = append(args, "-r "+quote(strings.TrimPrefix(f, prefixOf(dir))))
		why = append(why, f)
	}
	seen := map[string]bool{}
	for _, g := range testExtras {
		if len(p.Project.Optional[g]) > 0 {
			extras = append(extras, g)
		}
		for _, r := range group(p.Groups, g, seen) {
			args = append(args, quote(r))
		}
		if len(p.Groups[g]) > 0 {
			why = append(why, path.Join(dir, "pyproject.toml")+" group "+g)
		}
	}
	legacy := legacyRequires.MatchString(d.read(dir, "setup.py")) || legacyRequires.MatchString(d.read(dir, "setup.cfg"))
	dynamic := slices.Contains(p.Project.Dynamic, "dependencies") || slices.Contains(p.Project.Dynamic, "optional-dependencies")
	poetry := p.Tool.Poetry["dependencies"] != nil
	if len(p.Project.Dependencies) > 0 || len(extras) > 0 || legacy && len(files) == 0 || dynamic || poetry {
		self := "."
		if len(extras) > 0 {
			self = ".[" + strings.Join(extras, ",") + "]"
		}
		args = append(args, "-e "+quote(self))
		why = append(why, "the dependencies that "+path.Join(dir, d.first(dir, "pyproject.toml", "setup.py", "setup.cfg"))+" names")
	}
	if len(args) == 0 {
		if d.first(dir, "pyproject.toml", "setup.py", "setup.cfg") != "" {
			d.nothing(dir, "python")
		}
		return false
	}
	s := Step{
		Name: "pip", Run: "python3 -m pip install --disable-pip-version-check --no-input " + strings.Join(args, " "), Dir: dir, Needs: "python3",
		Why: strings.Join(why, ", "), Whole: d.pyBuilds(dir),
		Files: d.present(dir, "pyproject.toml", "setup.py", "setup.cfg", "constraints.txt", ".python-version"),
	}
	// Requirement files include others by any name.
	for _, f := range d.tree.Files {
		in, base := path.Dir(f), path.Base(f)
		if strings.HasSuffix(base, ".txt") && (in == dir && (strings.Contains(base, "requirements") || strings.Contains(base, "constraints")) || in == path.Join(dir, "requirements")) {
			s.Files = append(s.Files, f)
		}
	}
	for _, f := range files {
		for line := range strings.Lines(string(d.tree.Read(f))) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "-e") || strings.HasPrefix(line, ".") {
				s.Whole = true // a package of the repository, built by its own code
			}
		}
	}
	d.pyStep(s)
	return true
}

// pyBuilds reports whether installing the project runs code of its own: an old setup.py, or what
// build backends take from the tree.
func (d *detector) pyBuilds(dir string) bool {
	return d.first(dir, "setup.py", "build.py", "hatch_build.py") != "" || strings.Contains(d.read(dir, "pyproject.toml"), "backend-path")
}

func prefixOf(dir string) string {
	if dir == "." {
		return ""
	}
	return dir + "/"
}

// group is a dependency group with the groups it includes (PEP 735), each once.
func group(groups map[string][]any, name string, seen map[string]bool) []string {
	if seen[name] {
		return nil
	}
	seen[name] = true
	var out []string
	for _, e := range groups[name] {
		switch e := e.(type) {
		case string:
			if !strings.HasPrefix(strings.TrimSpace(e), "-") {
				out = append(out, e)
			}
		case map[string]any:
			if other, ok := e["include-group"].(string); ok {
				out = append(out, group(groups, other, seen)...)
			}
		}
	}
	return out
}

// pyStep adds a step that runs inside the one virtual environment, which all Python steps share
// and later commands find first on PATH. Where it ends up without pytest, the host's own packages
// are let in, so that the host's runner is found.
func (d *detector) pyStep(s Step) {
	dst := path.Join(d.home, venvName)
	bin := path.Join(dst, "bin")
	if !slices.Contains(d.plan.Path, bin) {
		d.plan.Path = append(d.plan.Path, bin)
	}
	d.env("VIRTUAL_ENV=" + dst)
	s.Env = append(s.Env, "VIRTUAL_ENV="+dst)
	s.Short = s.Run
	s.Run = "[ -x " + quote(bin+"/python3") + " ] || python3 -m venv " + quote(dst) + " || exit\n" +
		"export PATH=" + quote(bin) + ":\"$PATH\"\n" +
		"{ " + s.Short + "; } || exit\n" +
		"python3 -c 'import pytest' 2>/dev/null || sed -i 's/^include-system-site-packages = false/include-system-site-packages = true/' " + quote(path.Join(dst, "pyvenv.cfg"))
	d.add("python", s)
}
