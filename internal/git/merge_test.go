package git

import (
	"path/filepath"
	"slices"
	"testing"
)

// TestMergeTrees: three trees without history are merged as git merges branches, and what it cannot
// settle is named.
func TestMergeTrees(t *testing.T) {
	g, err := New(Config{Home: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "x.git")
	if err := g.EnsureBare(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	empty, err := g.run(t.Context(), call{args: []string{"--git-dir=" + dir, "mktree"}})
	if err != nil {
		t.Fatal(err)
	}
	first := string(empty[:40])
	tree := func(on string, files map[string]string) string {
		t.Helper()
		var cs []Change
		for p, text := range files {
			cs = append(cs, Change{Path: p, Mode: ModeFile, Content: []byte(text)})
		}
		id, err := g.BuildTree(t.Context(), dir, on, cs)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	const lines = "1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	base := tree(first, map[string]string{"a.txt": lines, "b\nc.txt": lines})
	ours := tree(base, map[string]string{"a.txt": "one\n" + lines[2:]})
	merged := tree(base, map[string]string{"a.txt": "one\n" + lines[2:len(lines)-2] + "nine\n", "new.txt": "x\n"})
	for _, tt := range []struct {
		name   string
		theirs string
		want   string
		at     []string
	}{
		{"nothing moved", base, ours, nil},
		{"the same change", ours, ours, nil},
		{"elsewhere", tree(base, map[string]string{"a.txt": lines[:len(lines)-2] + "nine\n", "new.txt": "x\n"}), merged, nil},
		{"the same lines", tree(base, map[string]string{"a.txt": "uno\n" + lines[2:]}), "", []string{"a.txt"}},
	} {
		got, at, err := g.MergeTrees(t.Context(), dir, base, tt.theirs, ours)
		if err != nil || !slices.Equal(at, tt.at) || tt.want != "" && got != tt.want {
			t.Errorf("%s: %s %q %v, want %s", tt.name, got, at, err, tt.want)
		}
	}
	odd := tree(base, map[string]string{"b\nc.txt": "x\n" + lines[2:]})
	if _, at, err := g.MergeTrees(t.Context(), dir, base, tree(base, map[string]string{"b\nc.txt": "y\n" + lines[2:]}), odd); err != nil || !slices.Equal(at, []string{"b\nc.txt"}) {
		t.Errorf("%q %v", at, err)
	}
}
