package sandboxtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// archive makes an apt archive with one package, whose set-up does what set-ups do.
func archive(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	pkg := filepath.Join(dir, "pkg")
	control := "Package: daybreak-probe\nVersion: 1.0\nArchitecture: all\nMaintainer: nobody <nobody@invalid>\nDescription: a package of a test\n"
	write(t, filepath.Join(pkg, "DEBIAN/control"), control, 0o644)
	write(t, filepath.Join(pkg, "DEBIAN/postinst"), "#!/bin/sh\nset -e\ngroupadd --system daybreak-probe\nuseradd --system --no-create-home -g daybreak-probe daybreak-probe\necho configured > /var/lib/daybreak-probe\nchown agent:agent /usr/share/daybreak-probe/owned\nldconfig\n", 0o755)
	write(t, filepath.Join(pkg, "usr/bin/daybreak-probe"), "#!/bin/sh\necho installed\n", 0o755)
	write(t, filepath.Join(pkg, "usr/share/daybreak-probe/owned"), "x", 0o644)
	write(t, filepath.Join(pkg, "etc/daybreak-probe.conf"), "conf", 0o644)
	deb := filepath.Join(dir, "daybreak-probe.deb")
	if out, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", pkg, deb).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	b, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "Packages"), control+fmt.Sprintf("Filename: ./daybreak-probe.deb\nSize: %d\nSHA256: %x\n", len(b), sha256.Sum256(b)), 0o644)
	return dir
}

// systemLayers: an unmodified package manager installs into a layer of the root, and every
// other sandbox sees that layer read-only.
func (s *suite) systemLayers(t *testing.T) {
	keep := filepath.Join(t.TempDir(), "system")
	if s.rt.Capabilities(t.Context()).Rootless {
		_, err := s.rt.Start(t.Context(), sandbox.Spec{System: sandbox.Layers{Keep: keep}})
		var refused *sandbox.RefusedError
		if !errors.As(err, &refused) || refused.Layer != "system layers" || refused.Fix == "" {
			t.Errorf("an ordinary user's system layers: %v", err)
		}
		return
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		t.Skip("the host has no apt")
	}
	files := http.FileServer(http.Dir(archive(t)))
	spec := sandbox.Spec{
		System: sandbox.Layers{Keep: keep}, Home: sandbox.Layers{Keep: filepath.Join(t.TempDir(), "home")},
		Forwards: []sandbox.Forward{{Socket: service(t, files.ServeHTTP), Port: 3128}},
		Files:    []sandbox.File{{Path: "/etc/apt/sources.list.d/t.list", Text: []byte("deb [trusted=yes] http://127.0.0.1:3128 ./\n")}},
	}
	b := s.start(t, spec)
	status := pairs(strings.ReplaceAll(ok(t, b, "cat /proc/self/status"), ":\t", " "))
	// CHOWN, DAC_OVERRIDE, FOWNER, FSETID, SETGID, SETUID and no other.
	if status["CapEff"] != "00000000000000db" || status["CapBnd"] != "00000000000000db" || status["NoNewPrivs"] != "1" || status["Seccomp"] != "2" {
		t.Errorf("set-up runs with %s of %s, no new privileges %s, seccomp %s", status["CapEff"], status["CapBnd"], status["NoNewPrivs"], status["Seccomp"])
	}
	ok(t, b, "id -u | grep -qx 0 && dpkg -s dpkg | grep -q installed")
	if out := ok(t, b, "apt-get update 2>&1 && apt-get install -y daybreak-probe 2>&1"); !strings.Contains(out, "Setting up daybreak-probe") {
		t.Errorf("apt-get: %s", out)
	}
	if got := ok(t, b, "daybreak-probe && stat -c %U /usr/share/daybreak-probe/owned /usr/bin/daybreak-probe && cat /var/lib/daybreak-probe && id -u daybreak-probe | grep -c . ; rm /usr/share/common-licenses/GPL-2; mkdir -p ~/cache; echo 1 > ~/cache/f"); got != "installed\nagent\nroot\nconfigured\n1\n" {
		t.Errorf("after the set-up: %q", got)
	}
	for _, c := range []string{"mknod /tmp/d b 8 0", "mount -t tmpfs none /mnt", "chroot / true", "unshare -m true", "touch /x", "touch /proc/sys/kernel/x", "cat /proc/1/mem", "date -s 12:00", "hostname x", "ip link add d0 type dummy"} {
		if out, code := sh(t, b, c+" 2>&1"); code == 0 {
			t.Errorf("%s succeeded as the root of a set-up: %s", c, out)
		}
	}
	if out := ok(t, b, "grep -cv ':[*!]:' /etc/shadow; ls /root 2>/dev/null | wc -l"); out != "0\n0\n" {
		t.Errorf("a set-up sees accounts of the host: %q", out)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/usr/bin/daybreak-probe"); err == nil {
		t.Fatal("the package is on the host")
	}
	a := s.start(t, sandbox.Spec{System: sandbox.Layers{Lower: []string{keep}}, Home: sandbox.Layers{Lower: []string{spec.Home.Keep}}})
	got := ok(t, a, "daybreak-probe; cat /etc/daybreak-probe.conf; echo; stat -c %U /usr/bin/daybreak-probe /usr/share/daybreak-probe/owned; id -u; ls /usr/share/common-licenses/GPL-2 2>&1 | grep -c 'No such'; echo 2 > ~/cache/f; dpkg -s daybreak-probe | grep Status; cat /etc/apt/sources.list.d/t.list 2>&1 | grep -c deb; true")
	if want := "installed\nconf\nroot\nagent\n1000\n1\nStatus: install ok installed\n0\n"; got != want {
		t.Errorf("over the layer: %q, want %q", got, want)
	}
	for _, c := range []string{"rm -f /usr/bin/daybreak-probe", "touch /usr/x", "touch /etc/x", "touch /var/x", "touch /var/lib/dpkg/x", "touch /run/x", "echo x >> /usr/share/daybreak-probe/owned"} {
		if out, code := sh(t, a, c); code == 0 {
			t.Errorf("%s succeeded: %s", c, out)
		}
	}
	// A second set-up goes on from the first.
	again := s.start(t, sandbox.Spec{System: sandbox.Layers{Lower: []string{keep}, Keep: filepath.Join(t.TempDir(), "more")}})
	if got := ok(t, again, "apt-get remove -y daybreak-probe >/dev/null 2>&1; which daybreak-probe || true; dpkg -s dpkg | grep -c installed"); got != "1\n" {
		t.Errorf("a second set-up: %q", got)
	}
}
