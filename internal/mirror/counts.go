package mirror

import (
	"context"
	"io"
	"sync/atomic"
)

// Counts is what a mirror did since it was made.
type Counts struct {
	Served   int64 `json:"served"`
	Stored   int64 `json:"stored"` // of those, without asking an upstream
	Refused  int64 `json:"refused"`
	Fetches  int64 `json:"fetches"` // requests to upstreams
	BytesOut int64 `json:"bytes_out"`
	BytesIn  int64 `json:"bytes_in"`
}

// Counts says what the mirror did until now.
func (m *Mirror) Counts() Counts { return m.net.counts.read() }

// counts are the mirror's, kept by all its connections.
type counts struct{ served, stored, refused, fetches, out, in atomic.Int64 }

func (c *counts) read() Counts {
	return Counts{c.served.Load(), c.stored.Load(), c.refused.Load(), c.fetches.Load(), c.out.Load(), c.in.Load()}
}

type fetchesKey struct{}

// counting returns a context of one request of a client, and how often an upstream was asked for it.
func counting(ctx context.Context) (context.Context, *atomic.Int64) {
	n := new(atomic.Int64)
	return context.WithValue(ctx, fetchesKey{}, n), n
}

// fetching counts a request to an upstream, and the request of a client that it is made for.
func (c *counts) fetching(ctx context.Context) {
	c.fetches.Add(1)
	if n, ok := ctx.Value(fetchesKey{}).(*atomic.Int64); ok {
		n.Add(1)
	}
}

// tally counts what is written.
type tally struct {
	io.Writer
	n *atomic.Int64
}

// Write implements io.Writer.
func (t tally) Write(b []byte) (int, error) {
	n, err := t.Writer.Write(b)
	t.n.Add(int64(n))
	return n, err
}
