package mirror

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnrecordedIsRefused: what the ledger cannot store does not happen, and a ledger may have
// its own reason to refuse a name. Nothing reaches an upstream.
func TestUnrecordedIsRefused(t *testing.T) {
	r := newRig(t, nil)
	for _, c := range []struct {
		err    error
		status int
		reason Reason
	}{
		{errors.New("disk full"), 503, ReasonRecord},
		{&Denial{Reason: ReasonCanary, Detail: "the name carries a planted token"}, 403, ReasonCanary},
	} {
		s := r.session(func(cfg *SessionConfig) {
			keep := cfg.Ledger
			cfg.Ledger = func(e Entry) error {
				_ = keep(e)
				if e.Refused == "" {
					return c.err
				}
				return nil
			}
		})
		s.want("/npm/@team/lib", c.status, c.reason)
		s.want("/npm/@team/lib", c.status, c.reason) // and again: it was not let through
		if led := s.ledger(); led[len(led)-1].Refused != c.reason {
			t.Errorf("%+v", led)
		}
	}
	if n := len(r.up.requests()); n != 0 {
		t.Errorf("the upstream saw %d requests", n)
	}
}

// TestBudgetIsTheTasks: a later session of the same task gets no new budget, and what it was
// given before it may ask for again.
func TestBudgetIsTheTasks(t *testing.T) {
	r := newRig(t, nil)
	s := r.session(func(cfg *SessionConfig) {
		cfg.Allow, cfg.Limits.NewNames = nil, 1
		cfg.SpentNames = []string{"npm:@team/lib"}
	})
	s.want("/npm/@team/lib", 200, "")
	s.want("/pypi/simple/team-lib/", 403, ReasonBudget)
	if led := s.ledger(); len(led) != 1 {
		t.Errorf("a name the task has asked for already is on the ledger again: %+v", led)
	}
}

// TestNET21IndexesOutliveTheMirror: after a restart, and however old they are, an offline session
// gets every index and file that was fetched before, and no upstream hears of it.
func TestNET21IndexesOutliveTheMirror(t *testing.T) {
	paths := []string{
		"/npm/@team/lib", "/npm/@team/lib/-/lib-1.0.0.tgz",
		"/go/example.com/team/lib/@v/list", "/go/example.com/team/lib/@v/v1.0.0.info", "/go/example.com/team/lib/@v/v1.0.0.mod", "/go/example.com/team/lib/@v/v1.0.0.zip",
		"/pypi/simple/team-lib/", "/pypi/files/team-lib/" + wheelName,
		"/crates/index/te/am/teamlib", "/crates/dl/teamlib/1.0.0/download",
		"/maven/com/team/lib/maven-metadata.xml", "/maven/com/team/lib/1.0/lib-1.0.pom",
		"/debian/debian/dists/stable/InRelease", "/debian/debian/" + debPath,
	}
	r := newRig(t, nil)
	first := r.session(nil)
	want := map[string][]byte{}
	for _, p := range paths {
		want[p] = first.want(p, 200, "")
	}
	first.stop()
	r.m.Close()
	r.clock.add(metadataTTL + 1) // the archive's index is valid for a day
	m, err := New(r.m.cfg)
	check(t, err)
	t.Cleanup(m.Close)
	r.m = m
	before := len(r.up.requests())
	s := r.session(func(cfg *SessionConfig) { cfg.Offline = true })
	for _, p := range paths {
		if got := s.want(p, 200, ""); string(got) != string(want[p]) {
			t.Errorf("%s changed: %q", p, got)
		}
	}
	s.want("/npm/other", 403, ReasonOffline)
	if n := len(r.up.requests()) - before; n != 0 {
		t.Errorf("the upstream saw %d requests", n)
	}
}

// TestTwoMirrorsOneStore: processes share a store, and one that starts does not take away what
// another is about to write.
func TestTwoMirrorsOneStore(t *testing.T) {
	r := newRig(t, nil)
	f, err := r.m.store.scratch()
	check(t, err)
	defer f.Close()
	left := filepath.Join(r.dir, "store", "tmp", "p-left")
	check(t, os.MkdirAll(left, 0o700))
	cfg := r.m.cfg
	cfg.Log = slog.New(slog.DiscardHandler)
	other, err := New(cfg)
	check(t, err)
	defer other.Close()
	if _, err := os.Stat(f.Name()); err != nil {
		t.Errorf("a file under way is gone: %v", err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("what a dead process left is still there: %v", err)
	}
	const p = "/npm/@team/lib/-/lib-1.0.0.tgz"
	r.session(nil).want(p, 200, "")
	before := len(r.up.requests())
	two := &rig{t: t, up: r.up, m: other, clock: r.clock, dir: r.dir}
	two.session(func(cfg *SessionConfig) { cfg.Offline = true }).want(p, 200, "")
	if n := len(r.up.requests()) - before; n != 0 {
		t.Errorf("the second mirror asked %d times for what the first has", n)
	}
}

// TestAuthorizationStaysHome: an upstream's credential goes to its own host alone.
func TestAuthorizationStaysHome(t *testing.T) {
	cdn := newFake(t)
	r := newRig(t, func(c *Config) {
		c.NPM.Authorization = "Bearer secret-token"
		c.NPM.CDN = []Origin{origin(cdn.URL)}
	})
	ball := r.up.files["/npm/@team/lib/-/lib-1.0.0.tgz"].body
	cdn.put("/moved.tgz", "application/octet-stream", ball)
	r.up.redirect("/npm/@team/lib/-/lib-1.0.0.tgz", cdn.URL+"/moved.tgz")
	s := r.session(nil)
	s.want("/npm/@team/lib/-/lib-1.0.0.tgz", 200, "")
	for _, q := range r.up.requests() {
		if strings.HasPrefix(q.URL.Path, "/npm/") && q.Header.Get("Authorization") != "Bearer secret-token" {
			t.Errorf("%s without its credential", q.URL)
		}
	}
	if len(cdn.requests()) != 1 {
		t.Fatalf("%d requests at the other host", len(cdn.requests()))
	}
	if h := cdn.requests()[0].Header.Get("Authorization"); h != "" {
		t.Errorf("the other host was given %q", h)
	}
}
