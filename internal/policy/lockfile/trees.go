package lockfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"
)

var errShape = errors.New("it does not have the format's shape")

type npmPackage struct {
	Name         string                `json:"name"`
	Version      string                `json:"version"`
	Resolved     any                   `json:"resolved"`
	Integrity    string                `json:"integrity"`
	Link         bool                  `json:"link"`
	InBundle     bool                  `json:"inBundle"`
	Bundled      bool                  `json:"bundled"`
	Dependencies json.RawMessage       `json:"dependencies"`
	Packages     map[string]npmPackage `json:"packages"`
}

// parseNPM reads versions 1 to 3: "packages" by path, or nested "dependencies".
func parseNPM(b []byte) (map[string]entry, error) {
	if err := noTwins(b); err != nil {
		return nil, err
	}
	var doc npmPackage
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, errShape
	}
	out := map[string]entry{}
	for at, p := range doc.Packages {
		i := strings.LastIndex(at, "node_modules/")
		if i < 0 {
			continue // the project and its workspaces
		}
		out[at] = npmEntry(at[i+len("node_modules/"):], p)
	}
	return out, npmNested(out, "", doc.Dependencies, 0)
}

func npmNested(out map[string]entry, at string, raw json.RawMessage, depth int) error {
	if len(raw) == 0 {
		return nil
	}
	if depth > 50 {
		return errors.New("it nests too deep")
	}
	var deps map[string]json.RawMessage
	if err := json.Unmarshal(raw, &deps); err != nil {
		return errShape
	}
	for name, d := range deps {
		var p npmPackage
		if err := json.Unmarshal(d, &p); err != nil {
			return errShape
		}
		key := at + "node_modules/" + name
		e := npmEntry(name, p)
		if o, had := out[key]; had && (o.source != e.source || strings.Join(o.sums, " ") != strings.Join(e.sums, " ")) {
			e.odd = "is locked twice, in two ways"
		}
		out[key] = e
		if err := npmNested(out, key+"/", p.Dependencies, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func npmEntry(name string, p npmPackage) entry {
	e := entry{name: name, version: p.Version, kind: registry, sums: sorted(strings.Fields(p.Integrity)...)}
	addr, _ := p.Resolved.(string)
	e.source = addr
	switch {
	case p.Link:
		e.kind, e.version = local, ""
	case addr == "" && strings.Contains(p.Version, ":") && !strings.HasPrefix(p.Version, "npm:"):
		e.kind, e.source = kindOf(p.Version), p.Version // version 1 puts the source there
	default:
		alias := p.Name
		if rest, ok := strings.CutPrefix(p.Version, "npm:"); ok {
			alias = rest[:max(strings.LastIndex(rest, "@"), 0)]
		}
		tarball(&e, addr, alias)
	}
	if p.InBundle || p.Bundled {
		e.kind, e.source = registry, "" // inside another package, under its checksum
		e.sums = []string{"bundled"}
	}
	return e
}

// noTwins refuses an object with the same key twice: readers differ in which one they take.
func noTwins(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	type level struct {
		keys map[string]bool
		key  bool // the next token of an object is a key
	}
	var stack []level
	for {
		t, err := d.Token()
		if err != nil {
			if len(stack) == 0 && d.InputOffset() > 0 && err.Error() == "EOF" {
				return nil
			}
			return errShape
		}
		if len(stack) > 200 {
			return errors.New("it nests too deep")
		}
		if delim, ok := t.(json.Delim); ok {
			switch delim {
			case '{':
				stack = append(stack, level{keys: map[string]bool{}, key: true})
				continue
			case '[':
				stack = append(stack, level{})
				continue
			}
			stack = stack[:len(stack)-1]
		} else if n := len(stack); n > 0 && stack[n-1].keys != nil && stack[n-1].key {
			k := t.(string)
			if stack[n-1].keys[k] {
				return fmt.Errorf("it has the key %.60q twice", k)
			}
			stack[n-1].keys[k], stack[n-1].key = true, false
			continue
		}
		if n := len(stack); n > 0 && stack[n-1].keys != nil {
			stack[n-1].key = true
		}
	}
}

// parsePNPM reads the "packages" of every version of the format.
func parsePNPM(b []byte) (map[string]entry, error) {
	for _, t := range lexer.Tokenize(string(b)) {
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType, token.TagType, token.DirectiveType:
			return nil, fmt.Errorf("line %d uses %s, which the format does not", t.Position.Line, t.Type)
		}
	}
	var doc struct {
		Packages map[string]struct {
			Name       string            `yaml:"name"`
			Version    string            `yaml:"version"`
			Resolution map[string]string `yaml:"resolution"`
		} `yaml:"packages"`
	}
	if err := yaml.Unmarshal(b, &doc); err != nil {
		return nil, errShape
	}
	out := map[string]entry{}
	for key, p := range doc.Packages {
		e := entry{name: strings.TrimPrefix(key, "/"), version: "", kind: registry, sums: sorted(p.Resolution["integrity"])}
		switch t := p.Resolution["tarball"]; {
		case p.Resolution["type"] == "git" || p.Resolution["repo"] != "":
			e.kind, e.source = gitRepo, p.Resolution["repo"]+" "+p.Resolution["commit"]
		case p.Resolution["type"] == "directory" || p.Resolution["directory"] != "":
			e.kind, e.source = local, p.Resolution["directory"]
		case t != "":
			e.source, e.kind = t, kindOf(t)
		}
		out[key] = e
	}
	return out, nil
}

// parseCargo reads "source" and "checksum" of every package.
func parseCargo(b []byte) (map[string]entry, error) {
	var doc struct {
		Package []struct{ Name, Version, Source, Checksum string }
		// Metadata holds the checksums of version 1.
		Metadata map[string]string
		Patch    any
	}
	if err := toml.Unmarshal(b, &doc); err != nil {
		return nil, errShape
	}
	out := map[string]entry{}
	for _, p := range doc.Package {
		e := entry{name: p.Name, version: p.Version, kind: registry, source: p.Source, sums: sorted(p.Checksum)}
		proto, addr, _ := strings.Cut(p.Source, "+")
		switch proto {
		case "":
			e.kind, e.source = local, "this workspace"
		case "registry", "sparse":
			e.from = addr
			if s := doc.Metadata[fmt.Sprintf("checksum %s %s (%s)", p.Name, p.Version, p.Source)]; s != "" {
				e.sums = sorted(s)
			}
		case "git":
			e.kind = gitRepo
		default:
			e.kind = address
		}
		out[p.Name+" "+p.Version+" "+proto] = e
	}
	return out, nil
}

// parsePoetry reads files with their hashes and the source of what is not from the index.
func parsePoetry(b []byte) (map[string]entry, error) {
	type files []struct{ File, Hash string }
	var doc struct {
		Package []struct {
			Name, Version string
			Files         files
			Source        struct{ Type, URL, Reference, Resolved_reference string }
		}
		Metadata struct{ Files map[string]files }
	}
	if err := toml.Unmarshal(b, &doc); err != nil {
		return nil, errShape
	}
	out := map[string]entry{}
	for _, p := range doc.Package {
		e := entry{name: p.Name, version: p.Version, kind: registry, source: p.Source.URL, from: p.Source.URL}
		var sums []string
		for _, f := range append(p.Files, doc.Metadata.Files[p.Name]...) {
			sums = append(sums, f.Hash)
		}
		e.sums = sorted(sums...)
		switch p.Source.Type {
		case "", "legacy":
		case "git":
			e.kind, e.source = gitRepo, strings.TrimSpace(p.Source.URL+" "+p.Source.Resolved_reference)
		case "file", "directory":
			e.kind = local
		default:
			e.kind = address
		}
		out[p.Name+" "+p.Version] = e
	}
	return out, nil
}

// parseUV reads uv's packages: a source, and the addresses of files with their hashes.
func parseUV(b []byte) (map[string]entry, error) {
	type file struct{ URL, Path, Hash string }
	var doc struct {
		Package []struct {
			Name, Version string
			Source        map[string]any
			Sdist         file
			Wheels        []file
		}
	}
	if err := toml.Unmarshal(b, &doc); err != nil {
		return nil, errShape
	}
	out := map[string]entry{}
	for _, p := range doc.Package {
		e := entry{name: p.Name, version: p.Version, kind: registry}
		hosts := map[string]bool{}
		var sums []string
		for _, f := range append([]file{p.Sdist}, p.Wheels...) {
			if f.URL+f.Path != "" {
				sums = append(sums, f.Hash)
				hosts[origin(f.URL, "")] = true
			}
			if f.URL+f.Path != "" && f.Hash == "" {
				e.odd = "has a file without a checksum"
			}
		}
		e.sums = sorted(sums...)
		for k, v := range p.Source {
			s, _ := v.(string)
			switch k {
			case "registry":
				e.source, e.from = s, s
				for _, h := range slices.Sorted(maps.Keys(hosts)) {
					e.from += " " + h
				}
				if len(hosts) > 1 {
					e.odd = "has files at several hosts"
				}
			case "git":
				e.kind, e.source = gitRepo, s
			case "url":
				e.kind, e.source = address, s
			case "path", "directory", "editable", "virtual":
				e.kind, e.source = local, s
			}
		}
		if e.source == "" && len(p.Source) > 0 {
			return nil, errShape
		}
		out[p.Name+" "+p.Version] = e
	}
	return out, nil
}
