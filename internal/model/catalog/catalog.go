// Package catalog knows the prices and sizes of models: those of catwalk's embedded
// catalogue, and above them what the operator says.
//
// Invariants: a catalogue is a value made once, never changed after; a price is never lower
// than the listed one: where a cache price is missing, the input price stands in for it.
package catalog

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"charm.land/catwalk/pkg/catwalk"
	"charm.land/catwalk/pkg/embedded"

	"github.com/daybreak-agent/daybreak/internal/model"
)

// Entry is what is known of one model.
type Entry struct {
	Provider  string
	Model     string // the catalogue's id
	Context   int    // tokens, 0: unknown
	MaxOutput int    // tokens the provider suggests as a limit, 0: unknown
	Price     model.Price
	Priced    bool
	Reasoning bool     // the model can think
	Efforts   []string // levels that take the place of a thinking budget; empty: the model takes a budget, or none
}

// Override replaces fields of an entry, or adds one. Nil and zero fields keep what is known.
type Override struct {
	Provider  string
	Model     string
	Context   int
	MaxOutput int
	Price     *model.Price
}

// Catalog is a lookup table. The zero value knows nothing.
type Catalog struct {
	entries map[string]map[string]Entry // provider → id
}

// New loads the embedded catalogue and applies the overrides, later ones last.
func New(overrides ...Override) *Catalog {
	c := &Catalog{entries: map[string]map[string]Entry{}}
	for _, p := range embedded.GetAll() {
		for _, m := range p.Models {
			c.put(fromCatwalk(string(p.ID), m))
		}
	}
	c.apply(overrides)
	return c
}

// With returns a catalogue with overrides above what c knows. c stays as it is: decoding the
// embedded catalogue takes milliseconds, so a process does it once.
func (c *Catalog) With(overrides ...Override) *Catalog {
	n := &Catalog{entries: maps.Clone(c.entries)}
	if n.entries == nil {
		n.entries = map[string]map[string]Entry{}
	}
	for _, o := range overrides {
		n.entries[o.Provider] = maps.Clone(n.entries[o.Provider])
	}
	n.apply(overrides)
	return n
}

func (c *Catalog) apply(overrides []Override) {
	for _, o := range overrides {
		e, ok := c.Lookup(o.Provider, o.Model)
		if !ok {
			e = Entry{Provider: o.Provider}
		}
		e.Model = o.Model
		if o.Context > 0 {
			e.Context = o.Context
		}
		if o.MaxOutput > 0 {
			e.MaxOutput = o.MaxOutput
		}
		if o.Price != nil {
			e.Price, e.Priced = *o.Price, true
		}
		c.put(e)
	}
}

func (c *Catalog) put(e Entry) {
	if c.entries[e.Provider] == nil {
		c.entries[e.Provider] = map[string]Entry{}
	}
	c.entries[e.Provider][e.Model] = e
}

// dated matches the date that providers append to an id: -20250929 or -2025-09-29.
var dated = regexp.MustCompile(`-(\d{8}|\d{4}-\d{2}-\d{2})$`)

// Lookup finds a model by the id the provider uses, then by the same id with or without a
// date or the alias "-latest". Of several dates the newest counts.
func (c *Catalog) Lookup(provider, id string) (Entry, bool) {
	models := c.entries[provider]
	if e, ok := models[id]; ok {
		return e, true
	}
	base := dated.ReplaceAllString(strings.TrimSuffix(id, "-latest"), "")
	if e, ok := models[base]; ok {
		return e, true
	}
	if base != strings.TrimSuffix(id, "-latest") {
		return Entry{}, false // a date that is not listed, of a model that is not listed undated
	}
	var found []string
	for have := range models {
		if have != base && dated.ReplaceAllString(have, "") == base {
			found = append(found, have)
		}
	}
	if len(found) == 0 {
		return Entry{}, false
	}
	return models[slices.Max(found)], true
}

func fromCatwalk(provider string, m catwalk.Model) Entry {
	e := Entry{
		Provider: provider, Model: m.ID, Context: int(m.ContextWindow), MaxOutput: int(m.DefaultMaxTokens),
		Reasoning: m.CanReason, Efforts: slices.Clone(m.ReasoningLevels),
	}
	if provider == "anthropic" && !slices.Contains(e.Efforts, "max") {
		e.Efforts = nil // before the level "max" came, effort was a setting beside the budget
	}
	in, a, b := micros(m.CostPer1MIn), micros(m.CostPer1MInCached), micros(m.CostPer1MOutCached)
	p := model.Price{Input: in, Output: micros(m.CostPer1MOut), CacheRead: in, CacheWrite: in}
	// The first cached price is that of a cache write where writes cost more than input, and
	// for other providers that of a read; the second is that of a read when it is set.
	switch {
	case a > in:
		p.CacheWrite = a
		if b > 0 {
			p.CacheRead = b
		}
	case b > 0:
		p.CacheRead = max(a, b)
	case a > 0:
		p.CacheRead = a
	}
	e.Price = p
	e.Priced = p.Input > 0 || p.Output > 0 // a catalogue that lists 0 does not know, or is a flat rate
	return e
}

// micros turns dollars per million tokens into the unit of [model.Price], rounded up to
// undo the catalogue's binary fractions in nobody's favour.
func micros(dollars float64) int64 {
	if !(dollars > 0) || dollars > 1e6 {
		return 0
	}
	return int64(math.Ceil(dollars*1e6 - 1e-3))
}
