package mirror

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
)

// serveCrates speaks cargo's sparse registry protocol
// (doc.rust-lang.org/cargo/reference/registry-index.html).
func (m *Mirror) serveCrates(ctx context.Context, s *Session, r route) (answer, error) {
	up := m.cfg.Crates
	if r.kind == cratesConfig {
		b, err := json.Marshal(map[string]string{"dl": s.cfg.Base + "/crates/dl"}) // no api: nothing to publish to
		return answer{body: b, ctype: "application/json"}, err
	}
	doc, _, err := m.docs.get(ctx, "crates "+r.name, metadataTTL, func(ctx context.Context) (*document, error) {
		raw, _, _, err := m.raw(ctx, s, up, join(up.URL, crateDir(r.name)+"/"+r.name), "*/*", metadataTTL)
		if err != nil {
			return nil, err
		}
		doc, err := parseCrateIndex(raw, r.name)
		if err != nil {
			return nil, bad(ReasonUpstream, "the crate's index cannot be read: %v", err)
		}
		return doc, nil
	})
	if err != nil {
		return answer{}, err
	}
	if r.kind == cratesDoc {
		return answer{body: doc.body, ctype: plainText}, nil
	}
	f, ok := doc.files[r.version]
	if !ok || f.name != r.file {
		return answer{}, errNotFound
	}
	if err := s.release(r, f.risk); err != nil {
		return answer{}, err
	}
	if f.url, err = m.crateURL(ctx, s, f, r.version); err != nil {
		return answer{}, err
	}
	b, err := m.file(ctx, s, up, "crates "+f.name+"@"+r.version, f)
	return answer{file: b, ctype: "application/gzip"}, err
}

// parseCrateIndex keeps the lines about the crate that carry a checksum, byte for byte.
func parseCrateIndex(raw []byte, name string) (*document, error) {
	doc := &document{files: map[string]remote{}}
	var out bytes.Buffer
	for line := range bytes.Lines(raw) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		var v struct {
			Name    string `json:"name"`
			Vers    string `json:"vers"`
			Cksum   string `json:"cksum"`
			Yanked  bool   `json:"yanked"`
			Pubtime string `json:"pubtime"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, err
		}
		d, ok := hexDigest("sha256", v.Cksum)
		if strings.ToLower(v.Name) != name || !crateName.MatchString(v.Name) {
			return nil, errors.New("it is about another crate")
		}
		if _, twice := doc.files[v.Vers]; !ok || twice || !fullVersion(v.Vers) {
			continue
		}
		doc.files[v.Vers] = remote{digest: d, name: v.Name, risk: risk{published: when(v.Pubtime), yanked: v.Yanked}}
		out.Write(line)
		out.WriteByte('\n')
	}
	doc.body = out.Bytes()
	return doc, nil
}

// crateURL fills the template of the registry's own config.json.
func (m *Mirror) crateURL(ctx context.Context, s *Session, f remote, version string) (string, error) {
	up := m.cfg.Crates
	doc, _, err := m.docs.get(ctx, "crates config.json", metadataTTL, func(ctx context.Context) (*document, error) {
		raw, _, _, err := m.raw(ctx, s, up, join(up.URL, "config.json"), "*/*", metadataTTL)
		if err != nil {
			return nil, err
		}
		var c struct {
			DL string `json:"dl"`
		}
		if err := json.Unmarshal(raw, &c); err != nil || c.DL == "" {
			return nil, bad(ReasonUpstream, "the registry's config.json names no place for downloads")
		}
		return &document{body: []byte(c.DL)}, nil
	})
	if err != nil {
		return "", err
	}
	return fillTemplate(string(doc.body), f, version), nil
}

func fillTemplate(dl string, f remote, version string) string {
	filled := strings.NewReplacer("{crate}", f.name, "{version}", escape(version), "{prefix}", prefixOf(f.name),
		"{lowerprefix}", crateDir(f.name), "{sha256-checksum}", f.digest.sum).Replace(dl)
	if filled == dl {
		return strings.TrimRight(dl, "/") + "/" + f.name + "/" + escape(version) + "/download"
	}
	return filled
}

func prefixOf(name string) string {
	switch len(name) {
	case 1, 2:
		return crateDir(name)
	case 3:
		return "3/" + name[:1]
	}
	return name[:2] + "/" + name[2:4]
}
