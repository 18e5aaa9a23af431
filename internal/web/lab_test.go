package web

import (
	"bufio"
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/access"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/live"
	"github.com/daybreak-agent/daybreak/internal/overview"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/store/sqlite"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// lab is a site on a real store, with the storybook, as one viewer at a time sees it.
type lab struct {
	t     testing.TB
	st    store.Store
	site  *Site
	fleet *fleet
	desk  *desk
	mux   *http.ServeMux
	who   access.Viewer
}

func now() time.Time { return time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC) }

func newLab(t testing.TB) *lab {
	t.Helper()
	st, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "d.db"), sqlite.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	hub := live.New(live.Config{Source: st, Total: 2000, Viewer: 2000, Now: time.Now, Logger: log})
	t.Cleanup(func() {
		hub.Close()
		st.Close()
	})
	gate := access.NewGate(access.GateConfig{Host: func(string) (forge.Host, bool) { return nil, false }, Task: st.Task, Now: now})
	fleet := &fleet{}
	board := overview.New(overview.Config{Records: st, Gate: gate, Fleet: fleet.now, Streams: hub.Open, Now: fleet.clock})
	l := &lab{t: t, st: st, fleet: fleet, desk: &desk{}, mux: http.NewServeMux(), who: access.Viewer{Name: "mira", All: true, Scopes: access.Scopes()}}
	if l.site, err = New(Config{Source: st, Desk: l.desk, Gate: gate, Board: board, Hub: hub, Now: now, Logger: log, SignOut: true, Storybook: true}); err != nil {
		t.Fatal(err)
	}
	for _, r := range l.site.Routes() {
		l.mux.Handle(r.Pattern, r.Handler)
	}
	return l
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// ServeHTTP is the site for the lab's viewer.
func (l *lab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.mux.ServeHTTP(w, r.WithContext(access.With(r.Context(), l.who)))
}

func (l *lab) get(path string, header ...string) *httptest.ResponseRecorder {
	l.t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w
}

// page gets a page that must be there.
func (l *lab) page(path string) string {
	l.t.Helper()
	w := l.get(path)
	if w.Code != http.StatusOK {
		l.t.Fatalf("GET %s: %d\n%.400s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

func (l *lab) post(path string, form url.Values, header ...string) *httptest.ResponseRecorder {
	l.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w
}

// desk notes what it was asked.
type desk struct {
	mu   sync.Mutex
	said []string
	err  error
}

func (d *desk) note(parts ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.said = append(d.said, strings.Join(parts, "|"))
	return d.err
}

func (d *desk) Steer(_ context.Context, id task.ID, who, text string) error {
	return d.note("steer", string(id), who, text)
}

func (d *desk) Stop(_ context.Context, id task.ID, who, reason string) error {
	return d.note("stop", string(id), who, reason)
}

func (d *desk) Approve(_ context.Context, id task.ID, who, tree string) error {
	return d.note("approve", string(id), who, tree)
}

func (d *desk) Retry(_ context.Context, id task.ID, who string) (task.ID, error) {
	return storetest.ID(77), d.note("retry", string(id), who)
}

// fleet is what runs, as a test says; each time it is asked it is a minute later.
type fleet struct {
	mu    sync.Mutex
	f     overview.Fleet
	asked int
}

func (f *fleet) set(n overview.Fleet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.f = n
}

func (f *fleet) now(context.Context) (overview.Fleet, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.f, nil
}

func (f *fleet) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	return now().Add(time.Duration(f.asked) * time.Minute)
}

// element is a start tag of a page.
type element struct {
	name  string
	attrs map[string]string
	text  string // up to its end, of elements in it too
}

// void are elements without an end.
var void = []string{"meta", "link", "input", "br", "hr", "path", "rect"}

// texts are elements whose text tests look at.
var texts = []string{"button", "a", "summary", "script"}

// elements reads a page of ours strictly: every tag closed in order, every attribute quoted. What a
// browser would read in another way is an error.
func elements(t testing.TB, page string) []element {
	t.Helper()
	var out []element
	var open []int
	rest := strings.TrimPrefix(page, "<!doctype html>")
	for rest != "" {
		i := strings.IndexByte(rest, '<')
		if i < 0 {
			i = len(rest)
		}
		text := rest[:i]
		if strings.Contains(text, ">") {
			t.Fatalf("a bare > in %.100q", text)
		}
		for _, k := range open {
			if slices.Contains(texts, out[k].name) || out[k].attrs["class"] == "issue" {
				out[k].text += unescape(text)
			}
		}
		if rest = rest[i:]; rest == "" {
			break
		}
		end := strings.IndexByte(rest, '>')
		if end < 0 {
			t.Fatalf("an unclosed tag at %.100q", rest)
		}
		tag := rest[1:end]
		rest = rest[end+1:]
		if name, closing := strings.CutPrefix(tag, "/"); closing {
			if len(open) == 0 || out[open[len(open)-1]].name != name {
				t.Fatalf("a stray end of %s before %.100q", name, rest)
			}
			open = open[:len(open)-1]
			continue
		}
		name, attrs, _ := strings.Cut(tag, " ")
		e := element{name: name, attrs: map[string]string{}}
		for attrs = strings.TrimSpace(attrs); attrs != ""; attrs = strings.TrimSpace(attrs) {
			k := strings.IndexAny(attrs, "= ")
			if k < 0 {
				k = len(attrs)
			}
			key := attrs[:k]
			attrs = attrs[k:]
			value := ""
			if v, ok := strings.CutPrefix(attrs, `="`); ok {
				end := strings.IndexByte(v, '"')
				if end < 0 {
					t.Fatalf("an attribute without an end in %.200q", tag)
				}
				value, attrs = unescape(v[:end]), v[end+1:]
			} else if strings.HasPrefix(attrs, "=") {
				t.Fatalf("an attribute without quotes in %.200q", tag)
			}
			e.attrs[key] = value
		}
		out = append(out, e)
		if !slices.Contains(void, name) || name == "path" || name == "rect" {
			open = append(open, len(out)-1)
		}
	}
	if len(open) > 0 {
		t.Fatalf("%s is not closed", out[open[len(open)-1]].name)
	}
	return out
}

func unescape(s string) string {
	return strings.NewReplacer("&lt;", "<", "&gt;", ">", "&#34;", `"`, "&#39;", "'", "&quot;", `"`, "&amp;", "&").Replace(s)
}

// stream reads server-sent events until f says that it is enough.
func stream(t *testing.T, base, path, last string, f func(id, name, data string) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	in := bufio.NewScanner(res.Body)
	in.Buffer(nil, 16<<20)
	var id, name string
	var data []string
	for in.Scan() {
		switch key, value, _ := strings.Cut(in.Text(), ": "); key {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = append(data, value)
		case "":
			if name != "" && f(id, name, strings.Join(data, "\n")) {
				return
			}
			name, data = "", nil
		}
	}
	t.Fatalf("the stream %s ended: %v", path, in.Err())
}

func unpack(t testing.TB, b io.Reader) string {
	t.Helper()
	z, err := gzip.NewReader(b)
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
