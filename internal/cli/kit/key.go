package kit

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
)

// PublicKey reads an Ed25519 public key: a file with it or the key itself, as base64 of its 32
// bytes or as PEM. An error ends with [Usage].
func PublicKey(s string) (ed25519.PublicKey, error) {
	text := s
	if b, err := os.ReadFile(s); err == nil {
		text = string(b)
	}
	if block, _ := pem.Decode([]byte(text)); block != nil {
		if k, err := x509.ParsePKIXPublicKey(block.Bytes); err == nil {
			if pub, ok := k.(ed25519.PublicKey); ok {
				return pub, nil
			}
		}
	}
	b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil || len(b) != ed25519.PublicKeySize {
		return nil, &ExitError{Code: Usage, Err: fmt.Errorf("%.80q is neither an Ed25519 public key nor a file with one; `daybreak key` prints the one of an installation", s)}
	}
	return b, nil
}
