package anthropic_test

import (
	"encoding/json"
	"regexp"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/anthropic"
	"github.com/daybreak-agent/daybreak/internal/model/modeltest"
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
