package mirror

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// handler is one session's face of the mirror.
type handler struct {
	m *Mirror
	s *Session
	// path finds the route's path in a request; nil takes the request's own.
	path func(*http.Request) (string, error)
}

// answer is what a route gives back: a document in memory or a verified file.
type answer struct {
	body  []byte
	file  *blob
	ctype string
}

// ServeHTTP checks the form of the request, then its path, then its name; only then is
// anything looked up.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rt, err := h.accept(r)
	var a answer
	ctx, asked := counting(r.Context())
	if err == nil {
		a, err = h.m.answer(ctx, h.s, rt, r.Header.Get("Accept"))
	}
	hd := w.Header()
	hd.Set("X-Content-Type-Options", "nosniff")
	hd["Date"] = nil
	switch {
	case err == nil:
		h.m.net.counts.served.Add(1)
		if asked.Load() == 0 {
			h.m.net.counts.stored.Add(1)
		}
		h.send(w, r, a)
	case errors.Is(err, errNotFound):
		plain(w, http.StatusNotFound, "not found")
	case r.Context().Err() != nil && errors.Is(err, r.Context().Err()):
		panic(http.ErrAbortHandler) // the client left; an empty 200 must not be what it might still read
	default:
		ref := asRefusal(err)
		if ref.reason == ReasonUpstream || ref.reason == ReasonDigest || ref.status >= 500 {
			h.m.cfg.Log.Warn("mirror refused", "task", h.s.cfg.Task, "reason", ref.reason, "name", clip(rt.name), "error", clip(ref.Error()))
		}
		h.m.net.counts.refused.Add(1)
		h.s.refused(rt, ref)
		hd.Set("X-Refused", string(ref.reason))
		if ref.reason == ReasonForm || r.ContentLength != 0 || len(r.TransferEncoding) > 0 {
			hd.Set("Connection", "close") // what follows on this connection is not to be parsed
			// and not to be waited for either; a connection without deadlines is a test's own
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
		}
		plain(w, ref.status, "refused ("+string(ref.reason)+"): "+clip(ref.Error()))
	}
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n") // the client may have left
}

// accept refuses every form of request that no package manager needs.
func (h *handler) accept(r *http.Request) (route, error) {
	if err := h.s.admit(); err != nil {
		return route{}, err
	}
	switch {
	case r.Method == http.MethodConnect:
		return route{}, deny(http.StatusMethodNotAllowed, ReasonForm, "CONNECT is not offered: this is no proxy")
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return route{}, deny(http.StatusMethodNotAllowed, ReasonMethod, "only GET and HEAD are offered")
	case r.ProtoMajor != 1 || !strings.HasPrefix(r.RequestURI, "/") || r.URL.Host != "" || r.URL.User != nil:
		return route{}, deny(http.StatusBadRequest, ReasonForm, "only plain HTTP/1 requests for a path are taken")
	case r.Header.Get("Upgrade") != "" || r.Header.Get("HTTP2-Settings") != "" || r.Header.Get("Expect") != "":
		return route{}, deny(http.StatusBadRequest, ReasonForm, "upgrades and expectations are not offered")
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0 || len(r.Trailer) > 0:
		return route{}, deny(http.StatusBadRequest, ReasonBody, "a request has no body here")
	case r.URL.RawQuery != "" || r.URL.ForceQuery:
		return route{}, deny(http.StatusBadRequest, ReasonQuery, "a request has no query here")
	}
	path := r.URL.Path
	if h.path != nil {
		var err error
		if path, err = h.path(r); err != nil {
			return route{}, err
		}
	}
	rt, ok := parseRoute(path)
	if !ok {
		return route{}, deny(http.StatusNotFound, ReasonPath, "no registry has the path %q", clip(path))
	}
	return rt, nil
}

// answer looks a route up.
func (m *Mirror) answer(ctx context.Context, s *Session, r route, accept string) (answer, error) {
	if !m.serves(r) {
		return answer{}, errNotFound
	}
	if r.kind == debPool {
		if err := m.debKnown(ctx, s, r); err != nil {
			return answer{}, err
		}
	}
	if r.name != "" {
		if err := s.name(r); err != nil {
			return answer{}, err
		}
	}
	switch r.eco {
	case Go:
		return m.serveGo(ctx, s, r)
	case NPM:
		return m.serveNPM(ctx, s, r)
	case PyPI:
		return m.servePyPI(ctx, s, r, accept)
	case Crates:
		return m.serveCrates(ctx, s, r)
	case Maven:
		return m.serveMaven(ctx, s, r)
	default:
		return m.serveDebian(ctx, s, r)
	}
}

func (m *Mirror) serves(r route) bool {
	switch r.eco {
	case Go:
		return m.cfg.Go != nil
	case NPM:
		return m.cfg.NPM != nil
	case PyPI:
		return m.cfg.PyPI != nil
	case Crates:
		return m.cfg.Crates != nil
	case Maven:
		return m.cfg.Maven != nil
	default:
		return m.archives[r.archive] != nil
	}
}

// file returns a verified package file, from the store or fetched and checked now.
func (m *Mirror) file(ctx context.Context, s *Session, u *Upstream, key string, f remote) (*blob, error) {
	if f.digest.zero() {
		return nil, bad(ReasonUnproven, "the registry promises no digest for this file")
	}
	b, _, err := m.store.get(ctx, key, f.digest.String(), m.download(s, u, f))
	return b, err
}

const (
	stall     = 30 * time.Second // a client that takes none of a piece in this time is cut off
	pieceSize = 256 << 10
)

// send writes the answer in pieces, each with its own deadline, so that a slow reader of a
// large file lives and a client that stops reading does not hold the connection.
func (h *handler) send(w http.ResponseWriter, r *http.Request, a answer) {
	size := int64(len(a.body))
	src := io.Reader(bytes.NewReader(a.body))
	if a.file != nil {
		defer a.file.Close()
		size, src = a.file.size, a.file.File
	}
	w.Header().Set("Content-Type", a.ctype)
	w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	rc := http.NewResponseController(w)
	for size > 0 {
		n := min(size, pieceSize)
		if err := rc.SetWriteDeadline(time.Now().Add(stall)); err != nil && !errors.Is(err, http.ErrNotSupported) {
			return
		}
		done, err := io.CopyN(w, src, n)
		h.m.net.counts.out.Add(done)
		if err != nil {
			return // a short answer under its Content-Length is seen by the client
		}
		size -= n
	}
}
