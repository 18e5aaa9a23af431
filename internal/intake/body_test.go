package intake

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestUnprovenBodies: whoever sends bodies that nobody vouches for takes a bounded part of the
// memory, and a place is free again however a body ended.
func TestUnprovenBodies(t *testing.T) {
	b := newBodies()
	post := func(body io.Reader) *http.Request { return httptest.NewRequest(http.MethodPost, "/hooks/x", body) }
	want := func(what string, r *http.Request, err error) func() {
		t.Helper()
		body, free, got := b.read(httptest.NewRecorder(), r)
		if !errors.Is(got, err) || err == nil && got != nil {
			t.Fatalf("%s: %d bytes, %v", what, len(body), got)
		}
		return free
	}
	large := func() *http.Request { return post(strings.NewReader(strings.Repeat("x", smallBody+1))) }
	var held []func()
	for range maxLarge {
		held = append(held, want("a large one", large(), nil))
	}
	want("one more large one", large(), errBusy)()
	want("a small one beside them", post(strings.NewReader(strings.Repeat("x", smallBody))), nil)()
	for range maxUnproven - maxLarge {
		held = append(held, want("a small one", post(strings.NewReader("{}")), nil))
	}
	want("one too many", post(strings.NewReader("{}")), errBusy)()
	for _, free := range held {
		free()
		free() // giving back twice is once
	}
	want("a large one after all", large(), nil)()
	want("beyond the cap", post(io.LimitReader(zeros{}, MaxDelivery+1)), errLarge)()
	named := post(zeros{})
	named.ContentLength = MaxDelivery + 1
	want("beyond the cap, and says so", named, errLarge)()
	if _, free, err := b.read(httptest.NewRecorder(), post(io.MultiReader(strings.NewReader("{"), broken{}))); err == nil {
		t.Error("a body that was cut is whole")
	} else {
		free()
	}
	if len(b.all)+len(b.large) > 0 {
		t.Errorf("%d and %d places are held", len(b.all), len(b.large))
	}
	body, free, err := b.read(httptest.NewRecorder(), post(strings.NewReader(strings.Repeat("ab", smallBody))))
	if free(); err != nil || string(body) != strings.Repeat("ab", smallBody) {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
