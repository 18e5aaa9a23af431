package config

import (
	"errors"
	"fmt"
	"net"
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
	return Serve{Listen: "127.0.0.1:8484", Workers: 2, Lease: 4 * time.Second, Queue: 1000, TokenEnv: "DAYBREAK_TOKEN", Repos: []string{}, Warm: defaultWarm()}
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
	return nil
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
