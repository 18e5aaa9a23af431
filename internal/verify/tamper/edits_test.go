package tamper

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/eval/edit"
)

// maxEdited is how many tests of one repository are edited.
const maxEdited = 60

// TestReplayOfEdits deletes, skips and loosens tests of real repositories mechanically, each edit
// alone, and counts those that leave no finding that stops a change. DAYBREAK_TAMPER_REPLAY lists
// the repositories. More than 1 % of one kind in one language fails the test.
func TestReplayOfEdits(t *testing.T) {
	list := os.Getenv("DAYBREAK_TAMPER_REPLAY")
	if list == "" {
		t.Skip("DAYBREAK_TAMPER_REPLAY is not set")
	}
	done, missed := map[string]int{}, map[string]int{}
	for _, dir := range filepath.SplitList(list) {
		left := maxEdited
		names := strings.Split(strings.TrimRight(string(gitOut(t, dir, "ls-tree", "-r", "-z", "--name-only", "HEAD")), "\x00"), "\x00")
		for _, p := range names {
			language := strings.TrimPrefix(path.Ext(p), ".")
			if classify(p) != ClassTest || left <= 0 {
				continue
			}
			text, err := blob(dir, "HEAD:"+p)
			if err != nil {
				continue
			}
			tests := edit.Tests(language, string(text))
			for _, x := range tests[:min(len(tests), 8, left)] {
				left--
				for kind, edits := range map[string][]string{
					"deleted": {edit.Delete(language, string(text), x)}, "skipped": {edit.Skip(language, string(text), x)}, "loosened": edit.Loosen(language, string(text), x),
				} {
					for _, now := range edits[:min(len(edits), 3)] {
						if now == "" {
							continue
						}
						key := language + " " + kind
						done[key]++
						r := Analyse([]FileChange{{Path: p, Old: text, New: []byte(now)}}, classify)
						if len(r.Where(func(k SubKind) bool { return k.Lost() || k.Weakened() })) == 0 {
							missed[key]++
							t.Logf("%s %s: %s of %s: %s", filepath.Base(filepath.Dir(dir)), p, kind, x.Name, firstChange(string(text), now))
						}
					}
				}
			}
		}
	}
	keys := []string{}
	for k := range done {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Printf("%-14s %5d edits, %d not found\n", k, done[k], missed[k])
		if missed[k]*100 > done[k] {
			t.Errorf("%s: %d of %d are not found", k, missed[k], done[k])
		}
	}
}

// firstChange is the first line that differs, before and after.
func firstChange(old, now string) string {
	a, b := strings.Split(old, "\n"), strings.Split(now, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return strings.TrimSpace(a[i]) + " → " + strings.TrimSpace(b[i])
		}
	}
	return "the end"
}
