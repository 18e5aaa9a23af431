// Package pgtest starts a private PostgreSQL server for tests, from Debian's package.
//
// Invariants: the server listens on a socket in its own folder and nowhere else, as a user
// without rights; nothing of it is left when the test has ended; nothing in it is durable.
package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is one running server.
type Server struct {
	bin, dir string
	cred     *syscall.SysProcAttr
	cmd      *exec.Cmd
	done     chan struct{}
	log      bytes.Buffer
	made     atomic.Int64
}

// Start makes a server that ends with the test. Without the programs the test is skipped, or
// fails when CI=true.
func Start(t testing.TB) *Server {
	t.Helper()
	s := &Server{bin: programs(t)}
	var err error
	if s.dir, err = os.MkdirTemp("", "daybreak-pg-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(s.dir) })
	if os.Geteuid() == 0 { // the server refuses to run as root
		u, err := user.Lookup("postgres")
		if err != nil {
			u, err = user.Lookup("nobody")
		}
		if err != nil {
			t.Fatal(err)
		}
		uid, _ := strconv.Atoi(u.Uid)
		gid, _ := strconv.Atoi(u.Gid)
		s.cred = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		if err := os.Chown(s.dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	initdb := s.command("initdb", "-D", s.data(), "-U", "daybreak", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	s.Begin(t)
	t.Cleanup(func() { s.End(syscall.SIGQUIT) })
	return s
}

func programs(t testing.TB) string {
	t.Helper()
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(all) == 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("PostgreSQL is not installed; run scripts/setup.sh")
		}
		t.Skip("PostgreSQL is not installed")
	}
	return filepath.Dir(all[len(all)-1])
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = s.dir, s.cred
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	return cmd
}

// Begin starts the server, again after [Server.End], and waits until it answers.
func (s *Server) Begin(t testing.TB) {
	t.Helper()
	s.log.Reset()
	s.cmd = s.command("postgres", "-D", s.data(), "-k", s.dir, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "synchronous_commit=off", "-c", "shared_buffers=32MB", "-c", "max_connections=300", "-c", "autovacuum=off", "-c", "log_min_messages=fatal")
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done, cmd := make(chan struct{}), s.cmd
	s.done = done
	go func() { _ = cmd.Wait(); close(done) }()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if c, err := pgx.Connect(context.Background(), s.DSN("postgres")); err == nil {
			_ = c.Close(context.Background())
			return
		}
		select {
		case <-done:
			t.Fatalf("the server ended: %s", s.log.String())
		case <-poll.C:
		}
	}
	t.Fatal("the server does not answer")
}

// End stops the server with a signal (SIGQUIT: as a crash would) and waits for it.
func (s *Server) End(sig syscall.Signal) {
	_ = s.cmd.Process.Signal(sig)
	<-s.done
}

// Socket is the path that the server listens at, for a proxy.
func (s *Server) Socket() string { return filepath.Join(s.dir, ".s.PGSQL.5432") }

// DSN is the address of one of its databases.
func (s *Server) DSN(database string) string {
	return fmt.Sprintf("postgres://daybreak@/%s?host=%s", database, s.dir)
}

// Database makes an empty schema, which is what a database of one's own is to a program that
// names none, and returns its address.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	c, err := pgx.Connect(context.Background(), s.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close(context.Background()) }()
	name := fmt.Sprintf("test%d", s.made.Add(1))
	if _, err := c.Exec(context.Background(), "CREATE SCHEMA "+name); err != nil {
		t.Fatal(err)
	}
	return s.DSN("postgres") + "&search_path=" + name
}

// Freeze stops the server and all its processes where they are, as a machine that hangs does;
// Thaw lets them go on.
func (s *Server) Freeze(t testing.TB) { s.each(t, syscall.SIGSTOP) }

// Thaw undoes [Server.Freeze].
func (s *Server) Thaw(t testing.TB) { s.each(t, syscall.SIGCONT) }

func (s *Server) each(t testing.TB, sig syscall.Signal) {
	t.Helper()
	pid := s.cmd.Process.Pid
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range append([]string{strconv.Itoa(pid)}, strings.Fields(string(children))...) {
		if n, err := strconv.Atoi(f); err == nil {
			_ = syscall.Kill(n, sig)
		}
	}
}
