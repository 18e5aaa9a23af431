package app

import (
	"fmt"
	"math"
	mathrand "math/rand/v2"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/anthropic"
	"github.com/daybreak-agent/daybreak/internal/model/catalog"
	"github.com/daybreak-agent/daybreak/internal/model/limit"
	"github.com/daybreak-agent/daybreak/internal/model/meter"
	"github.com/daybreak-agent/daybreak/internal/model/openai"
	"github.com/daybreak-agent/daybreak/internal/model/retry"
	"github.com/daybreak-agent/daybreak/internal/model/wire"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Delta is model.Delta, for the packages that draw it.
type Delta = model.Delta

// Model builds the client for "provider/model": adapter, retries, prices.
func (a *App) Model(name string) (model.Client, error) {
	if name == "" {
		return nil, &task.Error{
			Class: task.Invalid, Msg: "no model is configured",
			Fix: "use --model provider/model (for example anthropic/claude-sonnet-4-5, with ANTHROPIC_API_KEY set), or set `model:` in the configuration",
		}
	}
	p, id, err := a.Config.SplitModel(name)
	if err != nil {
		return nil, &task.Error{Class: task.Invalid, Err: err}
	}
	key := a.opts.Key
	if a.opts.BaseURL != "" {
		p.BaseURL = a.opts.BaseURL
	} else if key, err = p.Key(a.opts.Getenv); err != nil {
		return nil, err
	}
	provider, _, _ := cutModel(name)
	known, _ := a.known().With(override(provider, id, p)).Lookup(provider, id)
	limits := wire.Limits{Idle: p.Idle}
	var shared *limit.Limiter
	if a.queue != nil { // one process alone is told by the provider
		shared = limit.New(limit.Config{
			Key: limitKey(name), State: a.Store, Now: a.Now, Rand: mathrand.Float64, Logger: a.opts.Logger,
		})
		limits.Seen = shared.Seen
	}
	client, err := adapter(p, provider, id, key, known, limits)
	if err != nil {
		return nil, err
	}
	if shared != nil {
		client = shared.Client(client)
	}
	return meter.New(retry.New(client, retry.Config{Rand: mathrand.Float64})), nil
}

func adapter(p config.Provider, provider, id, key string, known catalog.Entry, limits wire.Limits) (model.Client, error) {
	if p.API == "anthropic" {
		return anthropic.New(anthropic.Config{
			APIKey: key, BaseURL: p.BaseURL, Model: id, Context: known.Context, MaxOutput: known.MaxOutput,
			Price: known.Price, Priced: known.Priced, Adaptive: len(known.Efforts) > 0, Limits: limits,
		})
	}
	api := openai.Responses
	if p.API == "openai-chat" {
		api = openai.Chat
	}
	return openai.New(openai.Config{
		APIKey: key, BaseURL: p.BaseURL, Model: id, API: api, Provider: provider, Context: known.Context,
		MaxOutput: known.MaxOutput, Price: known.Price, Priced: known.Priced, Reasoning: known.Reasoning, Limits: limits,
	})
}

func override(provider, id string, p config.Provider) catalog.Override {
	o := catalog.Override{Provider: provider, Model: id, Context: p.Context, MaxOutput: p.MaxOutput}
	if p.Price != nil {
		per := func(usd float64) int64 { return int64(math.Round(usd * 1e6)) }
		o.Price = &model.Price{Input: per(p.Price.Input), Output: per(p.Price.Output), CacheRead: per(p.Price.CacheRead), CacheWrite: per(p.Price.CacheWrite)}
	}
	return o
}

func cutModel(name string) (provider, id string, err error) {
	for i := range name {
		if name[i] == '/' {
			return name[:i], name[i+1:], nil
		}
	}
	return "", "", fmt.Errorf("model %q is not provider/model", name)
}

// limitKey names what all workers know of a model's rate limits.
func limitKey(model string) string { return "rate limit " + model }
