package snapshot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

// twins are the snapshots that have one.
func twins(t *testing.T, s *Store) (digests []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.cfg.Dir, "snapshots", "*", twinDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		digests = append(digests, filepath.Base(filepath.Dir(p)))
	}
	return digests
}

// next is a snapshot of one more commit.
func next(t *testing.T, s *Store, repo, text string) Snapshot {
	t.Helper()
	write(t, repo, map[string]string{"a.txt": text, "new/" + text: text})
	gittest.Run(t, repo, "add", "-A")
	gittest.Run(t, repo, "commit", "-qm", text)
	got, err := s.Prepare(t.Context(), Source{Repo: repo})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A twin becomes the next snapshot, and of a repository there is one at most.
func TestTwinBecomesTheNextSnapshot(t *testing.T) {
	s, repo := newStore(t), repository(t)
	one := next(t, s, repo, "one")
	if err := s.Twin(t.Context(), one); err != nil || len(twins(t, s)) > 0 {
		t.Fatalf("a small tree has a twin: %v", err)
	}
	for range 2 {
		if err := s.twin(t.Context(), one); err != nil || !slices.Equal(twins(t, s), []string{one.Digest}) {
			t.Fatalf("%q %v", twins(t, s), err)
		}
	}
	made, err := os.Stat(filepath.Join(s.dir(one.Digest), twinDir, "new"))
	if err != nil {
		t.Fatal(err)
	}
	two := next(t, s, repo, "two")
	if now, err := os.Stat(filepath.Join(two.Tree, "new")); err != nil || !os.SameFile(made, now) || len(twins(t, s)) > 0 {
		t.Errorf("the twin was not used: %q %v", twins(t, s), err)
	}
	asked(t, two.Tree)
	for _, snap := range []Snapshot{one, two} { // the other's goes
		if err := s.twin(t.Context(), snap); err != nil || !slices.Equal(twins(t, s), []string{snap.Digest}) {
			t.Fatalf("%q %v", twins(t, s), err)
		}
	}
	s.Done(one)
	s.Done(two)
	if err := s.Remove(two.Digest); err != nil || len(twins(t, s)) > 0 {
		t.Errorf("%q %v", twins(t, s), err)
	}
	if err := s.twin(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context(), Policy{Full: true}); err != nil || len(twins(t, s)) > 0 {
		t.Errorf("a full disk keeps %q: %v", twins(t, s), err)
	}
	noLeftovers(t, s)
}

// A twin that lost files is passed over, and what a killed process left of one goes.
func TestDamagedTwinIsNotUsed(t *testing.T) {
	s, repo := newStore(t), repository(t)
	one := next(t, s, repo, "one")
	before, one := one, next(t, s, repo, "more")
	lefts := []string{filepath.Join(s.dir(before.Digest), twinTmp+"1"), filepath.Join(s.dir(one.Digest), twinTmp+"1")}
	for _, left := range lefts {
		if err := os.MkdirAll(filepath.Join(left, twinDir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.twin(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	for _, left := range lefts {
		if _, err := os.Lstat(left); !os.IsNotExist(err) {
			t.Errorf("%v", err)
		}
	}
	if err := os.Remove(filepath.Join(s.dir(one.Digest), twinDir, "a.txt")); err != nil {
		t.Fatal(err)
	}
	two := next(t, s, repo, "two")
	fresh := filepath.Join(t.TempDir(), "fresh")
	if _, err := s.cfg.Git.Checkout(t.Context(), two.GitDir, two.Base, fresh); err != nil {
		t.Fatal(err)
	}
	if have, want := listing(t, two.Tree), listing(t, fresh); !slices.Equal(have, want) {
		t.Errorf("%q, want %q", have, want)
	}
	if m, _, err := s.meta(two.Digest); err != nil || m.From != one.Digest {
		t.Errorf("from %q: %v", m.From, err)
	}
	noLeftovers(t, s)
}

// Many that begin with one twin get it once.
func TestTwinIsTakenOnce(t *testing.T) {
	s, repo := newStore(t), repository(t)
	one := next(t, s, repo, "one")
	if err := s.twin(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	got := make(chan bool)
	for i := range 8 {
		go func() {
			ok, err := s.takeTwin(one.Digest, filepath.Join(s.cfg.Dir, "snapshots", fmt.Sprintf(".tmp-%d", i)))
			got <- ok && err == nil
		}()
	}
	n := 0
	for range 8 {
		if <-got {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d have it", n)
	}
}
