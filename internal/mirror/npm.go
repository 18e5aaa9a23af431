package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
)

// baseMark stands for the mirror's address in a stored packument. Upstream text cannot gain
// anything by containing it: it becomes the mirror's own address.
const baseMark = "http://mirror.invalid"

// npmAccept asks for the short form of a packument: what installing needs, and nothing else.
const npmAccept = "application/vnd.npm.install-v1+json, application/json;q=0.8"

func (m *Mirror) serveNPM(ctx context.Context, s *Session, r route) (answer, error) {
	up := m.cfg.NPM
	key, form := "npm "+r.name, npmAccept
	if s.cfg.MinAge > 0 { // only the long form says when a version was published
		key, form = "npm long "+r.name, "application/json"
	}
	doc, _, err := m.docs.get(ctx, key, metadataTTL, func(ctx context.Context) (*document, error) {
		// the scope's slash is escaped on the registry's side of the protocol
		raw, final, _, err := m.raw(ctx, s, up, strings.TrimRight(up.URL, "/")+"/"+strings.ReplaceAll(escape(r.name), "/", "%2f"), form, metadataTTL)
		if err != nil {
			return nil, err
		}
		doc, err := parsePackument(raw, r.name, final)
		if err != nil {
			return nil, bad(ReasonUpstream, "the packument cannot be read: %v", err)
		}
		return doc, nil
	})
	if err != nil {
		return answer{}, err
	}
	if r.kind == npmDoc {
		body := bytes.ReplaceAll(doc.body, []byte(baseMark), []byte(s.cfg.Base))
		return answer{body: body, ctype: "application/vnd.npm.install-v1+json"}, nil
	}
	f, ok := doc.files[r.version]
	if !ok {
		return answer{}, errNotFound
	}
	if err := s.release(r, f.risk); err != nil {
		return answer{}, err
	}
	b, err := m.file(ctx, s, up, "npm "+r.name+"@"+r.version, f)
	return answer{file: b, ctype: "application/octet-stream"}, err
}

// parsePackument reads a packument and writes it again with the mirror's addresses. Versions
// without a digest or an address are left out: they could not be served.
func parsePackument(raw []byte, name, from string) (*document, error) {
	var p struct {
		Name     string                                `json:"name"`
		Tags     map[string]string                     `json:"dist-tags,omitempty"`
		Modified string                                `json:"modified,omitempty"`
		Time     map[string]json.RawMessage            `json:"time,omitempty"`
		Versions map[string]map[string]json.RawMessage `json:"versions"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, err
	}
	if p.Name != name {
		return nil, errors.New("it is about another package")
	}
	doc := &document{files: make(map[string]remote, len(p.Versions))}
	short := name[strings.IndexByte(name, '/')+1:]
	for version, v := range p.Versions {
		var dist map[string]json.RawMessage
		if json.Unmarshal(v["dist"], &dist) != nil || !fullVersion(version) {
			delete(p.Versions, version)
			continue
		}
		f := remote{digest: parseIntegrity(text(dist["integrity"]))}
		if f.digest.zero() {
			f.digest, _ = hexDigest("sha1", text(dist["shasum"]))
		}
		var err error
		if f.url, err = resolveRef(from, text(dist["tarball"])); err != nil || f.digest.zero() || text(dist["tarball"]) == "" {
			delete(p.Versions, version)
			continue
		}
		f.risk = risk{published: when(text(p.Time[version])), deprecated: text(v["deprecated"]), installScript: scripted(v)}
		doc.files[version] = f
		dist["tarball"] = quote(baseMark + "/npm/" + name + "/-/" + escape(short+"-"+version) + ".tgz")
		b, err := json.Marshal(dist)
		if err != nil {
			return nil, err
		}
		v["dist"] = b
	}
	for tag, version := range p.Tags {
		if p.Versions[version] == nil {
			delete(p.Tags, tag)
		}
	}
	var err error
	doc.body, err = json.Marshal(p)
	return doc, err
}

// scripted reports whether installing runs the package's own code.
func scripted(v map[string]json.RawMessage) bool {
	if string(v["hasInstallScript"]) == "true" {
		return true
	}
	var scripts map[string]json.RawMessage
	if json.Unmarshal(v["scripts"], &scripts) != nil {
		return false
	}
	return scripts["preinstall"] != nil || scripts["install"] != nil || scripts["postinstall"] != nil
}

// text reads a JSON string, or nothing.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func quote(s string) json.RawMessage {
	b, err := json.Marshal(s)
	if err != nil {
		return json.RawMessage(`""`)
	}
	return b
}
