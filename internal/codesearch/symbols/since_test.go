package symbols

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A file that is brought up to date, again and again, beside itself or in one anew, has the tags
// of now.
func TestBroughtUpToDate(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	tagsOf := func(p string) (out []Tag) {
		for range rnd.IntN(5) {
			out = append(out, Tag{Name: []string{"Open", "open", "Close", "x"}[rnd.IntN(4)], Path: p, Line: 1 + rnd.IntN(50), Kind: "func", Scope: "a"})
		}
		return out
	}
	now := map[string][]Tag{}
	all := func() (out []Tag) {
		for _, tags := range now {
			out = append(out, tags...)
		}
		slices.SortFunc(out, order)
		return slices.Compact(out)
	}
	for i := range 30 {
		p := fmt.Sprintf("dir/%d.go", i)
		now[p] = tagsOf(p)
	}
	at := filepath.Join(t.TempDir(), "symbols")
	if err := Write(at, all()); err != nil {
		t.Fatal(err)
	}
	whole, beside := 0, 0
	for i := range 60 {
		var fresh []Tag
		var out []string
		for range 1 + rnd.IntN(3) {
			p := fmt.Sprintf("dir/%d.go", rnd.IntN(40))
			if slices.Contains(out, p) {
				continue
			}
			now[p] = nil
			if rnd.IntN(4) > 0 {
				now[p] = tagsOf(p)
			}
			fresh, out = append(fresh, now[p]...), append(out, p)
		}
		f, err := Open(at)
		if err != nil {
			t.Fatal(err)
		}
		next, n := filepath.Join(t.TempDir(), "symbols"), 0
		if f.Stale() {
			n, err = f.WriteWhole(next, fresh, out)
			whole++
		} else if n, err = f.WriteSince(next, fresh, out); err == nil {
			err = os.Link(at, next)
			beside++
		}
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
		if f, err = Open(next); err != nil {
			t.Fatal(err)
		}
		got, err := f.All()
		if want := all(); err != nil || !slices.Equal(got, want) || n < len(want) {
			t.Fatalf("step %d: %v, %d tags:\n%v\nwant\n%v", i, err, n, got, want)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		at = next
	}
	if whole == 0 || beside == 0 {
		t.Errorf("%d times anew, %d times beside itself", whole, beside)
	}
}
