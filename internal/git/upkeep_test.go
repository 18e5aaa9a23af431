package git

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// script puts a program of this name and text into a directory that comes first on PATH.
func script(t *testing.T, name, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return filepath.Join(dir, name)
}

// A check that did not get to its end says nothing about the repository.
func TestOnlyWhatFsckFoundIsDamage(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want bool
	}{
		"missing objects": {"echo 'missing blob 1' ; exit 2", true},
		"no repository":   {"echo 'fatal: not a git repository' >&2; exit 128", true},
		"well":            {"exit 0", false},
		"killed":          {"kill -KILL $$", false},
		"full disk":       {"echo 'fatal: write error: No space left on device' >&2; exit 128", false},
		"no memory":       {"echo 'fatal: Out of memory, malloc failed' >&2; exit 128", false},
	} {
		g, err := New(Config{Home: t.TempDir(), Bin: script(t, "git", c.text)})
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Damaged(t.Context(), t.TempDir()); got != c.want {
			t.Errorf("%s: damaged %v", name, got)
		}
		if got := g.Disconnected(t.Context(), t.TempDir()); got != c.want {
			t.Errorf("%s: disconnected %v", name, got)
		}
	}
}

// Many small objects and packs become few, and nothing that is referred to is lost.
func TestTidyPacks(t *testing.T) {
	g, src := newGit(t), repository(t, map[string]string{"a": "1\n"})
	bare := filepath.Join(t.TempDir(), "m.git")
	if err := g.EnsureBare(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	var last string
	for i := range 33 { // each fetch brings loose objects
		files := map[string]string{}
		for j := range 100 {
			files[fmt.Sprintf("d%d/f%d", i, j)] = fmt.Sprintln(i, j)
		}
		write(t, src, files)
		gittest.Run(t, src, "add", "-A")
		gittest.Run(t, src, "commit", "-qm", fmt.Sprint(i))
		var err error
		if last, err = g.FetchCommit(t.Context(), bare, src, "HEAD"); err != nil {
			t.Fatal(err)
		}
	}
	count := func() (loose, packs int) {
		for line := range strings.Lines(gittest.Run(t, bare, "count-objects", "-v")) {
			_, _ = fmt.Sscanf(line, "count: %d", &loose)
			_, _ = fmt.Sscanf(line, "packs: %d", &packs)
		}
		return loose, packs
	}
	if loose, packs := count(); loose < 2000 && packs < 31 {
		t.Fatalf("%d loose objects and %d packs are nothing to tidy", loose, packs)
	}
	if err := g.Tidy(t.Context(), bare, 24*time.Hour); err != nil {
		t.Fatal(err)
	}
	if loose, packs := count(); loose > 0 || packs > 2 {
		t.Errorf("%d loose objects and %d packs are left", loose, packs)
	}
	if g.Damaged(t.Context(), bare) {
		t.Error("it is damaged")
	}
	if entries, err := g.ListTree(t.Context(), bare, last); err != nil || len(entries) != 3301 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}

// What ssh says is what a person has to put right.
func TestWhySSHFailed(t *testing.T) {
	for said, want := range map[string]struct {
		text  string
		class task.Class
	}{
		"git@host.example: Permission denied (publickey).":                        {"Permission denied (publickey)", task.Auth},
		"@@@@@@@@\\nWarning: new key\\nHost key verification failed.":             {"accept its key", task.Auth},
		"ssh: Could not resolve hostname host.example: Name or service not known": {"Could not resolve hostname", task.Transient},
		"ssh: connect to host 127.0.0.1 port 22: Connection refused":              {"Connection refused", task.Transient},
		"Warning: Permanently added x.\\nERROR: Repository not found.":            {"ERROR: Repository not found.", task.Invalid},
	} {
		script(t, "ssh", "printf '"+said+"\\n' >&2; exit 255")
		_, err := newGit(t).TargetBranch(t.Context(), "git@host.example:a/b", "HEAD")
		if err == nil || !strings.Contains(err.Error(), want.text) || task.ClassOf(err) != want.class || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v (%s)", said, err, task.ClassOf(err))
		}
	}
}
