package repo

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/git/gittest"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
)

// TestLookAtCI: what is fetched for the look is in the mirror for the first task.
func TestLookAtCI(t *testing.T) {
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q", "-b", "main")
	at := filepath.Join(dir, ".github", "workflows")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(at, "ci.yml"), []byte("on: push\njobs: {a: {runs-on: x, steps: [{run: 'echo ${{ secrets.KEY }}'}]}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	gittest.Run(t, dir, "add", "-A")
	gittest.Run(t, dir, "commit", "-qm", "first")
	env := &kit.Env{Out: io.Discard, Err: io.Discard, Now: time.Now, Getenv: func(string) string { return "" }}
	cfg, err := config.Load("")
	if err != nil {
		t.Fatal(err)
	}
	a, err := app.Open(t.Context(), app.Options{Dir: t.TempDir(), Config: cfg, Getenv: env.Getenv, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	found, err := lookAtCI(t.Context(), env, a, forge.Repository{Clone: dir, DefaultBranch: "main"})
	if err != nil || len(found) == 0 || !strings.HasSuffix(found[0].Path, "ci.yml") {
		t.Fatalf("%+v %v", found, err)
	}
	commit := gittest.Run(t, dir, "rev-parse", "HEAD")
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Snapshots.Prepare(t.Context(), snapshot.Source{Repo: dir, Ref: commit}); err != nil {
		t.Errorf("it would be fetched again: %v", err)
	}
	if found, err := lookAtCI(t.Context(), env, a, forge.Repository{Clone: dir + ".away", DefaultBranch: "none"}); err != nil || len(found) != 1 || !strings.Contains(found[0].Text, "no commits yet") {
		t.Errorf("%+v %v", found, err)
	}
}
