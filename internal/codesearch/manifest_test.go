package codesearch

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzManifest opens an index whose manifest anybody may have written, and advances it: it is
// refused, or answers something, and that is all.
func FuzzManifest(f *testing.F) {
	tree, dir := f.TempDir(), filepath.Join(f.TempDir(), "x")
	for _, name := range []string{"a", "b", "c"} {
		if err := os.WriteFile(filepath.Join(tree, name), []byte("text of "+name+"\n"), 0o644); err != nil {
			f.Fatal(err)
		}
	}
	if _, err := Build(f.Context(), dir, tree, []string{"a", "b", "c"}, BuildOptions{}); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, ManifestName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add([]byte(`{"version":1,"segments":[{"name":"0000.seg","docs":3,"bytes":1,"dead":[0,9,4294967295]}],"stats":{"files":-1}}`))
	f.Add([]byte(`{"version":1,"segments":[{"name":"../0000.seg"},{"name":""}]}`))
	root, err := OpenTree(tree, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = root.Close() })
	f.Fuzz(func(t *testing.T, manifest []byte) {
		if err := os.WriteFile(filepath.Join(dir, ManifestName), manifest, 0o644); err != nil {
			t.Fatal(err)
		}
		x, err := Open(dir)
		if err != nil {
			return
		}
		_ = x.Verify()
		_, _ = x.Has("b")
		if a, err := x.Search(t.Context(), root, Query{Pattern: "text"}); err == nil && len(a.Counts) > 3*len(x.parts) {
			t.Errorf("%+v", a)
		}
		out := filepath.Join(t.TempDir(), "next")
		if _, _, err := Advance(t.Context(), out, x, tree, []string{"b"}, []string{"c"}, BuildOptions{Workers: 1}); err != nil {
			t.Log(err)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	})
}
