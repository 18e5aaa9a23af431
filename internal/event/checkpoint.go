package event

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// KeyID names a signing key: the hex of the first 8 bytes of the SHA-256 of the public key.
func KeyID(pub ed25519.PublicKey) string {
	h := sha256.Sum256(pub)
	return hex.EncodeToString(h[:8])
}

// SignCheckpoint signs the log of a task up to the record seq whose hash is root.
func SignCheckpoint(key ed25519.PrivateKey, id task.ID, seq int64, root string) Checkpoint {
	pub := key.Public().(ed25519.PublicKey)
	return Checkpoint{
		Seq: seq, Root: root, KeyID: KeyID(pub),
		Signature: base64.StdEncoding.EncodeToString(ed25519.Sign(key, checkpointMessage(id, seq, root))),
	}
}

// Verify reports whether the checkpoint was signed by the key for this task: class
// [task.Invalid] when not. It says nothing about a log: see [VerifyCheckpoint].
func (c Checkpoint) Verify(pub ed25519.PublicKey, id task.ID) error {
	if got := KeyID(pub); got != c.KeyID {
		return invalidf("checkpoint of %s is signed by key %s, not by %s", id, c.KeyID, got)
	}
	sig, err := base64.StdEncoding.DecodeString(c.Signature)
	if err != nil || !ed25519.Verify(pub, checkpointMessage(id, c.Seq, c.Root), sig) {
		return invalidf("checkpoint of %s at event %d has a bad signature", id, c.Seq)
	}
	return nil
}

// VerifyCheckpoint checks a log against a checkpoint kept elsewhere: the chain holds, the
// signature is good, and the record that was signed is still there unchanged. A tail cut off
// before the checkpoint and a log rewritten from some record on are both found here, as a
// *[ChainError]; events appended after the checkpoint are allowed.
func VerifyCheckpoint(id task.ID, events []Event, c Checkpoint, pub ed25519.PublicKey) error {
	if err := c.Verify(pub, id); err != nil {
		return err
	}
	if err := VerifyChain(id, events); err != nil {
		return err
	}
	return c.Covers(id, events)
}

// Covers reports whether the log holds the record that the checkpoint names. It returns a
// *[ChainError] when the log is shorter than that or has another record there.
func (c Checkpoint) Covers(id task.ID, events []Event) error {
	n := int64(len(events))
	switch {
	case c.Seq < 1:
		return &ChainError{id, c.Seq, "the checkpoint names no record"}
	case c.Seq > n:
		return &ChainError{id, n + 1, fmt.Sprintf("it is missing: the checkpoint covers %d events", c.Seq)}
	case events[c.Seq-1].Hash != c.Root:
		return &ChainError{id, c.Seq, "it is not the record that the checkpoint signed"}
	}
	return nil
}

func checkpointMessage(id task.ID, seq int64, root string) []byte {
	return []byte("daybreak.checkpoint.v1\x00" + string(id) + "\x00" + strconv.FormatInt(seq, 10) + "\x00" + root)
}

func invalidf(format string, args ...any) error {
	return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf(format, args...)}
}
