package guest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
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
for i in $(seq 40); do echo "package p // needle $i" > a/b/f$i.go; done
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
	lower := t.TempDir()
	run(t, lower, checkout)
	cmd := exec.Command("rg", "--no-config", "--hidden", "--glob", "!.git", "--files", "--null", "./")
	cmd.Dir = lower
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for f := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		files = append(files, filepath.Clean(f))
	}
	index := filepath.Join(t.TempDir(), "index")
	if _, err := codesearch.Build(t.Context(), index, lower, files, codesearch.BuildOptions{}); err != nil {
		t.Fatal(err)
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
	compare := func(t *testing.T, queries []guest.SearchRequest) {
		t.Helper()
		for _, q := range queries {
			got, want := with.find(t, q), without.find(t, q)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%+v (-ripgrep +index):\n%s", q, d)
			}
		}
	}
	compare(t, queries)
	few := []guest.SearchRequest{{Pattern: "needle"}, {Pattern: `(fresh|changed|deep)\b`, Context: 1, Globs: []string{"!vendor"}}, {Pattern: "needle", Paths: []string{"a"}, Max: 7}}
	for _, step := range []string{
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
