package mirror

import (
	"regexp"
	"strings"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

type kind int

const (
	kindNone     kind = iota
	goList            // …/@v/list
	goLatest          // …/@latest
	goInfo            // …/@v/V.info
	goMod             // …/@v/V.mod
	goZip             // …/@v/V.zip
	sumSupported      // sumdb/NAME/supported
	sumLatest         // sumdb/NAME/latest
	sumLookup         // sumdb/NAME/lookup/M@V
	sumTile           // sumdb/NAME/tile/…
	npmDoc            // NAME
	npmTarball        // NAME/-/FILE.tgz
	pypiDoc           // simple/NAME/
	pypiFile          // files/NAME/FILE
	cratesConfig      // index/config.json
	cratesDoc         // index/…/NAME
	cratesFile        // dl/NAME/V/download
	mavenMeta         // GROUP/ARTIFACT/maven-metadata.xml
	mavenFile         // GROUP/ARTIFACT/V/FILE
	debRelease        // ARCHIVE/dists/SUITE/InRelease
	debIndex          // ARCHIVE/dists/SUITE/…
	debPool           // ARCHIVE/pool/…
)

// route is a request that fits a grammar, taken apart. Upstream paths are made from it, never
// from what the client wrote.
type route struct {
	eco     Ecosystem
	kind    kind
	name    string // package
	version string
	file    string // file name, or the path below the name's own
	archive string // apt archive, suite in version
	sum     string // Maven: the sidecar's algorithm
	// signedIndex marks a name that a signed index of the archive holds: asking for it tells
	// nobody anything that is not a choice among public names.
	signedIndex bool
}

// sendsVersion reports whether the version itself reaches an upstream. Elsewhere a version
// that the index does not have ends here.
func (r route) sendsVersion() bool { return r.eco == Go || r.eco == Maven }

const maxPath = 1024

var segment = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+~-]{0,127}$`)

// parseRoute is the whole grammar: what it does not accept does not exist. Its argument is
// the path after one decoding.
func parseRoute(p string) (route, bool) {
	if len(p) > maxPath || !plainPath(p) {
		return route{}, false
	}
	eco, rest, ok := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	if !ok || rest == "" {
		return route{}, false
	}
	parse := map[Ecosystem]func(string) (route, bool){
		Go: parseGo, NPM: parseNPM, PyPI: parsePyPI, Crates: parseCrates, Maven: parseMaven, Debian: parseDebian,
	}[Ecosystem(eco)]
	if parse == nil {
		return route{}, false
	}
	r, ok := parse(rest)
	if !ok {
		return route{}, false
	}
	r.eco = Ecosystem(eco)
	return r, true
}

// plainPath refuses what no package path needs: anything but a few ASCII characters, empty
// segments, and segments of dots.
func plainPath(p string) bool {
	if !strings.HasPrefix(p, "/") {
		return false
	}
	for i := range len(p) {
		c := p[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && strings.IndexByte("-._~/@!+=", c) < 0 {
			return false
		}
	}
	segs := strings.Split(p[1:], "/")
	for i, s := range segs {
		if strings.Trim(s, ".") == "" && (s != "" || i < len(segs)-1) {
			return false
		}
	}
	return true
}

var (
	sumName  = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,99}$`)
	tilePath = regexp.MustCompile(`^tile/8/(data|[0-9]{1,2})(/x[0-9]{3}){0,2}/[0-9]{3}(\.p/[0-9]{1,3})?$`)
)

func parseGo(p string) (route, bool) {
	if rest, ok := strings.CutPrefix(p, "sumdb/"); ok {
		return parseSum(rest)
	}
	if esc, ok := strings.CutSuffix(p, "/@latest"); ok {
		name, err := module.UnescapePath(esc)
		return route{kind: goLatest, name: name}, err == nil
	}
	esc, file, ok := strings.Cut(p, "/@v/")
	if !ok || strings.Contains(file, "/") {
		return route{}, false
	}
	name, err := module.UnescapePath(esc)
	if err != nil {
		return route{}, false
	}
	if file == "list" {
		return route{kind: goList, name: name}, true
	}
	dot := strings.LastIndexByte(file, '.')
	if dot < 0 {
		return route{}, false
	}
	k := map[string]kind{".info": goInfo, ".mod": goMod, ".zip": goZip}[file[dot:]]
	version, ok := goVersion(file[:dot])
	if k == kindNone || !ok || module.Check(name, version) != nil {
		return route{}, false
	}
	return route{kind: k, name: name, version: version}, true
}

// goVersion accepts canonical versions only: a branch name would be free text that the proxy
// hands on to the module's host.
func goVersion(esc string) (string, bool) {
	v, err := module.UnescapeVersion(esc)
	return v, err == nil && module.CanonicalVersion(v) == v && semver.IsValid(v)
}

func parseSum(p string) (route, bool) {
	db, rest, ok := strings.Cut(p, "/")
	if !ok || !sumName.MatchString(db) {
		return route{}, false
	}
	r := route{archive: db, file: rest}
	switch {
	case rest == "supported":
		r.kind = sumSupported
	case rest == "latest":
		r.kind = sumLatest
	case strings.HasPrefix(rest, "lookup/"):
		escName, escVersion, ok := strings.Cut(strings.TrimPrefix(rest, "lookup/"), "@")
		if !ok {
			return route{}, false
		}
		name, err := module.UnescapePath(escName)
		if err != nil {
			return route{}, false
		}
		version, ok := goVersion(escVersion)
		if !ok || module.Check(name, version) != nil {
			return route{}, false
		}
		r.kind, r.name, r.version = sumLookup, name, version
	case tilePath.MatchString(rest):
		r.kind = sumTile
	default:
		return route{}, false
	}
	return r, true
}

// npmName follows the registry's rule for new names (lower case, URL-safe), and allows the
// upper case that old packages have.
var npmName = regexp.MustCompile(`^(@[a-z0-9~-][a-z0-9._~-]{0,127}/)?[A-Za-z0-9~-][A-Za-z0-9._~-]{0,127}$`)

func parseNPM(p string) (route, bool) {
	name, file, tarball := strings.Cut(p, "/-/")
	if !npmName.MatchString(name) || name == "-" || strings.HasPrefix(name, "-/") {
		return route{}, false
	}
	if !tarball {
		return route{kind: npmDoc, name: name}, true
	}
	short := name[strings.IndexByte(name, '/')+1:]
	version, ok := strings.CutPrefix(strings.TrimSuffix(file, ".tgz"), short+"-")
	if !ok || !strings.HasSuffix(file, ".tgz") || !fullVersion(version) {
		return route{}, false
	}
	return route{kind: npmTarball, name: name, version: version, file: file}, true
}

var (
	pypiName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`) // PEP 503, normalised
	// wheels, source archives, old eggs, and the metadata beside a wheel (PEP 658)
	pypiFileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+!-]{0,250}\.(whl|tar\.gz|zip|tar\.bz2|tgz|egg)(\.metadata)?$`)
)

func parsePyPI(p string) (route, bool) {
	area, rest, _ := strings.Cut(p, "/")
	name, file, _ := strings.Cut(rest, "/")
	if len(name) > 128 || !pypiName.MatchString(name) {
		return route{}, false
	}
	switch {
	case area == "simple" && file == "":
		return route{kind: pypiDoc, name: name}, true
	case area == "files" && pypiFileName.MatchString(file):
		return route{kind: pypiFile, name: name, file: file}, true
	}
	return route{}, false
}

// fullVersion accepts a whole semantic version: "1" and "1.2" are ranges.
func fullVersion(v string) bool {
	v = "v" + v
	return len(v) <= 128 && semver.IsValid(v) && semver.Canonical(v)+semver.Build(v) == v
}

var crateName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// crateDir is where a crate's index file lies.
func crateDir(name string) string {
	name = strings.ToLower(name)
	switch len(name) {
	case 1, 2:
		return string(rune('0' + len(name)))
	case 3:
		return "3/" + name[:1]
	}
	return name[:2] + "/" + name[2:4]
}

func parseCrates(p string) (route, bool) {
	if p == "index/config.json" {
		return route{kind: cratesConfig}, true
	}
	if rest, ok := strings.CutPrefix(p, "index/"); ok {
		name := rest[strings.LastIndexByte(rest, '/')+1:]
		if !crateName.MatchString(name) || name != strings.ToLower(name) || rest != crateDir(name)+"/"+name {
			return route{}, false
		}
		return route{kind: cratesDoc, name: name}, true
	}
	parts := strings.Split(p, "/")
	if len(parts) != 4 || parts[0] != "dl" || parts[3] != "download" || !crateName.MatchString(parts[1]) || !fullVersion(parts[2]) {
		return route{}, false
	}
	// the index file's name is in lower case; the crate's own spelling is in its lines
	return route{kind: cratesFile, name: strings.ToLower(parts[1]), version: parts[2], file: parts[1]}, true
}

var (
	mavenSeg  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	mavenTail = regexp.MustCompile(`^(-[A-Za-z0-9._-]{1,100})?\.(pom|jar|war|aar|zip|module|tar\.gz|klib|exe)$`)
)

func parseMaven(p string) (route, bool) {
	r := route{}
	for _, algo := range []string{"sha1", "md5", "sha256", "sha512"} {
		if cut, ok := strings.CutSuffix(p, "."+algo); ok {
			r.sum, p = algo, cut
			break
		}
	}
	segs := strings.Split(p, "/")
	for _, s := range segs {
		if !mavenSeg.MatchString(s) {
			return route{}, false
		}
	}
	n := len(segs)
	if n >= 3 && segs[n-1] == "maven-metadata.xml" {
		r.kind, r.name = mavenMeta, strings.Join(segs[:n-2], ".")+":"+segs[n-2]
		r.file = p
		return r, mavenGroup(segs[:n-2])
	}
	if n < 4 || strings.HasSuffix(segs[n-2], "-SNAPSHOT") || !mavenGroup(segs[:n-3]) {
		return route{}, false
	}
	artifact, version := segs[n-3], segs[n-2]
	tail, ok := strings.CutPrefix(segs[n-1], artifact+"-"+version)
	if !ok || !mavenTail.MatchString(tail) {
		return route{}, false
	}
	r.kind, r.name, r.version, r.file = mavenFile, strings.Join(segs[:n-3], ".")+":"+artifact, version, p
	return r, true
}

// mavenGroup holds the mapping between a group and its directories one to one.
func mavenGroup(segs []string) bool {
	for _, s := range segs {
		if strings.Contains(s, ".") {
			return false
		}
	}
	return true
}

var (
	debName  = regexp.MustCompile(`^[a-z0-9][a-z0-9+.-]{0,127}$`)
	debFile  = regexp.MustCompile(`^([a-z0-9][a-z0-9+.-]{0,127})_[A-Za-z0-9.+~:-]{1,128}_[a-z0-9-]{1,32}\.deb$`)
	debSuite = regexp.MustCompile(`^[a-z][a-z0-9.-]{0,63}(/updates)?$`)
	debIdx   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}(/[A-Za-z0-9][A-Za-z0-9._+-]{0,127}){1,5}$`)
)

func parseDebian(p string) (route, bool) {
	archive, rest, ok := strings.Cut(p, "/")
	if !ok || !segment.MatchString(archive) {
		return route{}, false
	}
	r := route{archive: archive, file: rest}
	if sub, ok := strings.CutPrefix(rest, "dists/"); ok {
		suite, file, ok := strings.Cut(sub, "/")
		if more, isUpdates := strings.CutPrefix(file, "updates/"); ok && isUpdates {
			suite, file = suite+"/updates", more
		}
		if !debSuite.MatchString(suite) {
			return route{}, false
		}
		r.version, r.file = suite, file
		switch {
		case file == "InRelease":
			r.kind = debRelease
		case debIdx.MatchString(file):
			r.kind = debIndex
		default:
			return route{}, false
		}
		return r, true
	}
	base := rest[strings.LastIndexByte(rest, '/')+1:]
	m := debFile.FindStringSubmatch(base)
	if m == nil || !debName.MatchString(m[1]) || base == rest {
		return route{}, false
	}
	r.kind, r.name, r.signedIndex = debPool, m[1], true
	return r, true
}
