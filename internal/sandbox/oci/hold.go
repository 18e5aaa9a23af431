package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// idleTime is how long a holder without sandboxes and callers stays.
const idleTime = time.Minute

// heldMark in the environment tells a holder that its id maps are written.
const heldMark = "DAYBREAK_HOLDER"

// holderOrder is what a new holder reads from its standard input.
type holderOrder struct {
	Base string `json:"base"`
}

// Hold is what the command of [Config.Holder] does: it keeps the mounts of an ordinary user's
// sandboxes in namespaces of its own and works on them for the worker. It is of use only to
// a worker that starts it; it returns when no sandbox is left or ctx ends.
func Hold(ctx context.Context, stdin, stdout *os.File) error {
	if os.Getenv(heldMark) == "" {
		// The maps are being written. Only a program that starts as user 0 has capabilities.
		if _, err := io.ReadFull(stdin, make([]byte, 1)); err != nil {
			return fmt.Errorf("a holder is started by the worker: %w", err)
		}
		return syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), heldMark+"=1"))
	}
	err := hold(ctx, stdin, stdout)
	if err != nil {
		_, _ = fmt.Fprintln(stdout, err)
	}
	return err
}

func hold(ctx context.Context, stdin, stdout *os.File) error {
	var o holderOrder
	if err := json.NewDecoder(io.LimitReader(stdin, 1<<16)).Decode(&o); err != nil {
		return err
	}
	if os.Getuid() != 0 || !hasCap(unix.CAP_SYS_ADMIN) {
		return errors.New("no capabilities in the new user namespace")
	}
	syscall.Umask(0o022)
	dir, err := os.OpenFile(filepath.Dir(o.Base), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer dir.Close()
	name := socketName(dir, o.Base)
	if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	old := syscall.Umask(0o177)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: name})
	syscall.Umask(old)
	if err != nil {
		return err
	}
	ln.SetUnlinkOnClose(false)
	stop := context.AfterFunc(ctx, func() { ln.Close() })
	defer stop()
	s := &server{base: o.Base, ln: ln, socket: name, made: map[place]*Runtime{}}
	if _, err := fmt.Fprintln(stdout, "ready"); err != nil {
		return err
	}
	if err := letGo(stdin, stdout); err != nil {
		return err
	}
	return s.serve()
}

// letGo replaces the pipes to the worker that started us.
func letGo(files ...*os.File) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for _, f := range files {
		if err := unix.Dup3(int(null.Fd()), int(f.Fd()), 0); err != nil {
			return err
		}
	}
	return nil
}

// server is the holder's state.
type server struct {
	base   string
	ln     *net.UnixListener
	socket string

	mu     sync.Mutex
	active int
	made   map[place]*Runtime
}

// serve takes orders until there is nothing to hold.
func (s *server) serve() error {
	for {
		if err := s.ln.SetDeadline(time.Now().Add(idleTime)); err != nil { //nolint // a socket's deadline is real time
			return err
		}
		conn, err := s.ln.AcceptUnix()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if s.end() {
				return nil
			}
			continue
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.active++
		s.mu.Unlock()
		go func() {
			defer conn.Close()
			got, end := s.handle(conn)
			s.mu.Lock()
			s.active-- // before the answer, so that who has it finds us idle
			if end = end && s.active == 0 && !s.holding(); end {
				s.leave()
			}
			s.mu.Unlock()
			got.Answer.Ends = end
			_ = send(conn, got, nil) //nolint // the caller may be gone
			if end {
				os.Exit(0) // ends the connection, which tells the caller
			}
		}()
	}
}

// end takes the socket away if nothing is held; then nobody can come any more.
func (s *server) end() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.active > 0 || s.holding() {
		return false
	}
	s.leave()
	return true
}

func (s *server) leave() {
	_ = os.Remove(s.socket)
	_ = unmountBelow(s.base)
	_ = os.Remove(s.base)
	_ = os.Remove(s.base + ".lock")
}

// holding reports whether there is a sandbox.
func (s *server) holding() bool {
	entries, err := os.ReadDir(s.base)
	if err != nil {
		return !errors.Is(err, os.ErrNotExist)
	}
	for _, e := range entries {
		if validID.MatchString(e.Name()) {
			return true
		}
	}
	return false
}

// handle carries out one order and reports whether the holder is asked to end.
func (s *server) handle(conn *net.UnixConn) (r reply, end bool) {
	if !fromOwner(conn) {
		return reply{Error: &wireError{Text: "not yours"}}, false
	}
	if _, err := conn.Write([]byte{1}); err != nil {
		return reply{}, false
	}
	var o order
	files, err := receiveFiles(conn, &o)
	if err != nil {
		return reply{Error: toWire(err)}, false
	}
	defer closeAll(files)
	if o.Protocol != protocol {
		err := fmt.Errorf("the holder of the mounts speaks protocol %d, not %d: end the sandboxes with the version that started them", protocol, o.Protocol)
		return reply{Error: toWire(err)}, false
	}
	if o.Do == doLeave {
		return reply{}, true
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // the caller sends nothing more: this returns when it is gone
		_, _ = conn.Read(make([]byte, 1))
		cancel()
	}()
	got, err := s.runtime(o.Place).perform(ctx, o, files)
	return reply{Answer: got, Error: toWire(err)}, false
}

// runtime makes the part of a [Runtime] that carries orders out.
func (s *server) runtime(p place) *Runtime {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.made[p]; r != nil {
		return r
	}
	engine, _ := engineOf(p.Config.Engine)         // the worker checked it
	info, _ := os.ReadFile("/proc/self/mountinfo") // without it there are no cgroups, and kill says so
	c := p.Config
	r := &Runtime{
		cfg: Config{
			Dir: c.Dir, Runtime: c.Runtime, Engine: c.Engine, Guest: c.Guest, RootFS: c.RootFS, Etc: c.Etc, RunDir: c.RunDir,
			Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		},
		base: p.Base, groups: readCgroups(info), engine: engine, stand: p.Stand,
	}
	s.made[p] = r
	return r
}

// fromOwner reports whether the caller is the user, who is 0 here.
func fromOwner(conn *net.UnixConn) bool {
	raw, err := conn.SyscallConn()
	if err != nil {
		return false
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return err == nil && credErr == nil && cred.Uid == 0
}
