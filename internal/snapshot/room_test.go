package snapshot

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// What is kept leaves room on the disk, whatever the budget says; what is in use stays.
func TestCollectLeavesRoomOnTheDisk(t *testing.T) {
	s, repo := newStore(t), repository(t)
	snaps := preparedMany(t, s, repo, 3)
	free, size, err := s.Room()
	if err != nil || free <= 0 || size < free {
		t.Fatal(free, size, err)
	}
	if gone, err := s.Collect(t.Context(), Policy{Disk: 1 << 50, Free: 1}); err != nil || len(gone) != 0 {
		t.Errorf("with room: %+v %v", gone, err)
	}
	if gone, err := s.Collect(t.Context(), Policy{Disk: 1, Free: 1, Every: time.Hour}); err != nil || len(gone) != 0 {
		t.Errorf("done lately: %+v %v", gone, err)
	}
	if _, ok := s.HoldPaths(t.Context(), []string{snaps[0].Tree}); !ok {
		t.Fatal("not held")
	}
	gone, err := s.Collect(t.Context(), Policy{Disk: 1 << 50, Free: size, Every: time.Hour})
	if err != nil || len(gone) != 2 || gone[0].Digest != snaps[1].Digest || gone[1].Digest != snaps[2].Digest {
		t.Errorf("without room: %+v %v", gone, err)
	}
}

// When the disk is full room is made as long as something can go, and what did not fit is tried again.
func TestRoomIsMadeOnAFullDisk(t *testing.T) {
	real, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		helps bool
		verb  string
		says  string
	}{
		"fetching":     {true, "fetch", "error: sha1 file '/x/.git/objects/pack/tmp_pack' write error. Out of diskspace"},
		"checking out": {true, "checkout-index", "error: unable to write file a: No space left on device"},
		"for good":     {false, "fetch", "fatal: write error: No space left on device"},
	} {
		t.Run(name, func(t *testing.T) {
			s, repo := newStore(t), repository(t)
			preparedMany(t, s, repo, 2)
			mark := filepath.Join(t.TempDir(), "full")
			script := filepath.Join(t.TempDir(), "git")
			text := "#!/bin/sh\ncase \" $* \" in *\" " + c.verb + " \"*) test -e " + mark + " && { echo \"" + c.says + "\" >&2; exit 128; };; esac\nexec " + real + " \"$@\"\n"
			if err := errors.Join(os.WriteFile(script, []byte(text), 0o755), os.WriteFile(mark, nil, 0o644)); err != nil {
				t.Fatal(err)
			}
			if s.cfg.Git, err = git.New(git.Config{Home: t.TempDir(), Bin: script}); err != nil {
				t.Fatal(err)
			}
			asked := 0
			s.cfg.Full = func(ctx context.Context) ([]Kept, error) {
				if asked++; asked > 1 {
					return s.Collect(ctx, Policy{Disk: 1 << 50, Full: true})
				}
				gone, err := s.Collect(ctx, Policy{Disk: 1 << 50, Full: true})
				if len(gone) != 2 { // twice what was free cannot be had otherwise
					t.Errorf("%+v", gone)
				}
				if c.helps {
					err = errors.Join(err, os.Remove(mark))
				}
				return gone, err
			}
			write(t, repo, map[string]string{"new": name})
			gittest.Run(t, repo, "add", "-A")
			gittest.Run(t, repo, "commit", "-qm", name)
			got, err := s.Prepare(t.Context(), Source{Repo: repo})
			if want := map[bool]int{true: 1, false: 2}[c.helps]; asked != want { // a second time nothing goes
				t.Errorf("room was made %d times", asked)
			}
			if c.helps {
				if err != nil || got.Cached {
					t.Errorf("%+v %v", got, err)
				}
				return
			}
			if task.ClassOf(err) != task.Unavailable || !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("%v", err)
			}
			for _, want := range []string{s.cfg.Dir, "B are free", "daybreak repo forget", "cache.disk"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no %q in %v", want, err)
				}
			}
		})
	}
}
