package mirror

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"
)

// indexWant marks the references of what upstreams said, as against the files they promised.
const indexWant = "index"

// raw returns an upstream's index: from the store when it is fresh enough, else fetched. A
// session that is offline takes what is stored however old it is: what it names was verified
// when it was fetched, and its files are verified by their digests as ever.
func (m *Mirror) raw(ctx context.Context, s *Session, u *Upstream, address, accept string, ttl time.Duration) (body []byte, final, ctype string, err error) {
	key := "index " + address + " " + accept
	if body, r, ok := m.store.index(key, m.cfg.Sizes.Metadata); ok && (s.cfg.Offline || m.cfg.Now().Sub(r.Fetched) < ttl) {
		return body, r.From, r.Type, nil
	}
	if err := s.fetching(); err != nil {
		return nil, "", "", err
	}
	var b bytes.Buffer
	if final, ctype, err = m.fetch(ctx, s, u, address, accept, m.cfg.Sizes.Metadata, &b); err != nil {
		return nil, "", "", err
	}
	if err := m.store.keepIndex(ref{Key: key, Want: indexWant, From: final, Type: ctype, Fetched: m.cfg.Now().UTC()}, b.Bytes()); err != nil {
		m.cfg.Log.Warn("an index could not be kept", "error", err) // costs a request later, nothing else
	}
	return b.Bytes(), final, ctype, nil
}

// index reads what an upstream said earlier.
func (s *store) index(key string, limit int64) ([]byte, ref, bool) {
	b, r, ok := s.open(key, indexWant)
	if !ok {
		return nil, ref{}, false
	}
	defer b.Close()
	body, err := io.ReadAll(io.LimitReader(b, limit))
	return body, *r, err == nil && int64(len(body)) == b.size
}

// keepIndex stores what an upstream said.
func (s *store) keepIndex(r ref, body []byte) error {
	tmp, err := s.scratch()
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already after a rename
	defer tmp.Close()
	if _, err := tmp.Write(body); err != nil {
		return storeTrouble(err)
	}
	return s.adopt(r, tmp)
}
