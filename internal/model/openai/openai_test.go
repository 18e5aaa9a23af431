package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/modeltest"
	"github.com/daybreak-agent/daybreak/internal/model/openai"
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
