package oci_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// A work tree and a HOME that an earlier sandbox left full of links do not lead a mount, or a
// file that we write, anywhere else.
func TestPlantedLinks_SBX25(t *testing.T) {
	r := target(t)
	outside := t.TempDir()
	if err := os.Chmod(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	home, work := filepath.Join(t.TempDir(), "home"), filepath.Join(t.TempDir(), "work")
	first := begin(t, r, sandbox.Spec{Home: sandbox.Layers{Keep: home}, Work: sandbox.Layers{Keep: work}})
	out := does(t, first, strings.Join([]string{
		"set -e", "ln -s " + outside + " ~/.config", "ln -s " + outside + "/npmrc ~/.npmrc", "mkdir -p ~/.cache && ln -s /proc/self/root" + outside + " ~/.cache/go",
		"ln -s " + outside + " .git", "ln -s /etc etc", "ln -s " + outside + " tmp", "ln -s " + outside + " proc", "ln -s / .daybreak", "echo planted",
	}, "; "))
	if out != "planted\n" {
		t.Fatalf("plant: %s", out)
	}
	end(t, first)
	// Control: whoever follows those links does write outside.
	if err := os.WriteFile(filepath.Join(home, ".config", "control"), []byte("x"), 0o644); err != nil {
		t.Fatalf("not exercised: the links lead nowhere: %v", err)
	}
	if err := os.Remove(filepath.Join(outside, "control")); err != nil {
		t.Fatal(err)
	}
	before := fingerprint(t, outside, "/etc")
	spec := sandbox.Spec{
		Home: sandbox.Layers{Lower: []string{home}}, Work: sandbox.Layers{Lower: []string{work}},
		Files: []sandbox.File{{Path: sandbox.HomeDir + "/.config/go/env", Text: []byte("x")}, {Path: sandbox.HomeDir + "/.npmrc", Text: []byte("y")}, {Path: sandbox.HomeDir + "/.cache/go/z", Text: []byte("z")}},
	}
	b, err := r.Start(t.Context(), spec)
	if err == nil {
		t.Cleanup(func() { end(t, b) })
		does(t, b, "cat ~/.config/go/env ~/.npmrc; echo more >> ~/.npmrc; mkdir -p ~/.config/x; touch ~/.config/x/y tmp/x proc/x .git/x")
	} else if strings.Contains(err.Error(), "\n") {
		t.Errorf("refused, but not in one line: %v", err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 0 || fingerprint(t, outside, "/etc") != before {
		t.Errorf("something was written outside: %v %v", entries, err)
	}
}

// What is kept on the host's disk has a cap too: who passes it ends, and what came next does not
// have to wait for the disk to be full.
func TestKeptIsCapped_SBX19(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "home")
	b := begin(t, target(t), sandbox.Spec{Home: sandbox.Layers{Keep: keep}, Limits: sandbox.Limits{HomeBytes: 32 << 20}})
	if out := does(t, b, "head -c 8M /dev/zero > ~/within; echo kept"); out != "kept\n" {
		t.Fatalf("what is within the cap: %s", out)
	}
	_, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: "i=0; while [ $i -lt 600 ]; do head -c 1M /dev/zero > ~/over$i; i=$((i+1)); sleep 0.1; done"})
	if err == nil {
		t.Error("it wrote twenty times its cap")
	}
	end(t, b)
	if n, err := os.ReadDir(keep); err != nil || len(n) < 24 {
		t.Errorf("it ended at %d files of 1 MiB, long before its cap: %v", len(n), err)
	}
}

// What a sandbox shares with all later ones is byte for byte what it was, read anew.
func TestSharedFilesAreWhatTheyWere_SBX27(t *testing.T) {
	tree := armed(t, map[string]string{"a/b.go": "package a\n", "c": strings.Repeat("c", 9000)})
	shared := sample(t, "/usr/bin", 40)
	shared = append(shared, filepath.Join(tree, "a/b.go"), filepath.Join(tree, "c"), testGuest)
	digest := func() string {
		for _, p := range shared { // past the page cache, where the kernel lets us
			if f, err := os.Open(p); err == nil {
				_ = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
				f.Close()
			}
		}
		return fingerprint(t, shared...)
	}
	before := digest()
	b := begin(t, target(t), sandbox.Spec{Tree: tree})
	out := does(t, b, `for f in /usr/bin/env $(ls -d /usr/bin/[a-c]* | head -15) /.daybreak/guest; do (printf x >> $f; dd if=/dev/zero of=$f bs=1 count=1 conv=notrunc; truncate -s0 $f; mv $f $f.x; chmod 777 $f; ln -f $f /tmp/l) 2>/dev/null && echo took $f; done; echo changed >> a/b.go; : > c; ./attacker overwrite; sync`)
	if strings.Contains(out, "took") {
		t.Errorf("a shared file took a change: %s", out)
	}
	if got := does(t, b, "wc -c < c; tail -1 a/b.go"); got != "0\nchanged\n" {
		t.Fatalf("not exercised: its own copy did not change: %q", got)
	}
	end(t, b)
	if digest() != before {
		t.Error("a shared file changed")
	}
}

// sample lists some regular files below dir, always the same.
func sample(t *testing.T, dir string, n int) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() && len(out) < n {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

// Files are swapped for links as fast as can be while exports read them. A reader in the
// sandbox that does not mind falls for it; what is exported is text of a link or the file.
func TestSwappedWhileExported_EXP03(t *testing.T) {
	victims, exports := 100, 10
	if os.Getenv("DAYBREAK_ATTACK") != "" {
		exports = 100 // ten thousand tries
	}
	b := begin(t, target(t), sandbox.Spec{Tree: armed(t, nil)})
	does(t, b, "mkfifo /tmp/swapping")
	if _, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: "exec ./attacker swapmany 100 /etc/passwd", Background: true}); err != nil {
		t.Fatal(err)
	}
	does(t, b, "cat /tmp/swapping")
	if naive := does(t, b, "for i in $(seq 5); do cat victim* 2>/dev/null; done | grep -c nologin"); strings.TrimSpace(naive) == "0" {
		t.Fatal("not exercised: a careless reader does not fall for it either")
	}
	seen := 0
	for range exports {
		m, err := b.Export(t.Context(), sandbox.ExportLimits{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range m.Entries {
			if !strings.HasPrefix(e.Path, "victim") {
				continue
			}
			seen++
			if strings.Contains(string(e.Content), "nologin") || e.Mode == 0o120000 && string(e.Content) != "/etc/passwd" {
				t.Fatalf("%s left with %q", e.Path, e.Content)
			}
		}
	}
	if seen < victims*exports {
		t.Errorf("%d files were exported, want %d or more", seen, victims*exports)
	}
}

// Two tasks, one of which prepares a file and the other looks for it everywhere: they share no
// place, no memory and no process.
func TestTwoTasksShareNothing_INT10(t *testing.T) {
	r := target(t)
	tree := armed(t, nil)
	token := canary(t)
	one := begin(t, r, sandbox.Spec{Task: "one", Tree: tree})
	does(t, one, "for d in . ~ /tmp /dev/shm; do echo "+token+" > $d/left; done; (exec -a "+token+" sleep 1000000) & disown; ./attacker makeshm 4242")
	if out := does(t, one, "cat left ~/left /tmp/left /dev/shm/left"); strings.Count(out, token) != 4 {
		t.Fatalf("not exercised: it was not left: %q", out)
	}
	look := func(b sandbox.Sandbox) string {
		return does(t, b, "cat left ~/left /tmp/left /dev/shm/left /var/tmp/left; grep -rs "+token[:12]+" / --exclude-dir=proc --exclude-dir=usr; cat /proc/*/cmdline; ./attacker findshm 4242")
	}
	two := begin(t, r, sandbox.Spec{Task: "two", Tree: tree})
	if out := look(two); strings.Contains(out, token) || said(out, "shm") == "ok" {
		t.Errorf("the other task sees it: %s", out)
	}
	m, err := two.Export(t.Context(), sandbox.ExportLimits{})
	if err != nil || slices.ContainsFunc(m.Entries, func(e sandbox.Entry) bool { return strings.Contains(string(e.Content), token) }) {
		t.Errorf("it leaves with the other: %v %v", m, err)
	}
	end(t, one)
	three := begin(t, r, sandbox.Spec{Task: "three", Tree: tree})
	if out := look(three); strings.Contains(out, token) {
		t.Errorf("a later task sees it: %s", out)
	}
}

// The state of side channels is told by the host report.
func TestSideChannelsAreReported_SBX30(t *testing.T) {
	c := target(t).Capabilities(t.Context())
	all := strings.Join(append(append([]string{}, c.Facts...), c.Notes...), "\n")
	for file, word := range map[string]string{
		"/sys/devices/system/cpu/smt/active": "SMT", "/sys/kernel/mm/ksm/run": "KSM", "/proc/sys/vm/swappiness": "swappiness", "/sys/devices/system/cpu/vulnerabilities": "mitigations",
	} {
		if _, err := os.Stat(file); err == nil && !strings.Contains(all, word) {
			t.Errorf("nothing is said of %s:\n%s", word, all)
		}
	}
}
