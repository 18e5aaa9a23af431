package sandboxtest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// searchIndex builds an index in one sandbox and has another one answer from it, also about what
// was changed since. A sandbox whose kernel does not show what changed answers without it.
func (s *suite) searchIndex(t *testing.T) {
	tree := s.tree(t, map[string]string{
		"a/one.go": "package a\n\nfunc One() {}\n", "a/two.go": "package a\n\nfunc Two() { One() }\n", "b/gone.go": "package b\n\nfunc Gone() { One() }\n",
		".ctags.d/own.ctags": "--exclude=one.go\n", "--options=x.go": "package x\n",
		".gitignore": "*.log.go\n/out/\n", ".git/HEAD": "ref: refs/heads/main\n", ".git/config": "[core]\n\trepositoryformatversion = 0\n", ".git/objects/x": "", ".git/refs/x": "",
	})
	b := s.start(t, sandbox.Spec{Tree: tree})
	res, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Argv: []string{sandbox.GuestPath, "index", "--out", "/tmp/index"}})
	if err != nil || res.ExitCode != 0 {
		t.Fatalf("%v, exit code %d: %s", err, res.ExitCode, res.Head)
	}
	done, err := guest.ReadIndexed(res.Head)
	if err != nil || done.Problem != "" {
		t.Fatalf("%s: %v", res.Head, err)
	}
	index := t.TempDir()
	if err := os.Chmod(index, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range done.Files {
		data, _, err := b.Guest().Fetch(t.Context(), "/tmp/index/"+f.Name, f.Size)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(index, f.Name), string(data), 0o644)
	}

	b = s.start(t, sandbox.Spec{Tree: tree, Index: index})
	for _, c := range []string{"touch " + sandbox.IndexDir + "/x", "echo >> " + sandbox.IndexDir + "/symbols", "rm -r " + sandbox.IndexDir} {
		if out, code := sh(t, b, c); code == 0 {
			t.Errorf("%s succeeded: %s", c, out)
		}
	}
	ask := func(files, symbols []string) {
		t.Helper()
		r, err := b.Guest().Search(t.Context(), guest.SearchRequest{Pattern: `One\(`})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range r.Files {
			got = append(got, f.Path)
		}
		if !slices.Equal(got, files) || r.Indexed == s.ownKernel {
			t.Errorf("found in %q, want %q; from the index: %v", got, files, r.Indexed)
		}
		d, err := b.Guest().Symbols(t.Context(), guest.SymbolsRequest{Name: "One"})
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, s := range d.Symbols {
			got = append(got, s.Path+": "+s.Text)
		}
		if !slices.Equal(got, symbols) || d.Indexed == s.ownKernel {
			t.Errorf("defined in %q, want %q; from the index: %v", got, symbols, d.Indexed)
		}
	}
	ask([]string{"a/one.go", "a/two.go", "b/gone.go"}, []string{"a/one.go: func One() {}"})
	ok(t, b, "rm b/gone.go; printf 'package c\\n\\nfunc One() {}\\n' > c.go; sed -i s/One/Other/ a/one.go")
	ask([]string{"a/two.go", "c.go"}, []string{"c.go: func One() {}"})
	if _, code := sh(t, b, "git --version"); code == 0 { // what is ignored, and a setting of git's, change nothing
		ok(t, b, "mkdir -p out; for i in $(seq 1200); do echo 'func One() {}' > out/$i.go; done; cp c.go a/x.log.go; git config user.email x; git config --global user.name x")
		ask([]string{"a/two.go", "c.go"}, []string{"c.go: func One() {}"})
	}
	if _, err := s.rt.Start(t.Context(), sandbox.Spec{Index: "relative"}); err == nil {
		t.Error("a relative path was accepted")
	}
}
