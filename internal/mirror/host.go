package mirror

import (
	"archive/zip"
	"bufio"
	"bytes"
	"context"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/ProtonMail/go-crypto/openpgp"
)

// Host reads where a machine's own package managers get their packages: the mirror's
// upstreams when the operator names none. An ecosystem whose client is not there, or says
// nothing, has no upstream.
type Host struct {
	Run  func(ctx context.Context, name string, args ...string) ([]byte, error) // a client's own command
	Root string                                                                 // "/" outside tests
	Home string
}

// NewHost looks at this machine as the given user.
func NewHost(home string) *Host {
	return &Host{Root: "/", Home: home, Run: func(ctx context.Context, name string, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir = home // a project's own settings have no say
		cmd.Env = clientEnv(os.Environ())
		return cmd.Output()
	}}
}

// clientEnv leaves of an environment what package managers go by: this program's own secrets are
// none of theirs.
func clientEnv(all []string) []string {
	names := []string{
		"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOPROXY", "GOPRIVATE", "GOINSECURE", "GOENV", "GOROOT", "GOPATH", "GOCACHE", "GOMODCACHE", "GOTOOLCHAIN", "GOFLAGS",
	}
	families := []string{"LC_", "XDG_", "NPM_", "NODE_", "PIP_", "PYTHON", "UV_", "CARGO_", "MAVEN_", "JAVA_", "APT_"}
	out := []string{} // nil would be the whole environment
	for _, kv := range all {
		name, _, _ := strings.Cut(kv, "=")
		name = strings.ToUpper(name)
		if slices.Contains(names, name) || slices.ContainsFunc(families, func(f string) bool { return strings.HasPrefix(name, f) }) {
			out = append(out, kv)
		}
	}
	return out
}

// Upstreams fills the ecosystems that the operator left open, but those in off, asking all
// clients at once.
func (h *Host) Upstreams(ctx context.Context, cfg *Config, off ...string) {
	var all sync.WaitGroup
	ask := func(eco Ecosystem, open bool, f func()) {
		if open && !slices.Contains(off, string(eco)) {
			all.Go(f)
		}
	}
	ask(Go, cfg.Go == nil, func() { cfg.Go = h.GoProxy(ctx) })
	ask(NPM, cfg.NPM == nil, func() { cfg.NPM = h.npm(ctx) })
	ask(PyPI, cfg.PyPI == nil, func() { cfg.PyPI = h.pypi(ctx) })
	ask(Crates, cfg.Crates == nil, func() { cfg.Crates = h.crates() })
	ask(Maven, cfg.Maven == nil, func() { cfg.Maven = h.maven() })
	ask(Debian, cfg.Debian == nil, func() { cfg.Debian = h.Apt(ctx) })
	all.Wait()
}

func (h *Host) out(ctx context.Context, name string, args ...string) string {
	b, err := h.Run(ctx, name, args...)
	if err != nil {
		return "" // not installed, or it has nothing to say
	}
	return strings.TrimSpace(string(b))
}

// upstream accepts only addresses the mirror could use.
func upstream(raw string) *Upstream {
	raw = strings.TrimRight(strings.TrimSpace(raw), "/")
	if u, err := url.Parse(raw); err != nil || u.Scheme != "https" || u.RawQuery != "" {
		return nil
	}
	if _, _, err := originKey(raw); err != nil {
		return nil
	}
	return &Upstream{Origin: Origin{URL: raw}}
}

// GoProxy asks the go command for its proxy and checksum database. The key of a database
// that is known by name alone is read from the go command's own source.
func (h *Host) GoProxy(ctx context.Context) *GoUpstream {
	lines := strings.Split(h.out(ctx, "go", "env", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOROOT"), "\n")
	if len(lines) != 4 {
		return nil
	}
	first := strings.FieldsFunc(lines[0], func(r rune) bool { return r == ',' || r == '|' })
	if len(first) == 0 {
		return nil
	}
	up := upstream(first[0]) // "direct" and "off" are no proxies
	if up == nil {
		return nil
	}
	g := &GoUpstream{Upstream: *up, Unverified: strings.TrimSpace(lines[2])}
	key, direct, _ := strings.Cut(strings.TrimSpace(lines[1]), " ")
	if key == "off" || key == "" {
		return g
	}
	if !strings.Contains(key, "+") {
		key = h.sumKey(lines[3], key)
	}
	if key != "" {
		g.Sum = &SumDB{Key: key, URL: Origin{URL: strings.TrimSpace(direct)}}
	}
	return g
}

func (h *Host) sumKey(goroot, name string) string {
	b, err := os.ReadFile(filepath.Join(h.Root, strings.TrimSpace(goroot), "src/cmd/go/internal/modfetch/key.go"))
	if err != nil {
		return ""
	}
	m := regexp.MustCompile(`"` + regexp.QuoteMeta(name) + `":\s*"([^"]+)"`).FindSubmatch(b)
	if m == nil {
		return ""
	}
	return string(m[1])
}

func (h *Host) npm(ctx context.Context) *Upstream {
	return upstream(h.out(ctx, "npm", "config", "get", "registry"))
}

// pypi reads pip's configured index, else the default that pip itself carries, with the host
// that pip knows to hold the files.
func (h *Host) pypi(ctx context.Context) *Upstream {
	if u := upstream(h.out(ctx, "pip", "config", "get", "global.index-url")); u != nil {
		return u
	}
	const ask = "from pip._internal.models.index import PyPI; print(PyPI.simple_url, PyPI.file_storage_domain)"
	f := strings.Fields(h.out(ctx, "python3", "-c", ask))
	if len(f) != 2 {
		return nil
	}
	u := upstream(f[0])
	if u != nil {
		u.CDN = []Origin{{URL: "https://" + f[1]}}
	}
	return u
}

var cargoRegistry = regexp.MustCompile(`(?m)^\s*registry\s*=\s*["']sparse\+(https://[^"']+)["']`)

// crates reads cargo's source replacement, else the sparse registry its cache was filled from.
func (h *Host) crates() *Upstream {
	for _, name := range []string{"config.toml", "config"} {
		b, err := os.ReadFile(filepath.Join(h.Home, ".cargo", name))
		if err != nil {
			continue
		}
		if m := cargoRegistry.FindSubmatch(b); m != nil {
			return upstream(string(m[1]))
		}
	}
	dirs, err := filepath.Glob(filepath.Join(h.Home, ".cargo/registry/index/*.*-*"))
	if err != nil || len(dirs) != 1 {
		return nil // none, or a choice that is not ours
	}
	base := filepath.Base(dirs[0])
	return upstream("https://" + base[:strings.LastIndexByte(base, '-')])
}

var (
	mirrorURL  = regexp.MustCompile(`(?s)<mirror>.*?<url>\s*(https://[^<\s]+)\s*</url>`)
	centralURL = regexp.MustCompile(`(?s)<repository>\s*<id>central</id>.*?<url>\s*(https://[^<\s]+)\s*</url>`)
)

// maven reads the user's or the machine's mirror, else the default inside Maven's own jar.
func (h *Host) maven() *Upstream {
	for _, name := range []string{filepath.Join(h.Home, ".m2/settings.xml"), filepath.Join(h.Root, "etc/maven/settings.xml")} {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if m := mirrorURL.FindSubmatch(stripComments(b)); m != nil {
			return upstream(string(m[1]))
		}
	}
	jars, err := filepath.Glob(filepath.Join(h.Root, "usr/share/maven/lib/maven-model-builder-*.jar"))
	if err != nil || len(jars) == 0 {
		return nil
	}
	z, err := zip.OpenReader(jars[0])
	if err != nil {
		return nil
	}
	defer z.Close()
	f, err := z.Open("org/apache/maven/model/pom-4.0.0.xml")
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if m := centralURL.FindSubmatch(b); err == nil && m != nil {
		return upstream(string(m[1]))
	}
	return nil
}

var xmlComment = regexp.MustCompile(`(?s)<!--.*?-->`)

func stripComments(b []byte) []byte { return xmlComment.ReplaceAll(b, nil) }

// Apt reads the machine's sources. A source without keys of its own uses the machine's
// trusted ones; one that can be checked with nothing is left out.
func (h *Host) Apt(ctx context.Context) []Archive {
	arch := h.out(ctx, "dpkg", "--print-architecture")
	if arch == "" {
		return nil
	}
	frozen := strings.Contains(h.out(ctx, "apt-config", "dump", "Acquire::Check-Valid-Until"), `"false"`)
	var all []aptSource
	etc := filepath.Join(h.Root, "etc/apt")
	lists, _ := filepath.Glob(filepath.Join(etc, "sources.list.d/*.list")) // the pattern is sound
	for _, name := range append([]string{filepath.Join(etc, "sources.list")}, lists...) {
		if b, err := os.ReadFile(name); err == nil {
			all = append(all, parseOneLine(string(b))...)
		}
	}
	stanzas, _ := filepath.Glob(filepath.Join(etc, "sources.list.d/*.sources")) // as above
	for _, name := range stanzas {
		if b, err := os.ReadFile(name); err == nil {
			all = append(all, parseDeb822(string(b))...)
		}
	}
	var out []Archive
	ids := map[string]bool{}
	for _, s := range all {
		a, ok := h.archive(s, arch, frozen)
		if !ok {
			continue
		}
		for n := 2; ids[a.ID]; n++ {
			a.ID = strings.TrimRight(a.ID, "0123456789") + string(rune('0'+n%10))
		}
		ids[a.ID] = true
		out = append(out, a)
	}
	return out
}

func (h *Host) archive(s aptSource, arch string, frozen bool) (Archive, bool) {
	a := Archive{Suites: s.suites, Components: s.components, Archs: s.archs, KeyringPath: s.signedBy, IgnoreValidUntil: frozen}
	key, _, err := originKey(s.uri)
	if err != nil || key == "" || len(a.Suites) == 0 || len(a.Components) == 0 {
		return a, false
	}
	if len(a.Archs) == 0 {
		a.Archs = []string{arch}
	}
	if !slices.Contains(a.Archs, arch) {
		return a, false
	}
	a.URL = strings.TrimRight(s.uri, "/")
	u, err := url.Parse(a.URL)
	if err != nil {
		return a, false
	}
	a.ID = path.Base(u.Path)
	if !segment.MatchString(a.ID) {
		a.ID = "archive"
	}
	var files []string
	if s.signedBy != "" {
		files = []string{filepath.Join(h.Root, s.signedBy)}
	} else {
		files, _ = filepath.Glob(filepath.Join(h.Root, "etc/apt/trusted.gpg.d/*")) // the pattern is sound
	}
	for _, name := range files {
		keys, err := ReadKeys(name)
		if err == nil {
			a.Keyring = append(a.Keyring, keys...)
		}
	}
	return a, len(a.Keyring) > 0
}

// ReadKeys reads a keyring, armoured or not.
func ReadKeys(name string) (openpgp.EntityList, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(b, []byte("-----BEGIN PGP")) {
		return openpgp.ReadArmoredKeyRing(bytes.NewReader(b))
	}
	return openpgp.ReadKeyRing(bytes.NewReader(b))
}

type aptSource struct {
	uri, signedBy             string
	suites, components, archs []string
}

// parseOneLine reads "deb [options] uri suite component…" lines.
func parseOneLine(text string) []aptSource {
	var out []aptSource
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb ")
		if !ok {
			continue
		}
		var s aptSource
		rest = strings.TrimSpace(rest)
		if strings.HasPrefix(rest, "[") {
			opts, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				continue
			}
			rest = after
			for _, o := range strings.Fields(opts) {
				k, v, _ := strings.Cut(o, "=")
				switch k {
				case "signed-by":
					s.signedBy = v
				case "arch":
					s.archs = strings.Split(v, ",")
				}
			}
		}
		f := strings.Fields(rest)
		if len(f) < 3 {
			continue
		}
		s.uri, s.suites, s.components = f[0], f[1:2], f[2:]
		out = append(out, s)
	}
	return out
}

// parseDeb822 reads stanzas, one source for each address.
func parseDeb822(text string) []aptSource {
	var out []aptSource
	fields, last := map[string]string{}, ""
	flush := func() {
		if slices.Contains(strings.Fields(fields["types"]), "deb") && fields["enabled"] != "no" {
			for _, uri := range strings.Fields(fields["uris"]) {
				s := aptSource{uri: uri, suites: strings.Fields(fields["suites"]), components: strings.Fields(fields["components"]), archs: strings.Fields(fields["architectures"])}
				if strings.HasPrefix(fields["signed-by"], "/") { // a key written in place is not read
					s.signedBy = fields["signed-by"]
				}
				out = append(out, s)
			}
		}
		fields, last = map[string]string{}, ""
	}
	sc := bufio.NewScanner(strings.NewReader(text))
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.TrimSpace(line) == "":
			flush()
		case strings.HasPrefix(line, "#"):
		case line[0] == ' ' || line[0] == '\t':
			fields[last] += " " + strings.TrimSpace(line)
		default:
			k, v, _ := strings.Cut(line, ":")
			last = strings.ToLower(k)
			fields[last] = strings.TrimSpace(v)
		}
	}
	flush()
	return out
}
