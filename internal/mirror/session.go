package mirror

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Entry is one line of a session's ledger.
type Entry struct {
	Time      time.Time `json:"time"`
	Task      task.ID   `json:"task"`
	Ecosystem Ecosystem `json:"ecosystem,omitempty"`
	Name      string    `json:"name,omitempty"`
	Version   string    `json:"version,omitempty"`
	Refused   Reason    `json:"refused,omitempty"` // empty: the name was let through
	New       bool      `json:"new,omitempty"`     // it cost budget
	Status    int       `json:"status"`
	Detail    string    `json:"detail,omitempty"` // one line, safe to show
	Notes     []string  `json:"notes,omitempty"`  // what a reviewer should know about this version
}

// Limits bound one session. Zero fields take the defaults named.
type Limits struct {
	NewNames    int     // names outside the lockfiles: 20
	NewVersions int     // versions of Go and Maven packages that the lockfiles do not name: 200
	Fetches     int     // requests to upstreams: 5,000
	Refusals    int     // after so many the session is closed: 500
	Conns       int     // open connections: 64
	PerSecond   float64 // requests: 2,000, with bursts of twice that
}

// SessionConfig describes one task's use of the mirror.
type SessionConfig struct {
	Task task.ID
	// Base is where clients inside reach the mirror, as http://127.0.0.1:4873: npm and cargo
	// need absolute addresses.
	Base string
	// Known are the names in the base's lockfiles, in each ecosystem's own spelling: module
	// path, package, project, crate, group:artifact.
	Known map[Ecosystem][]string
	// KnownVersions are their versions, as name@version. Other versions of Go and Maven
	// packages cost budget, since the version itself is sent to the upstream; in every
	// ecosystem they are looked at more closely (MinAge, notes).
	KnownVersions map[Ecosystem][]string
	// GoSum are the lines of the base's go.sum: "module version" or "module version/go.mod" to "h1:…".
	GoSum map[string]string
	// Allow are the operator's patterns, as "npm:@team/*" or "go:example.com/team/*". A
	// pattern that ends in /* stands for all names below; "npm:*" stands for all names.
	Allow []string
	// MinAge is how long a version that the lockfiles do not name must have been public, where
	// the registry says when it was published. 0 means any age.
	MinAge time.Duration
	// Offline serves only what the store already has.
	Offline bool
	Limits  Limits
	// Spent is what the task's earlier sessions used: names ("ecosystem:name") and versions
	// ("ecosystem:name@version") that were let through. They pass again and count.
	SpentNames    []string
	SpentVersions []string
	// Ledger gets every name the first time and every refusal, before anybody outside hears of
	// the name. Its error refuses the name: a [Denial] for its own reason. Other requests of the
	// session wait for it.
	Ledger func(Entry) error
	// Canary looks at each new name and reports whether it carries a planted token.
	Canary func(Ecosystem, string) bool
	Now    func() time.Time
}

// Session is one task's budget and record. It is safe for concurrent use.
type Session struct {
	cfg   SessionConfig
	known map[string]bool // "eco:name", "eco:name@version"
	under chan struct{}   // fetches under way

	mu       sync.Mutex
	seen     map[string]bool
	names    int
	versions int
	fetches  int
	tiles    int
	refusals int
	tokens   float64
	filled   time.Time
	stopped  bool
}

// maxUnder is how many fetches of one session run at once: what they hold of memory and disk before
// it is verified is every task's.
const maxUnder = 16

// maxNewName is the length in bytes a name may have that nobody vouched for.
const maxNewName = 64

// NewSession checks the description and starts with full budgets.
func NewSession(cfg SessionConfig) (*Session, error) {
	if cfg.Ledger == nil || cfg.Now == nil {
		return nil, &task.Error{Class: task.Internal, Msg: "mirror: a session needs a ledger and a clock"}
	}
	l := &cfg.Limits
	for _, d := range []struct {
		v *int
		n int
	}{{&l.NewNames, 20}, {&l.NewVersions, 200}, {&l.Fetches, 5000}, {&l.Refusals, 500}, {&l.Conns, 64}} {
		if *d.v == 0 {
			*d.v = d.n
		}
	}
	if l.PerSecond == 0 {
		l.PerSecond = 2000
	}
	s := &Session{cfg: cfg, known: map[string]bool{}, under: make(chan struct{}, maxUnder), seen: map[string]bool{}, tokens: 2 * l.PerSecond, filled: cfg.Now()}
	for eco, names := range cfg.Known {
		for _, n := range names {
			s.known[string(eco)+":"+n] = true
		}
	}
	for eco, nv := range cfg.KnownVersions {
		for _, v := range nv {
			s.known[string(eco)+":"+v] = true
		}
	}
	for _, n := range cfg.SpentNames {
		s.seen[n] = true
	}
	for _, v := range cfg.SpentVersions {
		s.seen[v] = true
	}
	s.names, s.versions = len(cfg.SpentNames), len(cfg.SpentVersions)
	for line := range cfg.GoSum {
		name, version, _ := strings.Cut(line, " ")
		version = strings.TrimSuffix(version, "/go.mod")
		s.known["go:"+name], s.known["go:"+name+"@"+version] = true, true
	}
	return s, nil
}

// Stop ends the session: every later request is refused. Safe to call twice.
func (s *Session) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
}

// admit takes one request's share of the rate.
func (s *Session) admit() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return deny(http.StatusForbidden, ReasonStopped, "this session of the mirror is closed")
	}
	now, rate := s.cfg.Now(), s.cfg.Limits.PerSecond
	s.tokens = min(2*rate, s.tokens+now.Sub(s.filled).Seconds()*rate)
	s.filled = now
	if s.tokens < 1 {
		return deny(http.StatusTooManyRequests, ReasonRate, "more than %.0f requests a second", rate)
	}
	s.tokens--
	return nil
}

// vouched reports whether the lockfiles or the operator name it.
func (s *Session) vouched(eco Ecosystem, name string) bool {
	if s.known[string(eco)+":"+name] {
		return true
	}
	return slices.ContainsFunc(s.cfg.Allow, func(p string) bool {
		e, pat, ok := strings.Cut(p, ":")
		if !ok || e != string(eco) {
			return false
		}
		dir, deep := strings.CutSuffix(pat, "/*")
		return pat == "*" || pat == name || deep && strings.HasPrefix(name, dir+"/")
	})
}

// belowKnown reports whether a module path lies below one the lockfiles or the operator name:
// looking it up contacts a host that the project depends on anyway.
func (s *Session) belowKnown(name string) bool {
	for i := len(name); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		if s.vouched(Go, name[:i]) {
			return true
		}
	}
	return false
}

// name decides about a package's name, and about its version where the version is sent to an
// upstream. Each decision is on the ledger once.
func (s *Session) name(r route) error {
	key := string(r.eco) + ":" + r.name
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return deny(http.StatusForbidden, ReasonStopped, "this session of the mirror is closed")
	}
	if !s.seen[key] {
		if err := s.newName(r, key); err != nil {
			return err
		}
		s.seen[key] = true
	}
	if r.version == "" || !r.sendsVersion() {
		return nil
	}
	vkey := key + "@" + r.version
	if s.seen[vkey] || s.known[vkey] {
		return nil
	}
	if len(r.version) > maxNewName {
		return deny(http.StatusForbidden, ReasonLong, "a version that no lockfile names may have %d bytes", maxNewName)
	}
	if s.cfg.Canary != nil && s.cfg.Canary(r.eco, r.version) {
		return deny(http.StatusForbidden, ReasonCanary, "the version carries a planted token")
	}
	if s.versions >= s.cfg.Limits.NewVersions {
		return deny(http.StatusForbidden, ReasonVersions, "%d versions that no lockfile names were asked for", s.versions)
	}
	if err := s.report(Entry{Ecosystem: r.eco, Name: r.name, Version: r.version, New: true, Status: http.StatusOK}); err != nil {
		return unrecorded(err)
	}
	s.versions++
	s.seen[vkey] = true
	return nil
}

func (s *Session) newName(r route, key string) error {
	e := Entry{Ecosystem: r.eco, Name: r.name, Status: http.StatusOK}
	if !s.vouched(r.eco, r.name) && !r.signedIndex {
		e.New = true
		switch {
		case s.cfg.Limits.NewNames < 0:
			return deny(http.StatusForbidden, ReasonUnknown, "%s is in no lockfile of the base and not on the operator's list", r.name)
		case len(r.name) > maxNewName:
			return deny(http.StatusForbidden, ReasonLong, "a name that no lockfile has may have %d bytes", maxNewName)
		case s.cfg.Canary != nil && s.cfg.Canary(r.eco, r.name):
			return deny(http.StatusForbidden, ReasonCanary, "the name carries a planted token")
		case r.eco == Go && !s.belowKnown(r.name):
			return deny(http.StatusForbidden, ReasonForeign, "%s lies below no module of the base's go.sum and none on the operator's list", r.name)
		case s.similar(r.eco, r.name) != "":
			return deny(http.StatusForbidden, ReasonSimilar, "%s is in no lockfile and one letter away from %s, which is", r.name, s.similar(r.eco, r.name))
		case s.names >= s.cfg.Limits.NewNames:
			return deny(http.StatusForbidden, ReasonBudget, "the %d new names of this task are used up", s.cfg.Limits.NewNames)
		}
	}
	if err := s.report(e); err != nil {
		return unrecorded(err)
	}
	if e.New {
		s.names++
	}
	return nil
}

// fetching takes one upstream request from the budget.
func (s *Session) fetching() error {
	if s.cfg.Offline {
		return deny(http.StatusForbidden, ReasonOffline, "this task is offline, and the mirror does not have it")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fetches >= s.cfg.Limits.Fetches {
		return deny(http.StatusForbidden, ReasonFetches, "the %d upstream requests of this task are used up", s.cfg.Limits.Fetches)
	}
	s.fetches++
	return nil
}

const (
	firstTiles = 64 // tiles of the checksum database that a session may ask for
	moreTiles  = 8  // for each version that it put on the ledger
)

// tile takes one tile of the checksum database. A tile has a number and no name: without a bound
// of its own it would carry what no ledger shows.
func (s *Session) tile() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tiles >= firstTiles+moreTiles*s.versions {
		return deny(http.StatusForbidden, ReasonFetches, "%d tiles of the checksum database are more than its lookups need", s.tiles)
	}
	s.tiles++
	return nil
}

// refused records a refusal, and closes the session when there were too many: a program that
// is refused hundreds of times is no package manager.
func (s *Session) refused(r route, ref *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ref.reason == ReasonStopped && s.refusals > s.cfg.Limits.Refusals {
		return // said once, below
	}
	s.refusals++
	if ref.reason == ReasonCanary { // the record, which a pull request quotes, must not carry it either
		r.name, r.version = "", ""
	}
	// What is refused does not happen, recorded or not.
	_ = s.report(Entry{Ecosystem: r.eco, Name: clip(r.name), Version: clip(r.version), Refused: ref.reason, Status: ref.status, Detail: clip(ref.Error())})
	if s.refusals >= s.cfg.Limits.Refusals && !s.stopped {
		s.stopped = true
		s.refusals = s.cfg.Limits.Refusals + 1
		_ = s.report(Entry{Refused: ReasonStopped, Status: http.StatusForbidden, Detail: "too many refusals: the session is closed"})
	}
}

func (s *Session) report(e Entry) error {
	e.Time, e.Task = s.cfg.Now().UTC(), s.cfg.Task
	return s.cfg.Ledger(e)
}
