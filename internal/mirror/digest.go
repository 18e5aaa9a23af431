package mirror

import (
	"archive/zip"
	"crypto/sha1" //nolint:gosec // old registries promise nothing better
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/dirhash"
)

// digest is what an index promised for a file.
type digest struct {
	algo string // sha512, sha384, sha256, sha1, h1 (Go zip), h1mod (Go go.mod)
	sum  string // lower-case hex; for h1 the line's value with its "h1:"
}

func (d digest) String() string { return d.algo + ":" + d.sum }
func (d digest) zero() bool     { return d.sum == "" }

// verify reads a file from its start and compares.
func (d digest) verify(f *os.File) error {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return storeTrouble(err)
	}
	var (
		got string
		err error
	)
	switch d.algo {
	case "h1":
		got, err = hashZip(f)
	case "h1mod":
		got, err = dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(f), nil })
	default:
		h := newHash(d.algo)
		if h == nil {
			return bad(ReasonUnproven, "the digest %q is of a kind that proves nothing", clip(d.algo))
		}
		if _, err = io.Copy(h, f); err == nil {
			got = hex.EncodeToString(h.Sum(nil))
		}
	}
	if err != nil {
		return bad(ReasonDigest, "the file cannot be verified: %v", err)
	}
	if got != d.sum {
		return bad(ReasonDigest, "the file's %s is %s, promised was %s", d.algo, clip(got), clip(d.sum))
	}
	return nil
}

func newHash(algo string) hash.Hash {
	switch algo {
	case "sha512":
		return sha512.New()
	case "sha384":
		return sha512.New384()
	case "sha256":
		return sha256.New()
	case "sha1":
		return sha1.New() //nolint:gosec // see above
	}
	return nil
}

// maxUnzipped is the module system's own cap on a module's content, in bytes.
const maxUnzipped = 500 << 20

// hashZip is dirhash.HashZip with a cap on what the archive may expand to.
func hashZip(f *os.File) (string, error) {
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	z, err := zip.NewReader(f, fi.Size())
	if err != nil {
		return "", err
	}
	var (
		names []string
		files = map[string]*zip.File{}
		left  = int64(maxUnzipped)
	)
	for _, zf := range z.File {
		if files[zf.Name] != nil {
			return "", errors.New("a name is there twice")
		}
		names = append(names, zf.Name)
		files[zf.Name] = zf
	}
	return dirhash.Hash1(names, func(name string) (io.ReadCloser, error) {
		r, err := files[name].Open()
		if err != nil {
			return nil, err
		}
		return struct {
			io.Reader
			io.Closer
		}{&counted{r, &left}, r}, nil
	})
}

var errTooLarge = errors.New("it expands to more than is allowed")

// counted fails when a shared allowance is used up.
type counted struct {
	r    io.Reader
	left *int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if *c.left -= int64(n); *c.left < 0 {
		return n, errTooLarge
	}
	return n, err
}

// hexDigest accepts a promised digest of the right length for its algorithm.
func hexDigest(algo, sum string) (digest, bool) {
	h := newHash(algo)
	sum = strings.ToLower(strings.TrimSpace(sum))
	b, err := hex.DecodeString(sum)
	if h == nil || err != nil || len(b) != h.Size() {
		return digest{}, false
	}
	return digest{algo, sum}, true
}

// parseIntegrity reads a Subresource Integrity string and returns its strongest digest.
func parseIntegrity(s string) digest {
	best := digest{}
	for _, word := range strings.Fields(s) {
		algo, b64, ok := strings.Cut(word, "-")
		if !ok {
			continue
		}
		b64, _, _ = strings.Cut(b64, "?")
		raw, err := base64.StdEncoding.DecodeString(b64)
		if h := newHash(algo); err != nil || h == nil || len(raw) != h.Size() {
			continue
		}
		if d := (digest{algo, hex.EncodeToString(raw)}); strength(d.algo) > strength(best.algo) {
			best = d
		}
	}
	return best
}

func strength(algo string) int {
	return map[string]int{"sha1": 1, "sha256": 2, "sha384": 3, "sha512": 4}[algo]
}
