// Package meter is a decorator of package model that prices replies.
//
// Invariants: a reply's cost covers its own tokens and those of failed attempts; a model
// without a price is never shown as free, its replies say Priced: false.
package meter

import (
	"context"
	"iter"

	"github.com/daybreak-agent/daybreak/internal/model"
)

type client struct{ next model.Client }

// New wraps a client, which is best one that retries: Wasted is priced too.
func New(next model.Client) model.Client { return client{next} }

// Info implements model.Client.
func (c client) Info() model.Info { return c.next.Info() }

// Stream implements model.Client.
func (c client) Stream(ctx context.Context, req model.Request) iter.Seq2[model.Delta, error] {
	info := c.next.Info()
	return func(yield func(model.Delta, error) bool) {
		for d, err := range c.next.Stream(ctx, req) {
			if d.Done != nil {
				done := *d.Done
				done.Priced = info.Priced
				if info.Priced {
					done.Cost = info.Price.Cost(done.Tokens.Add(done.Wasted))
				}
				d.Done = &done
			}
			if !yield(d, err) {
				return
			}
		}
	}
}
