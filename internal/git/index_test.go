package git

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

// madeIndex is the index that git itself makes of a few files.
func madeIndex(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q", "-b", "main")
	for _, name := range []string{"a", "a.b/c", "a/../z", "d/e/f", "d/e-f", "d/e.f", strings.Repeat("long/", 40) + "x", "\xff\xfe"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	gittest.Run(t, dir, "add", "-A")
	gittest.Run(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("1", 40)+",sub/m")
	gittest.Run(t, dir, "write-tree") // which the index then knows
	b, err := os.ReadFile(filepath.Join(dir, ".git", "index"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestIndexIsWrittenAsGitWritesIt(t *testing.T) {
	b := madeIndex(t)
	entries, trees, err := readIndex(b)
	if err != nil || len(entries) != 9 || len(trees) < 5 {
		t.Fatalf("%d entries, %d directories, %v", len(entries), len(trees), err)
	}
	got := writeIndex(entries, trees)
	again, t2, err := readIndex(got)
	if err != nil || len(again) != len(entries) || len(t2) != len(trees) {
		t.Fatalf("%v: %d entries, %d directories", err, len(again), len(t2))
	}
	if end := bytes.Index(b, []byte("TREE")); !bytes.Equal(got[:end], b[:end]) {
		t.Error("the entries are other bytes")
	}
	for _, damage := range []func(b []byte){
		func(b []byte) { b[20] ^= 1 },
		func(b []byte) { b[len(b)-1] ^= 1 },
		func(b []byte) { binary.BigEndian.PutUint32(b[4:], 4) },
		func(b []byte) { binary.BigEndian.PutUint32(b[8:], 1<<31) },
	} {
		c := bytes.Clone(b)
		damage(c)
		if _, _, err := readIndex(c); err == nil {
			t.Error("a damaged index was read")
		}
	}
}

// Names are taken for usual only where git takes them.
func TestUsualNames(t *testing.T) {
	dir := t.TempDir()
	gittest.Run(t, dir, "init", "-q", "-b", "main")
	for _, name := range []string{
		"a", ".github/x", ".gitignore", "caf\u00e9", "\xff", "x..y", "...", ".g", "git", "a/.git/b", ".GIT/x", ".git", "..", "a/../b", "a//b", "/a", "a/", ".git ", ".git.", "GIT~1/x",
		".g\u200cit/x", ".git\u200c", "a\\b", "a:b", ".git::$INDEX_ALLOCATION/x", ".gitmodules", "gitmod~1", "gi7eba~1", ".GitModules",
	} {
		for mode, want := range map[uint32]string{ModeFile: "100644", ModeLink: "120000"} {
			if !usual(name, mode) {
				continue
			}
			cmd := exec.Command("git", "update-index", "--add", "--cacheinfo", want+","+strings.Repeat("1", 40)+","+name)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%q with mode %s is no usual name: %s", name, want, out)
			}
		}
	}
	for _, name := range []string{"a", ".github/x", ".gitignore", "caf\u00e9/y", "\xff", "x..y", "git"} {
		if !usual(name, ModeFile) {
			t.Errorf("%q is a usual name", name)
		}
	}
}

// FuzzIndex reads what is no index of a checkout, with a sum that fits: it is refused, or written
// as it was read.
func FuzzIndex(f *testing.F) {
	whole := madeIndex(f)
	f.Add(whole[:len(whole)-20])
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00TREE\x00\x00\x00\x19\x00-1 0\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		entries, trees, err := readIndex(summed(body))
		if err != nil {
			return
		}
		again, _, err := readIndex(writeIndex(entries, trees))
		if err != nil || len(again) != len(entries) {
			t.Fatalf("%d entries became %d: %v", len(entries), len(again), err)
		}
		for i := range again {
			if again[i] != entries[i] {
				t.Fatalf("%+v became %+v", entries[i], again[i])
			}
		}
	})
}

// FuzzPackIndex reads what is no index of a pack, with a sum that fits.
func FuzzPackIndex(f *testing.F) {
	b := append([]byte("\xfftOc\x00\x00\x00\x02"), make([]byte, 1024)...)
	b[len(b)-1] = 1
	f.Add(append(b, make([]byte, 48)...))
	f.Add(b)
	f.Fuzz(func(t *testing.T, body []byte) {
		objects, err := readPackIndex(summed(body))
		if err != nil {
			return
		}
		var pack [20]byte
		copy(pack[:], body[len(body)-20:])
		again, err := readPackIndex(writePackIndex(objects, pack))
		if err != nil || len(again) != len(objects) {
			t.Fatalf("%d objects became %d: %v", len(objects), len(again), err)
		}
	})
}

// summed is a body with git's checksum behind it.
func summed(body []byte) []byte {
	sum := sumOf(body)
	return append(bytes.Clone(body), sum[:]...)
}
