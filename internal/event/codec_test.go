package event

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// filled sets every exported field of v to something that is not its zero value.
func filled(r *rand.Rand, v reflect.Value) {
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(r.Int64N(1<<32), 0).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(r, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			filled(r, v.Field(i))
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			v.SetBytes([]byte(fmt.Sprintf(`{"n":%d}`, r.IntN(100))))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		filled(r, v.Index(0))
		filled(r, v.Index(1))
	case reflect.String:
		v.SetString(fmt.Sprintf("text %d <é>\n\x1b\u2028", r.IntN(1000)))
	case reflect.Bool:
		v.SetBool(true)
	default:
		v.SetInt(1 + r.Int64N(1<<50))
	}
}

func TestRoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[Kind]bool{}
	form := regexp.MustCompile(`^[a-z_]+\.[a-z_]+$`)
	for _, p := range payloads() {
		kind := p.EventKind()
		if seen[kind] || !form.MatchString(string(kind)) {
			t.Errorf("kind %q: used twice or of the wrong form", kind)
		}
		seen[kind] = true
		for _, fill := range []bool{false, true} {
			if fill {
				filled(r, reflect.ValueOf(p).Elem())
			}
			d, err := New(p)
			if err != nil {
				t.Fatal(err)
			}
			if c, err := d.Canonical(); err != nil || string(c.Payload) != string(d.Payload) {
				t.Errorf("%s: New is not canonical: %s, %v", kind, d.Payload, err)
			}
			got, err := Decode(Seal(testID, 1, 0, time.Unix(1, 0), Genesis(testID), d))
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			if diff := cmp.Diff(p, got); diff != "" {
				t.Errorf("%s filled %v came back different:\n%s", kind, fill, diff)
			}
		}
	}
}

// TestPayloadsAreAll: a payload type that is missing from the lists could be written and
// never read.
func TestPayloadsAreAll(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "kinds.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{"Text": true, "Payload": true, "Origin": true} // not payloads
	for _, p := range payloads() {
		listed[reflect.TypeOf(p).Elem().Name()] = true
		if q := newPayload(p.EventKind()); q == nil || reflect.TypeOf(q) != reflect.TypeOf(p) {
			t.Errorf("newPayload(%q) is a %T, want %T", p.EventKind(), q, p)
		}
	}
	for _, decl := range file.Decls {
		g, ok := decl.(*ast.GenDecl)
		if !ok || g.Tok != token.TYPE {
			continue
		}
		if name := g.Specs[0].(*ast.TypeSpec).Name.Name; !listed[name] {
			t.Errorf("%s is declared in kinds.go and missing from payloads()", name)
		}
	}
}

func TestUnknownIsKept(t *testing.T) {
	raw := json.RawMessage(`{"later":true}`)
	for _, e := range []Event{
		{Kind: "from.the.future", Version: 1, Payload: raw},
		{Kind: "agent.notice", Version: Current + 1, Payload: raw},
	} {
		p, err := Decode(e)
		u, ok := p.(Unknown)
		if err != nil || !ok || u.Kind != e.Kind || u.EventKind() != e.Kind || string(u.Raw) != string(raw) {
			t.Errorf("%s: %#v, %v", e.Kind, p, err)
		}
	}
	p, err := Decode(Event{Kind: "agent.notice", Version: 1, Payload: json.RawMessage(`{"step":7,"new_field":[1]}`)})
	if n, ok := p.(*Noticed); err != nil || !ok || n.Step != 7 {
		t.Errorf("a field of a newer version: %#v, %v", p, err)
	}
}

func TestDecodeNamesTheEvent(t *testing.T) {
	for _, payload := range []string{``, `{`, `{"step":"seven"}`, `{} trailing`, `[]`} {
		_, err := Decode(Event{Task: testID, Seq: 12, Kind: "agent.notice", Version: 1, Payload: json.RawMessage(payload)})
		if err == nil || !strings.Contains(err.Error(), "event 12 of "+string(testID)+" (agent.notice)") {
			t.Errorf("%q: %v", payload, err)
		}
	}
}

func TestCanonical(t *testing.T) {
	d, err := Draft{Kind: "x", Version: 3, Payload: json.RawMessage("{ \"a\" :\n\"<\u2028\" }")}.Canonical()
	if err != nil || string(d.Payload) != `{"a":"\u003c\u2028"}` || d.Version != 3 {
		t.Fatalf("%s, %v", d.Payload, err)
	}
	for _, bad := range []Draft{{Kind: "x"}, {Payload: json.RawMessage(`{}`)}, {Kind: "x", Payload: json.RawMessage(`{`)}} {
		if _, err := bad.Canonical(); task.ClassOf(err) != task.Invalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, p := range payloads() {
		filled(r, reflect.ValueOf(p).Elem())
		d, err := New(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(d.Kind), d.Version, []byte(d.Payload))
	}
	f.Fuzz(func(t *testing.T, kind string, version int, payload []byte) {
		p, err := Decode(Event{Kind: Kind(kind), Version: version, Payload: payload})
		if err != nil {
			return
		}
		if p.EventKind() != Kind(kind) {
			t.Fatalf("%q decoded as %q", kind, p.EventKind())
		}
		if _, unknown := p.(Unknown); unknown {
			return
		}
		d, err := New(p) // what was understood can be written again, and then means the same
		if err != nil {
			t.Fatal(err)
		}
		again, err := Decode(Event{Kind: d.Kind, Version: d.Version, Payload: d.Payload})
		if err != nil {
			t.Fatal(err)
		}
		d2, err := New(again)
		if err != nil || string(d2.Payload) != string(d.Payload) {
			t.Fatalf("%s became %s, %v", d.Payload, d2.Payload, err)
		}
	})
}

// payloads lists one zero value of every kind.
func payloads() []Payload {
	return []Payload{
		&TaskCreated{},
		&RunStarted{},
		&LeaseTaken{},
		&StateChanged{},
		&StageFinished{},
		&SnapshotReady{},
		&SandboxStarted{},
		&SandboxEnded{},
		&SandboxRefused{},
		&BaselineFinished{}, &SetupStarted{}, &SetupFinished{}, &SetupReady{}, &IndexReady{},
		&PromptFrozen{},
		&ModelRequested{},
		&ModelResponded{},
		&ModelFailed{},
		&ToolStarted{},
		&ToolFinished{},
		&Steered{},
		&StopRequested{},
		&Noticed{},
		&Compacted{},
		&WorkspaceSaved{},
		&ReproductionChecked{},
		&Submitted{},
		&Exported{},
		&PolicyFound{},
		&ClaimDropped{}, &EvidenceSigned{},
		&VerificationFinished{},
		&Declined{},
		&EffectIntended{},
		&EffectDone{},
		&PullRequestOpened{},
		&PullRequestEnded{}, &BranchPushed{}, &BudgetRaised{}, &TargetMoved{}, &PublicationHeld{}, &PublicationApproved{}, &PullRequestReverted{},
		&QuestionAsked{}, &QuestionAnswered{}, &Rebased{}, &RebaseUndone{}, &BranchAdopted{},
		&AttemptStarted{}, &AttemptFinished{}, &AttemptJudged{}, &AttemptChosen{},
		&WallClocked{},
		&Redacted{},
		&Checkpoint{},
		&NetworkOpened{}, &NetworkAsked{}, &NetworkRefused{},
	}
}
