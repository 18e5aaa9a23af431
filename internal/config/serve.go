package config

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Store says where tasks and their logs are kept.
type Store struct {
	Engine  string `yaml:"engine"`   // "sqlite": a file in the data directory; "postgres"
	DSNEnv  string `yaml:"dsn_env"`  // environment variable with the address of the PostgreSQL database
	DSNFile string `yaml:"dsn_file"` // or the file that holds it
}

// Serve is the service: `daybreak serve` and `daybreak worker`.
type Serve struct {
	Listen    string        `yaml:"listen"`  // address of the HTTP listener
	Workers   int           `yaml:"workers"` // tasks worked at once by one process
	Lease     time.Duration `yaml:"lease"`   // how long a worker may be silent before its task is another's
	Caps      Caps          `yaml:"caps"`
	TokenEnv  string        `yaml:"token_env"`  // environment variable with the token that /api asks for
	TokenFile string        `yaml:"token_file"` // or the file that holds it
	Queue     int           `yaml:"queue"`      // most unfinished tasks; beyond them /api refuses new ones
	Repos     []string      `yaml:"repos"`      // globs of repositories that /api may name; empty: any
	Warm      Warm          `yaml:"warm"`

	URL     string        `yaml:"url"`     // what people open, such as https://daybreak.example; empty: the address it listens at
	Hosts   []string      `yaml:"hosts"`   // more names of this server; others are refused
	Session time.Duration `yaml:"session"` // how long a person stays signed in
	Streams Streams       `yaml:"streams"`
	OIDC    *OIDC         `yaml:"oidc"` // the company's identity provider; absent: people sign in by link
}

// Streams are the most live views at once in one process.
type Streams struct {
	Total  int `yaml:"total"`
	Viewer int `yaml:"viewer"` // of one person or token
}

// OIDC is an identity provider that speaks OpenID Connect.
type OIDC struct {
	Name       string            `yaml:"name"`   // for the button
	Issuer     string            `yaml:"issuer"` // its address, exactly as it names itself
	ClientID   string            `yaml:"client_id"`
	SecretEnv  string            `yaml:"client_secret_env"`
	SecretFile string            `yaml:"client_secret_file"`
	Scopes     []string          `yaml:"scopes"`       // beside openid
	Login      string            `yaml:"login_claim"`  // the claim that is a person's account on the forges
	Logins     map[string]string `yaml:"login_claims"` // the claim for one of the forges, by its name, where it is another
	GroupClaim string            `yaml:"group_claim"`
	Operators  string            `yaml:"operators"` // the group whose members operate the installation
	Domains    []string          `yaml:"domains"`   // of verified e-mail addresses that may sign in; empty: all that the provider knows
}

// Caps are the most tasks that run at once; 0 is no cap.
type Caps struct {
	Total      int `yaml:"total"` // by all workers of the store
	Repository int `yaml:"repository"`
	Author     int `yaml:"author"`
}

// The engines of a store.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// MinLease is the shortest lease: below it, a pause of the garbage collector or a slow disk
// would hand tasks around.
const MinLease = time.Second

// MaxWorkers is the most tasks that one process works at once.
const MaxWorkers = 1000

func defaultServe() Serve {
	return Serve{
		Listen: "127.0.0.1:8484", Workers: 2, Lease: 4 * time.Second, Queue: 1000, TokenEnv: "DAYBREAK_TOKEN", Repos: []string{}, Warm: defaultWarm(),
		Hosts: []string{}, Session: 12 * time.Hour, Streams: Streams{Total: 4000, Viewer: 64},
	}
}

func (s Store) check() error {
	switch s.Engine {
	case SQLite:
	case Postgres:
		if s.DSNEnv == "" && s.DSNFile == "" {
			return errors.New("store.engine is postgres; set store.dsn_env or store.dsn_file")
		}
	default:
		return fmt.Errorf("store.engine is %q; use sqlite or postgres", s.Engine)
	}
	return nil
}

func (s Serve) check() error {
	if _, _, err := net.SplitHostPort(s.Listen); err != nil {
		return fmt.Errorf("serve.listen is %q; write an address such as 127.0.0.1:8484", s.Listen)
	}
	if s.Workers < 0 || s.Workers > MaxWorkers {
		return fmt.Errorf("serve.workers is %d; use 0 to %d", s.Workers, MaxWorkers)
	}
	if s.Lease < MinLease {
		return fmt.Errorf("serve.lease is %s; use at least %s", s.Lease, MinLease)
	}
	if s.Caps.Total < 0 || s.Caps.Repository < 0 || s.Caps.Author < 0 {
		return errors.New("serve.caps must not be negative; 0 is no cap")
	}
	if err := s.Warm.check(); err != nil {
		return err
	}
	if s.Queue < 1 {
		return fmt.Errorf("serve.queue is %d; use at least 1", s.Queue)
	}
	for _, g := range s.Repos {
		if _, err := path.Match(g, ""); err != nil {
			return fmt.Errorf("serve.repos: %q is not a glob", g)
		}
	}
	return s.checkAccess()
}

func (s Serve) checkAccess() error {
	if s.URL != "" {
		u, err := url.Parse(s.URL)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.Path != "" || u.RawQuery != "" {
			return fmt.Errorf("serve.url is %q; write what people open, such as https://daybreak.example, without a path", s.URL)
		}
	}
	for _, h := range s.Hosts {
		if h == "" || strings.ContainsAny(h, "/:*") {
			return fmt.Errorf("serve.hosts: %q is not a name such as daybreak.example", h)
		}
	}
	if s.Session < time.Minute {
		return fmt.Errorf("serve.session is %s; use at least 1m", s.Session)
	}
	if s.Streams.Total < 1 || s.Streams.Viewer < 1 {
		return errors.New("serve.streams.total and serve.streams.viewer are at least 1")
	}
	if o := s.OIDC; o != nil && (o.Issuer == "" || o.ClientID == "" || s.URL == "" || o.Operators != "" && o.GroupClaim == "") {
		return errors.New("serve.oidc needs issuer, client_id and serve.url, and group_claim where there are operators")
	}
	return nil
}

// Secret reads what the identity provider knows this program by; "" for a public client.
func (o OIDC) Secret(getenv func(string) string) (string, error) {
	if o.SecretEnv == "" && o.SecretFile == "" {
		return "", nil
	}
	return secret("the secret for the identity provider", o.SecretEnv, o.SecretFile, "serve.oidc.client_secret_file", getenv)
}

// Allows reports whether /api may name the repository.
func (s Serve) Allows(repo string) bool {
	if len(s.Repos) == 0 {
		return true
	}
	for _, g := range s.Repos {
		if ok, _ := path.Match(g, repo); ok {
			return true
		}
	}
	return false
}

// DSN reads the address of the PostgreSQL database.
func (s Store) DSN(getenv func(string) string) (string, error) {
	return secret("the address of the PostgreSQL store", s.DSNEnv, s.DSNFile, "store.dsn_file", getenv)
}

// Token reads the token that /api asks for; "" when none is set.
func (s Serve) Token(getenv func(string) string) (string, error) {
	if s.TokenFile == "" && (s.TokenEnv == "" || getenv(s.TokenEnv) == "") {
		return "", nil
	}
	t, err := secret("the API's token", s.TokenEnv, s.TokenFile, "serve.token_file", getenv)
	if err == nil && len(t) < 16 {
		return "", &task.Error{Class: task.Invalid, Msg: "the API's token is shorter than 16 characters", Fix: "make one with: openssl rand -hex 32"}
	}
	return t, err
}

// secret reads a value that is never in the configuration itself.
func secret(what, env, file, key string, getenv func(string) string) (string, error) {
	if file != "" {
		b, err := os.ReadFile(file)
		if err != nil {
			return "", &task.Error{Class: task.Auth, Msg: "cannot read " + what, Err: err}
		}
		return strings.TrimSpace(string(b)), nil
	}
	v := getenv(env)
	if v == "" {
		return "", &task.Error{Class: task.Auth, Msg: what + " is missing: " + env + " is not set", Fix: "export it, or set " + key}
	}
	return v, nil
}
