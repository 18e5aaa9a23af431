package storybook

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const (
	base = "db9c62894aae5a90e5030545c009431834635e46"
	tree = "bd82acd6a5496bb0ed56bb6b98215f4c0d6a2d4d"
)

// create is the first event of a task, from an issue as it arrived.
func (l *log) create(title, issue string) {
	raw := "# " + title + "\n\n" + issue
	_, text, hidden, err := policy.NormaliseIssue([]byte(raw), 0)
	if err != nil {
		l.err = err
		return
	}
	sum := sha256.Sum256([]byte(raw))
	l.add(0, event.TaskCreated{
		Repo: "https://git.example.com/shop/checkout", Base: base, BaseRef: "main", Target: "main", IssueTitle: title,
		Issue: l.text(text), IssueRaw: l.text(raw), IssueHash: hex.EncodeToString(sum[:]), Hidden: policy.HiddenBytes(hidden),
		Model: "anthropic/claude-sonnet-4-5", RequestedBy: "mira", Key: string(l.id),
		Limits: task.Limits{Steps: 120, Tokens: 8_000_000, Cost: 10_000_000, Wall: time.Hour},
		Origin: &event.Origin{Forge: "work", Number: 214, URL: "https://git.example.com/shop/checkout/issues/214", Trigger: "label", By: "mira", At: l.at},
	})
}

// begin takes a task to its first step.
func (l *log) begin() {
	l.epoch = 1
	l.add(2*time.Second, event.RunStarted{Worker: "build-3:4711", From: 1})
	l.add(0, event.StateChanged{From: task.Queued, To: task.Preparing})
	l.add(400*time.Millisecond, event.SnapshotReady{Digest: "9ae9a49b8a872db489c687188c600e2b", Base: base, Files: 2840, Bytes: 41_000_000, Cached: true, Millis: 38})
	l.add(time.Second, event.SetupStarted{N: 1, Of: 1, Name: "npm", Command: "npm ci", Dir: "web", Why: "web/package-lock.json"})
	l.add(9*time.Second, event.SetupFinished{N: 1, Name: "npm", Command: "npm ci", Millis: 9100, Log: l.text("added 412 packages in 9s\n")})
	l.add(0, event.SetupReady{Digest: "55aa55aa55aa55aa55aa55aa55aa55aa", Commands: []string{"npm ci"}, Millis: 9400})
	l.place("baseline", 6*time.Second)
	l.place("baseline", 5*time.Second)
	l.add(0, event.BaselineFinished{Runner: "go test ./... (go)", Command: "go test ./...", Passed: 1204, Failed: 2, Skipped: 9, Runs: 2, Flaky: []string{"pricing::TestRates"}, Document: l.ledger()})
	l.add(0, event.StageFinished{Stage: "baseline", Millis: 12_300})
	l.add(200*time.Millisecond, event.NetworkOpened{Purpose: "agent", Mode: "registries", Upstreams: []string{"go proxy.example.com", "npm registry.example.com"}, Known: 412})
	l.add(0, event.SandboxStarted{ID: "a126b615", Purpose: "agent", Runtime: "runc 1.5.3", Isolation: "namespaces", Profile: strings.Repeat("a2", 32), Limits: "2 cpu, 4 GiB", Millis: 92})
	l.add(0, event.StateChanged{From: task.Preparing, To: task.Working})
}

func (l *log) place(purpose string, d time.Duration) {
	id := fmt.Sprintf("%08x", len(l.events))
	l.add(0, event.SandboxStarted{ID: id, Purpose: purpose, Runtime: "runc 1.5.3", Isolation: "namespaces", Millis: 61})
	l.add(d, event.SandboxEnded{ID: id, Reason: "done"})
}

func (l *log) ledger() event.Text {
	tests := map[string]task.TestStatus{"pricing::TestRates": task.Flaky, "orders::TestLegacyExport": task.Fail, "orders::TestOldInvoices": task.Fail}
	for i := range 60 {
		tests[fmt.Sprintf("cart::TestCase%02d", i)] = task.Pass
	}
	return l.json(map[string]any{"base": base, "tests": tests})
}

// call is one tool call with its result.
type call struct {
	name   string
	args   any
	result string
	exit   int // -1: the tool has none
	err    bool
	open   bool
}

// think is one step: what the model says, and the calls.
func (l *log) think(says string, calls ...call) {
	l.step++
	l.add(300*time.Millisecond, event.ModelRequested{Step: l.step, Model: "anthropic/claude-sonnet-4-5", Messages: 2*l.step - 1})
	blocks := []map[string]any{{"type": "text", "text": says}}
	for i, c := range calls {
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": fmt.Sprintf("call_%d_%d", l.step, i), "name": c.name, "input": c.args})
	}
	in := int64(400 + l.step%7*90)
	l.add(4*time.Second, event.ModelResponded{
		Step: l.step, Message: l.json(map[string]any{"role": "assistant", "blocks": blocks}), Stop: "tool_use",
		Tokens: task.Tokens{Input: 12, CacheWrite: in, CacheRead: 3900 + 300*int64(l.step%200), Output: 180}, Cost: 7400, Attempts: 1, First: 620, Millis: 3900, Priced: true,
	})
	for i, c := range calls {
		l.tool(fmt.Sprintf("call_%d_%d", l.step, i), c)
	}
}

func (l *log) tool(id string, c call) {
	args, err := json.Marshal(c.args)
	if err != nil {
		l.err = err
	}
	l.add(0, event.ToolStarted{Step: l.step, Call: id, Name: c.name, Args: l.text(string(args))})
	if c.open {
		return
	}
	f := event.ToolFinished{Step: l.step, Call: id, Name: c.name, Result: l.text(c.result), IsError: c.err, Millis: 1400}
	if c.exit >= 0 {
		f.ExitCode = &c.exit
	}
	l.add(1400*time.Millisecond, f)
}

type args = map[string]any

// work is what most stories have in common up to the submission.
func (l *log) work(diff string) {
	l.think("The price is kept after the coupon is gone. I look at who keeps it.",
		call{name: "search", args: args{"pattern": "Quotes\\b|removeCoupon"}, result: "18 matching lines in 7 files\n     7  cart/cart_test.go\n     5  cart/cart.go\n", exit: -1},
		call{name: "read", args: args{"path": "cart/coupons.go"}, result: "cart/coupons.go, lines 1-23 of 23\n     1\tpackage cart\n", exit: -1})
	l.think("`RemoveCoupon` is the one change that does not count a revision.\n\n- `Add` calls `changed()`\n- `RemoveCoupon` does **not**\n\n```go\nfunc (c *Cart) RemoveCoupon(code string) {\n```",
		call{name: "edit", args: args{"path": "cart/coupons.go", "old": "\tc.Coupons = slices.Delete(c.Coupons, i, i+1)\n}", "new": "\tc.Coupons = slices.Delete(c.Coupons, i, i+1)\n\tc.changed()\n}"}, result: "Edited cart/coupons.go: 1 replacement, from line 22.\n", exit: -1},
		call{name: "run", args: args{"command": "go test ./..."}, result: "exit code 0 · 3.43 s\n" + strings.Repeat("ok  \texample.com/checkout/api\t0.004s\n", 60), exit: 0})
	l.add(time.Second, event.WorkspaceSaved{Step: l.step, Why: "submit", Diff: l.text(diff), Files: 2})
}

// submit hands the change to verification.
func (l *log) submit(diff string, paths ...string) {
	l.think("Submitting.", call{name: "submit", args: args{"title": "Count taking a coupon off as a change of the cart"}, open: true})
	l.add(0, event.Submitted{Step: l.step, Title: "Count taking a coupon off as a change of the cart", Cause: "`Cart.RemoveCoupon` was the one change of a cart that did not count a new revision.", Fix: "It counts one now.", Tests: []string{"TestRemovedCouponRestoresThePrice"}})
	l.add(0, event.StateChanged{From: task.Working, To: task.Verifying})
	l.add(0, event.Exported{Manifest: strings.Repeat("50", 32), Tree: tree, Paths: paths, Diff: l.text(diff)})
	for _, p := range []string{"red", "red", "red", "green", "green", "green", "guard"} {
		l.place(p, 900*time.Millisecond)
	}
}

// verdict ends a verification.
func (l *log) verdict(v task.Verdict) {
	l.add(time.Second, event.VerificationFinished{Attempt: 1, Kind: v.Kind, Reason: v.Reason, Document: l.json(v), Millis: 7400})
	l.verified = int64(len(l.events))
	l.add(0, event.ToolFinished{Step: l.step, Call: fmt.Sprintf("call_%d_0", l.step), Name: "submit", Result: l.text("Verdict: " + string(v.Kind) + ". " + v.Reason), IsError: !v.Kind.Accepted(), Millis: 7500})
}

// good is the verdict of a change that fixes the bug.
func (l *log) good() task.Verdict {
	run := func(exit, passed, failed int, out string) task.RunRecord {
		return task.RunRecord{Command: "go test -run '^TestRemovedCouponRestoresThePrice$' ./api", ExitCode: exit, Millis: 431, Passed: passed, Failed: failed, Outcome: "complete", Log: l.blob(out)}
	}
	red := "=== RUN   TestRemovedCouponRestoresThePrice\n    coupon_removal_test.go:14: \x1b[31mtotal after the coupon was removed = 32.61, want 35.58\x1b[0m\n--- FAIL: TestRemovedCouponRestoresThePrice (0.00s)\nFAIL\n"
	green := "=== RUN   TestRemovedCouponRestoresThePrice\n--- PASS: TestRemovedCouponRestoresThePrice (0.00s)\nPASS\nok  \texample.com/checkout/api\t0.004s\n"
	return task.Verdict{
		Kind: task.Verified, Reason: "the test fails on the base for the right reason and passes with the change; the suite is no worse than before",
		Base: base, HeadTree: tree, Tests: []string{"api/coupon_removal_test.go"}, Source: []string{"cart/coupons.go"},
		Reproduction: []task.Reproduction{{Test: "example.com/checkout/api::TestRemovedCouponRestoresThePrice", Rerun: "go test -run '^TestRemovedCouponRestoresThePrice$' ./api", Base: task.Fail, BaseSignature: "total after the coupon was removed = 32.61, want 35.58 @ coupon_removal_test.go", BaseOutput: red, Head: task.Pass, BaseRuns: 3, HeadRuns: 3}},
		Suite:        task.SuiteResult{BaselineFailed: 2, Passed: 1205, Skipped: 9, Flaky: []string{"pricing::TestRates"}, Command: "go test ./..."},
		Guard: &task.Guard{
			Hunks:    []task.Probe{{Path: "cart/coupons.go", Line: 23, What: "reverted", Outcome: task.Caught, By: "example.com/checkout/api::TestRemovedCouponRestoresThePrice"}},
			Mutants:  []task.Probe{{Path: "cart/coupons.go", Line: 23, What: "deleted statement", Old: "c.changed()", Outcome: task.Caught, By: "example.com/checkout/api::TestRemovedCouponRestoresThePrice"}},
			Coverage: &task.Coverage{Lines: 1, Run: 1, Tool: "go test -cover"}, Complete: true, Millis: 2184,
		},
		Phases: []task.PhaseRecord{
			{Phase: "P0", Name: "prepare", Note: "go: go.mod with _test.go files below it", Millis: 821, Complete: true},
			{Phase: "P1", Name: "baseline", Runs: []task.RunRecord{{Command: "go test ./...", Millis: 23_831, Passed: 1204, Failed: 2, Skipped: 9, Outcome: "complete", ExitCode: 1, Log: l.blob("FAIL orders\n")}}, Millis: 24_760, Complete: true},
			{Phase: "P2", Name: "split", Note: "1 test file, 1 source file, 0 configuration files", Complete: true},
			{Phase: "P3", Name: "red", Runs: []task.RunRecord{run(1, 0, 1, red), run(1, 0, 1, red), run(1, 0, 1, red)}, Millis: 1458, Complete: true},
			{Phase: "P4", Name: "green", Runs: []task.RunRecord{run(0, 1, 0, green), run(0, 1, 0, green)}, Millis: 1095, Complete: true},
			{Phase: "P5", Name: "regression", Runs: []task.RunRecord{{Command: "go test ./...", Millis: 854, Passed: 1205, Failed: 2, Skipped: 9, Outcome: "complete", ExitCode: 1, Log: l.blob("FAIL orders\n")}}, Millis: 914, Complete: true},
			{Phase: "P7", Name: "tamper", Note: "0 findings", Complete: true},
			{Phase: "P6", Name: "guard", Note: "hunks reverted: 1 noticed, 0 not", Millis: 2184, Complete: true},
		},
		Table: &task.Table{
			Tests: []task.TableTest{
				{Test: "example.com/checkout/api::TestRemovedCouponRestoresThePrice", Why: "reproduction", Rerun: "go test -run '^TestRemovedCouponRestoresThePrice$' ./api"},
				{Test: "pricing::TestRates", Why: "flaky", Rerun: "go test -run '^TestRates$' ./pricing"},
				{Test: "example.com/checkout/api::TestRemovedTwice", Why: "new"},
			},
			Runs: []task.TableRun{
				{Phase: "P1", What: "base", Millis: 12_831, Seen: ".p.", Took: []int64{0, 4, 0}},
				{Phase: "P1", What: "base", Millis: 11_000, Seen: ".f."},
				{Phase: "P3", What: "base + tests", Millis: 431, Seen: "f.."},
				{Phase: "P3", What: "base + tests", Millis: 431, Seen: "f.."},
				{Phase: "P3", What: "base + tests", Millis: 431, Seen: "f.."},
				{Phase: "P4", What: "alone", Millis: 431, Seen: "p.."},
				{Phase: "P4", What: "alone", Millis: 431, Seen: "p.."},
				{Phase: "P5", What: "whole suite", Millis: 854, Seen: "ppp", Took: []int64{2, 4, 1}},
				{Phase: "P6", What: "reverted", Path: "cart/coupons.go", Line: 23, Result: task.Caught, Millis: 400, Seen: "f.."},
				{Phase: "P6", What: "deleted statement", Path: "cart/coupons.go", Line: 23, Result: task.Caught, Millis: 400, Seen: "f.."},
			},
		},
		Runner: "go test ./... (go)", Environment: "9ae9a49b8a872db489c687188c600e2b", Verifier: "daybreak-verify/1",
		Sandbox: task.Isolation{Runtime: "runc 1.5.3", Isolation: "namespaces", Profile: strings.Repeat("a2", 32)},
	}
}

// publish opens the pull request.
func (l *log) publish() {
	l.add(0, event.EvidenceSigned{Digest: "sha256:" + strings.Repeat("5e", 32), Key: "1e33593c2d8cd587", Verification: l.verified, Bundle: l.text("{}\n")})
	l.add(0, event.EffectIntended{Key: "push", Kind: "push"})
	l.add(700*time.Millisecond, event.EffectDone{Key: "push", Kind: "push"})
	l.add(0, event.EffectIntended{Key: "pull_request", Kind: "pull_request"})
	l.add(500*time.Millisecond, event.EffectDone{Key: "pull_request", Kind: "pull_request"})
	l.add(0, event.PullRequestOpened{Branch: "daybreak/" + string(l.id) + "-count-taking-a-coupon-off", Head: "032f6c47f0743f8b7df2aef192ea4dfbf8b70e77", URL: "https://git.example.com/shop/checkout/pulls/219", Number: 219, Title: "Count taking a coupon off as a change of the cart", Body: l.text("## Cause\n\n`Cart.RemoveCoupon` was the one change of a cart that did not count a new revision.\n\n## Evidence\n\n| | before | after |\n|---|---|---|\n| TestRemovedCouponRestoresThePrice | fails | passes |\n"), Draft: true})
	l.add(0, event.StageFinished{Stage: "publish", Millis: 1400})
	l.add(0, event.StateChanged{From: task.Publishing, To: task.InReview})
	last := l.events[len(l.events)-1]
	l.add(0, event.Checkpoint{Seq: last.Seq, Root: last.Hash, KeyID: "1e33593c2d8cd587", Signature: "AAAA"})
}

const diffSmall = `diff --git a/api/coupon_removal_test.go b/api/coupon_removal_test.go
new file mode 100644
index 0000000..4e6c112
--- /dev/null
+++ b/api/coupon_removal_test.go
@@ -0,0 +1,9 @@
+package api
+
+import "testing"
+
+func TestRemovedCouponRestoresThePrice(t *testing.T) {
+	if got := total(t); got != "35.58" {
+		t.Fatalf("total after the coupon was removed = %v, want 35.58", got)
+	}
+}
diff --git a/cart/coupons.go b/cart/coupons.go
index f03acc0..80b278b 100644
--- a/cart/coupons.go
+++ b/cart/coupons.go
@@ -20,4 +20,5 @@ func (c *Cart) RemoveCoupon(code string) {
 		return
 	}
 	c.Coupons = slices.Delete(c.Coupons, i, i+1)
+	c.changed() // so that a kept price is not used any more
 }
`
