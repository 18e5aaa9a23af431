package e2e

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/mod/sumdb/dirhash"
)

// registry is a Go module proxy and an npm registry on loopback, with one package each, that
// remembers what it was asked.
type registry struct {
	*httptest.Server
	files map[string][]byte
	mu    sync.Mutex
	seen  []string
}

const (
	libMod = "module lib.test/team/lib\n\ngo 1.21\n"
	libSrc = "// Package lib is the fixture's only dependency.\npackage lib\n\n// Floor is the least a price can be.\nfunc Floor(n int) int { return max(n, 0) }\n"
)

func newRegistry() (*registry, error) {
	r := &registry{files: map[string][]byte{}}
	r.Server = httptest.NewServer(r)
	var mod bytes.Buffer
	z := zip.NewWriter(&mod)
	for _, f := range [][2]string{{"go.mod", libMod}, {"lib.go", libSrc}} {
		w, err := z.Create("lib.test/team/lib@v1.0.0/" + f[0])
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, f[1]); err != nil {
			return nil, err
		}
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	for _, name := range []string{"lib", "poisoned"} {
		at := "/go/lib.test/team/" + name + "/@v/"
		r.files[at+"v1.0.0.info"] = []byte(`{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}`)
		r.files[at+"v1.0.0.mod"] = []byte(strings.ReplaceAll(libMod, "lib\n", name+"\n"))
		r.files[at+"v1.0.0.zip"] = mod.Bytes()
	}
	ball, err := tarball(map[string]string{"package/package.json": `{"name":"@team/floor","version":"1.0.0","main":"i.js"}`, "package/i.js": "module.exports = n => Math.max(n, 0)\n"})
	if err != nil {
		return nil, err
	}
	sum := sha512.Sum512(ball)
	for _, name := range []string{"@team/floor", "left-pad", "right-pad"} {
		short := name[strings.IndexByte(name, '/')+1:]
		r.files["/npm/"+name] = fmt.Appendf(nil, `{"name":%q,"dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":%q,"version":"1.0.0","dist":{"integrity":"sha512-%s","tarball":"%s/npm/%s/-/%s-1.0.0.tgz"}}}}`,
			name, name, base64.StdEncoding.EncodeToString(sum[:]), r.URL, name, short)
		r.files["/npm/"+name+"/-/"+short+"-1.0.0.tgz"] = ball
	}
	return r, nil
}

func tarball(files map[string]string) ([]byte, error) {
	var b bytes.Buffer
	g := gzip.NewWriter(&b)
	w := tar.NewWriter(g)
	for _, name := range []string{"package/package.json", "package/i.js"} {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	if err := g.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func (r *registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	r.seen = append(r.seen, q.Method+" "+q.URL.RequestURI())
	r.mu.Unlock()
	body, ok := r.files[q.URL.Path]
	if !ok {
		http.NotFound(w, q)
		return
	}
	_, _ = w.Write(body) // the mirror may have left
}

// sums are the go.sum lines of a module with the fixture's content.
func sums(name, mod string) (string, error) {
	hash := func(files map[string]string) (string, error) {
		var names []string
		for n := range files {
			names = append(names, n)
		}
		return dirhash.Hash1(names, func(n string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(files[n])), nil })
	}
	at := "lib.test/team/" + name + "@v1.0.0/"
	zip, err := hash(map[string]string{at + "go.mod": mod, at + "lib.go": libSrc})
	if err != nil {
		return "", err
	}
	gomod, err := hash(map[string]string{"go.mod": mod})
	return fmt.Sprintf("lib.test/team/%[1]s v1.0.0 %[2]s\nlib.test/team/%[1]s v1.0.0/go.mod %[3]s\n", name, zip, gomod), err
}

// registry DIR: starts a registry, has the configuration name it, and locks the fixture's module
// in DIR/go.sum, with one beside it whose bytes the registry has exchanged.
func cmdRegistry(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "registry DIR")
	r, err := newRegistry()
	ts.Check(err)
	ts.Defer(r.Close)
	of(ts).registry = r
	good, err := sums("lib", libMod)
	ts.Check(err)
	bad, err := sums("poisoned", strings.ReplaceAll(libMod, "lib\n", "poisoned\n"))
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0])+"/go.sum", []byte(good+bad), 0o644))
	name := ts.Getenv("DAYBREAK_CONFIG")
	b, err := os.ReadFile(name)
	ts.Check(err)
	own := fmt.Sprintf("mirror:\n  off: [pypi, crates, maven, debian]\n  limits: {new_names: 1}\n  go: {url: %q, internal: true}\n  npm: {url: %q, internal: true, stands_for: [\"https://packages.test\"]}\n", r.URL+"/go", r.URL+"/npm")
	text := strings.Replace(string(b), "mirror: {off: [go, npm, pypi, crates, maven, debian]}\n", own, 1)
	if text == string(b) {
		ts.Fatalf("the configuration has no mirror to replace")
	}
	ts.Check(os.WriteFile(name, []byte(text), 0o644))
}

// served TEXT: whether the registry was asked for something that contains TEXT.
func cmdServed(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 1, "[!] served TEXT")
	r := of(ts).registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.seen, func(s string) bool { return strings.Contains(s, args[0]) }) == neg {
		ts.Fatalf("the registry was asked: %q", r.seen)
	}
}
