package anthropic_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/anthropic"
	"github.com/daybreak-agent/daybreak/internal/model/modeltest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func factory(to modeltest.Target) (model.Client, error) {
	return anthropic.New(anthropic.Config{APIKey: to.APIKey, BaseURL: to.BaseURL, Model: to.Model, HTTPClient: to.HTTP, Limits: to.Limits})
}

// mark is a cache breakpoint: it moves from step to step, and is no part of what is cached.
var mark = regexp.MustCompile(`,"cache_control":\{"type":"ephemeral"\}`)

func TestSuite(t *testing.T) {
	traits := modeltest.Traits{ThinkingKept: true, CacheWrites: true, Stable: func(t *testing.T, body []byte) []byte {
		if !json.Valid(body) {
			t.Fatalf("not JSON: %s", body)
		}
		if n := len(mark.FindAll(body, -1)); n < 3 || n > 4 {
			t.Errorf("%d cache breakpoints", n)
		}
		return mark.ReplaceAll(body[:len(body)-len("]}")], nil)
	}}
	modeltest.Run(t, traits, func(t *testing.T, to modeltest.Target) model.Client {
		c, err := factory(to)
		if err != nil {
			t.Fatal(err)
		}
		return c
	})
}

func BenchmarkStep(b *testing.B) {
	modeltest.Bench(b, func(to modeltest.Target) model.Client {
		c, err := factory(to)
		if err != nil {
			b.Fatal(err)
		}
		return c
	})
}

func over(t *testing.T, stream string) model.Client {
	t.Helper()
	c, err := factory(modeltest.Target{BaseURL: "http://127.0.0.1:1", APIKey: "k", Model: "m", HTTP: &http.Client{Transport: modeltest.Bytes(stream)}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const recorded = `event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":3,"cache_creation_input_tokens":4,"cache_read_input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"opaque=="}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"signature_delta","signature":"sealed"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"a\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}}

event: message_stop
data: {"type":"message_stop"}

`

// echo keeps the last request's body.
type echo struct {
	modeltest.Bytes
	body []byte
}

func (e *echo) RoundTrip(r *http.Request) (*http.Response, error) {
	e.body, _ = io.ReadAll(r.Body)
	return e.Bytes.RoundTrip(r)
}

// TestThinkingGoesBack holds that hidden and redacted thinking return before their call.
func TestThinkingGoesBack(t *testing.T) {
	e := &echo{Bytes: recorded}
	c, err := factory(modeltest.Target{BaseURL: "http://127.0.0.1:1", APIKey: "k", Model: "m", HTTP: &http.Client{Transport: e}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := model.Collect(c.Stream(t.Context(), modeltest.Request()), nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := (task.Tokens{Input: 3, Output: 9, CacheRead: 5, CacheWrite: 4}); r.Tokens != want {
		t.Errorf("tokens %+v", r.Tokens)
	}
	if _, err := model.Collect(c.Stream(t.Context(), modeltest.Answer(modeltest.Request(), r, "fine", false)), nil); err != nil {
		t.Fatal(err)
	}
	want := `{"role":"assistant","content":[{"type":"redacted_thinking","data":"opaque=="},{"type":"thinking","thinking":"","signature":"sealed"},{"type":"tool_use","id":"toolu_1","name":"read","input":{"a":1}}]}`
	if !bytes.Contains(e.body, []byte(want)) {
		t.Errorf("body %s", e.body[len(e.body)-600:])
	}
}

func TestThinkingBudget(t *testing.T) {
	for _, tc := range []struct {
		thinking, output int
		adaptive         bool
		want             string
	}{
		{0, 4096, false, ""},
		{10, 4096, false, `"thinking":{"type":"enabled","budget_tokens":1024}`},
		{9000, 4096, false, `"thinking":{"type":"enabled","budget_tokens":4095}`}, // never more output than was asked for
		{9000, 1000, false, ""},
		{9000, 4096, true, `"thinking":{"type":"adaptive"},"output_config":{"effort":"medium"}`},
	} {
		e := &echo{Bytes: recorded}
		c, err := anthropic.New(anthropic.Config{APIKey: "k", Model: "m", HTTPClient: &http.Client{Transport: e}, Adaptive: tc.adaptive})
		if err != nil {
			t.Fatal(err)
		}
		req := modeltest.Request()
		req.Thinking, req.MaxOutput = tc.thinking, tc.output
		if _, err := model.Collect(c.Stream(t.Context(), req), nil); err != nil {
			t.Fatal(err)
		}
		if tc.want == "" && bytes.Contains(e.body, []byte(`"thinking"`)) || !bytes.Contains(e.body, []byte(tc.want)) {
			t.Errorf("%+v: %.300s", tc, e.body)
		}
	}
}

func TestNew(t *testing.T) {
	if _, err := anthropic.New(anthropic.Config{Model: "m"}); task.ClassOf(err) != task.Auth {
		t.Errorf("no key: %v", err)
	}
	if _, err := anthropic.New(anthropic.Config{APIKey: "k"}); task.ClassOf(err) != task.Invalid {
		t.Errorf("no model: %v", err)
	}
}

func FuzzStream(f *testing.F) {
	f.Add(recorded)
	f.Add(recorded[:len(recorded)/2])
	f.Add("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\\ny\"}}\n\n")
	f.Add("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n")
	f.Add("event: x\ndata: {\n\n")
	f.Fuzz(func(t *testing.T, stream string) { modeltest.CheckStream(t, over(t, stream)) })
}
