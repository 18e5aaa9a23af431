package content

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// runner is a group of files that other machines execute.
type runner struct {
	why   string
	names string // space-separated base names, lower case, with * and ?
}

func runners() []runner {
	return []runner{
		{"runs when the project is built", `makefile gnumakefile bsdmakefile *.mk *.mak justfile .justfile taskfile.yml taskfile.yaml rakefile *.rake cmakelists.txt *.cmake
			configure configure.ac meson.build build.rs build.zig build.gradle build.gradle.kts settings.gradle settings.gradle.kts pom.xml build.xml build.sbt
			build bazel build.bazel workspace workspace.bazel module.bazel *.bzl sconstruct sconscript wscript gruntfile.* gulpfile.* webpack.config.* vite.config.*
			rollup.config.* esbuild.config.* next.config.* nuxt.config.* babel.config.* .babelrc.js tsup.config.* turbo.json nx.json *.csproj *.fsproj *.targets *.props mix.exs
			rebar.config package.swift dune-project stack.yaml setup.hs binding.gyp`},
		{"runs when the package is installed", `setup.py setup.cfg pyproject.toml *.gemspec gemfile composer.json extconf.rb hatch_build.py`},
		{"runs before the tests", `conftest.py tox.ini noxfile.py pytest.ini jest.config.* jest.setup.* vitest.config.* vitest.setup.* karma.conf.* .mocharc.* playwright.config.* cypress.config.*
			spec_helper.rb rails_helper.rb test_helper.rb test_helper.exs phpunit.xml phpunit.xml.dist setuptests.* globalsetup.*`},
		{"runs when the linter does", `eslint.config.* .eslintrc.js .eslintrc.cjs prettier.config.* .prettierrc.js stylelint.config.* .rubocop.yml`},
		{"builds or starts containers and machines", `dockerfile dockerfile.* *.dockerfile containerfile docker-compose*.yml docker-compose*.yaml compose.yml compose.yaml vagrantfile
			*.tf *.tfvars procfile skaffold.yaml tiltfile`},
		{"is a script", `*.sh *.bash *.zsh *.fish *.ps1 *.psm1 *.bat *.cmd`},
	}
}

// inCode are constructs in source that run something elsewhere than in the program itself.
var inCode = []struct {
	ext  string // space-separated
	expr *regexp.Regexp
	why  string
}{
	{".go", regexp.MustCompile(`^//go:generate\s`), "has a go:generate line"},
	{".go", regexp.MustCompile(`^\s*(?://|/?\*)?\s*#cgo\s`), "sets flags of the C compiler or linker (cgo)"},
	{".go", regexp.MustCompile(`^\s*(?:import\s+)?"C"\s*$`), "brings in C code (cgo)"},
	{".go", regexp.MustCompile(`^//go:(?:linkname|embed)\s`), "has a go:linkname or go:embed line"},
	{".go", regexp.MustCompile(`^func TestMain\(`), "has a TestMain, which runs before every test"},
	{".go", regexp.MustCompile(`\bos\.Environ\(\)`), "reads the whole environment"},
	{".py", regexp.MustCompile(`(?:dict|print|str|repr|dumps)\(\s*os\.environ\s*[,)]|os\.environ\.(?:items|copy)\(`), "reads the whole environment"},
	{".js .cjs .mjs .ts .cts .mts .jsx .tsx", regexp.MustCompile(`(?:stringify|log|entries|keys|assign)\([^)]*process\.env\s*[,)]|\.\.\.process\.env\b`), "reads the whole environment"},
	{".rb", regexp.MustCompile(`\bENV\.(?:to_h|each|inspect|map)\b`), "reads the whole environment"},
	{".rs", regexp.MustCompile(`\benv::vars(?:_os)?\(\)`), "reads the whole environment"},
	{".rs", regexp.MustCompile(`#!?\[(?:proc_macro|proc_macro_derive|proc_macro_attribute)\b`), "defines a macro that runs in the compiler"},
}

// runs lists what the change makes run in CI or on a developer's machine.
func (r *review) runs(f File) {
	base := strings.ToLower(path.Base(f.Path))
	add := func(n int, severity, why string) { r.add("runs_elsewhere", severity, f.Path, n, why) }
	if base == "package.json" {
		r.scripts(f)
		return
	}
	for _, g := range runners() {
		for pattern := range strings.FieldsSeq(g.names) {
			if ok, _ := path.Match(pattern, base); ok {
				add(0, "info", g.why)
				return
			}
		}
	}
	if f.Mode == modeExecutable && f.OldMode != modeExecutable {
		add(0, "info", "is made executable")
	}
	ext := path.Ext(base)
	told := map[string]bool{}
	for _, l := range newLines(f.Old, f.New) {
		for _, c := range inCode {
			if !told[c.why] && slices.Contains(strings.Fields(c.ext), ext) && c.expr.MatchString(l.text) {
				told[c.why] = true
				add(l.number, "info", c.why)
			}
		}
	}
}

// scripts compares what package.json runs. Those that run on a mere install weigh more.
func (r *review) scripts(f File) {
	read := func(b []byte) (map[string]string, map[string]json.RawMessage, error) {
		var all map[string]json.RawMessage
		if len(b) == 0 {
			return nil, nil, nil
		}
		if err := json.Unmarshal(b, &all); err != nil {
			return nil, nil, err
		}
		scripts := map[string]string{}
		if s := all["scripts"]; s != nil {
			if err := json.Unmarshal(s, &scripts); err != nil {
				return nil, nil, err
			}
		}
		return scripts, all, nil
	}
	after, all, err := read(f.New)
	if err != nil {
		r.add("runs_elsewhere", "warn", f.Path, 0, "cannot be read as package.json")
		return
	}
	before, had, _ := read(f.Old)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] == after[name] {
			continue
		}
		severity, when := "info", "when it is called"
		switch name {
		case "preinstall", "install", "postinstall", "prepare", "preprepare", "postprepare", "prepublish", "dependencies":
			severity, when = "warn", "when anyone installs the packages"
		}
		r.findScript(f.Path, name, severity, when, before[name], after[name])
	}
	for _, key := range []string{"bin", "gypfile", "husky", "lint-staged", "simple-git-hooks", "pre-commit", "jest", "mocha", "ava", "packageManager", "overrides", "resolutions", "pnpm", "workspaces"} {
		if string(had[key]) != string(all[key]) {
			r.add("runs_elsewhere", "info", f.Path, 0, fmt.Sprintf("%q changed in package.json", key))
		}
	}
}

func (r *review) findScript(p, name, severity, when, old, new string) {
	r.add("runs_elsewhere", severity, p, 0, fmt.Sprintf("script %q runs %s", escape(name), when))
	last := &r.out.Findings[len(r.out.Findings)-1]
	last.Old, last.New = escape(old), escape(new)
}
