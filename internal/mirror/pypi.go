package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"html"
	"mime"
	"slices"
	"strings"
)

const (
	simpleJSON = "application/vnd.pypi.simple.v1+json"
	simpleHTML = "text/html; charset=utf-8"
	pypiAccept = simpleJSON + ", application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
)

// servePyPI speaks the simple repository interface (PEP 503, 658, 691, 700).
func (m *Mirror) servePyPI(ctx context.Context, s *Session, r route, accept string) (answer, error) {
	up := m.cfg.PyPI
	doc, _, err := m.docs.get(ctx, "pypi "+r.name, metadataTTL, func(ctx context.Context) (*document, error) {
		raw, final, ctype, err := m.raw(ctx, s, up, join(up.URL, r.name)+"/", pypiAccept, metadataTTL)
		if err != nil {
			return nil, err
		}
		doc, err := parseSimple(raw, r.name, final, ctype)
		if err != nil {
			return nil, bad(ReasonUpstream, "the project's index cannot be read: %v", err)
		}
		return doc, nil
	})
	if err != nil {
		return answer{}, err
	}
	if r.kind == pypiDoc {
		// the one header looked at: it picks between two forms of the same answer, both ours
		if strings.Contains(accept, simpleJSON) {
			return answer{body: doc.alt, ctype: simpleJSON}, nil
		}
		return answer{body: doc.body, ctype: simpleHTML}, nil
	}
	f, ok := doc.files[r.file]
	if !ok {
		return answer{}, errNotFound
	}
	if err := s.release(r, f.risk); err != nil {
		return answer{}, err
	}
	b, err := m.file(ctx, s, up, "pypi "+r.name+" "+r.file, f)
	return answer{file: b, ctype: "application/octet-stream"}, err
}

// simpleFile is one file of a project, as PEP 691 has it.
type simpleFile struct {
	Filename       string            `json:"filename"`
	URL            string            `json:"url"`
	Hashes         map[string]string `json:"hashes"`
	RequiresPython string            `json:"requires-python,omitempty"`
	Yanked         any               `json:"yanked,omitempty"`
	CoreMetadata   any               `json:"core-metadata,omitempty"`
	Size           int64             `json:"size,omitempty"`
	UploadTime     string            `json:"upload-time,omitempty"`
}

func parseSimple(raw []byte, name, from, ctype string) (*document, error) {
	kind, _, err := mime.ParseMediaType(ctype)
	if err != nil {
		return nil, errors.New("its content type cannot be read")
	}
	var files []simpleFile
	switch kind {
	case simpleJSON, "application/json":
		var p struct {
			Name  string       `json:"name"`
			Files []simpleFile `json:"files"`
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, err
		}
		files = p.Files
	case "text/html", "application/vnd.pypi.simple.v1+html":
		files = anchors(string(raw))
	default:
		return nil, errors.New("it is of an unknown content type")
	}
	doc := &document{files: map[string]remote{}}
	var keep []simpleFile
	for _, f := range files {
		sum, ok := hexDigest("sha256", f.Hashes["sha256"])
		u, err := resolveRef(from, f.URL)
		if !ok || err != nil || f.URL == "" || !pypiFileName.MatchString(f.Filename) || strings.HasSuffix(f.Filename, ".metadata") || !plainPath("/"+f.Filename) {
			continue // nothing to verify it by, or no file a client would ask for
		}
		if _, twice := doc.files[f.Filename]; twice {
			continue
		}
		src := !strings.HasSuffix(f.Filename, ".whl") // building a source archive runs its code
		doc.files[f.Filename] = remote{url: u, digest: sum, risk: risk{published: when(f.UploadTime), yanked: yanked(f.Yanked) != nil, installScript: src}}
		f.CoreMetadata = metadataOf(doc, f, u)
		f.Hashes = map[string]string{"sha256": sum.sum}
		f.URL = "../../files/" + name + "/" + escape(f.Filename)
		f.Yanked = yanked(f.Yanked)
		keep = append(keep, f)
	}
	return doc, renderSimple(doc, name, keep)
}

// metadataOf registers the metadata file beside a wheel when its digest is known.
func metadataOf(doc *document, f simpleFile, u string) any {
	hashes, _ := f.CoreMetadata.(map[string]any)
	sum, _ := hashes["sha256"].(string)
	d, ok := hexDigest("sha256", sum)
	if !ok {
		return nil
	}
	doc.files[f.Filename+".metadata"] = remote{url: u + ".metadata", digest: d}
	return map[string]string{"sha256": d.sum}
}

func yanked(v any) any {
	switch v := v.(type) {
	case string:
		return clip(v)
	case bool:
		if v {
			return true
		}
	}
	return nil
}

func renderSimple(doc *document, name string, files []simpleFile) error {
	type meta struct {
		Version string `json:"api-version"`
	}
	body := struct {
		Meta  meta         `json:"meta"`
		Name  string       `json:"name"`
		Files []simpleFile `json:"files"`
	}{meta{"1.0"}, name, slices.Concat([]simpleFile{}, files)}
	var err error
	if doc.alt, err = json.Marshal(body); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html><head><meta name=\"pypi:repository-version\" content=\"1.0\"></head><body>\n")
	for _, f := range files {
		b.WriteString(`<a href="` + html.EscapeString(f.URL) + "#sha256=" + f.Hashes["sha256"] + `"`)
		if f.RequiresPython != "" {
			b.WriteString(` data-requires-python="` + html.EscapeString(clip(f.RequiresPython)) + `"`)
		}
		if md, ok := f.CoreMetadata.(map[string]string); ok {
			b.WriteString(` data-core-metadata="sha256=` + md["sha256"] + `" data-dist-info-metadata="sha256=` + md["sha256"] + `"`)
		}
		switch y := f.Yanked.(type) {
		case string:
			b.WriteString(` data-yanked="` + html.EscapeString(y) + `"`)
		case bool:
			b.WriteString(` data-yanked=""`)
		}
		b.WriteString(">" + html.EscapeString(f.Filename) + "</a><br>\n")
	}
	b.WriteString("</body></html>\n")
	doc.body = []byte(b.String())
	return nil
}

// anchors reads the links of a PEP 503 page: nothing else of HTML matters there.
func anchors(page string) []simpleFile {
	var out []simpleFile
	for {
		_, after, ok := cutFold(page, "<a")
		if !ok {
			return out
		}
		page = after
		if page == "" || strings.IndexByte(" \t\r\n>", page[0]) < 0 {
			continue
		}
		attrs, rest := attributes(page)
		label, after, ok := cutFold(rest, "</a")
		if !ok {
			return out
		}
		page = after
		href, frag, _ := strings.Cut(attrs["href"], "#")
		f := simpleFile{Filename: strings.TrimSpace(html.UnescapeString(label)), URL: href, RequiresPython: attrs["data-requires-python"], Hashes: map[string]string{}}
		if algo, sum, ok := strings.Cut(frag, "="); ok {
			f.Hashes[algo] = sum
		}
		for _, k := range []string{"data-core-metadata", "data-dist-info-metadata"} {
			if algo, sum, ok := strings.Cut(attrs[k], "="); ok {
				f.CoreMetadata = map[string]any{algo: sum}
				break
			}
		}
		if y, ok := attrs["data-yanked"]; ok {
			f.Yanked = any(true)
			if y != "" {
				f.Yanked = y
			}
		}
		out = append(out, f)
	}
}

// cutFold is strings.Cut for an ASCII separator in any case.
func cutFold(s, sep string) (before, after string, ok bool) {
	for i := 0; i+len(sep) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(sep)], sep) {
			return s[:i], s[i+len(sep):], true
		}
	}
	return s, "", false
}

// attributes reads a tag's attributes up to its end.
func attributes(s string) (attrs map[string]string, rest string) {
	attrs = map[string]string{}
	for {
		s = strings.TrimLeft(s, " \t\r\n/")
		if s == "" {
			return attrs, ""
		}
		if s[0] == '>' {
			return attrs, s[1:]
		}
		end := strings.IndexAny(s, " \t\r\n=>/")
		if end < 0 {
			return attrs, ""
		}
		if end == 0 { // a stray sign
			s = s[1:]
			continue
		}
		key := strings.ToLower(s[:end])
		s = strings.TrimLeft(s[end:], " \t\r\n")
		val := ""
		if strings.HasPrefix(s, "=") {
			s = strings.TrimLeft(s[1:], " \t\r\n")
			if s == "" {
				return attrs, ""
			}
			if q := s[0]; q == '"' || q == '\'' {
				stop := strings.IndexByte(s[1:], q)
				if stop < 0 {
					return attrs, ""
				}
				val, s = s[1:stop+1], s[stop+2:]
			} else {
				stop := strings.IndexAny(s, " \t\r\n>")
				if stop < 0 {
					return attrs, ""
				}
				val, s = s[:stop], s[stop:]
			}
		}
		if _, twice := attrs[key]; !twice {
			attrs[key] = html.UnescapeString(val)
		}
	}
}
