package snapshot

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// packs are the files that hold the mirror's objects.
func packs(t *testing.T, gitdir string) []string {
	t.Helper()
	gittest.Run(t, gitdir, "repack", "-adq")
	found, err := filepath.Glob(filepath.Join(gitdir, "objects", "pack", "*.pack"))
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	return found
}

// A damaged mirror is made anew, with all commits that it was to keep, whatever the damage is.
func TestDamagedMirrorIsMadeAnew(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, gitdir string) error{
		"objects are gone": func(t *testing.T, gitdir string) error { return os.Remove(packs(t, gitdir)[0]) },
		"bytes changed": func(t *testing.T, gitdir string) error {
			p := packs(t, gitdir)[0]
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			for i := range b[len(b)/3 : len(b)/2] {
				b[len(b)/3+i] ^= 0x55
			}
			if err := os.Chmod(p, 0o644); err != nil {
				return err
			}
			return os.WriteFile(p, b, 0o644)
		},
		"no repository": func(_ *testing.T, gitdir string) error { return os.RemoveAll(filepath.Join(gitdir, "objects")) },
		"was interrupted": func(_ *testing.T, gitdir string) error {
			return os.Rename(gitdir, strings.TrimSuffix(gitdir, ".git")+".damaged")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, repo := newStore(t), repository(t)
			snaps := preparedMany(t, s, repo, 2)
			if err := damage(t, s.mirror(repo)); err != nil {
				t.Fatal(err)
			}
			// In another environment, so that the mirror is needed; nothing is near any more either.
			for _, snap := range snaps {
				if err := s.Remove(snap.Digest); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: snaps[0].Base, Environment: "other"})
			if err != nil || !strings.Contains(got.Rebuilt, "damaged") {
				t.Fatalf("%+v %v", got, err)
			}
			asked(t, got.Tree)
			if s.cfg.Git.Damaged(t.Context(), s.mirror(repo)) {
				t.Error("still damaged")
			}
			if got := pins(s.mirror(repo)); len(got) != 2 {
				t.Errorf("pins %q", got)
			}
			if _, err := os.Stat(s.damaged(mirrorName(repo))); err == nil {
				t.Error("the damaged one is still there")
			}
			got, err = s.Prepare(t.Context(), Source{Repo: repo, Ref: snaps[1].Base})
			if err != nil || got.Rebuilt != "" {
				t.Errorf("%+v %v", got, err)
			}
		})
	}
}

// The collector finds a damaged mirror before a task does.
func TestCollectFindsDamage(t *testing.T) {
	s, repo := newStore(t), repository(t)
	snap := preparedMany(t, s, repo, 1)[0]
	if err := os.Remove(packs(t, s.mirror(repo))[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Collect(t.Context(), Policy{}); err != nil {
		t.Fatal(err)
	}
	got, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: snap.Base})
	if err != nil || got.Rebuilt == "" || s.cfg.Git.Damaged(t.Context(), s.mirror(repo)) {
		t.Errorf("%+v %v", got, err)
	}
}

// A damaged mirror that somebody reads stays where it is until they are done.
func TestDamagedMirrorInUseIsLeft(t *testing.T) {
	s, repo := newStore(t), repository(t)
	snap := preparedMany(t, s, repo, 1)[0]
	other, err := New(s.cfg)
	if err != nil {
		t.Fatal(err)
	}
	held, err := other.Prepare(t.Context(), Source{Repo: repo, Ref: snap.Base})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(packs(t, s.mirror(repo))[0]); err != nil {
		t.Fatal(err)
	}
	for _, free := range []bool{false, true} {
		if free {
			other.Done(held)
		}
		if _, err := s.Collect(t.Context(), Policy{}); err != nil {
			t.Log(err) // of packing what is damaged
		}
		if _, err := os.Stat(s.mirror(repo)); (err == nil) == free {
			t.Errorf("nobody uses it: %v; %v", free, err)
		}
	}
}

// A mirror says whose it is before it has a snapshot, and what is fetched for a look stays for a task.
func TestFetch(t *testing.T) {
	s, repo := newStore(t), repository(t)
	gitdir, commit, release, err := s.Fetch(t.Context(), repo, "main")
	if err != nil || commit != gittest.Run(t, repo, "rev-parse", "HEAD") {
		t.Fatal(commit, err)
	}
	all, err := s.List(t.Context(), nil)
	if err != nil || len(all) != 1 || all[0].Kind != kindMirror || all[0].Repo != repo || !all[0].InUse {
		t.Errorf("%+v %v", all, err)
	}
	release()
	if err := os.Rename(repo, repo+".away"); err != nil {
		t.Fatal(err)
	}
	got, err := s.Prepare(t.Context(), Source{Repo: repo, Ref: commit})
	if err != nil || got.GitDir != gitdir {
		t.Errorf("%+v %v", got, err)
	}
	if _, _, _, err := s.Fetch(t.Context(), repo+".away", "nope"); task.ClassOf(err) != task.NotFound {
		t.Error(err)
	}
}

// A new commit brings its own objects and no others.
func TestFetchIsIncremental(t *testing.T) {
	s, repo := newStore(t), repository(t)
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(repo, fmt.Sprint("f", i)), fmt.Appendln(nil, i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	preparedMany(t, s, repo, 2)
	objects := func() int {
		return len(strings.Split(gittest.Run(t, s.mirror(repo), "cat-file", "--batch-all-objects", "--batch-check"), "\n"))
	}
	packed := func() int {
		n := 0
		found, _ := filepath.Glob(filepath.Join(s.mirror(repo), "objects", "pack", "*.idx"))
		for _, p := range found {
			n += len(strings.Split(gittest.Run(t, s.mirror(repo), "verify-pack", "-v", p), "\n"))
		}
		return n
	}
	before, inPacks := objects(), packed()
	preparedMany(t, s, repo, 1) // writes a file again: the commit and its trees are new
	if got := objects() - before; got > 4 {
		t.Errorf("%d new objects", got)
	}
	if got := packed() - inPacks; got > 4 {
		t.Errorf("%d objects were sent", got)
	}
}

// Whoever waits while another asks the source for the same reference takes that answer.
func TestFetchesAreCoalesced(t *testing.T) {
	s, repo := newStore(t), repository(t)
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log, script := filepath.Join(dir, "log"), filepath.Join(dir, "git")
	text := "#!/bin/sh\ncase \" $* \" in *\" --is-shallow-repository \"*) echo asked >>" + log + ";; esac\nexec " + real + " \"$@\"\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	if s.cfg.Git, err = git.New(git.Config{Home: t.TempDir(), Bin: script}); err != nil {
		t.Fatal(err)
	}
	const n = 4
	var waiting sync.WaitGroup
	waiting.Add(n)
	unlock, err := s.lock(t.Context(), mirrorName(repo))
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	for range n {
		done.Go(func() {
			cfg, first := s.cfg, sync.Once{}
			cfg.Now = func() time.Time { // it is looked at before the wait
				at := time.Now()
				first.Do(waiting.Done)
				return at
			}
			own, err := New(cfg)
			if err == nil {
				_, err = own.fetch(t.Context(), Source{Repo: repo}, "HEAD")
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	unlock()
	done.Wait()
	ask := func() int {
		b, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Count(string(b), "asked")
	}
	if got := ask(); got != 1 {
		t.Errorf("the source was asked %d times", got)
	}
	if _, err := s.fetch(t.Context(), Source{Repo: repo}, "HEAD"); err != nil || ask() != 2 {
		t.Errorf("later the source is asked again: %d %v", ask(), err)
	}
}
