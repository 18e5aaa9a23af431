package openai_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/modeltest"
	"github.com/daybreak-agent/daybreak/internal/model/openai"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func factory(api string, to modeltest.Target) (model.Client, error) {
	return openai.New(openai.Config{APIKey: to.APIKey, BaseURL: to.BaseURL + "/v1/", Model: to.Model, API: api, HTTPClient: to.HTTP, Limits: to.Limits})
}

func TestSuite(t *testing.T) {
	for _, api := range []string{openai.Responses, openai.Chat} {
		t.Run(api, func(t *testing.T) {
			traits := modeltest.Traits{ThinkingKept: api == openai.Responses, Stable: func(t *testing.T, body []byte) []byte {
				if !json.Valid(body) {
					t.Fatalf("not JSON: %s", body)
				}
				return body[:len(body)-len("]}")]
			}}
			modeltest.Run(t, traits, func(t *testing.T, to modeltest.Target) model.Client {
				c, err := factory(api, to)
				if err != nil {
					t.Fatal(err)
				}
				return c
			})
		})
	}
}

func BenchmarkStep(b *testing.B) {
	for _, api := range []string{openai.Responses, openai.Chat} {
		b.Run(api, func(b *testing.B) {
			modeltest.Bench(b, func(to modeltest.Target) model.Client {
				c, err := factory(api, to)
				if err != nil {
					b.Fatal(err)
				}
				return c
			})
		})
	}
}

func over(t *testing.T, api, stream string) model.Client {
	t.Helper()
	c, err := factory(api, modeltest.Target{BaseURL: "http://127.0.0.1:1", APIKey: "k", Model: "m", HTTP: &http.Client{Transport: modeltest.Bytes(stream)}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// looseServer is a chat stream as several compatible servers send it: no usage, calls whole
// and all of index 0, the finish reason "stop".
const looseServer = `data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"reasoning_content":"hm"}}]}

data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"read","arguments":"{\"p\":1}"}}]}}]}

data: {"id":"x","model":"m","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"read","arguments":"{\"p\":2}"}}]}}]}

data: {"id":"x","model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}

data: [DONE]

`

func TestLooseServer(t *testing.T) {
	r, err := model.Collect(over(t, openai.Chat, looseServer).Stream(t.Context(), modeltest.Request()), nil)
	if err != nil {
		t.Fatal(err)
	}
	calls := r.Message.Calls()
	if len(calls) != 2 || string(calls[0].Input) != `{"p":1}` || string(calls[1].Input) != `{"p":2}` || r.Stop != model.StopToolUse {
		t.Errorf("stop %s, %+v", r.Stop, calls)
	}
	if !r.Estimated || r.Tokens.Input != model.EstimateTokens(modeltest.Request()) || r.Tokens.Output == 0 {
		t.Errorf("estimated %v, %+v", r.Estimated, r.Tokens)
	}
}

func TestStreamedErrors(t *testing.T) {
	for _, tc := range []struct {
		api, data string
		want      task.Class
	}{
		{openai.Responses, `{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded","message":"slow"}}}`, task.RateLimited},
		{openai.Responses, `{"type":"response.failed","response":{"error":{"code":"server_error","message":"oops"}}}`, task.Transient},
		{openai.Responses, `{"type":"error","code":"context_length_exceeded","message":"big"}`, task.TooLarge},
		{openai.Responses, `{"type":"error","error":{"type":"invalid_request_error","code":"context_length_exceeded","message":"big"}}`, task.TooLarge},
		{openai.Chat, `{"error":{"code":429,"message":"slow"}}`, task.RateLimited},
		{openai.Chat, `{"error":{"code":"insufficient_quota","message":"pay"}}`, task.Auth},
		{openai.Chat, `{"error":"odd"}`, task.Transient},
	} {
		_, err := model.Collect(over(t, tc.api, "data: "+tc.data+"\n\n").Stream(t.Context(), modeltest.Request()), nil)
		if task.ClassOf(err) != tc.want {
			t.Errorf("%s: %v, want %s", tc.data, err, tc.want)
		}
	}
}

func TestNew(t *testing.T) {
	for _, tc := range []struct {
		cfg  openai.Config
		want task.Class
	}{
		{openai.Config{Model: "m"}, task.Auth},
		{openai.Config{APIKey: "k"}, task.Invalid},
		{openai.Config{APIKey: "k", Model: "m", API: "soap"}, task.Invalid},
		{openai.Config{BaseURL: "http://127.0.0.1:1/v1", Model: "m"}, ""}, // one's own server needs no key
	} {
		if _, err := openai.New(tc.cfg); task.ClassOf(err) != tc.want {
			t.Errorf("%+v: %v", tc.cfg, err)
		}
	}
}

func FuzzStream(f *testing.F) {
	f.Add(true, looseServer)
	f.Add(true, `data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":5}}}`+"\n\n")
	f.Add(false, `data: {"type":"response.output_item.done","item":{"type":"function_call","call_id":"c","name":"n","arguments":"[]"}}`+"\n\n"+
		`data: {"type":"response.completed","response":{"status":"completed","usage":{"input_tokens":1}}}`+"\n\n")
	f.Add(false, "data: {\"type\":\"error\",\"code\":7}\n\n")
	f.Fuzz(func(t *testing.T, chat bool, stream string) {
		api := openai.Responses
		if chat {
			api = openai.Chat
		}
		modeltest.CheckStream(t, over(t, api, stream))
	})
}
