package wire

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// client speaks to a server with a clock and a wait of the test's own.
func client(t *testing.T, h http.HandlerFunc, change func(*Config)) (*http.Client, string, *[]time.Duration) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	var waits []time.Duration
	now := time.Unix(1_800_000_000, 0)
	cfg := Config{Name: "test", BaseURL: srv.URL, Internal: true, Now: func() time.Time { return now }, Wait: func(_ context.Context, d time.Duration) error {
		waits = append(waits, d)
		now = now.Add(d)
		return nil
	}}
	if change != nil {
		change(&cfg)
	}
	c, err := NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c, srv.URL, &waits
}

func ask(t *testing.T, c *http.Client, method, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return errors.Join(err, res.Body.Close())
}

// TestClasses_FRG06: what a forge answers decides what is done about it.
func TestClasses_FRG06(t *testing.T) {
	for name, c := range map[string]struct {
		code   int
		header map[string]string
		body   string
		class  task.Class
		after  time.Duration
		sent   int64 // requests that a GET becomes
	}{
		"fine":                {200, nil, "{}", "", 0, 1},
		"unauthorised":        {401, nil, `{"message":"Bad credentials"}`, task.Auth, 0, 1},
		"forbidden":           {403, nil, `{"message":"no"}`, task.Auth, 0, 1},
		"secondary limit":     {403, map[string]string{"Retry-After": "60"}, `{"message":"x"}`, task.RateLimited, time.Minute, 1},
		"limit in words":      {403, nil, `{"message":"You have exceeded a secondary rate limit"}`, task.RateLimited, time.Minute, 1},
		"primary limit":       {403, map[string]string{"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1800000090"}, `{}`, task.RateLimited, 90 * time.Second, 1},
		"gitlab's limit":      {429, map[string]string{"RateLimit-Remaining": "0", "RateLimit-Reset": "1800000030"}, "", task.RateLimited, 30 * time.Second, 1},
		"short limit":         {429, map[string]string{"Retry-After": "2"}, "", task.RateLimited, 2 * time.Second, 3},
		"absurd limit":        {429, map[string]string{"Retry-After": "99999999"}, "", task.RateLimited, 24 * time.Hour, 1},
		"negative limit":      {429, map[string]string{"Retry-After": "-5"}, "", task.RateLimited, time.Minute, 1},
		"gone":                {410, nil, "", task.NotFound, 0, 1},
		"missing":             {404, nil, "", task.NotFound, 0, 1},
		"conflict":            {409, nil, "", task.Conflict, 0, 1},
		"invalid":             {422, nil, `{"message":"Validation Failed","errors":[{"code":"x"}]}`, task.Invalid, 0, 1},
		"html error":          {502, map[string]string{"Content-Type": "text/html"}, "<html>" + strings.Repeat("x", 100_000), task.Transient, 0, 3},
		"unavailable":         {503, map[string]string{"Retry-After": "1"}, "", task.Transient, time.Second, 3},
		"moved":               {301, map[string]string{"Location": "/elsewhere"}, "", task.Conflict, 0, 1},
		"moved to a metadata": {302, map[string]string{"Location": "http://169.254.169.254/latest"}, "", task.Conflict, 0, 1},
	} {
		var sent atomic.Int64
		hc, url, _ := client(t, func(w http.ResponseWriter, _ *http.Request) {
			sent.Add(1)
			w.Header().Set("Content-Type", "application/json")
			for k, v := range c.header {
				w.Header().Set(k, v)
			}
			w.WriteHeader(c.code)
			_, _ = w.Write([]byte(c.body))
		}, nil)
		err := ask(t, hc, "GET", url+"/x?secret=1")
		var e *task.Error
		if task.ClassOf(err) != c.class || c.class != "" && (!errors.As(err, &e) || e.RetryAfter != c.after) {
			t.Errorf("%s: %v (%s after %v)", name, err, task.ClassOf(err), e)
			continue
		}
		if e != nil && (strings.ContainsAny(e.Error(), "\n\r") || len(e.Error()) > 600 || strings.Contains(e.Error(), "secret")) {
			t.Errorf("%s: %q", name, e.Error())
		}
		if sent.Load() != c.sent {
			t.Errorf("%s: a GET was sent %d times, want %d", name, sent.Load(), c.sent)
		}
		sent.Store(0)
		if _ = ask(t, hc, "POST", url+"/x"); sent.Load() != 1 {
			t.Errorf("%s: a POST was sent %d times", name, sent.Load())
		}
	}
}

// TestOneHost_SSRF01: nothing but the configured origin is asked, at an address that was looked at.
func TestOneHost_SSRF01(t *testing.T) {
	var trapped atomic.Int64
	trap := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { trapped.Add(1) }))
	defer trap.Close()
	hc, url, _ := client(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, trap.URL, http.StatusFound) }, nil)
	if err := ask(t, hc, "GET", url); task.ClassOf(err) != task.Conflict {
		t.Errorf("a redirect: %v", err)
	}
	for _, other := range []string{trap.URL, "http://127.0.0.1:1/", "https" + strings.TrimPrefix(url, "http"), "http://[::1]/", "http://2130706433/"} {
		if err := ask(t, hc, "GET", other); task.ClassOf(err) != task.Invalid {
			t.Errorf("%s: %v", other, err)
		}
	}
	if trapped.Load() > 0 {
		t.Error("the trap was asked")
	}
	for _, bad := range []string{"", "x", "ftp://h/", "gopher://h/", "file:///etc/passwd", "http://example.com", "https://u:p@example.com", "//h"} {
		if _, err := NewClient(Config{Name: "x", BaseURL: bad}); task.ClassOf(err) != task.Invalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
	// The address is looked at when the socket is made: a name that means this machine is refused
	// unless the operator says that the forge is inside.
	tls := httptest.NewTLSServer(http.NotFoundHandler())
	defer tls.Close()
	c, err := NewClient(Config{Name: "x", BaseURL: strings.Replace(tls.URL, "127.0.0.1", "localhost", 1)})
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(t, c, "GET", strings.Replace(tls.URL, "127.0.0.1", "localhost", 1)); task.ClassOf(err) != task.Invalid || !strings.Contains(err.Error(), "inside the network") {
		t.Errorf("loopback by name: %v", err)
	}
}

func TestAddresses(t *testing.T) {
	for addr, want := range map[string][2]bool{ // allowed outside, allowed inside
		"8.8.8.8": {true, true}, "2606:4700::1111": {true, true},
		"127.0.0.1": {false, true}, "10.0.0.1": {false, true}, "172.20.1.1": {false, true}, "192.168.1.1": {false, true}, "100.64.0.1": {false, true},
		"::1": {false, true}, "fd00::1": {false, true}, "::ffff:10.0.0.1": {false, true}, "64:ff9b::a00:1": {false, true}, "2002:a00:1::1": {false, true},
		"169.254.169.254": {false, false}, "::ffff:169.254.169.254": {false, false}, "fe80::1%eth0": {false, false}, "0.0.0.0": {false, false},
		"224.0.0.1": {false, false}, "255.255.255.255": {false, false}, "100.100.100.200": {false, false}, "fd00:ec2::254": {false, false}, "::": {false, false},
	} {
		ip := netip.MustParseAddr(addr)
		if got := [2]bool{checkAddr("x", ip, false) == nil, checkAddr("x", ip, true) == nil}; got != want {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}

func TestLargeAnswer(t *testing.T) {
	hc, url, _ := client(t, func(w http.ResponseWriter, _ *http.Request) {
		for range MaxAnswer/(1<<20) + 1 {
			_, _ = w.Write(make([]byte, 1<<20))
		}
	}, nil)
	if err := ask(t, hc, "GET", url); task.ClassOf(err) != task.Invalid {
		t.Errorf("%v", err)
	}
}

func TestWritesKeepApart(t *testing.T) {
	hc, url, waits := client(t, func(http.ResponseWriter, *http.Request) {}, func(c *Config) { c.WriteGap = time.Second })
	for range 3 {
		if err := errors.Join(ask(t, hc, "POST", url), ask(t, hc, "GET", url)); err != nil {
			t.Fatal(err)
		}
	}
	if fmt.Sprint(*waits) != "[1s 1s]" {
		t.Errorf("waited %v", *waits)
	}
}

func TestPages(t *testing.T) {
	asked := 0
	endless := func(page int) ([]int, int, error) { asked++; return []int{page}, page + 1, nil }
	if got, err := Pages(1_000_000, endless); err != nil || len(got) != 100 || asked != 100 {
		t.Errorf("%d items, %d pages, %v", len(got), asked, err)
	}
	if got, err := Pages(7, endless); err != nil || len(got) != 7 {
		t.Errorf("%v %v", got, err)
	}
	asked = 0
	if got, err := Pages(10, func(int) ([]int, int, error) { asked++; return []int{1}, 1, nil }); err != nil || len(got) != 1 || asked != 1 {
		t.Errorf("a page that is its own next: %v %v", got, err)
	}
}

func TestPath(t *testing.T) {
	const web = "https://git.example.com/forge"
	for in, want := range map[string]string{
		web + "/a/b": "a/b", web + "/a/b.git": "a/b", web + "/a/b/": "a/b", "https://GIT.example.com/forge/a/b": "a/b", web + "/A/b.c_d-e": "A/b.c_d-e",
		web + "/a": "", web + "/a/b/c": "", web + "/../a/b": "", web + "/a/..": "", web + "/a/%2e%2e": "", web + "/a/b?x": "", web + "/a/b#x": "",
		"http://git.example.com/forge/a/b": "", "https://git.example.com.evil/forge/a/b": "", "https://git.example.com/other/a/b": "", "https://u@git.example.com/forge/a/b": "",
		web + "/a/-b": "", web + "/a/b c": "", web + "/a/b%0ac": "", "": "", "a/b": "",
	} {
		got, err := Path(web, in, 2)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", in, got, err)
		}
	}
}

func TestPins(t *testing.T) {
	now, asked, id := time.Unix(1, 0), 0, "7"
	p := &Pins{Of: func(path string) string { return map[string]string{"a/b": "7"}[path] }, Now: func() time.Time { return now }}
	p.Ask = func(_ context.Context, path string) (forge.Repository, error) {
		asked++
		return forge.Repository{ID: id, Path: path}, nil
	}
	for range 3 {
		if _, err := p.Check(t.Context(), "a/b"); err != nil {
			t.Fatal(err)
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times in a minute", asked)
	}
	if _, err := p.Check(t.Context(), "a/c"); task.ClassOf(err) != task.Invalid {
		t.Errorf("not registered: %v", err)
	}
	id, now = "8", now.Add(2*time.Minute)
	if _, err := p.Check(t.Context(), "a/b"); task.ClassOf(err) != task.Conflict {
		t.Errorf("another repository: %v", err)
	}
}

func TestStandardWebhook(t *testing.T) {
	now, body := time.Unix(1_800_000_000, 0), []byte(`{"a":1}`)
	secret := "whsec_" + base64.StdEncoding.EncodeToString([]byte("a key of some length"))
	sign := func(id string, at time.Time) http.Header {
		m := hmac.New(sha256.New, []byte("a key of some length"))
		m.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "." + string(body)))
		return http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)}, "Webhook-Signature": {"v1,AAAA v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))}}
	}
	if err := VerifyStandard(sign("1", now), body, []byte(secret), now); err != nil {
		t.Error(err)
	}
	other := sign("1", now)
	other["Webhook-Id"] = []string{"2"}
	for name, h := range map[string]http.Header{"old": sign("1", now.Add(-6*time.Minute)), "from the future": sign("1", now.Add(6*time.Minute)), "another id": other, "none": {}} {
		if err := VerifyStandard(h, body, []byte(secret), now); task.ClassOf(err) != task.Auth {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := VerifyStandard(sign("1", now), []byte(`{"a":2}`), []byte(secret), now); task.ClassOf(err) != task.Auth {
		t.Errorf("another body: %v", err)
	}
}

func FuzzVerifyHex_HOOK01(f *testing.F) {
	f.Add("sha256=00", []byte("x"))
	f.Fuzz(func(t *testing.T, header string, body []byte) {
		m := hmac.New(sha256.New, []byte("secret"))
		m.Write(body)
		good := "sha256=" + hex.EncodeToString(m.Sum(nil))
		err := VerifyHex(http.Header{"X-S": {header}}, "X-S", "sha256=", body, []byte("secret"))
		if (err == nil) != strings.EqualFold(header, good) {
			t.Errorf("%q: %v", header, err)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"a":[1,{"b":null}]}`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var v any
		_ = Decode(b, &v)
	})
}
