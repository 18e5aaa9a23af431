package config_test

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func load(t *testing.T, text string) (config.Config, error) {
	t.Helper()
	p := filepath.Join(t.TempDir(), "daybreak.yaml")
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(p)
}

// TestExampleIsTheDefault: the example documents every key with its default.
func TestExampleIsTheDefault(t *testing.T) {
	b, err := os.ReadFile("../../daybreak.example.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := load(t, string(b))
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Model = "anthropic/claude-sonnet-4-5"
	want.Sandbox.Mounts, want.Sandbox.Env, want.Protected, want.Redact = []config.Mount{}, []string{}, []string{}, []string{}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("example and defaults differ:\n%s", d)
	}
	var missing []string
	var walk func(reflect.Type)
	walk = func(rt reflect.Type) {
		for i := range rt.NumField() {
			f := rt.Field(i)
			if tag := f.Tag.Get("yaml"); tag != ",inline" && !strings.Contains(string(b), tag+":") {
				missing = append(missing, tag)
			}
			ft := f.Type
			for ft.Kind() == reflect.Pointer || ft.Kind() == reflect.Map || ft.Kind() == reflect.Slice {
				ft = ft.Elem()
			}
			if ft.Kind() == reflect.Struct {
				walk(ft)
			}
		}
	}
	walk(reflect.TypeFor[config.Config]())
	if len(missing) > 0 {
		t.Errorf("keys that the example does not name: %v", missing)
	}
}

func TestErrorsNameTheKey(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"modle: x/y", "modle"},
		{"budget: {stepps: 3}", "stepps"},
		{"sandbox: {memory: lots}", "not a size"},
		{"sandbox: {mounts: [{source: a, target: /b}]}", "absolute"},
		{"providers: {x: {api: grpc}}", "providers.x.api"},
		{"model: nothing", "provider/model"},
		{"model: unknown/model", "not configured"},
		{"budget: {steps: 0, tokens: 0, usd: 0, wall: 0s}", "at least one limit"},
		{"sandbox: {env: [NOVALUE]}", "KEY=VALUE"},
		{"network: open", "registries or offline"},
		{"publish: later", "at_once or hold"},
		{"mirror: {npm: {url: 'ftp://x'}}", "mirror.npm"},
		{"mirror: {npm: {url: 'https://u:p@x'}}", "credentials"},
		{"mirror: {go: {url: 'https://x', token_env: A, token_file: /b}}", "mirror.go"},
		{"mirror: {go: {url: 'https://x', sumbd: y}}", "sumbd"},
		{"mirror: {debian: [{id: d, url: 'https://x'}]}", "mirror.debian[0]"},
		{"mirror: {allow: ['x']}", "mirror.allow"},
		{"mirror: {off: [ruby]}", "mirror.off"},
		{"mirror: {min_age: -1s}", "negative"},
	} {
		text, want := c.text, c.want
		_, err := load(t, text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q in it", text, err, want)
			continue
		}
		if strings.Contains(err.Error(), "\n") || task.ClassOf(err) != task.Invalid {
			t.Errorf("%q: %q is not one line of class invalid", text, err)
		}
	}
	if _, err := config.Load(filepath.Join(t.TempDir(), "absent.yaml")); task.ClassOf(err) != task.Invalid {
		t.Errorf("absent file: %v", err)
	}
}

func TestProviderKeepsItsDefaults(t *testing.T) {
	c, err := load(t, "providers: {anthropic: {base_url: 'http://127.0.0.1:1'}}\nbudget: {wall: 90s, usd: 0.25}\nsandbox: {memory: 1GiB}\n")
	if err != nil {
		t.Fatal(err)
	}
	p, id, err := c.SplitModel("anthropic/m/with/slashes")
	if err != nil || id != "m/with/slashes" || p.KeyEnv != "ANTHROPIC_API_KEY" || p.API != "anthropic" || p.BaseURL == "" {
		t.Errorf("%+v %q %v", p, id, err)
	}
	if _, ok := c.Providers["openai"]; !ok {
		t.Error("the other built-in provider is gone")
	}
	if l := c.Budget.Limits(); l.Wall != 90*time.Second || l.Cost != 250_000 || l.Steps != 120 {
		t.Errorf("%+v", l)
	}
	if c.Sandbox.Memory != 1<<30 || c.Sandbox.CPUs != 2 {
		t.Errorf("%+v", c.Sandbox)
	}
	if _, err := p.Key(func(string) string { return "" }); task.ClassOf(err) != task.Auth || !strings.Contains(err.Error(), "ANTHROPIC_API_KEY") {
		t.Errorf("%v", err)
	}
}

func TestParseRepo(t *testing.T) {
	r, err := config.ParseRepo([]byte("test: make check\ntest_one: make check T={tests}\nformat: junit\nreport: ['out/*.xml']\ntimeout: 5m\nprotected: ['deploy/**']\n"))
	if err != nil || r.Timeout != 5*time.Minute || r.Report[0] != "out/*.xml" {
		t.Errorf("%+v %v", r, err)
	}
	if r, err := config.ParseRepo(nil); err != nil || !reflect.DeepEqual(r, config.Repo{}) {
		t.Errorf("%+v %v", r, err)
	}
	for text, want := range map[string]string{
		"budget: {usd: 1000}":    "budget", // a repository cannot raise a limit
		"format: cobol\ntest: x": "cobol",
		"network: registries":    "narrows",
		"publish: at_once":       "narrows",
		"format: junit":          "need test",
		"a: [":                   config.RepoFile,
	} {
		if _, err := config.ParseRepo([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParseRepo(f *testing.F) {
	f.Add([]byte("test: x\nreport: [a, b]\n"))
	f.Add([]byte("test: &a [*a]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := config.ParseRepo(b); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
	})
}

// The steps of a setup are lines, or maps with a line under run or root.
func TestRepoSetup(t *testing.T) {
	r, err := config.ParseRepo([]byte(`setup:
  - root: apt-get update && apt-get install -y libpq-dev   # first
  - {run: npm ci, files: [package.json, "lock/**"]}
  - run: ldconfig
    root: true
  - make "generate"
setup_timeout: 10m
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []config.SetupStep{
		{Run: "apt-get update && apt-get install -y libpq-dev", Root: true},
		{Run: "npm ci", Files: []string{"package.json", "lock/**"}},
		{Run: "ldconfig", Root: true},
		{Run: `make "generate"`},
	}
	if diff := cmp.Diff(want, r.Setup); diff != "" || r.SetupTimeout != 10*time.Minute {
		t.Error(diff, r.SetupTimeout)
	}
	if r, err := config.ParseRepo([]byte("setup: []\n")); err != nil || r.Setup == nil || len(r.Setup) != 0 {
		t.Errorf("an empty list is not an absent one: %#v %v", r.Setup, err)
	}
	if r, err := config.ParseRepo([]byte("test: make\n")); err != nil || r.Setup != nil {
		t.Errorf("%#v %v", r.Setup, err)
	}
	for _, bad := range []string{
		"setup: make\n", "setup: [\"\"]\n", "setup: [{run: a, root: b}]\n", "setup: [{root: 7}]\n", "setup: [{rum: a}]\n", "setup: [[a]]\n", "setup_timeout: -1s\n",
		"setup: [" + strings.Repeat("a,", 50) + "a]\n", "setup: [" + strings.Repeat("a", 8<<10+1) + "]\n",
	} {
		if r, err := config.ParseRepo([]byte(bad)); task.ClassOf(err) != task.Invalid || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: %#v %v", bad, r.Setup, err)
		}
	}
}
