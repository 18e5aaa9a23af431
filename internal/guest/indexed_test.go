package guest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
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

// twoGuests serve the same work tree, one with the index of it as it was. The scripts are run before
// that.
func twoGuests(t *testing.T, scripts ...string) (with, without *site) {
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
	for _, script := range scripts {
		run(t, lower, script)
	}
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

// sameAnswer asks both guests and compares.
func sameAnswer(t *testing.T, with, without *site, q guest.SearchRequest, indexed bool) guest.SearchResult {
	t.Helper()
	got, want := with.find(t, q), without.find(t, q)
	if got.Indexed != indexed {
		t.Errorf("%+v: answered from the index: %v", q, got.Indexed)
	}
	got.Indexed = false
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%+v (-ripgrep +index):\n%s", q, d)
	}
	return got
}

// A definition is shown wherever in its file it is, and however much there is around it.
func TestDefinitionAmongManyLines(t *testing.T) {
	with, without := twoGuests(t, `
mkdir w
for i in $(seq 60); do for j in $(seq 8); do echo "	use(Widget{$i, $j})"; done > w/f$i.go; done
for j in $(seq 4); do echo "// Widget is one, $j"; done > w/z.go
printf 'type Widget struct {\n\tA, B int // Widget\n}\n' >> w/z.go
printf 'func Test(t) { Widget }\nfunc Widget() {}\n' > w/z_test.go
`)
	changed := `for j in $(seq 9); do echo "x Widget $j"; done > w/new.go; printf 'class Widget:\n    Widget\n' >> w/new.go`
	for _, step := range []string{"", changed} {
		run(t, with.dir, step)
		for _, q := range []guest.SearchRequest{
			{Pattern: "Widget"}, {Pattern: `\bWidget\b`, Context: 2}, {Pattern: "Widget", Max: 3, Context: 10}, {Pattern: "widget", Max: 1}, {Pattern: `Widget\w*`, Max: 61},
		} {
			r := sameAnswer(t, with, without, q, true)
			found, matches := map[string]bool{}, 0
			for _, m := range r.Matches {
				found[m.Text] = found[m.Text] || !m.Context
				if !m.Context {
					matches++
				}
			}
			if !found["type Widget struct {"] && (step == "" || q.Max != 1) || step != "" && !found["class Widget:"] || !r.Truncated {
				t.Errorf("%+v: %d lines without the definition", q, len(r.Matches))
			}
			if want := max(q.Max, guest.MaxMatches*(1-min(q.Max, 1))); matches != want {
				t.Errorf("%+v: %d matches", q, matches)
			}
		}
	}
}

// A line of megabytes is cut and counted in the same way, whoever reads it.
func TestSearchOfLongLines(t *testing.T) {
	with, without := twoGuests(t, `
long() { head -c $1 /dev/zero | tr '\0' x; }
for i in 1 2; do { echo "type Far$i struct {"; echo -n "var Far$i = 7; "; long 2000000; printf ' Far%d; Far = 8\r\nFar\n' $i; } > a/l$i.js; done
{ printf 'caf\351 Far = 9;'; long 1500000; echo; } > a/latin.js`)
	for _, q := range []guest.SearchRequest{
		{Pattern: "Far"}, {Pattern: "far", Context: 1}, {Pattern: `Far\d? = \d;`}, {Pattern: `Far\d?; Far = \d`}, {Pattern: "Far", Max: 1, Context: 3},
	} {
		r := sameAnswer(t, with, without, q, true)
		if len(r.Matches) == 0 || q.Max == 0 && !strings.Contains(fmt.Sprint(r.Matches), "more bytes in this line]") {
			t.Errorf("%+v: %+v", q, r)
		}
	}
}

// Files that are too large to be searched are named when nothing else matches.
func TestSearchNamesLargeFiles(t *testing.T) {
	with, without := twoGuests(t, `for f in a/dump.sql vendor/x.json x.log; do truncate -s 17M $f; echo rare >> $f; done`)
	for _, c := range []struct {
		script  string
		q       guest.SearchRequest
		want    []string
		indexed bool
	}{
		{"", guest.SearchRequest{Pattern: "rare"}, []string{"a/dump.sql", "vendor/x.json"}, true},
		{"", guest.SearchRequest{Pattern: "rare", Paths: []string{"a"}}, []string{"a/dump.sql"}, true},
		{"", guest.SearchRequest{Pattern: "rare", Globs: []string{"*.go"}}, nil, true},
		{"", guest.SearchRequest{Pattern: "needle"}, nil, true},
		{"cp a/dump.sql new", guest.SearchRequest{Pattern: "rare", Globs: []string{"!*.json"}}, []string{"a/dump.sql", "new"}, true},
		{"", guest.SearchRequest{Pattern: "no such", Paths: []string{"a/dump.sql"}}, nil, false},
	} {
		run(t, with.dir, c.script)
		if r := sameAnswer(t, with, without, c.q, c.indexed); !slices.Equal(r.Large, c.want) {
			t.Errorf("%+v: %q, want %q", c.q, r.Large, c.want)
		}
	}
}

// What commands leave behind does not keep the index from answering, as long as it is ignored.
func TestIndexedSearchAmongIgnoredFiles(t *testing.T) {
	with, without := twoGuests(t, `
printf '*.o\n__pycache__/\nnode_modules\n' >> .gitignore
mkdir -p venv/lib; echo '*' > venv/.gitignore; echo needle > venv/lib/x.py; echo '!*' > venv/lib/.ignore
printf '[alias]\n\tx = y\n' >> .git/config
`)
	needle, fresh := guest.SearchRequest{Pattern: "needle"}, guest.SearchRequest{Pattern: `fresh\w*`, Context: 1}
	touched := false
	for _, step := range []struct {
		script string
		off    bool // from here on the index has no say
	}{
		{script: `for i in $(seq 1500); do echo needle > a/b/f$i.o; done; mkdir -p build/deep; for i in $(seq 1500); do echo needle > build/deep/$i; done`},
		{script: `mkdir -p a/node_modules/p; cd a/node_modules/p; echo '!*' > .gitignore; echo '!*' > .ignore; echo 'needle fresh' > index.js; seq 25000 | split -l 1 -a 4 -`},
		{script: `for d in . a a/b a/b/c vendor; do mkdir -p $d/__pycache__; printf 'needle\0' > $d/__pycache__/m.pyc; done`},
		{script: `mkdir .pytest_cache; cd .pytest_cache; echo '*' > .gitignore; echo needle > README.md; mkdir v; echo needle > v/x`},
		{script: `echo 'needle fresh' > venv/new; mkdir -p venv/lib/q; echo needle > venv/lib/q/x`},
		{script: `mkdir -p newpkg/sub; echo 'gen*' > newpkg/.gitignore; echo 'needle fresh' | tee newpkg/a.go newpkg/gen.go newpkg/sub/gen2.go newpkg/sub/b.go`},
		{script: `echo '!gen2.go' > newpkg/sub/.gitignore`},
		{script: `rm newpkg/.gitignore`},
		{script: `git config user.email x@y; git config core.excludesFile $PWD/.gitignore; git config core.ignoreCase true; echo 'needle fresh' > A.O`},
		{script: `git config --file "$HOME/.gitconfig" user.name x`},
		{script: `mkdir ':'; echo 'needle fresh' | tee ':x.o.go' ':(glob)x' ':y.o' ':build' ':/x.log.go'; echo 'build/' > ':/.gitignore'; mkdir ':/build'; echo 'needle fresh' > ':/build/x'`},
		{script: `rm -r gone; mkdir gone; echo 'needle fresh' > gone/x.log; echo 'needle fresh' > gone/y`},
		{script: `rm venv/.gitignore`, off: true}, // .ignore below it comes to light
	} {
		t.Run(step.script, func(t *testing.T) {
			touched = touched || step.off
			run(t, with.dir, step.script)
			r := sameAnswer(t, with, without, needle, !touched)
			if len(r.Files) < 40 {
				t.Errorf("%d files", len(r.Files))
			}
			sameAnswer(t, with, without, fresh, !touched)
			if s := with.asked(t, guest.SymbolsRequest{Name: "F1"}); !s.Indexed || len(s.Symbols) != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// Each of these changes what is ignored, or may: ripgrep answers alone.
func TestRulesThatTheIndexDoesNotKnow(t *testing.T) {
	for _, script := range []string{
		`rm .gitignore`,
		`rm .gitignore; ln -s lines.txt .gitignore`,
		`rm deep/.gitignore`,
		`rm -r deep; mkdir deep; echo needle > deep/x.log`,
		`echo '*.txt' > a/.gitignore`,
		`echo '*.go' > a/b/c/.ignore`,
		`mkdir -p n; echo '!*' > n/.rgignore; echo needle > n/x.log`,
		`git init -q a/b/c 2>/dev/null; echo needle > a/b/c/x.log`,
		`mkdir -p n; git init -q n 2>/dev/null; echo needle > n/x.log`,
		`echo needle > module/x.log`, // git says it is ignored, ripgrep does not
		`rm .git/info/exclude`,
		`rm -r .git`,
		`git config --file "$HOME/.gitconfig" core.excludesFile "$PWD/lines.txt"`,
		`mkdir -p "$HOME/.config/git"; echo '*.txt' > "$HOME/.config/git/ignore"`,
		`echo '*.txt' > "../.ignore"`,
	} {
		t.Run(script, func(t *testing.T) {
			with, without := twoGuests(t, `mkdir deep; echo '*.md' > deep/.gitignore; echo needle | tee deep/x.md deep/y excluded; echo excluded > .git/info/exclude; mkdir module; git init -q module 2>/dev/null; echo needle > module/m.go`)
			sameAnswer(t, with, without, guest.SearchRequest{Pattern: "needle"}, true)
			run(t, with.dir, script)
			sameAnswer(t, with, without, guest.SearchRequest{Pattern: "needle"}, false)
		})
	}
}

// A pipe where rules are read keeps nobody from starting.
func TestPipesAreNoRules(t *testing.T) {
	need(t, "rg")
	need(t, "ctags")
	root, home, index := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "index")
	run(t, root, "printf 'package p\n' > a.go")
	buildIndex(t, guest.IndexOptions{Root: root, Out: index})
	run(t, home, "mkfifo .gitconfig")
	t.Setenv("HOME", home)
	s := start(t, func(o *guest.ServerOptions) { o.Root, o.Index = root, index })
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
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

// TestRandomChanges compares the guests after random changes of the tree and of what is ignored: some
// in the usual run, as many as DAYBREAK_SEARCH_CHANGES says.
func TestRandomChanges(t *testing.T) {
	n := 24
	if v := os.Getenv("DAYBREAK_SEARCH_CHANGES"); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	pick := func(list ...string) string { return list[rnd.IntN(len(list))] }
	dir := func() string {
		return pick("a", "a/b", "a/b/c", "vendor", "build", "n", "n/build", "n/deep", "a/n", "a/__pycache__", "n/.git", "moved", "kept", "kept/in")
	}
	file := func() string {
		return dir() + "/" + pick("x.log", "x.go", "y.go", "f1.go", "same.go", "x.o", "notes", ".gitignore", "z.md")
	}
	rule := func() string {
		return pick("*.o", "*.log", "!x.log", "/n/", "deep/", "*", "!*", "x.*", "__pycache__/", "/build", "b/c", "# no", "y.go")
	}
	step := func() string {
		switch rnd.IntN(24) {
		case 0:
			return fmt.Sprintf("echo '%s' >> .gitignore", rule())
		case 1, 2:
			d := dir()
			return fmt.Sprintf("mkdir -p %s; echo '%s' >> %s/.gitignore", d, rule(), d)
		case 3:
			return fmt.Sprintf("echo '%s' >> .git/info/exclude", rule())
		case 4:
			return "git config core.ignoreCase " + pick("true", "false")
		case 5:
			return fmt.Sprintf("rm -rf %s", dir())
		case 6, 7:
			return fmt.Sprintf("rm -rf %s", file())
		case 8:
			return fmt.Sprintf("mv %s %s || true", dir(), dir())
		case 9:
			return fmt.Sprintf("mv %s %s || true", file(), file())
		case 10:
			return fmt.Sprintf("ln -sfn %s %s || true", pick("b", "../a", "nowhere"), file())
		case 11:
			return fmt.Sprintf("mkdir -p %s", file())
		case 12:
			return fmt.Sprintf("f=%s; mkdir -p ${f%%/*}; for i in $(seq 60); do echo needle $i > $f$i || true; done", file())
		default:
			return fmt.Sprintf("f=%s; mkdir -p ${f%%/*}; echo needle %d >> $f || true", file(), rnd.IntN(5))
		}
	}
	answered := 0
	for i := 0; i < n; {
		with, without := twoGuests(t, `mkdir -p kept/in; echo '*.md' > kept/.gitignore; echo needle | tee kept/x.go kept/in/y.go kept/z.md kept/in/z.md; echo needle > a/x.o; printf '*.o\n' >> .gitignore; echo '*' > build/.gitignore`)
		sameAnswer(t, with, without, guest.SearchRequest{Pattern: "needle"}, true)
		done := ""
		for range 12 {
			s := step()
			i++
			done += s + "\n"
			run(t, with.dir, "("+s+") 2>/dev/null || true")
			for _, q := range []guest.SearchRequest{{Pattern: "needle"}, {Pattern: `needle [2-4]\b`, Context: 1}, {Pattern: "needle", Paths: []string{"a"}, Max: 9}} {
				got, want := with.find(t, q), without.find(t, q)
				if got.Indexed {
					answered++
				}
				got.Indexed = false
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("seed %d, after\n%s%+v (-ripgrep +index):\n%s", seed, done, q, d)
				}
			}
		}
	}
	t.Logf("%d answers from the index", answered)
}
