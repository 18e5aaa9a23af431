package cli_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/cli"
)

func daybreak(t *testing.T, dir, stdin string, args ...string) (code int, out, errOut string) {
	t.Helper()
	var o, e bytes.Buffer
	getenv := func(k string) string { return map[string]string{"HOME": dir}[k] }
	code = cli.Main(t.Context(), append([]string{"--dir", filepath.Join(dir, "state")}, args...), strings.NewReader(stdin), &o, &e, getenv)
	return code, o.String(), e.String()
}

func TestWrongUsageIsOneLineAndExitCode2(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ args, want string }{
		{"bogus", "unknown command \"bogus\" for \"daybreak\"; see `daybreak --help`"},
		{"verfy", "did you mean `daybreak verify`?; see `daybreak --help`"},
		{"task shwo", "unknown command \"shwo\" for \"daybreak task\"; did you mean `daybreak task show`?; see `daybreak task --help`"},
		{"task ls extra", "see `daybreak task ls --help`"},
		{"task steer", "see `daybreak task steer --help`"},
		{"run", "--repo and --issue are needed"},
		{"run --bogus", "unknown flag: --bogus; see `daybreak run --help`"},
		{"run --repo . --issue " + dir + "/absent", "cannot read the issue"},
		{"run --repo . --issue -", "no model is configured"},
		{"run --repo . --issue - --model gpt", "not of the form provider/model"},
		{"run --repo . --issue - --model nobody/x", "not configured"},
		{"run --repo . --issue - --model anthropic/x", "ANTHROPIC_API_KEY is not set"},
		{"model serve", "\"script\" not set; see `daybreak model serve --help`"},
		{"task show", "there is no task yet; start one with `daybreak run"},
		{"task ls --state in-review", "there is no state \"in-review\"; use some of [queued preparing"},
		{"task show t_nothing", "no task \"t_nothing\""},
		{"task stop", "there is no task yet"},
		{"--config " + dir + "/absent.yaml task ls", "cannot read the configuration"},
	} {
		code, out, errOut := daybreak(t, dir, "Something is wrong\n", strings.Fields(c.args)...)
		if code != 2 || out != "" {
			t.Errorf("%q: exit %d, output %q", c.args, code, out)
		}
		if !strings.HasPrefix(errOut, "daybreak: ") || strings.Count(errOut, "\n") != 1 || !strings.Contains(errOut, c.want) {
			t.Errorf("%q: %q, want one line with %q", c.args, errOut, c.want)
		}
	}
}

func TestNothingYetIsSaidSo(t *testing.T) {
	for args, want := range map[string]string{"task ls": "no tasks yet", "task ls --state failed,merged": "no tasks in that state", "repo ls": "no repositories are registered"} {
		code, out, errOut := daybreak(t, t.TempDir(), "", strings.Fields(args)...)
		if code != 0 || errOut != "" || !strings.Contains(out, want) {
			t.Errorf("%q: exit %d, %q, %q", args, code, out, errOut)
		}
	}
}

func TestGroupsAndDefaultsInHelp(t *testing.T) {
	for args, want := range map[string]string{
		"":               "Usage:\n  daybreak [command]\n",
		"task":           "Usage:\n  daybreak task [command]\n",
		"task ls --help": "Usage:\n  daybreak task ls [flags]\n",
		"serve --help":   "(default: serve.workers)\n",
		"worker --help":  "(default: serve.workers)\n",
	} {
		code, out, errOut := daybreak(t, t.TempDir(), "", strings.Fields(args)...)
		if code != 0 || errOut != "" || !strings.Contains(out, want) {
			t.Errorf("%q: exit %d, %q, %q, want %q", args, code, out, errOut, want)
		}
	}
}

func TestVersionIsShown(t *testing.T) {
	if code, out, _ := daybreak(t, t.TempDir(), "", "--version"); code != 0 || !strings.HasPrefix(out, "daybreak version ") {
		t.Errorf("exit %d, %q", code, out)
	}
}
