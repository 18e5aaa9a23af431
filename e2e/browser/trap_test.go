package browser

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"
)

// trap is a host that texts of strangers want a browser to ask.
type trap struct {
	*httptest.Server
	touched atomic.Int32 // connections, whatever was said on them
}

func newTrap(t *testing.T) *trap {
	t.Helper()
	h := &trap{Server: httptest.NewUnstartedServer(http.NotFoundHandler())}
	h.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			h.touched.Add(1)
		}
	}
	h.Start()
	t.Cleanup(h.Close)
	return h
}

// lured puts the trap's address, and what texts cannot hold in YAML, into a file of testdata.
func (h *trap) lured(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("TRAP", h.URL, "HOST", h.Listener.Addr().String()).Replace(string(b))
}

// TestTrap_WEB01_WEB02_WEB04: an issue, a model, output, file names, a diff and a pull request's text all try to
// make the browser of who reads them act. It asks the trap for nothing on any page, runs nothing of
// theirs, and no rule of the pages had to step in.
func TestTrap_WEB01_WEB02_WEB04(t *testing.T) {
	t.Parallel()
	h := newTrap(t)
	script := filepath.Join(t.TempDir(), "trap.yaml")
	if err := os.WriteFile(script, []byte(h.lured(t, "trap.yaml")), 0o644); err != nil {
		t.Fatal(err)
	}
	s := serve(t, script, "")
	browser := start(t)
	second := s.gate.hold(2)
	id := s.ask(t, h.lured(t, "trap.md"))
	second.wait(t)
	b := signIn(t, browser, s, "/tasks/"+id)
	b.shows("#live.on", "live") // what comes over the stream is put in by a script
	second.letGo()
	s.until(t, id, "state.changed", map[string]string{"to": "in_review"})
	b.shows("#status", "in review")

	seen := map[string]bool{}
	for todo := []string{"/", "/tasks/" + id}; len(todo) > 0; todo = todo[1:] {
		path := todo[0]
		if seen[path] {
			continue
		}
		seen[path] = true
		if path != "/tasks/"+id || b.at() != s.base+path {
			b.visit(s.base + path)
		}
		inert(b, path)
		todo = append(todo, b.texts(`[...document.querySelectorAll('main a[href]:not([download])')].filter(a => a.origin === location.origin && !a.dataset.earlier)
			.map(a => a.pathname + a.search).filter(p => p.startsWith('/tasks/') || p.startsWith('/leave'))`)...)
	}
	for _, want := range []string{"/verification", "/texts/", "/leave"} {
		if !strings.Contains(fmt.Sprint(seen), want) {
			t.Errorf("no page %s was among %v", want, seen)
		}
	}
	b.quiet(s.base)
	if n := h.touched.Load(); n > 0 {
		t.Errorf("the trap was touched %d times", n)
	}
	// The trap can be reached from a page without rules, in the same browser.
	loose := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintf(w, "<!doctype html><img src=%s/control>", h.URL)
	}))
	t.Cleanup(loose.Close)
	open(t, browser).visit(loose.URL)
	if h.touched.Load() == 0 {
		t.Error("a page without rules does not touch the trap either")
	}
}

// inert opens everything that a page folds, and looks for what a text made of itself.
func inert(b *tab, path string) {
	b.t.Helper()
	b.do(chromedp.Evaluate[chromedp.Void](`for (const d of document.querySelectorAll('details')) d.open = true`))
	for _, bad := range b.texts(`(() => {
		const bad = [];
		for (const e of document.querySelectorAll('*')) {
			if (['IMG', 'IFRAME', 'OBJECT', 'EMBED', 'VIDEO', 'AUDIO', 'BASE', 'STYLE', 'MATH', 'FORM', 'META', 'LINK', 'SCRIPT'].includes(e.tagName) && e.closest('main')) {
				if (e.tagName !== 'FORM' || new URL(e.action).origin !== location.origin) bad.push(e.outerHTML.slice(0, 200));
			}
			for (const a of e.attributes) {
				const leads = ['href', 'src', 'action', 'formaction', 'xlink:href'].includes(a.name) && /^\s*(javascript|data|vbscript):/i.test(a.value);
				if (a.name.startsWith('on') || a.name === 'style' || leads) bad.push(e.outerHTML.slice(0, 200));
			}
			if (e.tagName === 'A' && e.origin !== location.origin && !location.pathname.startsWith('/leave')) bad.push(e.outerHTML.slice(0, 200));
		}
		if (window.owned) bad.push('a script of a text ran');
		const text = document.querySelector('main').innerText;
		for (const c of ['\u202e', '\u2066', '\u200b', '\u001b']) if (text.includes(c)) bad.push('character ' + c.charCodeAt(0).toString(16));
		return bad;
	})()`) {
		b.t.Errorf("%s: %s", path, bad)
	}
}
