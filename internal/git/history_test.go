package git

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// TestNotes: a branch's messages are read again as it grows, without its files.
func TestNotes(t *testing.T) {
	src, ours := t.TempDir(), filepath.Join(t.TempDir(), "history.git")
	gittest.Run(t, src, "init", "-q", "-b", "main")
	gittest.Run(t, src, "commit", "-q", "--allow-empty", "-m", "one")
	g, err := New(Config{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	past := time.Now().Add(-30 * 24 * time.Hour)
	if got, err := g.Notes(t.Context(), ours, src, "main", past); err != nil || len(got) != 1 || got[0].Message != "one" {
		t.Fatalf("%+v %v", got, err)
	}
	gittest.Run(t, src, "commit", "-q", "--allow-empty", "-m", "Revert \"one\"\n\nThis reverts commit x.\n\nend")
	got, err := g.Notes(t.Context(), ours, src, "main", past)
	if err != nil || len(got) != 2 || got[0].Message != "Revert \"one\"\n\nThis reverts commit x.\n\nend" || got[0].By == "" || time.Since(got[0].At) > time.Hour {
		t.Fatalf("%+v %v", got, err)
	}
	if want := strings.TrimSpace(gittest.Run(t, src, "rev-parse", "HEAD")); got[0].ID != want {
		t.Errorf("id %s, want %s", got[0].ID, want)
	}
	if got, err := g.Notes(t.Context(), ours, src, "main", time.Now().Add(time.Hour)); err != nil || len(got) != 0 {
		t.Errorf("what is older than the time: %+v %v", got, err)
	}
	if _, err := g.Notes(t.Context(), ours, src, "gone", past); task.ClassOf(err) != task.NotFound {
		t.Errorf("a branch that is gone: %v", err)
	}
	if _, err := g.Notes(t.Context(), ours, src, "--upload-pack=x", past); err == nil {
		t.Error("an option for a branch")
	}
}

func FuzzParseNotes(f *testing.F) {
	f.Add([]byte(strings.Repeat("a", 40) + "\n12\nwho\nwhat\n\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		notes, err := parseNotes(b)
		for _, n := range notes {
			if err == nil && !IsID(n.ID) {
				t.Errorf("%+v", n)
			}
		}
	})
}
