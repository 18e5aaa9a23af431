package evidence

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// The examples of RFC 8785, sections 3.2.2, 3.2.3 and appendix B.
func TestCanonicalIsRFC8785(t *testing.T) {
	for in, want := range map[string]string{
		`{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001], "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}`:                                          `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`,
		`{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"}`: "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}",
		`[-0, 0.0, 1e21, 1e20, 1e-6, 1e-7, 5e-324, 9007199254740992]`: `[0,0,1e+21,100000000000000000000,0.000001,1e-7,5e-324,9007199254740992]`,
		`"<&>\u2028\b\f"`: "\"<&>\u2028\\b\\f\"",
	} {
		got, err := canonicalJSON([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s\n got %s %v\nwant %s", in, got, err, want)
		}
		if again, err := canonicalJSON(got); err != nil || !bytes.Equal(again, got) {
			t.Errorf("not the same twice: %s %v", again, err)
		}
	}
	for _, bad := range []string{`{"a":1,"a":2}`, `{"a":1,"b":2,"a":3}`, `9007199254740993`, `1e999`, `[1`, `1 2`, ``, strings.Repeat("[", 300) + strings.Repeat("]", 300)} {
		if got, err := canonicalJSON([]byte(bad)); err == nil {
			t.Errorf("%.40s is taken as %s", bad, got)
		}
	}
}

type testKey struct{ ed25519.PrivateKey }

func (k testKey) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(k.PrivateKey, data), nil
}
func (k testKey) KeyID() (string, error) { return event.KeyID(k.pub()), nil }
func (k testKey) pub() ed25519.PublicKey { return k.PrivateKey.Public().(ed25519.PublicKey) }
func keyOf(seed byte) testKey            { return testKey{ed25519.NewKeyFromSeed(bytes.Repeat([]byte{seed}, 32))} }

func changes() []git.Change {
	return []git.Change{
		{Path: "shop/price.py", Mode: 0o100644, Content: []byte("def net(a, b):\n    return max(0, a - b)\n")},
		{Path: "setup.cfg", Mode: 0o100644, Content: []byte("[x]\n")},
		{Path: "test_price.py", Mode: 0o100755, Content: []byte("assert <x> & y\n")},
		{Path: "old.py", Deleted: true},
	}
}

func record() Record {
	return RecordOf(Input{
		Repo: "/srv/git/shop.git", Changes: changes(), Made: time.Date(2026, 3, 4, 5, 6, 7, 89, time.FixedZone("x", 3600)),
		Log: &Log{Task: "t_01k00000000000000000000000", Seq: 41, Root: strings.Repeat("ab", 32)},
		Verdict: task.Verdict{
			Kind: task.Verified, Reason: "it holds", Base: strings.Repeat("b", 40), HeadTree: strings.Repeat("c", 40),
			Tests: []string{"test_price.py"}, Source: []string{"old.py", "shop/price.py"}, Config: []string{"setup.cfg"},
			Reproduction: []task.Reproduction{{Test: "test_price.py::test", Base: task.Fail, Head: task.Pass, BaseRuns: 3, HeadRuns: 3, BaseOutput: "-3 != 0\n"}},
			Suite:        task.SuiteResult{Passed: 2, Command: "python3 -m pytest"},
			Findings:     []task.Finding{{Kind: "tamper", Severity: "warn", Path: "setup.cfg", Detail: "changed"}},
			Phases:       []task.PhaseRecord{{Phase: "P3", Name: "red", Tree: "sha256:1", Runs: []task.RunRecord{{Command: "python3 -m pytest", ExitCode: 1, Failed: 1, Log: strings.Repeat("d", 64), Outcome: "complete", Build: "sha256:2"}}, Complete: true}},
			Table: &task.Table{
				Tests: []task.TableTest{{Test: "test_price.py::test", Why: "reproduction"}},
				Runs:  []task.TableRun{{Phase: "P3", What: "base + tests", Millis: 90, Seen: "f", Took: []int64{12}}},
			},
			Runner: "pytest", Environment: strings.Repeat("e", 32), Verifier: "daybreak-verify/1",
			Sandbox: task.Isolation{Runtime: "runc 1.5.3", Isolation: "namespaces", Profile: strings.Repeat("f", 64)},
		},
	})
}

func signed(t testing.TB, r Record) []byte {
	t.Helper()
	b, err := Sign(t.Context(), r, keyOf(1))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestWhatWasSignedVerifies(t *testing.T) {
	file := signed(t, record())
	if again := signed(t, record()); !bytes.Equal(file, again) {
		t.Error("the same record gives other bytes")
	}
	b, faults, err := Check(t.Context(), file, keyOf(1).pub())
	if err != nil || len(faults) > 0 {
		t.Fatalf("%v %v", faults, err)
	}
	if got := b.Against(changes()); len(got) > 0 {
		t.Errorf("its own change: %v", got)
	}
	if b.Record.Repository != "shop" || len(b.Record.Change.Source) != 2 || b.Record.Change.Tests[0].Mode != "100755" {
		t.Errorf("%+v", b.Record)
	}
	// What other tools for in-toto attestations read.
	payload, err := base64.StdEncoding.DecodeString(b.Attestation.Payload)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Type          string `json:"_type"`
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Name   string
			Digest map[string]string
		}
	}
	if err := json.Unmarshal(payload, &s); err != nil || s.Type != "https://in-toto.io/Statement/v1" || s.Subject[0].Digest["gitTree"] != strings.Repeat("c", 40) || s.PredicateType == "" {
		t.Errorf("%s %v", payload, err)
	}
}

func parts(faults []Fault) string {
	var out []string
	for _, f := range faults {
		if !slices.Contains(out, f.Part) {
			out = append(out, f.Part)
		}
	}
	return strings.Join(out, ", ")
}

// TestEveryPartIsNamed alters one part after the other, in the record, in the statement, and in
// both with another key.
func TestEveryPartIsNamed(t *testing.T) {
	for name, alter := range map[string]func(*Record){
		"base":                      func(r *Record) { r.Base = strings.Repeat("a", 40) },
		"head tree":                 func(r *Record) { r.HeadTree = strings.Repeat("a", 40) },
		"repository":                func(r *Record) { r.Repository = "other" },
		"diff of the tests":         func(r *Record) { r.Change.Tests[0].SHA256 = strings.Repeat("0", 64) },
		"diff of the source":        func(r *Record) { r.Change.Source = r.Change.Source[:1] },
		"diff of the configuration": func(r *Record) { r.Change.Configuration[0].Path = "setup2.cfg" },
		"environment":               func(r *Record) { r.Environment = strings.Repeat("0", 32) },
		"sandbox":                   func(r *Record) { r.Sandbox.Isolation = "none" },
		"commands":                  func(r *Record) { r.Commands[0].Runs[0].ExitCode = 0 },
		"commands: a build":         func(r *Record) { r.Commands[0].Runs[0].Build = "" },
		"results":                   func(r *Record) { r.Results.Reproduction[0].Base = task.Pass },
		"results, verdict":          func(r *Record) { r.Results.Verdict = task.NotFixed },
		"log":                       func(r *Record) { r.Log.Seq++ },
		"log root":                  func(r *Record) { r.Log.Root = strings.Repeat("0", 64) },
		"verifier":                  func(r *Record) { r.Verifier = "x" },
		"time":                      func(r *Record) { r.Made = r.Made.Add(time.Hour) },
	} {
		good, altered := record(), record()
		alter(&altered)
		name, _, _ := strings.Cut(name, ":")
		var a, b Bundle
		if err := json.Unmarshal(signed(t, good), &a); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(signed(t, altered), &b); err != nil {
			t.Fatal(err)
		}
		// The record alone: the signature still fits the statement.
		mixed := a
		mixed.Record = b.Record
		if got := check(t, mixed, 1); got != name {
			t.Errorf("%s in the record: found %q", name, got)
		}
		// The statement alone.
		mixed = a
		mixed.Attestation.Payload = b.Attestation.Payload
		if got := check(t, mixed, 1); got != "signature, "+name {
			t.Errorf("%s in the statement: found %q", name, got)
		}
		// Both, consistently: only the signature can tell.
		mixed = b
		mixed.Attestation.Signatures = a.Attestation.Signatures
		if got := check(t, mixed, 1); got != "signature" {
			t.Errorf("%s in both: found %q", name, got)
		}
		if got := check(t, b, 2); got != "signature" {
			t.Errorf("another key: found %q", got)
		}
	}
}

func check(t *testing.T, b Bundle, key byte) string {
	t.Helper()
	file, err := Canonical(b)
	if err != nil {
		t.Fatal(err)
	}
	_, faults, err := Check(t.Context(), append(file, '\n'), keyOf(key).pub())
	if err != nil {
		t.Fatal(err)
	}
	return parts(faults)
}

func TestOtherFormsAreFound(t *testing.T) {
	file := signed(t, record())
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"white space":       {bytes.Replace(file, []byte(`,"`), []byte(`, "`), 1), "form"},
		"no last line feed": {bytes.TrimRight(file, "\n"), "form"},
		"something after":   {append(slices.Clone(file), "{}"...), "form"},
		"key twice":         {bytes.Replace(file, []byte(`"format":`), []byte(`"format":"x","format":`), 1), "form"},
		"other case":        {bytes.Replace(file, []byte(`"format":`), []byte(`"Format":`), 1), "form"},
		"escaped":           {bytes.Replace(file, []byte(`"verified"`), []byte(`"\u0076erified"`), 1), "form"},
		"payload type":      {bytes.Replace(file, []byte("vnd.in-toto+json"), []byte("vnd.in-toto+xml."), 1), "statement, signature"},
	} {
		_, faults, err := Check(t.Context(), c.file, keyOf(1).pub())
		if err != nil || parts(faults) != c.want {
			t.Errorf("%s: %v %v, want %s", name, faults, err, c.want)
		}
	}
	for _, bad := range []string{"", "{}", "[]", `{"format":"daybreak-evidence/9"}`, `{"format":"daybreak-evidence/1","more":1}`, "\xff"} {
		if _, _, err := Check(t.Context(), []byte(bad), keyOf(1).pub()); task.ClassOf(err) != task.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestAgainstTheRepository(t *testing.T) {
	b, _, err := Parse(signed(t, record()))
	if err != nil {
		t.Fatal(err)
	}
	other := changes()
	other[0].Content = []byte("evil\n")
	other = append(other[:2:2], append(other[2:], git.Change{Path: "new.py", Mode: 0o100644})...)
	other = slices.DeleteFunc(other, func(c git.Change) bool { return c.Path == "setup.cfg" })
	got := parts(b.Against(other))
	if got != "diff of the source, diff of the configuration" {
		t.Errorf("found %q: %v", got, b.Against(other))
	}
	if n := len(b.Against(other)); n != 3 {
		t.Errorf("%d faults: %v", n, b.Against(other))
	}
}

// FuzzChangedByte: whatever byte is changed, it is found.
func FuzzChangedByte(f *testing.F) {
	file := signed(f, record())
	for i := range file {
		if i%97 == 0 {
			f.Add(uint(i), byte(1))
		}
	}
	f.Fuzz(func(t *testing.T, at uint, by byte) {
		if by == 0 {
			return
		}
		bad := slices.Clone(file)
		bad[at%uint(len(bad))] ^= by
		_, faults, err := Check(t.Context(), bad, keyOf(1).pub())
		if err != nil || len(faults) == 0 {
			t.Errorf("byte %d changed by %d goes unnoticed, or is not named: %v", at%uint(len(bad)), by, err)
		}
	})
}

// TestEveryByte changes each byte of the file in turn: it is found, and what it is in is named,
// also where the file can no longer be read.
func TestEveryByte(t *testing.T) {
	file := signed(t, record())
	record := bytes.Index(file, []byte(`"record":`))
	known := []string{
		"form", "statement", "signature", "repository", "base", "head tree", "diff of the tests", "diff of the source", "diff of the configuration", "diff",
		"environment", "sandbox", "commands", "results", "verdict", "log", "log root", "verifier", "time", "record",
	}
	unread := 0
	for i := range file {
		for _, by := range []byte{1, 0x20, 0x80, 4}[:1+i%8/7*3] { // the second flips a letter's case
			bad := slices.Clone(file)
			bad[i] ^= by
			b, faults, err := Check(t.Context(), bad, keyOf(1).pub())
			if err != nil || len(faults) == 0 {
				t.Fatalf("byte %d (%q) changed by %d: %v, %v", i, file[i], by, faults, err)
			}
			specific := 0
			for _, f := range faults {
				if !slices.Contains(known, f.Part) || f.Detail == "" || strings.Contains(f.Detail, "\n") {
					t.Fatalf("byte %d (%q) changed by %d: %+v", i, file[i], by, f)
				}
				if f.Part != "form" || strings.Contains(f.Detail, " in record") {
					specific++
				}
			}
			if b.Format == "" {
				unread++
			}
			if specific == 0 && i > record+len(`"record":{"`) && i < len(file)-4 {
				t.Errorf("byte %d (%q, in %q) changed by %d: no part is named: %v", i, file[i], file[max(0, i-20):i+10], by, faults)
			}
		}
	}
	if unread < len(file)/20 {
		t.Errorf("only %d of %d bytes make the file unreadable", unread, len(file))
	}
}

func TestDamageIsPlaced(t *testing.T) {
	file := signed(t, record())
	at := func(s string) int { return bytes.Index(file, []byte(s)) }
	for _, c := range []struct {
		old, new, part, detail string
		at                     int
	}{
		{`"head_tree":`, `"head_trex":`, "record", "in record.head_trex", at(`"head_tree":`)},
		{`"exit_code":1`, `"exit_code":x`, "commands", "in record.commands.0.runs.0.exit_code", at(`"exit_code":1`) + len(`"exit_code":`)},
		{`"made":"2026-03-04`, `"made":"2026-93-04`, "time", "in record.made", at(`"made":"2026-03-04`)},
		{`"format":"daybreak-evidence/1"`, `"format":"daybreak-evidence/3"`, "form", "in format", at(`"format":`)},
		{`"keyid":"`, `"keyid":["`, "signature", "in attestation.signatures.0.keyid", 0},
	} {
		bad := bytes.Replace(file, []byte(c.old), []byte(c.new), 1)
		b, faults, err := Check(t.Context(), bad, keyOf(1).pub())
		if err != nil || len(faults) != 1 || faults[0].Part != c.part || !strings.Contains(faults[0].Detail, c.detail) || b.Format != "" {
			t.Errorf("%s: %v %v", c.new, faults, err)
			continue
		}
		if c.at > 0 && !regexp.MustCompile(fmt.Sprintf(`at byte (%d|%d),`, c.at, c.at-1)).MatchString(faults[0].Detail) {
			t.Errorf("%s: %s, want byte %d", c.new, faults[0].Detail, c.at)
		}
	}
	// Half a bundle is one that was cut.
	if _, faults, err := Check(t.Context(), file[:len(file)-100], keyOf(1).pub()); err != nil || len(faults) != 1 {
		t.Errorf("cut off: %v %v", faults, err)
	}
}

func FuzzCheck(f *testing.F) {
	f.Add(signed(f, record()))
	f.Add([]byte(`{"format":"daybreak-evidence/1","attestation":{"payload":"e30=","payloadType":"x","signatures":[{"keyid":"","sig":""}]}}`))
	f.Fuzz(func(t *testing.T, file []byte) {
		b, faults, err := Check(t.Context(), file, keyOf(2).pub())
		if err == nil && len(faults) == 0 {
			t.Error("a bundle that the key never signed is taken")
		}
		b.Against(nil)
	})
}
