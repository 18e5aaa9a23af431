package oci

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

func TestExceptIoctls(t *testing.T) {
	rules := exceptIoctls()
	passes := func(req uint64) bool {
		return slices.ContainsFunc(rules, func(a specs.LinuxSeccompArg) bool { return req&a.Value == a.ValueTwo })
	}
	for req := range uint64(1 << 20) {
		if want := req != unix.TIOCSTI && req != 0x541c; passes(req) != want {
			t.Fatalf("request %#x passes: %v", req, !want)
		}
	}
	for _, high := range []uint64{1 << 32, 1 << 40, 1 << 63} {
		if passes(high|unix.TIOCSTI) || passes(high|0x541c) || !passes(high|unix.TCGETS) {
			t.Errorf("high bits %#x change the verdict", high)
		}
	}
	for bit := range 32 {
		if req := uint64(unix.TIOCSTI) ^ 1<<bit; !passes(req) {
			t.Errorf("request %#x does not pass", req)
		}
	}
}

func TestSeccompListHasNoDuplicatesAndNoDanger(t *testing.T) {
	names := strings.Fields(allowed)
	slices.Sort(names)
	if n := len(slices.Compact(slices.Clone(names))); n != len(names) {
		t.Errorf("%d names, %d different", len(names), n)
	}
	for _, bad := range strings.Fields(`ptrace process_vm_readv process_vm_writev mount umount2 pivot_root chroot setns
		unshare clone clone3 bpf perf_event_open userfaultfd keyctl add_key request_key io_uring_setup
		io_uring_enter io_uring_register open_by_handle_at name_to_handle_at kexec_load kexec_file_load
		init_module finit_module delete_module memfd_secret kcmp pidfd_getfd fsopen open_tree move_mount
		mount_setattr socket socketpair ioctl personality reboot swapon acct quotactl syslog modify_ldt
		process_madvise settimeofday clock_settime adjtimex clock_adjtime`) {
		if slices.Contains(names, bad) {
			t.Errorf("%s is allowed without a condition", bad)
		}
	}
}

func TestReadCgroups(t *testing.T) {
	v1 := "31 1 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n32 1 0:32 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
	v2 := "41 1 0:38 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw\n"
	for _, c := range []struct{ name, in, mode string }{
		{"nothing", "1 1 0:1 / / rw - ext4 /dev/vda rw\n", "none"}, {"v1", v1, "v1"}, {"hybrid", v1 + v2, "hybrid"}, {"v2", v2, "v2"}, {"garbage", "a - b\n\n - \n", "none"},
	} {
		got := readCgroups([]byte(c.in))
		if got.mode != c.mode {
			t.Errorf("%s: mode %s", c.name, got.mode)
		}
		if c.mode == "hybrid" && (got.v1["cpu"] != "/sys/fs/cgroup/cpu,cpuacct" || got.unified != "/sys/fs/cgroup/uni fied" || len(got.all) != 3) {
			t.Errorf("hybrid: %+v", got)
		}
		if c.mode == "v1" && !slices.Equal(got.missing(), []string{"pids", "freezer", "devices"}) {
			t.Errorf("missing: %v", got.missing())
		}
	}
}

func TestParseMountsBelow(t *testing.T) {
	in := "1 0 0:1 / /run/d/x rw\n2 0 0:1 / /run/d/xy rw\n3 0 0:1 / /run/d/x/a\\040b rw\nshort\n4 0 0:1 / /other rw\n"
	got, err := parseMountsBelow(bufio.NewScanner(strings.NewReader(in)), "/run/d/x")
	if err != nil || !slices.Equal(got, []string{"/run/d/x", "/run/d/x/a b"}) {
		t.Errorf("%q, %v", got, err)
	}
}

func TestEtcTemplate(t *testing.T) {
	host, dir := t.TempDir(), t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		p := filepath.Join(host, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("shadow", "root:secret", 0o600)
	write("passwd", "host user", 0o644)
	write("hostname", "host name", 0o644)
	write("ssl/private/key", "secret", 0o644)
	write("ssl/certs/ca.pem", "ca", 0o644)
	write("ssl/certs/hidden.pem", "secret", 0o640)
	write("java-17/security", "j", 0o644)
	if err := os.Symlink("../../shadow", filepath.Join(host, "ssl/certs/link.pem")); err != nil {
		t.Fatal(err)
	}
	at, err := etcTemplate(dir, host)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ssl/certs/ca.pem", "java-17/security", "passwd", "group", "hosts", "nsswitch.conf", "resolv.conf"} {
		if _, err := os.Stat(filepath.Join(at, name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"shadow", "hostname", "ssl/private", "ssl/certs/hidden.pem"} {
		if _, err := os.Lstat(filepath.Join(at, name)); err == nil {
			t.Errorf("%s was copied", name)
		}
	}
	if link, err := os.Readlink(filepath.Join(at, "ssl/certs/link.pem")); err != nil || link != "../../shadow" {
		t.Errorf("link %q, %v", link, err)
	}
	if b, _ := os.ReadFile(filepath.Join(at, "passwd")); strings.Contains(string(b), "host user") {
		t.Error("the host's accounts were copied")
	}
	if again, err := etcTemplate(dir, host); err != nil || again != at {
		t.Errorf("second time: %s, %v, want %s", again, err, at)
	}
	write("java-17/security", "changed", 0o644)
	if again, err := etcTemplate(dir, host); err != nil || again == at {
		t.Errorf("after a change of the host: %s, %v", again, err)
	}
}

func TestIDRanges(t *testing.T) {
	dir, holder := filepath.Join(t.TempDir(), "ids"), t.TempDir()
	pool := rootStanding(1000).IDs
	a, err := reserveIDs(dir, pool, "a", holder, 7)
	if err != nil || a != 1000+7*idRange {
		t.Fatalf("first: %d, %v", a, err)
	}
	b, err := reserveIDs(dir, pool, "b", holder, 7)
	if err != nil || b != a+idRange {
		t.Fatalf("second: %d, %v", b, err)
	}
	last, err := reserveIDs(dir, pool, "c", holder, idRanges-1)
	if err != nil || last != 1000+(idRanges-1)*idRange {
		t.Fatalf("last: %d, %v", last, err)
	}
	around, err := reserveIDs(dir, pool, "d", holder, idRanges-1)
	if err != nil || around != 1000 {
		t.Fatalf("around: %d, %v", around, err)
	}
	if err := releaseIDs(dir, pool, a, "b"); err != nil { // not b's
		t.Fatal(err)
	}
	if again, err := reserveIDs(dir, pool, "e", holder, 7); err != nil || again != b+idRange {
		t.Errorf("a range was given away: %d, %v", again, err)
	}
	if err := releaseIDs(dir, pool, a, "a"); err != nil {
		t.Fatal(err)
	}
	if again, err := reserveIDs(dir, pool, "f", filepath.Join(holder, "gone"), 7); err != nil || again != a {
		t.Errorf("a free range was not used: %d, %v", again, err)
	}
	if again, err := reserveIDs(dir, pool, "g", holder, 7); err != nil || again != a {
		t.Errorf("a range whose holder is gone was not used: %d, %v", again, err)
	}
}

func TestEnvironment(t *testing.T) {
	env, err := environment([]string{"PATH=/x", "A=1", "A=2=3", "B="})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"PATH=/x", "A=2=3", "B=", "HOME=" + sandbox.HomeDir} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %v", want, env)
		}
	}
	if slices.Contains(env, "A=1") {
		t.Error("a key comes twice")
	}
	for _, bad := range []string{"", "A", "=x", "A=\x00"} {
		if _, err := environment([]string{bad}); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestProfileDigestIsOfTheIsolationAlone(t *testing.T) {
	for _, e := range engines() {
		t.Run(e.name, func(t *testing.T) { digestIsOfTheIsolationAlone(t, e) })
	}
}

func digestIsOfTheIsolationAlone(t *testing.T, e engine) {
	c := container{engine: e, writable: writablePlaces(), root: "/a", cgroup: "/x", idBase: 1000, uid: 1000, limits: withDefaults(sandbox.Limits{}), tmpfs: true}
	one, err := profileDigest(ociSpec(c))
	if err != nil {
		t.Fatal(err)
	}
	c.root, c.cgroup, c.idBase = "/b", "/y", 70000
	if two, _ := profileDigest(ociSpec(c)); two != one {
		t.Error("the digest depends on who runs")
	}
	c.limits.Pids++
	if three, _ := profileDigest(ociSpec(c)); three == one {
		t.Error("the digest does not see a limit")
	}
}
