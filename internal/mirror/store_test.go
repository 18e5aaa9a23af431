package mirror

import (
	"bytes"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
)

// TestNET17PoisonedDigest: each protocol's file with one byte changed is refused, with the
// reason on the ledger, and nothing of it stays on disk.
func TestNET17PoisonedDigest(t *testing.T) {
	for path, upstream := range files {
		t.Run(upstream, func(t *testing.T) {
			r := newRig(t, nil)
			f := r.up.files[upstream]
			honest := f.body
			f.body = bytes.Clone(honest)
			f.body[len(f.body)/2] ^= 1
			r.up.files[upstream] = f
			s := r.session(nil)
			s.want(path, 502, ReasonDigest)
			if count(s.ledger(), ReasonDigest) != 1 {
				t.Errorf("ledger %+v", s.ledger())
			}
			check(t, filepath.WalkDir(r.m.store.dir, func(p string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return err
				}
				b, err := os.ReadFile(p)
				if bytes.Equal(b, f.body) {
					t.Errorf("the poisoned bytes are at %s", p)
				}
				return err
			}))
			f.body = honest
			r.up.files[upstream] = f
			if got := s.want(path, 200, ""); !bytes.Equal(got, honest) { // the refusal is no memory
				t.Error("other bytes")
			}
		})
	}
}

// TestNET16CrossTask: what one task fetched another reads from the store, equal to the
// upstream's bytes; a changed promise, a changed file on disk and a registry that turns bad
// in between do not get through.
func TestNET16CrossTask(t *testing.T) {
	const path, upstream = "/npm/@team/lib/-/lib-1.0.0.tgz", "/npm/@team/lib/-/lib-1.0.0.tgz"
	r := newRig(t, nil)
	honest := r.up.files[upstream].body
	r.session(nil).want(path, 200, "")
	r.up.put(upstream, "", []byte("poison")) // too late for the store
	if got := r.session(nil).want(path, 200, ""); !bytes.Equal(got, honest) {
		t.Error("the second task read other bytes")
	}
	// the registry now promises another file: the stored one no longer answers for it
	sum := sha512.Sum512([]byte("poison"))
	doc := regexp.MustCompile(`sha512-[^"]*`).ReplaceAll(r.up.files["/npm/@team/lib"].body, []byte("sha512-"+base64.StdEncoding.EncodeToString(sum[:])))
	r.up.put("/npm/@team/lib", "", doc)
	r.clock.add(metadataTTL + time.Second)
	if got := r.session(nil).want(path, 200, ""); string(got) != "poison" {
		t.Errorf("%d bytes of what was promised before", len(got))
	}
}

func TestStoreSurvivesARestart(t *testing.T) {
	r := newRig(t, nil)
	for p := range files {
		r.session(nil).want(p, 200, "")
	}
	st := r.m.store
	again, err := openStore(st.dir, st.max, st.now)
	check(t, err)
	if len(again.refs) != len(st.refs) || again.total != st.total || len(st.refs) < len(files) {
		t.Fatalf("%d references and %d bytes after, %d and %d before", len(again.refs), again.total, len(st.refs), st.total)
	}
	// bytes changed behind its back are found on the first read, and dropped
	for key, ref := range again.refs {
		check(t, os.WriteFile(again.path(ref.SHA256), bytes.Repeat([]byte("x"), int(ref.Size)), 0o600))
		if b, _, ok := again.open(key, ref.Want); ok {
			b.Close()
			t.Errorf("%s is served from changed bytes", key)
		}
	}
	if again.total != 0 || len(again.objects) != 0 {
		t.Errorf("%d bytes left", again.total)
	}
	left, err := filepath.Glob(filepath.Join(st.dir, "*/*/*"))
	check(t, err)
	if len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
}

func putObject(t testing.TB, s *store, key, body string) error {
	b, _, err := s.get(t.Context(), key, "w", func(_ context.Context, f *os.File) error { _, err := io.WriteString(f, body); return err })
	if err == nil {
		check(t, b.Close())
	}
	return err
}

func TestStoreIsBounded(t *testing.T) {
	c := &clock{t: start}
	s, err := openStore(t.TempDir(), 1000, c.now)
	check(t, err)
	for i := range 50 {
		c.add(time.Second)
		check(t, putObject(t, s, fmt.Sprint(i), fmt.Sprintf("%0100d", i)))
		if b, _, ok := s.open("0", "w"); ok { // used all the time
			b.Close()
		} else {
			t.Fatalf("the most used object went at %d", i)
		}
		if s.total > 1000 {
			t.Fatalf("%d bytes", s.total)
		}
	}
	if _, _, ok := s.open("1", "w"); ok {
		t.Error("the least used object is still there")
	}
	objects, err := filepath.Glob(filepath.Join(s.dir, "objects/*/*"))
	check(t, err)
	refs, err := os.ReadDir(filepath.Join(s.dir, "refs"))
	check(t, err)
	if len(objects) != 10 || len(refs) != 10 {
		t.Errorf("%d objects and %d references on disk", len(objects), len(refs))
	}
}

func TestStoreSharesAndFetchesOnce(t *testing.T) {
	s, err := openStore(t.TempDir(), 1000, time.Now)
	check(t, err)
	var (
		mu    sync.Mutex
		calls int
		wg    sync.WaitGroup
		gate  = make(chan struct{})
	)
	for range 20 {
		wg.Go(func() {
			b, _, err := s.get(t.Context(), "k", "w", func(_ context.Context, f *os.File) error {
				mu.Lock()
				calls++
				mu.Unlock()
				<-gate
				_, err := f.WriteString("same")
				return err
			})
			if err != nil {
				t.Error(err)
				return
			}
			b.Close()
		})
	}
	close(gate)
	wg.Wait()
	if calls != 1 {
		t.Errorf("%d fetches", calls)
	}
	check(t, putObject(t, s, "other key", "same"))
	if len(s.objects) != 1 || s.total != 4 {
		t.Errorf("%d objects, %d bytes", len(s.objects), s.total)
	}
	if err := putObject(t, s, "big", string(make([]byte, 2000))); err != nil { // kept until the next one
		t.Error(err)
	}
	if _, _, err := s.get(t.Context(), "bad", "w", func(context.Context, *os.File) error { return errNotFound }); !errors.Is(err, errNotFound) {
		t.Errorf("%v", err)
	}
	tmp, err := os.ReadDir(s.tmp)
	check(t, err)
	if len(tmp) != 0 {
		t.Errorf("%d temporary files left", len(tmp))
	}
}

// TestAbandonedFetch: the first to ask leaves; the second still gets the file.
func TestAbandonedFetch(t *testing.T) {
	s, err := openStore(t.TempDir(), 1000, time.Now)
	check(t, err)
	begun, gate := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error)
	go func() {
		_, _, err := s.get(ctx, "k", "w", func(ctx context.Context, f *os.File) error {
			close(begun)
			<-gate
			if ctx.Err() != nil {
				return ctx.Err()
			}
			_, err := f.WriteString("x")
			return err
		})
		gone <- err
	}()
	<-begun
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(gate)
	check(t, putObject(t, s, "k", "x"))
}

func TestGoVerification(t *testing.T) {
	const zip = "/go/example.com/team/lib/@v/v1.0.0.zip"
	t.Run("the base's go.sum wins", func(t *testing.T) {
		r := newRig(t, nil)
		s := r.session(func(c *SessionConfig) {
			c.GoSum = map[string]string{"example.com/team/lib v1.0.0": "h1:AAAA"}
		})
		s.want(zip, 502, ReasonDigest)
	})
	t.Run("nothing to verify against", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Go.Sum = nil })
		r.session(nil).want(zip, 502, ReasonUnproven)
	})
	t.Run("private", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Go.Sum, c.Go.Unverified = nil, "example.com/team" })
		s := r.session(nil)
		if got := s.want(zip, 200, ""); !bytes.Equal(got, goZip1(t)) {
			t.Error("other bytes")
		}
		if len(r.m.store.refs) != 0 {
			t.Error("an unverified file is in the store")
		}
	})
	t.Run("a private name is told to no database", func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Go.Unverified = "example.com/team" })
		s := r.session(nil)
		s.want("/go/sumdb/"+fakeDB+"/lookup/example.com/team/lib@v1.0.0", 404, "")
		s.want(zip, 200, "")
		for _, req := range r.up.requests() {
			if strings.Contains(req.URL.Path, "sumdb") {
				t.Errorf("the database was asked: %s", req.URL)
			}
		}
	})
	t.Run("a lookup is proven before it is passed on", func(t *testing.T) {
		r := newRig(t, nil)
		s := r.session(nil)
		const lookup = "/go/sumdb/" + fakeDB + "/lookup/example.com/team/lib@v1.0.0"
		honest := s.want(lookup, 200, "")
		n := len(r.up.requests())
		if again := s.want(lookup, 200, ""); !bytes.Equal(again, honest) || len(r.up.requests()) != n {
			t.Error("the second answer is another one, or was fetched again")
		}
		r2 := newRig(t, nil)
		r2.up.put(lookup, "", bytes.Replace(honest, []byte("h1:"), []byte("h1:AAAA"), 1)) // signed by another database
		if status, body, _ := r2.session(nil).get(lookup); status != 502 {
			t.Errorf("%d %s", status, body)
		}
	})
	t.Run("a module that expands without end", func(t *testing.T) {
		left := int64(1000)
		if _, err := io.Copy(io.Discard, &counted{strings.NewReader(strings.Repeat("x", 2000)), &left}); !errors.Is(err, errTooLarge) {
			t.Errorf("%v", err)
		}
	})
	t.Run("a database with another key", func(t *testing.T) {
		_, key, err := note.GenerateKey(nil, fakeDB)
		check(t, err)
		r := newRig(t, func(c *Config) { c.Go.Sum.Key = key })
		r.session(nil).want(zip, 502, ReasonUpstream)
	})
}

// TestSharedFlight: who waits for another session's fetch does not inherit its empty budget.
func TestSharedFlight(t *testing.T) {
	s, err := openStore(t.TempDir(), 1000, time.Now)
	check(t, err)
	d := newDocuments(1000, time.Now)
	begun, gate := make(chan struct{}), make(chan struct{})
	poor := func() error {
		close(begun)
		<-gate
		return deny(403, ReasonFetches, "used up")
	}
	for name, get := range map[string]func(fetch func() error) error{
		"store": func(fetch func() error) error {
			b, _, err := s.get(t.Context(), "k", "w", func(context.Context, *os.File) error { return fetch() })
			if err == nil {
				b.Close()
			}
			return err
		},
		"documents": func(fetch func() error) error {
			_, _, err := d.get(t.Context(), "k", time.Minute, func(context.Context) (*document, error) { return &document{}, fetch() })
			return err
		},
	} {
		begun, gate = make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := get(poor); asRefusal(err).reason != ReasonFetches {
				t.Errorf("%s: the poor one got %v", name, err)
			}
		})
		<-begun
		wg.Go(func() {
			if err := get(func() error { return nil }); err != nil {
				t.Errorf("%s: the other got %v", name, err)
			}
		})
		close(gate)
		wg.Wait()
		if err := get(func() error { panic("never reached") }); err != nil {
			t.Errorf("%s: not kept: %v", name, err)
		}
	}
	if err := guard(func() error { panic("x") }); asRefusal(err).reason != ReasonUpstream {
		t.Errorf("%v", err)
	}
}
