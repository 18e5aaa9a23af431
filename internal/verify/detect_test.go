package verify

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func tree(files map[string]string) fstest.MapFS {
	out := fstest.MapFS{}
	for p, text := range files {
		out[p] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

func TestDetect(t *testing.T) {
	pytest := Tools{Pytest: true}
	for name, c := range map[string]struct {
		files    map[string]string
		tools    Tools
		settings Settings
		want     []string // first command of each suite
		notes    string
	}{
		"go": {
			map[string]string{"go.mod": "module example.com/a\n", "a_test.go": ""},
			pytest,
			Settings{},
			[]string{"go test -json -vet=off -count=1 ./... > R-0.json"},
			"",
		},
		"go modules below each other": {
			map[string]string{"go.mod": "module a", "a_test.go": "", "tools/go.mod": "module a/tools", "tools/b_test.go": "", "x/testdata/go.mod": "module no", "x/testdata/c_test.go": ""},
			pytest,
			Settings{},
			[]string{"go test -json -vet=off -count=1 ./... > R-0.json", "go test -json -vet=off -count=1 ./... > R-0.json"},
			"",
		},
		"go without tests": {map[string]string{"go.mod": "module a", "a.go": ""}, pytest, Settings{}, nil, "without tests"},
		"pytest": {
			map[string]string{"tests/test_a.py": "def test_a(): pass", "docs/test_x.py": ""},
			pytest,
			Settings{},
			[]string{"python3 -m pytest -q -p no:cacheprovider -p no:randomly --color=no --continue-on-collection-errors -o junit_family=xunit1 -rX --junitxml=R-0.xml tests"},
			"",
		},
		"pytest with plugins that are missing": {
			map[string]string{"tests/test_a.py": "", "pyproject.toml": "[tool.pytest.ini_options]\ntestpaths = ['tests']\naddopts = \"--cov=x -q\"\n"},
			pytest,
			Settings{},
			[]string{"python3 -m pytest -q -p no:cacheprovider -p no:randomly --color=no --continue-on-collection-errors -o junit_family=xunit1 -o addopts= -rX --junitxml=R-0.xml"},
			"pytest_cov",
		},
		"pytest with plugins that are there": {
			map[string]string{"test_a.py": "", "pytest.ini": "[pytest]\naddopts = --cov=x\n"},
			Tools{Pytest: true, Plugins: []string{"pytest_cov"}},
			Settings{},
			[]string{"python3 -m pytest -q -p no:cacheprovider -p no:randomly --color=no --continue-on-collection-errors -o junit_family=xunit1 -rX --junitxml=R-0.xml ."},
			"",
		},
		"unittest": {
			map[string]string{"tests/__init__.py": "", "tests/test_a.py": "import unittest\n"},
			Tools{},
			Settings{},
			[]string{"python3 -m unittest discover -v -s tests -t . > R-0.txt 2>&1"},
			"",
		},
		"pytest needed but missing": {map[string]string{"test_a.py": "import pytest\n"}, Tools{}, Settings{}, nil, "not installed"},
		"node --test": {
			map[string]string{"package.json": `{"scripts":{"test":"node --import tsx --test test/"}}`, "test/a.test.js": "", "node_modules/x/test.js": ""},
			pytest,
			Settings{},
			[]string{"node --import tsx --test --test-reporter=tap --test-reporter-destination=R-0.tap test/a.test.js"},
			"",
		},
		"tape behind two scripts and coverage": {
			map[string]string{"package.json": `{"scripts":{"pretest":"npm run lint","test":"npm run -s tests-only","tests-only":"nyc tape 'test/**/*.js'"}}`, "test/parse.js": "", "test/deep/x.js": ""},
			pytest,
			Settings{},
			[]string{"node test/deep/x.js > R-0.tap"},
			"",
		},
		"tap": {
			map[string]string{"package.json": `{"scripts":{"test":"tap"}}`, "test/a.js": ""},
			pytest,
			Settings{},
			[]string{"node test/a.js > R-0.tap"},
			"",
		},
		"jest": {
			map[string]string{"package.json": `{"scripts":{"test":"cross-env NODE_ENV=test jest --coverage --config x.json"}}`},
			pytest,
			Settings{},
			[]string{`PATH="$PWD/node_modules/.bin:$PATH" jest --ci --json --outputFile=R-0.json --config x.json`},
			"",
		},
		"mocha": {
			map[string]string{"package.json": `{"scripts":{"test":"mocha -R spec --require x test/*.js && eslint ."}}`},
			pytest,
			Settings{},
			[]string{`PATH="$PWD/node_modules/.bin:$PATH" mocha --reporter json --reporter-option output=R-0.json --require x 'test/*.js'`},
			"",
		},
		"mocha of a workspace": {
			map[string]string{"packages/a/package.json": `{"scripts":{"test":"mocha"}}`},
			pytest,
			Settings{},
			[]string{`PATH="$PWD/node_modules/.bin:$PWD/../node_modules/.bin:$PWD/../../node_modules/.bin:$PATH" mocha --reporter json --reporter-option output=R-0.json`},
			"",
		},
		"npm's placeholder":          {map[string]string{"package.json": `{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}`}, pytest, Settings{}, nil, "no test runner"},
		"a script that calls itself": {map[string]string{"package.json": `{"scripts":{"test":"npm test"}}`}, pytest, Settings{}, nil, "no test script"},
		"bad JSON":                   {map[string]string{"package.json": `{"scripts":`}, pytest, Settings{}, nil, "not valid JSON"},
		"nothing":                    {map[string]string{"README.md": ""}, pytest, Settings{}, nil, ""},
		"settings win": {
			map[string]string{"go.mod": "module a", "a_test.go": ""},
			pytest,
			Settings{Test: "make check", Report: []string{"out/*.xml"}},
			[]string{"make check"},
			"",
		},
		"settings with TAP on the output": {
			nil, pytest,
			Settings{Test: "prove -v t", Format: "tap"},
			[]string{"{\nprove -v t\n} > R-0.out"},
			"",
		},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := tree(c.files)
			plan, err := Detect(fsys, c.tools, c.settings)
			if err != nil {
				t.Fatal(err)
			}
			list, err := files(fsys)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range plan.Suites {
				got = append(got, plan.commands(i, nil, list, "R")[0].shell)
				if plan.Suites[i].Why == "" {
					t.Error("a suite without a reason")
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if !strings.Contains(strings.Join(plan.Notes, "\n"), c.notes) {
				t.Errorf("notes %q, want …%s…", plan.Notes, c.notes)
			}
			if plan.Runner() == "" {
				t.Error("no words for the runner")
			}
		})
	}
	if _, err := Detect(tree(nil), pytest, Settings{Format: "tap"}); err == nil {
		t.Error("settings that say how to read but not how to run are taken")
	}
}

func TestOneTest(t *testing.T) {
	plan := Plan{Suites: []Suite{
		{Kind: KindGo, Dir: ".", Module: "example.com/a"},
		{Kind: KindPytest, Dir: ".", Env: []string{"PYTHONPATH=."}},
		{Kind: KindNode, Dir: "web", Globs: []string{"**/*.js"}},
		{Kind: KindJest, Dir: "."},
		{Kind: KindUnittest, Dir: "."},
		{Kind: KindMocha, Dir: "."},
		{Kind: KindCustom, Dir: ".", Test: "all", TestOne: "one {tests}", Format: "tap"},
	}}
	for _, c := range []struct {
		place Place
		want  string
	}{
		{Place{Suite: 0, Group: "example.com/a/cart", Name: "TestCoupon", Param: "x y"}, "go test -run '^TestCoupon$' ./cart"},
		{Place{Suite: 0, Group: "example.com/a", Name: "TestX"}, "go test -run '^TestX$' ."},
		{Place{Suite: 0, File: "cart/a_test.go"}, "go test ./cart"},
		{Place{Suite: 1, Group: "tests.test_a", File: "tests/test_a.py", Name: "test_b", Param: "1-2"}, "PYTHONPATH=. python3 -m pytest tests/test_a.py::test_b"},
		{Place{Suite: 1, Group: "tests.test_a.TestC", File: "tests/test_a.py", Name: "test_b"}, "PYTHONPATH=. python3 -m pytest tests/test_a.py::TestC::test_b"},
		{Place{Suite: 2, File: "web/t/a.js", Name: "adds (up) > x"}, `(cd web && node --test --test-name-pattern '^adds \(up\)$' t/a.js)`},
		{Place{Suite: 3, File: "a.test.js", Name: "it's"}, `npx jest --runTestsByPath a.test.js -t 'it'\''s'`},
		{Place{Suite: 4, Group: "tests.test_a.C", Name: "test_b"}, "python3 -m unittest -v tests.test_a.C.test_b"},
		{Place{Suite: 5, File: "-rf.js", Name: "x"}, "npx mocha ./-rf.js"},
		{Place{Suite: 6, Name: "a; rm -rf /"}, "one 'a; rm -rf /'"},
	} {
		if got := plan.rerun(c.place); got != c.want {
			t.Errorf("%+v:\n got %s\nwant %s", c.place, got, c.want)
		}
	}
}

func TestResolve(t *testing.T) {
	cases := map[string]Case{}
	for id, pl := range map[string]Place{
		"example.com/a/cart::TestCoupon":        {Name: "TestCoupon"},
		"example.com/a/cart::TestCoupon/big":    {Name: "TestCoupon", Param: "big"},
		"example.com/a/ship::TestFee":           {Name: "TestFee"},
		"tests.test_a.TestC::test_b":            {Name: "test_b", File: "tests/test_a.py"},
		"tests.test_a::test_p[1]":               {Name: "test_p", Param: "1", File: "tests/test_a.py"},
		"tests.test_a::test_p[2]":               {Name: "test_p", Param: "2", File: "tests/test_a.py"},
		"test/parse.js::mixed notation":         {Name: "mixed notation", File: "test/parse.js"},
		"src/cart.test.ts::Cart > takes 10 %":   {Name: "takes 10 %", File: "src/cart.test.ts"},
		"tests.test_more.WindowedTests::test_n": {Name: "test_n"},
	} {
		cases[id] = Case{ID: id, Place: pl}
	}
	for declared, want := range map[string][]string{
		"example.com/a/cart::TestCoupon":               {"example.com/a/cart::TestCoupon"},
		"TestCoupon":                                   {"example.com/a/cart::TestCoupon"},
		"cart.TestCoupon":                              {"example.com/a/cart::TestCoupon"},
		"./cart TestCoupon":                            {"example.com/a/cart::TestCoupon"},
		"TestCoupon/big":                               {"example.com/a/cart::TestCoupon/big"},
		"go test -run '^TestCoupon$' ./cart":           {"example.com/a/cart::TestCoupon"},
		"tests/test_a.py::TestC::test_b":               {"tests.test_a.TestC::test_b"},
		"tests/test_a.py::test_p":                      {"tests.test_a::test_p[1]", "tests.test_a::test_p[2]"},
		"python3 -m pytest tests/test_a.py::test_p[2]": {"tests.test_a::test_p[2]"},
		"mixed notation":                               {"test/parse.js::mixed notation"},
		"test/parse.js mixed notation":                 {"test/parse.js::mixed notation"},
		"Cart takes 10 %":                              {"src/cart.test.ts::Cart > takes 10 %"},
		"tests.test_more.WindowedTests.test_n":         {"tests.test_more.WindowedTests::test_n"},
		"tests.test_more.WindowedTests.test_n::test_n": {"tests.test_more.WindowedTests::test_n"},
		"TestCoup": nil,
		"":         nil,
		"::":       nil,
	} {
		got := resolve(declared, cases)
		if diff := cmp.Diff(want, got.ids); diff != "" {
			t.Errorf("%q: %s", declared, diff)
		}
	}
	if near := resolve("TestCoup", cases).near; !slices.Contains(near, "example.com/a/cart::TestCoupon") {
		t.Errorf("near TestCoup: %v", near)
	}
}

func TestGlobMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"test/**/*.js", "test/a.js", true},
		{"test/**/*.js", "test/a/b/c.js", true},
		{"test/**/*.js", "lib/a.js", false},
		{"**/*.{js,mjs}", "a.mjs", true},
		{"**/*.{js,mjs}", "a.ts", false},
		{"**", "a/b", true},
		{"a/[", "a/[", false},
		{"./test/*.js", "test/x.js", true},
		{"{a,b", "{a,b", true},
	} {
		if got := globMatch(c.pattern, c.name); got != c.want {
			t.Errorf("%q on %q: %t", c.pattern, c.name, got)
		}
	}
}

func FuzzQuote(f *testing.F) {
	f.Add("a b")
	f.Add("'; touch /tmp/x; '")
	f.Add("$(id)\n`id`\\")
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 10_000 {
			return
		}
		out, err := exec.Command("bash", "-c", "printf %s "+quote(s)).Output()
		if err != nil {
			t.Fatal(err)
		}
		if want := strings.ReplaceAll(s, "\x00", ""); string(out) != want {
			t.Errorf("%q came back as %q", want, out)
		}
	})
}

func FuzzDetect(f *testing.F) {
	f.Add("node --test 'a/**' && npm run x", "[tool:pytest]\naddopts = --cov -n 4\n", "module x", "a/{b,c}/**")
	f.Add("tape -r x test/*.js; jest --config", "", "module \"x", "{{{,,,}}}")
	f.Fuzz(func(t *testing.T, script, cfg, mod, glob string) {
		pkg, err := json.Marshal(map[string]any{"scripts": map[string]string{"test": script, "x": script}})
		if err != nil {
			t.Skip()
		}
		fsys := tree(map[string]string{"package.json": string(pkg), "setup.cfg": cfg, "go.mod": mod, "a_test.go": "", "test_a.py": "", "test/a.js": ""})
		plan, err := Detect(fsys, Tools{Pytest: true}, Settings{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range plan.Suites {
			plan.commands(i, nil, []string{"test/a.js"}, "R")
		}
		if plan.Runner() == "" {
			t.Error("no words for the runner")
		}
		globMatch(glob, "a/b/c.js")
		resolve(script, map[string]Case{glob: {ID: glob, Place: Place{Name: cfg, Param: mod}}})
	})
}
