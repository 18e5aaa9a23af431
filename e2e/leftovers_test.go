package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// clean: no sandbox, runtime process or mount of this script is left.
func cmdClean(ts *testscript.TestScript, neg bool, args []string) {
	if left := leftovers(ts.Getenv("DAYBREAK_DIR")); len(left) > 0 {
		ts.Fatalf("left behind: %s", strings.Join(left, "; "))
	}
}

// record NAME: with DAYBREAK_RECORD=1 the newest task's log becomes testdata/records/NAME.jsonl, which
// replays.txtar runs again.
func cmdRecord(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "record NAME")
	if os.Getenv("DAYBREAK_RECORD") != "1" {
		return
	}
	ts.Check(ts.Exec("daybreak", "task", "export"))
	ts.Check(os.WriteFile(filepath.Join(ts.Getenv("RECORDS"), args[0]+".jsonl"), []byte(ts.ReadFile("stdout")), 0o644))
}

// leftovers finds mounts and processes that name a data directory.
func leftovers(dir string) []string {
	var out []string
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for l := range strings.SplitSeq(string(mounts), "\n") {
		if strings.Contains(l, dir+"/") {
			out = append(out, "mount "+l)
		}
	}
	procs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, p := range procs {
		b, _ := os.ReadFile(p)
		if bytes.Contains(b, []byte(dir+"/")) && !bytes.Contains(b, []byte("e2e.test")) {
			out = append(out, "process "+strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}
