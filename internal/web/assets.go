package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"

	"github.com/daybreak-agent/daybreak/internal/access"
)

//go:embed static
var static embed.FS

// assets are the styles, scripts and pictures, under names that hold the hash of their content, so
// that a browser keeps them for good.
type assets struct {
	byName map[string]*asset // served name → content
	names  map[string]string // file name → path with the hash
}

type asset struct {
	kind        string
	plain, gzip []byte
}

func loadAssets() (*assets, error) {
	a := &assets{byName: map[string]*asset{}, names: map[string]string{}}
	files, err := static.ReadDir("static")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		b, err := static.ReadFile("static/" + f.Name())
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(b)
		ext := path.Ext(f.Name())
		served := strings.TrimSuffix(f.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		var z bytes.Buffer
		zw, _ := gzip.NewWriterLevel(&z, gzip.BestCompression)
		if _, err := zw.Write(b); err != nil {
			return nil, err
		}
		if err := zw.Close(); err != nil {
			return nil, err
		}
		kind := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}[ext]
		a.byName[served] = &asset{kind: kind, plain: b, gzip: z.Bytes()}
		a.names[f.Name()] = "/static/" + served
	}
	return a, nil
}

func (a *assets) path(name string) string { return a.names[name] }

func (a *assets) serve(w http.ResponseWriter, r *http.Request) error {
	f := a.byName[r.PathValue("name")]
	if f == nil {
		return access.Gone()
	}
	h := w.Header()
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Content-Type", f.kind)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		_, _ = w.Write(f.gzip)
		return nil
	}
	_, _ = w.Write(f.plain)
	return nil
}

func (a *assets) icon(w http.ResponseWriter, r *http.Request) {
	http.Redirect(w, r, a.path("mark.svg"), http.StatusFound)
}
