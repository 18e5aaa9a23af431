package oci

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

func TestReadSubIDs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subuid")
	text := "root:1:5\nann:100000:1000\n1000:200000:65536\nann:300000:70000\nann:0:4294967295\nann:4294967000:4000\nann:x:9\nann:1\n:::\n\nbob:5:1"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		uid  int
		want subIDs
	}{
		{"ann", 7, subIDs{300000, 70000}}, {"eve", 1000, subIDs{200000, 65536}}, {"bob", 9, subIDs{5, 1}}, {"eve", 9, subIDs{}},
	} {
		if got, err := readSubIDs(file, c.name, c.uid); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
	if _, err := readSubIDs(file+"x", "ann", 7); err == nil {
		t.Error("a missing file is no error")
	}
}

func FuzzReadSubIDs(f *testing.F) {
	f.Add("ann:100000:65536\n")
	f.Add("7:4294967295:1\n::\n")
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := readSubIDs(file, "ann", 7)
		if err != nil || got.count > 0 && (got.first == 0 || got.first+got.count < got.first) {
			t.Errorf("%v, %v", got, err)
		}
	})
}

// Each thing that an ordinary user may lack is named in one line, with what to do.
func TestUnfitNamesWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		return p
	}
	put("sys/user/max_user_namespaces", "100\n")
	k := newTree(t, "v2")
	k.file(filepath.Join(k.c.unified, "scope", "cgroup.controllers"), "cpu memory pids\n")
	fit := func() *Runtime {
		return &Runtime{groups: k.c, user: userFiles{
			uid: 1000, gid: 1000, name: "ann", subUID: put("subuid", "ann:100000:65536\n"), subGID: put("subgid", "ann:100000:65536\n"),
			self: put("self", "0::/scope\n"), sys: filepath.Join(dir, "sys"),
			look: func(string) (string, error) { return "", nil }, writable: func(string) bool { return true },
		}}
	}
	if major, minor, _ := kernel(); major > 6 || major == 6 && minor >= 6 {
		if got := fit().unfit(); len(got) != 0 {
			t.Fatalf("a fit host lacks %v", got)
		}
	}
	for _, c := range []struct {
		name, layer, says, fix string
		change                 func(*Runtime)
	}{
		{"user namespaces off", "user namespace", "are off", "sysctl user.max_user_namespaces", func(r *Runtime) {
			r.user.sys = filepath.Dir(filepath.Dir(put("off/user/max_user_namespaces", "0\n")))
		}},
		{"no user namespaces", "user namespace", "no such file", "CONFIG_USER_NS", func(r *Runtime) { r.user.sys = "/nonexistent" }},
		{"for root alone", "user namespace", "for root alone", "unprivileged_userns_clone=1", func(r *Runtime) {
			put("clone/user/max_user_namespaces", "9\n")
			r.user.sys = filepath.Dir(filepath.Dir(put("clone/kernel/unprivileged_userns_clone", "0\n")))
		}},
		{"no tools", "user ids", "no newuidmap", "uidmap", func(r *Runtime) {
			r.user.look = func(string) (string, error) { return "", errors.New("not found") }
		}},
		{"no subordinate ids", "user ids", "ann has no 1024 ids in", "usermod --add-subuids", func(r *Runtime) { r.user.subUID = put("other", "bob:1:65536\n") }},
		{"no file", "user ids", "no such file", "usermod", func(r *Runtime) { r.user.subGID = "/nonexistent" }},
		{"not delegated", "cgroup", "cgroup /scope is not delegated to you", "systemd-run --user --scope -p Delegate=yes", func(r *Runtime) {
			r.user.writable = func(string) bool { return false }
		}},
		{"nothing on v1", "cgroup", "no cgroup /daybreak-1000 that you own in memory, pids", "chown -R 1000 ${c}daybreak-1000", func(r *Runtime) {
			r.groups = newTree(t, "hybrid").c
			r.user.writable = func(string) bool { return false }
		}},
	} {
		r := fit()
		c.change(r)
		got := r.unfit()
		if len(got) == 0 {
			t.Errorf("%s: nothing is missing", c.name)
			continue
		}
		if msg := got[0].Error(); got[0].Layer != c.layer || !strings.Contains(msg, c.says) || !strings.Contains(msg, c.fix) || strings.Contains(msg, "\n") {
			t.Errorf("%s: %s", c.name, msg)
		}
		if _, err := r.fit(); err == nil {
			t.Errorf("%s: fit", c.name)
		}
	}
	if len(k.wrote) != 0 {
		t.Errorf("a refusal wrote %v", k.wrote)
	}
}

func TestUserIDsDoNotOverlap(t *testing.T) {
	st := userStanding(65536, "/c")
	if st.IDs.Count != 64 {
		t.Errorf("%d sandboxes of 65,536 ids", st.IDs.Count)
	}
	owner := map[uint32]uint32{}
	for n := range st.IDs.Count {
		first := st.IDs.First + n*st.IDs.Size
		inside := uint32(0)
		for _, m := range st.mappings(first) {
			if m.ContainerID != inside {
				t.Fatalf("range %d: gap or overlap at %d", n, m.ContainerID)
			}
			inside += m.Size
			for id := m.HostID; id < m.HostID+m.Size; id++ {
				if had, taken := owner[id]; taken && id != ownerInBox {
					t.Fatalf("id %d belongs to ranges %d and %d", id, had, n)
				}
				owner[id] = n
				if id > 65536 {
					t.Fatalf("id %d is not the user's", id)
				}
			}
		}
	}
	if n := userStanding(1023, "").IDs.Count; n != 0 {
		t.Errorf("%d sandboxes of too few ids", n)
	}
}

// connection is both ends of a socket.
func connection(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	end := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c.(*net.UnixConn)
	}
	return end(fds[0]), end(fds[1])
}

func TestMessagesCarryFilesAndErrors(t *testing.T) {
	a, b := connection(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o := order{Protocol: 1, Do: doRun, ID: strings.Repeat("x", 1<<17), Conf: ociSpec(container{limits: withDefaults(sandbox.Limits{})})}
	sent := make(chan error, 1)
	go func() { sent <- send(a, o, []int{int(w.Fd()), int(w.Fd()), int(w.Fd())}) }()
	var got order
	files, err := receiveFiles(b, &got)
	if err := errors.Join(err, <-sent); err != nil || len(files) != 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	if diff := cmp.Diff(o, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("order (-sent +received):\n%s", diff)
	}
	w.Close()
	if _, err := files[2].WriteString("hello"); err != nil {
		t.Fatal(err)
	}
	closeAll(files)
	if text, err := io.ReadAll(r); string(text) != "hello" || err != nil {
		t.Errorf("through the file: %q, %v", text, err)
	}
	for _, want := range []error{nil, errors.New("plain"), &sandbox.RefusedError{Layer: "overlay", Fix: "do", Err: errors.New("why")}} {
		back := toWire(want).err()
		if (want == nil) != (back == nil) || want != nil && back.Error() != want.Error() {
			t.Errorf("%v came back as %v", want, back)
		}
		var ref *sandbox.RefusedError
		if errors.As(want, &ref) != errors.As(back, &ref) {
			t.Errorf("%v came back as %T", want, back)
		}
	}
	// A length beyond the cap is not believed.
	if _, err := a.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	if err := receive(b, &got); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("4 GiB: %v", err)
	}
}

// serveOne lets a holder handle one connection in this process and returns the caller's end.
func serveOne(t *testing.T) (*net.UnixConn, <-chan reply) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a holder serves user 0 of its namespace")
	}
	a, b := connection(t)
	got := make(chan reply, 1)
	s := &server{base: t.TempDir(), made: map[place]*Runtime{}}
	go func() {
		r, _ := s.handle(b)
		got <- r
	}()
	if _, err := io.ReadFull(a, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return a, got
}

func TestHolderRefusesOtherVersionsAndWords(t *testing.T) {
	a, got := serveOne(t)
	if err := send(a, order{Protocol: protocol + 1, Do: doShare}, nil); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.Error == nil || !strings.Contains(r.Error.Text, "end the sandboxes") {
		t.Errorf("another version: %+v", r)
	}
	a, got = serveOne(t)
	if err := send(a, order{Protocol: protocol, Do: "dance"}, nil); err != nil {
		t.Fatal(err)
	}
	if r := <-got; r.Error == nil || !strings.Contains(r.Error.Text, "unknown order") {
		t.Errorf("unknown order: %+v", r)
	}
	a, got = serveOne(t)
	if _, err := a.Write([]byte{0, 0, 0, 5, 'x'}); err != nil {
		t.Fatal(err)
	}
	a.Close()
	if r := <-got; r.Error == nil {
		t.Errorf("half an order: %+v", r)
	}
}

// The holder stops working for a caller that is gone.
func TestHolderStopsWhenTheCallerIsGone(t *testing.T) {
	a, got := serveOne(t)
	script := filepath.Join(t.TempDir(), "runc")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho up\nexec sleep 1000000\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	o := order{Protocol: protocol, Do: doRun, Place: place{Config: orderConfig{Runtime: script}}}
	if err := send(a, o, []int{int(w.Fd()), int(w.Fd()), int(w.Fd())}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, 3)); err != nil { // it runs
		t.Fatal(err)
	}
	a.Close()
	if rep := <-got; rep.Error == nil {
		t.Errorf("the order was carried out: %+v", rep)
	}
	if _, err := io.ReadAll(r); err != nil { // nobody holds the pipe any more
		t.Error(err)
	}
}

func TestHoldIsOfNoUseToPeople(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := Hold(context.Background(), null, null); err == nil || !strings.Contains(err.Error(), "started by the worker") {
		t.Errorf("by hand: %v", err)
	}
}
