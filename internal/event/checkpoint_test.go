package event

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/task"
)

func testKey(b byte) (ed25519.PublicKey, ed25519.PrivateKey) {
	k := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{b}, ed25519.SeedSize))
	return k.Public().(ed25519.PublicKey), k
}

func TestCheckpoint_LOG05(t *testing.T) {
	log := sevenNotes(t)
	pub, key := testKey(1)
	c := SignCheckpoint(key, testID, 5, log[4].Hash)
	if c.KeyID != KeyID(pub) || len(c.KeyID) != 16 {
		t.Fatalf("key id %q", c.KeyID)
	}
	if err := VerifyCheckpoint(testID, log, c, pub); err != nil {
		t.Fatal(err)
	}
	if err := VerifyCheckpoint(testID, log[:5], c, pub); err != nil {
		t.Fatalf("nothing after the checkpoint: %v", err)
	}
	otherPub, otherKey := testKey(2)
	forged := SignCheckpoint(otherKey, testID, 5, log[4].Hash)
	forged.KeyID = c.KeyID
	for name, bad := range map[string]func() error{
		"other key":     func() error { return c.Verify(otherPub, testID) },
		"forged key id": func() error { return forged.Verify(pub, testID) },
		"other task":    func() error { return c.Verify(pub, "t_other") },
		"other seq":     func() error { d := c; d.Seq = 4; return d.Verify(pub, testID) },
		"other root":    func() error { d := c; d.Root = log[3].Hash; return d.Verify(pub, testID) },
		"no base64":     func() error { d := c; d.Signature = "%"; return d.Verify(pub, testID) },
		"no signature":  func() error { d := c; d.Signature = ""; return d.Verify(pub, testID) },
		"whole check":   func() error { return VerifyCheckpoint(testID, log, forged, pub) },
	} {
		if err := bad(); task.ClassOf(err) != task.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCheckpointFindsWhatTheChainCannot_LOG01: a cut tail and a log rewritten from some record on
// are whole chains.
func TestCheckpointFindsWhatTheChainCannot_LOG01(t *testing.T) {
	log := sevenNotes(t)
	pub, key := testKey(1)
	c := SignCheckpoint(key, testID, 6, log[5].Hash)
	fork := testLog(t, TaskCreated{Repo: "r"}, Noticed{}, Noticed{}, Noticed{}, Noticed{}, Noticed{}, Noticed{})
	changed := resealed(log, 6, func(e *Event) { e.Prev = log[0].Hash })
	for _, tt := range []struct {
		name string
		log  []Event
		seq  int64
	}{
		{"truncated", log[:4], 5},
		{"empty", nil, 1},
		{"forked", fork, 6},
		{"broken after it", changed, 7},
	} {
		var broken *ChainError
		if err := VerifyCheckpoint(testID, tt.log, c, pub); !errors.As(err, &broken) || broken.Seq != tt.seq {
			t.Errorf("%s: want event %d named: %v", tt.name, tt.seq, err)
		}
	}
	none := SignCheckpoint(key, testID, 0, "")
	if err := VerifyCheckpoint(testID, log, none, pub); err == nil {
		t.Error("a checkpoint of nothing was accepted")
	}
}
