package tamper

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestReplay runs the report over the fixes in the history of real repositories and prints how
// many have a finding, by severity: people's fixes are honest. DAYBREAK_TAMPER_REPLAY lists bare
// repositories or clones, separated by colons; DAYBREAK_TAMPER_COMMITS is how many fixes of each
// are looked at (200). People do remove tests; another finding of severity "block" in more than 1 %
// of their fixes fails the test.
func TestReplay(t *testing.T) {
	list := os.Getenv("DAYBREAK_TAMPER_REPLAY")
	if list == "" {
		t.Skip("DAYBREAK_TAMPER_REPLAY is not set")
	}
	limit := 200
	if n, err := strconv.Atoi(os.Getenv("DAYBREAK_TAMPER_COMMITS")); err == nil {
		limit = n
	}
	all, blocked, gone := 0, 0, 0
	for _, dir := range filepath.SplitList(list) {
		n, worst := 0, map[string]int{}
		kinds := map[string]int{}
		for _, c := range fixes(t, dir) {
			if n == limit {
				break
			}
			r, ok := replay(t, dir, c)
			if !ok {
				continue
			}
			n++
			severity, other := "", false
			for _, f := range r.Findings {
				if f.Severity == "block" || severity == "" || severity == "info" && f.Severity == "warn" {
					severity = f.Severity
				}
				other = other || f.Severity == "block" && f.SubKind != TestDeleted
				if f.Severity != "info" {
					kinds[string(f.SubKind)]++
					t.Logf("%s %.10s %s %s:%d %s\n  - %s\n  + %s", filepath.Base(filepath.Dir(dir)), c, f.Severity, f.Path, f.Line, f.Detail, strings.ReplaceAll(f.Old, "\n", " "), strings.ReplaceAll(f.New, "\n", " "))
				}
			}
			worst[severity]++
			switch {
			case other:
				blocked++
			case severity == "block":
				gone++
			}
		}
		all += n
		fmt.Printf("%-40s %4d fixes: block %d, warn %d, info %d, none %d  %v\n", filepath.Base(filepath.Dir(dir)), n, worst["block"], worst["warn"], worst["info"], worst[""], kinds)
	}
	fmt.Printf("%d fixes: %d without a test that was there, %d with another severe finding\n", all, gone, blocked)
	if blocked*100 > all {
		t.Errorf("%d of %d fixes made by people have a severe finding", blocked, all)
	}
}

var fixWords = regexp.MustCompile(`(?i)\b(fix(e[sd])?|bug|resolves?|correct|regression|issue)\b`)

// fixes are commits whose subject says that they mend something.
func fixes(t *testing.T, dir string) []string {
	var out []string
	for _, l := range strings.Split(string(gitOut(t, dir, "log", "--no-merges", "--format=%H %s", "-n", "6000", "HEAD")), "\n") {
		if h, subject, ok := strings.Cut(l, " "); ok && fixWords.MatchString(subject) {
			out = append(out, h)
		}
	}
	return out
}

// replay is ok for commits that change code and tests, in not too many files.
func replay(t *testing.T, dir, commit string) (Result, bool) {
	var changes []FileChange
	tests, source := false, false
	fields := strings.Split(string(gitOut(t, dir, "diff-tree", "-r", "-z", "--no-renames", "--no-commit-id", commit)), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		meta, p := strings.Fields(fields[i]), fields[i+1]
		if len(meta) < 5 || meta[1] == "160000" || meta[0] == ":160000" {
			continue
		}
		c := FileChange{Path: p}
		var err error
		if meta[4] != "A" {
			c.Old, err = blob(dir, meta[2])
		}
		if meta[4] != "D" && err == nil {
			c.New, err = blob(dir, meta[3])
		}
		if err != nil { // a clone without all objects
			return Result{}, false
		}
		changes = append(changes, c)
		class := classify(p)
		tests = tests || class == ClassTest
		source = source || class == ClassSource
	}
	if !tests || !source || len(changes) > 30 {
		return Result{}, false
	}
	return Analyse(changes, classify), true
}

func blob(dir, id string) ([]byte, error) {
	out, err := exec.Command("git", "-C", dir, "-c", "safe.directory=*", "cat-file", "blob", id).Output()
	return append([]byte{}, out...), err
}

func gitOut(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("git", slices.Concat([]string{"-C", dir, "-c", "safe.directory=*"}, args)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %v: %v %s", args, err, stderr.String())
	}
	return out
}
