package verify

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/task"
)

type proofCase struct {
	name     string
	base     []string // layers; default "base"
	change   []string
	declared []string
	hang     bool
	want     task.VerdictKind
	reason   string // part of the reason
	findings string // part of a finding's path and detail
	red      task.VerdictKind
}

// prove runs the cases of one sample; cases on the same base share its baseline.
func prove(t *testing.T, file string, settings Settings, cases []proofCase) {
	t.Helper()
	settings.Guard = cmp.Or(settings.Guard, -1) // what the tests guard is the subject of other tests
	s := loadSample(t, file)
	baselines := map[string]Baseline{}
	dirs := map[string]string{}
	for _, c := range cases {
		dir := t.TempDir()
		t.Run(c.name, func(t *testing.T) {
			ctx := context.Background()
			v, lab := newVerifier(t, settings)
			layers := c.base
			if layers == nil {
				layers = []string{"base"}
			}
			snap := s.snapshot(t, layers...)
			key := strings.Join(layers, "+")
			dirs[key] = cmp.Or(dirs[key], dir)
			moveTo(v, lab, dirs[key])
			base, ok := baselines[key]
			if !ok {
				var err error
				v.Settings.Timeout = 5 * time.Minute
				if base, err = v.Baseline(ctx, snap, nil); err != nil {
					t.Fatal(err)
				}
				v.Settings = settings
				base = roundTrip(t, base)
				baselines[key] = base
			}
			job := Job{Snapshot: snap, HeadTree: "tree", Changes: s.changes(t, c.change...), Declared: c.declared, Hang: c.hang, Baseline: base}
			got, err := v.Verify(ctx, job)
			if err != nil {
				t.Fatal(err)
			}
			if got.Kind != c.want || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("verdict %s: %s\nwant %s: …%s…\n%s", got.Kind, got.Reason, c.want, c.reason, outline(got))
			}
			if c.findings != "" && !strings.Contains(show(got), c.findings) {
				t.Errorf("no finding with %q in\n%s", c.findings, show(got))
			}
			for _, ph := range got.Phases {
				for _, r := range ph.Runs {
					if r.Log == "" && r.Outcome != "timeout" {
						t.Errorf("%s: run %q has no log", ph.Phase, r.Command)
					}
				}
			}
			if got.Kind == task.Verified && len(got.Reproduction) == 0 {
				t.Error("verified without a reproduction")
			}
			for _, r := range got.Reproduction {
				if got.Kind == task.Verified && (r.Base != task.Fail && r.Base != task.Timeout || r.Head != task.Pass || r.BaseRuns < 3 || r.HeadRuns < 3 || r.Rerun == "") {
					t.Errorf("verified on thin evidence: %+v", r)
				}
			}
			if lab.runs == nil && c.want != task.NoChange && c.want != task.EnvBlocked {
				t.Error("decided without a run")
			}
			if c.red != "" {
				answer, err := v.Reproduce(ctx, job)
				if err != nil {
					t.Fatal(err)
				}
				if answer.Kind != c.red || answer.Text == "" {
					t.Errorf("Reproduce says %s, want %s:\n%s", answer.Kind, c.red, answer.Text)
				}
			}
		})
	}
}

func show(v task.Verdict) string {
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// outline is what a failing test needs of a verdict.
func outline(v task.Verdict) string {
	var b strings.Builder
	for _, ph := range v.Phases {
		fmt.Fprintf(&b, "%s %s: %s\n", ph.Phase, ph.Name, ph.Note)
		for _, r := range ph.Runs {
			fmt.Fprintf(&b, "  $ %s → %d %s, %d/%d/%d/%d\n", r.Command, r.ExitCode, r.Outcome, r.Passed, r.Failed, r.Skipped, r.NotRun)
		}
	}
	return b.String() + v.Detail
}

func roundTrip(t *testing.T, b Baseline) Baseline {
	t.Helper()
	data, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	var back Baseline
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(back)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(data), string(again)); diff != "" {
		t.Fatalf("the baseline does not survive JSON: %s", diff)
	}
	return back
}

func TestVerifyGo(t *testing.T) {
	needCommand(t, "go", "version")
	one := []string{"TestCoupon"}
	prove(t, "go.txtar", Settings{Timeout: 2 * time.Minute}, []proofCase{
		{name: "verified", change: []string{"test", "fix"}, declared: one, want: task.Verified, red: task.Verified},
		{name: "nothing declared", change: []string{"test", "fix"}, want: task.Verified},
		{name: "a vendored assertion made blind", base: []string{"base", "vendored"}, change: []string{"libtest", "blindvendor"}, declared: one, want: task.Tamper, reason: "vendor/example.com/is/is.go"},
		{name: "a blind module in another's place", base: []string{"base", "replaced"}, change: []string{"libtest", "blindmodule"}, declared: one, want: task.Tamper, reason: "go.mod"},
		{name: "a true fix beside vendored code", base: []string{"base", "vendored"}, change: []string{"libtest", "fix"}, declared: one, want: task.Verified},
		{name: "nothing declared and no fix", change: []string{"test"}, want: task.NotFixed},
		{name: "no change", declared: one, want: task.NoChange},
		{name: "no fix", change: []string{"test"}, declared: one, want: task.NotFixed, reason: "TestCoupon"},
		{name: "wrong fix", change: []string{"test", "wrongfix"}, declared: []string{"./cart.TestCoupon"}, want: task.NotFixed, reason: "181"},
		{name: "fix without its test", change: []string{"fix"}, declared: one, want: task.NotRun, red: task.NotRun},
		{name: "a subtest that the panic of another hides", change: []string{"subtests", "fix"}, declared: []string{"cart::TestCoupon/ten", "cart::TestCoupon/twenty"}, want: task.Verified},
		{name: "near name", change: []string{"test", "fix"}, declared: []string{"TestCoupons"}, want: task.NotRun, reason: "coupon_test.go::TestCoupon"},
		{name: "passes on the base", change: []string{"passes", "fix"}, declared: one, want: task.NotReproducing, red: task.NotReproducing},
		{name: "compile only", change: []string{"compile", "fix"}, declared: one, want: task.WeakRed, reason: "does not compile", red: task.WeakRed},
		{name: "fixture missing", change: []string{"fixture", "fix"}, declared: one, want: task.InvalidRed, reason: "fixture", red: task.InvalidRed},
		{name: "fails differently each time", change: []string{"flaky", "fix"}, declared: one, want: task.FlakyRepro},
		{name: "breaks another test", change: []string{"test", "fix", "breaks"}, declared: one, want: task.Regression, reason: "ship::TestFee"},
		{name: "panics elsewhere", change: []string{"test", "fix", "panics"}, declared: one, want: task.Regression, reason: "ship::TestFee"},
		{name: "no longer builds elsewhere", change: []string{"test", "fix", "nobuild"}, declared: one, want: task.Regression, reason: "ship"},
		{name: "deletes a test", change: []string{"test", "fix", "deletes"}, declared: one, want: task.TestLost, reason: "TestSum"},
		{name: "deletes a test file", change: []string{"test", "fix", "-ship/ship_test.go"}, declared: one, want: task.TestLost, reason: "TestFee"},
		{name: "skips a test", change: []string{"test", "fix", "skips"}, declared: one, want: task.TestLost, reason: "TestEmpty"},
		{name: "weakens a test", change: []string{"test", "fix", "weakens"}, declared: one, want: task.NeedsHuman, reason: "cart_test.go"},
		{name: "TestMain ignores the code", change: []string{"test", "mainfake"}, declared: one, want: task.NotFixed},
		{name: "TestMain runs nothing", change: []string{"test", "mainexit"}, declared: one, want: task.NotRun},
	})
}

func TestVerifyHang(t *testing.T) {
	needCommand(t, "go", "version")
	prove(t, "go.txtar", Settings{Timeout: 6 * time.Second}, []proofCase{
		{name: "of the issue", change: []string{"hang"}, declared: []string{"TestCoupon"}, hang: true, want: task.NotFixed},
		{name: "of the test", change: []string{"hang", "fix"}, declared: []string{"TestCoupon"}, want: task.InvalidRed, reason: "time"},
	})
}

func TestVerifyPython(t *testing.T) {
	needCommand(t, "/usr/bin/python3", "-m", "pytest", "--version")
	one := []string{"tests/test_coupon.py::test_coupon"}
	prove(t, "python.txtar", Settings{Timeout: 2 * time.Minute}, []proofCase{
		{name: "verified", change: []string{"test", "fix"}, declared: one, want: task.Verified, red: task.Verified},
		{name: "no fix", change: []string{"test"}, declared: []string{"test_coupon"}, want: task.NotFixed},
		{name: "wrong fix", change: []string{"test", "wrongfix"}, declared: one, want: task.NotFixed},
		{name: "breaks another test", change: []string{"test", "breaks"}, declared: one, want: task.Regression, reason: "test_refund"},
		{name: "conftest fakes success", change: []string{"test", "conftest"}, declared: one, want: task.Tamper, reason: "conftest.py"},
		{name: "conftest beside a true fix", change: []string{"test", "fix", "conftest"}, declared: one, want: task.Tamper, reason: "conftest.py"},
		{name: "the runner's settings beside a true fix", change: []string{"test", "fix", "settings"}, declared: one, want: task.Verified, findings: "same outcome with the base's copies"},
		{name: "a module in the runner's place fakes success", change: []string{"test", "shadow"}, declared: one, want: task.Tamper, reason: "pytest.py"},
		{name: "source blinds the runner", change: []string{"test", "blinds"}, declared: one, want: task.Tamper, reason: "shop.py"},
		{name: "fixture in conftest", change: []string{"needsfixture", "fix"}, declared: one, want: task.NeedsHuman, reason: "conftest.py"},
		{name: "fixture missing", change: []string{"nofixture", "fix"}, declared: one, want: task.InvalidRed, reason: "fixture", red: task.InvalidRed},
		{name: "import only", change: []string{"importerror", "fix"}, declared: one, want: task.WeakRed, red: task.WeakRed},
		{name: "network", change: []string{"network", "fix"}, declared: one, want: task.InvalidRed, reason: "network"},
		{name: "exits in the test", change: []string{"exits", "fix"}, declared: one, want: task.NotRun},
		{name: "skips old tests", change: []string{"test", "fix", "skips"}, declared: one, want: task.TestLost, reason: "test_sum"},
		{name: "renames a test and adds to it", change: []string{"test", "fix", "renames"}, declared: one, want: task.Verified},
		{name: "renames a test and switches it off", change: []string{"test", "fix", "renamesaway"}, declared: one, want: task.TestLost, reason: "test_refund"},
	})
}

func TestVerifyNode(t *testing.T) {
	needCommand(t, "node", "--version")
	one := []string{"takes a share off"}
	prove(t, "node.txtar", Settings{Timeout: 2 * time.Minute}, []proofCase{
		{name: "verified", change: []string{"test", "fix"}, declared: one, want: task.Verified, red: task.Verified},
		{name: "by path", change: []string{"test", "fix"}, declared: []string{"test/coupon.test.js > takes a share off"}, want: task.Verified},
		{name: "wrong fix", change: []string{"test", "wrongfix"}, declared: one, want: task.NotFixed},
		{name: "exit hides old tests", change: []string{"test", "fix", "exits"}, declared: one, want: task.Regression, reason: "adds up"},
		{name: "module missing", change: []string{"only", "fix"}, declared: one, want: task.WeakRed},
	})
}

func TestVerifyTAP(t *testing.T) {
	needCommand(t, "node", "--version")
	one, on := []string{"takes a share off"}, []string{"base", "tap"}
	prove(t, "node.txtar", Settings{Timeout: 2 * time.Minute}, []proofCase{
		{name: "verified", base: on, change: []string{"taptest", "fix"}, declared: one, want: task.Verified, red: task.Verified},
		{name: "a helper that watches the exit", base: on, change: []string{"taphelper", "fix"}, declared: one, want: task.NeedsHuman, red: task.Verified},
		{name: "a helper that rewrites results", base: on, change: []string{"tapquiet"}, declared: one, want: task.NotReproducing, red: task.NotReproducing},
		{name: "module missing", base: on, change: []string{"tapmissing", "fix"}, declared: one, want: task.WeakRed, reason: "missing.js"},
	})
}

func TestVerifyScript(t *testing.T) {
	prove(t, "other.txtar", Settings{}, []proofCase{
		{name: "verified", change: []string{"test", "fix"}, declared: []string{"check/repro.sh"}, want: task.VerifiedScript, red: task.Verified},
		{name: "no fix", change: []string{"test"}, declared: []string{"check/repro.sh"}, want: task.NotFixed},
		{name: "not there", change: []string{"fix"}, declared: []string{"check/repro.sh"}, want: task.NotRun},
	})
}

func TestVerifyJUnitBySettings(t *testing.T) {
	settings := Settings{Test: "bash run.sh", Report: []string{"out/*.xml"}, TestGlobs: []string{"cases/**"}}
	on := []string{"base", "junit"}
	prove(t, "other.txtar", settings, []proofCase{
		{name: "verified", base: on, change: []string{"junittest", "junitfix"}, declared: []string{"greet eve"}, want: task.Verified},
		{name: "breaks the other", base: on, change: []string{"junittest", "fix"}, declared: []string{"greet eve"}, want: task.Regression, reason: "bob"},
		{name: "not fixed", base: on, change: []string{"junittest"}, declared: []string{"eve"}, want: task.NotFixed},
	})
}

func TestBaselineBlocked(t *testing.T) {
	s := loadSample(t, "go.txtar")
	for name, c := range map[string]struct {
		layers   []string
		settings Settings
		want     string
	}{
		"build command": {[]string{"base"}, Settings{Build: "echo no compiler >&2; exit 3"}, "build command fails"},
		"nothing runs":  {[]string{"base"}, Settings{Test: "true", Format: "junit", Report: []string{"*.xml"}}, "no test ran"},
		"hangs":         {[]string{"base"}, Settings{Test: "sleep 60", Format: "tap", Timeout: time.Second}, "does not end"},
	} {
		t.Run(name, func(t *testing.T) {
			v, _ := newVerifier(t, c.settings)
			snap := s.snapshot(t, c.layers...)
			b, err := v.Baseline(context.Background(), snap, nil)
			if err != nil {
				t.Fatal(err)
			}
			if b.Usable() || !strings.Contains(b.Blocked, c.want) {
				t.Fatalf("blocked: %q, want …%s…", b.Blocked, c.want)
			}
			got, err := v.Verify(context.Background(), Job{Snapshot: snap, Changes: s.changes(t, "test", "fix"), Baseline: b})
			if err != nil || got.Kind != task.EnvBlocked {
				t.Fatalf("%s %v, want env_blocked", got.Kind, err)
			}
		})
	}
}

func TestBaselineOfGo(t *testing.T) {
	needCommand(t, "go", "version")
	s := loadSample(t, "go.txtar")
	v, lab := newVerifier(t, Settings{})
	b, err := v.Baseline(context.Background(), s.snapshot(t, "base"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Usable() || b.Failed() != 1 || b.Tests["example.com/shop/cart::TestBroken"] != task.Fail || b.Tests["example.com/shop/cart::TestSum/two"] != task.Pass {
		t.Errorf("ledger: %+v", b)
	}
	if want := []string{"probe", "baseline", "baseline"}; !gocmp.Equal(lab.runs, want) {
		t.Errorf("benches %v, want %v: no third run where two agree", lab.runs, want)
	}
	if len(b.Phases) != 2 || len(b.Phases[1].Runs) != 2 || !b.Phases[1].Complete {
		t.Errorf("phases: %+v", b.Phases)
	}
}
