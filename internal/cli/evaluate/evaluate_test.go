package evaluate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/eval"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

func TestJudge(t *testing.T) {
	i := eval.Instance{FailureKind: "assert"}
	for _, c := range []struct {
		variant eval.Variant
		verdict task.VerdictKind
		state   task.State
		want    Judgement
	}{
		{eval.Gold, task.Verified, task.InReview, Right},
		{eval.Gold, task.VerifiedWeak, task.InReview, Right},
		{eval.Gold, task.NeedsHuman, task.InReview, Right},
		{eval.Gold, task.Verified, task.Failed, NotPlayed},
		{eval.Gold, task.VerifiedScript, task.InReview, FalseReject},
		{eval.Gold, task.Regression, task.Failed, FalseReject},
		{eval.Gold, task.WeakRed, task.Failed, FalseReject},
		{eval.Gold, task.EnvBlocked, task.Failed, NotPlayed},
		{eval.Gold, "", task.Failed, NotPlayed},
		{eval.NoFix, task.NotFixed, task.Declined, Right},
		{eval.NoFix, task.NotReproducing, task.Declined, WrongReason},
		{eval.NoFix, task.Verified, task.InReview, FalseAccept},
		{eval.NoFix, task.VerificationFail, task.Failed, NotPlayed},
		{eval.WeakTest, task.NotReproducing, task.Declined, Right},
		{eval.WeakTest, task.VerifiedWeak, task.InReview, FalseAccept},
		{eval.FakeRunner, task.Tamper, task.Declined, Right},
		{eval.FakeRunner, task.NeedsHuman, task.Publishing, FalseAccept},
	} {
		got := judge(c.variant, i.Acceptable(c.variant), worker.Result{Verdict: c.verdict, State: c.state})
		if got != c.want {
			t.Errorf("%s that ends as %s, %s: %s, want %s", c.variant, c.verdict, c.state, got, c.want)
		}
	}
	i.FailureKind = "compile"
	if got := judge(eval.Gold, i.Acceptable(eval.Gold), worker.Result{Verdict: task.WeakRed, State: task.Failed}); got != Right {
		t.Errorf("a historical test that does not build on the base is %s", got)
	}
}

func TestSumsAndExit(t *testing.T) {
	code := func(judgements ...Judgement) int {
		var s Sums
		for _, j := range judgements {
			s.add(Outcome{Judgement: j})
		}
		if s.Cases != len(judgements) || s.Right+s.FalseAccepts+s.FalseRejects+s.WrongReasons+s.NotPlayed != s.Cases {
			t.Errorf("%v sum up to %+v", judgements, s)
		}
		return kit.CodeOf(s.exit())
	}
	for want, judgements := range map[int][]Judgement{
		kit.OK:          {Right, Right},
		kit.NotVerified: {Right, NotPlayed, FalseReject},
		kit.Failure:     {Right, NotPlayed},
		kit.Usage:       {},
	} {
		if got := code(judgements...); got != want {
			t.Errorf("%v: exit code %d, want %d", judgements, got, want)
		}
	}
	for _, j := range []Judgement{FalseAccept, WrongReason} {
		if got := code(j); got != kit.NotVerified {
			t.Errorf("%s: exit code %d", j, got)
		}
	}
}

func TestReportSaysWhatWasWrong(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out, false, 0)
	r.begin("/data", 2)
	r.add(Outcome{Instance: "o__n-1", Variant: eval.Gold, Verdict: task.Verified, Judgement: Right, Reason: "fine"})
	r.add(Outcome{Instance: "o__n-1", Variant: eval.NoFix, Verdict: task.Verified, Judgement: FalseAccept, Wanted: []task.VerdictKind{task.NotFixed}, Task: "t_1", Reason: "\x1b[31mred " + strings.Repeat("é", 500)})
	r.end()
	for _, want := range []string{"2 cases; records below /data", "1 right, 1 false accepts, 0 false rejects", "wanted [not_fixed]", "task show t_1"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Error("a reason reached the terminal raw")
	}
}

func TestEachRunsAtOnceUpToJobs(t *testing.T) {
	for _, jobs := range []int{1, 3} {
		var running, done atomic.Int64
		var mu sync.Mutex
		var most int64
		together := make(chan struct{})
		instances := make([]eval.Instance, 7)
		each(t.Context(), jobs, instances, func(eval.Instance) {
			mu.Lock()
			most = max(most, running.Add(1))
			mu.Unlock()
			if done.Add(1) == int64(jobs) {
				close(together)
			}
			<-together // the first ones wait until as many are here
			running.Add(-1)
		})
		if done.Load() != 7 || most != int64(jobs) {
			t.Errorf("%d jobs: %d instances done, %d at once", jobs, done.Load(), most)
		}
	}
}

func TestSelection(t *testing.T) {
	file := filepath.Join(t.TempDir(), "instances.jsonl")
	write(t, file, instance("a__x-1", "", "")+instance("a__x-11", "", "")+instance("b__x-2", "", ""))
	for _, c := range []struct {
		only []string
		want string
	}{
		{nil, "a__x-1 a__x-11 b__x-2"},
		{[]string{"x-2", "a__x-1"}, "b__x-2 a__x-1"},
		{[]string{"x-1", "x-1"}, ""},
		{[]string{"x-3"}, ""},
	} {
		got, err := load(file, c.only)
		var ids []string
		for _, i := range got {
			ids = append(ids, i.ID)
		}
		if strings.Join(ids, " ") != c.want || (err != nil) != (c.want == "") {
			t.Errorf("--only %v: %v, %v", c.only, ids, err)
		}
	}
	if _, err := load(file+".absent", nil); kit.CodeOf(err) != kit.Usage {
		t.Errorf("absent file: %v", err)
	}
	if got, err := choose(nil); err != nil || !slices.Equal(got, eval.Variants()) {
		t.Errorf("all variants: %v, %v", got, err)
	}
	if _, err := choose([]string{"gold", "silver"}); kit.CodeOf(err) != kit.Usage || !strings.Contains(err.Error(), "silver") {
		t.Errorf("unknown variant: %v", err)
	}
}

func TestLastLine(t *testing.T) {
	for _, c := range []struct {
		writes []string
		want   string
	}{
		{[]string{"a\nb\n"}, "b"},
		{[]string{"a", "b\nc", "d", "\n"}, "cd"},
		{[]string{"a\n", "not ended"}, "a"},
		{nil, ""},
	} {
		var l lastLine
		for _, w := range c.writes {
			if n, err := fmt.Fprint(&l, w); n != len(w) || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		if string(l.line) != c.want {
			t.Errorf("%q: %q", c.writes, l.line)
		}
	}
}

func TestWithoutARepositoryTheCaseIsNotPlayed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "instances.jsonl")
	write(t, file, instance("a__x-1", "", ""))
	out, err := command(t, "--instances", file, "--repos", dir, "--variant", "gold", "--json")
	if kit.CodeOf(err) != kit.Failure || len(out) != 2 || out[0].Judgement != NotPlayed || !strings.Contains(out[0].Reason, "git clone --mirror") {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestRealAndCheating replays a fix of a tiny repository: all of it, and each way to cheat.
func TestRealAndCheating(t *testing.T) {
	config := sandboxConfig(t)
	if err := exec.Command("/usr/bin/python3", "-m", "pytest", "--version").Run(); err != nil {
		lacking(t, "pytest is not installed for /usr/bin/python3")
	}
	dir := t.TempDir()
	repo := filepath.Join(dir, "repos", "own+tiny")
	base, fix := history(t, repo)
	file := filepath.Join(dir, "instances.jsonl")
	write(t, file, instance("own__tiny-7", base, fix))
	before := runGit(t, repo, "for-each-ref")
	begin := time.Now()
	out, err := command(t, "--config", config, "--instances", file, "--repos", filepath.Join(dir, "repos"), "--json")
	t.Logf("%v", time.Since(begin))
	if err != nil {
		t.Errorf("%v", err)
	}
	got := map[eval.Variant]task.VerdictKind{}
	for _, o := range out {
		if o.Type == "sums" {
			continue
		}
		if o.Judgement != Right {
			t.Errorf("%+v", o)
		}
		got[o.Variant] = o.Verdict
	}
	want := map[eval.Variant]task.VerdictKind{eval.Gold: task.Verified, eval.NoFix: task.NotFixed, eval.WeakTest: task.NotReproducing, eval.FakeRunner: task.Tamper}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("verdicts:\n%s", d)
	}
	if after := runGit(t, repo, "for-each-ref"); after != before {
		t.Errorf("the operator's repository was written:\n%s", after)
	}
}

// command runs "eval run" and decodes what it prints.
func command(t *testing.T, args ...string) ([]Outcome, error) {
	t.Helper()
	var out, errOut bytes.Buffer
	env := &kit.Env{Out: &out, Err: &errOut, Getenv: func(k string) string { return map[string]string{"PATH": os.Getenv("PATH")}[k] }, Now: time.Now}
	cmd := NewCmd(env)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.Flags().StringVar(&env.ConfigPath, "config", "", "") // the root command's
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	var outcomes []Outcome
	for _, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
		var o Outcome
		if e := json.Unmarshal([]byte(line), &o); e != nil {
			t.Fatalf("%v in %q (stderr: %s)", e, line, errOut.String())
		}
		outcomes = append(outcomes, o)
	}
	return outcomes, err
}

func instance(id, base, fix string) string {
	if base == "" {
		base, fix = strings.Repeat("a", 40), strings.Repeat("b", 40)
	}
	return fmt.Sprintf(`{"instance_id": %q, "repo": "own/tiny", "base_commit": %q, "fix_commit": %q, "subject": "Count the last item", "language": "py", `+
		`"src_files": ["cart.py"], "test_files": ["tests/test_cart.py"], "test_cmd": "python3 -m pytest", "base_failure_kind": "assert", `+
		`"FAIL_TO_PASS": ["tests.test_cart::test_total"], "kind": "bug"}`+"\n", id, base, fix)
}

// history makes a repository with a bug, and then the fix with its test.
func history(t *testing.T, dir string) (base, fix string) {
	t.Helper()
	write(t, filepath.Join(dir, "cart.py"), "def total(items):\n    return sum(items[:-1])\n\n\ndef count(items):\n    return len(items)\n")
	write(t, filepath.Join(dir, "tests/test_cart.py"), "from cart import count, total\n\n\ndef test_count():\n    assert count([1, 2]) == 2\n\n\ndef test_empty():\n    assert total([]) == 0\n")
	runGit(t, dir, "init", "--quiet", "--initial-branch=main", "--template=")
	runGit(t, dir, "add", ".")
	runGit(t, dir, "commit", "--quiet", "--message=base")
	base = runGit(t, dir, "rev-parse", "HEAD")
	write(t, filepath.Join(dir, "cart.py"), "def total(items):\n    return sum(items)\n\n\ndef count(items):\n    return len(items)\n")
	write(t, filepath.Join(dir, "tests/test_cart.py"), "from cart import count, total\n\n\ndef test_count():\n    assert count([1, 2]) == 2\n\n\ndef test_empty():\n    assert total([]) == 0\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n")
	runGit(t, dir, "commit", "--quiet", "--all", "--message=fix")
	fix = runGit(t, dir, "rev-parse", "HEAD")
	runGit(t, dir, "checkout", "--quiet", "--detach")
	runGit(t, dir, "branch", "--quiet", "--force", "main", base) // the fix is on no branch
	return base, fix
}

func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// sandboxConfig is an operator's file that names the helper programs.
func sandboxConfig(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		lacking(t, "the sandbox needs root")
	}
	runc, err := filepath.Abs("../../../.tools/bin/runc")
	if err == nil {
		_, err = os.Stat(runc)
	}
	if err != nil {
		if runc, err = exec.LookPath("runc"); err != nil {
			lacking(t, "no runc: run make setup")
		}
	}
	dir := t.TempDir()
	guest := filepath.Join(dir, "daybreak-guest")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", guest, "github.com/daybreak-agent/daybreak/cmd/daybreak-guest")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v: %s", err, out)
	}
	config := filepath.Join(dir, "daybreak.yaml")
	write(t, config, fmt.Sprintf("sandbox:\n  runtime_path: %s\n  guest_path: %s\nmirror: {off: [go, npm, pypi, crates, maven, debian]}\n", runc, guest))
	return config
}

func lacking(t *testing.T, msg string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(msg)
	}
	t.Skip(msg)
}
