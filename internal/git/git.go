// Package git runs the git command line on bare repositories that only Daybreak writes:
// fetching a base commit, laying out a one-commit checkout, building a tree from exported
// files with plumbing alone, and making the commit that is pushed.
//
// Invariants: every invocation has a scrubbed environment, no system or global configuration,
// no hooks, no prompts, no filters; no repository, configuration, attribute or hook that a
// sandbox wrote is ever read; a built tree differs from its base by exactly the given changes,
// or an error says where.
package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// Change is one changed path of a proposed commit. Paths are slash-separated and relative.
type Change struct {
	Path    string `json:"path"`
	Mode    uint32 `json:"mode,omitempty"` // 0o100644, 0o100755, 0o120000
	Content []byte `json:"content,omitempty"`
	Deleted bool   `json:"deleted,omitempty"`
}

// The modes a tree entry can have.
const (
	ModeFile       uint32 = 0o100644
	ModeExecutable uint32 = 0o100755
	ModeLink       uint32 = 0o120000
	ModeSubmodule  uint32 = 0o160000
	ModeTree       uint32 = 0o040000
)

// DefaultMaxOutput is how many bytes of standard output one git command may give before it
// is killed: a listing of about two million paths.
const DefaultMaxOutput = 512 << 20

// Config says how git is run.
type Config struct {
	Bin       string   // the git program; "" looks up "git" in PATH
	Home      string   // an empty directory: HOME of every run; its content would be configuration
	MaxOutput int64    // bytes of one command's output; 0 is DefaultMaxOutput
	Env       []string // added to every run, such as GIT_CONFIG_COUNT… for a short-lived credential
	// Credential is asked before every command that speaks http or https to a server, and
	// returns nil for one that is shown none. May be nil.
	Credential func(ctx context.Context, url string) (*Credential, error)

	progress Progress // see [Git.Telling]
}

// Git runs commands. It holds no state between them and is safe for concurrent use.
type Git struct {
	bin string
	cfg Config
}

// New finds git and makes Home. It fails with class Unavailable when there is no git.
func New(cfg Config) (*Git, error) {
	name := cfg.Bin
	if name == "" {
		name = "git"
	}
	bin, err := exec.LookPath(name)
	if err != nil {
		return nil, &task.Error{Class: task.Unavailable, Msg: "git is not installed", Fix: "install git 2.39 or newer", Err: err}
	}
	if cfg.Home == "" || !filepath.IsAbs(cfg.Home) {
		return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("git home %q is not an absolute path", cfg.Home)}
	}
	if err := os.MkdirAll(cfg.Home, 0o755); err != nil {
		return nil, fmt.Errorf("make git's home: %w", err)
	}
	if cfg.MaxOutput <= 0 {
		cfg.MaxOutput = DefaultMaxOutput
	}
	return &Git{bin: bin, cfg: cfg}, nil
}

// With returns a Git that shows servers another credential.
func (g *Git) With(credential func(ctx context.Context, url string) (*Credential, error)) *Git {
	cfg := g.cfg
	cfg.Credential = credential
	return &Git{bin: g.bin, cfg: cfg}
}

// settings are given to every command: whatever a repository's own configuration says, these
// win. safe.directory lets root read a repository that belongs to somebody else, which the
// caller has named.
func settings() []string {
	return []string{
		"core.hooksPath=/dev/null", "core.fsmonitor=false", "core.untrackedCache=false",
		"core.attributesFile=/dev/null", "core.excludesFile=/dev/null", "core.pager=cat",
		"core.autocrlf=false", "core.symlinks=true", "core.fileMode=true", "core.quotePath=false",
		"core.protectHFS=true", "core.protectNTFS=true", "core.logAllRefUpdates=false",
		"core.alternateRefsCommand=true", "core.sshCommand=ssh -oBatchMode=yes", "core.editor=false",
		"safe.directory=*", "safe.bareRepository=all", "credential.helper=",
		"protocol.ext.allow=never", "commit.gpgSign=false", "push.gpgSign=false",
		"submodule.recurse=false", "fetch.recurseSubmodules=false", "push.recurseSubmodules=no",
		"gc.auto=0", "maintenance.auto=false", "http.followRedirects=initial",
		"i18n.commitEncoding=UTF-8", "advice.detachedHead=false",
	}
}

func flags() []string {
	var f []string
	for _, s := range settings() {
		f = append(f, "-c", s)
	}
	return f
}

// env is the whole environment of a run; nothing of ours is inherited but PATH.
func (g *Git) env(extra []string) []string {
	path := os.Getenv("PATH")
	if path == "" {
		path = "/usr/local/bin:/usr/bin:/bin"
	}
	e := []string{
		"PATH=" + path, "HOME=" + g.cfg.Home, "XDG_CONFIG_HOME=" + g.cfg.Home,
		"LC_ALL=C", "TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_ASKPASS=/bin/false", "SSH_ASKPASS=/bin/false",
		"GIT_OPTIONAL_LOCKS=0", "GIT_ALLOW_PROTOCOL=file:http:https:ssh", "GIT_PROTOCOL_FROM_USER=0",
		"GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_LITERAL_PATHSPECS=1",
		"GIT_SSH_COMMAND=ssh -oBatchMode=yes", "GIT_EDITOR=false", "GIT_PAGER=cat",
	}
	e = append(e, g.cfg.Env...)
	return append(e, extra...)
}

// call is one run of git.
type call struct {
	dir   string // working directory; "" is Home
	args  []string
	env   []string
	stdin io.Reader
	out   io.Writer // nil collects into the result
	max   int64     // bytes of output; 0 is the configuration's
	cut   bool      // at max, stop and return what there is with errCut
	asks  string    // the URL of a server that is spoken to
	tells bool      // standard error has git's progress
}

// errCut says that output was cut at the caller's own limit.
var errCut = errors.New("output cut")

// failure is a git command that ended badly.
type failure struct {
	verb   string
	code   int
	stderr string
}

func (f *failure) Error() string {
	return fmt.Sprintf("git %s failed (exit %d): %s", f.verb, f.code, oneLine(f.stderr))
}

// Is lets a disk that is full be found by its number: it is the machine's trouble, and passes.
func (f *failure) Is(target error) bool {
	return target == error(syscall.ENOSPC) && (strings.Contains(f.stderr, "No space left on device") || strings.Contains(f.stderr, "Out of diskspace"))
}

// run executes one command and returns its standard output.
func (g *Git) run(ctx context.Context, c call) ([]byte, error) {
	limit := c.max
	if limit <= 0 {
		limit = g.cfg.MaxOutput
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	opts := flags()
	if len(g.cfg.Env) > 0 { // with a credential at hand no other host may be asked in its place
		opts = append(opts, "-c", "http.followRedirects=false")
	}
	cmd := exec.CommandContext(ctx, g.bin)
	if c.asks != "" && g.cfg.Credential != nil && strings.HasPrefix(c.asks, "http") {
		cred, err := g.cfg.Credential(ctx, c.asks)
		if err != nil {
			return nil, err
		}
		if cred != nil {
			more, done, err := cred.give(cmd, c.asks)
			if err != nil {
				return nil, err
			}
			defer done()
			opts = append(opts, more...)
		}
	}
	cmd.Args = append(append(cmd.Args, opts...), c.args...)
	cmd.Dir = c.dir
	if cmd.Dir == "" {
		cmd.Dir = g.cfg.Home
	}
	cmd.Env = g.env(c.env)
	cmd.Stdin = c.stdin
	// Helpers such as ssh or upload-pack must die with git, so the whole group is killed.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	var buf bytes.Buffer
	out := c.out
	if out == nil {
		out = &buf
	}
	lw := &limited{w: out, left: limit, full: func() { cancel(errCut) }}
	var said bytes.Buffer
	errs := io.Writer(&limited{w: &said, left: 64 << 10})
	if c.tells {
		errs = &meter{limited: limited{w: &said, left: 64 << 10}, tell: g.cfg.progress}
	}
	cmd.Stdout, cmd.Stderr = lw, errs
	err := cmd.Run()
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, errCut) {
			if c.cut {
				return buf.Bytes(), errCut
			}
			return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("git %s gave more than %d bytes", verb(c.args), limit)}
		}
		return nil, cause
	}
	if err != nil {
		var ee *exec.ExitError
		if errors.As(err, &ee) {
			return buf.Bytes(), &failure{verb(c.args), ee.ExitCode(), said.String()}
		}
		return nil, fmt.Errorf("run git %s: %w", verb(c.args), err)
	}
	return buf.Bytes(), nil
}

// in is a run on a bare repository of ours; the working directory never matters.
func (g *Git) in(ctx context.Context, gitdir string, args ...string) ([]byte, error) {
	return g.run(ctx, call{args: append([]string{"--git-dir=" + gitdir}, args...)})
}

func verb(args []string) string {
	for _, a := range args {
		if !strings.HasPrefix(a, "-") {
			return a
		}
	}
	return ""
}

// limited passes on at most left bytes, then calls full once and swallows the rest.
type limited struct {
	w    io.Writer
	left int64
	full func()
}

func (l *limited) Write(p []byte) (int, error) {
	n := len(p)
	if int64(n) > l.left {
		p = p[:l.left]
		if l.full != nil {
			l.full()
			l.full = nil
		}
	}
	l.left -= int64(len(p))
	if len(p) > 0 {
		if _, err := l.w.Write(p); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// oneLine picks the most telling line of git's complaint and makes it printable.
func oneLine(s string) string {
	best := ""
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "fatal:") || strings.HasPrefix(line, "error:") {
			best = line
			break
		}
		if best == "" {
			best = line
		}
	}
	if best == "" {
		return "no message"
	}
	best = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(best, "?"))
	if len(best) > 300 {
		best = best[:300] + "…"
	}
	return RedactURL(best)
}

// RedactURL takes user names and passwords out of every URL in s.
func RedactURL(s string) string {
	for from := 0; ; {
		i := strings.Index(s[from:], "://")
		if i < 0 {
			return s
		}
		start := from + i + 3
		end := start + strings.IndexAny(s[start:]+"/", "/?#'\" ")
		if at := strings.LastIndexByte(s[start:end], '@'); at >= 0 {
			s = s[:start] + s[start+at+1:]
		}
		from = start
	}
}

// IsID reports whether s is a full lower-case object id.
func IsID(s string) bool {
	if len(s) != 40 {
		return false
	}
	return strings.Trim(s, "0123456789abcdef") == ""
}

// EnsureBare makes dir an empty bare repository unless it already is one.
func (g *Git) EnsureBare(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the mirror: %w", err)
	}
	_, err := g.run(ctx, call{args: []string{"init", "--quiet", "--bare", "--template=", "--object-format=sha1", "--initial-branch=daybreak-none", "--", dir}})
	return err
}

// Resolve returns the commit that rev names in a bare repository of ours, class NotFound when
// there is none.
func (g *Git) Resolve(ctx context.Context, gitdir, rev string) (string, error) {
	return g.object(ctx, gitdir, rev, "commit")
}

// TreeID returns the tree of a commit or tree-ish, class NotFound when there is none.
func (g *Git) TreeID(ctx context.Context, gitdir, rev string) (string, error) {
	return g.object(ctx, gitdir, rev, "tree")
}

func (g *Git) object(ctx context.Context, gitdir, rev, kind string) (string, error) {
	if err := checkRev(rev); err != nil {
		return "", err
	}
	out, err := g.in(ctx, gitdir, "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{"+kind+"}")
	if err != nil {
		if f := (*failure)(nil); errors.As(err, &f) {
			return "", &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("no %s %q in the repository", kind, rev)}
		}
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
}

// checkRev refuses what could be read as an option or break a line protocol.
func checkRev(rev string) error {
	if rev == "" || len(rev) > 1000 || strings.HasPrefix(rev, "-") || strings.ContainsFunc(rev, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q is not a revision", rev), Fix: "give a branch, a tag or a commit id"}
	}
	return nil
}
