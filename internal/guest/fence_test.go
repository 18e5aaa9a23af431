package guest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A mask is believed only when it is the null device itself or an empty read-only directory.
func TestCheckMasks(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/dev/null", link); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	if err := CheckMasks([]string{"/dev/null", filepath.Join(dir, "none")}); err != nil {
		t.Error(err)
	}
	for _, p := range []string{file, link, "/dev/zero", dir, empty} {
		if err := CheckMasks([]string{"/dev/null", p}); err == nil || !strings.Contains(err.Error(), "paths: ") {
			t.Errorf("%s passes as covered: %v", p, err)
		}
	}
	if err := CheckReadOnly([]string{filepath.Join(dir, "none")}); err != nil {
		t.Error(err)
	}
	if err := CheckReadOnly([]string{empty}); err == nil {
		t.Error("a writable directory passes as read-only")
	}
}

// Behind the fence a thread writes below its trees and nowhere else, reads what it likes, and
// moves files from one directory to another.
func TestFence(t *testing.T) {
	version := Landlock()
	if version == 0 {
		t.Skip("not exercised: this kernel has no Landlock")
	}
	in, out := t.TempDir(), t.TempDir()
	for _, d := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(in, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(out, "old"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { // never unlocked: the thread ends with this goroutine
		runtime.LockOSThread()
		done <- func() error {
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				return err
			}
			if err := Fence(version, []string{in}); err != nil {
				return err
			}
			for name, ok := range map[string]bool{in + "/a/f": true, out + "/f": false, out + "/old": false, "/dev/null": true} {
				f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o644)
				if (err == nil) != ok {
					t.Errorf("write %s: %v", name, err)
				}
				f.Close()
			}
			if err := os.Remove(out + "/old"); err == nil {
				t.Error("a file outside was removed")
			}
			if _, err := os.ReadFile(out + "/old"); err != nil {
				t.Errorf("read outside: %v", err)
			}
			return os.Rename(in+"/a/f", in+"/b/f")
		}()
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(out, "other"), nil, 0o644); err != nil {
		t.Errorf("the fence holds for another thread: %v", err)
	}
}

func TestParseForward(t *testing.T) {
	if f, err := ParseForward("3128=/.daybreak/forward-0"); err != nil || f != (Forward{3128, "/.daybreak/forward-0"}) {
		t.Errorf("%+v, %v", f, err)
	}
	for _, bad := range []string{"", "3128", "x=/a", "0=/a", "65536=/a", "1=a"} {
		if _, err := ParseForward(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
