package oci_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
)

// Templates of the system's files go when nothing was started from them for long, and never while
// a sandbox stands on one or a record cannot be read.
func TestCollectTemplates(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("layers of the system take root")
	}
	var dir string
	now := time.Now()
	r := newRuntime(t, func(c *oci.Config) { dir, c.Now = c.Dir, func() time.Time { return now } })
	count := func(when string, want int) {
		t.Helper()
		found, err := os.ReadDir(filepath.Join(dir, "system"))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if len(found) != want {
			t.Errorf("%s: %d templates, want %d", when, len(found), want)
		}
	}
	collect := func(before time.Time) {
		t.Helper()
		if err := r.CollectTemplates(t.Context(), before); err != nil {
			t.Error(err)
		}
	}
	collect(now) // there is nothing yet
	box, err := r.Start(t.Context(), sandbox.Spec{System: sandbox.Layers{Lower: []string{emptySystem(t)}}})
	if err != nil {
		t.Fatal(err)
	}
	count("started", 1)
	left := filepath.Join(dir, "system", "new-left") // by a process that died while it made one
	old := now.Add(-48 * time.Hour)
	if err := os.Mkdir(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	collect(now.Add(time.Hour))
	count("a sandbox stands on one", 1)
	damaged := filepath.Join(dir, "sandboxes", box.Handle().ID[:len(box.Handle().ID)-4]+"0000")
	if err := os.Mkdir(damaged, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "handle.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := box.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	collect(now.Add(time.Hour))
	count("a record cannot be read", 1)
	if err := os.RemoveAll(damaged); err != nil {
		t.Fatal(err)
	}
	collect(now.Add(-time.Hour))
	count("it was used since", 1)
	collect(now.Add(time.Hour))
	count("nothing stands on it", 0)
	// The next sandbox makes it again.
	box, err = r.Start(t.Context(), sandbox.Spec{System: sandbox.Layers{Lower: []string{emptySystem(t)}}})
	if err != nil {
		t.Fatal(err)
	}
	count("started again", 1)
	if err := box.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// emptySystem is a layer of the system that has nothing.
func emptySystem(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{"usr", "etc", "var"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
