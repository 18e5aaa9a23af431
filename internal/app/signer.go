package app

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// signer holds the key that signs the end of every log.
type signer struct{ key ed25519.PrivateKey }

// openSigner reads the key, or makes one at first use. The seed is readable by the owner
// alone; the public half lies beside it for those who verify.
func openSigner(dir string, rand io.Reader) (*signer, error) {
	path := filepath.Join(dir, "checkpoint.key")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeSigner(dir, path, rand)
	}
	if err != nil {
		return nil, &task.Error{Class: task.Unavailable, Msg: "cannot read the signing key", Err: err}
	}
	seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(seed) != ed25519.SeedSize {
		return nil, &task.Error{Class: task.Invalid, Msg: path + " is not a signing key", Fix: "restore it from a backup, or move it away to have a new one made"}
	}
	return &signer{ed25519.NewKeyFromSeed(seed)}, nil
}

func makeSigner(dir, path string, rand io.Reader) (*signer, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(rand, seed); err != nil {
		return nil, fmt.Errorf("read randomness: %w", err)
	}
	s := &signer{ed25519.NewKeyFromSeed(seed)}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// Written aside and linked into place: of two first uses at once one wins, and the other
	// reads a whole key.
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	_, err = f.WriteString(base64.StdEncoding.EncodeToString(seed) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) {
		return openSigner(dir, rand)
	} else if err != nil {
		return nil, err
	}
	pub := base64.StdEncoding.EncodeToString(s.public()) + "\n"
	return s, os.WriteFile(filepath.Join(dir, "checkpoint.pub"), []byte(pub), 0o644)
}

func (s *signer) public() ed25519.PublicKey { return s.key.Public().(ed25519.PublicKey) }

func (s *signer) sign(id task.ID, seq int64, root string) event.Checkpoint {
	return event.SignCheckpoint(s.key, id, seq, root)
}

// Sign implements evidence.Signer.
func (s *signer) Sign(_ context.Context, data []byte) ([]byte, error) {
	return ed25519.Sign(s.key, data), nil
}

// KeyID implements evidence.Signer.
func (s *signer) KeyID() (string, error) { return event.KeyID(s.public()), nil }
