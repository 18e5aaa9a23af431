package lockfile

import (
	"fmt"
	"regexp"
	"strings"

	"golang.org/x/mod/modfile"
)

// parseGoSum reads "module version[/go.mod] h1:hash" lines.
func parseGoSum(b []byte) (map[string]entry, error) {
	out := map[string]entry{}
	n := 0
	for l := range strings.Lines(string(b)) {
		n++
		f := strings.Fields(l)
		if len(f) == 0 {
			continue
		}
		if len(f) != 3 || !strings.HasPrefix(f[2], "h1:") || len(f[2]) != 47 {
			return nil, fmt.Errorf("line %d is not a module, a version and an h1: sum", n)
		}
		key := f[0] + " " + f[1]
		e := out[key]
		e = entry{name: f[0], version: f[1], kind: registry, source: "", sums: sorted(append(e.sums, f[2])...)}
		if len(e.sums) > 1 {
			e.odd = "has two checksums"
		}
		out[key] = e
	}
	return out, nil
}

// parseGoMod lists what leads a module path elsewhere.
func parseGoMod(b []byte) (map[string]entry, error) {
	f, err := modfile.Parse("go.mod", b, nil)
	if err != nil {
		return nil, fmt.Errorf("it has a syntax error")
	}
	out := map[string]entry{}
	for _, r := range f.Require {
		out[r.Mod.Path] = entry{name: r.Mod.Path, version: r.Mod.Version, kind: registry}
	}
	for _, r := range f.Replace {
		k := address
		if modfile.IsDirectoryPath(r.New.Path) {
			k = local
		}
		out["replace "+r.Old.Path+" "+r.Old.Version] = entry{
			name: r.Old.Path, version: r.Old.Version, kind: k, source: strings.TrimSpace(r.New.Path + " " + r.New.Version),
		}
	}
	return out, nil
}

var (
	reqName   = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[A-Za-z0-9._, -]*\])?\s*((?:(?:===?|~=|!=|<=?|>=?)\s*[A-Za-z0-9.*+!_-]+\s*,?\s*)*)(?:;\s*[^#]*)?$`)
	reqDirect = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[A-Za-z0-9._, -]*\])?\s*@\s*(\S+)(?:\s*;.*)?$`)
	reqHash   = regexp.MustCompile(`\s--hash[= ]([a-z0-9]+:[A-Za-z0-9]+)`)
)

// parseRequirements reads pip's format: logical lines, options, requirements with hashes.
func parseRequirements(b []byte) (map[string]entry, error) {
	out := map[string]entry{}
	text := strings.ReplaceAll(strings.ReplaceAll(string(b), "\r\n", "\n"), "\\\n", " ")
	n := 0
	for l := range strings.Lines(text) {
		n++
		if i := strings.Index(" "+l, " #"); i >= 0 {
			l = l[:i]
		}
		l = strings.TrimSpace(l)
		if l == "" {
			continue
		}
		if strings.HasPrefix(l, "-") {
			name, value, _ := strings.Cut(strings.Replace(l, "=", " ", 1), " ")
			e := entry{name: name, kind: option, source: strings.TrimSpace(value)}
			switch name {
			case "-e", "--editable":
				e.kind = kindOf(e.source)
			case "-r", "--requirement", "-c", "--constraint", "--no-binary", "--only-binary", "--prefer-binary", "--require-hashes", "--pre", "--use-feature":
				continue // no place where packages come from
			}
			out[l] = e
			continue
		}
		var sums []string
		for _, m := range reqHash.FindAllStringSubmatch(l, -1) {
			sums = append(sums, m[1])
		}
		l = strings.TrimSpace(reqHash.ReplaceAllString(l, ""))
		if m := reqDirect.FindStringSubmatch(l); m != nil {
			out[m[1]] = entry{name: m[1], kind: kindOf(m[2]), source: m[2], sums: sorted(sums...)}
			continue
		}
		if m := reqName.FindStringSubmatch(l); m != nil {
			out[strings.ToLower(m[1])+"\x00"+l] = entry{name: m[1], version: strings.TrimSpace(m[2]), kind: registry, sums: sorted(sums...)}
			continue
		}
		if k := kindOf(l); k != local || strings.ContainsAny(l, "/.") && !strings.ContainsAny(l, " =<>") {
			out[l] = entry{name: l, kind: k, source: l, sums: sorted(sums...)}
			continue
		}
		return nil, fmt.Errorf("line %d is no requirement", n)
	}
	return out, nil
}

var (
	yarnHead  = regexp.MustCompile(`^\S.*:$`)
	yarnField = regexp.MustCompile(`^ {2}([A-Za-z]+):? (?:"(.*)"|(\S.*))$`)
	yarnMap   = regexp.MustCompile(`^ {2}[A-Za-z]+:$|^ {4,}\S.*$|^__metadata:$`)
)

// parseYarn reads both generations: "resolved" and "integrity" of the first, "resolution" and
// "checksum" of the second.
func parseYarn(b []byte) (map[string]entry, error) {
	out := map[string]entry{}
	head, n := "", 0
	fields := map[string]string{}
	flush := func() {
		if head != "" && head != "__metadata" {
			out[head] = yarnEntry(head, fields)
		}
		head, fields = "", map[string]string{}
	}
	for l := range strings.Lines(string(b)) {
		n++
		l = strings.TrimRight(l, "\r\n")
		switch {
		case strings.TrimSpace(l) == "" || strings.HasPrefix(l, "#"):
		case yarnHead.MatchString(l):
			flush()
			head = strings.TrimSuffix(l, ":")
			if _, twice := out[head]; twice {
				return nil, fmt.Errorf("line %d opens %s for the second time", n, head)
			}
		case head != "" && yarnField.MatchString(l):
			m := yarnField.FindStringSubmatch(l)
			if _, twice := fields[m[1]]; twice {
				return nil, fmt.Errorf("line %d gives %s for the second time", n, m[1])
			}
			fields[m[1]] = m[2] + m[3]
		case head != "" && yarnMap.MatchString(l):
		default:
			return nil, fmt.Errorf("line %d does not belong to the format", n)
		}
	}
	flush()
	return out, nil
}

func yarnEntry(head string, f map[string]string) entry {
	first, _, _ := strings.Cut(strings.Trim(head, `"`), ",")
	name := first
	if i := strings.LastIndex(first[min(1, len(first)):], "@"); i >= 0 {
		name = first[:i+1]
	}
	if at := strings.Index(first[min(1, len(first)):], "@"); at >= 0 {
		name = first[:at+1]
	}
	e := entry{name: name, version: f["version"], kind: registry, sums: sorted(f["integrity"], f["checksum"])}
	if r := f["resolution"]; r != "" { // second generation
		e.source = r
		_, spec, _ := strings.Cut(r[min(1, len(r)):], "@")
		protocol, _, _ := strings.Cut(spec, ":")
		switch protocol {
		case "npm", "patch", "virtual":
			e.from = protocol
			if strings.Contains(spec, "::__archiveUrl=") {
				e.kind = address
			}
		case "workspace":
			e.from = "workspace"
			e.kind = local
		default:
			e.kind = kindOf(spec)
		}
		return e
	}
	addr, frag, _ := strings.Cut(f["resolved"], "#")
	e.source = f["resolved"]
	if len(e.sums) == 0 {
		e.sums = sorted(frag)
	}
	tarball(&e, addr, "")
	return e
}

// tarball fills in the source of a package of npm's kind from its address. alias is the name
// in the registry where it differs.
func tarball(e *entry, addr, alias string) {
	name := e.name
	if alias != "" {
		name = alias
	}
	switch {
	case addr == "":
		e.from = ""
	case strings.HasPrefix(addr, "https://") || strings.HasPrefix(addr, "http://"):
		e.from = origin(addr, name)
		low := strings.ReplaceAll(strings.ToLower(addr), "%2f", "/")
		if !strings.Contains(low, "/-/") {
			e.kind = address
		} else if !strings.Contains(low, "/"+strings.ToLower(name)+"/-/") {
			e.odd = "is taken from the address of another package"
		}
	default:
		e.kind = kindOf(addr)
	}
}

// parseGems reads Bundler's sections.
func parseGems(b []byte) (map[string]entry, error) {
	out := map[string]entry{}
	section, remote, revision := "", "", ""
	spec := regexp.MustCompile(`^ {4}([^ ()]+) \(([^()]+)\)$`)
	sum := regexp.MustCompile(`^ {2}([^ ()]+) \(([^()]+)\)(?: (\S+))?$`)
	n := 0
	for l := range strings.Lines(string(b)) {
		n++
		l = strings.TrimRight(l, "\r\n")
		switch {
		case l == "":
		case l[0] != ' ':
			section, remote, revision = l, "", ""
		case section == "GEM" || section == "GIT" || section == "PATH" || section == "PLUGIN SOURCE":
			k := map[string]kind{"GEM": registry, "GIT": gitRepo, "PATH": local, "PLUGIN SOURCE": address}[section]
			switch m := spec.FindStringSubmatch(l); {
			case strings.HasPrefix(l, "  remote: "):
				remote = strings.TrimPrefix(l, "  remote: ")
			case strings.HasPrefix(l, "  revision: "):
				revision = strings.TrimPrefix(l, "  revision: ")
			case m != nil:
				e := out[m[1]+" "+m[2]]
				out[m[1]+" "+m[2]] = entry{name: m[1], version: m[2], kind: k, source: strings.TrimSpace(remote + " " + revision), from: remote, sums: e.sums}
			case strings.HasPrefix(l, "      ") || l == "  specs:" || strings.HasPrefix(l, "  ") && strings.Contains(l, ": ") || strings.HasPrefix(l, "    "):
			default:
				return nil, fmt.Errorf("line %d does not belong to section %s", n, section)
			}
		case section == "CHECKSUMS":
			m := sum.FindStringSubmatch(l)
			if m == nil {
				return nil, fmt.Errorf("line %d is no checksum", n)
			}
			e := out[m[1]+" "+m[2]]
			e.name, e.version, e.sums = m[1], m[2], sorted(m[3])
			if e.kind == "" {
				e.kind = registry
			}
			out[m[1]+" "+m[2]] = e
		}
	}
	return out, nil
}
