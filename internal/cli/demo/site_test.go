package demo

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/store/storetest"
)

// TestSite: the link that the demo prints signs its first visitor in and leads to the task's page,
// a second visitor is not let in, and the pages end with the demo.
func TestSite(t *testing.T) {
	env := &kit.Env{
		In: strings.NewReader(""), Out: io.Discard, Err: io.Discard, Dir: t.TempDir(), Now: time.Now,
		Getenv: func(k string) string { return map[string]string{"HOME": t.TempDir()}[k] },
	}
	a, err := env.Open(t.Context(), func(o *app.Options) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Close() }()
	a.Config.Serve.Listen = "127.0.0.1:0"
	id := storetest.New(t, a.Store, 1)
	s, err := openSite(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	link, err := s.link(t.Context(), "/tasks/"+string(id))
	if err != nil {
		t.Fatal(err)
	}
	get := func() (string, string) {
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&http.Client{Jar: jar}).Get(link)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		b, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.Request.URL.Path, string(b)
	}
	if path, page := get(); path != "/tasks/"+string(id) || !strings.Contains(page, `data-task="`+string(id)) {
		t.Errorf("the link leads to %s\n%.300s", path, page)
	}
	if path, _ := get(); path == "/tasks/"+string(id) {
		t.Error("the link signs in twice")
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := ender{end: cancel} // ctrl-C, once the link is printed
	if err := s.rest(ctx, &out); err != nil || !strings.Contains(out.String(), "next=%2Ftasks%2F"+string(id)) {
		t.Errorf("the demo ends with %q, %v", out.String(), err)
	}
	s.close()
	if _, err := http.Get(s.base); err == nil {
		t.Error("the pages are still there")
	}
}

type ender struct {
	bytes.Buffer
	end func()
}

func (e *ender) Write(b []byte) (int, error) {
	defer e.end()
	return e.Buffer.Write(b)
}
