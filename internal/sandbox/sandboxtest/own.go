package sandboxtest

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const (
	ownBundle = "/etc/ssl/certs/ca-certificates.crt"
	ownFile   = "/etc/daybreak/front.pem"
)

// owns is a spec with two files of its own.
func owns(bundle, front string) sandbox.Spec {
	return sandbox.Spec{Files: []sandbox.File{
		{Path: ownBundle, Text: []byte(bundle), Own: true}, {Path: "/etc/daybreak/all", Text: []byte("all\n")}, {Path: ownFile, Text: []byte(front), Own: true},
	}}
}

// ownFiles: what only one sandbox has comes with its start or with its owner, once, and is as
// read-only as any other file of ours.
func (s *suite) ownFiles(t *testing.T) {
	s.ownAre(t, s.start(t, owns("bundle 1\n", "front 1\n")), "1")

	ready := s.start(t, owns("", ""))
	b, can := ready.(sandbox.Ready)
	if !can {
		t.Fatal("it cannot be handed over")
	}
	owner := func(files ...sandbox.File) sandbox.Adoption {
		return sandbox.Adoption{Task: "t2", Purpose: "agent", Files: files}
	}
	bundle, front := sandbox.File{Path: ownBundle, Text: []byte("bundle 2\n")}, sandbox.File{Path: ownFile, Text: []byte("front 2\n")}
	for name, files := range map[string][]sandbox.File{
		"none": nil, "one": {bundle}, "another order": {front, bundle}, "another place": {bundle, {Path: "/etc/passwd", Text: []byte("root::0:0::/:\n")}},
		"too much": {bundle, {Path: ownFile, Text: make([]byte, 1<<20+1)}},
	} {
		if err := b.Adopt(t.Context(), owner(files...)); task.ClassOf(err) != task.Invalid || b.Handle().Task == "t2" {
			t.Errorf("%s: %v, want class invalid", name, err)
		}
	}
	if err := b.Adopt(t.Context(), owner(bundle, front)); err != nil {
		t.Fatal(err)
	}
	if h := b.Handle(); h.Task != "t2" || h.Purpose != "agent" {
		t.Errorf("%+v", h)
	}
	s.ownAre(t, b, "2")
	if err := b.Adopt(t.Context(), owner(bundle, sandbox.File{Path: ownFile, Text: []byte("front 3\n")})); task.ClassOf(err) != task.Invalid {
		t.Errorf("a second time: %v", err)
	}
	s.ownAre(t, b, "2")
	plain := s.start(t, sandbox.Spec{}).(sandbox.Ready)
	if err := plain.Adopt(t.Context(), owner()); err != nil {
		t.Errorf("without any: %v", err)
	}
	if err := plain.Adopt(t.Context(), sandbox.Adoption{Task: "t3", Purpose: "agent"}); task.ClassOf(err) != task.Invalid || plain.Handle().Task != "t2" {
		t.Errorf("without any, a second time: %v, of %s", err, plain.Handle().Task)
	}
	s.ownOverLayers(t)
}

// ownAre checks the own files of a sandbox, by their number.
func (s *suite) ownAre(t *testing.T, b sandbox.Sandbox, n string) {
	t.Helper()
	got := ok(t, b, "cat "+ownBundle+" /etc/daybreak/all "+ownFile+"; stat -c '%U %a %s' "+ownBundle+" "+ownFile)
	if want := "bundle " + n + "\nall\nfront " + n + "\nroot 644 9\nroot 644 8\n"; got != want {
		t.Errorf("own files: %q, want %q", got, want)
	}
	for _, c := range []string{
		"echo x >> " + ownBundle, "echo x > " + ownFile, "rm -f " + ownFile, "mv " + ownFile + " /tmp/x", "ln -f " + ownFile + " /tmp/x", "chmod 666 " + ownFile, "touch " + ownFile,
		"touch /etc/daybreak/x", "mv /etc/daybreak /etc/d", "umount " + ownFile, "mount -o remount,rw " + ownFile, "sh " + ownFile + " && " + ownFile,
	} {
		if out, code := sh(t, b, c+" 2>&1"); code == 0 {
			t.Errorf("%s succeeded: %s", c, out)
		}
	}
	if out := ok(t, b, "cat /proc/self/mountinfo"); strings.Contains(out, b.Handle().ID) {
		t.Errorf("the list of mounts shows the sandbox's id:\n%s", out)
	}
}

// ownOverLayers: a layer of the root leads them nowhere else, and in a setup they are files that
// a package may replace.
func (s *suite) ownOverLayers(t *testing.T) {
	if s.rt.Capabilities(t.Context()).Rootless {
		return // has no such layers
	}
	keep := filepath.Join(t.TempDir(), "system")
	spec := owns("bundle 1\n", "front 1\n")
	spec.System.Keep = keep
	b := s.start(t, spec)
	if got := ok(t, b, "cat "+ownFile+" && echo new > /etc/new && mv /etc/new "+ownBundle+" && cat "+ownBundle+" && rm -r /etc/daybreak && mkdir /tmp/x && ln -s /tmp/x /etc/daybreak"); got != "front 1\nnew\n" {
		t.Errorf("in a setup: %q", got)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	spec = owns("bundle 4\n", "front 4\n")
	spec.System.Lower = []string{keep}
	s.ownAre(t, s.start(t, spec), "4")
}
