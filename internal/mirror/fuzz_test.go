package mirror

import (
	"bytes"
	"net/url"
	"path"
	"strings"
	"testing"
)

// FuzzRoute holds the grammar of all ecosystems to what makes it safe: what it accepts is
// plain, has no way upwards, and becomes a canonical upstream address under the base.
func FuzzRoute(f *testing.F) {
	for p := range files {
		f.Add(p)
	}
	for _, p := range outside {
		f.Add(p)
	}
	for _, p := range []string{"/go/sumdb/sum.example/tile/8/0/x001/002.p/3", "/go/sumdb/sum.example/lookup/github.com/!a/b@v1.0.0", "/maven/a/b/maven-metadata.xml.sha1", "/debian/debian/dists/stable/updates/InRelease", "/crates/index/3/a/abc"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p, err := url.PathUnescape(raw)
		if err != nil {
			return
		}
		r, ok := parseRoute(p)
		if !ok {
			return
		}
		if strings.ContainsAny(p, "\x00\r\n\t \\%?#;&<>\"'|:") || strings.Contains(p, "//") || path.Clean(p) != strings.TrimSuffix(p, "/") {
			t.Fatalf("%q is accepted as %+v", p, r)
		}
		if r.kind == kindNone || !strings.HasPrefix(p, "/"+string(r.eco)+"/") {
			t.Fatalf("%q: %+v", p, r)
		}
		for _, part := range []string{r.name, r.version, r.file, r.archive} {
			for _, s := range strings.Split(part, "/") {
				if s == ".." || s == "." {
					t.Fatalf("%q: %+v climbs", p, r)
				}
			}
		}
		for _, rel := range []string{r.name, r.file, r.version} {
			u, err := url.Parse(join("https://registry.example/base", rel))
			if err != nil || u.Host != "registry.example" || u.RawQuery != "" || u.Fragment != "" || u.User != nil || u.Path != "/base/"+rel {
				t.Fatalf("%q becomes %v (%v)", rel, u, err)
			}
		}
	})
}

// FuzzPackument: what is offered is what can be verified, and only at the mirror.
func FuzzPackument(f *testing.F) {
	f.Add([]byte(`{"name":"a","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"dist":{"shasum":"da39a3ee5e6b4b0d3255bfef95601890afd80709","tarball":"https://r.example/a.tgz"}}}}`))
	f.Add([]byte(`{"name":"a","versions":{"1.0.0":null,"x":{"dist":[]}}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := parsePackument(raw, "a", "https://r.example/a")
		if err != nil {
			return
		}
		for v, file := range doc.files {
			if file.digest.zero() || !fullVersion(v) {
				t.Fatalf("%q: %+v", v, file)
			}
		}
		again, err := parsePackument(doc.body, "a", "https://r.example/a")
		if err != nil || len(again.files) != len(doc.files) {
			t.Fatalf("its own output is read differently: %v", err)
		}
	})
}

// FuzzSimple: both forms of a project's index.
func FuzzSimple(f *testing.F) {
	sum := strings.Repeat("a", 64)
	f.Add([]byte(`{"files":[{"filename":"a-1.tar.gz","url":"x","hashes":{"sha256":"`+sum+`"},"yanked":"why","core-metadata":{"sha256":"`+sum+`"}}]}`), true)
	f.Add([]byte(`<a href='a-1.tar.gz#sha256=`+sum+`' data-core-metadata="sha256=`+sum+`" data-yanked>a-1.tar.gz</a><a`), false)
	f.Add([]byte(`<a/href=x =y "z>`), false)
	f.Fuzz(func(t *testing.T, raw []byte, asJSON bool) {
		ctype := "text/html; charset=utf-8"
		if asJSON {
			ctype = simpleJSON
		}
		doc, err := parseSimple(raw, "a", "https://r.example/simple/a/", ctype)
		if err != nil {
			return
		}
		for name, file := range doc.files {
			if _, ok := parsePyPI("files/a/" + name); !ok || file.digest.zero() {
				t.Fatalf("%q is offered and could not be asked for, or not verified", name)
			}
		}
		// the page we write is read back as the same files
		again, err := parseSimple(doc.body, "a", "https://m.example/pypi/simple/a/", simpleHTML)
		if err != nil || len(again.files) != len(doc.files) {
			t.Fatalf("%d files, read back %d (%v): %s", len(doc.files), len(again.files), err, doc.body)
		}
		if bytes.Count(doc.body, []byte("<a ")) > len(doc.files) {
			t.Fatalf("text of the upstream became a link: %s", doc.body)
		}
	})
}

// FuzzCrateIndex: the lines kept are the upstream's own, about this crate.
func FuzzCrateIndex(f *testing.F) {
	f.Add([]byte(`{"name":"a","vers":"1.0.0","cksum":"` + strings.Repeat("0", 64) + `"}` + "\n{}\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		doc, err := parseCrateIndex(raw, "a")
		if err != nil {
			return
		}
		for line := range bytes.Lines(doc.body) {
			if !bytes.Contains(raw, bytes.TrimSpace(line)) {
				t.Fatalf("invented: %s", line)
			}
		}
		for v, file := range doc.files {
			if _, err := url.Parse(fillTemplate("https://r.example/dl/{crate}/{version}/{sha256-checksum}", file, v)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzDebian: release files, package indexes and sources.
func FuzzDebian(f *testing.F) {
	sum := strings.Repeat("a", 64)
	f.Add("Date: Sat, 02 May 2026 10:00:00 UTC\nSHA256:\n " + sum + " 1 main/binary-amd64/Packages.gz\n")
	f.Add("Package: a\nFilename: pool/a.deb\nSHA256: " + sum + "\n\n")
	f.Add("Types: deb\nURIs: http://a.example/x\nSuites: s\nComponents: c\n")
	f.Add("deb [arch=amd64 signed-by=/k] http://a.example/x s c # d\n")
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parseRelease([]byte(text)); err == nil {
			for name, d := range r.sums {
				if d.zero() || strings.Contains(name, "..") || strings.HasPrefix(name, "/") {
					t.Fatalf("%q: %+v", name, d)
				}
			}
		}
		files, err := parsePackages(strings.NewReader(text), "http://r.example/debian")
		if err != nil {
			t.Fatal(err)
		}
		for name, file := range files {
			if u, err := url.Parse(file.url); err != nil || u.Host != "r.example" || path.Clean(name) != strings.TrimSuffix(name, "/") {
				t.Fatalf("%q: %v %v", name, u, err)
			}
		}
		parseDeb822(text)
		parseOneLine(text)
		if _, err := verifySigned([]byte(text), nil, start); err == nil {
			t.Fatal("verified with no keys")
		}
	})
}

// FuzzSmallFormats: the remaining readers of upstream text.
func FuzzSmallFormats(f *testing.F) {
	f.Add("<metadata><groupId>g</groupId><artifactId>a</artifactId></metadata>")
	f.Add("sha512-AAAA sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=?x")
	f.Add(`{"Version":"v1.0.0"}`)
	f.Add("v1.0.0\nv2.0.0\nlatest\n")
	f.Add("https://a.example/%2e%2e/x")
	f.Fuzz(func(t *testing.T, text string) {
		_ = checkMavenMetadata([]byte(text), "g:a") // it returns
		if d := parseIntegrity(text); !d.zero() {
			if _, ok := hexDigest(d.algo, d.sum); !ok {
				t.Fatalf("%+v", d)
			}
		}
		if b, err := goInfoJSON([]byte(text), ""); err == nil && !bytes.Contains(b, []byte(`"Version":"v`)) {
			t.Fatalf("%s", b)
		}
		if b, err := goVersions("example.com/a", []byte(text)); err == nil {
			for line := range strings.Lines(string(b)) {
				if v := strings.TrimSpace(line); v != "" && !strings.HasPrefix(v, "v") {
					t.Fatalf("%q", v)
				}
			}
		}
		if next, err := redirect("https://r.example/a", text, 0); err == nil {
			u, err := url.Parse(next)
			if err != nil || u.Scheme != "https" || u.User != nil {
				t.Fatalf("%q leads to %q", text, next)
			}
		}
		if s := clip(text); strings.ContainsAny(s, "\n\r\x1b\x00") {
			t.Fatalf("%q", s)
		}
	})
}
