package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

const (
	maxFirstLoad = 100_000 // bytes over the wire, of a browser that has nothing yet
	maxPicture   = 4000    // pixels of a page that are kept
	maxTabs      = 300     // presses of a key
)

// places are the pages, beside those that the storybook and the navigation lead to.
var places = []string{"/", "/storybook/", "/storybook/empty", "/?state=failed", "/nowhere", "/tasks/t_nothing", "/leave?to=https%3A%2F%2Fexample.com%2F"}

// TestPages: every page is quiet, fits its window, can be read by everybody, is used by keyboard
// alone, and comes with few bytes; on a wide and on a narrow window, light and dark.
func TestPages(t *testing.T) {
	t.Parallel()
	axe, err := filepath.Glob(filepath.Join(top(t), ".tools/axe/axe-*.min.js"))
	if err != nil || len(axe) != 1 {
		missing(t, "axe-core is not there; run `make browser`")
	}
	checker, err := os.ReadFile(axe[0])
	if err != nil {
		t.Fatal(err)
	}
	pictures := filepath.Join(top(t), "bin/screens")
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		t.Fatal(err)
	}
	s := serve(t, "testdata/fix.yaml", "", "--storybook")
	browser := start(t)
	b := signIn(t, browser, s, "/storybook/")
	all := append(places, b.texts(`[...document.querySelectorAll('header nav a, main p a[href], .book a')].map(a => a.getAttribute('href'))`)...)
	if n := len(all) - len(places); n < 14 {
		t.Fatalf("the storybook leads to %d pages", n)
	}
	for _, path := range all[len(places):] {
		if strings.HasPrefix(path, "/tasks/") {
			b.visit(s.base + path)
			all = append(all, b.texts(`['.places a[href$="/verification"]', 'a[href*="/texts/"]', 'a[href*="/logs/"]']
				.map(q => document.querySelector('main ' + q)?.getAttribute('href')).filter(x => x)`)...)
		}
	}
	kinds := map[string]int{}
	seen := map[string]bool{}
	for _, path := range all {
		kind := regexp.MustCompile(`t_[0-9a-z]{26}|[0-9]+|[0-9a-f]{64}`).ReplaceAllString(path, "")
		if kinds[kind]++; seen[path] || kinds[kind] > 3 && kind != "/tasks/" { // every task, and some of what tasks lead to
			continue
		}
		seen[path] = true
		t.Run(name(path), func(t *testing.T) {
			t.Parallel()
			one := open(t, b.ctx)
			look(one, s, path, string(checker), filepath.Join(pictures, name(path)))
		})
	}
	t.Run("sign-in", func(t *testing.T) {
		t.Parallel()
		look(open(t, browser), s, "/sign-in", string(checker), filepath.Join(pictures, "sign-in"))
	})
}

// name is a path as the name of a file.
func name(path string) string {
	path = regexp.MustCompile(`t_0*([0-9a-z]*[1-9a-z][0-9a-z]*)`).ReplaceAllString(path, "$1")
	path = regexp.MustCompile(`[0-9a-f]{64}`).ReplaceAllString(path, "log")
	if path = strings.Trim(regexp.MustCompile(`[^0-9a-zA-Z]+`).ReplaceAllString(path, "-"), "-"); path == "" {
		return "tasks"
	}
	return path
}

func look(b *tab, s *service, path, checker, picture string) {
	b.t.Helper()
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: true})
		return err
	})
	b.forget()
	b.visit(s.base + path)
	b.until(`document.readyState === 'complete' && (!document.querySelector('#live:not([hidden])') || !!document.querySelector('#live.on'))`)
	b.mu.Lock()
	got := b.got
	if path == "/nowhere" || path == "/tasks/t_nothing" { // that a page is not there is told to the console, too
		b.said = nil
	}
	b.mu.Unlock()
	if got > maxFirstLoad || got < 1000 {
		b.t.Errorf("%s comes with %.0f bytes", path, got)
	}
	b.t.Logf("%s: %.1f kB, DOMContentLoaded after %.0f ms", path, got/1000, eval[float64](b, `performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd`))
	b.quiet(s.base)
	b.do(chromedp.Evaluate[chromedp.Void](checker + `; 0`))
	for _, width := range []int64{1280, 390} {
		b.size(width)
		for _, scheme := range []string{"light", "dark"} {
			b.scheme(scheme)
			where := fmt.Sprintf("%s at %d, %s", path, width, scheme)
			if over := b.texts(overflow); len(over) > 0 {
				b.t.Errorf("%s is wider than its window: %s", where, strings.Join(over, "\n"))
			}
			for _, v := range b.axe(scheme) {
				b.t.Errorf("%s: axe-core: %s", where, v)
			}
			b.picture(fmt.Sprintf("%s-%d-%s.png", picture, width, scheme))
		}
	}
	b.size(1280)
	b.keyboard(path)
}

// overflow names what makes a page wider than its window.
const overflow = `(() => {
	const root = document.documentElement;
	if (root.scrollWidth <= root.clientWidth) return [];
	const clips = (e) => e && e !== document.body && (getComputedStyle(e).overflowX !== 'visible' || clips(e.parentElement));
	const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > root.clientWidth + 1 && !clips(e.parentElement));
	return wide.slice(0, 3).map(e => e.outerHTML.slice(0, 160)).concat('scrollWidth ' + root.scrollWidth);
})()`

func (b *tab) scheme(v string) {
	b.t.Helper()
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: v}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}})
		return err
	})
}

// axe is what axe-core finds by the rules of WCAG 2, levels A and AA; in the dark, by those of
// colours, since nothing else of a page is another there.
func (b *tab) axe(scheme string) []string {
	b.t.Helper()
	only := `{type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']}`
	if scheme == "dark" {
		only = `{type: 'rule', values: ['color-contrast', 'link-in-text-block']}`
	}
	out := eval[string](b, `axe.run(document, {runOnly: `+only+`, resultTypes: ['violations']})
		.then(r => JSON.stringify(r.violations.map(v => v.id + ': ' + v.help + ': ' + v.nodes.slice(0, 3).map(n => n.html.slice(0, 200) + ' ' + n.any.map(a => a.message).join('; ')).join(' | '))))`, chromedp.EvalAwaitPromise)
	var found []string
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		b.t.Fatal(err)
	}
	return found
}

// picture keeps the page as it looks.
func (b *tab) picture(file string) {
	b.t.Helper()
	width := eval[int64](b, `innerWidth`)
	b.window(width, min(maxPicture, eval[int64](b, `document.documentElement.scrollHeight`))) // what is not in the window is not drawn
	height := min(maxPicture, eval[int64](b, `document.documentElement.scrollHeight`))
	b.call(func(ctx context.Context) error {
		beyond, quick := true, true
		r, err := chromedp.Call(ctx, page.CaptureScreenshot, page.CaptureScreenshotParams{
			Format: page.CaptureScreenshotFormatPng, CaptureBeyondViewport: &beyond, OptimizeForSpeed: &quick,
			Clip: &page.Viewport{Width: float64(width), Height: float64(height), Scale: 1},
		})
		if err != nil {
			return err
		}
		return os.WriteFile(file, r.Data, 0o644)
	})
	b.size(width)
}

// keyboard presses Tab until it has been everywhere: all that can be used is come by, and shows it.
func (b *tab) keyboard(path string) {
	b.t.Helper()
	n := eval[int](b, `(() => {
		document.activeElement?.blur();
		const usable = 'a[href], button:not([disabled]), input:not([type=hidden]), select, textarea, summary, [tabindex="0"]';
		window.usable = [...document.querySelectorAll(usable)].filter(e => e.checkVisibility({visibilityProperty: true}));
		window.come = new Map();
		document.addEventListener('focusin', (e) => {
			const s = getComputedStyle(e.target);
			const box = e.target.getBoundingClientRect();
			come.set(e.target, e.target.matches(':focus-visible') && box.width > 0 && box.height > 0 && (s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 || s.boxShadow !== 'none'));
		}, true);
		return window.usable.length;
	})()`)
	presses := min(n+20, maxTabs)
	b.call(func(ctx context.Context) error {
		for range presses {
			for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeRawKeyDown, input.DispatchKeyEventTypeKeyUp} {
				if _, err := chromedp.Call(ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: "Tab", Code: "Tab", WindowsVirtualKeyCode: 9}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	for _, v := range b.texts(fmt.Sprintf(`usable.slice(0, %d).filter(e => !come.has(e)).map(e => 'is not come by: ' + e.outerHTML.slice(0, 160))
		.concat([...come].filter(([e, ring]) => !ring).map(([e]) => 'shows no focus: ' + e.outerHTML.slice(0, 160))).slice(0, 8)`, presses-20)) {
		b.t.Errorf("%s by keyboard: %s", path, v)
	}
}

// TestLong: a task of 5,000 events opens, scrolls, and shows the earlier of its steps on demand.
func TestLong(t *testing.T) {
	t.Parallel()
	s := serve(t, "testdata/fix.yaml", "", "--storybook")
	b := signIn(t, start(t), s, "/storybook/")
	path := eval[string](b, `[...document.querySelectorAll('.book a')].find(a => a.innerText === '5,000 events').getAttribute('href')`)
	began := time.Now()
	b.visit(s.base + path)
	took := eval[float64](b, `performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd`)
	t.Logf("5,000 events: DOMContentLoaded after %.0f ms, loaded after %s", took, time.Since(began).Round(time.Millisecond))
	if took > 5000 {
		t.Errorf("DOMContentLoaded came after %.0f ms", took)
	}
	if n := eval[int](b, `Number([...document.querySelectorAll('#facts dt')].find(e => e.innerText === 'Events').nextElementSibling.innerText.replace(/\D/g, ''))`); n < 4900 {
		t.Errorf("the task has %d events", n)
	}
	was := eval[int](b, onPage)
	b.do(chromedp.ScrollIntoView(chromedp.CSS("#step-list > li:last-child")))
	b.do(chromedp.ScrollIntoView(chromedp.CSS("#step-list > .earlier")))
	top := `Math.round(document.querySelector('#step-list > .earlier').nextElementSibling.getBoundingClientRect().top)`
	first := eval[string](b, `document.querySelector('#step-list > .earlier').nextElementSibling.id`)
	at := eval[int](b, top)
	b.click("#step-list > .earlier a")
	b.until(fmt.Sprintf(`%s > %d`, onPage, was))
	if now := eval[int](b, fmt.Sprintf(`Math.round(document.getElementById(%s).getBoundingClientRect().top)`, quote(first))); now < at-40 || now > at+80 {
		t.Errorf("the reader's place moved from %d to %d", at, now)
	}
	b.quiet(s.base)
}
