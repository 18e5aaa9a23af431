// Package config owns the two configuration files: the operator's, and the repository's
// `.daybreak.yaml`.
//
// Invariants: decoding is strict, an unknown key is an error that names it; a secret is never
// in a file, only the name of the environment variable or the file that holds it; a
// repository's file can add tests and protected paths but never raise a limit.
package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config is the operator's file. Its zero value with [Default] applied is a working set-up
// that lacks only a model.
type Config struct {
	Model     string              `yaml:"model"` // "provider/model"
	Providers map[string]Provider `yaml:"providers"`
	Budget    Budget              `yaml:"budget"`
	Most      Budget              `yaml:"budget_most"` // to which people may raise a task's budget; 0: not at all
	Attempts  int                 `yaml:"attempts"`    // independent ones at an issue, within its budget
	Reply     Reply               `yaml:"reply"`
	Sandbox   Sandbox             `yaml:"sandbox"`
	Network   string              `yaml:"network"` // "registries" or "offline"; a repository can only narrow it
	Mirror    Mirror              `yaml:"mirror"`
	Questions Questions           `yaml:"questions"`
	Rebase    string              `yaml:"rebase"`  // "verify", "say" or "off": when the target branch moved before the publication
	Publish   string              `yaml:"publish"` // "at_once", or "hold": a person approves first; a repository can only hold
	Author    Author              `yaml:"author"`
	Store     Store               `yaml:"store"`
	Serve     Serve               `yaml:"serve"`
	Server    string              `yaml:"server"` // address of a service that the command line speaks to instead of its own store
	Cache     Cache               `yaml:"cache"`
	Forges    map[string]Forge    `yaml:"forges"` // by a name of the operator's choice
	Intake    Intake              `yaml:"intake"`
	Telemetry Telemetry           `yaml:"telemetry"`
	Notify    Notify              `yaml:"notify"`
	Protected []string            `yaml:"protected"` // globs of paths held for a person, beside the built-in ones
	Redact    []string            `yaml:"redact"`    // names of environment variables whose values are masked everywhere
}

// Questions are what the agent may ask people, where the service runs: nobody answers a
// `daybreak run`.
type Questions struct {
	Most int           `yaml:"most"` // a task; 0: none
	Wait time.Duration `yaml:"wait"` // for an answer; then the task is declined
}

// When a verified change is published.
const (
	AtOnce = "at_once"
	Hold   = "hold" // after a person's approval

	RebaseVerify = "verify" // put the change on the target's tip and verify it again there
	RebaseSay    = "say"    // say in the pull request that it moved, and what conflicts
	RebaseOff    = "off"    // do not look
)

// Provider is one model service.
type Provider struct {
	API       string        `yaml:"api"`      // "anthropic", "openai" (Responses) or "openai-chat" (Chat Completions)
	BaseURL   string        `yaml:"base_url"` // empty: the vendor's own
	KeyEnv    string        `yaml:"key_env"`
	KeyFile   string        `yaml:"key_file"`
	Context   int           `yaml:"context"`    // tokens; 0: from the catalogue
	MaxOutput int           `yaml:"max_output"` // tokens; 0: from the catalogue
	Price     *Price        `yaml:"price"`      // absent: from the catalogue
	Idle      time.Duration `yaml:"idle_timeout"`
}

// Price is in US dollars per million tokens.
type Price struct {
	Input      float64 `yaml:"input"`
	Output     float64 `yaml:"output"`
	CacheRead  float64 `yaml:"cache_read"`
	CacheWrite float64 `yaml:"cache_write"`
}

// Budget is the default budget of a task. 0 means no limit of that kind.
type Budget struct {
	Steps      int           `yaml:"steps"`
	Tokens     int64         `yaml:"tokens"`
	Input      int64         `yaml:"input"`
	Output     int64         `yaml:"output"`
	CacheRead  int64         `yaml:"cache_read"`
	CacheWrite int64         `yaml:"cache_write"`
	USD        float64       `yaml:"usd"`
	Wall       time.Duration `yaml:"wall"`
}

// Limits converts to the task's form.
func (b Budget) Limits() task.Limits {
	return task.Limits{
		Steps: b.Steps, Tokens: b.Tokens, Wall: b.Wall,
		Class: task.Tokens{Input: b.Input, Output: b.Output, CacheRead: b.CacheRead, CacheWrite: b.CacheWrite},
		Cost:  task.MicroUSD(math.Round(b.USD * 1e6)),
	}
}

// Check refuses a budget that would limit nothing: none at all, or one that is negative or no
// number, which a comparison never reaches.
func (b Budget) Check() error {
	if b == (Budget{}) {
		return errors.New("every budget is 0; a task needs at least one limit")
	}
	for _, n := range []int64{int64(b.Steps), b.Tokens, b.Input, b.Output, b.CacheRead, b.CacheWrite, int64(b.Wall)} {
		if n < 0 {
			return errors.New("a budget is negative")
		}
	}
	if !(b.USD >= 0 && b.USD <= 1e9) {
		return fmt.Errorf("a budget of %v dollars is not between 0 and 1,000,000,000", b.USD)
	}
	return nil
}

// CheckAttempts refuses a number of independent attempts that is no use, or costs too much.
func CheckAttempts(n int) error {
	if n < 1 || n > 8 {
		return fmt.Errorf("attempts is %d; use 1 to 8", n)
	}
	return nil
}

// Reply bounds one model reply.
type Reply struct {
	MaxOutput int `yaml:"max_output"` // tokens
	Thinking  int `yaml:"thinking"`   // tokens, 0: off
}

// Sandbox is the operator's sandbox.
type Sandbox struct {
	Runtime     string   `yaml:"runtime"`      // runc or runsc
	RuntimePath string   `yaml:"runtime_path"` // empty: a program of that name beside the binary, in .tools/bin, or on PATH
	GuestPath   string   `yaml:"guest_path"`   // empty: `daybreak-guest` beside the binary
	Memory      Size     `yaml:"memory"`
	CPUs        float64  `yaml:"cpus"`
	Pids        int64    `yaml:"pids"`
	WorkSize    Size     `yaml:"work_size"`
	HomeSize    Size     `yaml:"home_size"`
	TmpSize     Size     `yaml:"tmp_size"`
	Mounts      []Mount  `yaml:"mounts"`
	Env         []string `yaml:"env"` // KEY=VALUE for every command

	Setup        string        `yaml:"setup"`         // detect, or named: only what a repository's own file names is run
	SetupTimeout time.Duration `yaml:"setup_timeout"` // of preparing dependencies
}

// Mount is a read-only directory for every sandbox, such as a module cache.
type Mount struct {
	Source string `yaml:"source"`
	Target string `yaml:"target"`
}

// Author signs the commits.
type Author struct {
	Name  string `yaml:"name"`
	Email string `yaml:"email"`
}

// Size is a number of bytes, written as "4GiB", "512MB" or a plain number.
type Size int64

// UnmarshalYAML implements yaml.BytesUnmarshaler.
func (s *Size) UnmarshalYAML(b []byte) error {
	text := strings.Trim(strings.TrimSpace(string(b)), `"'`)
	n, ok := bytesOf(text)
	if !ok {
		return &notSizeError{text}
	}
	*s = Size(n)
	return nil
}

// bytesOf reads a number with a unit: of 1000 (kB, MB, GB, TB) or of 1024 (KiB, MiB, GiB, TiB).
func bytesOf(text string) (n int64, ok bool) {
	digits := strings.TrimRight(strings.ToLower(text), " abgikmt")
	unit := strings.TrimSuffix(strings.TrimSpace(strings.ToLower(text[len(digits):])), "b")
	base := 1000.0
	if strings.HasSuffix(unit, "i") {
		unit, base = unit[:len(unit)-1], 1024
	}
	power := strings.Index("kmgt", unit) + 1
	if unit == "" {
		power = 0
	} else if len(unit) != 1 || power == 0 {
		return 0, false
	}
	f, err := strconv.ParseFloat(digits, 64)
	f *= math.Pow(base, float64(power))
	if err != nil || !(f >= 0 && f < math.MaxInt64) {
		return 0, false
	}
	return int64(f), true
}

// Default returns the settings used where the file says nothing.
func Default() Config {
	return Config{
		Providers: map[string]Provider{
			"anthropic": {API: "anthropic", KeyEnv: "ANTHROPIC_API_KEY"},
			"openai":    {API: "openai", KeyEnv: "OPENAI_API_KEY"},
		},
		Budget:   Budget{Steps: 120, Tokens: 8_000_000, USD: 10, Wall: time.Hour},
		Most:     Budget{Steps: 480, Tokens: 32_000_000, USD: 40, Wall: 4 * time.Hour},
		Attempts: 1,
		Reply:    Reply{MaxOutput: 16_000},
		Sandbox: Sandbox{
			Runtime: "runc", Memory: 4 << 30, CPUs: 2, Pids: 1024, WorkSize: 2 << 30, HomeSize: 2 << 30, TmpSize: 1 << 30,
			Setup: "detect", SetupTimeout: 20 * time.Minute,
		},
		Network: "registries",
		Publish: AtOnce, Rebase: RebaseVerify, Questions: Questions{Most: 2, Wait: 7 * 24 * time.Hour},
		Mirror: Mirror{StoreSize: 10 << 30, Limits: MirrorLimits{NewNames: 20, NewVersions: 200, Fetches: 5000, Refusals: 500, Connections: 64, PerSecond: 2000}},
		Author: Author{Name: "Daybreak", Email: "daybreak@localhost"},
		Store:  Store{Engine: SQLite},
		Serve:  defaultServe(),
		Cache:  defaultCache(),
		Forges: map[string]Forge{},
		Intake: defaultIntake(),
		Notify: Notify{On: NotifyAbout()},
	}
}

// Load reads the operator's file over the defaults. An empty path gives the defaults; a path
// that does not exist is an error.
func Load(path string) (Config, error) {
	c := Default()
	if path == "" {
		return c, nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return c, &task.Error{Class: task.Invalid, Msg: "cannot read the configuration", Err: err}
	}
	if err := decode(b, &c); err != nil {
		return c, &task.Error{Class: task.Invalid, Msg: "configuration " + path, Err: err}
	}
	builtin := Default().Providers
	for name, p := range c.Providers { // a file that sets one key of a built-in provider keeps the others
		if b, ok := builtin[name]; ok {
			if p.API == "" {
				p.API = b.API
			}
			if p.KeyEnv == "" && p.KeyFile == "" {
				p.KeyEnv = b.KeyEnv
			}
			c.Providers[name] = p
		}
	}
	for name, p := range builtin {
		if _, ok := c.Providers[name]; !ok {
			c.Providers[name] = p
		}
	}
	return c, c.check(path)
}

func decode(b []byte, into any) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	dec := yaml.NewDecoder(bytes.NewReader(b), yaml.Strict())
	if err := dec.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		if said := unknown(err, into); said != nil {
			return said
		}
		if said := misread(err, b); said != nil {
			return said
		}
		return errors.New(oneLine(yaml.FormatError(err, false, false)))
	}
	return nil
}

func oneLine(s string) string {
	return strings.Join(strings.Fields(s), " ")
}

func (c Config) check(path string) error {
	bad := func(format string, a ...any) error {
		return &task.Error{Class: task.Invalid, Msg: "configuration " + path + ": " + fmt.Sprintf(format, a...)}
	}
	for name, p := range c.Providers {
		switch p.API {
		case "anthropic", "openai", "openai-chat":
		default:
			return bad("providers.%s.api is %q; use anthropic, openai or openai-chat", name, p.API)
		}
	}
	if c.Model != "" {
		if _, _, err := c.SplitModel(c.Model); err != nil {
			return bad("%v", err)
		}
	}
	if err := c.Budget.Check(); err != nil {
		return bad("%v", err)
	}
	if c.Most != (Budget{}) { // of nothing at all, nothing can be raised
		if err := c.Most.Check(); err != nil {
			return bad("budget_most: %v", err)
		}
	}
	if err := CheckAttempts(c.Attempts); err != nil {
		return bad("%v", err)
	}
	if err := c.checkNetwork(); err != nil {
		return bad("%v", err)
	}
	if err := errors.Join(checkForges(c.Forges), c.Intake.check()); err != nil {
		return bad("%v", err)
	}
	if c.Questions.Most < 0 || c.Questions.Most > 20 || c.Questions.Wait < time.Minute {
		return bad("questions: most is 0 to 20, and wait at least 1m")
	}
	if c.Rebase != RebaseVerify && c.Rebase != RebaseSay && c.Rebase != RebaseOff {
		return bad("rebase is %q; use verify, say or off", c.Rebase)
	}
	if c.Publish != AtOnce && c.Publish != Hold {
		return bad("publish is %q; use at_once or hold", c.Publish)
	}
	if c.Sandbox.Setup != "detect" && c.Sandbox.Setup != "named" {
		return bad("sandbox.setup is %q; use detect or named", c.Sandbox.Setup)
	}
	if c.Sandbox.SetupTimeout < 0 {
		return bad("sandbox.setup_timeout is negative")
	}
	if err := errors.Join(c.Store.check(), c.Serve.check(), c.Telemetry.check(), c.Notify.check(), c.Cache.check()); err != nil {
		return bad("%s", oneLine(err.Error()))
	}
	for _, m := range c.Sandbox.Mounts {
		if !filepath.IsAbs(m.Source) || !filepath.IsAbs(m.Target) {
			return bad("sandbox.mounts: %q → %q must both be absolute paths", m.Source, m.Target)
		}
	}
	if rt := c.Sandbox.Runtime; rt != "runc" && rt != "runsc" {
		return bad("sandbox.runtime: %q is neither runc nor runsc", rt)
	}
	for _, e := range c.Sandbox.Env {
		if k, _, ok := strings.Cut(e, "="); !ok || k == "" {
			return bad("sandbox.env: %q is not KEY=VALUE", e)
		}
	}
	return nil
}

// SplitModel takes "provider/model" apart and finds the provider.
func (c Config) SplitModel(name string) (Provider, string, error) {
	provider, model, ok := strings.Cut(name, "/")
	if !ok || model == "" {
		return Provider{}, "", fmt.Errorf("model %q is not of the form provider/model, for example anthropic/claude-sonnet-4-5", name)
	}
	p, ok := c.Providers[provider]
	if !ok {
		return Provider{}, "", fmt.Errorf("model %q names the provider %q, which is not configured under providers", name, provider)
	}
	return p, model, nil
}

// Key reads the provider's secret. An empty string is returned when neither a variable nor a
// file is named: some local servers need none.
func (p Provider) Key(getenv func(string) string) (string, error) {
	if p.KeyFile != "" {
		b, err := os.ReadFile(p.KeyFile)
		if err != nil {
			return "", &task.Error{Class: task.Auth, Msg: "cannot read the model key", Err: err}
		}
		return strings.TrimSpace(string(b)), nil
	}
	if p.KeyEnv == "" {
		return "", nil
	}
	k := getenv(p.KeyEnv)
	if k == "" {
		return "", &task.Error{Class: task.Auth, Msg: "no model key: " + p.KeyEnv + " is not set", Fix: "export " + p.KeyEnv + "=… or set providers.<name>.key_file"}
	}
	return k, nil
}

// Digest identifies the settings that bind a task; it is stored in the task's first event.
func (c Config) Digest() string {
	b, _ := json.Marshal(c)
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// Repo is a repository's own `.daybreak.yaml`, read from the base commit. All keys are
// optional.
type Repo struct {
	Build     string        `yaml:"build"`      // must succeed on the base
	Test      string        `yaml:"test"`       // runs the whole suite
	TestOne   string        `yaml:"test_one"`   // runs some tests; {tests} is replaced by their quoted ids
	Format    string        `yaml:"format"`     // how results are read: go, junit, tap, jest, mocha
	Report    []string      `yaml:"report"`     // globs of result files
	TestGlobs []string      `yaml:"test_globs"` // paths that are tests
	Timeout   time.Duration `yaml:"timeout"`    // of one run of the suite
	Protected []string      `yaml:"protected"`  // more paths to hold for a person

	// Setup replaces the detection of how dependencies are installed; an empty list installs none.
	Setup        []SetupStep   `yaml:"setup"`
	SetupTimeout time.Duration `yaml:"setup_timeout"` // of all of it; only ever less than the operator's
	Network      string        `yaml:"network"`       // "offline": no package registry but for preparing
	Publish      string        `yaml:"publish"`       // "hold": a person approves a change before it is published
}

// SetupStep is one command that prepares the repository. In the file it is a string, or a map
// with the keys run, root or files.
type SetupStep struct {
	Run string
	// Root runs it as root of its sandbox, before every step that is not: for the packages of the
	// system.
	Root bool
	// Files are paths and globs on which the result depends. Without them it is made again for
	// every commit.
	Files []string
}

// UnmarshalYAML implements yaml.InterfaceUnmarshaler.
func (s *SetupStep) UnmarshalYAML(decode func(any) error) error {
	var line string
	if err := decode(&line); err == nil {
		s.Run = line
		return nil
	}
	var m struct {
		Run   string   `yaml:"run"`
		Root  any      `yaml:"root"`
		Files []string `yaml:"files"`
	}
	if err := decode(&m); err != nil {
		return fmt.Errorf("a setup step is a command, or a map with run, root and files: %w", err)
	}
	s.Run, s.Files = m.Run, m.Files
	switch r := m.Root.(type) {
	case nil:
	case bool:
		s.Root = r
	case string: // "root: apt-get install …" is the short form
		if m.Run != "" {
			return errors.New("a setup step has a command under run and another under root")
		}
		s.Run, s.Root = r, true
	default:
		return errors.New("root of a setup step is true or a command")
	}
	return nil
}

// Caps on the setup list of a repository.
const (
	maxSetupSteps   = 50
	maxSetupCommand = 8 << 10 // bytes
)

func (r Repo) checkSetup() error {
	if len(r.Setup) > maxSetupSteps {
		return fmt.Errorf("setup has %d steps, at most %d are run", len(r.Setup), maxSetupSteps)
	}
	for i, s := range r.Setup {
		if strings.TrimSpace(s.Run) == "" || len(s.Run) > maxSetupCommand || strings.ContainsRune(s.Run, 0) {
			return fmt.Errorf("step %d of setup is empty, too long or no text", i+1)
		}
	}
	if r.SetupTimeout < 0 {
		return errors.New("setup_timeout is negative")
	}
	return nil
}

// RepoFile is its path.
const RepoFile = ".daybreak.yaml"

// ParseRepo decodes it. The content comes from the repository and is not trusted beyond what
// the fields can express.
func ParseRepo(b []byte) (Repo, error) {
	var r Repo
	if len(b) > 64<<10 {
		return r, &task.Error{Class: task.Invalid, Msg: RepoFile + " is larger than 64 KiB"}
	}
	if err := decode(b, &r); err != nil {
		return r, &task.Error{Class: task.Invalid, Msg: RepoFile, Err: err, Fix: "correct it on the default branch"}
	}
	switch r.Format {
	case "", "go", "junit", "tap", "jest", "vitest", "mocha", "unittest", "cargo", "trx", "rspec", "bazel":
	default:
		return r, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s: format %q is not one of go, junit, tap, jest, vitest, mocha, unittest, cargo, trx, rspec, bazel", RepoFile, r.Format)}
	}
	if r.Network != "" && r.Network != "offline" {
		return r, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s: network %q can only be offline: a repository narrows what the operator allows", RepoFile, r.Network)}
	}
	if r.Publish != "" && r.Publish != Hold {
		return r, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s: publish %q can only be hold: a repository narrows what the operator allows", RepoFile, r.Publish)}
	}
	if r.Test == "" && (r.TestOne != "" || r.Format != "" || len(r.Report) > 0) {
		return r, &task.Error{Class: task.Invalid, Msg: RepoFile + ": test_one, format and report need test"}
	}
	if err := r.checkSetup(); err != nil {
		return r, &task.Error{Class: task.Invalid, Msg: RepoFile, Err: err}
	}
	return r, nil
}
