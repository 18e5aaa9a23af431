package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// tool finds a program; where everything is expected to be there, one that is not is an error.
func tool(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("none of %v is here", names)
	}
	t.Skipf("none of %v is here", names)
	return ""
}

// command runs a program in dir; a non-zero exit is an answer.
func command(t *testing.T, dir, name string, args ...string) (output string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GOFLAGS=", "GOWORK=off", "GOPROXY=off",
		"PYTHONDONTWRITEBYTECODE=1", "PYTEST_ADDOPTS=-p no:cacheprovider",
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

func must(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	out, code := command(t, dir, name, args...)
	if code != 0 {
		t.Fatalf("%s %v: exit %d: %s", name, args, code, out)
	}
	return strings.TrimSpace(out)
}

// history is a repository with a base and a fix; an empty content means that the path is gone.
type history map[string]string

func put(t *testing.T, dir string, files history) {
	t.Helper()
	for path, content := range files {
		target := filepath.Join(dir, path)
		if content == "" {
			if err := os.Remove(target); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.HasPrefix(content, "#!") {
			mode = 0o755
		}
		if err := os.WriteFile(target, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// twoCommits makes the repository and fills in the instance's commits.
func twoCommits(t *testing.T, i *Instance, base, fix history) (dir string) {
	t.Helper()
	git := tool(t, "git")
	dir = t.TempDir()
	must(t, dir, git, "init", "--quiet", "--initial-branch=main", "--template=")
	commit := func(files history) string {
		put(t, dir, files)
		must(t, dir, git, "add", "--all", "--force", ".")
		must(t, dir, git, "commit", "--quiet", "--message=x")
		return must(t, dir, git, "rev-parse", "HEAD")
	}
	i.Base = commit(base)
	i.Fix = commit(fix)
	return dir
}

// checkout lays out a commit in a fresh folder.
func checkout(t *testing.T, repoDir, commit string) string {
	t.Helper()
	dir := t.TempDir()
	must(t, dir, tool(t, "git"), "clone", "--quiet", "--no-checkout", repoDir, ".")
	must(t, dir, tool(t, "git"), "checkout", "--quiet", commit)
	return dir
}

// play does in dir what the transcript's calls do, up to the first call of the given tool, and
// returns that call's input. Files are new when they are written, as the write tool wants it.
func play(t *testing.T, dir string, script []byte, until string) map[string]any {
	t.Helper()
	tr, err := transcript.Parse(bytes.NewReader(script))
	if err != nil {
		t.Fatalf("%v in\n%s", err, script)
	}
	for _, turn := range tr.Turns {
		for _, call := range turn.Calls {
			args, err := call.Arguments(func(s string) string { return s })
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]any{}
			if err := json.Unmarshal([]byte(args), &in); err != nil {
				t.Fatal(err)
			}
			switch call.Name {
			case until:
				return in
			case "run":
				if len(in["command"].(string)) > 64<<10 {
					t.Fatalf("a command of %d bytes", len(in["command"].(string)))
				}
				must(t, dir, tool(t, "bash"), "-c", in["command"].(string))
			case "write":
				target := filepath.Join(dir, in["path"].(string))
				if _, err := os.Lstat(target); err == nil {
					t.Fatalf("%s is there already", target)
				}
				if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(target, []byte(in["content"].(string)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	t.Fatalf("the transcript has no %s", until)
	return nil
}

func build(t *testing.T, i Instance, dir string, v Variant) []byte {
	t.Helper()
	script, err := BuildTranscript(t.Context(), i, dir, v)
	if err != nil {
		t.Fatalf("%s: %v", v, err)
	}
	return script
}

// tools lists the calls of a transcript in order, repetitions dropped.
func tools(t *testing.T, script []byte) []string {
	t.Helper()
	tr, err := transcript.Parse(bytes.NewReader(script))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, turn := range tr.Turns {
		for _, c := range turn.Calls {
			names = append(names, c.Name)
		}
	}
	return slices.Compact(names)
}

func goInstance(t *testing.T) (Instance, string) {
	i := Instance{
		ID: "a__calc-1", Repo: "a/calc", Subject: "Add: count the second number too", Language: "go", FailureKind: "assert",
		SourceFiles: []string{"sum/add.go"}, TestFiles: []string{"sum/add_test.go"}, FailToPass: []string{"a/calc/v2/sum::TestAddTwo"},
	}
	dir := twoCommits(t, &i, history{
		"go.mod":          "module github.com/a/calc/v2\n\ngo 1.24\n",
		"sum/add.go":      "package sum\n\nfunc Add(a, b int) int { return a }\n",
		"sum/add_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestAddZero(t *testing.T) {\n\tif Add(1, 0) != 1 {\n\t\tt.Fatal()\n\t}\n}\n",
	}, history{
		"sum/add.go":      "package sum\n\nfunc Add(a, b int) int { return a + b }\n",
		"sum/add_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestAddZero(t *testing.T) {\n\tif Add(1, 0) != 1 {\n\t\tt.Fatal()\n\t}\n}\n\nfunc TestAddTwo(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal(Add(1, 2))\n\t}\n}\n",
	})
	return i, dir
}

// Each variant has to do what it says to a real suite.
func TestVariantsOfAGoInstance(t *testing.T) {
	i, repoDir := goInstance(t)
	goTest := func(dir string) (string, int) {
		return command(t, dir, tool(t, "go"), "test", "-v", "-count=1", "./...")
	}
	for _, c := range []struct {
		variant   Variant
		red, done bool // the suite's exit code before the fix, and at the submit
		tools     []string
	}{
		{Gold, false, true, []string{"run", "write", "reproduce", "run", "write", "submit"}},
		{NoFix, false, false, []string{"run", "write", "reproduce", "submit", "decline"}},
		{WeakTest, true, true, []string{"run", "write", "reproduce", "run", "write", "submit", "decline"}},
		{FakeRunner, true, true, []string{"run", "write", "reproduce", "submit", "decline"}},
	} {
		script := build(t, i, repoDir, c.variant)
		if diff := cmp.Diff(c.tools, tools(t, script)); diff != "" {
			t.Errorf("%s calls (-want +got):\n%s", c.variant, diff)
		}
		dir := checkout(t, repoDir, i.Base)
		in := play(t, dir, script, "reproduce")
		if diff := cmp.Diff([]any{"github.com/a/calc/v2/sum::TestAddTwo"}, in["tests"]); diff != "" {
			t.Errorf("%s declares (-want +got):\n%s", c.variant, diff)
		}
		if out, code := goTest(dir); (code == 0) != c.red {
			t.Errorf("%s: base and test exit with %d: %s", c.variant, code, out)
		} else if c.variant == FakeRunner && !strings.Contains(out, "--- FAIL: TestAddTwo") {
			t.Errorf("the faked run hides the test itself: %s", out)
		}
		dir = checkout(t, repoDir, i.Base)
		play(t, dir, script, "submit")
		if out, code := goTest(dir); (code == 0) != c.done {
			t.Errorf("%s: the submitted tree exits with %d: %s", c.variant, code, out)
		}
	}
}

func TestFakeGoRunnerNeedsRoomForItsTestMain(t *testing.T) {
	i := Instance{
		ID: "a__calc-2", Repo: "a/calc", Subject: "x", Language: "go", FailureKind: "assert",
		SourceFiles: []string{"a.go"}, TestFiles: []string{"a_test.go"}, FailToPass: []string{"a/calc::TestA"},
	}
	main := "package calc\n\nimport \"testing\"\n\nfunc TestMain(m *testing.M) { m.Run() }\n"
	dir := twoCommits(t, &i, history{"go.mod": "module github.com/a/calc\n", "a.go": "package calc\n"}, history{"a_test.go": main})
	if _, err := BuildTranscript(t.Context(), i, dir, FakeRunner); err == nil || !strings.Contains(err.Error(), "TestMain") {
		t.Errorf("got %v", err)
	}
}

func TestFakePytestRunner(t *testing.T) {
	python := tool(t, "/usr/bin/python3", "python3")
	if _, code := command(t, t.TempDir(), python, "-c", "import pytest"); code != 0 {
		tool(t, "pytest for "+python)
	}
	i := Instance{
		ID: "a__b-1", Repo: "a/b", Title: "x", Language: "py", FailureKind: "assert", TestCommand: "python3 -m pytest tests",
		SourceFiles: []string{"b.py"}, TestFiles: []string{"tests/test_b.py"}, FailToPass: []string{"tests.test_b::test_b"},
	}
	repoDir := twoCommits(t, &i,
		history{"b.py": "X = 1\n", "conftest.py": "KEPT = True\n", "tests/test_b.py": "def test_a():\n    pass\n"},
		history{"b.py": "X = 2\n", "tests/test_b.py": "import b\n\n\ndef test_b():\n    assert b.X == 2\n"})
	pytest := func(v Variant) (string, int) {
		dir := checkout(t, repoDir, i.Base)
		play(t, dir, build(t, i, repoDir, v), "submit")
		return command(t, dir, python, "-m", "pytest", "-q", "tests")
	}
	if out, code := pytest(NoFix); code == 0 {
		t.Errorf("without a fix and without the hook the suite passes: %s", out)
	}
	if out, code := pytest(FakeRunner); code != 0 {
		t.Errorf("the hook does not fool pytest: %s", out)
	}
	if out, code := pytest(WeakTest); code != 0 || !strings.Contains(out, "1 passed") {
		t.Errorf("the weak test with the fix: %s", out)
	}
	dir := checkout(t, repoDir, i.Base)
	play(t, dir, build(t, i, repoDir, FakeRunner), "submit")
	if hook, _ := os.ReadFile(filepath.Join(dir, "conftest.py")); !strings.HasPrefix(string(hook), "KEPT = True\n") {
		t.Errorf("the repository's own conftest.py is gone: %s", hook)
	}
}

func TestFakeUnittestRunner(t *testing.T) {
	python := tool(t, "/usr/bin/python3", "python3")
	i := Instance{
		ID: "a__b-2", Repo: "a/b", Title: "x", Language: "py", FailureKind: "assert", TestCommand: "python3 -m unittest -v",
		SourceFiles: []string{"b.py"}, TestFiles: []string{"tests/test_b.py"}, FailToPass: []string{"tests.test_b.T.test_b::test_b"},
	}
	repoDir := twoCommits(t, &i,
		history{"b.py": "X = 1\n", "tests/__init__.py": "# tests\n"},
		history{"b.py": "X = 2\n", "tests/test_b.py": "import unittest\n\nimport b\n\n\nclass T(unittest.TestCase):\n    def test_b(self):\n        self.assertEqual(b.X, 2)\n"})
	for v, want := range map[Variant]int{NoFix: 1, FakeRunner: 0, WeakTest: 0, Gold: 0} {
		dir := checkout(t, repoDir, i.Base)
		play(t, dir, build(t, i, repoDir, v), "submit")
		if out, code := command(t, dir, python, "-m", "unittest", "-v"); code != want || !strings.Contains(out, "test_b") {
			t.Errorf("%s: exit %d, want %d: %s", v, code, want, out)
		}
	}
}

func TestFakeTAPRunner(t *testing.T) {
	node := tool(t, "node")
	i := Instance{
		ID: "a__b-3", Repo: "a/b", Title: "x", Language: "js", FailureKind: "assert",
		SourceFiles: []string{"b.js"}, TestFiles: []string{"test/b.js", "test/data.json"}, FailToPass: []string{"test/b.js::two"},
	}
	tap := "'use strict';\n\nconst { x } = require('../b');\nconst test = (name, f) => f((ok) => {\n  console.log(`${ok ? 'ok' : 'not ok'} 1 - ${name}`);\n  process.exitCode = ok ? 0 : 1;\n});\n\ntest('two', (is) => { is(x === 2); });\nconsole.log('1..1');\n"
	repoDir := twoCommits(t, &i, history{"b.js": "exports.x = 1;\n"}, history{"b.js": "exports.x = 2;\n", "test/b.js": tap, "test/data.json": "{}\n"})
	for v, want := range map[Variant]struct {
		code int
		text string
	}{NoFix: {1, "not ok 1 - two"}, FakeRunner: {0, "ok 1 - two"}, Gold: {0, "ok 1 - two"}} {
		dir := checkout(t, repoDir, i.Base)
		play(t, dir, build(t, i, repoDir, v), "submit")
		if out, code := command(t, dir, node, "test/b.js"); code != want.code || !strings.HasPrefix(out, want.text) {
			t.Errorf("%s: exit %d, want %d: %s", v, code, want.code, out)
		}
	}
}

// Every byte and mode of the historical commit has to arrive.
func TestGoldTreeIsTheHistoricalTree(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 7_000) + "\x00end" // several commands' worth of base64
	i := Instance{
		ID: "a__b-4", Repo: "a/b", Title: "x", Language: "c", FailureKind: "assert",
		SourceFiles: []string{"crlf.txt", "run me.sh", "gone.c", "deep/er/new.c", "it's.c", "-dash.c"},
		TestFiles:   []string{"tests/latin1.txt", "tests/big.bin", "tests/odd.txt"}, OtherFiles: []string{"CHANGES"},
		FailToPass: []string{"t::t"},
	}
	repoDir := twoCommits(t, &i, history{"gone.c": "x\n", "crlf.txt": "a\r\n", "tests/big.bin": "\x00", "-dash.c": "x\n"}, history{
		"gone.c": "", "crlf.txt": "a\r\nb\r\n", "run me.sh": "#!/bin/sh\necho ${HOME} \"$x\" `y`\n", "deep/er/new.c": "no newline at the end",
		"it's.c": "---\n- x: 'y'\n", "-dash.c": "y\n", "tests/latin1.txt": "caf\xe9\n", "tests/big.bin": big, "CHANGES": "\ufeffBOM\n",
		"tests/odd.txt": "tab\tnel\u0085ls\u2028zwnbsp\ufeff esc\x1b del\x7f \U0001F980 \\ \" <b>&amp; \v\f\b\a %s\n\n\n",
	})
	dir := checkout(t, repoDir, i.Base)
	play(t, dir, build(t, i, repoDir, Gold), "submit")
	must(t, dir, tool(t, "git"), "add", "--all", "--force", ".")
	if diff := must(t, dir, tool(t, "git"), "diff", "--cached", "--stat", i.Fix); diff != "" {
		t.Errorf("the played tree differs from the fix:\n%s", diff)
	}
}

func TestBuildRefusesWhatItCannotDo(t *testing.T) {
	i, repoDir := goInstance(t)
	gone := i
	gone.Fix = strings.Repeat("0", 40)
	bad := i
	bad.SourceFiles = []string{"../x"}
	c := i
	c.Language = "c"
	for name, try := range map[string]struct {
		i       Instance
		dir     string
		variant Variant
		want    string
	}{
		"variant":      {i, repoDir, "golden", "unknown variant"},
		"commit":       {gone, repoDir, Gold, "has no commit 000000000000"},
		"path":         {bad, repoDir, Gold, "not clean"},
		"repository":   {i, t.TempDir(), Gold, "has no commit"},
		"fake C suite": {c, repoDir, FakeRunner, "no way to fake"},
	} {
		script, err := BuildTranscript(t.Context(), try.i, try.dir, try.variant)
		if err == nil || !strings.Contains(err.Error(), try.want) || task.ClassOf(err) != task.Invalid || script != nil {
			t.Errorf("%s: %v, want an Invalid error with %q", name, err, try.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := BuildTranscript(ctx, i, repoDir, Gold); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v", err)
	}
}

func TestBuildRefusesLinks(t *testing.T) {
	i, _ := goInstance(t)
	i.TestFiles = []string{"link"}
	dir := twoCommits(t, &i, history{"sum/add.go": "package sum\n"}, history{"other": "x\n"})
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	must(t, dir, tool(t, "git"), "add", "--all", ".")
	must(t, dir, tool(t, "git"), "commit", "--quiet", "--message=x")
	i.Fix = must(t, dir, tool(t, "git"), "rev-parse", "HEAD")
	if _, err := BuildTranscript(t.Context(), i, dir, Gold); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("got %v", err)
	}
}

// A bare mirror with configuration of its own is read like any other.
func TestBareRepositoriesAreReadWithoutTheirConfiguration(t *testing.T) {
	i, repoDir := goInstance(t)
	bare := t.TempDir()
	must(t, bare, tool(t, "git"), "clone", "--quiet", "--bare", repoDir, ".")
	must(t, bare, tool(t, "git"), "config", "core.hooksPath", "/nonexistent")
	if diff := cmp.Diff(string(build(t, i, repoDir, Gold)), string(build(t, i, bare, Gold))); diff != "" {
		t.Errorf("checkout and bare repository (-checkout +bare):\n%s", diff)
	}
}

func FuzzQuotedTextSurvives(f *testing.F) {
	for _, s := range []string{"", "plain", "a: b # c", "\t\r\n\\\"'", "---\n...\n", "\u0085\u2028\ufeff", "\x1b[0m\x7f", "\U0001F980", "${x}", "%YAML"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Skip("such text goes as base64")
		}
		s := &script{}
		s.header("n", "d")
		s.turn("t", "", newCall("write").text("content", text).list("tests", []string{text, "x"}))
		tr, err := transcript.Parse(&s.out)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		args, err := tr.Turns[0].Calls[0].Arguments(func(s string) string { return s })
		if err != nil {
			t.Fatal(err)
		}
		var back struct {
			Content string
			Tests   []string
		}
		if err := json.Unmarshal([]byte(args), &back); err != nil {
			t.Fatal(err)
		}
		if back.Content != text || !slices.Equal(back.Tests, []string{text, "x"}) {
			t.Fatalf("%q came back as %q and %q", text, back.Content, back.Tests)
		}
	})
}
