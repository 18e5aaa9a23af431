package mirror

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"
)

const token = "Zk3v9QwX7mTb2LpR8sNd4HcY"

func count(entries []Entry, refused Reason) (n int) {
	for _, e := range entries {
		if e.Refused == refused {
			n++
		}
	}
	return n
}

// TestNET08Budget: five hundred invented names; the upstream hears of the first twenty, the
// ledger of all until the session is closed.
func TestNET08Budget(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) {
		c.Allow = nil
		c.Known = map[Ecosystem][]string{NPM: {"@team/lib"}}
		c.Limits.Refusals = 100
	})
	for i := range 500 {
		status, _, h := s.get(fmt.Sprintf("/npm/exfil-%d", i))
		switch {
		case i < 20 && status != 404, i >= 20 && status != 403:
			t.Fatalf("name %d: %d %s", i, status, h.Get("X-Refused"))
		}
	}
	if n := len(r.up.requests()); n != 20 {
		t.Errorf("the upstream saw %d names", n)
	}
	led := s.ledger()
	if len(led) != 20+100+1 || count(led, ReasonBudget) != 100 || count(led, ReasonStopped) != 1 {
		t.Errorf("%d entries, %d over budget, %d stops", len(led), count(led, ReasonBudget), count(led, ReasonStopped))
	}
	for _, e := range led[:20] {
		if !e.New || e.Task != "t_1" || !strings.HasPrefix(e.Name, "exfil-") {
			t.Errorf("entry %+v", e)
		}
	}
	s.want("/npm/@team/lib", 403, ReasonStopped) // closed for good
}

func TestNET08KnownNamesAreFree(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) {
		c.Allow = []string{"pypi:team-lib", "go:example.com/team/*", "maven:*"}
		c.Known = map[Ecosystem][]string{NPM: {"@team/lib"}, Crates: {"teamlib"}}
		c.Limits.NewNames = -1
	})
	for _, p := range []string{"/npm/@team/lib", "/pypi/simple/team-lib/", "/crates/index/te/am/teamlib", "/go/example.com/team/lib/@v/list", "/maven/com/team/lib/1.0/lib-1.0.pom", "/debian/debian/" + debPath} {
		s.want(p, 200, "")
		s.want(p, 200, "")
	}
	for _, p := range []string{"/npm/@team/lib2", "/pypi/simple/team-lib2/", "/crates/index/te/am/team", "/go/example.com/teamx/@v/list"} {
		s.want(p, 403, ReasonUnknown)
	}
	led := s.ledger()
	if len(led) != 6+1+4 { // the version of the Maven package was told as well
		t.Errorf("%d entries: %+v", len(led), led)
	}
}

func TestNET08LongNames(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) { c.Allow = []string{"go:example.com/team/lib"} })
	s.want("/npm/"+strings.Repeat("a", 65), 403, ReasonLong)
	s.want("/npm/"+strings.Repeat("a", 64), 404, "")
	s.want("/go/example.com/team/lib/"+strings.Repeat("a", 64)+"/@v/list", 403, ReasonLong)
	long := "v0.0.0-" + strings.Repeat("x", 70)
	s.want("/go/example.com/team/lib/@v/"+long+".info", 403, ReasonLong)
}

func TestNET08Versions(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) { c.Limits.NewVersions = 3 })
	for i := range 3 {
		s.want(fmt.Sprintf("/go/example.com/team/lib/@v/v1.0.%d-x.info", i), 404, "")
	}
	s.want("/go/example.com/team/lib/@v/v1.0.9-x.info", 403, ReasonVersions)
	s.want("/maven/com/team/lib/1.0/lib-1.0.pom", 403, ReasonVersions)
	before := len(r.up.requests())
	s.want("/npm/@team/lib/-/lib-9.9.9.tgz", 404, "") // ends at the index: the version is told to nobody
	if n := len(r.up.requests()) - before; n != 1 {
		t.Errorf("%d upstream requests for a version that does not exist", n)
	}
}

// TestNET08Tiles: the tiles of the checksum database have no names, and still carry no message.
func TestNET08Tiles(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) { c.Limits.Refusals = 1000 })
	before := len(r.up.requests())
	for i := range 200 {
		s.get(fmt.Sprintf("/go/sumdb/"+fakeDB+"/tile/8/0/x%03d/%03d", i, 999-i))
	}
	if n := len(r.up.requests()) - before; n == 0 || n > firstTiles {
		t.Errorf("the upstream heard %d numbers", n)
	}
	if n := count(s.ledger(), ReasonFetches); n != 200-firstTiles {
		t.Errorf("%d refusals are on the ledger", n)
	}
	s.want("/go/sumdb/"+fakeDB+"/tile/8/0/x001/x001/x001/001", 404, ReasonPath)
}

func TestNET08Canary(t *testing.T) {
	rev := []byte(token)
	for i, j := 0, len(rev)-1; i < j; i, j = i+1, j-1 {
		rev[i], rev[j] = rev[j], rev[i]
	}
	h := hex.EncodeToString([]byte(token))
	for name, names := range map[string][]string{
		"plain":             {token},
		"lower case":        {strings.ToLower(token)},
		"inside":            {"a-" + token + "-b"},
		"with dashes":       {token[:6] + "-" + token[6:12] + "." + token[12:]},
		"reversed":          {string(rev)},
		"hex":               {h},
		"base32":            {strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(token)))},
		"base32, shifted":   {strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte("xyz" + token)))},
		"base64url":         {base64.RawURLEncoding.EncodeToString([]byte(token))},
		"base64url shifted": {base64.RawURLEncoding.EncodeToString([]byte("k" + token + "zz"))},
		"split in four":     {"ee" + h[:12], h[12:24], h[24:36], h[36:]},
		"single letters":    strings.Split(h, ""),
		"scoped":            {"@evil/" + token[:5], "@evil/" + token[5:10], "@evil/" + token[10:17], "@evil/" + token[17:]},
	} {
		w := NewCanaryWatch([]string{"short", token})
		hit := false
		for _, n := range names {
			hit = w.Seen(NPM, n) || hit
		}
		if !hit {
			t.Errorf("%s: not seen", name)
		}
	}
	w := NewCanaryWatch([]string{token})
	for _, n := range []string{"github.com/spf13/cobra", "@types/node", "react", "left-pad", "com.fasterxml.jackson.core:jackson-databind", "typing-extensions"} {
		if w.Seen(NPM, n) {
			t.Errorf("%s: an honest name is taken for a token", n)
		}
	}
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) { c.Allow = nil; c.Canary = w.Seen })
	s.want("/npm/"+token, 403, ReasonCanary)
	r.untouched("canary")
	if led := s.ledger(); count(led, ReasonCanary) != 1 || strings.Contains(fmt.Sprint(led), token) {
		t.Errorf("ledger %+v", led)
	}
}

// TestNET09ForeignModule: a module lookup is a message to the host in its path.
func TestNET09ForeignModule(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) {
		c.Allow = []string{"go:corp.example/team/*"}
		c.GoSum = map[string]string{"example.com/team/lib v1.0.0": "h1:x=", "example.com/team/lib v1.0.0/go.mod": "h1:y="}
	})
	for _, p := range []string{"evil.example/x/@v/list", "example.com/@latest", "example.com/teamx/@v/list", "example.com/team/@v/list", "data.evil.example/@v/v1.0.0.info", "corp.example/teamy/@v/list"} {
		s.want("/go/"+p, 403, ReasonForeign)
	}
	s.want("/go/sumdb/"+fakeDB+"/lookup/evil.example/x@v1.0.0", 403, ReasonForeign)
	r.untouched("foreign module")
	s.want("/go/example.com/team/lib/@v/list", 200, "")
	s.want("/go/example.com/team/lib/v2/@v/list", 404, "") // below a known one: costs budget, goes out
	s.want("/go/corp.example/team/new/@v/list", 404, "")
	led := s.ledger()
	if count(led, ReasonForeign) != 7 || led[len(led)-2].Name != "example.com/team/lib/v2" || !led[len(led)-2].New || led[len(led)-1].New {
		t.Errorf("ledger %+v", led)
	}
}

func TestNET21Offline(t *testing.T) {
	r := newRig(t, nil)
	r.session(nil).want("/crates/dl/teamlib/1.0.0/download", 200, "")
	before := len(r.up.requests())
	s := r.session(func(c *SessionConfig) { c.Offline = true })
	s.want("/crates/dl/teamlib/1.0.0/download", 200, "")
	s.want("/npm/@team/lib", 403, ReasonOffline)
	if n := len(r.up.requests()) - before; n != 0 {
		t.Errorf("%d upstream requests while offline", n)
	}
}

func TestFetchBudgetAndRate(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) { c.Limits.Fetches = 1 })
	s.want("/npm/@team/lib", 200, "")
	s.want("/pypi/simple/team-lib/", 403, ReasonFetches)
	slow := r.session(func(c *SessionConfig) { c.Limits.PerSecond = 2 })
	for range 4 {
		slow.want("/npm/@team/lib", 200, "")
	}
	slow.want("/npm/@team/lib", 429, ReasonRate)
	r.clock.add(500 * time.Millisecond)
	slow.want("/npm/@team/lib", 200, "")
	s.s.Stop()
	s.want("/npm/@team/lib", 403, ReasonStopped) // NET-19: nothing after the task's end
}

// TestNET18: young, yanked, deprecated, scripted, and names made to be mistaken.
func TestNET18Risks(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"react", "reatc", true},
		{"react", "reac", true},
		{"react", "reacct", true},
		{"react", "teact", true},
		{"react", "preact", true},
		{"react", "react", false},
		{"react", "raecz", false},
		{"a", "b", true},
		{"", "a", true},
		{"abcd", "badc", false},
		{"ab", "ba", true},
	} {
		if oneEdit(c.a, c.b) != c.want || oneEdit(c.b, c.a) != c.want {
			t.Errorf("%q and %q: want %v", c.a, c.b, c.want)
		}
	}
	r := newRig(t, nil)
	s := r.session(func(c *SessionConfig) {
		c.Allow = nil
		c.Known = map[Ecosystem][]string{NPM: {"left-pad", "@team/lib"}}
	})
	s.want("/npm/left-pda", 403, ReasonSimilar)
	s.want("/npm/@team/lip", 403, ReasonSimilar)
	r.untouched("similar names")

	sum := strings.Repeat("0", 64)
	young, old := r.clock.now().Add(-time.Hour).Format(time.RFC3339), r.clock.now().Add(-90*24*time.Hour).Format(time.RFC3339)
	r.up.put("/npm/young", "", []byte(fmt.Sprintf(`{"name":"young","time":{"1.0.0":%q,"0.9.0":%q},"versions":{
		"1.0.0":{"dist":{"shasum":"%[3]s","tarball":"/x.tgz"}},
		"0.9.0":{"deprecated":"use 1.0","scripts":{"postinstall":"sh x"},"dist":{"shasum":"da39a3ee5e6b4b0d3255bfef95601890afd80709","tarball":"/empty.tgz"}}}}`, young, old, sum[:40])))
	r.up.put("/empty.tgz", "", nil)
	r.up.put("/crates/yo/un/young", "", []byte(fmt.Sprintf(`{"name":"young","vers":"1.0.0","cksum":%q,"pubtime":%q,"yanked":true}`, sum, young)))
	r.up.put("/simple/young/", simpleJSON, []byte(fmt.Sprintf(`{"files":[{"filename":"young-1.tar.gz","url":"/x","hashes":{"sha256":%q},"upload-time":%q}]}`, sum, young)))
	r.up.put("/go/example.com/team/lib/@v/v1.0.0.info", "", []byte(fmt.Sprintf(`{"Version":"v1.0.0","Time":%q}`, young)))
	s = r.session(func(c *SessionConfig) { c.MinAge = 24 * time.Hour })
	for _, p := range []string{"/npm/young/-/young-1.0.0.tgz", "/crates/dl/young/1.0.0/download", "/pypi/files/young/young-1.tar.gz", "/go/example.com/team/lib/@v/v1.0.0.zip"} {
		s.want(p, 403, ReasonYoung)
	}
	s.want("/npm/young/-/young-0.9.0.tgz", 200, "")
	s.want("/npm/young/-/young-0.9.0.tgz", 200, "")
	s.want("/go/example.com/team/lib/@v/v1.0.0.mod", 200, "")
	noted := 0
	for _, e := range s.ledger() {
		if len(e.Notes) > 0 {
			noted++
			if len(e.Notes) != 2 || e.Notes[0] != "deprecated: use 1.0" || e.Version != "0.9.0" {
				t.Errorf("%+v", e)
			}
		}
	}
	if noted != 1 {
		t.Errorf("%d notes", noted)
	}
	known := r.session(func(c *SessionConfig) {
		c.MinAge = 24 * time.Hour
		c.KnownVersions = map[Ecosystem][]string{Go: {"example.com/team/lib@v1.0.0"}}
	})
	known.want("/go/example.com/team/lib/@v/v1.0.0.zip", 200, "") // the base has it already
	r.clock.add(48 * time.Hour)
	s.want("/go/example.com/team/lib/@v/v1.0.0.zip", 200, "") // it has grown old enough
}
