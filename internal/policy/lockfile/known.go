package lockfile

import (
	"encoding/xml"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Known is what a tree's lockfiles name, by ecosystem ("go", "npm", "pypi", "crates", "maven"),
// each in its registry's own spelling. Names that a project has are no secret of anyone who
// works on it: asking a registry for them tells nobody anything.
type Known struct {
	Names    map[string][]string
	Versions map[string][]string // name@version
	GoSum    map[string]string   // "module version" or "module version/go.mod" to "h1:…"
}

const maxKnown = 200_000 // names and versions together

// Names reports whether a path is a file that [Known.Add] reads.
func Names(p string) bool {
	switch strings.ToLower(path.Base(p)) {
	case "pom.xml", "gradle.lockfile", "buildscript-gradle.lockfile":
		return true
	}
	return Is(p)
}

// Add takes up the names of one file. A file that cannot be read adds nothing: its names stay
// unknown and cost budget.
func (k *Known) Add(p string, b []byte) {
	if k.Names == nil {
		*k = Known{Names: map[string][]string{}, Versions: map[string][]string{}, GoSum: map[string]string{}}
	}
	switch strings.ToLower(path.Base(p)) {
	case "pom.xml":
		k.addPOM(b)
		return
	case "gradle.lockfile", "buildscript-gradle.lockfile":
		k.addGradle(b)
		return
	}
	f, ok := formatOf(p)
	if !ok {
		return
	}
	entries, err := f.parse(b)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.kind != registry && e.kind != address {
			continue
		}
		switch f.name {
		case "go.sum":
			if len(e.sums) == 1 && len(k.GoSum) < maxKnown {
				k.GoSum[e.name+" "+e.version] = e.sums[0]
			}
			k.put("go", e.name, strings.TrimSuffix(e.version, "/go.mod"))
		case "go.mod":
			if e.kind == address { // replace: the new path and version
				name, version, _ := strings.Cut(e.source, " ")
				k.put("go", name, version)
				continue
			}
			k.put("go", e.name, e.version)
		case "package-lock.json", "yarn.lock":
			k.put("npm", e.name, e.version)
			if real := tarballName(e.source); real != "" && real != e.name { // installed under another name
				k.put("npm", real, e.version)
			}
		case "pnpm-lock.yaml":
			name, version := splitPNPM(e.name)
			k.put("npm", name, version)
		case "Cargo.lock":
			k.put("crates", strings.ToLower(e.name), e.version)
		case "poetry.lock", "uv.lock", "requirements":
			k.put("pypi", normalPyPI(e.name), strings.TrimLeft(e.version, "= "))
		}
	}
}

func (k *Known) put(eco, name, version string) {
	if name == "" || len(name) > 256 || len(k.Names[eco])+len(k.Versions[eco]) > maxKnown {
		return
	}
	k.Names[eco] = append(k.Names[eco], name)
	if version != "" && !strings.ContainsAny(version, " ,<>=!~*") {
		k.Versions[eco] = append(k.Versions[eco], name+"@"+version)
	}
}

// Done sorts the lists and drops what is there twice.
func (k *Known) Done() {
	for _, m := range []map[string][]string{k.Names, k.Versions} {
		for eco, list := range m {
			slices.Sort(list)
			m[eco] = slices.Compact(list)
		}
	}
}

// tarballName is the package that an address of npm's kind belongs to.
func tarballName(addr string) string {
	u, err := url.Parse(addr)
	if err != nil {
		return ""
	}
	dir, _, ok := strings.Cut(u.Path, "/-/")
	if !ok {
		return ""
	}
	scope, name := path.Split(dir)
	if s := path.Base(scope); strings.HasPrefix(s, "@") {
		return s + "/" + name
	}
	return name
}

// pnpmKey is name@version, in older files name/version, with peers in brackets or behind an
// underscore.
var pnpmKey = regexp.MustCompile(`^((?:@[^/@]+/)?[^/@]+)[@/]([^_(/]+)`)

func splitPNPM(key string) (name, version string) {
	if m := pnpmKey.FindStringSubmatch(key); m != nil {
		return m[1], m[2]
	}
	return "", ""
}

var pypiRuns = regexp.MustCompile(`[-_.]+`)

// normalPyPI is PEP 503's normal form.
func normalPyPI(name string) string {
	return strings.ToLower(pypiRuns.ReplaceAllString(name, "-"))
}

type pomPart struct {
	Group    string `xml:"groupId"`
	Artifact string `xml:"artifactId"`
	Version  string `xml:"version"`
}

// addPOM reads the parent, dependencies, plugins and extensions of a project, wherever in the
// file they stand. Versions that are properties are left open.
func (k *Known) addPOM(b []byte) {
	d := xml.NewDecoder(strings.NewReader(string(b)))
	depth := 0
	for {
		t, err := d.Token()
		if err != nil {
			return // at the end, or where it stops being XML
		}
		switch t := t.(type) {
		case xml.EndElement:
			depth--
		case xml.StartElement:
			if depth++; depth > 64 {
				return
			}
			if !slices.Contains([]string{"parent", "dependency", "plugin", "extension"}, t.Name.Local) {
				continue
			}
			var p pomPart
			if t.Name.Local == "plugin" { // has dependencies of its own inside: its parts are read, then what is in it
				k.addPlugin(d)
				depth--
				continue
			}
			if d.DecodeElement(&p, &t) != nil {
				return
			}
			depth--
			k.pomPart(p)
		}
	}
}

func (k *Known) addPlugin(d *xml.Decoder) {
	p := pomPart{Group: "org.apache.maven.plugins"} // Maven's default
	level, field := 0, ""
	var dep pomPart
	for level >= 0 {
		t, err := d.Token()
		if err != nil {
			return
		}
		switch t := t.(type) {
		case xml.StartElement:
			if level++; level > 64 {
				return
			}
			if field = t.Name.Local; field == "dependency" {
				if d.DecodeElement(&dep, &t) != nil {
					return
				}
				k.pomPart(dep)
				dep, field = pomPart{}, ""
				level--
			}
		case xml.EndElement:
			level--
			field = ""
		case xml.CharData:
			if level == 1 {
				text := strings.TrimSpace(string(t))
				switch field {
				case "groupId":
					p.Group = text
				case "artifactId":
					p.Artifact = text
				case "version":
					p.Version = text
				}
			}
		}
	}
	k.pomPart(p)
}

var mavenWord = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)

func (k *Known) pomPart(p pomPart) {
	group, artifact, version := strings.TrimSpace(p.Group), strings.TrimSpace(p.Artifact), strings.TrimSpace(p.Version)
	if !mavenWord.MatchString(group) || !mavenWord.MatchString(artifact) {
		return
	}
	if !mavenWord.MatchString(version) {
		version = ""
	}
	k.put("maven", group+":"+artifact, version)
}

// addGradle reads "group:artifact:version=configurations" lines.
func (k *Known) addGradle(b []byte) {
	for l := range strings.Lines(string(b)) {
		coordinates, _, _ := strings.Cut(strings.TrimSpace(l), "=")
		f := strings.Split(coordinates, ":")
		if strings.HasPrefix(l, "#") || len(f) != 3 {
			continue
		}
		k.pomPart(pomPart{f[0], f[1], f[2]})
	}
}
