package mirror

import (
	"fmt"
	"strings"
)

// ClientEnv points package managers at a mirror by environment. base is the forwarder's
// address inside the sandbox, as http://127.0.0.1:4873. Nothing here weakens anything that
// counts: what a client checks for itself it still checks, and what it does not the mirror did.
func ClientEnv(base string, cfg *Config) []string {
	base = strings.TrimRight(base, "/")
	host := strings.TrimPrefix(base, "http://")
	host, _, _ = strings.Cut(host, ":")
	sumdb, private := "off", ""
	if g := cfg.Go; g != nil && g.Sum != nil {
		sumdb, private = g.Sum.Key, g.Unverified
	}
	return []string{
		"GOSUMDB=" + sumdb,
		"GONOSUMDB=" + private,
		"GOPROXY=" + base + "/go",
		"GOVCS=*:off", // a module comes from the mirror or not at all
		"npm_config_registry=" + base + "/npm/",
		"npm_config_replace_registry_host=always", // lockfiles carry the registry they were written with
		"npm_config_audit=false",
		"npm_config_fund=false",
		"npm_config_update_notifier=false",
		"PIP_INDEX_URL=" + base + "/pypi/simple/",
		"PIP_TRUSTED_HOST=" + host,
		"PIP_DISABLE_PIP_VERSION_CHECK=1",
		"UV_INDEX_URL=" + base + "/pypi/simple/",
		"YARN_REGISTRY=" + base + "/npm/",            // version 1
		"YARN_NPM_REGISTRY_SERVER=" + base + "/npm/", // later ones
		"YARN_UNSAFE_HTTP_WHITELIST=" + host,
	}
}

// ClientFiles are the settings of package managers that the environment cannot carry, by
// their path. home is the user's home inside the sandbox.
func ClientFiles(base, home string, archives []Archive) map[string]string {
	base = strings.TrimRight(base, "/")
	files := map[string]string{
		home + "/.cargo/config.toml": fmt.Sprintf(`[source.crates-io]
replace-with = "mirror"

[source.mirror]
registry = "sparse+%s/crates/index/"

# without this cargo offers to upgrade to HTTP/2, which the mirror refuses as any upgrade
[http]
multiplexing = false
`, base),
		home + "/.m2/settings.xml": fmt.Sprintf(`<settings>
  <mirrors>
    <mirror>
      <id>mirror</id>
      <mirrorOf>*</mirrorOf>
      <url>%s/maven</url>
    </mirror>
  </mirrors>
</settings>
`, base),
	}
	if len(archives) > 0 {
		files["/etc/apt/sources.list.d/mirror.sources"] = AptSources(base, archives)
		files["/etc/apt/apt.conf.d/99mirror"] = aptConf
	}
	return files
}

// AptSources writes the archives as apt's sources, at the mirror.
func AptSources(base string, archives []Archive) string {
	var b strings.Builder
	for _, a := range archives {
		fmt.Fprintf(&b, "Types: deb\nURIs: %s/debian/%s\nSuites: %s\nComponents: %s\nArchitectures: %s\n",
			base, a.ID, strings.Join(a.Suites, " "), strings.Join(a.Components, " "), strings.Join(a.Archs, " "))
		if a.KeyringPath != "" {
			fmt.Fprintf(&b, "Signed-By: %s\n", a.KeyringPath)
		}
		if a.IgnoreValidUntil {
			b.WriteString("Check-Valid-Until: no\n")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// aptConf turns off what would only be refused: translations, and proxies from elsewhere.
const aptConf = "Acquire::Languages \"none\";\nAcquire::http::Proxy \"DIRECT\";\nAcquire::Retries \"1\";\n"

// GoSum reads a go.sum file into the form [SessionConfig.GoSum] has. Lines of another form
// are left out.
func GoSum(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 3 && strings.HasPrefix(f[2], "h1:") {
			out[f[0]+" "+f[1]] = f[2]
		}
	}
	return out
}
