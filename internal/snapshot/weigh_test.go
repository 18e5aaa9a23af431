package snapshot

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

// What the collector has added up without looking again is what is on disk, whatever was made,
// advanced, collected and forgotten meanwhile.
func TestWeighingNewThingsAloneIsExact(t *testing.T) {
	s, repo := newStore(t), repository(t)
	draw := rand.New(rand.NewPCG(1, 2))
	for round := range 10 {
		for range draw.IntN(3) {
			files := map[string]string{}
			for range draw.IntN(6) {
				files[fmt.Sprintf("d%d/e%d/f%d", draw.IntN(3), draw.IntN(2), draw.IntN(4))] = strings.Repeat("x", draw.IntN(30_000))
			}
			write(t, repo, files)
			gittest.Run(t, repo, "add", "-A")
			gittest.Run(t, repo, "commit", "-q", "--allow-empty", "-m", fmt.Sprint(round))
			snap, err := s.Prepare(t.Context(), Source{Repo: repo, Environment: fmt.Sprint(draw.IntN(2))})
			if err != nil {
				t.Fatal(err)
			}
			home, commit, err := s.KeepHome(snap)
			if err == nil && home != "" {
				write(t, home, map[string]string{"cache/a": strings.Repeat("y", draw.IntN(20_000))})
			}
			if err == nil {
				err = commit()
			}
			if err != nil {
				t.Fatal(err)
			}
			if draw.IntN(2) == 0 {
				if err := s.twin(t.Context(), snap); err != nil {
					t.Fatal(err)
				}
			}
			s.Done(snap)
		}
		var err error
		p := Policy{}
		switch all, _ := s.List(t.Context(), nil); {
		case round%3 == 1 && len(all) > 2:
			_, err = s.Forget(t.Context(), repo, all[draw.IntN(len(all))].Base, nil)
		case round%3 == 2:
			for _, k := range all {
				p.Disk += k.Disk
			}
			p.Disk = p.Disk * 3 / 4
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Collect(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		all, err := s.List(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		sum, _, err := s.total(t.Context(), all)
		real := int64(0)
		for _, k := range all {
			real += k.Disk
		}
		// A share is rounded down, and the collector packs mirrors.
		if diff := sum - real; err != nil || diff < -8192 || diff > 8192 {
			t.Errorf("round %d: %d bytes added up, %d on disk, %d things: %v", round, sum, real, len(all), err)
		}
	}
}

// What was weighed once is not looked at again.
func TestNothingIsWeighedTwice(t *testing.T) {
	s, repo := newStore(t), repository(t)
	snaps := preparedMany(t, s, repo, 2)
	home, commit, err := s.KeepHome(snaps[0])
	if err != nil {
		t.Fatal(err)
	}
	write(t, home, map[string]string{"cache/a": "y"})
	if err := commit(); err != nil {
		t.Fatal(err)
	}
	sum := func() int64 {
		t.Helper()
		if _, err := s.Collect(t.Context(), Policy{}); err != nil {
			t.Fatal(err)
		}
		all, err := s.list(needs{})
		if err != nil {
			t.Fatal(err)
		}
		n, _, err := s.total(t.Context(), all)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := sum()
	unseen := strings.Repeat("z", 1<<20)
	write(t, snaps[0].Home, map[string]string{"cache/b": unseen})
	write(t, snaps[1].Tree, map[string]string{"vendor/sub/b": unseen})
	if got := sum(); got != before {
		t.Errorf("%d bytes, before %d", got, before)
	}
	// Without what is remembered everything is looked at.
	if err := os.WriteFile(filepath.Join(s.cfg.Dir, "sizes.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := sum(); got < before+2<<20 {
		t.Errorf("%d bytes, before %d", got, before)
	}
}

// A twin's files, and those of one that is made, are the checkout's and counted with it.
func TestFilesOfTwinsAreCountedOnce(t *testing.T) {
	s, repo := newStore(t), repository(t)
	write(t, repo, map[string]string{"large": strings.Repeat("x", 1<<20)})
	snap := next(t, s, repo, "one")
	sum := func() int64 {
		t.Helper()
		all, err := s.list(needs{})
		if err != nil {
			t.Fatal(err)
		}
		n, now, err := s.total(t.Context(), all)
		if err == nil {
			err = s.writeScales(now)
		}
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	alone := sum()
	if err := s.twin(t.Context(), snap); err != nil {
		t.Fatal(err)
	}
	if err := s.cfg.Git.Twin(t.Context(), snap.Tree, filepath.Join(s.dir(snap.Digest), twinTmp+"1")); err != nil {
		t.Fatal(err)
	}
	known := sum()
	if err := os.Remove(s.scalesFile()); err != nil {
		t.Fatal(err)
	}
	if anew := sum(); known <= alone || known > alone+1<<18 || anew < known-8192 || anew > known+8192 {
		t.Errorf("%d bytes, %d with twins, %d when everything is weighed", alone, known, anew)
	}
}
