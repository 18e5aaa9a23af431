package app

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/mirror"
	"github.com/daybreak-agent/daybreak/internal/mirror/service"
	"github.com/daybreak-agent/daybreak/internal/network"
)

var everyEcosystem = []string{"go", "npm", "pypi", "crates", "maven", "debian"}

// TestMirrorSettings: what the operator names is taken, with its credential as a header and masked
// everywhere else; what is off is not asked for; without any upstream no way is opened.
func TestMirrorSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("token-in-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Mirror.Off = everyEcosystem
	cfg.Mirror.NPM = &config.Registry{URL: "https://npm.test", CDN: []string{"https://cdn.test"}, StandsFor: []string{"https://public.test"}, TokenEnv: "NPM_TOKEN", Internal: true}
	cfg.Mirror.PyPI = &config.Registry{URL: "https://pypi.test/simple", TokenFile: file, User: "reader"}
	cfg.Mirror.Go = &config.GoRegistry{Registry: config.Registry{URL: "https://go.test"}, SumDB: "sum.test+1+key", Private: "corp.test"}
	env := map[string]string{"NPM_TOKEN": "token-in-the-environment"}
	a := &App{Config: cfg, opts: Options{Getenv: func(n string) string { return env[n] }}}
	s, err := a.mirrorSettings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.NPM.Authorization != "Bearer token-in-the-environment" || !s.NPM.Internal || s.NPM.CDN[0].Authorization != "" || s.NPM.StandsFor[0] != "https://public.test" {
		t.Errorf("%+v", s.NPM)
	}
	if s.PyPI.Authorization != "Basic "+base64.StdEncoding.EncodeToString([]byte("reader:token-in-a-file")) {
		t.Errorf("%+v", s.PyPI)
	}
	if s.Go.Sum.Key != "sum.test+1+key" || s.Go.Unverified != "corp.test" || s.Maven != nil || s.Crates != nil || s.Debian != nil {
		t.Errorf("%+v", s)
	}
	if got := strings.Join(upstreams(s), ", "); got != "go go.test, npm npm.test, pypi pypi.test" {
		t.Errorf("upstreams: %s", got)
	}
	var masked []string
	for _, sec := range a.secrets() {
		masked = append(masked, sec.Value)
	}
	if !slices.Contains(masked, "token-in-a-file") || !slices.Contains(masked, "token-in-the-environment") {
		t.Errorf("not masked: %q", masked)
	}
	delete(env, "NPM_TOKEN")
	if _, err := a.mirrorSettings(t.Context()); err == nil || !strings.Contains(err.Error(), "NPM_TOKEN is not set") {
		t.Errorf("%v", err)
	}
	a.Config.Mirror = config.Mirror{Off: everyEcosystem}
	a.Dir, a.mirror = t.TempDir(), nil
	n, err := a.Network()
	if err != nil {
		t.Fatal(err)
	}
	way, err := n.Open(context.Background(), network.Request{Mode: network.Registries})
	if way != nil || err != nil {
		t.Errorf("a way to nowhere: %+v %v", way, err)
	}
}

// What a sandbox gets is known before there is a session: only where its sockets are and what its
// certificates say is not.
func TestOutline(t *testing.T) {
	cfg := config.Default()
	cfg.Mirror.Off = everyEcosystem
	cfg.Mirror.NPM = &config.Registry{URL: "https://npm.test"}
	cfg.Mirror.Maven = &config.Registry{URL: "http://maven.test"}
	a := &App{Dir: t.TempDir(), Config: cfg, opts: Options{Getenv: func(string) string { return "" }}}
	set, err := a.mirrorSettings(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	pair := httptest.NewUnstartedServer(nil)
	pair.StartTLS()
	defer pair.Close()
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate().Raw})
	n, err := a.Network()
	if err != nil {
		t.Fatal(err)
	}
	for mode, session := range map[network.Mode]*service.Session{
		network.Registries: {Socket: "/r", Front: "/f", Authority: cert}, network.Store: {Socket: "/r"},
	} {
		real := way(set, session, len(session.Authority) > 0)
		owns := 0
		for i, f := range real.Files {
			if f.Own {
				real.Files[i].Text = nil
				owns++
			} else if bytes.Contains(f.Text, cert) || f.Text == nil {
				t.Errorf("%s: %s is said to be everybody's: %q", mode, f.Path, f.Text)
			}
		}
		if len(real.Forwards) != 1+min(owns, 1) || owns != 4*min(owns, 1) {
			t.Errorf("%s: %d own files, %d forwards", mode, owns, len(real.Forwards))
		}
		for i := range real.Forwards {
			real.Forwards[i].Socket = ""
		}
		real.Close = nil
		got, err := n.Outline(t.Context(), mode)
		if err != nil || !reflect.DeepEqual(got, real) {
			t.Errorf("%s: %v\n%+v\n%+v", mode, err, got, real)
		}
	}
	if got, err := n.Outline(t.Context(), network.None); got != nil || err != nil {
		t.Errorf("nowhere: %+v %v", got, err)
	}
}

// A sandbox that began earlier does not have its budget once more.
func TestBudgetIsOfAllSandboxes(t *testing.T) {
	l := mirror.Limits{NewNames: 2, NewVersions: 1}
	for _, c := range []struct {
		spent network.Spent
		e     mirror.Entry
		want  bool
	}{
		{network.Spent{Names: []string{"npm:a"}}, mirror.Entry{Name: "b"}, false},
		{network.Spent{Names: []string{"npm:a", "npm:b"}}, mirror.Entry{Name: "c"}, true},
		{network.Spent{Names: []string{"npm:a", "npm:b"}}, mirror.Entry{Name: "b", Version: "1"}, false},
		{network.Spent{Versions: []string{"go:a@v1"}}, mirror.Entry{Name: "b", Version: "1"}, true},
	} {
		if got := overspent(l, c.spent, c.e); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
