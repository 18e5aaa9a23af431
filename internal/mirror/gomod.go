package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/sys/unix"
)

const plainText = "text/plain; charset=utf-8"

// serveGo speaks the module proxy protocol (go.dev/ref/mod#goproxy-protocol).
func (m *Mirror) serveGo(ctx context.Context, s *Session, r route) (answer, error) {
	up := &m.cfg.Go.Upstream
	switch r.kind {
	case sumSupported, sumLatest, sumLookup, sumTile:
		return m.serveSum(ctx, s, r)
	case goList:
		return m.goDoc(ctx, s, r, up, "/@v/list", metadataTTL, func(b []byte) ([]byte, error) { return goVersions(r.name, b) })
	case goLatest:
		return m.goDoc(ctx, s, r, up, "/@latest", metadataTTL, func(b []byte) ([]byte, error) { return goInfoJSON(b, "") })
	case goInfo:
		esc, err := module.EscapeVersion(r.version)
		if err != nil {
			return answer{}, errNotFound
		}
		return m.goDoc(ctx, s, r, up, "/@v/"+esc+".info", immutableTTL, func(b []byte) ([]byte, error) { return goInfoJSON(b, r.version) })
	}
	return m.goFile(ctx, s, r, up)
}

func (m *Mirror) goDoc(ctx context.Context, s *Session, r route, up *Upstream, tail string, ttl time.Duration, parse func([]byte) ([]byte, error)) (answer, error) {
	esc, err := module.EscapePath(r.name)
	if err != nil {
		return answer{}, errNotFound
	}
	doc, _, err := m.docs.get(ctx, "go "+esc+tail, ttl, func(ctx context.Context) (*document, error) {
		raw, _, _, err := m.raw(ctx, s, up, join(up.URL, esc+tail), "*/*", ttl)
		if err != nil {
			return nil, err
		}
		body, err := parse(raw)
		if err != nil {
			return nil, bad(ReasonUpstream, "the module proxy's answer cannot be read: %v", err)
		}
		return &document{body: body}, nil
	})
	if err != nil {
		return answer{}, err
	}
	ctype := plainText
	if r.kind != goList {
		ctype = "application/json"
	}
	return answer{body: doc.body, ctype: ctype}, nil
}

// goVersions keeps the lines that are versions of the module.
func goVersions(name string, b []byte) ([]byte, error) {
	var out []string
	for line := range strings.Lines(string(b)) {
		v, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if semver.IsValid(v) && module.CanonicalVersion(v) == v && module.Check(name, v) == nil {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return []byte(strings.Join(append(slices.Compact(out), ""), "\n")), nil
}

// goInfoJSON keeps the two fields the protocol defines. want is the version asked for, or
// empty when any may come.
func goInfoJSON(b []byte, want string) ([]byte, error) {
	var info struct {
		Version string
		Time    *time.Time `json:",omitempty"`
	}
	if err := json.Unmarshal(b, &info); err != nil {
		return nil, err
	}
	if !semver.IsValid(info.Version) || module.CanonicalVersion(info.Version) != info.Version || (want != "" && info.Version != want) {
		return nil, errors.New("it is about another version")
	}
	return json.Marshal(info)
}

// goFile serves a go.mod or zip whose hash is known: from the base's go.sum, else from the
// checksum database.
func (m *Mirror) goFile(ctx context.Context, s *Session, r route, up *Upstream) (answer, error) {
	esc, err := module.EscapePath(r.name)
	if err != nil {
		return answer{}, errNotFound
	}
	escV, err := module.EscapeVersion(r.version)
	if err != nil {
		return answer{}, errNotFound
	}
	if err := m.goAge(ctx, s, r); err != nil {
		return answer{}, err
	}
	tail, ctype := ".zip", "application/zip"
	if r.kind == goMod {
		tail, ctype = ".mod", plainText
	}
	rel := esc + "/@v/" + escV + tail
	f := remote{url: join(up.URL, rel)}
	if f.digest, err = m.goHash(ctx, s, r); err != nil {
		return answer{}, err
	}
	if f.digest.zero() {
		return m.goUnverified(ctx, s, up, f, ctype)
	}
	b, err := m.file(ctx, s, up, "go "+rel, f)
	return answer{file: b, ctype: ctype}, err
}

// goAge holds a module's code to the session's least age; its go.mod may be read earlier.
func (m *Mirror) goAge(ctx context.Context, s *Session, r route) error {
	if s.cfg.MinAge == 0 || r.kind != goZip {
		return nil
	}
	r.kind = goInfo
	a, err := m.serveGo(ctx, s, r)
	if err != nil {
		return err
	}
	var info struct{ Time time.Time }
	if err := json.Unmarshal(a.body, &info); err != nil {
		return bad(ReasonUpstream, "the module's time cannot be read")
	}
	return s.release(r, risk{published: info.Time})
}

// goHash finds what the file must hash to; a zero digest means that the operator lets this
// module pass without one.
func (m *Mirror) goHash(ctx context.Context, s *Session, r route) (digest, error) {
	suffix, algo := "", "h1"
	if r.kind == goMod {
		suffix, algo = "/go.mod", "h1mod"
	}
	if h := s.cfg.GoSum[r.name+" "+r.version+suffix]; strings.HasPrefix(h, "h1:") {
		return digest{algo, h}, nil
	}
	if module.MatchPrefixPatterns(m.cfg.Go.Unverified, r.name) {
		return digest{}, nil
	}
	if m.sums == nil {
		return digest{}, bad(ReasonUnproven, "%s@%s has no line in the base's go.sum and there is no checksum database", r.name, r.version)
	}
	h, err := m.sumLine(ctx, s, r, suffix)
	return digest{algo, h}, err
}

// sumLine asks the checksum database for one hash; what it answers is proven against its tree
// head and kept.
func (m *Mirror) sumLine(ctx context.Context, s *Session, r route, suffix string) (string, error) {
	version := r.version + suffix
	doc, _, err := m.docs.get(ctx, "gosum "+r.name+"@"+version, immutableTTL, func(context.Context) (*document, error) {
		key := "gosum " + r.name + "@" + version
		if line, _, ok := m.store.index(key, 1<<10); ok { // proven once, and true for ever
			return &document{body: line}, nil
		}
		if err := s.fetching(); err != nil {
			return nil, err
		}
		lines, err := m.sums.Lookup(r.name, version)
		if err != nil {
			return nil, sumTrouble(err)
		}
		for _, l := range lines {
			if f := strings.Fields(l); len(f) == 3 && f[0] == r.name && f[1] == version && strings.HasPrefix(f[2], "h1:") {
				if err := m.store.keepIndex(ref{Key: key, Want: indexWant}, []byte(f[2])); err != nil {
					m.cfg.Log.Warn("a checksum could not be kept", "error", err)
				}
				return &document{body: []byte(f[2])}, nil
			}
		}
		return nil, bad(ReasonUnproven, "the checksum database has no line for %s@%s", r.name, version)
	})
	if err != nil {
		return "", err
	}
	return string(doc.body), nil
}

func sumTrouble(err error) error {
	switch {
	case errors.Is(err, errNotFound):
		return errNotFound
	case errors.Is(err, sumdb.ErrSecurity):
		return bad(ReasonDigest, "the checksum database contradicts what it said before")
	}
	return bad(ReasonUpstream, "the checksum database: %v", err)
}

// goUnverified passes a private module on and keeps nothing.
func (m *Mirror) goUnverified(ctx context.Context, s *Session, up *Upstream, f remote, ctype string) (answer, error) {
	if err := s.fetching(); err != nil {
		return answer{}, err
	}
	tmp, err := m.store.scratch()
	if err != nil {
		return answer{}, err
	}
	if err := os.Remove(tmp.Name()); err != nil {
		tmp.Close()
		return answer{}, storeTrouble(err)
	}
	_, _, err = m.fetch(ctx, s, up, f.url, "*/*", m.cfg.Sizes.Object, tmp)
	if err != nil {
		tmp.Close()
		return answer{}, err
	}
	size, err := tmp.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = tmp.Seek(0, io.SeekStart)
	}
	if err != nil {
		tmp.Close()
		return answer{}, storeTrouble(err)
	}
	return answer{file: &blob{File: tmp, size: size}, ctype: ctype}, nil
}

// download fetches one file and verifies it in place.
func (m *Mirror) download(s *Session, u *Upstream, f remote) func(context.Context, *os.File) error {
	return func(ctx context.Context, tmp *os.File) error {
		if err := s.fetching(); err != nil {
			return err
		}
		if _, _, err := m.fetch(ctx, s, u, f.url, "*/*", m.cfg.Sizes.Object, tmp); err != nil {
			return err
		}
		return f.digest.verify(tmp)
	}
}

// serveSum passes the checksum database on, so that the go command inside can check for
// itself what the mirror has checked. Answers come from the mirror's own verified copy where
// it has one.
func (m *Mirror) serveSum(ctx context.Context, s *Session, r route) (answer, error) {
	if m.sums == nil || r.archive != m.sumOps.name {
		return answer{}, errNotFound
	}
	if r.kind == sumSupported {
		return answer{ctype: plainText}, nil
	}
	if r.kind == sumLookup {
		if module.MatchPrefixPatterns(m.cfg.Go.Unverified, r.name) {
			return answer{}, errNotFound // a private name is told to nobody
		}
		if _, err := m.sumLine(ctx, s, r, ""); err != nil {
			return answer{}, err
		}
	}
	if r.kind == sumTile || r.kind == sumLookup {
		if b, err := m.sumOps.ReadCache(m.sumOps.name + "/" + r.file); err == nil {
			return answer{body: b, ctype: "application/octet-stream"}, nil
		}
	}
	doc, _, err := m.docs.get(ctx, "sum "+r.file, metadataTTL, func(ctx context.Context) (*document, error) {
		if r.kind == sumTile {
			if err := s.tile(); err != nil {
				return nil, err
			}
		}
		if err := s.fetching(); err != nil {
			return nil, err
		}
		b, err := m.sumOps.read(ctx, "/"+r.file)
		return &document{body: b}, err
	})
	if err != nil {
		return answer{}, err
	}
	return answer{body: doc.body, ctype: plainText}, nil
}

// sumOps is what the checksum database's client needs from its surroundings. The latest
// tree head and every tile it has verified are kept below dir/sumdb.
type sumOps struct {
	m    *Mirror
	name string
	key  string
	up   *Upstream
	base string
	dir  string
	tmp  string
	mu   sync.Mutex
}

const sumTimeout = time.Minute

func newSumOps(m *Mirror, g *GoUpstream, dir string) (*sumOps, error) {
	v, err := note.NewVerifier(g.Sum.Key)
	if err != nil || !sumName.MatchString(v.Name()) {
		return nil, invalid("the checksum database's key cannot be read: %v", err)
	}
	o := &sumOps{
		m: m, name: v.Name(), key: g.Sum.Key, up: &g.Upstream, base: strings.TrimRight(g.URL, "/") + "/sumdb/" + v.Name(),
		dir: filepath.Join(dir, "sumdb"), tmp: m.store.tmp,
	}
	if g.Sum.URL.URL != "" {
		o.up, o.base = &Upstream{Origin: g.Sum.URL}, strings.TrimRight(g.Sum.URL.URL, "/")
	}
	return o, os.MkdirAll(o.dir, 0o700)
}

func (o *sumOps) read(ctx context.Context, path string) ([]byte, error) {
	var b bytes.Buffer
	_, _, err := o.m.net.fetch(ctx, o.up, o.base+"/"+escape(strings.TrimPrefix(path, "/")), "*/*", 1<<20, &b)
	return b.Bytes(), err
}

// ReadRemote is part of sumdb.ClientOps.
func (o *sumOps) ReadRemote(path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), sumTimeout)
	defer cancel()
	return o.read(ctx, path)
}

// ReadConfig is part of sumdb.ClientOps.
func (o *sumOps) ReadConfig(file string) ([]byte, error) {
	if file == "key" {
		return []byte(o.key), nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	b, err := os.ReadFile(filepath.Join(o.dir, hexSum("config "+file)))
	if os.IsNotExist(err) {
		return nil, nil // the protocol's way to say: nothing known yet
	}
	return b, err
}

// WriteConfig is part of sumdb.ClientOps.
func (o *sumOps) WriteConfig(file string, old, new []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	lock, err := os.Open(o.dir) // several processes may write one store
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	name := filepath.Join(o.dir, hexSum("config "+file))
	have, err := os.ReadFile(name)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	if !bytes.Equal(have, old) {
		return sumdb.ErrWriteConflict
	}
	return writeAtomic(o.tmp, name, new)
}

// ReadCache is part of sumdb.ClientOps.
func (o *sumOps) ReadCache(file string) ([]byte, error) {
	return os.ReadFile(filepath.Join(o.dir, hexSum("cache "+file)))
}

// WriteCache is part of sumdb.ClientOps. A failure costs a request later, nothing else.
func (o *sumOps) WriteCache(file string, data []byte) {
	if err := writeAtomic(o.tmp, filepath.Join(o.dir, hexSum("cache "+file)), data); err != nil {
		o.Log(err.Error())
	}
}

// Log is part of sumdb.ClientOps.
func (o *sumOps) Log(msg string) { o.m.cfg.Log.Debug("checksum database", "msg", clip(msg)) }

// SecurityError is part of sumdb.ClientOps; the lookup that met it fails with ErrSecurity.
func (o *sumOps) SecurityError(msg string) {
	o.m.cfg.Log.Error("the checksum database contradicts itself", "msg", clip(msg))
}
