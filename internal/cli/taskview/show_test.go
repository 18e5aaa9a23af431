package taskview

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/story"
	"github.com/daybreak-agent/daybreak/internal/task"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func text(s string) event.Text { return event.Text{Inline: s, Bytes: len(s)} }

func inline(t event.Text) (string, error) {
	if t.Blob != "" {
		return "", errors.New("no blob here")
	}
	return t.Inline, nil
}

func sealed(t testing.TB, payloads ...event.Payload) []event.Event {
	t.Helper()
	id := storetest.ID(1)
	prev := event.Genesis(id)
	at := time.Date(2026, 3, 1, 18, 0, 0, 0, time.UTC)
	var out []event.Event
	for i, p := range payloads {
		e := event.Seal(id, int64(i)+1, 1, at.Add(time.Duration(i)*7*time.Second), prev, storetest.Draft(t, p))
		prev = e.Hash
		out = append(out, e)
	}
	return out
}

// written is a task that goes wrong twice and then well.
func written(t testing.TB) []event.Event {
	exit := func(n int) *int { return &n }
	message, err := json.Marshal(map[string]any{"role": "assistant", "blocks": []map[string]any{
		{"type": "thinking", "text": "hidden"},
		{"type": "text", "text": "\n  I will look for the \x1b[31mcoupon code.\nThen I will write a test."},
	}})
	if err != nil {
		t.Fatal(err)
	}
	verdict, err := json.Marshal(task.Verdict{
		Kind: task.Verified,
		Reproduction: []task.Reproduction{{
			Test: "TestCouponTotal", Base: task.Fail, Head: task.Pass,
			BaseSignature: "want 90, got 100\nat cart_test.go",
		}},
		Suite:    task.SuiteResult{Command: "go test ./...", Passed: 41, BaselineFailed: 1},
		Findings: []task.Finding{{Kind: "tamper", Severity: "warn", Path: "cart_test.go", Line: 12, Detail: "expected value changed"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return sealed(t,
		event.TaskCreated{
			Repo: "/srv/shop", Base: "3f2a9c1d0b12aaaaaaaa", BaseRef: "HEAD", Target: "main", IssueTitle: "Coupon applies to a stale price\x1b]0;owned\x07",
			Model: "anthropic/claude", RequestedBy: "ann", Hidden: 12, Issue: text("It should be 90.\r\nIt is 100.\n"),
			Limits: task.Limits{Steps: 60, Cost: 5_000_000, Wall: time.Hour},
		},
		event.RunStarted{Worker: "host:42"},
		event.StateChanged{From: task.Queued, To: task.Preparing},
		event.SnapshotReady{Digest: "d1d1d1d1d1d1d1d1", Files: 1412, Cached: true, Millis: 31, Warnings: []string{"vendor/x is a submodule"}},
		event.SandboxStarted{ID: "s", Purpose: "agent", Runtime: "runc", Isolation: "namespaces", Millis: 88},
		event.BaselineFinished{Command: "go test ./...", Passed: 40, Failed: 1, Flaky: []string{"TestClock"}},
		event.StageFinished{Stage: "baseline", Millis: 4210},
		event.StateChanged{From: task.Preparing, To: task.Working},
		event.PromptFrozen{Hash: "h"},
		event.ModelRequested{Step: 1},
		event.ModelResponded{
			Step: 1, Message: text(string(message)), Tokens: task.Tokens{Input: 1200, Output: 310, CacheRead: 24500},
			Cost: 12345, Priced: true, Attempts: 2, Millis: 2140,
		},
		event.ToolStarted{Step: 1, Call: "a", Name: "search", Args: text(`{"query":"coupon"}`)},
		event.ToolFinished{Step: 1, Call: "a", Name: "search", Result: text("cart.go: 3\n\x1b[2J"), Millis: 12},
		event.ToolStarted{Step: 1, Call: "b", Name: "run", Args: text(`{"command":"go test ./cart\nrm -rf x"}`)},
		event.ToolFinished{Step: 1, Call: "b", Name: "run", Result: text("FAIL"), ExitCode: exit(1), Millis: 61200},
		event.ToolStarted{Step: 1, Call: "c", Name: "edit", Args: text(`{"path":".github/ci.yml"}`)},
		event.ToolFinished{Step: 1, Call: "c", Name: "edit", Result: text("no"), IsError: true},
		event.PolicyFound{Finding: task.Finding{Kind: "held_path", Severity: "block", Path: ".github/ci.yml", Detail: "a person must see it"}},
		event.Noticed{Step: 1, What: "budget", Text: "80 % of the steps are used"},
		event.Steered{Who: "bob", Text: text("use UTC\nplease")},
		event.ModelFailed{Step: 2, Class: task.Overloaded, Error: "529", Attempts: 4},
		event.ReproductionChecked{Step: 2, Kind: task.NotReproducing, Reason: "it passes on the base", Millis: 900},
		event.ReproductionChecked{Step: 3, Kind: task.Verified, Reason: "fails for the right reason", Millis: 901},
		event.WorkspaceSaved{Step: 3, Files: 2, Why: "submit", Diff: text("+x\n")},
		event.Submitted{Title: "Price the cart when the coupon applies", Cause: "stale", Fix: "fresh"},
		event.StateChanged{From: task.Working, To: task.Verifying},
		event.Exported{Tree: "cafe0123456789", Paths: []string{"cart.go", "cart_test.go"}, LeftOut: []string{"debug.log"}},
		event.VerificationFinished{Attempt: 1, Kind: task.Regression, Reason: "TestTotal fails now", Millis: 8000, Document: event.Text{Blob: "gone"}},
		event.VerificationFinished{Attempt: 2, Kind: task.Verified, Reason: "red, then green, suite no worse", Document: text(string(verdict)), Millis: 9100},
		event.StateChanged{From: task.Verifying, To: task.Publishing, Reason: "verified"},
		event.EffectIntended{Key: "push", Kind: "push branch"},
		event.EffectDone{Key: "push", Kind: "push branch", Found: true},
		event.PullRequestOpened{Branch: "daybreak/t-coupon", URL: "/data/pr/1.md", Title: "Price the cart when the coupon applies", Body: text("Body")},
		event.StateChanged{From: task.Publishing, To: task.InReview},
		event.ToolStarted{Step: 4, Call: "z", Name: "run", Args: text(`{"command":"sleep 9"}`)},
	)
}

// acting returns the runes of s that would act on a terminal, apart from line feeds.
func acting(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && acts(r) {
			return r
		}
		return -1
	}, s)
}

func TestShow(t *testing.T) {
	for name, opts := range map[string]Options{"brief": {}, "full": {Full: true}} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Show(&b, written(t), inline, opts); err != nil {
				t.Fatal(err)
			}
			if bad := acting(b.String()); bad != "" {
				t.Errorf("%q reached the terminal", bad)
			}
			golden := filepath.Join("testdata", name+".txt")
			if *update {
				if err := os.WriteFile(golden, b.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), b.String()); diff != "" {
				t.Errorf("%s differs (-want +got; go test -update rewrites it):\n%s", golden, diff)
			}
		})
	}
}

func TestShowColor(t *testing.T) {
	var plain, color bytes.Buffer
	if err := errors.Join(Show(&plain, written(t), inline, Options{}), Show(&color, written(t), inline, Options{Color: true})); err != nil {
		t.Fatal(err)
	}
	stripped := color.String()
	for _, code := range []string{"0", "1", "2", "31", "32"} {
		if !strings.Contains(stripped, "\x1b["+code+"m") {
			t.Errorf("no SGR %s", code)
		}
		stripped = strings.ReplaceAll(stripped, "\x1b["+code+"m", "")
	}
	if acting(stripped) != "" {
		t.Errorf("other controls than our colours: %q", acting(stripped))
	}
}

func TestShowTrouble(t *testing.T) {
	if err := Show(&bytes.Buffer{}, nil, inline, Options{}); task.ClassOf(err) != task.NotFound {
		t.Errorf("no events: %v", err)
	}
	log := sealed(t, event.TaskCreated{IssueTitle: "x"}, event.StateChanged{From: task.Queued, To: task.Merged}, event.Noticed{Text: "after it"})
	log[2].Kind, log[2].Payload = "from.the.future\x1b", json.RawMessage(`{}`)
	log = append(log, event.Event{Task: log[0].Task, Seq: 4, Kind: "agent.notice", Version: 1, Payload: json.RawMessage(`{"step":"x"}`), Time: log[0].Time})
	var b bytes.Buffer
	if err := Show(&b, log, inline, Options{}); task.ClassOf(err) != task.Internal {
		t.Errorf("a log that does not fold: %v", err)
	}
	for _, want := range []string{"queued", "merged", `from.the.future\x1b (not known`, "event 4 of"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not shown:\n%s", want, &b)
		}
	}
	full := errors.New("no space")
	if err := Show(failing{full}, log[:1], inline, Options{}); !errors.Is(err, full) {
		t.Errorf("writer's error: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestLine(t *testing.T) {
	now := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	row := store.Task{
		ID: storetest.ID(1), State: task.Working, Repo: "https://host/team/shop.git/", LastSeq: 12, Owner: "w",
		Title: "Coupon\n\x1b[31mred " + strings.Repeat("long ", 30), Created: now.Add(-3 * time.Hour),
	}
	want := "t_01kh0000000000000000000001  working*      3h ago      12  shop              Coupon\\n\\x1b[31mred "
	got := Line(row, now)
	if !strings.HasPrefix(got, want) || acting(got) != "" || utf8.RuneCountInString(got) > 140 {
		t.Errorf("%q\nwant it to begin\n%q", got, want)
	}
	if h := Header(); strings.Index(h, "TITLE") != strings.Index(got, "Coupon") {
		t.Errorf("the header does not stand above the columns:\n%s\n%s", h, got)
	}
	for d, want := range map[time.Duration]string{
		-time.Second: "now", 5 * time.Second: "5s ago", 90 * time.Second: "1m ago", 47 * time.Hour: "47h ago", 50 * time.Hour: "2d ago",
	} {
		if got := story.Age(d); got != want {
			t.Errorf("story.Age(%s) = %q, want %q", d, got, want)
		}
	}
}

func TestFigures(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1000: "-1,000", -999: "-999"} {
		if got := story.Count(n); got != want {
			t.Errorf("story.Count(%d) = %q", n, got)
		}
	}
	for ms, want := range map[int64]string{0: "0ms", 999: "999ms", 1500: "1.5s", 61200: "1m1s"} {
		if got := story.Took(ms); got != want {
			t.Errorf("story.Took(%d) = %q", ms, got)
		}
	}
}

func TestEscape(t *testing.T) {
	for in, want := range map[string]string{
		"plain é 日本":            "plain é 日本",
		"a\nb\tc\rd":            `a\nb\tc\rd`,
		"\x1b[2J\x07\x00\x7f":   `\x1b[2J\x07\x00\x7f`,
		"\u009b31m":             `\u{9b}31m`, // a C1 control starts a sequence too
		"\u202eevil\u2066":      `\u{202e}evil\u{2066}`,
		"zero\u200bwidth\u00ad": `zero\u{200b}width\u{ad}`,
		"\U000e0041 tag":        `\u{e0041} tag`,
		"\U000e0100\u3164":      `\u{e0100}\u{3164}`,
		"caf\xe9 \xff":          `caf\xe9 \xff`,
		"\u2028line":            `\u{2028}line`,
		"replacement \ufffd ok": "replacement \ufffd ok",
		`already \x1b`:          `already \x1b`,
	} {
		if got := Escape(in); got != want {
			t.Errorf("Escape(%q) = %q, want %q", in, got, want)
		}
	}
	if got, want := EscapeLines("a\r\nb\tc\rd\n\x1b"), "a\nb\tc\\rd\n\\x1b"; got != want {
		t.Errorf("escapeLines: %q, want %q", got, want)
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a\x1b[31m\u202e\xff\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		one := Escape(s)
		if acting(one) != "" || strings.Contains(one, "\n") || !utf8.ValidString(one) {
			t.Fatalf("Escape(%q) = %q", s, one)
		}
		if many := EscapeLines(s); strings.Trim(acting(many), "\t") != "" || !utf8.ValidString(many) {
			t.Fatalf("EscapeLines(%q) = %q", s, many)
		}
	})
}
