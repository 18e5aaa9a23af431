package mirror

import (
	"archive/zip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ProtonMail/go-crypto/openpgp"
)

// hostDir is a machine's file system as far as the package managers' settings go.
func hostDir(t *testing.T, files map[string]string) string {
	root := t.TempDir()
	for name, text := range files {
		p := filepath.Join(root, name)
		check(t, os.MkdirAll(filepath.Dir(p), 0o755))
		check(t, os.WriteFile(p, []byte(text), 0o644))
	}
	return root
}

func said(answers map[string]string) func(context.Context, string, ...string) ([]byte, error) {
	return func(_ context.Context, name string, args ...string) ([]byte, error) {
		for k, v := range answers {
			if strings.HasPrefix(name+" "+strings.Join(args, " "), k) {
				return []byte(v), nil
			}
		}
		return nil, errors.New("not installed")
	}
}

func TestHostUpstreams(t *testing.T) {
	signer, err := openpgp.NewEntity("Archive", "", "a@example.com", nil)
	check(t, err)
	var key strings.Builder
	check(t, signer.Serialize(&key))
	root := hostDir(t, map[string]string{
		"goroot/src/cmd/go/internal/modfetch/key.go": "var known = map[string]string{\n\t\"sum.example\": \"sum.example+01+key\",\n}\n",
		"home/.cargo/config.toml":                    "[source.crates-io]\nreplace-with = \"c\"\n[source.c]\nregistry = \"sparse+https://crates.example/index/\"\n",
		"home/.m2/settings.xml":                      "<settings><!-- <mirror><url>https://old.example</url></mirror> --><mirrors><mirror><id>a</id><url>https://maven.example/repo/</url></mirror></mirrors></settings>",
		"etc/apt/keys/a.gpg":                         key.String(),
		"etc/apt/sources.list":                       "# deb http://off.example/x s c\ndeb [arch=amd64 signed-by=/etc/apt/keys/a.gpg] http://deb.example/debian stable main contrib\ndeb [signed-by=/missing] http://deb.example/none stable main\n",
		"etc/apt/sources.list.d/b.sources":           "Types: deb deb-src\nURIs: https://deb.example/debian\nSuites: stable-security\n stable-updates\nComponents: main\nSigned-By: /etc/apt/keys/a.gpg\n\nTypes: deb\nEnabled: no\nURIs: https://x.example/y\nSuites: s\nComponents: c\nSigned-By: /etc/apt/keys/a.gpg\n",
	})
	h := &Host{Root: root, Home: root + "/home", Run: said(map[string]string{
		"go env":     "https://corp.example/go,https://second.example,direct\nsum.example\ncorp.example/*\n/goroot\n",
		"npm config": "https://npm.example/api/\n",
		"python3":    "https://py.example/simple files.example\n",
		"dpkg":       "amd64\n",
		"apt-config": `Acquire::Check-Valid-Until "false";`,
	})}
	var c Config
	h.Upstreams(t.Context(), &c)
	if c.Go == nil || c.Go.URL != "https://corp.example/go" || c.Go.Sum == nil || c.Go.Sum.Key != "sum.example+01+key" || c.Go.Unverified != "corp.example/*" {
		t.Errorf("go: %+v", c.Go)
	}
	if c.NPM == nil || c.NPM.URL != "https://npm.example/api" {
		t.Errorf("npm: %+v", c.NPM)
	}
	if c.PyPI == nil || c.PyPI.URL != "https://py.example/simple" || len(c.PyPI.CDN) != 1 || c.PyPI.CDN[0].URL != "https://files.example" {
		t.Errorf("pypi: %+v", c.PyPI)
	}
	if c.Crates == nil || c.Crates.URL != "https://crates.example/index" {
		t.Errorf("crates: %+v", c.Crates)
	}
	if c.Maven == nil || c.Maven.URL != "https://maven.example/repo" {
		t.Errorf("maven: %+v", c.Maven)
	}
	if len(c.Debian) != 2 || c.Debian[0].ID != "debian" || c.Debian[1].ID != "debian2" || len(c.Debian[1].Suites) != 2 || !c.Debian[0].IgnoreValidUntil || len(c.Debian[0].Components) != 2 {
		t.Errorf("apt: %+v", c.Debian)
	}
}

// TestOperatorWins: what the operator set is not asked of the machine.
// TestClientsGetNoSecrets_GW04: the machine's clients are started without what is not theirs.
func TestClientsGetNoSecrets_GW04(t *testing.T) {
	t.Setenv("DAYBREAK_TEST_KEY", "canary-in-the-environment")
	t.Setenv("GOOGLE_API_KEY", "canary-as-well")
	t.Setenv("GOPROXY", "https://go.test")
	t.Setenv("npm_config_registry", "https://npm.test")
	out, err := NewHost(t.TempDir()).Run(t.Context(), "env")
	check(t, err)
	if text := string(out); strings.Contains(text, "canary") || !strings.Contains(text, "GOPROXY=https://go.test\n") || !strings.Contains(text, "npm_config_registry=") || !strings.Contains(text, "PATH=") {
		t.Errorf("%s", text)
	}
}

func TestOperatorWins(t *testing.T) {
	h := &Host{Root: t.TempDir(), Run: func(_ context.Context, name string, _ ...string) ([]byte, error) {
		if name == "npm" {
			t.Error("npm was asked")
		}
		return nil, errors.New("no")
	}}
	c := Config{NPM: &Upstream{Origin: Origin{URL: "https://artifacts.example/npm"}}}
	h.Upstreams(t.Context(), &c)
	if c.NPM.URL != "https://artifacts.example/npm" {
		t.Errorf("%+v", c.NPM)
	}
}

func TestHostSaysNothing(t *testing.T) {
	root := hostDir(t, nil)
	for name, run := range map[string]map[string]string{
		"nothing installed": {},
		"direct":            {"go env": "direct\noff\n\n/x\n", "npm": "undefined\n", "python3": "x\n", "dpkg": "amd64\n"},
		"plain or odd":      {"go env": "http://corp.example\noff\n\n/x\n", "npm": "https://u:p@npm.example/\n", "python3": "ftp://a b\n"},
	} {
		h := &Host{Root: root, Home: root, Run: said(run)}
		var c Config
		h.Upstreams(t.Context(), &c)
		if c.Go != nil || c.NPM != nil || c.PyPI != nil || c.Crates != nil || c.Maven != nil || c.Debian != nil {
			t.Errorf("%s: %+v", name, c)
		}
	}
}

func TestHostDefaultsInsideTheClients(t *testing.T) {
	root := hostDir(t, map[string]string{"home/.cargo/registry/index/crates.example-1949cf8c/x": ""})
	jar := filepath.Join(root, "usr/share/maven/lib/maven-model-builder-3.x.jar")
	check(t, os.MkdirAll(filepath.Dir(jar), 0o755))
	f, err := os.Create(jar)
	check(t, err)
	z := zip.NewWriter(f)
	w, err := z.Create("org/apache/maven/model/pom-4.0.0.xml")
	check(t, err)
	_, err = w.Write([]byte("<project><repositories><repository><id>central</id><name>c</name><url>https://central.example/maven2</url></repository></repositories></project>"))
	check(t, err)
	check(t, z.Close())
	check(t, f.Close())
	h := &Host{Root: root, Home: root + "/home", Run: said(nil)}
	if u := h.maven(); u == nil || u.URL != "https://central.example/maven2" {
		t.Errorf("maven: %+v", u)
	}
	if u := h.crates(); u == nil || u.URL != "https://crates.example" {
		t.Errorf("crates: %+v", u)
	}
}
