package guest_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
	"github.com/daybreak-agent/daybreak/internal/codesearch/symbols"
	"github.com/daybreak-agent/daybreak/internal/guest"
)

func buildIndex(t *testing.T, o guest.IndexOptions) guest.Indexed {
	t.Helper()
	var said bytes.Buffer
	if err := guest.BuildIndex(t.Context(), o, &said); err != nil {
		t.Fatal(err)
	}
	done, err := guest.ReadIndexed(append([]byte("finding symbols: 1 of 1\n"), said.Bytes()...))
	if err != nil {
		t.Fatalf("%s: %v", said.Bytes(), err)
	}
	return done
}

// advance builds an index from an earlier one, and puts what it keeps beside it as the store does.
func advance(t *testing.T, o guest.IndexOptions) guest.Indexed {
	t.Helper()
	done := buildIndex(t, o)
	for _, f := range done.Kept {
		if err := os.Link(filepath.Join(o.From, f.Name), filepath.Join(o.Out, f.Name)); err != nil {
			t.Fatal(err)
		}
	}
	return done
}

// changes reads each as how it changed, and its path.
func changes(all ...string) (out []guest.IndexChange) {
	for _, c := range all {
		out = append(out, guest.IndexChange{Path: c[1:], How: guest.IndexHow(c[0])})
	}
	return out
}

// An index that was advanced, again and again, answers as one that was built from nothing, and
// only what changed is written.
func TestAdvancedIndexIsAsABuiltOne(t *testing.T) {
	need(t, "rg")
	need(t, "git")
	need(t, "ctags")
	tree, dir := t.TempDir(), t.TempDir()
	run(t, tree, checkout)
	at := func(name string) string { return filepath.Join(dir, name) }
	buildIndex(t, guest.IndexOptions{Root: tree, Out: at("old")})
	from, anew := "old", guest.Indexed{}
	for i, step := range []struct {
		do      string
		changed []guest.IndexChange
	}{
		{
			`
echo 'func Changed() { needle() }' >> a/b/f3.go
printf 'package n\n\nfunc Added() { needle() }\n' > added.go
rm a/b/f4.go; mv vendor/v.go vendor/w.go; echo 'latin' >> .gitignore; rm lines.txt; echo 'def needle_now(): pass' > lines.py`,
			changes("~a/b/f3.go", "+added.go", "-a/b/f4.go", "-vendor/v.go", "+vendor/w.go", "~.gitignore", "-lines.txt", "+lines.py", "~not/there.go"),
		},
		{`echo 'func Changed2() {}' >> a/b/f3.go; rm added.go; printf 'package b\n\nfunc F4() { now() }\nfunc F3() {}\n' > a/b/f4.go
mkdir -p new/dir; echo 'func now() { needle() }' | tee new/dir/x.go build/y.go new/x.log; rm -r swapped; echo 'needle file' > swapped; ln -sf a/b/f3.go link`, changes("~a/b/f3.go", "-added.go", "+a/b/f4.go", "+new/dir/x.go", "+build/y.go", "+new/x.log", "+swapped", "-swapped/s.go", "~link")},
		{`rm a/b/f4.go lines.py; printf 'package n\n\nfunc added() { needle() }\nfunc Added() {}\n' > added.go`, changes("-a/b/f4.go", "-lines.py", "+added.go")},
		{`rm swapped; ln -s a swapped; rm -r new; echo needle > new`, changes("~swapped", "-new/dir/x.go", "-new/x.log", "+new")},
	} {
		run(t, tree, step.do)
		next := fmt.Sprint("advanced", i)
		advanced := advance(t, guest.IndexOptions{Root: tree, Out: at(next), From: at(from), Changed: step.changed})
		anew = buildIndex(t, guest.IndexOptions{Root: tree, Out: at(fmt.Sprint("anew", i))})
		if !advanced.Advanced || len(advanced.Kept) == 0 || anew.Advanced || advanced.Symbols != anew.Symbols || advanced.Stats.Files != anew.Stats.Files || advanced.Stats.Text != anew.Stats.Text {
			t.Errorf("step %d: advanced %+v, anew %+v", i, advanced, anew)
		}
		if d := cmp.Diff(answers(t, tree, at(fmt.Sprint("anew", i))), answers(t, tree, at(next))); d != "" {
			t.Errorf("step %d (-anew +advanced)\n%s", i, d)
		}
		from = next
	}
	// A damaged one is no start.
	if err := os.Truncate(filepath.Join(at("old"), "0000.seg"), 100); err != nil {
		t.Fatal(err)
	}
	if got := buildIndex(t, guest.IndexOptions{Root: tree, Out: at("again"), From: at("old"), Changed: changes("~added.go")}); got.Advanced || got.Symbols != anew.Symbols {
		t.Errorf("%+v", got)
	}
}

// answers are what an index and its symbols say to a few questions.
func answers(t *testing.T, tree, index string) (all []any) {
	t.Helper()
	root, err := codesearch.OpenTree(tree, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	x, err := codesearch.Open(index)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for _, q := range []string{"needle", "Changed|Added", "func F4", "now"} {
		a, err := x.Search(t.Context(), root, codesearch.Query{Pattern: q})
		if err != nil {
			t.Fatal(err)
		}
		a.Files = 0 // how many were read is each one's own
		all = append(all, a)
	}
	f, err := symbols.Open(filepath.Join(index, guest.SymbolsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, want := range []string{"", "Added", "f", "F4", "Changed"} {
		for _, m := range []symbols.Match{symbols.Exact, symbols.Folded, symbols.Prefix} {
			if err := f.Find(want, m, func(tags []symbols.Tag) bool { all = append(all, tags); return true }); err != nil {
				t.Fatal(err)
			}
		}
	}
	return all
}

// A tree that had too many symbols is not looked through for them again at every commit.
func TestTooManySymbolsAreNotCountedAgain(t *testing.T) {
	need(t, "rg")
	need(t, "ctags")
	tree, dir := t.TempDir(), t.TempDir()
	run(t, tree, checkout)
	from := filepath.Join(dir, "old")
	buildIndex(t, guest.IndexOptions{Root: tree, Out: from})
	if err := os.Rename(filepath.Join(from, guest.SymbolsFile), filepath.Join(from, guest.SymbolsFile+".none")); err != nil {
		t.Fatal(err)
	}
	run(t, tree, "echo 'func Later() {}' >> a/b/f3.go")
	for i := range 2 {
		next := filepath.Join(dir, fmt.Sprint(i))
		got := advance(t, guest.IndexOptions{Root: tree, Out: next, From: from, Changed: changes("~a/b/f3.go")})
		if !got.Advanced || got.Symbols != 0 || !strings.Contains(got.Problem, "symbols") {
			t.Errorf("%+v", got)
		}
		from = next
	}
}

func TestChangesOfAnIndex(t *testing.T) {
	all := changes("~a", "+b/c\nd", "-\xff/-~")
	got, err := guest.ReadChanges(bytes.NewReader(guest.WriteChanges(all)))
	if d := cmp.Diff(all, got); d != "" || err != nil {
		t.Errorf("%v %s", err, d)
	}
	if none, err := guest.ReadChanges(strings.NewReader("")); none == nil || len(none) > 0 || err != nil {
		t.Errorf("%v %v", none, err)
	}
	for _, bad := range []string{"a\x00", "~\x00", "~../x\x00", "+/x\x00", "-a//b\x00", "~a/\x00", "~.\x00"} {
		if got, err := guest.ReadChanges(strings.NewReader(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
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

// Whoever speaks for the sandbox, what people read of it is short and plain.
func TestWhatIsSaidOfAnIndexIsPlain(t *testing.T) {
	said := []byte(`{"files":[{"name":"index.json","size":1}],"problem":"a\u001b[2J\u202eb` + strings.Repeat("x", 1000) + `","slow":["\u001b"` + strings.Repeat(`,"y"`, 1000) + "]}\n")
	done, err := guest.ReadIndexed(said)
	if err != nil || len(done.Slow) != 20 || len(done.Problem) > 510 || strings.ContainsAny(done.Problem+done.Slow[0], "\x1b\u202e") {
		t.Errorf("%+v %v", done, err)
	}
}

// How far an index is can be read from the lines that say so, and from no others.
func TestProgressOfIndexing(t *testing.T) {
	need(t, "rg")
	need(t, "ctags")
	tree, said := t.TempDir(), bytes.Buffer{}
	for i := range 2_100 {
		if err := os.WriteFile(filepath.Join(tree, fmt.Sprintf("f%d.go", i)), []byte("package p\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	buildIndex(t, guest.IndexOptions{Root: tree, Out: filepath.Join(t.TempDir(), "x"), Progress: guest.WriteProgress(&said)})
	far := map[string]int{}
	for line := range strings.Lines(said.String()) {
		stage, done, total, ok := guest.ReadProgress(strings.TrimSuffix(line, "\n"))
		if !ok || done <= far[stage] || total != 2_100 {
			t.Errorf("%q: %s %d %d %v", line, stage, done, total, ok)
		}
		far[stage] = done
	}
	if far[guest.StageText] != 2_000 || far[guest.StageSymbols] != 2_100 {
		t.Errorf("%v", far)
	}
	for _, line := range []string{
		"", "finding symbols", "finding symbols: ", "finding symbols: 1", "finding symbols: 1 of", "finding symbols: -1 of 2", "finding symbols: 3 of 2",
		"finding symbols: 1 of 99999999999999999999", "finding symbols: 1 of 2\x1b", "\x1b[2Jfinding symbols: 1 of 2", "indexing files: 1 of 999999999", "x: 1 of 2",
	} {
		if stage, _, _, ok := guest.ReadProgress(line); ok {
			t.Errorf("%q is taken for %s", line, stage)
		}
	}
}
