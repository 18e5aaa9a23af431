package scripted_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
)

func server(t testing.TB, turns string, o scripted.Options) *scripted.Server {
	t.Helper()
	tr, err := transcript.Parse(strings.NewReader("transcript: 1\nname: n\n---\n" + turns))
	if err != nil {
		t.Fatal(err)
	}
	return scripted.NewServer(tr, o)
}

func post(t testing.TB, s http.Handler, path, body string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Anthropic-Version", "2023-06-01")
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func messages(list string) string { return `{"model":"m","max_tokens":9,"messages":[` + list + `]}` }

const (
	user     = `{"role":"user","content":"go"}`
	callOne  = `{"role":"assistant","content":[{"type":"tool_use","id":"toolu_s0001_1","name":"read","input":{}}]}`
	resultOK = `{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_s0001_1","content":"fine"}]}`
)

// TestRefusals holds that what the real APIs refuse is refused, in the vendor's shape.
func TestRefusals(t *testing.T) {
	s := server(t, "calls: [{name: read}]\n---\ntext: b\n", scripted.Options{})
	for _, tc := range []struct{ path, body, want string }{
		{"/v1/messages", `{`, "not valid JSON"},
		{"/v1/messages", `{"max_tokens":1,"messages":[` + user + `]}`, "model: Field required"},
		{"/v1/messages", `{"model":"m","messages":[` + user + `]}`, "max_tokens: Field required"},
		{"/v1/messages", `{"model":"m","max_tokens":0,"messages":[` + user + `]}`, "greater than or equal to 1"},
		{"/v1/messages", messages(``), "at least one message"},
		{"/v1/messages", messages(callOne), `first message must use`},
		{"/v1/messages", messages(user + "," + user), "roles must alternate"},
		{"/v1/messages", messages(`{"role":"user","content":""}`), "must be non-empty"},
		{"/v1/messages", messages(`{"role":"user","content":[]}`), "non-empty content"},
		{"/v1/messages", messages(`{"role":"user","content":[{"type":"odd"}]}`), "not supported"},
		{"/v1/messages", messages(user + "," + callOne), "`tool_use` ids were found without `tool_result`"},
		{"/v1/messages", messages(user + "," + callOne + "," + user), "`tool_use` ids were found without `tool_result`"},
		{"/v1/messages", messages(resultOK), "unexpected `tool_use_id`"},
		{"/v1/messages", messages(user + "," + callOne + `,{"role":"user","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"toolu_s0001_1"}]}`), "must come before"},
		{"/v1/messages", messages(user + `,{"role":"assistant","content":[{"type":"thinking","thinking":"x","signature":"sig_s0001_00"}]},` + user), "Invalid `signature`"},
		{"/v1/messages", messages(user + `,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"b","input":"text"}]},` + user), "valid dictionary"},
		{"/v1/messages", `{"model":"m","max_tokens":9,"thinking":{"type":"enabled","budget_tokens":1024},"messages":[` + user + `]}`, "must be greater than"},
		{"/v1/messages", `{"model":"m","max_tokens":9,"tools":[{"name":"a","input_schema":{}},{"name":"a","input_schema":{}}],"messages":[` + user + `]}`, "must be unique"},
		{"/v1/messages", messages(`{"role":"user","content":[` + strings.TrimSuffix(strings.Repeat(`{"type":"text","text":"x","cache_control":{"type":"ephemeral"}},`, 5), ",") + `]}`), "maximum of 4 blocks"},
		{"/v1/responses", `{"model":"m"}`, "'input'"},
		{"/v1/responses", `{"model":"m","input":[{"type":"function_call","call_id":"c","name":"n","arguments":"{}"}]}`, "No tool output found for function call c"},
		{"/v1/responses", `{"model":"m","input":[{"type":"function_call_output","call_id":"c","output":"x"}]}`, "No tool call found"},
		{"/v1/responses", `{"model":"m","input":[{"type":"reasoning","id":"rs_1","encrypted_content":"eHg="},{"role":"assistant","content":"x"}]}`, "could not be verified"},
		{"/v1/chat/completions", `{"model":"m","messages":[]}`, "too short"},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"tool","tool_call_id":"c","content":"x"}]}`, "must be a response to a preceding"},
		{"/v1/chat/completions", `{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"n","arguments":""}}]},{"role":"user","content":"x"}]}`, "did not have response messages: c"},
	} {
		code, body := post(t, s, tc.path, tc.body)
		var shape struct {
			Error struct{ Type, Message string }
		}
		if err := json.Unmarshal([]byte(body), &shape); err != nil || code != 400 || shape.Error.Type != "invalid_request_error" || !strings.Contains(shape.Error.Message, tc.want) {
			t.Errorf("%s %.120s\n%d %s, want %q", tc.path, tc.body, code, body, tc.want)
		}
	}
	if got := fmt.Sprint(s.Requests()); got != "[0 0]" || s.Err() == nil {
		t.Errorf("requests %s, err %v", got, s.Err())
	}
}

// TestPosition holds that the turn follows from the conversation, whatever the server has
// seen before.
func TestPosition(t *testing.T) {
	turns := "calls: [{name: read}]\n---\ntext: two\n---\ntext: three\n---\ncalls: [{name: read}]\n---\ntext: five\n"
	said := func(s string) string { return `{"role":"assistant","content":"` + s + `"}` }
	call4 := strings.ReplaceAll(callOne, "s0001", "s0004")
	result4 := strings.ReplaceAll(resultOK, "s0001", "s0004")
	for _, tc := range []struct{ name, body, want string }{
		{"from the start", user, "toolu_s0001_1"},
		{"after a call", user + "," + callOne + "," + resultOK, "two"},
		{"texts are counted", user + "," + callOne + "," + resultOK + "," + said("two") + "," + user, "three"},
		{"and counted on", user + "," + callOne + "," + resultOK + "," + said("two") + "," + user + "," + said("three") + "," + user, "toolu_s0004_1"},
		{"compacted to the last call", user + "," + call4 + "," + result4, "five"},
	} {
		s := server(t, turns, scripted.Options{})
		for range 2 { // asking again gives the same turn
			if code, body := post(t, s, "/v1/messages", messages(tc.body)); code != 200 || !strings.Contains(body, tc.want) {
				t.Errorf("%s: %d %s, want %s", tc.name, code, body, tc.want)
			}
		}
	}
	s := server(t, turns, scripted.Options{})
	code, body := post(t, s, "/v1/messages", messages(user+","+call4+","+result4+","+said("five")+","+user))
	if code != 400 || !strings.Contains(body, "ends after turn 5") {
		t.Errorf("past the end: %d %s", code, body)
	}
}

func TestMismatch(t *testing.T) {
	var told []error
	s := server(t, "expect: [{contains: secret}]\ntext: a\n", scripted.Options{OnError: func(err error) { told = append(told, err) }})
	code, body := post(t, s, "/v1/messages", messages(`{"role":"user","content":"`+strings.Repeat("y", 500)+`"}`))
	for _, want := range []string{"turn 1 (line 4), expectation 1", `told \"secret\"`, strings.Repeat("y", 300)} {
		if code != 400 || !strings.Contains(body, strings.ReplaceAll(want, `\"`, `\\\"`)) && !strings.Contains(body, want) {
			t.Errorf("%d %s, want %s", code, body, want)
		}
	}
	if strings.Contains(body, strings.Repeat("y", 301)) || len(told) != 1 || s.Err() != told[0] {
		t.Errorf("told %v, err %v", told, s.Err())
	}
}

func TestExpectations(t *testing.T) {
	failed := strings.Replace(resultOK, `"content":"fine"`, `"content":"exit 1","is_error":true`, 1)
	for _, tc := range []struct {
		expect, result string
		ok             bool
	}{
		{"{contains: fine}", resultOK, true},
		{"{contains: bad}", resultOK, false},
		{"{not_contains: fine}", resultOK, false},
		{"{not_contains: bad}", resultOK, true},
		{"{matches: '^f..e$'}", resultOK, true},
		{"{matches: '^e'}", resultOK, false},
		{"{tool: read}", resultOK, true},
		{"{tool: edit}", resultOK, false},
		{"{tool: read, error: true}", resultOK, false},
		{"{tool: read, error: true}", failed, true},
		{"{error: false}", resultOK, true},
		{"{error: false}", failed, false},
		{"{contains: '${v}'}", resultOK, true},
		{"{matches: '${v}$'}", resultOK, true},
		{"{contains: '${w}'}", resultOK, false},
	} {
		s := server(t, "calls: [{name: read}]\n---\nexpect: ["+tc.expect+"]\ntext: b\n", scripted.Options{Vars: map[string]string{"v": "fine"}})
		if code, body := post(t, s, "/v1/messages", messages(user+","+callOne+","+tc.result)); (code == 200) != tc.ok {
			t.Errorf("%s: %d %s", tc.expect, code, body)
		}
	}
}

// TestCapture plays the third turn on a server that never saw the first two.
func TestCapture(t *testing.T) {
	turns := "calls: [{name: read}]\n---\ncapture: [{name: id, matches: 'job (\\d+)'}]\ncalls: [{name: read}]\n---\ntext: \"was ${id}, ${unknown} stays\"\n"
	body := messages(user + "," + callOne + "," + strings.Replace(resultOK, "fine", "job 42", 1) + "," +
		strings.ReplaceAll(callOne, "s0001", "s0002") + "," + strings.ReplaceAll(resultOK, "s0001", "s0002"))
	if code, got := post(t, server(t, turns, scripted.Options{}), "/v1/messages", body); code != 200 || !strings.Contains(got, "was 42, ${unknown} stays") {
		t.Errorf("%d %s", code, got)
	}
	if code, got := post(t, server(t, turns, scripted.Options{}), "/v1/messages", messages(user+","+callOne+","+resultOK)); code != 400 || !strings.Contains(got, "matches nothing") {
		t.Errorf("%d %s", code, got)
	}
}

func TestOthers(t *testing.T) {
	var slept time.Duration
	s := server(t, "text: a\ndelay_ms: 1500\n", scripted.Options{Sleep: func(_ context.Context, d time.Duration) { slept += d }})
	if code, body := post(t, s, "/v1/messages/count_tokens", `{"model":"m","messages":[`+user+`]}`); code != 200 || !strings.HasPrefix(body, `{"input_tokens":`) {
		t.Errorf("count_tokens: %d %s", code, body)
	}
	if code, body := post(t, s, "/v1/models", ""); code != 200 || !strings.Contains(body, `"scripted"`) {
		t.Errorf("models: %d %s", code, body)
	}
	if code, _ := post(t, s, "/v1/other", ""); code != 404 {
		t.Errorf("other: %d", code)
	}
	for path, want := range map[string]string{"/v1/messages": `"text":"a"`, "/v1/responses": `"output_text"`, "/v1/chat/completions": `"content":"a"`} {
		body := `{"model":"m","max_tokens":9,"input":"go","messages":[` + user + `]}`
		if code, got := post(t, s, path, body); code != 200 || !strings.Contains(got, want) {
			t.Errorf("%s: %d %s", path, code, got)
		}
	}
	if slept != 4500*time.Millisecond || fmt.Sprint(s.Replies()) != "[3]" {
		t.Errorf("slept %s, replies %v", slept, s.Replies())
	}
}

// FuzzServe holds that no body makes the server panic, or answer without being valid JSON.
func FuzzServe(f *testing.F) {
	f.Add(0, messages(user+","+callOne+","+resultOK))
	f.Add(1, `{"model":"m","input":[{"type":"reasoning","id":"rs_s0001","encrypted_content":"eHg="}]}`)
	f.Add(2, `{"model":"m","messages":[{"role":"assistant","content":[{"type":"text","text":"call_s9999999999_1"}]}]}`)
	s := server(f, "thinking: t\ncalls: [{name: read}]\n---\ntext: b\n", scripted.Options{})
	paths := []string{"/v1/messages", "/v1/responses", "/v1/chat/completions"}
	f.Fuzz(func(t *testing.T, p int, body string) {
		if p < 0 || strings.Contains(body, "stream") {
			return
		}
		if _, got := post(t, s, paths[p%3], body); !json.Valid(bytes.TrimSpace([]byte(got))) {
			t.Fatalf("answer %q", got)
		}
	})
}
