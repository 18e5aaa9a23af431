package git

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

// rootOwned lists what below dir belongs to root.
func rootOwned(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	if err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid == 0 {
			out = append(out, p)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestPushByRootGivesAwayNothingElse: a repository's owner may put a link to another's packs in
// the place of the own ones, and may use names that a pattern would misread.
func TestPushByRootGivesAwayNothingElse(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	g := newGit(t)
	dir := filepath.Join(t.TempDir(), "a[b")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, dir, "init", "-q", "-b", "main")
	gittest.Run(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	gittest.Run(t, dir, "gc", "-q")
	secret := filepath.Join(t.TempDir(), "pack-others.pack")
	if err := os.WriteFile(secret, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	own := func(p string) uint32 {
		t.Helper()
		fi, err := os.Lstat(p)
		if err != nil {
			t.Fatal(err)
		}
		return fi.Sys().(*syscall.Stat_t).Uid
	}
	const user = 4711
	if err := os.Chown(filepath.Join(dir, ".git"), user, user); err != nil {
		t.Fatal(err)
	}
	s, err := parseSource(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.adopt(t.Context(), s, "daybreak/x"); err != nil {
		t.Fatal(err)
	}
	packs, err := os.ReadDir(filepath.Join(dir, ".git/objects/pack"))
	if err != nil || len(packs) == 0 {
		t.Fatalf("%d packs, %v", len(packs), err)
	}
	for _, p := range packs {
		if got := own(filepath.Join(dir, ".git/objects/pack", p.Name())); strings.HasPrefix(p.Name(), "pack-") && got != user {
			t.Errorf("%s still belongs to %d", p.Name(), got)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, ".git/objects/pack")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(secret), filepath.Join(dir, ".git/objects/pack")); err != nil {
		t.Fatal(err)
	}
	if err := g.adopt(t.Context(), s, "daybreak/x"); err != nil {
		t.Fatal(err)
	}
	if own(secret) != 0 {
		t.Error("a file outside the repository was given away")
	}
}
