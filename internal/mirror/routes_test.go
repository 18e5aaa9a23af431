package mirror

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// files are the verified files of the fixture, one for each protocol.
var files = map[string]string{
	"/go/example.com/team/lib/@v/v1.0.0.mod": "/go/example.com/team/lib/@v/v1.0.0.mod",
	"/go/example.com/team/lib/@v/v1.0.0.zip": "/go/example.com/team/lib/@v/v1.0.0.zip",
	"/npm/@team/lib/-/lib-1.0.0.tgz":         "/npm/@team/lib/-/lib-1.0.0.tgz",
	"/pypi/files/team-lib/" + wheelName:      "/files/" + wheelName,
	"/crates/dl/teamlib/1.0.0/download":      "/dl/teamlib/1.0.0.crate",
	"/maven/com/team/lib/1.0/lib-1.0.pom":    "/maven/com/team/lib/1.0/lib-1.0.pom",
	"/debian/debian/" + debPath:              "/debian/" + debPath,
}

// TestFilesAreServedAndStored: each protocol's file arrives byte for byte, and the second
// time without asking the upstream.
func TestFilesAreServedAndStored(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(nil)
	for path, upstream := range files {
		body := s.want(path, 200, "")
		if !bytes.Equal(body, r.up.files[upstream].body) {
			t.Errorf("%s: other bytes than the upstream has", path)
		}
		before, counted := len(r.up.requests()), r.m.Counts()
		if again := s.want(path, 200, ""); !bytes.Equal(again, body) {
			t.Errorf("%s: the second answer differs", path)
		}
		if n := len(r.up.requests()) - before; n != 0 {
			t.Errorf("%s: %d upstream requests for what is stored", path, n)
		}
		n := r.m.Counts()
		counted.Served, counted.Stored, counted.BytesOut = counted.Served+1, counted.Stored+1, counted.BytesOut+int64(len(body))
		if n != counted {
			t.Errorf("%s: %+v is counted, want %+v", path, n, counted)
		}
	}
	n := r.m.Counts()
	s.want("/npm/../secret", 404, "path")
	if n.Refused++; r.m.Counts() != n {
		t.Errorf("a refusal: %+v, want %+v", r.m.Counts(), n)
	}
	if n.Fetches == 0 || n.Fetches != int64(len(r.up.requests())) || n.BytesIn < n.BytesOut/2 {
		t.Errorf("%+v of %d requests", n, len(r.up.requests()))
	}
}

func TestMetadata(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(nil)
	for path, want := range map[string]string{
		"/go/example.com/team/lib/@v/list":                          "v1.0.0\n",
		"/go/example.com/team/lib/@latest":                          `{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}`,
		"/go/example.com/team/lib/@v/v1.0.0.info":                   `{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}`,
		"/go/sumdb/" + fakeDB + "/supported":                        "",
		"/crates/index/config.json":                                 `{"dl":"http://127.0.0.1:4873/crates/dl"}`,
		"/crates/index/te/am/teamlib":                               string(r.up.files["/crates/te/am/teamlib"].body),
		"/maven/com/team/lib/maven-metadata.xml":                    string(r.up.files["/maven/com/team/lib/maven-metadata.xml"].body),
		"/maven/com/team/lib/1.0/lib-1.0.pom.sha1":                  strings.Fields(string(r.up.files["/maven/com/team/lib/1.0/lib-1.0.pom.sha1"].body))[0],
		"/debian/debian/dists/stable/InRelease":                     string(r.up.files["/debian/dists/stable/InRelease"].body),
		"/debian/debian/dists/stable/main/binary-amd64/Packages.gz": string(r.up.files["/debian/dists/stable/main/binary-amd64/Packages.gz"].body),
	} {
		if got := s.want(path, 200, ""); string(got) != want {
			t.Errorf("%s: got %q, want %q", path, clip(string(got)), clip(want))
		}
	}
	if got := s.want("/go/sumdb/"+fakeDB+"/lookup/example.com/team/lib@v1.0.0", 200, ""); !bytes.Contains(got, []byte("example.com/team/lib v1.0.0 h1:")) {
		t.Errorf("lookup: %s", got)
	}
	s.want("/go/sumdb/other.example/latest", 404, "")
	s.want("/go/sumdb/"+fakeDB+"/latest", 200, "")
	for _, name := range []string{"/npm/absent", "/pypi/simple/absent/", "/crates/index/ab/se/absent", "/maven/com/team/absent/1/absent-1.jar", "/debian/debian/dists/other/InRelease", "/go/example.com/team/absent/@v/list"} {
		s.want(name, 404, "")
	}
}

func TestNPMIsRewritten(t *testing.T) {
	s := newRig(t, nil).session(nil)
	var p struct {
		Versions map[string]struct {
			Dist struct{ Tarball string }
		}
	}
	for _, path := range []string{"/npm/@team/lib", "/npm/@team%2flib"} {
		check(t, json.Unmarshal(s.want(path, 200, ""), &p))
		if got := p.Versions["1.0.0"].Dist.Tarball; got != "http://127.0.0.1:4873/npm/@team/lib/-/lib-1.0.0.tgz" {
			t.Errorf("tarball %q", got)
		}
		if _, there := p.Versions["2.0.0"]; there {
			t.Error("a version without a digest is offered")
		}
	}
}

func TestPyPIForms(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(nil)
	page := string(s.want("/pypi/simple/team-lib/", 200, ""))
	link := `<a href="../../files/team-lib/` + wheelName + `#sha256=`
	if !strings.Contains(page, link) || !strings.Contains(page, `data-requires-python="&gt;=3.8"`) {
		t.Errorf("page: %s", page)
	}
	old := string(s.want("/pypi/simple/old-lib/", 200, "")) // the upstream sends HTML here
	if !strings.Contains(old, "../../files/old-lib/"+wheelName) || !strings.Contains(old, "data-yanked") {
		t.Errorf("from HTML: %s", old)
	}
	s.want("/pypi/files/old-lib/"+wheelName, 200, "")
}

// TestDebianFreshness: an index that is validly signed can still be the wrong one.
func TestDebianFreshness(t *testing.T) {
	for name, c := range map[string]struct {
		suite, extra string
		date         time.Time
	}{
		"of another suite": {"oldstable", "", start},
		"past its time":    {"stable", "Valid-Until: " + start.Add(-time.Minute).Format(time.RFC1123) + "\n", start.Add(time.Minute)},
		"older than seen":  {"stable", "", start.Add(-30 * time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			s := r.session(nil)
			s.want("/debian/debian/dists/stable/InRelease", 200, "")
			r.clock.add(metadataTTL + time.Second)
			r.up.putSuite(t, r.m.archives["debian"].Keyring[0], c.suite, c.extra, c.date, gz(t, ""))
			s.want("/debian/debian/dists/stable/InRelease", 502, ReasonDigest)
		})
	}
}

func TestConfigIsChecked(t *testing.T) {
	ok := newRig(t, nil).m.cfg
	for name, edit := range map[string]func(*Config){
		"plain HTTP outside": func(c *Config) { c.NPM = &Upstream{Origin: Origin{URL: "http://registry.example"}} },
		"credentials":        func(c *Config) { c.NPM = &Upstream{Origin: Origin{URL: "https://u:p@registry.example"}} },
		"another scheme":     func(c *Config) { c.NPM = &Upstream{Origin: Origin{URL: "file:///etc"}} },
		"archive keys":       func(c *Config) { c.Debian = []Archive{{ID: "debian"}} },
		"archive id":         func(c *Config) { c.Debian = []Archive{{ID: "../x"}} },
		"database key":       func(c *Config) { g := *c.Go; g.Sum = &SumDB{Key: "x"}; c.Go = &g },
	} {
		cfg := ok
		cfg.Dir = t.TempDir()
		edit(&cfg)
		if m, err := New(cfg); err == nil {
			m.Close()
			t.Errorf("%s: accepted", name)
		}
	}
}
