package mirror

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The tests here run real package managers through the relay, first against the fake, then,
// where this machine's own registries answer, against those.

// tool finds a package manager. On a machine that is meant to have it, lacking it is a failure.
func tool(t *testing.T, name string) string {
	t.Helper()
	p, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is missing: its path through the mirror cannot be tested", name)
		}
		t.Skipf("%s is not installed", name)
	}
	return p
}

// box is where a client runs: a relay, a home, and an environment that points at the mirror.
type box struct {
	t         *testing.T
	s         *sess
	base      string
	home, dir string
	env       []string
}

func (r *rig) box(t *testing.T, edit func(*SessionConfig)) *box {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	base := "http://" + l.Addr().String()
	s := r.session(func(c *SessionConfig) {
		c.Base = base
		if edit != nil {
			edit(c)
		}
	})
	relayOn(t, l, s)
	in := &box{t: t, s: s, base: base, home: t.TempDir(), dir: t.TempDir()}
	cfg := r.m.cfg
	cfg.Debian = nil // apt's settings have places of this machine's own; see aptOptions
	clients := Clients{Base: base, Home: in.home, Config: &cfg}
	in.env = append(clients.Env(), "PATH="+os.Getenv("PATH"), "HOME="+in.home, "GOPATH="+in.home+"/go", "GOFLAGS=-modcacherw -mod=mod", "GOTOOLCHAIN=local",
		"GOCACHE="+in.home+"/gocache", "npm_config_cache="+in.home+"/npm", "npm_config_loglevel=error", "PIP_CONFIG_FILE="+os.DevNull, "PIP_NO_CACHE_DIR=1", "CARGO_HOME="+in.home+"/.cargo")
	// The go command leaves a process of its own behind, which would still write while the folder
	// is removed.
	in.write(in.home+"/.config/go/telemetry/mode", "off")
	for name, text := range clients.Files() {
		in.write(name, string(text))
	}
	return in
}

func (in *box) write(name, text string) {
	in.t.Helper()
	if !filepath.IsAbs(name) {
		name = filepath.Join(in.dir, name)
	}
	check(in.t, os.MkdirAll(filepath.Dir(name), 0o755))
	check(in.t, os.WriteFile(name, []byte(text), 0o644))
}

func (in *box) try(env []string, name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(in.t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = in.dir, append(in.env, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (in *box) run(env []string, name string, args ...string) string {
	in.t.Helper()
	out, err := in.try(env, name, args...)
	if err != nil {
		in.t.Fatalf("%s %s: %v\n%s\nledger: %+v", name, strings.Join(args, " "), err, out, in.s.ledger())
	}
	return out
}

func (in *box) has(name string) {
	in.t.Helper()
	found, err := filepath.Glob(filepath.Join(in.dir, name))
	check(in.t, err)
	if len(found) == 0 {
		in.t.Errorf("%s did not arrive", name)
	}
}

func TestClientGo(t *testing.T) {
	t.Parallel()
	tool(t, "go")
	r := newRig(t, nil)
	in := r.box(t, nil)
	in.write("go.mod", "module m\n\ngo 1.21\n\nrequire example.com/team/lib v1.0.0\n")
	in.write("m.go", "package main\n\nimport \"example.com/team/lib\"\n\nfunc main() { println(lib.Answer) }\n")
	if out := in.run(nil, "go", "run", "."); !strings.Contains(out, "42") {
		t.Errorf("go run: %s", out)
	}
	// with every check of its own switched off, the client still gets nothing forged (NET-17)
	r2 := newRig(t, nil)
	r2.up.put("/go/example.com/team/lib/@v/v1.0.0.zip", "", goZip1(t)[1:])
	in2 := r2.box(t, nil)
	in2.write("go.mod", "module m\n\ngo 1.21\n\nrequire example.com/team/lib v1.0.0\n")
	out, err := in2.try([]string{"GOSUMDB=off", "GONOSUMDB=*", "GOINSECURE=*"}, "go", "mod", "download", "example.com/team/lib@v1.0.0")
	if err == nil || count(in2.s.ledger(), ReasonDigest) == 0 {
		t.Errorf("a forged module was taken: %s", out)
	}
}

func TestClientNPM(t *testing.T) {
	t.Parallel()
	tool(t, "npm")
	r := newRig(t, nil)
	in := r.box(t, nil)
	in.write("package.json", `{"name":"m","version":"1.0.0"}`)
	in.run(nil, "npm", "install", "@team/lib")
	in.has("node_modules/@team/lib/i.js")
	// a lockfile written elsewhere names another registry; the mirror is used all the same
	lock, err := os.ReadFile(filepath.Join(in.dir, "package-lock.json"))
	check(t, err)
	in.write("package-lock.json", strings.ReplaceAll(string(lock), in.base+"/npm/", "https://registry.example/"))
	check(t, os.RemoveAll(filepath.Join(in.dir, "node_modules")))
	check(t, os.RemoveAll(in.home+"/npm"))
	in.run(nil, "npm", "ci")
	in.has("node_modules/@team/lib/i.js")
	for _, args := range [][]string{{"publish"}, {"search", "x"}, {"whoami"}, {"audit"}} {
		if out, err := in.try(nil, "npm", args...); err == nil && args[0] != "search" {
			t.Errorf("npm %v went through: %s", args, out)
		}
	}
	for _, req := range r.up.requests() {
		if req.Method != "GET" || !strings.HasPrefix(req.URL.Path, "/npm/@team/lib") {
			t.Errorf("upstream: %s %s", req.Method, req.URL)
		}
	}
}

func TestClientPip(t *testing.T) {
	t.Parallel()
	tool(t, "python3")
	r := newRig(t, nil)
	in := r.box(t, nil)
	in.run(nil, "python3", "-m", "pip", "install", "--quiet", "--no-deps", "--target", "site", "team-lib")
	in.has("site/team_lib.py")
	if out, err := in.try(nil, "python3", "-m", "pip", "install", "--quiet", "absent-thing"); err == nil {
		t.Errorf("absent-thing: %s", out)
	}
	old := newRig(t, nil) // a registry that knows only pages
	old.up.put("/simple/team-lib/", "text/html", old.up.files["/simple/old-lib/"].body)
	page := old.box(t, nil)
	page.run(nil, "python3", "-m", "pip", "install", "--quiet", "--no-deps", "--target", "site", "team-lib==1.0") // it is yanked: only by version
	page.has("site/team_lib.py")
}

func TestClientCargo(t *testing.T) {
	t.Parallel()
	tool(t, "cargo")
	r := newRig(t, nil)
	in := r.box(t, nil)
	rustup := os.Getenv("RUSTUP_HOME")
	if home, err := os.UserHomeDir(); err == nil && rustup == "" {
		rustup = filepath.Join(home, ".rustup")
	}
	env := []string{"RUSTUP_HOME=" + rustup}
	if out, err := in.try(env, "cargo", "--version"); err != nil {
		t.Skipf("cargo does not start: %s", out)
	}
	in.write("Cargo.toml", "[package]\nname = \"m\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\n[dependencies]\nteamlib = \"1\"\n")
	in.write("src/main.rs", "fn main() { println!(\"{}\", teamlib::ANSWER) }\n")
	in.run(env, "cargo", "fetch")
	if found, _ := filepath.Glob(in.home + "/.cargo/registry/cache/*/teamlib-1.0.0.crate"); len(found) != 1 {
		t.Error("the crate did not arrive")
	}
}

// TestClientMaven resolves a parent project, which needs no plugin.
func TestClientMaven(t *testing.T) {
	t.Parallel()
	tool(t, "mvn")
	r := newRig(t, nil)
	in := r.box(t, nil)
	in.write("pom.xml", `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><parent><groupId>com.team</groupId><artifactId>lib</artifactId><version>1.0</version><relativePath/></parent><artifactId>m</artifactId><packaging>pom</packaging></project>`)
	in.run([]string{"MAVEN_OPTS=-Xshare:auto -Duser.home=" + in.home, "JAVA_TOOL_OPTIONS="}, "mvn", "-q", "-B", "-s", in.home+"/.m2/settings.xml", "validate")
	if _, err := os.Stat(in.home + "/.m2/repository/com/team/lib/1.0/lib-1.0.pom"); err != nil {
		t.Error(err)
	}
}

// aptOptions keep apt away from this machine's own state.
func (in *box) aptOptions(archives []Archive) []string {
	in.t.Helper()
	in.write("etc/sources.sources", AptSources(in.base, archives))
	in.write("etc/apt.conf", aptConf)
	for _, d := range []string{"state/lists/partial", "cache/archives/partial", "etc/empty"} {
		check(in.t, os.MkdirAll(filepath.Join(in.dir, d), 0o755))
	}
	check(in.t, os.WriteFile(filepath.Join(in.dir, "state/status"), nil, 0o644))
	in.env = append(in.env, "APT_CONFIG="+filepath.Join(in.dir, "etc/apt.conf"))
	var out []string
	for k, v := range map[string]string{
		"Dir::Etc::SourceList": in.dir + "/etc/sources.sources", "Dir::Etc::SourceParts": in.dir + "/etc/empty", "Dir::State": in.dir + "/state", "Dir::State::status": in.dir + "/state/status",
		"Dir::Cache": in.dir + "/cache", "APT::Sandbox::User": "root", "APT::Architecture": "amd64", "APT::Architectures": "amd64",
	} {
		out = append(out, "-o", k+"="+v)
	}
	return out
}

func TestClientApt(t *testing.T) {
	t.Parallel()
	tool(t, "apt-get")
	tool(t, "gpgv")
	r := newRig(t, func(c *Config) { c.Debian[0].IgnoreValidUntil = true })
	in := r.box(t, nil)
	a := r.m.archives["debian"].Archive
	a.KeyringPath = filepath.Join(in.dir, "keys.gpg")
	var keys bytes.Buffer
	check(t, a.Keyring[0].Serialize(&keys))
	check(t, os.WriteFile(a.KeyringPath, keys.Bytes(), 0o644))
	opts := in.aptOptions([]Archive{a})
	in.run(nil, "apt-get", append(opts, "update")...)
	in.run(nil, "apt-get", append(opts, "download", "teamlib")...)
	in.has("teamlib_1.0-1_all.deb")
	for _, e := range in.s.ledger() {
		if e.Refused != "" {
			t.Errorf("apt was refused: %+v", e)
		}
	}
}

// realRig is a mirror before this machine's own registries.
func realRig(t *testing.T, pick func(Config) bool) *rig {
	t.Helper()
	if os.Getenv("DAYBREAK_REAL_REGISTRIES") == "" {
		t.Skip("sends traffic to the registries this machine is configured with; set DAYBREAK_REAL_REGISTRIES=1 to run it")
	}
	home, err := os.UserHomeDir()
	check(t, err)
	cfg := Config{Dir: t.TempDir(), Now: time.Now, Log: slog.New(slog.DiscardHandler)}
	NewHost(home).Upstreams(t.Context(), &cfg)
	if !pick(cfg) {
		t.Skip("this machine has no registry of this kind configured")
	}
	m, err := New(cfg)
	check(t, err)
	t.Cleanup(m.Close)
	return &rig{t: t, m: m, clock: &clock{t: time.Now()}, dir: t.TempDir()}
}

// reach skips when a registry does not answer: that is the machine's network, not the mirror.
func reach(t *testing.T, m *Mirror, u *Upstream, rel string) {
	t.Helper()
	_, _, err := m.net.fetch(t.Context(), u, join(u.URL, rel), "*/*", 64<<20, new(bytes.Buffer))
	if err != nil && !errors.Is(err, errNotFound) {
		t.Skipf("the registry this machine is configured with does not answer: %v", err)
	}
}

func TestRealGo(t *testing.T) {
	t.Parallel()
	tool(t, "go")
	r := realRig(t, func(c Config) bool { return c.Go != nil && c.Go.Sum != nil })
	reach(t, r.m, &r.m.cfg.Go.Upstream, "golang.org/x/sync/@v/list")
	in := r.box(t, func(c *SessionConfig) {
		c.Known = map[Ecosystem][]string{Go: {"golang.org/x/sync"}}
		c.Allow = nil
	})
	in.write("go.mod", "module m\n\ngo 1.21\n\nrequire golang.org/x/sync v0.10.0\n")
	for _, round := range []string{"cold", "warm"} {
		begun := time.Now()
		in.run(nil, "go", "mod", "download", "-x", "golang.org/x/sync")
		t.Logf("%s: %v", round, time.Since(begun))
		if _, err := os.Stat(in.home + "/go/pkg/mod/golang.org/x/sync@v0.10.0/LICENSE"); err != nil {
			t.Error(err)
		}
		check(t, os.RemoveAll(in.home+"/go"))
	}
	out, err := in.try(nil, "go", "mod", "download", "evil.example/x@v1.0.0")
	if err == nil || count(in.s.ledger(), ReasonForeign) == 0 {
		t.Errorf("a foreign module: %s", out)
	}
}

func TestRealNPM(t *testing.T) {
	t.Parallel()
	tool(t, "npm")
	r := realRig(t, func(c Config) bool { return c.NPM != nil })
	reach(t, r.m, r.m.cfg.NPM, "is-odd")
	in := r.box(t, func(c *SessionConfig) { c.Allow = nil })
	in.write("package.json", `{"name":"m","version":"1.0.0"}`)
	in.run(nil, "npm", "install", "is-odd@3.0.1")
	in.has("node_modules/is-number/index.js")
	check(t, os.RemoveAll(in.home+"/npm"))
	begun := time.Now()
	in.run(nil, "npm", "ci")
	t.Logf("npm ci, warm: %v", time.Since(begun))
	if led := in.s.ledger(); len(led) != 2 || !led[0].New {
		t.Errorf("ledger %+v", led)
	}
}

func TestRealApt(t *testing.T) {
	t.Parallel()
	tool(t, "apt-get")
	r := realRig(t, func(c Config) bool { return len(c.Debian) > 0 })
	a := r.m.cfg.Debian[0]
	for _, c := range r.m.cfg.Debian {
		if c.ID == "debian" {
			a = c
		}
	}
	reach(t, r.m, &a.Upstream, "dists/"+a.Suites[0]+"/InRelease")
	in := r.box(t, func(c *SessionConfig) { c.Allow = nil; c.Limits.NewNames = -1 })
	opts := in.aptOptions([]Archive{a})
	in.run(nil, "apt-get", append(opts, "update")...)
	in.run(nil, "apt-get", append(opts, "download", "hello")...)
	in.has("hello_*.deb")
}

// TestRealWarm says how long a client takes through a warm mirror, with indexes and objects from
// the disk, and how long directly. It holds nothing to that: machines and networks differ.
func TestRealWarm(t *testing.T) {
	tool(t, "go")
	r := realRig(t, func(c Config) bool { return c.Go != nil && c.Go.Sum != nil && c.NPM != nil })
	reach(t, r.m, &r.m.cfg.Go.Upstream, "golang.org/x/sync/@v/list")
	direct := func(in *box) []string {
		return []string{
			"GOPROXY=" + r.m.cfg.Go.URL, "GOSUMDB=" + r.m.cfg.Go.Sum.Key,
			"npm_config_registry=" + r.m.cfg.NPM.URL, "npm_config_replace_registry_host=npmjs",
		}
	}
	for _, round := range []string{"cold", "warm", "direct", "warm, after a restart", "direct again"} {
		if round == "warm, after a restart" {
			r.m.Close()
			m, err := New(r.m.cfg)
			check(t, err)
			t.Cleanup(m.Close)
			r.m = m
		}
		in := r.box(t, func(c *SessionConfig) { c.Limits.NewNames = 500 })
		var env []string
		if strings.HasPrefix(round, "direct") {
			env = direct(in)
		}
		in.write("go.mod", "module m\n\ngo 1.21\n\nrequire (\n\tgolang.org/x/tools v0.32.0\n\tgolang.org/x/text v0.24.0\n\tgolang.org/x/net v0.39.0\n\tgolang.org/x/crypto v0.37.0\n)\n")
		begun := time.Now()
		in.run(env, "go", "mod", "download")
		module := time.Since(begun)
		in.write("package.json", `{"name":"m","version":"1.0.0","dependencies":{"express":"4.21.2","lodash":"4.17.21"}}`)
		in.run(env, "npm", "install", "--package-lock-only")
		check(t, os.RemoveAll(in.home+"/npm"))
		begun = time.Now()
		in.run(env, "npm", "ci")
		t.Logf("%-24s go mod download %6.2fs, npm ci %6.2fs", round, module.Seconds(), time.Since(begun).Seconds())
	}
}
