package worker

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/evidence"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

type signingKey struct{ ed25519.PrivateKey }

func (k signingKey) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(k.PrivateKey, data), nil
}

func (k signingKey) KeyID() (string, error) { return event.KeyID(k.pub()), nil }

func (k signingKey) pub() ed25519.PublicKey { return k.PrivateKey.Public().(ed25519.PublicKey) }

// TestEvidenceKept: whoever is asked to approve finds the signed evidence in the record, the pull
// request comes with the very same bytes, and they are recorded once.
func TestEvidenceKept(t *testing.T) {
	r := newRig(t, task.Limits{Wall: time.Hour})
	key := signingKey{ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, ed25519.SeedSize))}
	r.cfg.Hold, r.cfg.Attest = true, key
	r.verified(t)
	before := r.fold(t)
	if before.Signed != nil || before.Unsigned() == "" {
		t.Fatalf("%+v %q", before.Signed, before.Unsigned())
	}
	r.record(t, event.StateChanged{From: task.Verifying, To: task.Publishing})
	r.release(t)
	sum, err := r.Run(t.Context(), r.id)
	if !errors.Is(err, ErrHeld) || sum.Signed == nil || sum.Signed.Verification != sum.VerifiedSeq {
		t.Fatalf("%+v %v", sum.Signed, err)
	}
	held, err := store.Load(t.Context(), r.cfg.Store, sum.Signed.Bundle)
	if err != nil || evidence.Digest([]byte(held)) != sum.Signed.Digest {
		t.Fatalf("%s %v", sum.Signed.Digest, err)
	}
	b, faults, err := evidence.Check(t.Context(), []byte(held), key.pub())
	if err != nil || len(faults) > 0 || b.Record.HeadTree != sum.Held.Tree || b.Record.Log.Root != sum.VerifiedHash {
		t.Errorf("%v %v %+v", faults, err, b.Record)
	}
	r.word(t, store.Approve, sum.Held.Tree)
	if sum, err = r.Run(t.Context(), r.id); err != nil || sum.State != task.InReview {
		t.Fatalf("%s %v", sum.State, err)
	}
	published, err := os.ReadFile(filepath.Join(filepath.Dir(sum.PullRequest.URL), "evidence.json"))
	if err != nil || string(published) != held {
		t.Errorf("the pull request comes with other evidence than was shown: %v", err)
	}
	events, err := r.cfg.Store.Events(t.Context(), r.id, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range events {
		if e.Kind == (event.EvidenceSigned{}).EventKind() {
			n++
		}
	}
	if n != 1 {
		t.Errorf("it is recorded %d times", n)
	}
}
