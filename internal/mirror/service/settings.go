package service

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/daybreak-agent/daybreak/internal/mirror"
)

// Settings are a mirror's configuration on its way to the process.
type Settings struct {
	Go     *mirror.GoUpstream `json:"go,omitempty"`
	NPM    *mirror.Upstream   `json:"npm,omitempty"`
	PyPI   *mirror.Upstream   `json:"pypi,omitempty"`
	Crates *mirror.Upstream   `json:"crates,omitempty"`
	Maven  *mirror.Upstream   `json:"maven,omitempty"`
	Debian []Archive          `json:"debian,omitempty"`

	StoreBytes int64  `json:"store_bytes,omitempty"`
	Roots      []byte `json:"roots,omitempty"` // PEM; empty: the machine's
}

// Archive is an apt archive whose keys are bytes.
type Archive struct {
	mirror.Archive
	Keys []byte `json:"keys"`
}

// FromConfig takes over what can travel. What cannot (clock, logger, resolver, directory, roots)
// is the process's own.
func FromConfig(c *mirror.Config) (Settings, error) {
	s := Settings{Go: c.Go, NPM: c.NPM, PyPI: c.PyPI, Crates: c.Crates, Maven: c.Maven, StoreBytes: c.StoreBytes}
	for _, a := range c.Debian {
		var keys bytes.Buffer
		for _, e := range a.Keyring {
			if err := e.Serialize(&keys); err != nil {
				return s, fmt.Errorf("keys of the archive %s: %w", a.ID, err)
			}
		}
		a.Keyring = nil
		s.Debian = append(s.Debian, Archive{a, keys.Bytes()})
	}
	return s, nil
}

// config is what the process opens its mirror with.
func (s Settings) config(dir string, now func() time.Time, log *slog.Logger) (mirror.Config, error) {
	c := mirror.Config{
		Go: s.Go, NPM: s.NPM, PyPI: s.PyPI, Crates: s.Crates, Maven: s.Maven, StoreBytes: s.StoreBytes,
		Dir: dir, Now: now, Log: log,
	}
	for _, a := range s.Debian {
		keys, err := openpgp.ReadKeyRing(bytes.NewReader(a.Keys))
		if err != nil {
			return c, fmt.Errorf("keys of the archive %s: %w", a.ID, err)
		}
		a.Keyring = keys
		c.Debian = append(c.Debian, a.Archive)
	}
	if len(s.Roots) > 0 {
		c.Roots = x509.NewCertPool()
		if !c.Roots.AppendCertsFromPEM(s.Roots) {
			return c, errors.New("no certificate among the configured ones can be read")
		}
	}
	return c, nil
}

// Empty reports whether no ecosystem has an upstream.
func (s Settings) Empty() bool {
	return s.Go == nil && s.NPM == nil && s.PyPI == nil && s.Crates == nil && s.Maven == nil && len(s.Debian) == 0
}
