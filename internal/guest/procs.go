package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	// drainGrace is how long output is still read after the leader's end.
	drainGrace = 200 * time.Millisecond
	// maxFinished is how many ended commands Wait still knows.
	maxFinished = 32
	// procMark is the variable by which a command's daemons are found again.
	procMark = "DAYBREAK_PROC"
)

// fixedEnv keeps commands from waiting for a person or drawing for one.
func fixedEnv() []string {
	return []string{
		"CI=1", "TERM=dumb", "NO_COLOR=1", "PAGER=cat", "GIT_PAGER=cat", "MANPAGER=cat", "SYSTEMD_PAGER=cat",
		"GIT_TERMINAL_PROMPT=0", "GIT_EDITOR=true", "EDITOR=true", "VISUAL=true", "DEBIAN_FRONTEND=noninteractive",
		"PIP_NO_INPUT=1", "PIP_PROGRESS_BAR=off", "PIP_DISABLE_PIP_VERSION_CHECK=1", "PYTHONUNBUFFERED=1",
		"NPM_CONFIG_PROGRESS=false", "NPM_CONFIG_FUND=false", "NPM_CONFIG_UPDATE_NOTIFIER=false",
	}
}

// keptLogs is how many times the cap of one log all of them may take; the oldest go first.
const keptLogs = 4

// logFile is the log of an ended command.
type logFile struct {
	path  string
	bytes int64
}

// procs owns every process of a guest.
type procs struct {
	opts  ServerOptions
	shell string
	nonce string // tells this guest's commands from those of another one on the host

	mu       sync.Mutex
	last     int // number of the newest command
	helpers  int // and of the newest helper, which count downwards
	byID     map[int]*proc
	finished []int
	logs     []logFile
	closing  bool
	leaders  map[int]bool // pids that an exec.Cmd waits for
}

// proc is one command.
type proc struct {
	id         int
	mark       string // a variable of its environment
	cmd        *exec.Cmd
	background bool
	helper     bool // of the guest's own: nobody can wait for it
	out        *output
	start      time.Time
	done       chan struct{} // closed after res is set
	res        ExecResult

	mu       sync.Mutex
	ended    bool // the leader was waited for: its pid may be somebody else's
	timedOut bool
	seen     map[procKey]bool // processes known to belong to the command
}

func newProcs(opts ServerOptions) (*procs, error) {
	if opts.LogDir != "" {
		if err := os.MkdirAll(opts.LogDir, 0o755); err != nil {
			return nil, fmt.Errorf("make the log directory: %w", err)
		}
	}
	shell, err := exec.LookPath("bash")
	if err != nil {
		shell = "/bin/sh"
	}
	return &procs{opts: opts, shell: shell, nonce: rand.Text(), byID: make(map[int]*proc), leaders: make(map[int]bool)}, nil
}

// exec runs a command, to its end unless it is a background one.
func (p *procs) exec(ctx context.Context, r ExecRequest) (ExecResult, error) {
	return p.run(ctx, r, false)
}

func (p *procs) run(ctx context.Context, r ExecRequest, helper bool) (ExecResult, error) {
	c, res, err := p.start(r, helper)
	if err != nil || c == nil {
		return res, err
	}
	if r.Background {
		return c.status(p.opts.Now()), nil
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		p.killTree(c)
		<-c.done
	}
	return c.res, nil
}

// start returns a nil proc, and a result that says why, when the program cannot be started.
func (p *procs) start(r ExecRequest, helper bool) (*proc, ExecResult, error) {
	if (r.Shell == "") == (len(r.Argv) == 0) {
		return nil, ExecResult{}, errors.New("a command needs either a shell line or an argument list")
	}
	argv := r.Argv
	if r.Shell != "" {
		argv = []string{p.shell, "-c", r.Shell}
	}
	p.mu.Lock()
	if p.closing {
		p.mu.Unlock()
		return nil, ExecResult{}, errors.New("the guest is shutting down")
	}
	if r.Background && p.backgroundLocked() >= MaxBackground {
		p.mu.Unlock()
		return nil, ExecResult{}, fmt.Errorf("%d background commands are running; wait for one or kill one", MaxBackground)
	}
	p.mu.Unlock()
	id := p.number(helper)
	dir := r.Dir
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(p.opts.Root, dir)
	}
	c := &proc{id: id, mark: p.mark(id), background: r.Background, helper: helper, done: make(chan struct{}), start: p.opts.Now(), seen: make(map[procKey]bool)}
	cmd := p.command(c, argv, dir, r.Env)
	c.cmd = cmd
	stdin, err := p.stdin(r.Stdin)
	if err != nil {
		return nil, ExecResult{}, err
	}
	if stdin != nil {
		cmd.Stdin = stdin
		defer stdin.Close()
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, ExecResult{}, fmt.Errorf("make a pipe: %w", err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	log := ""
	if p.opts.LogDir != "" && !helper {
		log = filepath.Join(p.opts.LogDir, fmt.Sprintf("run-%d.log", id))
	}
	c.out = newOutput(log, p.opts.MaxLog, keepSize(r.Head), keepSize(r.Tail))

	err = p.launch(c)
	write.Close()
	if err != nil {
		read.Close()
		c.out.close()
		return nil, ExecResult{Proc: id, ExitCode: 127, Error: startError(argv[0], dir, err)}, nil
	}
	go p.follow(c, read, r.Timeout)
	return c, ExecResult{}, nil
}

// number gives out the next number of a command, or of a helper.
func (p *procs) number(helper bool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if helper {
		p.helpers--
		return p.helpers
	}
	p.last++
	return p.last
}

// launch starts the program and registers it in one act: a reaper never sees a child that it
// does not know.
func (p *procs) launch(c *proc) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return errors.New("the guest is shutting down")
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	offerToOOM(c.cmd.Process.Pid)
	p.leaders[c.cmd.Process.Pid] = true
	p.byID[c.id] = c
	return nil
}

// startPiped starts a helper of the guest's own whose standard output goes to a pipe; the
// result holds the start of its standard error.
func (p *procs) startPiped(argv []string, stdin []byte, stdout *os.File) (*proc, ExecResult, error) {
	id := p.number(true)
	c := &proc{id: id, mark: p.mark(id), helper: true, done: make(chan struct{}), start: p.opts.Now(), seen: make(map[procKey]bool), out: newOutput("", 0, 4<<10, 1)}
	c.cmd = p.command(c, argv, p.opts.Root, nil)
	c.cmd.Stdout = stdout
	feed, err := p.stdin(stdin)
	if err != nil {
		return nil, ExecResult{}, err
	}
	if feed != nil {
		c.cmd.Stdin = feed
		defer feed.Close()
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, ExecResult{}, fmt.Errorf("make a pipe: %w", err)
	}
	c.cmd.Stderr = write
	err = p.launch(c)
	write.Close()
	if err != nil {
		read.Close()
		return nil, ExecResult{Error: startError(argv[0], p.opts.Root, err)}, nil
	}
	go p.follow(c, read, 0)
	return c, ExecResult{}, nil
}

func (p *procs) mark(id int) string { return fmt.Sprintf("%s=%s.%d", procMark, p.nonce, id) }

func (p *procs) command(c *proc, argv []string, dir string, env []string) *exec.Cmd {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = append(append(append(os.Environ(), fixedEnv()...), env...), c.mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// stdin spools a command's input to an unlinked file: nothing has to feed a pipe, and the
// command sees the end of it. Nil means the null device.
func (p *procs) stdin(b []byte) (*os.File, error) {
	if len(b) == 0 {
		return nil, nil
	}
	file, err := os.CreateTemp(p.opts.LogDir, "stdin-*")
	if err != nil {
		return nil, fmt.Errorf("keep the input: %w", err)
	}
	os.Remove(file.Name())
	if _, err = file.Write(b); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("keep the input: %w", err)
	}
	return file, nil
}

func startError(program, dir string, err error) string {
	if st, serr := os.Stat(dir); serr != nil || !st.IsDir() {
		return fmt.Sprintf("the directory %s does not exist", dir)
	}
	if errors.Is(err, exec.ErrNotFound) {
		return program + ": no such program in the sandbox"
	}
	return oneLine(err.Error())
}

// follow sees a command to its end.
func (p *procs) follow(c *proc, read *os.File, timeout time.Duration) {
	copied := make(chan struct{})
	go func() {
		c.out.copyFrom(read)
		close(copied)
	}()
	if timeout > 0 {
		t := time.AfterFunc(timeout, func() {
			c.mu.Lock()
			if c.ended {
				c.mu.Unlock()
				return
			}
			c.timedOut = true
			c.mu.Unlock()
			p.killTree(c)
		})
		defer t.Stop()
	}
	err := c.cmd.Wait()
	wall := p.opts.Now().Sub(c.start)
	p.mu.Lock()
	delete(p.leaders, c.cmd.Process.Pid)
	p.mu.Unlock()
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	left := p.killRest(c)
	t := time.NewTimer(drainGrace)
	select {
	case <-copied:
	case <-t.C:
		_ = read.SetReadDeadline(time.Unix(1, 0))
		<-copied
	}
	t.Stop()
	read.Close()
	c.out.close()

	res := ExecResult{Proc: c.id, Wall: wall, Children: left}
	c.mu.Lock()
	res.TimedOut = c.timedOut
	c.mu.Unlock()
	res.ExitCode, res.Signal = exitCode(c.cmd.ProcessState, err)
	c.out.fill(&res)
	c.res = res
	p.finish(c)
	close(c.done)
}

func exitCode(st *os.ProcessState, err error) (int, string) {
	if st == nil {
		return 127, oneLine(fmt.Sprint(err))
	}
	ws, ok := st.Sys().(syscall.WaitStatus)
	if ok && ws.Signaled() {
		return 128 + int(ws.Signal()), signalName(ws.Signal())
	}
	return st.ExitCode(), ""
}

// finish forgets the oldest ended commands, and the oldest logs when all take too much.
func (p *procs) finish(c *proc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.helper {
		delete(p.byID, c.id)
		return
	}
	p.finished = append(p.finished, c.id)
	if c.res.Log != "" {
		p.logs = append(p.logs, logFile{c.res.Log, min(c.res.Bytes, p.opts.MaxLog)})
	}
	total := int64(0)
	for i := len(p.logs) - 1; i >= 0; i-- {
		if total += p.logs[i].bytes; total > keptLogs*p.opts.MaxLog {
			for _, old := range p.logs[:i+1] {
				os.Remove(old.path)
			}
			p.logs = p.logs[i+1:]
			break
		}
	}
	if len(p.finished) > maxFinished {
		delete(p.byID, p.finished[0])
		p.finished = p.finished[1:]
	}
}

func (p *procs) backgroundLocked() int {
	n := 0
	for _, c := range p.byID {
		if c.background && !c.over() {
			n++
		}
	}
	return n
}

func (c *proc) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// status is where a running command stands.
func (c *proc) status(now time.Time) ExecResult {
	if c.over() {
		return c.res
	}
	res := ExecResult{Proc: c.id, Running: true, Wall: now.Sub(c.start)}
	c.out.fill(&res)
	return res
}

func (p *procs) find(id int) (*proc, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.byID[id]; c != nil && !c.helper {
		return c, nil
	}
	return nil, fmt.Errorf("there is no command number %d", id)
}

// wait returns at the command's end, or after d with where it stands.
func (p *procs) wait(ctx context.Context, id int, d time.Duration) (ExecResult, error) {
	c, err := p.find(id)
	if err != nil {
		return ExecResult{}, err
	}
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-c.done:
	case <-t.C:
	case <-ctx.Done():
	}
	return c.status(p.opts.Now()), nil
}

// kill ends a command and returns its result.
func (p *procs) kill(id int) (ExecResult, error) {
	c, err := p.find(id)
	if err != nil {
		return ExecResult{}, err
	}
	if !c.over() {
		p.killTree(c)
		<-c.done
	}
	return c.res, nil
}

// killAll ends every command and lets no new one start.
func (p *procs) killAll() {
	p.mu.Lock()
	p.closing = true
	var all []*proc
	for _, c := range p.byID {
		if !c.over() {
			all = append(all, c)
		}
	}
	p.mu.Unlock()
	for _, c := range all {
		p.killTree(c)
	}
	for _, c := range all {
		<-c.done
	}
}
