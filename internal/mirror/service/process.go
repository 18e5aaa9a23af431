package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/mirror"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 5 * time.Second
	maxRestarts  = 5
)

// process is one running mirror.
type process struct {
	cmd  *exec.Cmd
	c    *channel
	pid  int
	done chan struct{}      // it has ended
	told chan mirror.Counts // the answer to whoever asked last
	err  error              // how; read after done
	last string             // line of its standard error; read after done
}

func (p *process) why() error {
	<-p.done
	if p.last != "" {
		return errors.New(p.last)
	}
	if p.err != nil {
		return p.err
	}
	return errors.New("the mirror's process ended")
}

// running returns the process, starting one when there is none. k.mu is held.
func (k *Keeper) running(ctx context.Context) (*process, error) {
	if k.p != nil {
		select {
		case <-k.p.done:
		default:
			return k.p, nil
		}
	}
	s, err := k.Configured(ctx)
	if err != nil {
		return nil, err
	}
	p, err := k.start(ctx, s)
	if err != nil {
		return nil, &task.Error{Class: task.Unavailable, Msg: "the package mirror cannot be started", Err: err, Fix: "put that right, or set network: offline"}
	}
	k.p = p
	go k.listen(p)
	return p, nil
}

// readable are the files the process may read beside its store: certificates and what the
// resolver goes by.
func readable() []string {
	return []string{
		"/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf",
		"/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
	}
}

// start runs the program, has it shut itself in, and configures it.
func (k *Keeper) start(ctx context.Context, s Settings) (*process, error) {
	if err := sweep(k.cfg.RunDir, time.Now()); err != nil {
		return nil, err
	}
	root := filepath.Join(k.cfg.Store, "root")
	store := filepath.Join(k.cfg.Store, "packages")
	for _, d := range []string{root, store} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, err
		}
	}
	if k.cfg.UID != 0 {
		if err := give(store, k.cfg.UID); err != nil {
			return nil, err
		}
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	theirs := os.NewFile(uintptr(fds[1]), "mirror")
	ours := os.NewFile(uintptr(fds[0]), "mirror")
	conn, err := net.FileConn(ours)
	if err = errors.Join(err, ours.Close()); err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	p := &process{c: &channel{conn: conn.(*net.UnixConn)}, done: make(chan struct{}), told: make(chan mirror.Counts, 1)}
	started := make(chan error, 1)
	go p.run(k, theirs, started)
	// Once it is started nobody else holds its end: what it leaves ends with it.
	if err := errors.Join(<-started, theirs.Close()); err != nil {
		return nil, errors.Join(layer("start", err), conn.Close())
	}
	if err := p.greet(ctx, confinement{Root: root, Store: store, UID: k.cfg.UID, Files: readable()}, s); err != nil {
		return nil, errors.Join(err, p.stop())
	}
	return p, nil
}

// give hands the store to the process's user. What is below has belonged to it since.
func give(dir string, uid int) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return err
	}
	if int(st.Uid) == uid {
		return nil
	}
	return filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(name, uid, uid)
	})
}

// run starts the program and waits for its end, on a thread of its own: the kernel ends the
// program together with the thread that started it.
func (p *process) run(k *Keeper, channel *os.File, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(p.done)
	p.cmd = exec.Command(k.cfg.Command[0], k.cfg.Command[1:]...)
	p.cmd.Env = []string{} // nil would be our own
	p.cmd.Dir = "/"
	p.cmd.ExtraFiles = []*os.File{channel}
	p.cmd.WaitDelay = time.Second
	attr := &syscall.SysProcAttr{
		Pdeathsig:  syscall.SIGKILL,
		Setsid:     true,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	if k.cfg.UID == 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	p.cmd.SysProcAttr = attr
	stderr, err := p.cmd.StderrPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		p.err = err
		started <- err
		return
	}
	p.pid = p.cmd.Process.Pid
	started <- nil
	lines := bufio.NewReaderSize(stderr, 4096)
	for {
		line, err := lines.ReadString('\n')
		if text := strings.TrimSpace(line); text != "" {
			p.last = text[:min(len(text), 500)]
			k.cfg.Logger.Debug("mirror", "says", p.last)
		}
		if err != nil {
			break
		}
	}
	p.err = p.cmd.Wait()
}

// greet shuts the process in and configures it.
func (p *process) greet(ctx context.Context, c confinement, s Settings) error {
	if err := p.c.conn.SetDeadline(time.Now().Add(startTimeout)); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.c.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := errors.Join(p.c.send(message{Confine: &c}), p.c.send(message{Configure: &s})); err != nil {
		return errors.Join(p.whyNow(), err)
	}
	m, files, err := p.c.receive(maxTale)
	closeAll(files)
	switch {
	case err != nil:
		return errors.Join(p.whyNow(), err)
	case m.Ready == nil:
		return errors.New("the mirror's process did not say that it is ready")
	case m.Ready.Error != "":
		return errors.New(m.Ready.Error)
	case m.Ready.UID != c.UID || m.Ready.Caps != 0 || !m.Ready.NNP:
		return fmt.Errorf("the mirror's process is not confined: user %d, capabilities %#x", m.Ready.UID, m.Ready.Caps)
	}
	return p.c.conn.SetDeadline(time.Time{})
}

// whyNow is the process's own word on its end, if it has ended.
func (p *process) whyNow() error {
	select {
	case <-p.done:
		return p.why()
	case <-time.After(time.Second):
		return nil
	}
}

// stop closes the channel, upon which the process ends, and sees to it that it does.
func (p *process) stop() error {
	err := p.c.conn.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil // it was stopped before
	}
	select {
	case <-p.done:
	case <-time.After(stopTimeout):
		err = errors.Join(err, p.cmd.Process.Kill())
		<-p.done
	}
	return err
}

// listen takes what the process says to its sessions, and starts another when it ends unasked.
func (k *Keeper) listen(p *process) {
	for {
		m, files, err := p.c.receive(maxTale)
		closeAll(files)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				k.cfg.Logger.Warn("the mirror's process is ended: what it says cannot be read", "error", err)
			}
			break
		}
		if m.Counted != nil {
			select {
			case <-p.told: // nobody waited for it
			default:
			}
			p.told <- *m.Counted
			continue
		}
		id := int64(0)
		switch {
		case m.Opened != nil:
			id = m.Opened.Session
		case m.Closed != nil:
			id = m.Closed.Session
		case m.Asked != nil:
			id = m.Asked.Session
		}
		k.mu.Lock()
		s := k.live[id]
		k.mu.Unlock()
		if s == nil {
			continue // its sandbox is gone
		}
		switch {
		case m.Opened != nil:
			select {
			case s.opened <- *m.Opened:
			default: // after a restart nobody waits
			}
		case m.Closed != nil:
			s.hangUp()
		case m.Asked != nil:
			select {
			case s.in <- *m.Asked:
			case <-s.closed:
			}
		}
	}
	_ = p.stop() // it is of no use any more
	k.revive(p)
}

// revive starts another process in place of one that died, for the sessions that are open. Their
// sockets and their budgets stay what they are; a front gets no new authority, so it is lost.
func (k *Keeper) revive(dead *process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.p != dead {
		return
	}
	k.p = nil
	k.restarts++
	if len(k.live) == 0 || k.restarts > maxRestarts {
		return // the next sandbox starts one
	}
	k.cfg.Logger.Warn("the mirror's process died and is started again", "error", dead.why())
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	p, err := k.running(ctx)
	if err != nil {
		k.cfg.Logger.Error("the mirror's process cannot be started again", "error", err)
		return
	}
	for _, s := range k.live {
		if len(s.files) == 0 {
			continue // it ends just now
		}
		if err := p.c.send(message{Open: &opening{s.id, s.description()}}, s.files[:1]...); err != nil {
			k.cfg.Logger.Warn("a session could not be opened again", "error", err)
		}
	}
}
