package mirror

import (
	"bytes"
	"context"
	"crypto/md5"  //nolint:gosec // the sidecar Maven asks for; it proves nothing here
	"crypto/sha1" //nolint:gosec // as above
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"hash"
	"io"
	"strings"
)

// serveMaven speaks Maven's repository layout. Sidecars are computed here from the bytes that
// were verified, so that they cannot disagree with them.
func (m *Mirror) serveMaven(ctx context.Context, s *Session, r route) (answer, error) {
	a, err := m.mavenBytes(ctx, s, r)
	if err != nil || r.sum == "" {
		return a, err
	}
	h := map[string]func() hash.Hash{"md5": md5.New, "sha1": sha1.New, "sha256": sha256.New, "sha512": sha512.New}[r.sum]()
	if a.file != nil {
		defer a.file.Close()
		if _, err := io.Copy(h, a.file); err != nil {
			return answer{}, storeTrouble(err)
		}
	} else {
		h.Write(a.body)
	}
	return answer{body: []byte(hex.EncodeToString(h.Sum(nil))), ctype: plainText}, nil
}

func (m *Mirror) mavenBytes(ctx context.Context, s *Session, r route) (answer, error) {
	up := m.cfg.Maven
	if r.kind == mavenMeta {
		doc, _, err := m.docs.get(ctx, "maven "+r.file, metadataTTL, func(ctx context.Context) (*document, error) {
			raw, _, _, err := m.raw(ctx, s, up, join(up.URL, r.file), "*/*", metadataTTL)
			if err != nil {
				return nil, err
			}
			if err := checkMavenMetadata(raw, r.name); err != nil {
				return nil, bad(ReasonUpstream, "maven-metadata.xml cannot be read: %v", err)
			}
			return &document{body: raw}, nil
		})
		if err != nil {
			return answer{}, err
		}
		return answer{body: doc.body, ctype: "application/xml"}, nil
	}
	if err := s.release(route{eco: Maven, name: r.name, version: r.version}, risk{}); err != nil {
		return answer{}, err
	}
	f := remote{url: join(up.URL, r.file)}
	doc, _, err := m.docs.get(ctx, "mavensum "+r.file, immutableTTL, func(ctx context.Context) (*document, error) {
		key := "mavensum " + r.file
		if b, _, ok := m.store.index(key, 1<<10); ok { // a release's digest does not change
			if algo, sum, _ := strings.Cut(string(b), ":"); newHash(algo) != nil {
				return &document{extra: digest{algo, sum}}, nil
			}
		}
		d, err := m.mavenSum(ctx, s, r)
		if err == nil {
			if err := m.store.keepIndex(ref{Key: key, Want: indexWant}, []byte(d.String())); err != nil {
				m.cfg.Log.Warn("a checksum could not be kept", "error", err)
			}
		}
		return &document{extra: d}, err
	})
	if err != nil {
		return answer{}, err
	}
	f.digest, _ = doc.extra.(digest)
	b, err := m.file(ctx, s, up, "maven "+r.file, f)
	return answer{file: b, ctype: "application/octet-stream"}, err
}

// mavenSum reads the strongest sidecar the repository has.
func (m *Mirror) mavenSum(ctx context.Context, s *Session, r route) (digest, error) {
	for _, algo := range []string{"sha256", "sha1"} {
		raw, _, _, err := m.raw(ctx, s, m.cfg.Maven, join(m.cfg.Maven.URL, r.file+"."+algo), "*/*", immutableTTL)
		if errors.Is(err, errNotFound) {
			continue
		}
		if err != nil {
			return digest{}, err
		}
		word, _, _ := strings.Cut(strings.TrimSpace(string(raw)), " ") // some tools write the file's name behind it
		d, ok := hexDigest(algo, word)
		if !ok {
			return digest{}, bad(ReasonUpstream, "the %s sidecar cannot be read", algo)
		}
		return d, nil
	}
	// Neither sidecar: most often the file itself does not exist, which clients must be told as such.
	return digest{}, errNotFound
}

// checkMavenMetadata holds the file to its place and to a bounded depth; entities are refused
// by the decoder.
func checkMavenMetadata(raw []byte, name string) error {
	group, artifact, _ := strings.Cut(name, ":")
	d := xml.NewDecoder(bytes.NewReader(raw))
	var (
		stack []string
		found = map[string]string{}
	)
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch t := tok.(type) {
		case xml.StartElement:
			if stack = append(stack, t.Name.Local); len(stack) > 16 {
				return errors.New("it is nested too deeply")
			}
		case xml.EndElement:
			stack = stack[:len(stack)-1]
		case xml.CharData:
			if len(stack) == 2 {
				found[stack[1]] += strings.TrimSpace(string(t))
			}
		case xml.Directive:
			return errors.New("it declares entities")
		}
	}
	if g := found["groupId"]; g != "" && (g != group || found["artifactId"] != artifact) {
		return errors.New("it is about another artifact")
	}
	return nil
}
