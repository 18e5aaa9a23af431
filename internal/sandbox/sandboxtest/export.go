package sandboxtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func execRequest(shell string) guest.ExecRequest { return guest.ExecRequest{Shell: shell} }

func file(path, text string) sandbox.Entry {
	return sandbox.Entry{Path: path, Mode: 0o100644, Content: []byte(text)}
}

func program(path, text string) sandbox.Entry {
	return sandbox.Entry{Path: path, Mode: 0o100755, Content: []byte(text)}
}

func link(path, text string) sandbox.Entry {
	return sandbox.Entry{Path: path, Mode: 0o120000, Content: []byte(text)}
}

func gone(path string) sandbox.Entry { return sandbox.Entry{Path: path, Deleted: true} }

func (s *suite) exportChanges(t *testing.T) {
	base := map[string]string{
		"keep": "k", "edit": "old", "exec": "e", "rm": "r", "touched": "t", "same": "s", ".git/config": "base",
		"dir/a": "a", "dir/deep/b": "b", "gone/a": "a", "gone/deep/b": "b", "swap/x": "x", "plain": "p", "again/a": "a", "again/b": "b",
	}
	for _, c := range []struct {
		name, command string
		want          []sandbox.Entry
	}{
		{"nothing", "true", nil},
		{"read only", "cat edit dir/deep/b", nil},
		{"add", "echo -n 1 > new; mkdir -p n/m; echo -n 2 > n/m/new; mkdir empty", []sandbox.Entry{file("n/m/new", "2"), file("new", "1")}},
		{"modify", "echo -n new > edit; echo -n new > dir/deep/b", []sandbox.Entry{file("dir/deep/b", "new"), file("edit", "new")}},
		{"mode", "chmod +x exec; chmod 600 keep", []sandbox.Entry{program("exec", "e")}},
		{"copied up, not changed", "touch touched; echo -n s > same; chmod +x edit; chmod -x edit", nil},
		{"delete file", "rm rm dir/a", []sandbox.Entry{gone("dir/a"), gone("rm")}},
		{"delete directory", "rm -r gone", []sandbox.Entry{gone("gone/a"), gone("gone/deep/b")}},
		{"delete and make again", "rm -r again; mkdir again; echo -n a > again/a; echo -n c > again/c", []sandbox.Entry{gone("again/b"), file("again/c", "c")}},
		{"rename directory", "mv dir moved", []sandbox.Entry{gone("dir/a"), gone("dir/deep/b"), file("moved/a", "a"), file("moved/deep/b", "b")}},
		{"rename file", "mv plain renamed", []sandbox.Entry{gone("plain"), file("renamed", "p")}},
		{"file to directory", "rm plain; mkdir plain; echo -n q > plain/q", []sandbox.Entry{gone("plain"), file("plain/q", "q")}},
		{"directory to file", "rm -r swap; echo -n f > swap", []sandbox.Entry{file("swap", "f"), gone("swap/x")}},
		{"directory to link", "rm -r swap; ln -s dir swap", []sandbox.Entry{link("swap", "dir"), gone("swap/x")}},
		{"file to link", "rm plain; ln -s keep plain", []sandbox.Entry{link("plain", "keep")}},
		{"file to fifo", "rm plain; mkfifo plain", []sandbox.Entry{gone("plain")}},
		{"link", "ln -s /etc/passwd out; ln -s ../.. up", []sandbox.Entry{link("out", "/etc/passwd"), link("up", "../..")}},
		{"hard link", "ln keep hard", []sandbox.Entry{file("hard", "k")}},
		{"git directory", "echo x > .git/config; echo x > .git/hooks; mkdir -p dir/.git; echo -n x > dir/.git/config", []sandbox.Entry{file("dir/.git/config", "x")}},
		{"git directory gone", "rm -rf .git; echo x > .git", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := s.start(t, sandbox.Spec{Tree: s.tree(t, base)})
			if out, code := sh(t, b, c.command); code != 0 {
				t.Fatalf("exit code %d: %s", code, out)
			}
			for range 2 { // the sandbox goes on after an export
				if diff := cmp.Diff(c.want, export(t, b).Entries); diff != "" {
					t.Errorf("change (-want +got):\n%s", diff)
				}
				ok(t, b, "cd . && ls > /dev/null")
			}
		})
	}
}

func (s *suite) exportHostileTree(t *testing.T) {
	dir := s.tree(t, nil)
	b := s.start(t, sandbox.Spec{Tree: dir})
	if got := ok(t, b, "./probe hostile"); got != "done\n" {
		t.Fatal(got)
	}
	m := export(t, b)
	want := []sandbox.Entry{
		file(`back\slash`, "3"), file("bad\xff\xfe", "2"), file("closed/in", "6"), link("link", "/etc/passwd"), link("loop", "loop"),
		file("new\nline", "1"), file("secret", "5"), file("sub/.git/config", "4"), link("sub/up", "../../../../proc/self/environ"),
	}
	if diff := cmp.Diff(want, m.Entries); diff != "" {
		t.Errorf("change (-want +got):\n%s", diff)
	}
	skipped := []string{"fifo", "socket"}
	if s.differs(t, specialFiles) {
		skipped = nil
	}
	if diff := cmp.Diff(skipped, m.Skipped); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the base tree changed: %v %v", entries, err)
	}
}

func (s *suite) exportLimits(t *testing.T) {
	tree := s.tree(t, map[string]string{"dir/1": "", "dir/2": "", "dir/3": ""})
	for _, c := range []struct {
		name, command string
		limits        sandbox.ExportLimits
		fits          bool
	}{
		{"files at the cap", "touch a b c", sandbox.ExportLimits{Files: 3}, true},
		{"one file more", "touch a b c d", sandbox.ExportLimits{Files: 3}, false},
		{"deleted files count", "rm -r dir", sandbox.ExportLimits{Files: 2}, false},
		{"bytes at the cap", "head -c 1000 /dev/zero > a", sandbox.ExportLimits{Bytes: 1000}, true},
		{"one byte more", "head -c 1001 /dev/zero > a", sandbox.ExportLimits{Bytes: 1000}, false},
		{"sum of bytes", "head -c 600 /dev/zero > a; cp a b", sandbox.ExportLimits{Bytes: 1000}, false},
		{"large sparse file", "truncate -s 1T a", sandbox.ExportLimits{}, false},
		{"large file, only touched", "touch probe", sandbox.ExportLimits{Bytes: 1000}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := s.start(t, sandbox.Spec{Tree: tree})
			ok(t, b, c.command)
			_, err := b.Export(t.Context(), c.limits)
			if c.fits && err != nil {
				t.Error(err)
			}
			if !c.fits && task.ClassOf(err) != task.Invalid {
				t.Errorf("error %v of class %q, want class invalid", err, task.ClassOf(err))
			}
			ok(t, b, "true")
		})
	}
}

// exportIgnored: build output that the base ignores does not keep a small change from leaving.
func (s *suite) exportIgnored(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil)})
	ok(t, b, `mkdir -p out/deep && for i in $(seq 60); do echo $i > out/deep/$i; done; echo fix > fix.txt`)
	asked := 0
	m, err := b.Export(t.Context(), sandbox.ExportLimits{Files: 10, Ignored: func(_ context.Context, paths []string) ([]string, error) {
		asked++
		var out []string
		for _, p := range paths {
			if strings.HasPrefix(p, "out/") {
				out = append(out, p)
			}
		}
		return out, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Entries) != 1 || m.Entries[0].Path != "fix.txt" || asked != 1 || len(m.Left) != 1 || m.Left[0] != "out/" {
		t.Errorf("%d entries, asked %d times, left out %q", len(m.Entries), asked, m.Left)
	}
}

func (s *suite) exportWhileSwapping(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, map[string]string{"victim": "base"})})
	ok(t, b, "mkfifo /tmp/swapping")
	background(t, b, "exec ./probe swap victim /etc/passwd")
	ok(t, b, "cat /tmp/swapping")
	files, links := 0, 0
	for range 20 {
		for _, e := range export(t, b).Entries {
			switch {
			case e.Mode == 0o120000 && string(e.Content) == "/etc/passwd":
				links++
			case e.Mode == 0o100644 && (string(e.Content) == "plain" || string(e.Content) == ""):
				files++
			case e.Deleted:
			default:
				t.Fatalf("%s has mode %o and content %q", e.Path, e.Mode, e.Content)
			}
		}
	}
	if files+links < 20 {
		t.Errorf("saw %d files and %d links", files, links)
	}
}

func (s *suite) exportEmptyTree(t *testing.T) {
	b := s.start(t, sandbox.Spec{})
	ok(t, b, "echo -n 1 > a; mkdir d; echo -n 2 > d/b")
	if diff := cmp.Diff([]sandbox.Entry{file("a", "1"), file("d/b", "2")}, export(t, b).Entries); diff != "" {
		t.Errorf("change (-want +got):\n%s", diff)
	}
}

func (s *suite) homeLayers(t *testing.T) {
	root := t.TempDir()
	one, two := filepath.Join(root, "a,b:c", "one"), filepath.Join(root, "two")
	fill := func(home sandbox.Layers, command string) {
		t.Helper()
		b := s.start(t, sandbox.Spec{Home: home})
		ok(t, b, command)
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fill(sandbox.Layers{Keep: one}, "mkdir -p ~/cache/x; echo one > ~/cache/x/f; echo rm > ~/cache/rm; echo dir > ~/cache/x/g; chmod 600 ~/cache/rm; ln -s f ~/cache/x/l")
	fill(sandbox.Layers{Lower: []string{one}, Keep: two}, "cat ~/cache/rm; echo two >> ~/cache/x/f; rm ~/cache/rm; rm -r ~/cache/x; mkdir ~/cache/x; echo two > ~/cache/x/f")
	b := s.start(t, sandbox.Spec{Home: sandbox.Layers{Lower: []string{one, two}}})
	if got := ok(t, b, "cd ~/cache; find . -type f | sort; cat x/f; stat -c %U . x x/f"); got != "./x/f\ntwo\nagent\nagent\nagent\n" {
		t.Errorf("both layers: %q", got)
	}
	ok(t, b, "echo three > ~/cache/x/f; echo new > ~/new; rm -rf ~/cache")
	c := s.start(t, sandbox.Spec{Home: sandbox.Layers{Lower: []string{one}}})
	if got := ok(t, c, "cd ~/cache; cat x/f rm x/l"); got != "one\nrm\none\n" {
		t.Errorf("first layer: %q", got)
	}
	names, err := os.ReadDir(root)
	if err != nil || len(names) != 2 {
		t.Errorf("left beside the layers: %v %v", names, err)
	}
	if _, err := s.rt.Start(t.Context(), sandbox.Spec{Home: sandbox.Layers{Keep: one}}); err == nil {
		t.Error("a filled Keep was accepted")
	}
}
