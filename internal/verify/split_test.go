package verify

import (
	"slices"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestHooksBesideTests: a file with tests of its own is among the tests, whatever else is in it;
// what could make an outcome up is asked about with the base's copy all the same.
func TestHooksBesideTests(t *testing.T) {
	s := sample{map[string]map[string]string{"base": {"price.py": "x = 1\n"}}}
	v, _ := newVerifier(t, Settings{})
	for _, c := range []struct {
		path, text  string
		tests, hook bool
	}{
		{"test_fork.py", "import os\n\ndef test_fork():\n    if os.fork() == 0:\n        os._exit(0)\n", true, false},
		{"test_exit.py", "import os\n\ndef test_exit():\n    os._exit(0)\n", true, true},
		{"tests/helper.py", "import os\n\ndef leave():\n    os._exit(0)\n", false, true},
		{"test_hook.py", "import os\n\ndef pytest_runtest_makereport(item, call):\n    os.fork()\n\ndef test_a():\n    assert 1\n", true, true},
		{"conftest.py", "import os\n\ndef pytest_runtest_makereport(item, call):\n    pass\n\ndef test_a():\n    assert 1\n", false, true},
		{"test/a.test.js", "it('ends', () => {});\nprocess.exit(0);\n", true, true},
		{"test/setup.js", "process.on('exit', () => {});\n", false, true},
		{"test/fork_test.rb", "class ForkTest < Minitest::Test\n  def test_fork\n    fork do\n      exit! 0\n    end\n  end\nend\n", true, false},
		{"src/test/java/CartTest.java", "class CartTest {\n  @Test void leaves() {\n    System.exit(0);\n  }\n}\n", true, true},
		{"tests/fork_test.c", "int main(void) {\n  if (fork() == 0)\n    _exit(0);\n  return 0;\n}\n", true, false},
		{"tests/CartTest.php", "<?php\nclass CartTest extends TestCase {\n  public function testLeaves() {\n    exit(0);\n  }\n}\n", true, true},
		{"cart/cart_test.go", "package cart\n\nfunc TestMain(m *testing.M) {\n\tos.Exit(0)\n}\n\nfunc TestSum(t *testing.T) {}\n", true, false},
		{"test_plain.py", "def test_a():\n    assert 1\n", true, false},
	} {
		p, err := v.split(Job{Snapshot: s.snapshot(t, "base"), Changes: []git.Change{{Path: c.path, Mode: git.ModeFile, Content: []byte(c.text)}}})
		if err != nil {
			t.Fatal(err)
		}
		if tests, hook := slices.Contains(paths(p.tests), c.path), slices.Contains(paths(p.hooks), c.path); tests != c.tests || hook != c.hook || tests == slices.Contains(paths(p.config), c.path) {
			t.Errorf("%s: tests %t, hook %t, configuration %v; want tests %t, hook %t\n%v", c.path, tests, hook, paths(p.config), c.tests, c.hook, p.tamper.Findings)
		}
	}
}

func TestVerifyForks(t *testing.T) {
	needCommand(t, "/usr/bin/python3", "-m", "pytest", "--version")
	one := []string{"test_net"}
	prove(t, "guard.txtar", Settings{}, []proofCase{
		{name: "a child that leaves", change: []string{"forks", "fix"}, declared: one, want: task.Verified, findings: "the process ends from inside a test", red: task.Verified},
		{name: "a child that leaves, nothing declared", change: []string{"forks", "fix"}, want: task.Verified, findings: "the process ends from inside a test"},
		{name: "a child that leaves, and no fix", change: []string{"forks"}, declared: one, want: task.NotFixed},
		{name: "beside code that can make outcomes up", change: []string{"plugs", "fix"}, declared: one, want: task.NeedsHuman, reason: "test_price.py, which holds tests and can change their outcome", red: task.Verified},
	})
}
