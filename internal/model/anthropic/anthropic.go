// Package anthropic is the adapter to Anthropic's Messages API, on the vendor's SDK.
//
// Invariants: a request is sent once, the SDK's retries are off; equal requests are equal
// bytes; thinking blocks go back with their signatures, in the order in which they came; the
// environment and the vendor's profile files are never read.
package anthropic

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"time"

	sdk "github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Provider is the name in [model.Info] and in the catalogue.
const Provider = "anthropic"

const defaultBaseURL = "https://api.anthropic.com/"

// Config says which model and how to reach it.
type Config struct {
	APIKey     string
	BaseURL    string // default: the vendor's
	Model      string
	HTTPClient *http.Client // nil: http.DefaultClient; redirects are refused in any case
	Context    int          // tokens, 0: unknown
	MaxOutput  int          // tokens, 0: unknown
	Price      model.Price
	Priced     bool
	Adaptive   bool             // the model takes effort levels in place of a thinking budget
	Limits     wire.Limits      // zero: the defaults
	Now        func() time.Time // nil: time.Now; reads retry-after dates
}

type client struct {
	cfg Config
	sdk sdk.Client
}

// New returns a client. Errors are Invalid (no model) or Auth (no key).
func New(cfg Config) (model.Client, error) {
	if cfg.Model == "" {
		return nil, &task.Error{Class: task.Invalid, Msg: "no model is named", Fix: "set one, such as --model anthropic/claude-sonnet-4-5"}
	}
	if cfg.APIKey == "" {
		return nil, &task.Error{Class: task.Auth, Msg: "no API key for Anthropic", Fix: "set ANTHROPIC_API_KEY or models.anthropic.key"}
	}
	if cfg.BaseURL == "" {
		cfg.BaseURL = defaultBaseURL
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &client{cfg: cfg, sdk: sdk.Client{Options: []option.RequestOption{
		option.WithoutEnvironmentDefaults(),
		option.WithBaseURL(cfg.BaseURL),
		option.WithAPIKey(cfg.APIKey),
		option.WithMaxRetries(0),
		option.WithHTTPClient(wire.Guard(cfg.HTTPClient, cfg.Limits)),
	}}}, nil
}

// Info implements model.Client.
func (c *client) Info() model.Info {
	return model.Info{Provider: Provider, Model: c.cfg.Model, Context: c.cfg.Context, MaxOutput: c.cfg.MaxOutput, Price: c.cfg.Price, Priced: c.cfg.Priced}
}

// Stream implements model.Client.
func (c *client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	return func(yield func(model.Delta, error) bool) {
		body, err := c.encode(req)
		if err != nil {
			yield(model.Delta{}, err)
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var raw *http.Response
		err = c.sdk.Post(ctx, "v1/messages", json.RawMessage(body), &raw, option.WithHeader("Accept", "text/event-stream"))
		if err != nil {
			yield(model.Delta{}, c.failure(ctx, err))
			return
		}
		stream := ssestream.NewStream[sdk.MessageStreamEventUnion](ssestream.NewDecoder(raw), nil)
		defer func() { _ = stream.Close() }()
		r := reader{response: model.Response{ID: raw.Header.Get("request-id")}}
		for stream.Next() {
			for _, d := range r.event(stream.Current()) {
				if !yield(d, nil) {
					return
				}
			}
			if r.done {
				return
			}
		}
		if err := stream.Err(); err != nil {
			yield(model.Delta{}, c.failure(ctx, err))
			return
		}
		yield(model.Delta{}, wire.Cut(Provider))
	}
}

// failure maps what the SDK returned.
func (c *client) failure(ctx context.Context, err error) error {
	var api *sdk.Error
	if ctx.Err() != nil || !errors.As(err, &api) {
		if errors.Is(err, bufio.ErrTooLong) {
			return &task.Error{Class: task.Invalid, Msg: Provider + ": one event of the stream is too long to read"}
		}
		return wire.Broken(ctx, Provider, err, c.cfg.APIKey)
	}
	f := wire.Failure{Provider: Provider, Model: c.cfg.Model, Status: api.StatusCode, Type: string(api.Type()), Secret: c.cfg.APIKey, Now: c.cfg.Now()}
	if api.Response != nil {
		f.Header = api.Response.Header
	}
	var envelope struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	if json.Unmarshal([]byte(api.RawJSON()), &envelope) == nil {
		f.Message = envelope.Error.Message
	} else {
		f.Message = api.RawJSON()
	}
	return wire.Classify(f)
}
