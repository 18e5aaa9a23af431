package git

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/git/gittest"
)

// deltaPack is a pack of git's with many differences in it, and the repository that it is of.
func deltaPack(t testing.TB) (repo string, pack []byte, objects []packed) {
	t.Helper()
	repo = t.TempDir()
	gittest.Run(t, repo, "init", "-q", "-b", "main")
	rnd := rand.New(rand.NewPCG(1, 2))
	text := make([]string, 400)
	for i := range text {
		text[i] = fmt.Sprintf("line %d %x", i, rnd.Uint64())
	}
	for i := range 12 {
		for name := range 8 {
			text[rnd.IntN(len(text))] = fmt.Sprintf("changed %d %d", i, name)
			if err := os.WriteFile(filepath.Join(repo, fmt.Sprint(name)), []byte(strings.Join(text, "\n")), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		gittest.Run(t, repo, "add", "-A")
		gittest.Run(t, repo, "commit", "-qm", fmt.Sprint(i))
	}
	gittest.Run(t, repo, "repack", "-adfq", "--depth=30", "--window=30")
	found, err := filepath.Glob(filepath.Join(repo, ".git/objects/pack/*.pack"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	idx, err := os.ReadFile(strings.TrimSuffix(found[0], ".pack") + ".idx")
	if err != nil {
		t.Fatal(err)
	}
	if objects, err = readPackIndex(idx); err != nil {
		t.Fatal(err)
	}
	pack, err = os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if again := writePackIndex(objects, [20]byte(pack[len(pack)-20:])); !bytes.Equal(again, idx) {
		t.Fatal("an index is not written as git writes it")
	}
	return repo, pack, objects
}

// What is left of a pack is one that git takes, with an index as git makes it, and has what was
// wanted but for differences from what was not.
func TestTrimmedPackIsGits(t *testing.T) {
	repo, pack, objects := deltaPack(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	lost := 0
	for _, percent := range []int{0, 1, 5, 30, 90, 100} {
		gone := map[objectID]bool{}
		for _, o := range objects {
			gone[o.id] = rnd.IntN(100) < percent
		}
		bare := filepath.Join(t.TempDir(), "bare.git")
		gittest.Run(t, repo, "init", "-q", "--bare", bare)
		dir := filepath.Join(bare, "objects", "pack")
		has, err := trimPack(pack, objects, func(id objectID) bool { return !gone[id] }, dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			stays := slices.Contains(has, o.id)
			if stays && gone[o.id] {
				t.Fatalf("%d %%: %x is there", percent, o.id)
			}
			if !stays && !gone[o.id] {
				lost++
			}
		}
		made, err := filepath.Glob(filepath.Join(dir, "*.pack"))
		if err != nil || (len(has) == 0) != (len(made) == 0) || percent == 0 && len(has) != len(objects) {
			t.Fatalf("%d %%: %d objects in %q %v", percent, len(has), made, err)
		}
		if len(has) == 0 {
			continue
		}
		index := strings.TrimSuffix(made[0], ".pack") + ".idx"
		gittest.Run(t, bare, "verify-pack", index)
		theirs := filepath.Join(t.TempDir(), "git.idx")
		gittest.Run(t, bare, "index-pack", "-o", theirs, made[0])
		a, err := os.ReadFile(theirs)
		if b, berr := os.ReadFile(index); err != nil || berr != nil || !bytes.Equal(a, b) {
			t.Fatalf("%d %%: the index is not as git makes it: %v %v", percent, err, berr)
		}
		var want []string
		for _, id := range has {
			want = append(want, gittest.Run(t, repo, "cat-file", "-t", hex.EncodeToString(id[:]))+" "+hex.EncodeToString(id[:]))
		}
		slices.Sort(want)
		got := strings.Split(gittest.Run(t, bare, "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectname)"), "\n")
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%d %%: %d objects, want %d", percent, len(got), len(want))
		}
	}
	if lost == 0 {
		t.Error("no difference lost what it was from")
	}
}

// A pack that is not what its index says is refused.
func TestDamagedPackIsNotTrimmed(t *testing.T) {
	_, pack, objects := deltaPack(t)
	broken := bytes.Clone(pack)
	broken[len(broken)/2] ^= 1
	for name, b := range map[string][]byte{"a changed byte": broken, "the head": pack[:8], "short": pack[:len(pack)-200], "nothing": nil} {
		if _, err := trimPack(b, objects, func(objectID) bool { return true }, t.TempDir()); !errors.Is(err, errPack) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A pack of which nothing is wanted is not read, however few objects it has, and no file that is
// there is written to.
func TestPacksAreNotReadOrWrittenInVain(t *testing.T) {
	_, pack, objects := deltaPack(t)
	dir := t.TempDir()
	at := filepath.Join(dir, "pack-1.pack")
	if err := os.WriteFile(filepath.Join(dir, "pack-1.idx"), writePackIndex(objects[:1], [20]byte{}), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at, 0o755); err != nil { // reading it fails
		t.Fatal(err)
	}
	if has, err := sharePack(at, t.TempDir(), 0, nil); len(has) > 0 || err != nil {
		t.Errorf("%x %v", has, err)
	}
	for _, want := range []error{nil, os.ErrExist} {
		if _, err := trimPack(pack, objects, func(objectID) bool { return true }, dir); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
}

// FuzzEntryHead reads the beginning of an entry that may be anything.
func FuzzEntryHead(f *testing.F) {
	f.Add([]byte{0x6f, 0x81, 0x00, 1}, uint32(400))
	f.Add([]byte{0xef, 0x81, 0x01, 0xff, 0xff, 0xff, 0xff, 0x7f}, uint32(1<<31))
	f.Fuzz(func(t *testing.T, entry []byte, at uint32) {
		head, base, rest, err := entryHead(entry, at)
		if err != nil {
			return
		}
		if head[0]>>4&7 != offsetDelta {
			if !bytes.Equal(append(bytes.Clone(head), rest...), entry) {
				t.Fatalf("%x is not %x and %x", entry, head, rest)
			}
			return
		}
		if base >= at {
			t.Fatalf("%d is not before %d", base, at)
		}
		_, again, _, err := entryHead(append(appendDistance(bytes.Clone(head), at-base), rest...), at)
		if err != nil || again != base {
			t.Fatalf("%d became %d: %v", base, again, err)
		}
	})
}
