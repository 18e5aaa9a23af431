package verify

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

func TestLayerDigest(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	do(os.MkdirAll(at("target/debug"), 0o755))
	do(os.WriteFile(at("target/debug/test"), []byte("program"), 0o755))
	do(os.Symlink("test", at("target/debug/link")))
	seen := map[string]string{}
	differs := func(what string) {
		t.Helper()
		d, ok := layerDigest(ctx, dir)
		again, okay := layerDigest(ctx, dir)
		if !ok || !okay || d != again {
			t.Fatalf("%s: %q %v, again %q %v", what, d, ok, again, okay)
		}
		if before, was := seen[d]; was {
			t.Errorf("%s: the same digest as %s", what, before)
		}
		seen[d] = what
	}
	differs("at first")
	do(os.WriteFile(at("target/debug/test"), []byte("progran"), 0o755))
	differs("other content")
	do(os.Chmod(at("target/debug/test"), 0o644))
	differs("other permissions")
	do(os.Remove(at("target/debug/link")))
	differs("without the link")
	do(os.Symlink("/etc/passwd", at("target/debug/link")))
	differs("a link that leads out")
	do(os.WriteFile(at("target/debug/more"), nil, 0o644))
	differs("one more")
	do(os.Rename(at("target/debug/more"), at("target/more")))
	differs("in another place")

	stopped, stop := context.WithCancel(ctx)
	stop()
	if d, ok := layerDigest(stopped, dir); ok {
		t.Errorf("not all was read, and its digest is %s", d)
	}
	if d, ok := layerDigest(ctx, at("nowhere")); ok {
		t.Errorf("nothing is there, and its digest is %s", d)
	}
}
