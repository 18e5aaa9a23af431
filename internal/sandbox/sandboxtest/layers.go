package sandboxtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// workLayers: what a sandbox kept of its work tree lies below the next one's, and is no change
// of its.
func (s *suite) workLayers(t *testing.T) {
	root := t.TempDir()
	deps, more := filepath.Join(root, "deps"), filepath.Join(root, "more")
	tree := s.tree(t, map[string]string{"main.js": "base", "old/a": "a", "old/b": "b", "gone": "g", "vendor/x": "x"})
	fill := func(work sandbox.Layers, command string) {
		t.Helper()
		b := s.start(t, sandbox.Spec{Tree: tree, Work: work})
		ok(t, b, command)
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fill(sandbox.Layers{Keep: deps}, "mkdir -p node_modules/m && echo -n 1 > node_modules/m/i.js && rm gone && rm -r old && mkdir old && echo -n c > old/c && ln -s m node_modules/l")
	fill(sandbox.Layers{Lower: []string{deps}, Keep: more}, "echo -n 2 > node_modules/m/i.js && echo -n 3 > node_modules/n && rm -r vendor")
	list := "find . -mindepth 1 -not -name probe | sort | tr '\\n' ' '"
	b := s.start(t, sandbox.Spec{Tree: tree, Work: sandbox.Layers{Lower: []string{deps}}})
	if got := ok(t, b, list+"; cat node_modules/l/i.js; stat -c %U node_modules/m node_modules/m/i.js"); got != "./main.js ./node_modules ./node_modules/l ./node_modules/m ./node_modules/m/i.js ./old ./old/c ./vendor ./vendor/x 1agent\nagent\n" {
		t.Errorf("one layer: %q", got)
	}
	if m := export(t, b); len(m.Entries) != 0 {
		t.Errorf("an untouched sandbox exports %+v", m.Entries)
	}
	ok(t, b, "echo -n new > main.js; echo -n 9 > node_modules/m/i.js; touch old/c; rm node_modules/l; echo -n back > gone")
	want := []sandbox.Entry{file("gone", "back"), file("main.js", "new"), gone("node_modules/l"), file("node_modules/m/i.js", "9")}
	if diff := cmp.Diff(want, export(t, b).Entries); diff != "" {
		t.Errorf("change over one layer (-want +got):\n%s", diff)
	}
	c := s.start(t, sandbox.Spec{Tree: tree, Work: sandbox.Layers{Lower: []string{deps, more}}})
	if got := ok(t, c, list+"; cat node_modules/m/i.js"); got != "./main.js ./node_modules ./node_modules/l ./node_modules/m ./node_modules/m/i.js ./node_modules/n ./old ./old/c 2" {
		t.Errorf("two layers: %q", got)
	}
	ok(t, c, "rm -r node_modules && mkdir node_modules && echo -n x > node_modules/m")
	want = []sandbox.Entry{gone("node_modules/l"), file("node_modules/m", "x"), gone("node_modules/m/i.js"), gone("node_modules/n")}
	if diff := cmp.Diff(want, export(t, c).Entries); diff != "" {
		t.Errorf("change over two layers (-want +got):\n%s", diff)
	}
	again, err := s.rt.Recover(t.Context(), c.Handle().ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, export(t, again).Entries); diff != "" {
		t.Errorf("change after Recover (-want +got):\n%s", diff)
	}
	// What is kept can be exported as well: it is the change of that sandbox.
	k := s.start(t, sandbox.Spec{Tree: tree, Work: sandbox.Layers{Lower: []string{deps}, Keep: filepath.Join(root, "third")}})
	ok(t, k, "echo -n k > k")
	if diff := cmp.Diff([]sandbox.Entry{file("k", "k")}, export(t, k).Entries); diff != "" {
		t.Errorf("change of a kept tree (-want +got):\n%s", diff)
	}
	if err := k.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if names, err := os.ReadDir(root); err != nil || len(names) != 3 {
		t.Errorf("left beside the layers: %v %v", names, err)
	}
	if _, err := s.rt.Start(t.Context(), sandbox.Spec{Work: sandbox.Layers{Keep: deps}}); err == nil {
		t.Error("a filled Keep was accepted")
	}
	same := sandbox.Spec{Work: sandbox.Layers{Keep: filepath.Join(root, "x")}, Home: sandbox.Layers{Keep: filepath.Join(root, "x", "y")}}
	if _, err := s.rt.Start(t.Context(), same); task.ClassOf(err) != task.Invalid {
		t.Errorf("kept directories in one another: %v", err)
	}
}

// A kept work tree lies on the host's disk; passing its cap ends the sandbox.
func (s *suite) workKeepCap(t *testing.T) {
	b := s.start(t, sandbox.Spec{Work: sandbox.Layers{Keep: filepath.Join(t.TempDir(), "keep")}, Limits: sandbox.Limits{WorkBytes: 4 << 20}})
	ok(t, b, "head -c 1000000 /dev/zero > small")
	// Empty files count too.
	res, err := b.Guest().Exec(t.Context(), execRequest("i=0; while [ $i -lt 1500 ]; do : > f$i; i=$((i+1)); done; exec sleep 1000000"))
	if err == nil {
		t.Errorf("the sandbox goes on: %+v", res)
	}
}

// files: read-only and root's outside HOME, the agent's own below it.
func (s *suite) files(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "keep")
	b := s.start(t, sandbox.Spec{Home: sandbox.Layers{Keep: keep}, Files: []sandbox.File{
		{Path: "/etc/ssl/certs/ca-certificates.crt", Text: []byte("ours\n")},
		{Path: "/etc/apt/sources.list.d/x.sources", Text: []byte("deb\n")},
		{Path: "/opt/tool/conf", Text: []byte("opt\n")},
		{Path: "/var/lib/thing/conf", Text: []byte("var\n")},
		{Path: sandbox.HomeDir + "/.npmrc", Text: []byte("npm\n")},
		{Path: sandbox.HomeDir + "/.config/pip/pip.conf", Text: []byte("pip\n")},
	}})
	got := ok(t, b, "cat /etc/ssl/certs/ca-certificates.crt /etc/apt/sources.list.d/x.sources /opt/tool/conf /var/lib/thing/conf ~/.npmrc ~/.config/pip/pip.conf;"+
		"stat -c '%U %a' /etc/ssl/certs/ca-certificates.crt /opt/tool/conf /opt/tool ~/.npmrc ~/.config/pip ~")
	if want := "ours\ndeb\nopt\nvar\nnpm\npip\nroot 644\nroot 644\nroot 755\nagent 644\nagent 755\nagent 755\n"; got != want {
		t.Errorf("files: %q, want %q", got, want)
	}
	if out := ok(t, b, "grep -c agent /etc/passwd; ls /etc/ssl/certs | wc -l"); !strings.HasPrefix(out, "1\n") {
		t.Errorf("the rest of /etc: %q", out)
	}
	for _, c := range []string{
		"echo x >> /etc/ssl/certs/ca-certificates.crt", "rm -f /etc/apt/sources.list.d/x.sources", "touch /etc/apt/x", "echo x > /opt/tool/conf",
		"chmod 777 /opt/tool/conf", "touch /opt/tool/x", "mv /opt/tool /opt/t", "touch /var/lib/x",
	} {
		if out, code := sh(t, b, c); code == 0 {
			t.Errorf("%s succeeded: %s", c, out)
		}
	}
	ok(t, b, "echo more >> ~/.npmrc && rm -r ~/.config && echo x > ~/.config")
	other := s.start(t, sandbox.Spec{})
	if out, code := sh(t, other, "cat /etc/apt/sources.list.d/x.sources; grep -q ours /etc/ssl/certs/ca-certificates.crt && echo theirs"); code == 0 || strings.Contains(out, "deb") {
		t.Errorf("another sandbox sees them: %s", out)
	}
}

func (s *suite) fileRefusals(t *testing.T) {
	for _, path := range []string{
		"", "relative", "/", "/etc/../usr/x", "/etc/x/", sandbox.WorkDir, sandbox.WorkDir + "/x", sandbox.TempDir + "/x", "/proc/x", "/sys/x", "/dev/x",
		"/usr/x", "/bin/x", "/lib/x", "/var/tmp/x", "/.daybreak/x", sandbox.HomeDir, "/home", "/home/other", "/etc\x00x", "/opt/sdk/x", "/opt", "/etc", "/var", "/run",
	} {
		spec := sandbox.Spec{Files: []sandbox.File{{Path: path}}, Mounts: []sandbox.Mount{{Source: t.TempDir(), Target: "/opt/sdk"}}}
		if _, err := s.rt.Start(t.Context(), spec); task.ClassOf(err) != task.Invalid {
			t.Errorf("%q: %v, want class invalid", path, err)
		}
	}
	for _, files := range [][]sandbox.File{
		{{Path: "/etc/a"}, {Path: "/etc/a"}},
		{{Path: "/etc/a/b"}, {Path: "/etc/a"}},
		{{Path: "/etc/a", Text: make([]byte, 1<<20+1)}},
		{{Path: "/opt/a", Own: true}},
		{{Path: sandbox.HomeDir + "/a", Own: true}},
	} {
		if _, err := s.rt.Start(t.Context(), sandbox.Spec{Files: files}); task.ClassOf(err) != task.Invalid {
			t.Errorf("%d files: %v, want class invalid", len(files), err)
		}
	}
}
