package mirror

import (
	"fmt"
	"slices"
	"strings"
)

// SystemBundle is where most programs look for certificates.
const SystemBundle = "/etc/ssl/certs/ca-certificates.crt"

// Clients points package managers inside a sandbox at the mirror. Nothing in it weakens
// anything that counts: what a client checks for itself it still checks, and what it does not
// the mirror did.
type Clients struct {
	Base      string            // the forwarder's address inside, as http://127.0.0.1:4873
	Home      string            // the user's home inside
	Config    *Config           // which ecosystems there are, with their checksum database and archives
	Front     string            // address of the front; "" when there is none
	Authority []byte            // PEM, of the front
	Bundle    []byte            // PEM, certificates that programs trust beside it
	Keys      map[string][]byte // keyrings of archives, by their id
}

const (
	bundlePath = "/etc/daybreak/ca.pem"
	trustPath  = "/etc/daybreak/trust.jks"
	frontPath  = "/etc/daybreak/front.pem"

	aptSourcesPath = "/etc/daybreak/apt.sources"
	// aptPlaces hide the machine's own sources, which are out of reach. There is one user inside.
	aptPlaces = "Dir::Etc::SourceList \"" + aptSourcesPath + "\";\nDir::Etc::SourceParts \"/dev/null\";\nAPT::Sandbox::User \"root\";\n"
)

// Env are the variables that package managers read. Ecosystems without an upstream stay off.
func (c Clients) Env() []string {
	base := strings.TrimRight(c.Base, "/")
	host, _, _ := strings.Cut(strings.TrimPrefix(base, "http://"), ":")
	var env []string
	if g := c.Config.Go; g != nil {
		sumdb, private := "off", ""
		if g.Sum != nil {
			sumdb, private = g.Sum.Key, g.Unverified
		}
		env = append(env, "GOSUMDB="+sumdb, "GONOSUMDB="+private, "GOPROXY="+base+"/go",
			"GOVCS=*:off") // a module comes from the mirror or not at all
	}
	if c.Config.NPM != nil {
		env = append(env,
			"npm_config_registry="+base+"/npm/",
			"npm_config_offline=false",
			"npm_config_replace_registry_host=always", // lockfiles carry the registry they were written with
			"npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false",
			"YARN_REGISTRY="+base+"/npm/",            // version 1
			"YARN_NPM_REGISTRY_SERVER="+base+"/npm/", // later ones
			"YARN_UNSAFE_HTTP_WHITELIST="+host, "YARN_ENABLE_TELEMETRY=0")
	}
	if c.Config.PyPI != nil {
		env = append(env, "PIP_INDEX_URL="+base+"/pypi/simple/", "PIP_TRUSTED_HOST="+host, "PIP_DISABLE_PIP_VERSION_CHECK=1",
			"UV_INDEX_URL="+base+"/pypi/simple/")
	}
	if c.Config.Crates != nil {
		env = append(env, "CARGO_NET_OFFLINE=false")
	}
	return append(env, c.frontEnv()...)
}

// frontEnv leads what insists on absolute addresses to the front, and makes it trusted.
func (c Clients) frontEnv() []string {
	if c.Front == "" {
		return nil
	}
	env := []string{"HTTPS_PROXY=" + c.Front, "https_proxy=" + c.Front, "NO_PROXY=127.0.0.1,localhost,::1", "no_proxy=127.0.0.1,localhost,::1"}
	for _, name := range []string{"SSL_CERT_FILE", "npm_config_cafile", "PIP_CERT", "REQUESTS_CA_BUNDLE", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO", "CURL_CA_BUNDLE"} {
		env = append(env, name+"="+bundlePath)
	}
	env = append(env, "NODE_EXTRA_CA_CERTS="+frontPath)
	if c.Config.Maven != nil { // it is printed by every Java program, so only where it is of use
		env = append(env, "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore="+trustPath+javaProxy(c.Front))
	}
	return env
}

func javaProxy(front string) string {
	host, port, _ := strings.Cut(strings.TrimPrefix(front, "http://"), ":")
	return " -Dhttps.proxyHost=" + host + " -Dhttps.proxyPort=" + port + " -Dhttp.nonProxyHosts=127.0.0.1|localhost"
}

// Files are the settings that the environment cannot carry, by their path.
func (c Clients) Files() map[string][]byte {
	base := strings.TrimRight(c.Base, "/")
	files := map[string][]byte{}
	if c.Config.Crates != nil {
		files[c.Home+"/.cargo/config.toml"] = fmt.Appendf(nil, cargoConfig, base)
	}
	if c.Config.Maven != nil {
		files[c.Home+"/.m2/settings.xml"] = fmt.Appendf(nil, mavenSettings, base)
	}
	if len(c.Config.Debian) > 0 {
		archives := slices.Clone(c.Config.Debian)
		for i, a := range archives {
			if keys := c.Keys[a.ID]; len(keys) > 0 {
				archives[i].KeyringPath = "/etc/daybreak/" + a.ID + ".gpg"
				files[archives[i].KeyringPath] = keys
			}
		}
		files[aptSourcesPath] = []byte(AptSources(base, archives))
		files["/etc/apt/apt.conf.d/99mirror"] = []byte(aptConf + aptPlaces)
	}
	if c.Front != "" {
		bundle := append(append([]byte{}, c.Bundle...), c.Authority...)
		files[bundlePath], files[SystemBundle], files[frontPath] = bundle, bundle, c.Authority
		if c.Config.Maven != nil {
			if store, err := trustStore(c.Authority); err == nil || len(c.Authority) == 0 {
				files[trustPath] = store
			}
		}
	}
	return files
}

// Own are the paths of those files that hold the authority, which one sandbox alone trusts. That
// they are there does not depend on it.
func (c Clients) Own() []string { return []string{bundlePath, SystemBundle, frontPath, trustPath} }

const cargoConfig = `[source.crates-io]
replace-with = "mirror"

[source.mirror]
registry = "sparse+%s/crates/index/"

# without this cargo offers to upgrade to HTTP/2, which the mirror refuses as any upgrade
[http]
multiplexing = false
`

const mavenSettings = `<settings>
  <mirrors>
    <mirror>
      <id>mirror</id>
      <mirrorOf>*</mirrorOf>
      <url>%s/maven</url>
    </mirror>
  </mirrors>
</settings>
`

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
