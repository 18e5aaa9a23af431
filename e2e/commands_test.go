package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
)

// world is what belongs to one script.
type world struct {
	model  *modelServer
	bg     *exec.Cmd
	bgOut  *bytes.Buffer
	bgErr  *bytes.Buffer
	prints map[string]string // directory → fingerprint

	registry *registry
}

type worldKey struct{}

func setup(env *testscript.Env) error {
	w := &world{prints: map[string]string{}}
	env.Setenv("RUST", rustRoot())
	env.Values[worldKey{}] = w
	env.Defer(func() {
		if w.bg != nil && w.bg.ProcessState == nil {
			_ = w.bg.Process.Kill()
			_ = w.bg.Wait()
		}
		if w.model != nil {
			w.model.close()
		}
	})
	home := filepath.Join(env.WorkDir, "home")
	telemetry := filepath.Join(home, ".config", "go", "telemetry")
	if err := os.MkdirAll(telemetry, 0o755); err != nil {
		return err
	}
	// The go command leaves a process of its own behind, which would still write while the
	// folder is removed.
	if err := os.WriteFile(filepath.Join(telemetry, "mode"), []byte("off"), 0o644); err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	env.Vars = append(env.Vars,
		"HOME="+home, "GOCACHE="+goCache(), "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "LC_ALL=C.UTF-8", "TZ=UTC", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"DAYBREAK_DIR="+filepath.Join(env.WorkDir, "data"), "DAYBREAK_CONFIG="+filepath.Join(env.WorkDir, "daybreak.yaml"),
		"RECORDS="+filepath.Join(here, "testdata", "records"), "ANTHROPIC_API_KEY=sk-e2e-0123456789abcdef", "OPENAI_API_KEY=sk-e2e-fedcba9876543210",
	)
	return os.WriteFile(filepath.Join(env.WorkDir, "daybreak.yaml"), []byte(configuration("", "")), 0o644)
}

// goCache is this machine's, so that a script that runs Go by hand compiles little.
func goCache() string {
	if d := os.Getenv("GOCACHE"); d != "" {
		return d
	}
	d, _ := os.UserCacheDir()
	return filepath.Join(d, "go-build")
}

// configuration is the operator's file. The model server speaks every dialect.
func configuration(url, more string) string {
	runtime := os.Getenv(runcEnv)
	if strings.Contains(more, "runtime: runsc") {
		runtime = os.Getenv(runscEnv)
	}
	// No test reaches the registries of the machine's own clients; one about packages says its own.
	own := "mirror: {off: [go, npm, pypi, crates, maven, debian]}\n"
	if strings.Contains(more, "\nmirror:") {
		own = ""
	}
	return own + fmt.Sprintf(`model: anthropic/claude-sonnet-4-5
providers:
  anthropic: {base_url: %q}
  openai: {base_url: %q}
  compatible: {api: openai-chat, base_url: %q, key_env: OPENAI_API_KEY, context: 200000, max_output: 16000}
sandbox:
  runtime_path: %s
  guest_path: %s
%s`, orElse(url, "http://127.0.0.1:1"), orElse(url, "http://127.0.0.1:1")+"/v1", orElse(url, "http://127.0.0.1:1")+"/v1",
		runtime, os.Getenv(guestEnv), more)
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// modelServer plays a transcript. A turn with delay_ms thinks until it is released.
type modelServer struct {
	*scripted.Server
	http     *httptest.Server
	thinking chan struct{}
	release  chan struct{}
	once     sync.Once
}

func serveModel(file string) (*modelServer, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	script, err := transcript.Parse(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	m := &modelServer{thinking: make(chan struct{}, 64), release: make(chan struct{})}
	m.Server = scripted.NewServer(script, scripted.Options{Sleep: func(ctx context.Context, _ time.Duration) {
		m.thinking <- struct{}{}
		select {
		case <-ctx.Done():
		case <-m.release:
		}
	}})
	m.http = httptest.NewServer(m.Server)
	return m, nil
}

// letGo lets every turn with delay_ms be answered at once.
func (m *modelServer) letGo() { m.once.Do(func() { close(m.release) }) }

func (m *modelServer) close() {
	m.letGo()
	m.http.CloseClientConnections()
	m.http.Close()
}

func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"repo":      cmdRepo,
		"shop":      cmdShop,
		"person":    cmdPerson,
		"terminal":  cmdTerminal,
		"model":     cmdModel,
		"asked":     cmdAsked,
		"thinking":  cmdThinking,
		"release":   cmdRelease,
		"exits":     cmdExits,
		"start":     cmdStart,
		"finish":    cmdFinish,
		"interrupt": cmdInterrupt,
		"remember":  cmdRemember,
		"unchanged": cmdUnchanged,
		"lines":     cmdLines,
		"keys":      cmdKeys,
		"flip":      cmdFlip,
		"bytes":     cmdBytes,
		"clean":     cmdClean,
		"record":    cmdRecord,
		"field":     cmdField,
		"registry":  cmdRegistry,
		"served":    cmdServed,
	}
}

func of(ts *testscript.TestScript) *world { return ts.Value(worldKey{}).(*world) }

func usage(ts *testscript.TestScript, ok bool, text string) {
	if !ok {
		ts.Fatalf("usage: %s", text)
	}
}

// repo DIR: makes DIR a repository with one commit of everything in it.
func cmdRepo(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "repo DIR")
	ts.Check(makeRepo(ts.MkAbs(args[0])))
}

// shop: writes the sample repository "shop", its issue.md and fix.yaml, a transcript that solves it.
func cmdShop(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "shop")
	ts.Check(writeArchive("testdata/shop.txtar", ts.MkAbs(".")))
	ts.Check(makeRepo(ts.MkAbs("shop")))
}

// person REPO BRANCH PATH=FILE...: commits files on a new branch off main, as a person would.
func cmdPerson(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 2, "person REPO BRANCH PATH=FILE...")
	dir := ts.MkAbs(args[0])
	git := func(args ...string) {
		if out, err := gitIn(dir, args...); err != nil {
			ts.Fatalf("git %s: %v: %s", args[0], err, out)
		}
	}
	git("checkout", "--quiet", "-b", args[1], "main")
	for _, a := range args[2:] {
		to, from, _ := strings.Cut(a, "=")
		b, err := os.ReadFile(ts.MkAbs(from))
		ts.Check(err)
		ts.Check(os.MkdirAll(filepath.Dir(filepath.Join(dir, to)), 0o755))
		ts.Check(os.WriteFile(filepath.Join(dir, to), b, 0o644))
	}
	git("add", "--all", ".")
	git("commit", "--quiet", "--message="+args[1])
	git("checkout", "--quiet", "main")
}

// writeArchive writes the files of a txtar below dir, beside those that are there.
func writeArchive(name, dir string) error {
	a, err := txtar.ParseFile(name)
	if err != nil {
		return err
	}
	for _, f := range a.Files {
		p := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			return err
		}
		if _, err := os.Stat(p); err == nil {
			continue
		}
		if err := os.WriteFile(p, f.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func makeRepo(dir string) error {
	for _, a := range [][]string{
		{"init", "--quiet", "--initial-branch=main", "--template="},
		{"add", "--all", "--force", "."},
		{"commit", "--quiet", "--allow-empty", "--message=Start"},
	} {
		if out, err := gitIn(dir, a...); err != nil {
			return fmt.Errorf("git %s: %w: %s", a[0], err, out)
		}
	}
	return nil
}

func gitIn(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z",
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// model FILE [SETTING...]: plays FILE and points the configuration at it; settings are lines of
// its section sandbox.
func cmdModel(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 1, "model TRANSCRIPT [SANDBOX-SETTING...]")
	w := of(ts)
	if w.model != nil {
		w.model.close()
	}
	m, err := serveModel(ts.MkAbs(args[0]))
	ts.Check(err)
	w.model = m
	ts.Setenv("MODEL_URL", m.http.URL)
	more := ""
	for _, a := range args[1:] {
		more += "  " + a + "\n"
	}
	ts.Check(os.WriteFile(ts.Getenv("DAYBREAK_CONFIG"), []byte(configuration(m.http.URL, more)), 0o644))
}

// asked N...: how often each turn was asked for, and that nothing unexpected was said.
func cmdAsked(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg, "asked N...")
	m := of(ts).model
	if err := m.Err(); err != nil {
		ts.Fatalf("the model was told something else than its transcript expects: %v", err)
	}
	var got []string
	for _, n := range m.Requests() {
		got = append(got, strconv.Itoa(n))
	}
	if !slices.Equal(got, args) {
		ts.Fatalf("requests per turn %v, want %v", got, args)
	}
}

// thinking: waits until the model is thinking (a turn with delay_ms).
func cmdThinking(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "thinking")
	select {
	case <-of(ts).model.thinking:
	case <-time.After(2 * time.Minute): // a guard against hanging for ever
		ts.Fatalf("the model was not asked:\n%s%s", of(ts).bgOut, of(ts).bgErr)
	}
}

// release: lets the model answer.
func cmdRelease(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "release")
	of(ts).model.letGo()
}

// exits CODE COMMAND...: runs a command that must end with CODE.
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 1, "exits CODE COMMAND...")
	err := ts.Exec(args[1], args[2:]...)
	wantCode(ts, args[0], err)
}

func wantCode(ts *testscript.TestScript, want string, err error) {
	code := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != want {
		ts.Fatalf("exit code %d, want %s", code, want)
	}
}

// terminal CODE COMMAND...: runs a command whose stdout is a terminal of 100 columns.
func cmdTerminal(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 1, "terminal CODE COMMAND...")
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	ts.Check(err)
	defer func() { _ = master.Close() }()
	fd := int(master.Fd())
	ts.Check(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	ts.Check(err)
	ts.Check(unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: 100}))
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	ts.Check(err)
	path, err := exec.LookPath(args[1])
	ts.Check(err)
	cmd := exec.Command(path, args[2:]...)
	cmd.Dir, cmd.Env = ts.MkAbs("."), append(environment(ts), "TERM=xterm-256color")
	var errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = slave, &errOut
	ts.Check(cmd.Start())
	_ = slave.Close()
	shown, _ := io.ReadAll(master) // ends with EIO when the last writer is gone
	err = cmd.Wait()
	_, _ = ts.Stdout().Write(shown)
	_, _ = ts.Stderr().Write(errOut.Bytes())
	wantCode(ts, args[0], err)
}

// start COMMAND...: runs a command in the background; its output goes to the file "out".
func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) > 0, "start COMMAND...")
	w := of(ts)
	path, err := exec.LookPath(args[0])
	ts.Check(err)
	w.bg, w.bgOut, w.bgErr = exec.Command(path, args[1:]...), &bytes.Buffer{}, &bytes.Buffer{}
	w.bg.Dir = ts.MkAbs(".")
	w.bg.Env = environment(ts)
	w.bg.Stdout, w.bg.Stderr = w.bgOut, w.bgErr
	ts.Check(w.bg.Start())
}

func environment(ts *testscript.TestScript) []string {
	var env []string
	for _, k := range []string{
		"PATH", "HOME", "LC_ALL", "TZ", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL", "DAYBREAK_DIR", "DAYBREAK_CONFIG",
		"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "TMPDIR",
	} {
		env = append(env, k+"="+ts.Getenv(k))
	}
	return env
}

// interrupt: presses Ctrl-C for the command in the background.
func cmdInterrupt(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "interrupt")
	ts.Check(of(ts).bg.Process.Signal(os.Interrupt))
}

// finish CODE: waits for the command in the background; stdout and stderr are its.
func cmdFinish(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "finish CODE")
	w := of(ts)
	err := w.bg.Wait()
	_, _ = ts.Stdout().Write(w.bgOut.Bytes())
	_, _ = ts.Stderr().Write(w.bgErr.Bytes())
	ts.Logf("[background stdout]\n%s[background stderr]\n%s", w.bgOut, w.bgErr)
	wantCode(ts, args[0], err)
}

// remember DIR... and unchanged DIR...: every file of DIR is byte for byte what it was; new
// objects and branches below daybreak/ are what a proposal may add.
func cmdRemember(ts *testscript.TestScript, neg bool, args []string) {
	for _, d := range args {
		of(ts).prints[d] = strings.Join(fingerprint(ts.MkAbs(d)), "\n")
	}
}

func cmdUnchanged(ts *testscript.TestScript, neg bool, args []string) {
	for _, d := range args {
		before, after := strings.Split(of(ts).prints[d], "\n"), fingerprint(ts.MkAbs(d))
		for _, l := range before {
			if !slices.Contains(after, l) {
				ts.Fatalf("%s: gone or changed: %s", d, l)
			}
		}
		for _, l := range after {
			if !slices.Contains(before, l) {
				ts.Fatalf("%s: new or changed: %s", d, l)
			}
		}
	}
}

func fingerprint(dir string) []string {
	var out []string
	_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, p)
		if err != nil {
			out = append(out, name+": "+err.Error())
			return nil
		}
		slashed := "/" + filepath.ToSlash(name) + "/"
		for _, may := range []string{"/objects/", "/refs/heads/daybreak/"} {
			if strings.Contains(slashed, may) {
				return nil
			}
		}
		info, err := d.Info()
		if err != nil || d.IsDir() {
			return nil // a directory's own time changes when a branch is added beside it
		}
		var content []byte
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			content = []byte(to)
		case info.Mode().IsRegular():
			content, _ = os.ReadFile(p)
		}
		out = append(out, fmt.Sprintf("%s %v %d %x", name, info.Mode(), info.ModTime().UnixNano(), sha256.Sum256(content)))
		return nil
	})
	return out
}

// lines NAME N: stdout or stderr of the last command has N lines.
func cmdLines(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "lines stdout|stderr N")
	text := ts.ReadFile(args[0])
	n := strings.Count(text, "\n")
	if strconv.Itoa(n) != args[1] {
		ts.Fatalf("%s has %d lines, want %s:\n%s", args[0], n, args[1], text)
	}
}

// lastObject reads the last line of stdout.
func lastObject(ts *testscript.TestScript) map[string]any {
	text := strings.TrimSpace(ts.ReadFile("stdout"))
	last := text[strings.LastIndexByte(text, '\n')+1:]
	var m map[string]any
	if err := json.Unmarshal([]byte(last), &m); err != nil {
		ts.Fatalf("the last line is no JSON object: %v: %s", err, last)
	}
	return m
}

func at(m map[string]any, path string) (any, bool) {
	var v any = m
	for k := range strings.SplitSeq(path, ".") {
		switch t := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = t[k]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(k)
			if err != nil || i >= len(t) {
				return nil, false
			}
			v = t[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// keys PATH...: the last line of stdout is an object that has them all.
func cmdKeys(ts *testscript.TestScript, neg bool, args []string) {
	m := lastObject(ts)
	for _, k := range args {
		if _, ok := at(m, k); !ok {
			ts.Fatalf("the result has no %s", k)
		}
	}
}

// field PATH VALUE|$: the value in the last line of stdout; with NAME= it goes into the environment.
func cmdField(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, len(args) == 2, "[!] field PATH VALUE, or field PATH NAME=")
	v, ok := at(lastObject(ts), args[0])
	if !ok {
		ts.Fatalf("the result has no %s", args[0])
	}
	s := fmt.Sprint(v)
	if f, isNumber := v.(float64); isNumber {
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	if name, ok := strings.CutSuffix(args[1], "="); ok {
		ts.Setenv(name, s)
		return
	}
	if (s == args[1]) == neg {
		ts.Fatalf("%s is %q, want %q (negated: %v)", args[0], s, args[1], neg)
	}
}

// flip FILE TEXT: turns one bit of the last occurrence of TEXT in a file.
func cmdFlip(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "flip FILE TEXT")
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	ts.Check(err)
	i := bytes.LastIndex(b, []byte(args[1]))
	if i < 0 {
		ts.Fatalf("%s holds no %q", args[0], args[1])
	}
	b[i+len(args[1])-1] ^= 1
	ts.Check(os.WriteFile(path, b, 0o644))
}

// bytes FILE GOSTRING [TIMES]: writes a file from an escaped string, repeated.
func cmdBytes(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && (len(args) == 2 || len(args) == 3), "bytes FILE ESCAPED [TIMES]")
	s, err := strconv.Unquote(`"` + strings.ReplaceAll(args[1], `"`, `\"`) + `"`)
	ts.Check(err)
	if len(args) == 3 {
		n, err := strconv.Atoi(args[2])
		ts.Check(err)
		s = strings.Repeat(s, n)
	}
	path := ts.MkAbs(args[0])
	ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
	ts.Check(os.WriteFile(path, []byte(s), 0o644))
}
