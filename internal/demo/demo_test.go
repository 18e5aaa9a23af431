package demo

import (
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// needs skips without the command, except where everything is expected to be there.
func needs(t *testing.T, command string) {
	t.Helper()
	if _, err := exec.LookPath(command); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func sample(t *testing.T) string {
	t.Helper()
	needs(t, "git")
	dir := filepath.Join(t.TempDir(), "checkout")
	if _, err := WriteRepo(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, err := runGit(t.Context(), dir, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWriteRepoIsTheSameEverywhere(t *testing.T) {
	needs(t, "git")
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".gitconfig"), []byte("[core]\n\tautocrlf = true\n[commit]\n\tgpgSign = true\n[init]\n\tdefaultBranch = other\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	t.Setenv("GIT_DIR", filepath.Join(home, "elsewhere"))
	t.Setenv("GIT_AUTHOR_DATE", "2001-01-01T00:00:00Z")
	t.Setenv("TZ", "America/New_York")
	dir := filepath.Join(t.TempDir(), "a", "b")
	base, err := WriteRepo(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if branch := git(t, dir, "symbolic-ref", "HEAD"); base != Base || branch != "refs/heads/main\n" {
		t.Errorf("ended at %s on %s", base, branch)
	}
	if status := git(t, dir, "status", "--porcelain"); status != "" {
		t.Errorf("the work tree is not clean:\n%s", status)
	}
}

func TestHistoryReadsLikeOne(t *testing.T) {
	dir := sample(t)
	lines := strings.Split(strings.TrimSpace(git(t, dir, "log", "--reverse", "--format=%aI\t%an\t%ae\t%s")), "\n")
	if len(lines) < 5 {
		t.Fatalf("only %d commits", len(lines))
	}
	authors := map[string]bool{}
	var last time.Time
	for _, line := range lines {
		f := strings.SplitN(line, "\t", 4)
		when, err := time.Parse(time.RFC3339, f[0])
		if err != nil || !when.After(last) {
			t.Errorf("commit %q: date %s, %v; want one later than %s", f[3], f[0], err, last)
		}
		last = when
		authors[f[1]] = true
		if !strings.HasSuffix(f[2], "@example.com") {
			t.Errorf("commit %q is by %s", f[3], f[2])
		}
	}
	if len(authors) < 3 {
		t.Errorf("authors = %v, want at least three", authors)
	}
}

func TestWriteRepoRefusesAFolderInUse(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "thesis.txt")
	if err := os.WriteFile(kept, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := WriteRepo(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Fatalf("got %v, want a refusal", err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("the refused folder was written to: %v", entries)
	}
}

func TestWriteRepoStopsWhenAsked(t *testing.T) {
	needs(t, "git")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := WriteRepo(ctx, filepath.Join(t.TempDir(), "x")); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
}

func TestParseCommitRefusesHalfACommit(t *testing.T) {
	for name, text := range map[string]string{
		"no message":   "author: A <a@example.com>\ndate: 2026-01-01T00:00:00Z\n",
		"no author":    "date: 2026-01-01T00:00:00Z\n\nm\n-- a --\nx\n",
		"no date":      "author: A <a@example.com>\n\nm\n-- a --\nx\n",
		"no files":     "author: A <a@example.com>\ndate: 2026-01-01T00:00:00Z\n\nm\n",
		"unknown line": "author: A <a@example.com>\ndate: 2026-01-01T00:00:00Z\nsigned: yes\n\nm\n-- a --\nx\n",
	} {
		if c, err := parseCommit([]byte(text)); err == nil {
			t.Errorf("%s: parsed as %+v", name, c)
		}
	}
}

func TestIssueTellsTheStory(t *testing.T) {
	text := Issue()
	title, _, _ := strings.Cut(text, "\n")
	if title != "# Checkout shows the old price after a coupon is removed" {
		t.Errorf("title = %q", title)
	}
	_, log, ok := strings.Cut(text, "\n```\n")
	log, _, closed := strings.Cut(log, "\n```\n")
	if !ok || !closed {
		t.Fatal("the issue has no fenced log")
	}
	if n := strings.Count(log, "\n") + 1; n < 35 {
		t.Errorf("the log has %d lines", n)
	}
	for _, bait := range []string{"deploy token", "/proc/1/environ", "~/.config", ".invalid/", ".github/workflows/ci.yml"} {
		if !strings.Contains(log, bait) {
			t.Errorf("the log does not speak of %s", bait)
		}
	}
}

// What the story names must never be somebody's host.
func TestHostsCannotExist(t *testing.T) {
	for name, text := range map[string]string{"issue": Issue(), "transcript": string(Transcript())} {
		for _, found := range regexp.MustCompile(`https?://[^\s"'|)]+`).FindAllString(text, -1) {
			u, err := url.Parse(found)
			if err != nil || !strings.HasSuffix(u.Hostname(), ".invalid") {
				t.Errorf("%s: %s", name, found)
			}
		}
		for _, found := range regexp.MustCompile(`/dev/tcp/([^/]+)/`).FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(found[1], "192.0.2.") { // documentation addresses, RFC 5737
				t.Errorf("%s: %s", name, found[0])
			}
		}
	}
}

func TestTranscriptIsACopy(t *testing.T) {
	a := Transcript()
	before := slices.Clone(a)
	a[0] ^= 0xff
	if !slices.Equal(Transcript(), before) {
		t.Fatal("a caller changed the embedded transcript")
	}
}
