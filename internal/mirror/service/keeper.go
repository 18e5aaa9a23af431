package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/mirror"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Config says what a keeper starts.
type Config struct {
	Command []string // program and arguments that lead to [Run]
	Store   string   // directory of packages; made when missing
	RunDir  string   // short path for sockets; made when missing
	// UID is the process's user; 0 takes a user namespace of the caller's, whose user is the
	// caller itself.
	UID      int
	Settings func(ctx context.Context) (Settings, error) // asked once, when a process first starts
	Logger   *slog.Logger
}

// Keeper starts the process when it is first needed, starts it again if it dies, and keeps its
// sessions. It is safe for concurrent use.
type Keeper struct {
	cfg Config

	counting sync.Mutex // held while the process is asked what it did
	asking   sync.Mutex // held while the machine's clients are asked
	settings *Settings

	mu       sync.Mutex
	p        *process
	last     int64
	restarts int
	live     map[int64]*Session
	closed   bool
}

// New returns a keeper. Nothing is started.
func New(cfg Config) *Keeper { return &Keeper{cfg: cfg, live: map[int64]*Session{}} }

// Request is what a sandbox's session needs.
type Request struct {
	About Description
	Front bool // serve absolute addresses too
	// Record stores lines of the ledger. A line with New is alone, and an upstream hears of it
	// only when Record returned nil; a *[mirror.Denial] refuses it for its own reason.
	Record func(ctx context.Context, entries []mirror.Entry) error
}

// Session is one sandbox's way to the mirror.
type Session struct {
	Socket    string // serves the routes
	Front     string // takes CONNECT; "" when there is none
	Authority []byte // PEM certificate that the sandbox must trust for the front

	k         *Keeper
	id        int64
	req       Request
	dir       string
	files     []*os.File // listeners
	lock      *os.File   // holds dir
	in        chan asked
	opened    chan opened
	closed    chan struct{} // the process has said its last word
	once      sync.Once
	finished  chan struct{} // all of it is recorded
	lost      error         // what could not be recorded; read after finished
	spentMu   sync.Mutex
	spentName []string
	spentVers []string
}

// Configured returns the settings the mirror has or will be started with.
func (k *Keeper) Configured(ctx context.Context) (Settings, error) {
	k.asking.Lock()
	defer k.asking.Unlock()
	if k.settings == nil {
		s, err := k.cfg.Settings(ctx)
		if err != nil {
			return Settings{}, err
		}
		k.settings = &s
	}
	return *k.settings, nil
}

// Open gives a sandbox its sockets, which exist until [Session.Close].
func (k *Keeper) Open(ctx context.Context, req Request) (*Session, error) {
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return nil, &task.Error{Class: task.Internal, Msg: "the mirror is closed"}
	}
	p, err := k.running(ctx)
	if err != nil {
		k.mu.Unlock()
		return nil, err
	}
	k.last++
	s := &Session{
		k: k, id: k.last, req: req, in: make(chan asked, 64), opened: make(chan opened, 1), closed: make(chan struct{}), finished: make(chan struct{}),
	}
	k.mu.Unlock()
	if err := s.listen(k.cfg.RunDir); err != nil {
		return nil, errors.Join(&task.Error{Class: task.Unavailable, Msg: "cannot make a socket for a sandbox", Err: err}, s.remove())
	}
	k.mu.Lock()
	k.live[s.id] = s
	k.mu.Unlock()
	go s.keep(context.WithoutCancel(ctx))
	err = p.c.send(message{Open: &opening{s.id, s.description()}}, s.files...)
	var got opened
	if err == nil {
		select {
		case got = <-s.opened:
			if got.Error != "" {
				err = errors.New(got.Error)
			}
		case <-p.done:
			err = p.why()
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		s.hangUp()
		<-s.finished
		return nil, errors.Join(&task.Error{Class: task.Unavailable, Msg: "the mirror did not open a session", Err: err}, s.remove())
	}
	s.Authority = got.Authority
	return s, nil
}

// listen makes the sockets in a directory that nobody else can enter: what a sandbox is given of
// it is one socket, by a mount. The socket's own mode lets anybody in who has reached it.
func (s *Session) listen(run string) error {
	if err := os.MkdirAll(run, 0o700); err != nil {
		return err
	}
	var err error
	if s.dir, err = os.MkdirTemp(run, "m-"); err != nil {
		return err
	}
	if s.lock, err = os.Open(s.dir); err != nil { // says that somebody is there; see sweep
		return err
	}
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return err
	}
	names := []string{"r"}
	if s.req.Front {
		names = append(names, "f")
	}
	for _, n := range names {
		path := filepath.Join(s.dir, n)
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		f, err := l.File()
		if err := errors.Join(err, l.Close()); err != nil {
			return err
		}
		s.files = append(s.files, f)
		if err := os.Chmod(path, 0o666); err != nil {
			return err
		}
	}
	s.Socket = filepath.Join(s.dir, "r")
	if s.req.Front {
		s.Front = filepath.Join(s.dir, "f")
	}
	return nil
}

// remove takes the sockets away.
func (s *Session) remove() error {
	s.k.mu.Lock() // a process that is started again meanwhile is given no other file by that number
	closeAll(s.files)
	s.files = nil
	s.k.mu.Unlock()
	if s.dir == "" {
		return nil
	}
	err := os.RemoveAll(s.dir)
	if s.lock != nil {
		_ = s.lock.Close() // nothing was written
	}
	return err
}

// sweep removes the sockets of callers that died. A directory that is younger than a minute may
// be one that nobody has locked yet.
func sweep(run string, now time.Time) error {
	dirs, err := os.ReadDir(run)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, d := range dirs {
		name := filepath.Join(run, d.Name())
		st, serr := os.Stat(name)
		if serr != nil || !strings.HasPrefix(d.Name(), "m-") || now.Sub(st.ModTime()) < time.Minute {
			continue
		}
		f, oerr := os.Open(name)
		if oerr != nil {
			continue // gone meanwhile
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = errors.Join(err, os.RemoveAll(name))
		}
		err = errors.Join(err, f.Close())
	}
	return err
}

// description is the session as a process must know it now: what it let through before counts.
func (s *Session) description() Description {
	s.spentMu.Lock()
	defer s.spentMu.Unlock()
	d := s.req.About
	d.SpentNames = append(d.SpentNames[:len(d.SpentNames):len(d.SpentNames)], s.spentName...)
	d.SpentVersions = append(d.SpentVersions[:len(d.SpentVersions):len(d.SpentVersions)], s.spentVers...)
	return d
}

// keep records the ledger in the order it comes, in as few writes as that allows.
func (s *Session) keep(ctx context.Context) {
	defer close(s.finished)
	for {
		var batch []asked
		select {
		case a := <-s.in:
			batch = append(batch, a)
		case <-s.closed:
			for len(s.in) > 0 {
				batch = append(batch, <-s.in)
			}
			s.lost = errors.Join(s.lost, s.record(ctx, batch))
			return
		}
		for more := true; more && len(batch) < cap(s.in); {
			select {
			case a := <-s.in:
				batch = append(batch, a)
			default:
				more = false
			}
		}
		s.lost = errors.Join(s.lost, s.record(ctx, batch))
	}
}

// record stores a batch. The error is about lines nobody waits for: the other ones were refused.
func (s *Session) record(ctx context.Context, batch []asked) (lost error) {
	var plain []mirror.Entry
	flush := func() {
		if len(plain) > 0 {
			lost = errors.Join(lost, s.req.Record(ctx, plain))
			plain = nil
		}
	}
	for _, a := range batch {
		if !a.Waits {
			plain = append(plain, a.Entry)
			continue
		}
		flush()
		err := s.req.Record(ctx, []mirror.Entry{a.Entry})
		out := answer{Session: s.id, N: a.N, OK: err == nil}
		var d *mirror.Denial
		if errors.As(err, &d) {
			out.Reason, out.Detail = d.Reason, d.Detail
		}
		if err == nil {
			s.spend(a.Entry)
		}
		s.k.tell(message{Answer: &out})
	}
	flush()
	return lost
}

func (s *Session) spend(e mirror.Entry) {
	s.spentMu.Lock()
	defer s.spentMu.Unlock()
	name := string(e.Ecosystem) + ":" + e.Name
	if e.Version == "" {
		s.spentName = append(s.spentName, name)
	} else {
		s.spentVers = append(s.spentVers, name+"@"+e.Version)
	}
}

// hangUp marks that nothing more will come.
func (s *Session) hangUp() {
	s.once.Do(func() {
		s.k.mu.Lock()
		delete(s.k.live, s.id)
		s.k.mu.Unlock()
		close(s.closed)
	})
}

// Close ends the session and waits until its ledger is recorded. Its sockets are gone first, so
// that nobody finds them again.
func (s *Session) Close(ctx context.Context) error {
	err := s.remove()
	s.k.mu.Lock()
	p := s.k.p
	s.k.mu.Unlock()
	if p != nil {
		if p.c.send(message{Close: &sessionName{s.id}}) == nil {
			select {
			case <-s.closed:
			case <-p.done:
			case <-ctx.Done():
			}
		}
	}
	s.hangUp()
	<-s.finished
	if s.lost != nil {
		err = errors.Join(err, fmt.Errorf("record what a sandbox asked the registries: %w", s.lost))
	}
	return err
}

// Counts is what the process did since it began; ok is false while none runs.
func (k *Keeper) Counts(ctx context.Context) (n mirror.Counts, ok bool) {
	k.counting.Lock()
	defer k.counting.Unlock()
	k.mu.Lock()
	p := k.p
	k.mu.Unlock()
	if p == nil {
		return n, false
	}
	select {
	case <-p.told: // came too late for who asked before
	default:
	}
	if p.c.send(message{Count: &struct{}{}}) != nil {
		return n, false
	}
	select {
	case n = <-p.told:
		return n, true
	case <-p.done:
	case <-ctx.Done():
	}
	return n, false
}

// tell sends to the process that runs, if one does.
func (k *Keeper) tell(m message) {
	k.mu.Lock()
	p := k.p
	k.mu.Unlock()
	if p == nil {
		return
	}
	if err := p.c.send(m); err != nil {
		k.cfg.Logger.Debug("the mirror's process is gone", "error", err)
	}
}

// Close ends the process. Sessions must have been closed.
func (k *Keeper) Close() error {
	k.mu.Lock()
	k.closed = true
	p := k.p
	k.p = nil
	k.mu.Unlock()
	if p == nil {
		return nil
	}
	return p.stop()
}
