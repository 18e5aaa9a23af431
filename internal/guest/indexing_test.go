package guest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
	"github.com/daybreak-agent/daybreak/internal/codesearch/symbols"
	"github.com/daybreak-agent/daybreak/internal/guest"
)

func buildIndex(t *testing.T, o guest.IndexOptions) (done guest.Indexed) {
	t.Helper()
	var said bytes.Buffer
	if err := guest.BuildIndex(t.Context(), o, &said); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(said.Bytes(), &done); err != nil || done.Check() != nil {
		t.Fatalf("%s: %v, %v", said.Bytes(), err, done.Check())
	}
	return done
}

// An index that was advanced answers as one that was built from nothing.
func TestAdvancedIndexIsAsABuiltOne(t *testing.T) {
	need(t, "rg")
	need(t, "git")
	need(t, "ctags")
	tree, dir := t.TempDir(), t.TempDir()
	run(t, tree, checkout)
	at := func(name string) string { return filepath.Join(dir, name) }
	buildIndex(t, guest.IndexOptions{Root: tree, Out: at("old")})
	run(t, tree, `
echo 'func Changed() { needle() }' >> a/b/f3.go
printf 'package n\n\nfunc Added() { needle() }\n' > added.go
rm a/b/f4.go; mv vendor/v.go vendor/w.go; echo 'latin' >> .gitignore; rm lines.txt; echo 'def needle_now(): pass' > lines.py`)
	advanced := buildIndex(t, guest.IndexOptions{Root: tree, Out: at("advanced"), From: at("old"), Changed: []string{"a/b/f3.go", "added.go", ".gitignore", "vendor/w.go", "not/there.go"}})
	anew := buildIndex(t, guest.IndexOptions{Root: tree, Out: at("anew")})
	if !advanced.Advanced || anew.Advanced || advanced.Symbols != anew.Symbols || advanced.Stats.Files != anew.Stats.Files || advanced.Stats.Text != anew.Stats.Text {
		t.Errorf("advanced %+v, anew %+v", advanced, anew)
	}
	root, err := codesearch.OpenTree(tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	answers := map[string]any{}
	for _, name := range []string{"advanced", "anew"} {
		x, err := codesearch.Open(at(name))
		if err != nil {
			t.Fatal(err)
		}
		defer x.Close()
		var all []codesearch.Answer
		for _, q := range []string{"needle", "Changed|Added", "func F4", "now"} {
			a, err := x.Search(t.Context(), root, codesearch.Query{Pattern: q})
			if err != nil {
				t.Fatal(err)
			}
			a.Files = 0 // how many were read is each one's own
			all = append(all, a)
		}
		f, err := symbols.Open(filepath.Join(at(name), guest.SymbolsFile))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		tags, err := f.All()
		if err != nil {
			t.Fatal(err)
		}
		answers[name] = []any{all, tags}
	}
	if d := cmp.Diff(answers["anew"], answers["advanced"]); d != "" {
		t.Errorf("(-anew +advanced)\n%s", d)
	}
	// A damaged one is no start.
	if err := os.Truncate(filepath.Join(at("old"), "0000.seg"), 100); err != nil {
		t.Fatal(err)
	}
	if got := buildIndex(t, guest.IndexOptions{Root: tree, Out: at("again"), From: at("old"), Changed: []string{"added.go"}}); got.Advanced || got.Symbols != anew.Symbols {
		t.Errorf("%+v", got)
	}
}

func TestWhatIsNoIndexIsRefused(t *testing.T) {
	manifest := guest.IndexedFile{Name: "index.json", Size: 10}
	for name, x := range map[string]guest.Indexed{
		"nothing":           {},
		"no manifest":       {Files: []guest.IndexedFile{{Name: "0000.seg", Size: 1}}},
		"a path":            {Files: []guest.IndexedFile{manifest, {Name: "../0000.seg", Size: 1}}},
		"another name":      {Files: []guest.IndexedFile{manifest, {Name: "0000.seg\n", Size: 1}}},
		"a name twice":      {Files: []guest.IndexedFile{manifest, manifest}},
		"a size below zero": {Files: []guest.IndexedFile{manifest, {Name: "symbols", Size: -1}}},
		"a huge file":       {Files: []guest.IndexedFile{manifest, {Name: "symbols", Size: 1 << 40}}},
		"a long name":       {Files: []guest.IndexedFile{manifest, {Name: strings.Repeat("0", 1000) + ".seg", Size: 1}}},
	} {
		if err := x.Check(); err == nil {
			t.Errorf("%s was taken for an index", name)
		}
	}
}
