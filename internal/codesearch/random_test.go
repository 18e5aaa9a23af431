package codesearch_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
)

// words of the tree, of which random queries are made.
func words(tree string, files []string, rnd *rand.Rand) []string {
	var out []string
	for len(out) < 4000 {
		b, err := os.ReadFile(filepath.Join(tree, files[rnd.IntN(len(files))]))
		if err != nil || len(b) < 20 {
			continue
		}
		at := rnd.IntN(len(b) - 16)
		out = append(out, string(b[at:at+1+rnd.IntN(15)]))
	}
	return out
}

// randomQuery is made of words and operators.
func randomQuery(rnd *rand.Rand, words []string) codesearch.Query {
	word := func() string { return words[rnd.IntN(len(words))] }
	q := codesearch.Query{IgnoreCase: rnd.IntN(2) == 0}
	if rnd.IntN(4) == 0 {
		q.Literal, q.Pattern = true, word()
		return q
	}
	quote := func() string {
		w := word()
		var b strings.Builder
		for _, r := range w {
			switch rnd.IntN(14) {
			case 0:
				b.WriteByte('.')
			case 1:
				b.WriteString([]string{`\w`, `\s`, `\S`, `[a-z]`, `[^x]`, `\b`, `.*`, `\d?`}[rnd.IntN(8)])
			default:
				if strings.ContainsRune(`\.+*?()|[]{}^$#&-~`, r) {
					b.WriteByte('\\')
				}
				b.WriteRune(r)
				if rnd.IntN(12) == 0 {
					b.WriteString([]string{"+", "*", "?", "{1,3}", "+?"}[rnd.IntN(5)])
				}
			}
		}
		return b.String()
	}
	switch rnd.IntN(6) {
	case 0:
		q.Pattern = "(" + quote() + "|" + quote() + ")"
	case 1:
		q.Pattern = quote() + ".*" + quote()
	case 2:
		q.Pattern = `\b` + quote() + `\b`
	case 3:
		q.Pattern = "(?:" + quote() + ")?" + quote()
	case 4:
		q.Pattern = "^" + quote()
	default:
		q.Pattern = quote()
	}
	return q
}

// somewhere bounds most queries to a part of the tree, by paths or by globs.
func somewhere(rnd *rand.Rand, q codesearch.Query, files []string) codesearch.Query {
	dir := path.Dir(files[rnd.IntN(len(files))])
	switch ext := path.Ext(files[rnd.IntN(len(files))]); rnd.IntN(8) {
	case 0: // everywhere
	case 1:
		if ext != "" && !strings.ContainsAny(ext, `\*?[]{}`) {
			q.Globs = []string{[]string{"*", "!*"}[rnd.IntN(2)] + ext}
		}
	default:
		if dir != "." {
			q.Paths = []string{dir}
		}
	}
	return q
}

// TestRandomQueries compares many queries on a tree with ripgrep: a few in the usual run, with
// DAYBREAK_SEARCH_QUERIES as many as it says, on the tree that DAYBREAK_SEARCH_TREE names.
func TestRandomQueries(t *testing.T) {
	needRG(t)
	tree, n := odd(t), 150
	if v := os.Getenv("DAYBREAK_SEARCH_TREE"); v != "" {
		tree = v
	}
	if v := os.Getenv("DAYBREAK_SEARCH_QUERIES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	s := build(t, tree)
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	files := listed(t, tree)
	t.Logf("seed %d, %d files", seed, len(files))
	list := words(tree, files, rnd)
	queries := make(chan codesearch.Query)
	var answered, asked atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for q := range queries {
				if s.compare(t, q) {
					answered.Add(1)
				}
				if done := asked.Add(1); done%1000 == 0 {
					fmt.Fprintf(os.Stderr, "%d queries, %d of them from the index\n", done, answered.Load())
				}
			}
		})
	}
	for i := 0; i < n && !t.Failed(); {
		q := somewhere(rnd, randomQuery(rnd, list), files)
		if !strings.ContainsAny(q.Pattern, "\x00\n") {
			queries <- q
			i++
		}
	}
	close(queries)
	wg.Wait()
	t.Logf("%d queries, %d of them answered from the index, no difference from ripgrep: %v", asked.Load(), answered.Load(), !t.Failed())
}

// keep puts what an advanced index keeps of the earlier one beside it, as the store does.
func keep(t *testing.T, from, to string, kept []string) {
	t.Helper()
	for _, name := range kept {
		if err := os.Link(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// change does something random to a tree and returns the files that it wrote and removed.
func change(t *testing.T, rnd *rand.Rand, tree string, words []string) (changed, gone []string) {
	t.Helper()
	files := listed(t, tree)
	for range 1 + rnd.IntN(6) {
		name := files[rnd.IntN(len(files))]
		p := filepath.Join(tree, name)
		if path.Base(name)[0] == '.' || slices.Contains(gone, name) {
			continue
		}
		switch rnd.IntN(5) {
		case 0:
			if len(files) < 10 {
				continue
			}
			if err := os.Remove(p); err != nil {
				t.Fatal(err)
			}
			gone = append(gone, name)
			changed = slices.DeleteFunc(changed, func(s string) bool { return s == name })
			continue
		case 1:
			name = fmt.Sprintf("new/%d/f%d.go", rnd.IntN(3), rnd.IntN(20))
			p = filepath.Join(tree, name)
			gone = slices.DeleteFunc(gone, func(s string) bool { return s == name })
		}
		var text strings.Builder
		for range rnd.IntN(60) {
			text.WriteString(words[rnd.IntN(len(words))] + []string{" ", "\n", "\r\n", "\xff"}[min(rnd.IntN(60)/18, 3)])
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.RemoveAll(p), os.WriteFile(p, []byte(text.String()), 0o644)); err != nil {
			t.Fatal(err)
		}
		changed = append(changed, name)
	}
	slices.Sort(changed)
	return slices.Compact(changed), gone
}

// An index that is advanced over many random commits answers at each as one that is built of the
// same tree, and as ripgrep does; and it stays of few parts.
func TestRandomAdvances(t *testing.T) {
	needRG(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 2))
	tree, dir := odd(t), t.TempDir()
	for i := range 60 { // enough for a base that is worth keeping
		if err := os.WriteFile(filepath.Join(tree, fmt.Sprintf("stay%d.go", i)), fmt.Appendf(nil, "package p\n\nfunc Stay%d() error { return foo(%d) }\n", i, i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	list := words(tree, listed(t, tree), rnd)
	at := filepath.Join(dir, "0")
	if _, err := codesearch.Build(t.Context(), at, tree, listed(t, tree), codesearch.BuildOptions{}); err != nil {
		t.Fatal(err)
	}
	advanced, most := 0, 0
	for i := 1; i <= 40; i++ {
		changed, gone := change(t, rnd, tree, list)
		old, err := codesearch.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		next := filepath.Join(dir, fmt.Sprint(i))
		st, kept, err := codesearch.Advance(t.Context(), next, old, tree, changed, gone, codesearch.BuildOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := old.Close(); err != nil {
			t.Fatal(err)
		}
		if kept == nil {
			if st, err = codesearch.Build(t.Context(), next, tree, listed(t, tree), codesearch.BuildOptions{}); err != nil {
				t.Fatal(err)
			}
		} else {
			keep(t, at, next, kept)
			advanced++
		}
		at = next
		segments, err := filepath.Glob(filepath.Join(next, "*.seg"))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(segments))
		bytes := int64(0)
		for _, name := range segments {
			fi, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			bytes += fi.Size()
		}
		if st.Index != bytes {
			t.Errorf("commit %d: %d bytes of %d", i, st.Index, bytes)
		}
		whole, fresh := open(t, tree, next), build(t, tree)
		if err := whole.index.Verify(); err != nil {
			t.Fatalf("commit %d: %v", i, err)
		}
		want := fresh.index.Stats()
		if want.Index = st.Index; st != want { // the bytes of the index are each one's own
			t.Errorf("commit %d: %+v, want %+v", i, st, want)
		}
		files := listed(t, tree)
		for range 40 {
			q := somewhere(rnd, randomQuery(rnd, list), files)
			if strings.ContainsAny(q.Pattern, "\x00\n") {
				continue
			}
			a, err := whole.index.Search(t.Context(), whole.t, q)
			b, berr := fresh.index.Search(t.Context(), fresh.t, q)
			a.Files, b.Files = 0, 0 // how many were read is each one's own
			if d := cmp.Diff(b, a); d != "" || !errors.Is(err, berr) {
				t.Fatalf("commit %d: %+v: %v, built anew %v (-anew +advanced)\n%s", i, q, err, berr, d)
			}
			if rnd.IntN(4) == 0 && !whole.compare(t, q) && err == nil {
				t.Fatalf("commit %d: %+v", i, q)
			}
		}
	}
	t.Logf("%d of 40 commits were advanced over; %d segments at most", advanced, most)
	if advanced < 20 || most > 8 {
		t.Errorf("%d of 40 commits were advanced over, and an index had %d segments", advanced, most)
	}
}
