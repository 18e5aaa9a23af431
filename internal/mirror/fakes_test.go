package mirror

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/sumdb/note"
)

// fake is a registry on loopback that speaks every protocol from files it is given, and
// remembers each request it got.
type fake struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string]fakeFile
	seen  []*http.Request
	sum   http.Handler
	enter func() // at the beginning of each request
}

type fakeFile struct {
	body     []byte
	ctype    string
	location string
	status   int
}

const fakeDB = "sum.example"

func newFake(t testing.TB) *fake {
	t.Helper()
	f := &fake{files: map[string]fakeFile{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.seen = append(f.seen, r.Clone(context.Background()))
	file, ok := f.files[r.URL.Path]
	enter := f.enter
	f.mu.Unlock()
	if enter != nil {
		enter()
	}
	if rest, is := strings.CutPrefix(r.URL.Path, "/go/sumdb/"+fakeDB); is && !ok {
		if rest == "/supported" {
			return
		}
		http.StripPrefix("/go/sumdb/"+fakeDB, f.sum).ServeHTTP(w, r)
		return
	}
	switch {
	case !ok:
		http.NotFound(w, r)
	case file.location != "":
		w.Header().Set("Location", file.location)
		w.WriteHeader(http.StatusFound)
	case file.status != 0:
		w.WriteHeader(file.status)
	default:
		w.Header().Set("Content-Type", file.ctype)
		_, _ = w.Write(file.body)
	}
}

func (f *fake) put(path, ctype string, body []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[path] = fakeFile{body: body, ctype: ctype}
}

func (f *fake) redirect(path, to string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[path] = fakeFile{location: to}
}

func (f *fake) requests() []*http.Request {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.seen)
}

// The packages the fake has. Their bytes are real enough for real clients.
const (
	goMod1 = "module example.com/team/lib\n\ngo 1.21\n"
	goSrc  = "package lib\n\n// Answer is what the fixture says.\nconst Answer = 42\n"
)

func goZip1(t testing.TB) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, f := range [][2]string{{"go.mod", goMod1}, {"lib.go", goSrc}} {
		w, err := z.Create("example.com/team/lib@v1.0.0/" + f[0])
		check(t, err)
		_, err = io.WriteString(w, f[1])
		check(t, err)
	}
	check(t, z.Close())
	return b.Bytes()
}

func tgz(t testing.TB, files map[string]string) []byte {
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		check(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}))
		_, err := io.WriteString(w, files[name])
		check(t, err)
	}
	check(t, w.Close())
	check(t, g.Close())
	return b.Bytes()
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func sha(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func mustJSON(t testing.TB, v any) []byte {
	b, err := json.Marshal(v)
	check(t, err)
	return b
}

// stock fills the fake with one package of each ecosystem.
func (f *fake) stock(t testing.TB) (key string, ring openpgp.EntityList) {
	t.Helper()
	// Go
	z := goZip1(t)
	f.put("/go/example.com/team/lib/@v/list", "text/plain", []byte("v1.0.0\nnot-a-version\n"))
	f.put("/go/example.com/team/lib/@latest", "application/json", []byte(`{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z","Extra":"dropped"}`))
	f.put("/go/example.com/team/lib/@v/v1.0.0.info", "application/json", []byte(`{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}`))
	f.put("/go/example.com/team/lib/@v/v1.0.0.mod", "text/plain", []byte(goMod1))
	f.put("/go/example.com/team/lib/@v/v1.0.0.zip", "application/zip", z)
	skey, vkey, err := note.GenerateKey(nil, fakeDB)
	check(t, err)
	hz, err := dirhash.Hash1([]string{"example.com/team/lib@v1.0.0/go.mod", "example.com/team/lib@v1.0.0/lib.go"}, func(n string) (io.ReadCloser, error) {
		if strings.HasSuffix(n, "go.mod") {
			return io.NopCloser(strings.NewReader(goMod1)), nil
		}
		return io.NopCloser(strings.NewReader(goSrc)), nil
	})
	check(t, err)
	hm, err := dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(goMod1)), nil })
	check(t, err)
	f.sum = sumdb.NewServer(sumdb.NewTestServer(skey, func(path, vers string) ([]byte, error) {
		if path != "example.com/team/lib" || vers != "v1.0.0" {
			return nil, fmt.Errorf("not found")
		}
		return []byte(fmt.Sprintf("%s %s %s\n%s %s/go.mod %s\n", path, vers, hz, path, vers, hm)), nil
	}))
	// npm
	ball := tgz(t, map[string]string{"package/package.json": `{"name":"@team/lib","version":"1.0.0","main":"i.js"}`, "package/i.js": "module.exports = 42\n"})
	s512 := sha512.Sum512(ball)
	f.put("/npm/@team/lib", "application/json", mustJSON(t, map[string]any{
		"name": "@team/lib", "dist-tags": map[string]string{"latest": "1.0.0"},
		"versions": map[string]any{
			"1.0.0": map[string]any{"name": "@team/lib", "version": "1.0.0", "dist": map[string]any{
				"integrity": "sha512-" + base64.StdEncoding.EncodeToString(s512[:]), "tarball": f.URL + "/npm/@team/lib/-/lib-1.0.0.tgz",
			}},
			"2.0.0": map[string]any{"name": "@team/lib", "version": "2.0.0", "dist": map[string]any{"tarball": f.URL + "/nothing-promised.tgz"}},
		},
	}))
	f.put("/npm/@team/lib/-/lib-1.0.0.tgz", "application/octet-stream", ball)
	// PyPI
	wheel := wheel(t)
	f.put("/simple/team-lib/", simpleJSON, mustJSON(t, map[string]any{
		"meta": map[string]string{"api-version": "1.0"}, "name": "team-lib",
		"files": []map[string]any{{"filename": wheelName, "url": "/files/" + wheelName, "hashes": map[string]string{"sha256": sha(wheel)}, "requires-python": ">=3.8", "yanked": false}},
	}))
	f.put("/files/"+wheelName, "application/octet-stream", wheel)
	f.put("/simple/old-lib/", "text/html", []byte(`<!DOCTYPE html><html><body><A HREF="../../files/`+wheelName+`#sha256=`+sha(wheel)+`" data-requires-python="&gt;=3.8" data-yanked="">`+wheelName+`</A></body></html>`))
	// crates
	crate := tgz(t, map[string]string{"teamlib-1.0.0/Cargo.toml": "[package]\nname = \"teamlib\"\nversion = \"1.0.0\"\nedition = \"2021\"\n", "teamlib-1.0.0/src/lib.rs": "pub const ANSWER: u8 = 42;\n"})
	f.put("/crates/config.json", "application/json", mustJSON(t, map[string]string{"dl": f.URL + "/dl/{crate}/{version}.crate"}))
	f.put("/crates/te/am/teamlib", "text/plain", []byte(fmt.Sprintf(`{"name":"teamlib","vers":"1.0.0","deps":[],"cksum":"%s","features":{},"yanked":false}`+"\n", sha(crate))))
	f.put("/dl/teamlib/1.0.0.crate", "application/gzip", crate)
	// Maven
	pom := []byte(`<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>com.team</groupId><artifactId>lib</artifactId><version>1.0</version><packaging>pom</packaging></project>`)
	s1 := sha1.Sum(pom)
	f.put("/maven/com/team/lib/1.0/lib-1.0.pom", "text/xml", pom)
	f.put("/maven/com/team/lib/1.0/lib-1.0.pom.sha1", "text/plain", []byte(hex.EncodeToString(s1[:])+"  lib-1.0.pom\n"))
	f.put("/maven/com/team/lib/maven-metadata.xml", "text/xml", []byte(`<metadata><groupId>com.team</groupId><artifactId>lib</artifactId><versioning><release>1.0</release></versioning></metadata>`))
	return vkey, f.stockDebian(t)
}

const debPath = "pool/main/t/teamlib/teamlib_1.0-1_all.deb"

func (f *fake) stockDebian(t testing.TB) openpgp.EntityList {
	t.Helper()
	signer, err := openpgp.NewEntity("Archive", "", "archive@example.com", &packet.Config{Time: func() time.Time { return start.Add(-time.Hour) }, Algorithm: packet.PubKeyAlgoEdDSA})
	check(t, err)
	deb := []byte("!<arch>\nthe bytes of a package\n")
	f.put("/debian/"+debPath, "application/vnd.debian.binary-package", deb)
	packages := gz(t, fmt.Sprintf("Package: teamlib\nVersion: 1.0-1\nArchitecture: all\nFilename: %s\nSize: %d\nSHA256: %s\nDescription: %s\n\n", debPath, len(deb), sha(deb), strings.Repeat("long ", 40000)))
	f.putSuite(t, signer, "stable", "Valid-Until: "+start.Add(24*time.Hour).Format(time.RFC1123)+"\n", start, packages)
	return openpgp.EntityList{signer}
}

func gz(t testing.TB, s string) []byte {
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	_, err := io.WriteString(g, s)
	check(t, err)
	check(t, g.Close())
	return b.Bytes()
}

func (f *fake) putSuite(t testing.TB, signer *openpgp.Entity, suite, extra string, date time.Time, packages []byte) {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(packages))
	check(t, err)
	plain, err := io.ReadAll(z)
	check(t, err)
	text := fmt.Sprintf("Origin: Test\nSuite: %s\nCodename: codename\nDate: %s\n%sArchitectures: amd64\nComponents: main\nAcquire-By-Hash: yes\nSHA256:\n %s %d main/binary-amd64/Packages.gz\n %s %d main/binary-amd64/Packages\n",
		suite, date.UTC().Format(time.RFC1123), extra, sha(packages), len(packages), sha(plain), len(plain))
	var b bytes.Buffer
	w, err := clearsign.Encode(&b, signer.PrivateKey, &packet.Config{Time: func() time.Time { return date }, DefaultHash: crypto.SHA512})
	check(t, err)
	_, err = io.WriteString(w, text)
	check(t, err)
	check(t, w.Close())
	f.put("/debian/dists/stable/InRelease", "text/plain", b.Bytes())
	f.put("/debian/dists/stable/main/binary-amd64/Packages.gz", "application/gzip", packages)
	f.put("/debian/dists/stable/main/binary-amd64/by-hash/SHA256/"+sha(packages), "application/gzip", packages)
}

const wheelName = "team_lib-1.0-py3-none-any.whl"

func wheel(t testing.TB) []byte {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	files := [][2]string{
		{"team_lib.py", "ANSWER = 42\n"},
		{"team_lib-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: team-lib\nVersion: 1.0\n"},
		{"team_lib-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"},
		{"team_lib-1.0.dist-info/RECORD", "team_lib.py,,\nteam_lib-1.0.dist-info/METADATA,,\nteam_lib-1.0.dist-info/WHEEL,,\nteam_lib-1.0.dist-info/RECORD,,\n"},
	}
	for _, f := range files {
		w, err := z.Create(f[0])
		check(t, err)
		_, err = io.WriteString(w, f[1])
		check(t, err)
	}
	check(t, z.Close())
	return b.Bytes()
}

// start is the time all tests live in.
var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// clock is a clock a test moves by hand.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// rig is a mirror before a fake.
type rig struct {
	t     testing.TB
	up    *fake
	m     *Mirror
	clock *clock
	dir   string
}

func origin(u string) Origin { return Origin{URL: u, Internal: true} }

func newRig(t testing.TB, edit func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, up: newFake(t), clock: &clock{t: start}, dir: t.TempDir()}
	key, ring := r.up.stock(t)
	base := r.up.URL
	cfg := Config{
		Go:     &GoUpstream{Upstream: Upstream{Origin: origin(base + "/go")}, Sum: &SumDB{Key: key}},
		NPM:    &Upstream{Origin: origin(base + "/npm")},
		PyPI:   &Upstream{Origin: origin(base + "/simple")},
		Crates: &Upstream{Origin: origin(base + "/crates")},
		Maven:  &Upstream{Origin: origin(base + "/maven")},
		Debian: []Archive{{ID: "debian", Upstream: Upstream{Origin: origin(base + "/debian")}, Suites: []string{"stable"}, Components: []string{"main"}, Archs: []string{"amd64"}, Keyring: ring}},
		Dir:    filepath.Join(r.dir, "store"), Now: r.clock.now, Log: slog.New(slog.DiscardHandler),
	}
	if edit != nil {
		edit(&cfg)
	}
	m, err := New(cfg)
	check(t, err)
	t.Cleanup(m.Close)
	r.m = m
	return r
}

// sess is one task's client side.
type sess struct {
	t      testing.TB
	s      *Session
	socket string
	http   *http.Client
	mu     sync.Mutex
	led    []Entry
	ended  chan error
	stop   context.CancelFunc
}

var allNames = []string{"go:*", "npm:*", "pypi:*", "crates:*", "maven:*"}

func (r *rig) session(edit func(*SessionConfig)) *sess {
	r.t.Helper()
	out := &sess{t: r.t, ended: make(chan error, 1)}
	cfg := SessionConfig{Task: "t_1", Base: "http://127.0.0.1:4873", Allow: allNames, Now: r.clock.now, Ledger: func(e Entry) error {
		out.mu.Lock()
		defer out.mu.Unlock()
		out.led = append(out.led, e)
		return nil
	}}
	if edit != nil {
		edit(&cfg)
	}
	s, err := NewSession(cfg)
	check(r.t, err)
	out.s = s
	out.socket = filepath.Join(r.t.TempDir(), "s")
	l, err := net.Listen("unix", out.socket)
	check(r.t, err)
	ctx, stop := context.WithCancel(context.Background())
	out.stop = stop
	go func() { out.ended <- r.m.Serve(ctx, l, s) }()
	tr := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 8, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", out.socket)
	}}
	out.http = &http.Client{Transport: tr, Timeout: time.Minute}
	r.t.Cleanup(func() { tr.CloseIdleConnections(); stop(); <-out.ended })
	return out
}

func (s *sess) get(path string) (status int, body []byte, h http.Header) {
	s.t.Helper()
	res, err := s.http.Get("http://mirror" + path)
	check(s.t, err)
	defer res.Body.Close()
	body, err = io.ReadAll(res.Body)
	check(s.t, err)
	return res.StatusCode, body, res.Header
}

// want gets a path and holds the answer to a status and, unless empty, a reason.
func (s *sess) want(path string, status int, reason Reason) []byte {
	s.t.Helper()
	got, body, h := s.get(path)
	if got != status || Reason(h.Get("X-Refused")) != reason {
		s.t.Fatalf("GET %s: %d %q, want %d %q: %s", path, got, h.Get("X-Refused"), status, reason, body)
	}
	return body
}

func (s *sess) ledger() []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.led)
}

// raw sends bytes as they are and returns what comes back until the other side closes.
func (s *sess) raw(text string) string {
	s.t.Helper()
	c, err := net.Dial("unix", s.socket)
	check(s.t, err)
	defer c.Close()
	check(s.t, c.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = io.WriteString(c, text)
	check(s.t, err)
	b, err := io.ReadAll(c)
	check(s.t, err)
	return string(b)
}

func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[int(float64(len(d)-1)*q)]
}
