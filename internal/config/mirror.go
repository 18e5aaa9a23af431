package config

import (
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"time"
)

// Mirror says where packages come from. An ecosystem that is not named here takes its upstream
// from the machine's own client: `go env GOPROXY`, npm's registry, pip's index, cargo's source
// replacement, Maven's mirror, apt's sources.
type Mirror struct {
	Go     *GoRegistry `yaml:"go"`
	NPM    *Registry   `yaml:"npm"`
	PyPI   *Registry   `yaml:"pypi"`
	Crates *Registry   `yaml:"crates"`
	Maven  *Registry   `yaml:"maven"`
	Debian []Archive   `yaml:"debian"`

	Off       []string      `yaml:"off"`        // ecosystems that are not offered at all
	CAFile    string        `yaml:"ca_file"`    // PEM certificates of the upstreams, in place of the machine's
	StoreSize Size          `yaml:"store_size"` // least recently used packages beyond it are deleted
	MinAge    time.Duration `yaml:"min_age"`    // of versions that no lockfile of the base has; 0: any
	Allow     []string      `yaml:"allow"`      // names that cost no budget: "npm:@team/*", "go:example.com/team/*"
	Limits    MirrorLimits  `yaml:"limits"`     // of one task
}

// Registry is one upstream.
type Registry struct {
	URL       string   `yaml:"url"`
	CDN       []string `yaml:"cdn"`        // other hosts its files and redirects may come from
	StandsFor []string `yaml:"stands_for"` // other addresses that lockfiles know it by
	Internal  bool     `yaml:"internal"`   // it may have a private address or speak plain HTTP
	TokenEnv  string   `yaml:"token_env"`
	TokenFile string   `yaml:"token_file"`
	User      string   `yaml:"user"` // with it the token is sent as this user's password, else as a bearer token
}

// GoRegistry is a Go module proxy.
type GoRegistry struct {
	Registry `yaml:",inline"`
	SumDB    string `yaml:"sumdb"`     // verifier key, name+hash+key; empty: only what go.sum names is served
	SumDBURL string `yaml:"sumdb_url"` // empty: through the proxy
	Private  string `yaml:"private"`   // module path patterns that are served without a known hash and never stored
}

// Archive is one apt archive.
type Archive struct {
	ID         string `yaml:"id"`
	Registry   `yaml:",inline"`
	Suites     []string `yaml:"suites"`
	Components []string `yaml:"components"`
	Archs      []string `yaml:"architectures"`
	Keyring    string   `yaml:"keyring"` // file with the keys of its signatures
}

// MirrorLimits bound one task's use of the registries.
type MirrorLimits struct {
	NewNames    int     `yaml:"new_names"` // names that no lockfile has; -1: none
	NewVersions int     `yaml:"new_versions"`
	Fetches     int     `yaml:"fetches"`
	Refusals    int     `yaml:"refusals"`
	Connections int     `yaml:"connections"`
	PerSecond   float64 `yaml:"per_second"`
}

var allowed = regexp.MustCompile(`^(go|npm|pypi|crates|maven):\S+$`)

func (c Config) checkNetwork() error {
	if c.Network != "registries" && c.Network != "offline" {
		return fmt.Errorf("network is %q; use registries or offline", c.Network)
	}
	m := c.Mirror
	for name, r := range map[string]*Registry{"npm": m.NPM, "pypi": m.PyPI, "crates": m.Crates, "maven": m.Maven} {
		if r != nil {
			if err := r.check("mirror." + name); err != nil {
				return err
			}
		}
	}
	if m.Go != nil {
		if err := m.Go.check("mirror.go"); err != nil {
			return err
		}
	}
	for i, a := range m.Debian {
		at := fmt.Sprintf("mirror.debian[%d]", i)
		if err := a.check(at); err != nil {
			return err
		}
		if a.ID == "" || len(a.Suites) == 0 || len(a.Components) == 0 || !filepath.IsAbs(a.Keyring) {
			return fmt.Errorf("%s needs id, suites, components and the absolute path of a keyring", at)
		}
	}
	for _, p := range m.Allow {
		if !allowed.MatchString(p) {
			return fmt.Errorf("mirror.allow: %q is not of the form npm:@team/*", p)
		}
	}
	for _, e := range m.Off {
		switch e {
		case "go", "npm", "pypi", "crates", "maven", "debian":
		default:
			return fmt.Errorf("mirror.off: %q is not one of go, npm, pypi, crates, maven, debian", e)
		}
	}
	if m.MinAge < 0 || m.StoreSize < 0 {
		return fmt.Errorf("mirror: min_age and store_size cannot be negative")
	}
	return nil
}

func (r Registry) check(at string) error {
	for _, a := range slices.Concat([]string{r.URL}, r.CDN, r.StandsFor) {
		u, err := url.Parse(a)
		if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
			return fmt.Errorf("%s: %q is no http or https address", at, a)
		}
		if u.User != nil {
			return fmt.Errorf("%s: the address carries credentials; use token_env or token_file", at)
		}
	}
	if r.TokenEnv != "" && r.TokenFile != "" {
		return fmt.Errorf("%s: both token_env and token_file are set; use one", at)
	}
	return nil
}
