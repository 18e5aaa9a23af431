// Package mirror owns the read-only package mirror: the one thing a sandbox can reach. It
// speaks plain HTTP on a socket per task, with fixed routes for the Go module proxy, npm,
// PyPI, crates, Maven and apt archives, and it alone talks to the registries.
//
// Invariants: a request is GET or HEAD, has no body and no query, and its decoded path fits
// its ecosystem's grammar, or it ends here with no upstream seeing anything; the upstream is
// chosen by the path's prefix and by nothing else a client sends; the dialled host is one of
// the configured origins and its address is checked at the moment of connecting; bytes whose
// digest is wrong are neither served nor stored; only the mirror writes its store, by digest;
// a name outside the base's lockfiles and the operator's list costs budget and is on the
// ledger, and so is every refusal.
package mirror

import (
	"context"
	"crypto/x509"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"golang.org/x/mod/sumdb"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Ecosystem names one kind of registry; it is also the first segment of its routes.
type Ecosystem string

// The ecosystems.
const (
	Go     Ecosystem = "go"
	NPM    Ecosystem = "npm"
	PyPI   Ecosystem = "pypi"
	Crates Ecosystem = "crates"
	Maven  Ecosystem = "maven"
	Debian Ecosystem = "debian"
)

// Origin is one place the mirror may connect to.
type Origin struct {
	URL string // scheme, host, optional port, and for an upstream the base path
	// Authorization is the value of that header for this origin's own host, "" for none.
	Authorization string
	// Internal says that the operator named this origin as one inside the company's network:
	// only then may it have a private or loopback address, or speak plain HTTP.
	Internal bool
}

// Upstream is a registry and the other hosts its files and redirects may come from.
type Upstream struct {
	Origin
	CDN []Origin // a redirect or file address outside these and the registry is refused
	// StandsFor are other addresses under which lockfiles know this registry. Nothing connects
	// to them: a [Front] answers for them.
	StandsFor []string
}

// SumDB is a Go checksum database.
type SumDB struct {
	Key string // verifier key: name+hash+key
	// URL is the database itself; empty means through the module proxy, as the go command
	// does where the proxy supports it.
	URL Origin
}

// GoUpstream is a Go module proxy.
type GoUpstream struct {
	Upstream
	Sum *SumDB // nil: only what Session.GoSum names can be verified
	// Unverified are module path patterns (as GONOSUMDB) that are served without a known
	// hash and never stored: private modules.
	Unverified string
}

// Archive is one apt archive.
type Archive struct {
	ID         string // path segment under /debian/
	Upstream          // plain HTTP is fine here: what counts is the signature
	Suites     []string
	Components []string
	Archs      []string
	Keyring    openpgp.EntityList
	// KeyringPath is where clients find the same keys, for their Signed-By.
	KeyringPath string
	// IgnoreValidUntil accepts an index past its Valid-Until, for frozen archives.
	IgnoreValidUntil bool
}

// Config is what the operator sets. An ecosystem without an upstream answers 404.
type Config struct {
	Go     *GoUpstream
	NPM    *Upstream
	PyPI   *Upstream // URL is the simple index: …/simple
	Crates *Upstream // URL is the sparse index
	Maven  *Upstream
	Debian []Archive

	Dir        string // the store's directory, owned by the mirror alone
	StoreBytes int64  // least recently used objects beyond it are deleted; 0 means 10 GiB
	Sizes      Sizes

	Resolve Resolver       // nil means the host's resolver
	Roots   *x509.CertPool // nil means the host's
	Now     func() time.Time
	Log     *slog.Logger
}

// Sizes cap what an upstream may send, in bytes. Zero fields take the defaults named.
type Sizes struct {
	Object   int64 // one package file: 1 GiB
	Metadata int64 // one index as sent: 64 MiB
	Decoded  int64 // one index after decompression: 1 GiB, and at most 200 times its size
}

const (
	metadataTTL   = 5 * time.Minute
	immutableTTL  = 24 * time.Hour
	documentBytes = 256 << 20 // parsed indexes kept in memory
	fetchTimeout  = 10 * time.Minute
)

// Mirror serves any number of sessions from one store.
type Mirror struct {
	cfg   Config
	net   *client
	store *store
	docs  *documents

	sums   *sumdb.Client // nil without a checksum database
	sumOps *sumOps

	archives map[string]*archive
}

// New checks the configuration and opens the store.
func New(cfg Config) (*Mirror, error) {
	if cfg.Now == nil || cfg.Log == nil || cfg.Dir == "" {
		return nil, &task.Error{Class: task.Internal, Msg: "mirror: clock, logger and directory are required"}
	}
	setDefault(&cfg.StoreBytes, 10<<30)
	setDefault(&cfg.Sizes.Object, 1<<30)
	setDefault(&cfg.Sizes.Metadata, 64<<20)
	setDefault(&cfg.Sizes.Decoded, 1<<30)
	m := &Mirror{cfg: cfg, docs: newDocuments(documentBytes, cfg.Now), archives: map[string]*archive{}}
	var ups []Upstream
	for _, u := range []*Upstream{cfg.NPM, cfg.PyPI, cfg.Crates, cfg.Maven} {
		if u != nil {
			ups = append(ups, *u)
		}
	}
	if cfg.Go != nil {
		ups = append(ups, cfg.Go.Upstream)
		if cfg.Go.Sum != nil && cfg.Go.Sum.URL.URL != "" {
			ups = append(ups, Upstream{Origin: cfg.Go.Sum.URL})
		}
	}
	var plain []Upstream
	for i := range cfg.Debian {
		a := cfg.Debian[i]
		if !segment.MatchString(a.ID) || m.archives[a.ID] != nil {
			return nil, invalid("archive id %q is not one plain word, or is there twice", a.ID)
		}
		if len(a.Keyring) == 0 {
			return nil, invalid("archive %s has no keys to check its signature with", a.ID)
		}
		m.archives[a.ID] = &archive{Archive: a}
		plain = append(plain, a.Upstream)
	}
	var err error
	if m.net, err = newClient(cfg, ups, plain); err != nil {
		return nil, err
	}
	if m.store, err = openStore(cfg.Dir, cfg.StoreBytes, cfg.Now); err != nil {
		return nil, err
	}
	if cfg.Go != nil && cfg.Go.Sum != nil {
		if m.sumOps, err = newSumOps(m, cfg.Go, cfg.Dir); err != nil {
			return nil, err
		}
		m.sums = sumdb.NewClient(m.sumOps)
	}
	return m, nil
}

// Close lets go of idle connections and of the store. Sessions must have ended.
func (m *Mirror) Close() {
	m.net.rt.CloseIdleConnections()
	if err := m.store.close(); err != nil {
		m.cfg.Log.Warn("the store's place for files under way could not be removed", "error", err)
	}
}

// fetch is one of a session's fetches, which may have to wait for its others.
func (m *Mirror) fetch(ctx context.Context, s *Session, u *Upstream, address, accept string, limit int64, w io.Writer) (final, ctype string, err error) {
	select {
	case s.under <- struct{}{}:
	case <-ctx.Done():
		return "", "", classify(ctx.Err())
	}
	defer func() { <-s.under }()
	return m.net.fetch(ctx, u, address, accept, limit, w)
}

// Handler serves one session: one task, one socket.
func (m *Mirror) Handler(s *Session) http.Handler { return &handler{m: m, s: s} }

func setDefault(v *int64, d int64) {
	if *v <= 0 {
		*v = d
	}
}

// join appends a path that a grammar has accepted to an upstream's base, escaping every byte
// that is not plainly safe, so that no client spelling reaches the upstream.
func join(base, rel string) string { return strings.TrimRight(base, "/") + "/" + escape(rel) }

func escape(p string) string {
	const hexDigits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(p) {
		c := p[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~/@!+=:", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteByte('%')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

// resolveRef turns an address found in an index into an absolute one.
func resolveRef(base, ref string) (string, error) {
	b, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	r, err := b.Parse(ref)
	if err != nil {
		return "", err
	}
	r.Fragment, r.RawFragment = "", ""
	return r.String(), nil
}

// documents keeps parsed indexes in memory: bounded, with a time to live, and with one fetch
// at a time per key.
type documents struct {
	now    func() time.Time
	mu     sync.Mutex
	byKey  map[string]*document
	flight map[string]*flight
	total  int
	max    int
}

// document is an index as the mirror serves it, and where its files are.
type document struct {
	body, alt         []byte
	files             map[string]remote
	extra             any
	expires, lastUsed time.Time
	cost              int
}

// remote is a file an index names, and the digest it must have.
type remote struct {
	url    string
	digest digest
	name   string
	risk   risk
}

type flight struct {
	done chan struct{}
	doc  *document
	err  error
}

func newDocuments(limit int, now func() time.Time) *documents {
	return &documents{now: now, byKey: map[string]*document{}, flight: map[string]*flight{}, max: limit}
}

// get returns the document of a key, making it when it is missing or too old. Making it goes
// on when the one who asked leaves: others may be waiting for the same.
func (d *documents) get(ctx context.Context, key string, ttl time.Duration, build func(context.Context) (*document, error)) (doc *document, hit bool, err error) {
	for {
		d.mu.Lock()
		if doc := d.byKey[key]; doc != nil && d.now().Before(doc.expires) {
			doc.lastUsed = d.now()
			d.mu.Unlock()
			return doc, true, nil
		}
		f := d.flight[key]
		mine := f == nil
		if mine {
			f = d.build(ctx, key, ttl, build)
		}
		d.mu.Unlock()
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, false, ctx.Err()
		}
		if !mine && ofSession(f.err) {
			continue // another session's budget is not this one's
		}
		return f.doc, false, f.err
	}
}

// build starts making a document; d.mu is held.
func (d *documents) build(ctx context.Context, key string, ttl time.Duration, build func(context.Context) (*document, error)) *flight {
	f := &flight{done: make(chan struct{})}
	d.flight[key] = f
	run, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	go func() {
		defer cancel()
		f.err = guard(func() (err error) { f.doc, err = build(run); return err })
		d.mu.Lock()
		delete(d.flight, key)
		if f.err == nil {
			d.put(key, f.doc, ttl)
		}
		d.mu.Unlock()
		close(f.done)
	}()
	return f
}

func (d *documents) put(key string, doc *document, ttl time.Duration) {
	doc.expires, doc.lastUsed = d.now().Add(ttl), d.now()
	doc.cost = len(doc.body) + len(doc.alt) + 256*len(doc.files) + 512
	if old := d.byKey[key]; old != nil {
		d.total -= old.cost
	}
	d.byKey[key] = doc
	d.total += doc.cost
	for d.total > d.max && len(d.byKey) > 1 {
		var oldest string
		for k, v := range d.byKey {
			if k != key && (oldest == "" || v.lastUsed.Before(d.byKey[oldest].lastUsed)) {
				oldest = k
			}
		}
		d.total -= d.byKey[oldest].cost
		delete(d.byKey, oldest)
	}
}
