package mirror

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/ulikunitz/xz"
)

// archive is one apt archive and the newest signed date seen of each suite, so that an older
// signed index cannot be played back.
type archive struct {
	Archive
	mu     sync.Mutex
	newest map[string]time.Time
}

// maxRatio is how many times its compressed size an index may have, plus one megabyte.
const maxRatio = 200

// serveDebian speaks the apt archive layout (wiki.debian.org/DebianRepository/Format): a
// signed InRelease, the indexes it lists by digest, the packages those list by digest.
func (m *Mirror) serveDebian(ctx context.Context, s *Session, r route) (answer, error) {
	a := m.archives[r.archive]
	switch r.kind {
	case debPool:
		f, err := m.debFind(ctx, s, a, r.file)
		if err != nil {
			return answer{}, err
		}
		b, err := m.file(ctx, s, &a.Upstream, "debian "+a.ID+" "+r.file, f)
		return answer{file: b, ctype: "application/vnd.debian.binary-package"}, err
	case debRelease:
		rel, err := m.debRelease(ctx, s, a, r.version)
		if err != nil {
			return answer{}, err
		}
		return answer{body: rel.body, ctype: plainText}, nil
	}
	rel, err := m.debRelease(ctx, s, a, r.version)
	if err != nil {
		return answer{}, err
	}
	f, ok := rel.files[r.file]
	if !ok {
		return answer{}, errNotFound
	}
	b, err := m.file(ctx, s, &a.Upstream, debIndexKey(a, r.version, f), f)
	return answer{file: b, ctype: "application/octet-stream"}, err
}

func debIndexKey(a *archive, suite string, f remote) string {
	return "debian " + a.ID + " " + suite + " " + f.name
}

// debKnown refuses a package that no signed index has, before anyone outside hears of it.
func (m *Mirror) debKnown(ctx context.Context, s *Session, r route) error {
	_, err := m.debFind(ctx, s, m.archives[r.archive], r.file)
	if errors.Is(err, errNotFound) {
		return deny(http.StatusNotFound, ReasonUnknown, "no signed index of the archive has this package")
	}
	return err
}

// debRelease fetches and verifies a suite's InRelease.
func (m *Mirror) debRelease(ctx context.Context, s *Session, a *archive, suite string) (*document, error) {
	if !slices.Contains(a.Suites, suite) {
		return nil, errNotFound
	}
	doc, _, err := m.docs.get(ctx, "debian "+a.ID+" "+suite, metadataTTL, func(ctx context.Context) (*document, error) {
		raw, _, _, err := m.raw(ctx, s, &a.Upstream, join(a.URL, "dists/"+suite+"/InRelease"), "*/*", metadataTTL)
		if err != nil {
			return nil, err
		}
		text, err := verifySigned(raw, a.Keyring, m.cfg.Now())
		if err != nil {
			return nil, bad(ReasonDigest, "the signature of %s: %v", suite, err)
		}
		rel, err := parseRelease(text)
		if err != nil {
			return nil, bad(ReasonUpstream, "the signed index of %s cannot be read: %v", suite, err)
		}
		if err := a.fresh(suite, rel, m.cfg.Now()); err != nil {
			return nil, err
		}
		doc := &document{body: raw, files: map[string]remote{}}
		for name, sum := range rel.sums {
			byHash := path.Dir(name) + "/by-hash/SHA256/" + sum.sum
			f := remote{digest: sum, name: name, url: join(a.URL, "dists/"+suite+"/"+name)}
			if rel.byHash {
				f.url = join(a.URL, "dists/"+suite+"/"+byHash)
			}
			doc.files[name], doc.files[byHash] = f, f
		}
		return doc, nil
	})
	return doc, err
}

func verifySigned(raw []byte, keys openpgp.KeyRing, now time.Time) ([]byte, error) {
	if !bytes.HasPrefix(raw, []byte("-----BEGIN PGP SIGNED MESSAGE-----")) {
		return nil, errors.New("it is not a signed message from its first byte on")
	}
	block, rest := clearsign.Decode(raw)
	if block == nil || len(bytes.TrimSpace(rest)) != 0 {
		return nil, errors.New("it is not one signed message")
	}
	if _, err := block.VerifySignature(keys, &packet.Config{Time: func() time.Time { return now }}); err != nil {
		return nil, err
	}
	return block.Plaintext, nil
}

// release is what a Release file says.
type release struct {
	suite, codename string
	date, validTo   time.Time
	byHash          bool
	sums            map[string]digest
}

func parseRelease(text []byte) (*release, error) {
	r := &release{sums: map[string]digest{}}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if strings.HasPrefix(line, " ") {
			f := strings.Fields(line)
			if section != "SHA256" || len(f) != 3 {
				continue
			}
			d, ok := hexDigest("sha256", f[0])
			if ok && debIdx.MatchString(f[2]) && plainPath("/"+f[2]) {
				r.sums[f[2]] = d
			}
			continue
		}
		key, val, _ := strings.Cut(line, ":")
		val, section = strings.TrimSpace(val), key
		var err error
		switch key {
		case "Suite":
			r.suite = val
		case "Codename":
			r.codename = val
		case "Date":
			r.date, err = debTime(val)
		case "Valid-Until":
			r.validTo, err = debTime(val)
		case "Acquire-By-Hash":
			r.byHash = val == "yes"
		}
		if err != nil {
			return nil, err
		}
	}
	if r.date.IsZero() || len(r.sums) == 0 {
		return nil, errors.New("it has no date or no SHA-256 sums")
	}
	return r, nil
}

// debTime reads RFC 2822 times as archives write them, always in UTC.
func debTime(s string) (time.Time, error) {
	for _, layout := range []string{"Mon, 2 Jan 2006 15:04:05 MST", "Mon, 2 Jan 2006 15:04:05 -0700"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, errors.New("a date cannot be read")
}

// fresh refuses an index of another suite, one past its time, and one older than what was
// seen: each is validly signed and still an attack.
func (a *archive) fresh(suite string, r *release, now time.Time) error {
	want := strings.TrimSuffix(suite, "/updates")
	switch {
	case r.suite != want && r.codename != want:
		return bad(ReasonDigest, "the signed index is of %s, not of %s", clip(r.codename), suite)
	case !r.validTo.IsZero() && now.After(r.validTo) && !a.IgnoreValidUntil:
		return bad(ReasonDigest, "the signed index of %s was valid until %s", suite, r.validTo.Format(time.RFC3339))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newest == nil {
		a.newest = map[string]time.Time{}
	}
	if r.date.Before(a.newest[suite]) {
		return bad(ReasonDigest, "the signed index of %s is older than one seen before", suite)
	}
	a.newest[suite] = r.date
	return nil
}

// debFind looks a pool path up in every index of the archive.
func (m *Mirror) debFind(ctx context.Context, s *Session, a *archive, file string) (remote, error) {
	for _, suite := range a.Suites {
		rel, err := m.debRelease(ctx, s, a, suite)
		if err != nil {
			return remote{}, err
		}
		for _, comp := range a.Components {
			for _, arch := range a.Archs {
				dir := comp + "/binary-" + arch + "/Packages"
				f, ok := rel.files[dir+".gz"]
				if !ok {
					f, ok = rel.files[dir+".xz"]
				}
				if !ok {
					continue
				}
				doc, err := m.debPackages(ctx, s, a, suite, f)
				if err != nil {
					return remote{}, err
				}
				if found, ok := doc.files[file]; ok {
					return found, nil
				}
			}
		}
	}
	return remote{}, errNotFound
}

func (m *Mirror) debPackages(ctx context.Context, s *Session, a *archive, suite string, f remote) (*document, error) {
	doc, _, err := m.docs.get(ctx, "debian packages "+a.ID+" "+f.digest.String(), immutableTTL, func(ctx context.Context) (*document, error) {
		b, err := m.file(ctx, s, &a.Upstream, debIndexKey(a, suite, f), f)
		if err != nil {
			return nil, err
		}
		defer b.Close()
		z, err := unpacked(f.name, b)
		if err != nil {
			return nil, bad(ReasonUpstream, "the package index is not compressed as its name says")
		}
		left := min(m.cfg.Sizes.Decoded, b.size*maxRatio+1<<20)
		files, err := parsePackages(&counted{z, &left}, a.URL)
		if errors.Is(err, errTooLarge) {
			return nil, bad(ReasonSize, "the package index expands to more than is allowed")
		}
		if err != nil {
			return nil, bad(ReasonUpstream, "the package index cannot be read: %v", err)
		}
		return &document{files: files}, nil
	})
	return doc, err
}

// unpacked reads an index, by the ending of its name. What an index may make the reader hold is
// the archive's to say: the bytes are those that it signed.
func unpacked(name string, r io.Reader) (io.Reader, error) {
	if strings.HasSuffix(name, ".xz") {
		return xz.NewReader(bufio.NewReader(r))
	}
	return gzip.NewReader(r)
}

// parsePackages keeps each package's path and digest.
func parsePackages(r io.Reader, base string) (map[string]remote, error) {
	files := map[string]remote{}
	var name, sum string
	flush := func() {
		if d, ok := hexDigest("sha256", sum); ok && name != "" && plainPath("/"+name) {
			files[name] = remote{url: join(base, name), digest: d}
		}
		name, sum = "", ""
	}
	br := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) { // a long description: its rest is no field
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = br.ReadSlice('\n')
			}
			line = nil
		}
		if rest, ok := bytes.CutPrefix(line, []byte("Filename: ")); ok {
			name = string(bytes.TrimSpace(rest))
		} else if rest, ok := bytes.CutPrefix(line, []byte("SHA256: ")); ok {
			sum = string(bytes.TrimSpace(rest))
		} else if line != nil && len(bytes.TrimSpace(line)) == 0 {
			flush()
		}
		if errors.Is(err, io.EOF) {
			flush()
			return files, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
