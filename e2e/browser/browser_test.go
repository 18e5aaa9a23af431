// Package browser holds what a real browser makes of the pages of a real service: they grow while
// a task runs, survive a lost connection, take people's words with scripts and without, let no text
// of strangers act, and can be read by everybody.
//
// Invariants: nothing but the loopback is reached; every wait is for something that happens, never
// for time to pass; a browser context belongs to one person of one test.
package browser

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// start begins a browser that ends with the test.
func start(t *testing.T) context.Context {
	t.Helper()
	var path string
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		missing(t, "no browser was found; run `make test-browser`, or install chromium")
	}
	options := []chromedp.ExecAllocatorOption{chromedp.ExecPath(path), chromedp.Headless, chromedp.DisableGPU, chromedp.NoFirstRun, chromedp.NoDefaultBrowserCheck}
	for _, name := range []string{
		"disable-quic", "disable-background-networking", "disable-component-update", "disable-sync", "disable-default-apps", "disable-extensions",
		"disable-breakpad", "disable-dev-shm-usage", "no-proxy-server", "disable-background-timer-throttling", "disable-backgrounding-occluded-windows",
		"disable-renderer-backgrounding", "hide-scrollbars",
	} {
		options = append(options, chromedp.Flag(name, true))
	}
	options = append(options, chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	all, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, end := chromedp.NewContext(all)
	t.Cleanup(end)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("the browser does not start: %v", err)
	}
	return ctx
}

// tab is a page as a person has it open, and what it did.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	said     []string // by the console: scripts, the browser, broken rules
	asked    []string // addresses of requests
	got      float64  // bytes
	messages []message
	resumed  []string // Last-Event-ID of requests
}

// message is what a live stream brought.
type message struct{ id, name string }

// open makes a tab. A browser's context makes one of a new person, a tab's one of the same person.
func open(t *testing.T, in context.Context) *tab {
	t.Helper()
	var options []chromedp.ContextOption
	if chromedp.FromContext(in).BrowserContextID == "" {
		options = append(options, chromedp.WithNewBrowserContext())
	}
	ctx, end := chromedp.NewContext(in, options...)
	t.Cleanup(end)
	b := &tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	b.size(1280)
	return b
}

// signIn opens a tab of a new person and signs in by the one-time link, which leads to a page.
func signIn(t *testing.T, browser context.Context, s *service, to string) *tab {
	t.Helper()
	b := open(t, browser)
	b.visit(s.link(t, to))
	if at := b.at(); at != s.base+to {
		t.Fatalf("the link leads to %s, not %s", at, to)
	}
	return b
}

func (b *tab) hear(ev any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := ev.(type) {
	case *runtime.EventConsoleAPICalled:
		text := string(e.Type)
		for _, a := range e.Args {
			text += fmt.Sprintf(" %s%s", a.Value, a.Description)
		}
		b.said = append(b.said, text)
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, "exception: "+fmt.Sprint(e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		b.said = append(b.said, fmt.Sprintf("%s %s: %s %s", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *network.EventRequestWillBeSentExtraInfo:
		for k, v := range e.Headers {
			if strings.EqualFold(k, "Last-Event-ID") {
				b.resumed = append(b.resumed, fmt.Sprint(v))
			}
		}
	case *network.EventLoadingFinished:
		b.got += e.EncodedDataLength
	case *network.EventEventSourceMessageReceived:
		b.messages = append(b.messages, message{e.EventID, e.EventName})
	}
}

// quiet reports everything that the console was told since the last time, and that nothing was
// asked for elsewhere.
func (b *tab) quiet(base string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.said {
		b.t.Errorf("the console: %s", s)
	}
	for _, u := range b.asked {
		if !strings.HasPrefix(u, base+"/") && u != "about:blank" {
			b.t.Errorf("the page asked for %s", u)
		}
	}
	b.said, b.asked = nil, nil
}

// do runs steps in the tab.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", b.where(), err)
	}
}

func (b *tab) visit(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// goes does what leads to another page and waits for it.
func (b *tab) goes(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if _, err := chromedp.RunResponse(ctx, steps...); err != nil {
		b.t.Fatalf("%s: %v", b.where(), err)
	}
}

func (b *tab) at() string { return eval[string](b, `location.href`) }

// where is for messages, also of a tab that answers no more.
func (b *tab) where() string {
	ctx, cancel := context.WithTimeout(b.ctx, 5*time.Second)
	defer cancel()
	at, err := chromedp.Run(ctx, chromedp.Location())
	if err != nil {
		return "?"
	}
	return at
}

// eval is the value of an expression in the page.
func eval[T any](b *tab, expression string, options ...chromedp.EvaluateOption) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, options...))
	if err != nil {
		b.t.Fatalf("%s: %.200s: %v", b.where(), expression, err)
	}
	return v
}

// until waits until an expression holds. It asks again and again: an observer of mutations is not told
// of every text that changes in place.
func (b *tab) until(expression string) {
	b.t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(patience))); err != nil {
		b.t.Fatalf("%s: never %s: %v", b.where(), expression, err)
	}
}

// shows waits until an element has a text in it.
func (b *tab) shows(selector, text string) {
	b.t.Helper()
	b.until(fmt.Sprintf(`!!document.querySelector(%s)?.innerText.includes(%s)`, quote(selector), quote(text)))
}

func (b *tab) texts(expression string) []string {
	b.t.Helper()
	return eval[[]string](b, expression)
}

func (b *tab) click(selector string) { b.t.Helper(); b.do(chromedp.Click(chromedp.CSS(selector))) }

func (b *tab) write(selector, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// withoutScripts is a browser that runs no script of a page.
func (b *tab) withoutScripts() {
	b.t.Helper()
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return err
	})
}

func (b *tab) call(f func(ctx context.Context) error) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error { return f(ctx) }))
}

func (b *tab) size(width int64) { b.t.Helper(); b.window(width, 900) }

func (b *tab) window(width, height int64) {
	b.t.Helper()
	b.call(func(ctx context.Context) error {
		_, err := chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1})
		return err
	})
}

// stream is what the live stream brought by now, and from where it was resumed.
func (b *tab) stream() ([]message, []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.messages), slices.Clone(b.resumed)
}

func (b *tab) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said, b.asked, b.got = nil, nil, 0
}

func quote(s string) string {
	b, _ := json.Marshal(s) // of a string, which cannot fail
	return string(b)
}
