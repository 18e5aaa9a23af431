package guest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

// run executes a shell script in dir.
func run(t testing.TB, dir, script string) {
	t.Helper()
	cmd := exec.Command("bash", "-ec", script)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

const checkout = `
mkdir -p a/b/c gone moved/deep vendor swapped opaque
for i in $(seq 40); do printf "package p // needle $i\n\nfunc F$i() {}\n\nfunc G$i() { Same(); F$i() }\n" > a/b/f$i.go; done
printf 'package p\n\ntype T struct{ field int }\n\nfunc (t T) Same() {}\n\nfunc Same() {}\n\nfunc same2() {}\n' > a/b/same.go
printf 'class T:\n    def Same(self):\n        Same()\n' > vendor/same.py
printf 'def Ignored(): pass\n' > ignored.log.py; printf 'def Ignored2(): pass\n' > py.log
echo 'needle deep' > a/b/c/deep.go
echo 'needle gone' > gone/x.go; echo 'needle moved' > moved/deep/m.go; echo 'needle vendored' > vendor/v.go
echo 'needle swapped' > swapped/s.go; echo 'needle opaque' > opaque/o.go
printf 'one\nneedle two\nthree\nneedle four\nfive\n' > lines.txt
printf 'needle\0nul\n' > nul; printf 'caf\351 needle\n' > latin; printf 'na\303\257ve needle na\303\257ve\n' > utf8
printf '*.log\n/build/\n' > .gitignore
mkdir build; echo needle > build/out; echo needle > x.log
git init -q . 2>/dev/null
`

// twoGuests serve the same work tree, one with the index of it as it was.
func twoGuests(t *testing.T) (with, without *site) {
	t.Helper()
	need(t, "rg")
	need(t, "git")
	need(t, "ctags")
	lower := filepath.Join(t.TempDir(), "lower")
	if err := os.Mkdir(lower, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LOWER", lower)
	run(t, lower, checkout)
	index := filepath.Join(t.TempDir(), "index")
	var said bytes.Buffer
	if err := guest.BuildIndex(t.Context(), guest.IndexOptions{Root: lower, Out: index}, &said); err != nil {
		t.Fatal(err)
	}
	var done guest.Indexed
	if err := json.Unmarshal(said.Bytes(), &done); err != nil || done.Check() != nil || done.Symbols == 0 || done.Advanced {
		t.Fatalf("%s: %v, %v", said.Bytes(), err, done.Check())
	}
	if os.Geteuid() != 0 {
		t.Skip("mounting an overlay here takes root")
	}
	top := t.TempDir()
	if err := unix.Mount("tmpfs", top, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(top, unix.MNT_DETACH) })
	for _, d := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(top, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(top, "merged")
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work,redirect_dir=off,metacopy=off,index=off,xino=off", lower, top, top)
	if err := unix.Mount("overlay", root, "overlay", 0, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	t.Setenv("HOME", t.TempDir()) // no rules of the user's own
	with = start(t, func(o *guest.ServerOptions) { o.Root, o.Index = root, index })
	without = start(t, func(o *guest.ServerOptions) { o.Root = root })
	return with, without
}

func TestIndexedSearchIsRipgreps(t *testing.T) {
	with, without := twoGuests(t)
	queries := []guest.SearchRequest{
		{Pattern: "needle"},
		{Pattern: "needle", Context: 1},
		{Pattern: "Needle"},
		{Pattern: "NEEDLE", Case: "insensitive"},
		{Pattern: "needle", Max: 5},
		{Pattern: "needle", Globs: []string{"*.go"}},
		{Pattern: "needle", Globs: []string{"!a", "!*.txt"}},
		{Pattern: "needle", Paths: []string{"a/b"}},
		{Pattern: "needle", Paths: []string{"lines.txt"}},
		{Pattern: "needle", Paths: []string{"build"}},
		{Pattern: "needle", Paths: []string{"nul"}},
		{Pattern: `needle \w+`},
		{Pattern: `(deep|moved|fresh)\b`},
		{Pattern: "x*"},
		{Pattern: "("},
		{Pattern: "needle.", Literal: true},
		{Pattern: "naïve"},
		{Pattern: "nothing like it"},
		{Pattern: "fresh"},
		{Pattern: "changed"},
	}
	answered := false
	compare := func(t *testing.T, queries []guest.SearchRequest) {
		t.Helper()
		answered = false
		for _, q := range queries {
			got, want := with.find(t, q), without.find(t, q)
			answered = answered || got.Indexed
			got.Indexed = false
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%+v (-ripgrep +index):\n%s", q, d)
			}
		}
	}
	compare(t, queries)
	touched := false // what decides what is ignored
	few := []guest.SearchRequest{{Pattern: "needle"}, {Pattern: `(fresh|changed|deep)\b`, Context: 1, Globs: []string{"!vendor"}}, {Pattern: "needle", Paths: []string{"a"}, Max: 7}}
	for _, step := range []string{
		`cp -al "$LOWER" "$LOWER/../linked"`, // as a later snapshot does: new change times of all files
		`echo 'needle changed' >> a/b/f7.go`,
		`echo 'needle fresh' > a/b/c/new.go`,
		`mkdir -p n/e/w; echo 'needle fresh' > n/e/w/f.txt; echo 'needle fresh' > n/e/w/f.log`,
		`mkdir -p build/x; echo 'needle fresh' > build/x/o`,
		`rm a/b/f9.go`,
		`rm -r gone`,
		`mv moved elsewhere`,
		`rm -r swapped; ln -s a/b swapped`,
		`rm -r opaque; mkdir opaque; echo 'needle fresh' > opaque/p.go`,
		`rm a/b/f1.go; ln -s f2.go a/b/f1.go`,
		`printf 'fresh needle\0\n' > bin; printf 'caf\351 fresh needle\n' > lat`,
		`touch -d 2001-01-01 a/b/f7.go`,
		`mv a/b/f11.go a/b/f12.go`,
		`sed -i s/needle/changed/ lines.txt`,
		`echo 'needle' > '-e [x]{y}.go'; echo needle > $'new\nline.go'`,
		`echo 'f2*.go' >> .gitignore`,
		`echo 'utf8' >> .git/info/exclude`,
	} {
		t.Run(step, func(t *testing.T) {
			run(t, with.dir, step)
			compare(t, few)
			if rules := strings.Contains(step, "gitignore") || strings.Contains(step, "exclude"); answered == (rules || touched) {
				t.Errorf("answered from the index: %v", answered)
			} else if rules {
				touched = true
			}
		})
	}
}

// What the prepared symbols answer is what ctags says about the tree as it is.
func TestPreparedSymbolsAreCtags(t *testing.T) {
	with, without := twoGuests(t)
	compare := func(t *testing.T, queries ...guest.SymbolsRequest) {
		t.Helper()
		for _, q := range queries {
			got, err := with.Symbols(t.Context(), q)
			want, werr := without.Symbols(t.Context(), q)
			if err != nil || werr != nil {
				t.Fatal(err, werr)
			}
			if q.Name != "" && (!got.Indexed || want.Indexed) {
				t.Errorf("%+v: prepared symbols used: %v, without them %v", q, got.Indexed, want.Indexed)
			}
			got.Indexed = false
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%+v (-ctags +prepared):\n%s", q, d)
			}
		}
	}
	queries := []guest.SymbolsRequest{
		{Name: "Same", Refs: 20, Max: 100},
		{Name: "Same", Path: "a/b/f7.go", Refs: 5, Max: 1},
		{Name: "T.Same", Path: "vendor", Refs: 5},
		{Name: "(T).Same()"},
		{Name: "nowhere.Same"},
		{Name: "SAME"},
		{Name: "f1"},
		{Name: "F1", Refs: 3},
		{Name: "field"},
		{Name: "nothing"},
		{Name: "Ignored"},
		{Name: "Ignored2"},
		{Path: "a/b/same.go"},
		{Path: "a/b", Max: 1000},
	}
	compare(t, queries...)
	for _, step := range []string{
		`printf '\nfunc Fresh() { Same() }\n' >> a/b/f7.go`,
		`printf 'package n\n\nfunc Same() {}\n' > a/b/c/new.go`,
		`rm a/b/same.go`,
		`mv a/b/f1.go a/b/c/moved.go`,
		`printf 'def Ignored(): pass\n' > more.log`,
		`rm -r vendor; ln -s a/b vendor`,
	} {
		t.Run(step, func(t *testing.T) {
			run(t, with.dir, step)
			compare(t, queries[0], queries[7], guest.SymbolsRequest{Name: "Fresh", Refs: 3}, guest.SymbolsRequest{Name: "Ignored"})
		})
	}
}

func TestDamagedIndexIsDoneWithout(t *testing.T) {
	need(t, "rg")
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "index.json"), []byte(`{"version":1,"segments":[{"name":"0000.seg"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(o *guest.ServerOptions) { o.Index = dir })
	s.put(t, "a.go", "needle\n")
	if r := s.find(t, guest.SearchRequest{Pattern: "needle"}); len(r.Files) != 1 {
		t.Errorf("%+v", r)
	}
}
