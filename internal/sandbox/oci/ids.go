package oci

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	idRange     = 65536 // ids of one sandbox of root
	idRanges    = 4096  // ranges on a host
	defaultBase = 200000
)

// idPool is where sandboxes get their ids from: Count ranges of Size ids, beginning with First.
type idPool struct{ First, Size, Count uint32 }

// reserveIDs gives the sandbox id a range of the pool that no other live sandbox on this
// host has, whichever process started it. The reservation is a file below dir that names
// its holder; it is free again when the holder's directory is gone.
func reserveIDs(dir string, pool idPool, id, holder string, start uint32) (uint32, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return 0, err
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if err != nil {
		return 0, err
	}
	defer unlock()
	for i := range pool.Count {
		n := (start%pool.Count + i) % pool.Count
		name := filepath.Join(dir, strconv.FormatUint(uint64(n), 10))
		old, err := os.ReadFile(name)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return 0, err
		default:
			_, oldHolder, _ := strings.Cut(string(old), "\n")
			if oldHolder != "" {
				if _, err := os.Lstat(oldHolder); !errors.Is(err, os.ErrNotExist) {
					continue
				}
			}
		}
		if err := os.WriteFile(name, []byte(id+"\n"+holder), 0o600); err != nil {
			return 0, err
		}
		return pool.First + n*pool.Size, nil
	}
	return 0, fmt.Errorf("all %d id ranges are taken", pool.Count)
}

// releaseIDs gives a range back if id still holds it.
func releaseIDs(dir string, pool idPool, first uint32, id string) error {
	if first < pool.First {
		return nil
	}
	unlock, err := lockFile(filepath.Join(dir, "lock"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	name := filepath.Join(dir, strconv.FormatUint(uint64((first-pool.First)/pool.Size), 10))
	b, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if holder, _, _ := strings.Cut(string(b), "\n"); holder != id {
		return nil
	}
	return os.Remove(name)
}

// lockFile takes an exclusive advisory lock; the returned function drops it.
func lockFile(name string) (func(), error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

// idmap returns a user namespace for an idmapped mount on which files of the host's owner
// uid:gid appear as to:toGroup, and nobody else's files get a mapping.
func idmap(uid, gid, to, toGroup int) (*os.File, error) {
	return idmapOf(idMappings(uid, to), idMappings(gid, toGroup))
}

// idmapOf returns a user namespace with the given maps.
func idmapOf(uids, gids []syscall.SysProcIDMap) (*os.File, error) {
	// The child never runs an instruction of its program: it stops at exec because it is
	// traced, lends its user namespace, and is killed. The thread that starts it is its tracer.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p, err := os.StartProcess("/proc/self/exe", []string{"idmap"}, &os.ProcAttr{
		Env: []string{},
		Sys: &syscall.SysProcAttr{
			Cloneflags:                 syscall.CLONE_NEWUSER,
			Ptrace:                     true,
			Pdeathsig:                  syscall.SIGKILL,
			GidMappingsEnableSetgroups: false,
			UidMappings:                uids,
			GidMappings:                gids,
		},
	})
	if err != nil {
		return nil, err
	}
	defer reapTraced(p)
	return os.Open("/proc/" + strconv.Itoa(p.Pid) + "/ns/user")
}

// reapTraced kills and reaps a traced child. [os.Process.Wait] would take the stop at exec
// for its end.
func reapTraced(p *os.Process) {
	_ = unix.Kill(p.Pid, unix.SIGKILL)
	for {
		var ws unix.WaitStatus
		_, err := unix.Wait4(p.Pid, &ws, unix.WALL, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || ws.Exited() || ws.Signaled() {
			break
		}
	}
	_ = p.Release()
}

// rangeMappings maps the ids of a whole sandbox, or of the host, from owner on to those from
// first on. The last is for overlay's marks, as in idMappings.
func rangeMappings(owner, first int) []syscall.SysProcIDMap {
	m := []syscall.SysProcIDMap{{ContainerID: owner, HostID: first, Size: idRange - 1}}
	if owner != 0 {
		m = append(m, syscall.SysProcIDMap{ContainerID: 0, HostID: first + idRange - 1, Size: 1})
	}
	return m
}

// idMappings maps the owner's id. Overlay marks that root left in an earlier upper layer keep
// an id too, one that is nobody's inside.
func idMappings(owner, to int) []syscall.SysProcIDMap {
	m := []syscall.SysProcIDMap{{ContainerID: owner, HostID: to, Size: 1}}
	if owner != 0 {
		m = append(m, syscall.SysProcIDMap{ContainerID: 0, HostID: to + 1, Size: 1})
	}
	return m
}
