package catalog_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/catalog"
)

func TestPrices(t *testing.T) {
	c := catalog.New()
	for _, tc := range []struct {
		provider, id string
		want         model.Price
	}{
		{"anthropic", "claude-sonnet-4-5-20250929", model.Price{Input: 3_000_000, Output: 15_000_000, CacheRead: 300_000, CacheWrite: 3_750_000}},
		{"openai", "gpt-5", model.Price{Input: 1_250_000, Output: 10_000_000, CacheRead: 125_000, CacheWrite: 1_250_000}},
		{"openai", "gpt-5.4", model.Price{Input: 2_500_000, Output: 15_000_000, CacheRead: 250_000, CacheWrite: 2_500_000}},
		{"openai", "gpt-4o", model.Price{Input: 2_500_000, Output: 10_000_000, CacheRead: 1_250_000, CacheWrite: 2_500_000}},
		{"openai", "gpt-4.1-mini", model.Price{Input: 400_000, Output: 1_600_000, CacheRead: 100_000, CacheWrite: 400_000}},
		{"openai", "gpt-5.4-pro", model.Price{Input: 30_000_000, Output: 180_000_000, CacheRead: 30_000_000, CacheWrite: 30_000_000}},
	} {
		e, ok := c.Lookup(tc.provider, tc.id)
		if !ok || !e.Priced {
			t.Errorf("%s/%s: found %v, priced %v", tc.provider, tc.id, ok, e.Priced)
			continue
		}
		if d := cmp.Diff(tc.want, e.Price); d != "" {
			t.Errorf("%s/%s (-want +got):\n%s", tc.provider, tc.id, d)
		}
		if e.Context < 100_000 || e.MaxOutput < 1000 {
			t.Errorf("%s: context %d, output %d", tc.id, e.Context, e.MaxOutput)
		}
	}
}

func TestNames(t *testing.T) {
	c := catalog.New()
	for id, want := range map[string]string{
		"claude-sonnet-4-5":        "claude-sonnet-4-5-20250929", // alias → dated
		"claude-sonnet-4-5-latest": "claude-sonnet-4-5-20250929",
		"claude-opus-4-6-20260201": "claude-opus-4-6", // dated → listed undated
		"claude-opus-4":            "claude-opus-4-20250514",
		"claude-opus-4-1":          "claude-opus-4-1-20250805",
	} {
		if e, ok := c.Lookup("anthropic", id); !ok || e.Model != want {
			t.Errorf("%s: %v %q, want %q", id, ok, e.Model, want)
		}
	}
	if e, ok := c.Lookup("openai", "gpt-5-2025-08-07"); !ok || e.Model != "gpt-5" {
		t.Errorf("gpt-5-2025-08-07: %v %q", ok, e.Model)
	}
	for _, id := range []string{"", "claude", "no-such-model", "claude-sonnet-9-20300101"} {
		if e, ok := c.Lookup("anthropic", id); ok {
			t.Errorf("%q found %q", id, e.Model)
		}
	}
	if _, ok := c.Lookup("no-such-provider", "gpt-5"); ok {
		t.Error("found a model of a provider that is not there")
	}
	if _, ok := (&catalog.Catalog{}).Lookup("openai", "gpt-5"); ok {
		t.Error("the zero catalogue knows a model")
	}
}

func TestOverrides(t *testing.T) {
	mine := model.Price{Input: 1, Output: 2}
	c := catalog.New(
		catalog.Override{Provider: "anthropic", Model: "claude-sonnet-4-5", Price: &mine},
		catalog.Override{Provider: "vllm", Model: "qwen", Context: 32_768},
	)
	e, _ := c.Lookup("anthropic", "claude-sonnet-4-5")
	if e.Price != mine || e.Context < 100_000 {
		t.Errorf("override: %+v", e)
	}
	if e, _ := c.Lookup("anthropic", "claude-sonnet-4-5-20250929"); e.Price == mine {
		t.Error("the override of one name changed another")
	}
	if e, ok := c.Lookup("vllm", "qwen"); !ok || e.Priced || e.Context != 32_768 {
		t.Errorf("added: %v %+v", ok, e)
	}
}

func TestEfforts(t *testing.T) {
	c := catalog.New()
	for id, want := range map[string]bool{"claude-opus-4-6": true, "claude-opus-4-5": false, "claude-sonnet-4-5": false} {
		if e, _ := c.Lookup("anthropic", id); (len(e.Efforts) > 0) != want || !e.Reasoning {
			t.Errorf("%s: efforts %v, reasoning %v", id, e.Efforts, e.Reasoning)
		}
	}
}

func TestWithLeavesTheOriginal(t *testing.T) {
	c := catalog.New()
	listed, _ := c.Lookup("openai", "gpt-5")
	own := c.With(catalog.Override{Provider: "openai", Model: "gpt-5", Context: 7}, catalog.Override{Provider: "local", Model: "m", MaxOutput: 9})
	if e, _ := own.Lookup("openai", "gpt-5"); e.Context != 7 || e.Price != listed.Price {
		t.Errorf("the override gave %+v", e)
	}
	if e, ok := own.Lookup("local", "m"); !ok || e.MaxOutput != 9 {
		t.Errorf("the added model is %+v, %v", e, ok)
	}
	if e, _ := c.Lookup("openai", "gpt-5"); e.Context != listed.Context {
		t.Error("the original was changed")
	}
	if _, ok := c.Lookup("local", "m"); ok {
		t.Error("the original has the added model")
	}
	if _, ok := (&catalog.Catalog{}).With(catalog.Override{Provider: "p", Model: "m", Context: 1}).Lookup("p", "m"); !ok {
		t.Error("the empty catalogue takes no override")
	}
}
