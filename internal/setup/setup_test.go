package setup

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/daybreak-agent/daybreak/internal/task"
)

const home = "/home/agent"

// treeOf makes a tree out of a txtar; a line such as "@ path" is an empty file.
func treeOf(text string) Tree {
	files := map[string][]byte{}
	var rest strings.Builder
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "@ "); ok {
			files[name] = []byte{}
		} else {
			rest.WriteString(line)
		}
	}
	for _, f := range txtar.Parse([]byte(rest.String())).Files {
		files[f.Name] = f.Data
	}
	t := Tree{Read: func(p string) []byte { return files[p] }}
	for name := range files {
		t.Files = append(t.Files, name)
	}
	slices.Sort(t.Files)
	return t
}

// said is what a person sees of a plan.
func said(p Plan) string {
	var out []string
	for _, s := range p.Steps {
		line := s.Dir + "$ " + s.Line()
		if s.Whole {
			line += " [whole]"
		}
		if s.Optional {
			line += " [optional]"
		}
		out = append(out, line)
	}
	for _, n := range p.Notes {
		out = append(out, "note: "+n)
	}
	return strings.Join(out, "\n")
}

var detections = []struct{ name, tree, want string }{
	{"nothing", "@ README.md\n@ main.c\n", ""},
	{"go", "@ go.sum\n-- go.mod --\nmodule m\n\nrequire x.example/y v1.0.0\n", ".$ go mod download"},
	{"go without dependencies", "-- go.mod --\nmodule m\n", ""},
	{"go vendored", "@ vendor/modules.txt\n-- go.mod --\nmodule m\nrequire x.example/y v1.0.0\n", "note: go.mod: its dependencies are vendored"},
	{
		"go modules side by side", "-- a/go.mod --\nmodule a\nrequire (\n\tx.example/y v1.0.0\n)\n-- b/c/go.mod --\nmodule c\nrequire x.example/y v1.0.0\n-- testdata/go.mod --\nmodule t\nrequire x.example/y v1.0.0\n",
		"a$ go mod download\nb/c$ go mod download",
	},
	{
		"go workspace", "-- go.work --\ngo 1.26\n\nuse (\n\t.\n\t./b // side\n)\n-- go.mod --\nmodule m\nrequire x.example/y v1.0.0\n-- b/go.mod --\nmodule b\nrequire x.example/y v1.0.0\n-- c/go.mod --\nmodule c\nrequire x.example/y v1.0.0\n",
		".$ go mod download\nc$ go mod download",
	},

	{"npm", "@ package-lock.json\n-- package.json --\n{\"dependencies\": {\"a\": \"1\"}}\n", ".$ npm ci --no-audit --no-fund"},
	{"npm with a script of its own", "@ package-lock.json\n-- package.json --\n{\"scripts\": {\"prepare\": \"tsc\"}, \"dependencies\": {\"a\": \"1\"}}\n", ".$ npm ci --no-audit --no-fund [whole]"},
	{"npm without a lock", "-- package.json --\n{\"devDependencies\": {\"a\": \"1\"}}\n", ".$ npm install --no-save --no-package-lock --no-audit --no-fund"},
	{"package.json for scripts alone", "-- package.json --\n{\"scripts\": {\"test\": \"node --test\"}}\n", ""},
	{
		"npm workspaces", "@ package-lock.json\n-- package.json --\n{\"workspaces\": [\"packages/*\"]}\n-- packages/a/package.json --\n{\"dependencies\": {\"x\": \"1\"}}\n-- tool/package.json --\n{\"dependencies\": {\"x\": \"1\"}}\n-- tool/package-lock.json --\n{}\n",
		".$ npm ci --no-audit --no-fund\ntool$ npm ci --no-audit --no-fund",
	},
	{"two packages that know nothing of each other", "@ a/package-lock.json\n@ b/yarn.lock\n-- a/package.json --\n{\"dependencies\": {\"x\": \"1\"}}\n-- b/package.json --\n{\"dependencies\": {\"x\": \"1\"}}\n", "a$ npm ci --no-audit --no-fund\nb$ yarn install --frozen-lockfile --non-interactive"},
	{"pnpm", "@ pnpm-lock.yaml\n@ pnpm-workspace.yaml\n-- package.json --\n{\"packageManager\": \"pnpm@9.1.0\", \"dependencies\": {\"x\": \"1\"}}\n-- p/package.json --\n{\"dependencies\": {\"x\": \"1\"}}\n", ".$ pnpm install --frozen-lockfile"},
	{"a package beside it", "@ package-lock.json\n-- package.json --\n{\"dependencies\": {\"a\": \"file:./a\", \"b\": \"file:b.tgz\"}}\n", ".$ npm ci --no-audit --no-fund [whole]"},
	{"a tarball beside it", "@ package-lock.json\n-- package.json --\n{\"dependencies\": {\"b\": \"file:b.tgz\"}}\n", ".$ npm ci --no-audit --no-fund"},
	{"two locks, one manager named", "@ pnpm-lock.yaml\n@ package-lock.json\n-- package.json --\n{\"packageManager\": \"npm@10\", \"dependencies\": {\"x\": \"1\"}}\n", ".$ npm ci --no-audit --no-fund"},
	{"yarn berry by its lock", "-- yarn.lock --\n__metadata:\n  version: 8\n-- package.json --\n{\"dependencies\": {\"x\": \"1\"}}\n", ".$ yarn install --immutable"},
	{"yarn berry in the repository", "@ yarn.lock\n@ .yarn/releases/yarn-4.1.0.cjs\n-- .yarnrc.yml --\nyarnPath: .yarn/releases/yarn-4.1.0.cjs\n-- package.json --\n{\"dependencies\": {\"x\": \"1\"}}\n", ".$ node .yarn/releases/yarn-4.1.0.cjs install --immutable"},
	{"yarn path out of the repository", "@ yarn.lock\n@ .yarn/releases/yarn-4.1.0.cjs\n-- .yarnrc.yml --\nyarnPath: .yarn/../../../tmp/x\n-- package.json --\n{\"dependencies\": {\"x\": \"1\"}}\n", ".$ yarn install --immutable"},
	{"bun", "@ bun.lock\n-- package.json --\n{\"dependencies\": {\"x\": \"1\"}}\n", "note: bun.lock: bun is not supported, its packages are not installed; name a command under setup in .daybreak.yaml"},
	{"not JSON", "-- package.json --\n{oops\n", "note: package.json is no JSON object that a package manager reads"},

	{
		"pip", "-- requirements.txt --\nrequests==2.0\n-- requirements-dev.txt --\n-r requirements.txt\npytest\n-- requirements-test.txt --\n# nothing\n",
		".$ python3 -m pip install --disable-pip-version-check --no-input -r requirements.txt -r requirements-dev.txt",
	},
	{"pip in a folder", "-- requirements/base.txt --\na\n-- requirements/dev.txt --\nb\n-- requirements/docs.txt --\nc\n", ".$ python3 -m pip install --disable-pip-version-check --no-input -r requirements/dev.txt -r requirements/base.txt"},
	{"a package of its own in requirements", "@ setup.py\n-- requirements.txt --\n-e .\n", ".$ python3 -m pip install --disable-pip-version-check --no-input -r requirements.txt [whole]"},
	{
		"pyproject", "-- pyproject.toml --\n[project]\nname = \"x\"\ndependencies = [\"a>=1\"]\n[project.optional-dependencies]\ntest = [\"pytest\"]\ndocs = [\"sphinx\"]\n[dependency-groups]\ndev = [\"ruff; python_version > '3'\", {include-group = \"types\"}, {include-group = \"dev\"}]\ntypes = [\"mypy\"]\n",
		".$ python3 -m pip install --disable-pip-version-check --no-input 'ruff; python_version > '\\''3'\\''' mypy -e '.[test]'",
	},
	{"pyproject for tools alone", "-- pyproject.toml --\n[tool.pytest.ini_options]\ntestpaths = [\"tests\"]\n", ""},
	{"setup.py", "-- setup.py --\nsetup(install_requires=['a'])\n", ".$ python3 -m pip install --disable-pip-version-check --no-input -e . [whole]"},
	{"uv", "@ uv.lock\n-- pyproject.toml --\n[project]\nname = \"x\"\ndependencies = [\"a\"]\n", ".$ uv sync --frozen --inexact --all-extras || uv sync --frozen --inexact"},
	{"a build backend in the tree", "-- pyproject.toml --\n[build-system]\nbackend-path = [\".\"]\n[project]\nname = \"x\"\ndependencies = [\"a\"]\n", ".$ python3 -m pip install --disable-pip-version-check --no-input -e . [whole]"},
	{"poetry", "@ poetry.lock\n@ pyproject.toml\n", ".$ poetry install --no-interaction --all-extras"},
	{"pipenv", "@ Pipfile\n@ Pipfile.lock\n", ".$ pipenv sync --dev"},
	{"pipenv without a lock", "@ Pipfile\n", "note: Pipfile has no lockfile: its packages are not installed"},

	{"cargo", "@ Cargo.lock\n-- Cargo.toml --\n[package]\nname = \"x\"\n[dependencies]\na = \"1\"\n", ".$ cargo fetch --locked"},
	{"cargo workspace", "-- Cargo.toml --\n[workspace]\nmembers = [\"a\"]\n-- a/Cargo.toml --\n[dependencies]\na = \"1\"\n", ".$ cargo fetch"},
	{"cargo with settings above", "@ .cargo/config.toml\n@ a/b/Cargo.lock\n-- a/b/Cargo.toml --\n[dependencies]\na = \"1\"\n", "a/b$ cargo fetch --locked [whole]"},
	{"pnpm with hooks", "@ pnpm-lock.yaml\n@ .pnpmfile.cjs\n-- package.json --\n{\"dependencies\": {\"a\": \"1\"}}\n", ".$ pnpm install --frozen-lockfile [whole]"},
	{"yarn with settings above", "@ .yarnrc\n@ a/yarn.lock\n-- a/package.json --\n{\"dependencies\": {\"a\": \"1\"}}\n", "a$ yarn install --frozen-lockfile --non-interactive [whole]"},
	{"cargo vendored", "@ Cargo.lock\n-- .cargo/config.toml --\n[source.crates-io]\nreplace-with = \"vendored-sources\"\n-- Cargo.toml --\n[dependencies]\na = \"1\"\n", "note: Cargo.toml: its crates are vendored"},
	{"cargo broken", "-- Cargo.toml --\n[package\n", "note: Cargo.toml cannot be read: toml: line 2: expected '.' or ']' to end table name, but got '\\n' instead"},
	{
		"maven", "@ pom.xml\n@ module/pom.xml\n",
		".$ mvn -B -ntp dependency:go-offline\n.$ mvn -B -ntp test -Dtest=DaybreakSelectsNone -DfailIfNoTests=false -Dsurefire.failIfNoSpecifiedTests=false && mvn -B -ntp clean [optional]",
	},
	{"gradle", "@ settings.gradle.kts\n@ app/build.gradle\n", ".$ gradle --no-daemon --console=plain testClasses"},
	{"gradle wrapper", "@ build.gradle\n@ gradlew\n", ".$ sh ./gradlew --no-daemon --console=plain testClasses"},
	{"bundler", "@ Gemfile\n@ Gemfile.lock\n", ".$ bundle install"},
	{"a gem", "@ Gemfile\n@ x.gemspec\n", ".$ bundle install [whole]"},

	{
		"several at once", "@ package-lock.json\n@ web/yarn.lock\n-- go.mod --\nmodule m\nrequire x.example/y v1.0.0\n-- package.json --\n{\"dependencies\": {\"a\": \"1\"}}\n-- web/package.json --\n{\"dependencies\": {\"a\": \"1\"}}\n-- requirements.txt --\na\n",
		".$ go mod download\n.$ npm ci --no-audit --no-fund\nweb$ yarn install --frozen-lockfile --non-interactive\n.$ python3 -m pip install --disable-pip-version-check --no-input -r requirements.txt",
	},
	{"names for the shell", "-- a b;rm -rf/requirements.txt --\nx\n-- a b;rm -rf/requirements/dev.txt --\nx\n", "a b;rm -rf$ python3 -m pip install --disable-pip-version-check --no-input -r requirements.txt -r requirements/dev.txt"},
	{"too deep", "-- a/b/c/d/e/f/go.mod --\nmodule m\nrequire x.example/y v1.0.0\n", ""},

	{
		"devcontainer", "-- .devcontainer/devcontainer.json --\n// what we use\n{\n  \"image\": \"x\", /* an image */\n  \"onCreateCommand\": [\"make\", \"it so\"],\n  \"postCreateCommand\": {\"b\": \"two\", \"a\": [\"one\", \"//\"]},\n  \"containerEnv\": {\"A\": \"1\", \"B\": \"${localEnv:B}\", \"PATH\": \"/x\", \"bad name\": \"1\"},\n}\n",
		".$ make 'it so' [whole] [optional]\n.$ one // [whole] [optional]\n.$ two [whole] [optional]\nnote: .devcontainer/devcontainer.json: image cannot be honoured here, the sandbox has this host's own tool chains\nnote: .devcontainer/devcontainer.json: the variables B, PATH, bad name are not taken over",
	},
	{"devcontainers", "-- .devcontainer/a/devcontainer.json --\n{\"postCreateCommand\": \"x\"}\n-- .devcontainer/b/devcontainer.json --\n{}\n", ".$ x [whole] [optional]\nnote: .devcontainer/a/devcontainer.json is used, the other 1 devcontainer.json are not"},
	{"devcontainer that is no JSON", "-- .devcontainer.json --\n{/* \n", "note: .devcontainer.json cannot be read: a comment does not end"},
	{"devcontainer with a strange command", "-- .devcontainer.json --\n{\"postCreateCommand\": 7}\n", "note: .devcontainer.json cannot be read: a command is no string, list or object"},
}

func TestDetect(t *testing.T) {
	for _, c := range detections {
		t.Run(c.name, func(t *testing.T) {
			tree := treeOf(c.tree)
			read := tree.Read
			tree.Read = func(p string) []byte {
				if !Reads(p) && slices.Contains(tree.Files, p) {
					t.Errorf("%s is read, although Reads says no", p)
				}
				return read(p)
			}
			p := Detect(tree, home)
			if got := said(p); got != c.want {
				t.Error(cmp.Diff(c.want, got))
			}
			for _, s := range p.Steps {
				if s.Why == "" || s.Needs == "" && s.part != "devcontainer" {
					t.Errorf("a step does not say why or what it needs: %+v", s)
				}
				if !s.Whole && len(s.Files) == 0 {
					t.Errorf("%s depends on nothing", s.Line())
				}
				for _, f := range s.Files {
					if !slices.Contains(tree.Files, f) {
						t.Errorf("%s depends on %s, which is not there", s.Line(), f)
					}
				}
			}
		})
	}
}

// The environment in which what was installed is found belongs to the plan.
func TestEnvironment(t *testing.T) {
	p := Detect(treeOf("@ Gemfile\n-- requirements.txt --\na\n-- svc/uv.lock --\nx\n-- .devcontainer.json --\n{\"containerEnv\": {\"A\": \"b c\"}}\n"), home)
	want := []string{"VIRTUAL_ENV=/home/agent/.venv", "UV_PROJECT_ENVIRONMENT=/home/agent/.venv", "BUNDLE_PATH=/home/agent/.bundle/gems", "A=b c"}
	if diff := cmp.Diff(want, p.Env); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/home/agent/.venv/bin"}, p.Path); diff != "" {
		t.Error(diff)
	}
}

func TestSettle(t *testing.T) {
	const goMod = "-- go.mod --\nmodule m\nrequire x.example/y v1.0.0\n"
	const pnpm = "@ pnpm-lock.yaml\n-- package.json --\n{\"dependencies\": {\"a\": \"1\"}}\n"
	for _, c := range []struct{ name, tree, installed, want, err string }{
		{"all there", goMod + pnpm, "go pnpm", ".$ go mod download\n.$ pnpm install --frozen-lockfile", ""},
		{"one part less", goMod + pnpm, "go", ".$ go mod download\nnote: pnpm is not installed on this host: `pnpm install --frozen-lockfile` was left out (pnpm-lock.yaml)", ""},
		{"the main part", pnpm, "go npm", "", "pnpm is not installed on this host, and pnpm-lock.yaml"},
		{"a part that needs nothing", "-- go.mod --\nmodule m\n" + pnpm, "go", "note: pnpm is not installed on this host: `pnpm install --frozen-lockfile` was left out (pnpm-lock.yaml)", ""},
		{"below the main part", goMod + "@ docs/pnpm-lock.yaml\n-- docs/package.json --\n{\"dependencies\": {\"a\": \"1\"}}\n", "go", ".$ go mod download\nnote: pnpm is not installed on this host: `pnpm install --frozen-lockfile` was left out (docs/pnpm-lock.yaml)", ""},
		{"nothing but parts below", "@ a/poetry.lock\n@ a/pyproject.toml\n", "python3", "", "poetry is not installed on this host, and a/poetry.lock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Detect(treeOf(c.tree), home).Settle(func(name string) bool { return slices.Contains(strings.Fields(c.installed), name) })
			if c.err != "" {
				if err == nil || task.ClassOf(err) != task.Unavailable || !strings.HasPrefix(err.Error(), c.err) {
					t.Errorf("%v", err)
				}
				return
			}
			if got := said(p); err != nil || got != c.want {
				t.Error(err, cmp.Diff(c.want, got))
			}
		})
	}
}

func TestNamed(t *testing.T) {
	p := Named([]Step{{Run: "one"}, {Run: "two", Root: true}, {Run: "three", Files: []string{"b", "a*"}}})
	var got []string
	for _, s := range p.Steps {
		got = append(got, s.Run)
		if s.Whole != (len(s.Files) == 0) {
			t.Errorf("%+v", s)
		}
	}
	if want := []string{"two", "one", "three"}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// The key changes with what the result depends on, and with nothing else.
func TestKey(t *testing.T) {
	npm := Detect(treeOf("@ package-lock.json\n-- package.json --\n{\"dependencies\": {\"a\": \"1\"}}\n"), home)
	ids := func(more ...string) map[string]string {
		m := map[string]string{"package.json": "1", "package-lock.json": "2", "src/a.js": "3"}
		for i := 0; i+1 < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	base := npm.Key(ids(), "tree")
	if npm.Key(ids("src/a.js", "4"), "other") != base {
		t.Error("a source file changes the key")
	}
	if npm.Key(ids("package-lock.json", "4"), "tree") == base {
		t.Error("the lockfile does not change the key")
	}
	env := npm
	env.Env = []string{"A=1"}
	if env.Key(ids(), "tree") == base {
		t.Error("the environment does not change the key")
	}
	wrapper := Detect(treeOf("@ build.gradle\n@ gradlew\n@ gradle/wrapper/gradle-wrapper.jar\n"), home)
	jar := map[string]string{"gradle/wrapper/gradle-wrapper.jar": "1"}
	other := map[string]string{"gradle/wrapper/gradle-wrapper.jar": "2"}
	if wrapper.Key(jar, "tree") == wrapper.Key(other, "tree") {
		t.Error("another wrapper gives the same key")
	}
	jvm := Detect(treeOf("@ pom.xml\n@ .mvn/jvm.config\n"), home)
	if jvm.Key(nil, "tree") == jvm.Key(nil, "other") {
		t.Error("settings of the Java machine may name anything of the tree")
	}
	whole := Named([]Step{{Run: "make"}})
	if whole.Key(ids(), "tree") == whole.Key(ids(), "other") {
		t.Error("a step that may read anything does not depend on the tree")
	}
	glob := Named([]Step{{Run: "make", Files: []string{"src/**", "*.lock"}}})
	for name, same := range map[string]bool{"src/deep/x.js": false, "a.lock": false, "b/a.lock": true} {
		if (glob.Key(ids(name, "9"), "tree") == glob.Key(ids(), "tree")) != same {
			t.Errorf("%s: same key %v expected", name, same)
		}
	}
}

// A repository of nothing but manifests costs bounded work and gives a bounded plan.
func TestManyManifests(t *testing.T) {
	tree := Tree{Read: func(p string) []byte {
		if path.Base(p) == "go.mod" {
			return []byte("module m\nrequire x.example/y v1.0.0\n")
		}
		return []byte(`{"dependencies": {"a": "1"}}`)
	}}
	for i := range 5000 {
		dir := "d" + strings.Repeat("x", i%50) + string(rune('a'+i%26)) + "/" + strings.Repeat("y", i/100)
		tree.Files = append(tree.Files, dir+"/go.mod", dir+"/package.json", dir+"/package-lock.json")
	}
	slices.Sort(tree.Files)
	tree.Files = slices.Compact(tree.Files)
	p := Detect(tree, home)
	if len(p.Steps) != maxSteps || len(p.Notes) == 0 || len(p.Notes) > maxNotes+1 {
		t.Errorf("%d steps, notes %q", len(p.Steps), p.Notes)
	}
}

// A name from the repository can neither break a line nor hide.
func TestNotesArePlain(t *testing.T) {
	p := Detect(Tree{Files: []string{"a\nignore all\u202e/Pipfile"}, Read: func(string) []byte { return nil }}, home)
	if len(p.Notes) != 1 || strings.ContainsAny(p.Notes[0], "\n\u202e") {
		t.Errorf("%q", p.Notes)
	}
}

func TestPlainJSON(t *testing.T) {
	for in, want := range map[string]string{
		"{\"a\": \"// no /* comment\\\"\", // yes\n\"b\": [1, /* x */ 2,],}": "{\"a\": \"// no /* comment\\\"\", \n\"b\": [1,  2]}",
		"\ufeff[]": "[]",
		"//":       "",
	} {
		if got, err := plainJSON([]byte(in)); err != nil || string(got) != want {
			t.Errorf("%q became %q, %v", in, got, err)
		}
	}
	if _, err := plainJSON([]byte(strings.Repeat("[", maxNesting+1))); err == nil {
		t.Error("too deep, and taken")
	}
}

func FuzzDetect(f *testing.F) {
	for _, c := range detections {
		tree := treeOf(c.tree)
		for _, name := range tree.Files {
			f.Add(name, tree.Read(name), strings.Join(tree.Files, "\n"))
		}
	}
	f.Fuzz(func(t *testing.T, name string, text []byte, others string) {
		files := map[string][]byte{}
		for _, other := range strings.Split(others, "\n") {
			files[other] = []byte{}
		}
		files[name] = text
		tree := Tree{Read: func(p string) []byte { return files[p] }}
		ids := map[string]string{}
		for n := range files {
			tree.Files, ids[n] = append(tree.Files, n), n
		}
		slices.Sort(tree.Files)
		p := Detect(tree, home)
		if len(p.Steps) > maxSteps || len(p.Notes) > maxNotes+1 {
			t.Errorf("%d steps, %d notes", len(p.Steps), len(p.Notes))
		}
		if a, b := p.Key(ids, "t"), Detect(tree, home).Key(ids, "t"); a != b {
			t.Error("two plans for one tree")
		}
		for _, s := range p.Steps {
			if strings.ContainsRune(s.Run, 0) {
				t.Errorf("%q", s.Run)
			}
		}
		for _, kv := range p.Env {
			if strings.ContainsAny(kv, "\x00\n") {
				t.Errorf("%q", kv)
			}
		}
	})
}
