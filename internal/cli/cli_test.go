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
		{"bogus", "unknown command"},
		{"run", "--repo and --issue are needed"},
		{"run --bogus", "unknown flag"},
		{"run --repo . --issue " + dir + "/absent", "cannot read the issue"},
		{"run --repo . --issue -", "no model is configured"},
		{"run --repo . --issue - --model gpt", "not of the form provider/model"},
		{"run --repo . --issue - --model nobody/x", "not configured"},
		{"run --repo . --issue - --model anthropic/x", "ANTHROPIC_API_KEY is not set"},
		{"model serve", "script"},
		{"task show", "there is no task yet"},
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
	code, out, errOut := daybreak(t, t.TempDir(), "", "task", "ls")
	if code != 0 || errOut != "" || !strings.Contains(out, "no tasks yet") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
}

func TestVersionIsShown(t *testing.T) {
	if code, out, _ := daybreak(t, t.TempDir(), "", "--version"); code != 0 || !strings.HasPrefix(out, "daybreak version ") {
		t.Errorf("exit %d, %q", code, out)
	}
}
