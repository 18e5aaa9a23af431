// Package openai is the adapter to OpenAI's Responses API and to Chat Completions, which
// many servers are compatible with (vLLM, Ollama, OpenRouter, Azure), on the vendor's SDK.
//
// Invariants: a request is sent once, the SDK's retries are off; equal requests are equal
// bytes; nothing is stored by the provider, so reasoning comes back encrypted and is sent
// again in its place; the environment is never read.
package openai

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"time"

	sdk "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/responses"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const (
	defaultProvider = "openai"
	defaultBaseURL  = "https://api.openai.com/v1/"
)

// The values of [Config.API].
const (
	Responses = "responses"
	Chat      = "chat"
)

// Config says which model and how to reach it.
type Config struct {
	APIKey     string // may be empty for a server of one's own
	BaseURL    string // default: the vendor's; ends before /responses or /chat/completions
	Model      string
	API        string       // Responses or Chat; default Responses
	Provider   string       // name in model.Info; default "openai"
	HTTPClient *http.Client // nil: http.DefaultClient; redirects are refused in any case
	Context    int          // tokens, 0: unknown
	MaxOutput  int          // tokens, 0: unknown
	Price      model.Price
	Priced     bool
	Reasoning  bool             // Responses: the model reasons, so its encrypted reasoning is asked for even without a thinking budget
	Limits     wire.Limits      // zero: the defaults
	Now        func() time.Time // nil: time.Now; reads retry-after dates
}

type client struct {
	cfg        Config
	compatible bool // not the vendor's own server
	sdk        sdk.Client
}

// New returns a client. Errors are Invalid (no model, unknown API) or Auth (no key).
func New(cfg Config) (model.Client, error) {
	c := &client{compatible: cfg.BaseURL != ""}
	switch {
	case cfg.Model == "":
		return nil, &task.Error{Class: task.Invalid, Msg: "no model is named", Fix: "set one, such as --model openai/gpt-5.1"}
	case cfg.APIKey == "" && !c.compatible:
		return nil, &task.Error{Class: task.Auth, Msg: "no API key for OpenAI", Fix: "set OPENAI_API_KEY or models.openai.key"}
	}
	if cfg.API == "" {
		cfg.API = Responses
	}
	if cfg.API != Responses && cfg.API != Chat {
		return nil, &task.Error{Class: task.Invalid, Msg: "unknown API " + wire.OneLine(cfg.API, 40), Fix: `use "responses" or "chat"`}
	}
	if cfg.Provider == "" {
		cfg.Provider = defaultProvider
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = defaultBaseURL
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	c.cfg = cfg
	opts := []option.RequestOption{
		option.WithBaseURL(cfg.BaseURL),
		option.WithMaxRetries(0),
		option.WithHTTPClient(wire.Guard(cfg.HTTPClient, cfg.Limits)),
	}
	if cfg.APIKey != "" {
		opts = append(opts, option.WithAPIKey(cfg.APIKey))
	}
	c.sdk = sdk.Client{Options: opts}
	return c, nil
}

// Info implements model.Client.
func (c *client) Info() model.Info {
	return model.Info{Provider: c.cfg.Provider, Model: c.cfg.Model, Context: c.cfg.Context, MaxOutput: c.cfg.MaxOutput, Price: c.cfg.Price, Priced: c.cfg.Priced}
}

// Stream implements model.Client.
func (c *client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	if c.cfg.API == Chat {
		return func(yield func(model.Delta, error) bool) {
			body, err := c.encodeChat(req)
			if err != nil {
				yield(model.Delta{}, err)
				return
			}
			stream(ctx, c, "chat/completions", body, &chatReader{request: req}, yield)
		}
	}
	return func(yield func(model.Delta, error) bool) {
		body, err := c.encodeResponses(req)
		if err != nil {
			yield(model.Delta{}, err)
			return
		}
		r := &responsesReader{client: c}
		stream[responses.ResponseStreamEventUnion](ctx, c, "responses", body, r, yield)
	}
}

// reader folds the events of one stream. event returns what is to be shown; finish returns
// the record, or nil when the stream did not reach its end.
type reader[E any] interface {
	event(E) ([]model.Delta, error)
	finish() *model.Response
	complete() bool // nothing that matters can follow
}

func stream[E any](ctx context.Context, c *client, path string, body []byte, r reader[E], yield func(model.Delta, error) bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var raw *http.Response
	if err := c.sdk.Post(ctx, path, json.RawMessage(body), &raw, option.WithHeader("Accept", "text/event-stream")); err != nil {
		yield(model.Delta{}, c.failure(ctx, err))
		return
	}
	s := ssestream.NewStream[E](ssestream.NewDecoder(raw), nil)
	defer func() { _ = s.Close() }()
	for !r.complete() && s.Next() {
		deltas, err := r.event(s.Current())
		if err != nil {
			yield(model.Delta{}, err)
			return
		}
		for _, d := range deltas {
			if !yield(d, nil) {
				return
			}
		}
	}
	if err := s.Err(); err != nil && !r.complete() {
		yield(model.Delta{}, c.failure(ctx, err))
		return
	}
	out := r.finish()
	if out == nil {
		yield(model.Delta{}, wire.Cut(c.cfg.Provider))
		return
	}
	if id := raw.Header.Get("x-request-id"); id != "" {
		out.ID = id
	}
	yield(model.Delta{Done: out}, nil)
}

// failure maps what the SDK returned.
func (c *client) failure(ctx context.Context, err error) error {
	f := wire.Failure{Provider: c.cfg.Provider, Model: c.cfg.Model, Secret: c.cfg.APIKey, Now: c.cfg.Now()}
	var api *sdk.Error
	var inStream *ssestream.StreamError
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &api):
		f.Status, f.Type, f.Code, f.Message = api.StatusCode, api.Type, api.Code, api.Message
		if f.Message == "" {
			f.Message = api.RawJSON()
		}
		if api.Response != nil {
			f.Header = api.Response.Header
		}
		return wire.Classify(f)
	case errors.As(err, &inStream):
		return c.streamed(inStream.Event.Data)
	case errors.Is(err, bufio.ErrTooLong):
		return &task.Error{Class: task.Invalid, Msg: c.cfg.Provider + ": one event of the stream is too long to read"}
	}
	return wire.Broken(ctx, c.cfg.Provider, err, c.cfg.APIKey)
}

// streamed maps an error object inside a stream: nested under "error", or flat in an event of
// type "error". Codes are strings, or numbers with some compatible servers.
func (c *client) streamed(data []byte) error {
	type object struct {
		Type    string          `json:"type"`
		Code    json.RawMessage `json:"code"`
		Message string          `json:"message"`
	}
	var e struct {
		Error *object `json:"error"`
		object
	}
	f := wire.Failure{Provider: c.cfg.Provider, Model: c.cfg.Model, Status: http.StatusOK, Secret: c.cfg.APIKey, Now: c.cfg.Now()}
	if json.Unmarshal(data, &e) != nil {
		f.Message = string(data)
		return wire.Classify(f)
	}
	o := e.object
	if e.Error != nil {
		o = *e.Error
	}
	f.Type, f.Message = o.Type, o.Message
	if json.Unmarshal(o.Code, &f.Code) != nil {
		_ = json.Unmarshal(o.Code, &f.Status) // a number is an HTTP status; anything else leaves 200
	}
	return wire.Classify(f)
}

// effort maps a token budget to the provider's levels.
func effort(budget int) string {
	switch {
	case budget <= 4096:
		return "low"
	case budget <= 16384:
		return "medium"
	}
	return "high"
}

// errorMark starts the text of a failed call: neither API has a flag for it.
const errorMark = "Error: "

func resultText(b model.Block) string {
	if b.IsError {
		return errorMark + b.Text
	}
	return b.Text
}
