package oci_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox/sandboxtest"
)

const (
	testUser  = 12345
	enterDir  = "DAYBREAK_TEST_ENTER" // start the rest of the command line as testUser, with the files below it
	guestPath = "DAYBREAK_TEST_GUEST" // a built guest
	holderArg = "hold-sandboxes"
)

// testHolder is the command that holds mounts: this program.
func testHolder() []string { return []string{"/proc/self/exe", holderArg} }

// TestRootless runs the tests of this package, the sandbox suite among them, as a user
// without privileges that exists in a private mount namespace only.
func TestRootless(t *testing.T) {
	if os.Getenv(guestPath) != "" {
		t.Skip("this is the inner run")
	}
	if testing.Short() {
		t.Skip("a second run of everything")
	}
	cfg := config(t, t.TempDir())
	for _, tool := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(tool); err != nil {
			lacking(t, "no "+tool+": install uidmap")
		}
	}
	dir, err := os.MkdirTemp("", "daybreak-rootless-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	copies := map[string]string{"runc": cfg.Runtime, "runsc": runscPath(t), "guest": cfg.Guest, "probe": sandboxtest.Probe(t)}
	for name, from := range copies {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	passwd, err := os.ReadFile("/etc/passwd")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"subuid": "daybreaker:300000:65536\n", "subgid": "daybreaker:400000:65536\n",
		"passwd": string(passwd) + fmt.Sprintf("daybreaker:x:%d:%d::%s:/bin/sh\n", testUser, testUser, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tmp := filepath.Join(dir, "tmp")
	for _, err := range []error{os.Mkdir(tmp, 0o755), os.Chmod(dir, 0o755), os.Chown(tmp, testUser, testUser)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	delegate(t)
	run := os.Getenv("DAYBREAK_TEST_ROOTLESS_RUN")
	if run == "" {
		run = "^(TestSuite|TestWorkerKilled|TestSandboxDiesWithWorker|TestHalfMadeIsCollected|TestFailedStartLeavesNothing|TestLayersAreNeeded|TestUser.*)$"
	}
	cmd := exec.Command("/proc/self/exe", "-test.v", "-test.run="+run)
	cmd.Env = []string{
		enterDir + "=" + dir, guestPath + "=" + filepath.Join(dir, "guest"), sandboxtest.ProbePath + "=" + filepath.Join(dir, "probe"),
		"DAYBREAK_RUNC=" + filepath.Join(dir, "runc"), "DAYBREAK_RUNSC=" + filepath.Join(dir, "runsc"), "TMPDIR=" + tmp, "HOME=" + tmp, "PATH=" + os.Getenv("PATH"), "CI=" + os.Getenv("CI"),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("as user %d: %v\n%s", testUser, err, out)
	}
	if testing.Verbose() && err == nil {
		t.Logf("%s", out)
	}
	for _, name := range []string{"TestSuite/HomeLayers", "TestSuite/MemoryCap", "TestWorkerKilled"} {
		if os.Getenv("DAYBREAK_TEST_ROOTLESS_RUN") == "" && !bytes.Contains(out, []byte("--- PASS: "+name)) {
			t.Errorf("%s did not pass as user %d", name, testUser)
		}
	}
}

// enterAsUser is the step between: root in a mount namespace of its own, in which testUser
// has subordinate ids.
func enterAsUser(dir string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "enter:", err)
		return 1
	}
	for _, name := range []string{"subuid", "subgid", "passwd"} {
		if err := unix.Mount(filepath.Join(dir, name), "/etc/"+name, "", unix.MS_BIND, ""); err != nil {
			return fail(fmt.Errorf("cover /etc/%s: %w", name, err))
		}
	}
	if isV2() {
		if err := os.WriteFile(filepath.Join(testGroup("/sys/fs/cgroup"), "cgroup.procs"), []byte("0"), 0); err != nil {
			return fail(err)
		}
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, enterDir+"=") {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testUser, Gid: testUser}, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return fail(err)
	}
	return 0
}

func isV2() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

func testGroup(hierarchy string) string {
	return filepath.Join(hierarchy, "daybreak-"+strconv.Itoa(testUser))
}

// delegate gives testUser a cgroup in every hierarchy for the time of the test.
func delegate(t *testing.T) {
	t.Helper()
	hierarchies, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	if isV2() {
		hierarchies = []string{"/sys/fs/cgroup/cgroup.procs"}
		err = os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+memory +pids +cpu"), 0)
	}
	if err != nil || len(hierarchies) == 0 {
		t.Fatalf("cgroups: %v %v", hierarchies, err)
	}
	for _, h := range hierarchies {
		d := testGroup(filepath.Dir(h))
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			below, _ := filepath.Glob(filepath.Join(d, "*/cgroup.procs"))
			for _, b := range below {
				if sub := filepath.Dir(b); filepath.Base(sub) != "daybreak-worker" {
					t.Errorf("cgroup %s is left", sub)
				}
				_ = os.Remove(filepath.Dir(b))
			}
			if err := os.Remove(d); err != nil {
				t.Error(err)
			}
		})
		err := filepath.WalkDir(d, func(p string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			return os.Chown(p, testUser, testUser)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// holders are the processes that hold mounts below a state directory.
func holders(dir string) (pids []string) {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil || !bytes.Contains(b, []byte("\x00"+holderArg+"\x00")) {
			continue
		}
		mounts, err := os.ReadFile(filepath.Join(filepath.Dir(name), "mountinfo"))
		if err == nil && bytes.Contains(mounts, []byte(dir)) {
			pids = append(pids, filepath.Base(filepath.Dir(name)))
		}
	}
	return pids
}

// mounter is the process in whose mount namespace the sandboxes of dir are mounted.
func mounter(t *testing.T, dir string) string {
	t.Helper()
	if os.Geteuid() == 0 {
		return "self"
	}
	pids := holders(dir)
	if len(pids) != 1 {
		t.Fatalf("holders of %s: %v, want one", dir, pids)
	}
	return pids[0]
}

// noHolder fails when a holder or a mount directory is left.
func noHolder(t testing.TB, dir string) {
	t.Helper()
	if pids := holders(dir); len(pids) != 0 {
		t.Errorf("holders are left: %v", pids)
	}
	names, err := os.ReadDir(filepath.Join(dir, "run"))
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	for _, n := range names {
		if n.IsDir() && n.Name() != "ids" || strings.HasSuffix(n.Name(), ".sock") {
			t.Errorf("%s is left", n.Name())
		}
	}
}
