package guest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

func TestExecReportsOutputAndEnd(t *testing.T) {
	s := start(t)
	cases := []struct {
		name, shell, out, signal string
		code                     int
	}{
		{"both streams in order", "echo one; echo two >&2; echo three", "one\ntwo\nthree\n", "", 0},
		{"exit code", "echo no; exit 3", "no\n", "", 3},
		{"silence", "true", "", "", 0},
		{"killed by a signal", "kill -SEGV $$", "", "SIGSEGV", 139},
		{"empty stdin", "cat; echo end", "end\n", "", 0},
		{"no pager, no colour", `echo "$PAGER $GIT_PAGER $TERM $NO_COLOR $CI"`, "cat cat dumb 1 1\n", "", 0},
		{"runs in the work tree", `test "$PWD" = ` + s.dir + ` && echo here`, "here\n", "", 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := s.run(t, guest.ExecRequest{Shell: c.shell})
			if string(r.Head) != c.out || r.ExitCode != c.code || r.Signal != c.signal || r.Running || r.TimedOut {
				t.Errorf("got %+v with output %q", r, r.Head)
			}
		})
	}
}

func TestExecGivesStdinEnvAndDir(t *testing.T) {
	s := start(t)
	if err := os.Mkdir(s.dir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	r := s.run(t, guest.ExecRequest{Argv: []string{"sh", "-c", "cat; echo $X; basename $PWD"}, Stdin: []byte("in\n"), Env: []string{"X=y", "CI="}, Dir: "sub"})
	if string(r.Head) != "in\ny\nsub\n" {
		t.Errorf("got %q", r.Head)
	}
}

func TestExecThatCannotStart(t *testing.T) {
	s := start(t)
	for want, r := range map[string]guest.ExecRequest{
		"no such program": {Argv: []string{"daybreak-no-such-program"}},
		"does not exist":  {Shell: "true", Dir: "nowhere"},
	} {
		if res := s.run(t, r); !strings.Contains(res.Error, want) || res.ExitCode != 127 {
			t.Errorf("want %q, got %+v", want, res)
		}
	}
	if _, err := s.Exec(t.Context(), guest.ExecRequest{}); err == nil {
		t.Error("an empty command was accepted")
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func pidIn(t *testing.T, out []byte) int {
	t.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatalf("no pid in %q", out)
	}
	return pid
}

func TestLeftBehindProcessesDieWithTheirCommand(t *testing.T) {
	need(t, "setsid")
	s := start(t)
	for name, shell := range map[string]string{
		"background job holding the pipe": "sleep 40 & echo $!",
		"grandchild holding the pipe":     "(sleep 40 & echo $!) ; true",
		"daemon in its own session":       `setsid sh -c 'echo $$; exec sleep 40' & sleep 0.2`,
		"daemon that was forked twice":    `(setsid sh -c 'sleep 40 & echo $!' &) ; sleep 0.3`,
		"ignores the hang-up":             `nohup sleep 40 >/dev/null & echo $!`,
	} {
		t.Run(name, func(t *testing.T) {
			begun := time.Now()
			r := s.run(t, guest.ExecRequest{Shell: shell})
			if pid := pidIn(t, r.Head); alive(pid) {
				t.Errorf("process %d is alive", pid)
			}
			if r.Children == 0 {
				t.Error("the result does not say that a process was killed")
			}
			if took := time.Since(begun); took > 20*time.Second {
				t.Errorf("waited %v for a process left behind", took)
			}
		})
	}
}

func TestTimeoutKillsTheTree(t *testing.T) {
	s := start(t)
	r := s.run(t, guest.ExecRequest{Shell: `trap "" TERM INT; sleep 60 & echo $!; wait; sleep 60`, Timeout: 300 * time.Millisecond})
	if !r.TimedOut || r.ExitCode != 128+int(syscall.SIGKILL) {
		t.Errorf("got %+v", r)
	}
	if alive(pidIn(t, r.Head)) {
		t.Error("the child is alive")
	}
}

func TestCancelKillsTheCommand(t *testing.T) {
	s := start(t)
	r := s.run(t, guest.ExecRequest{Shell: "mkfifo gate", Background: false})
	if r.ExitCode != 0 {
		t.Fatalf("mkfifo: %s", r.Head)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("a person said stop")
	got := make(chan error, 1)
	go func() {
		_, err := s.Exec(ctx, guest.ExecRequest{Shell: "echo $$ > gate; sleep 60"})
		got <- err
	}()
	b, err := os.ReadFile(s.dir + "/gate") // waits until the command is there
	if err != nil {
		t.Fatal(err)
	}
	cancel(why)
	if err := <-got; !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	if alive(pidIn(t, b)) {
		t.Error("the command is alive")
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Errorf("the connection did not survive: %v", err)
	}
}

func TestBackgroundWaitAndKill(t *testing.T) {
	s := start(t)
	s.run(t, guest.ExecRequest{Shell: "mkfifo gate"})
	r := s.run(t, guest.ExecRequest{Shell: "echo up; read x < gate; echo got $x; exit 4", Background: true})
	if !r.Running || r.Proc == 0 {
		t.Fatalf("got %+v", r)
	}
	if w, err := s.Wait(t.Context(), r.Proc, int64(time.Millisecond)); err != nil || !w.Running {
		t.Errorf("got %+v, %v", w, err)
	}
	k := s.run(t, guest.ExecRequest{Shell: "exec sleep 60", Background: true})
	killed, err := s.Kill(t.Context(), k.Proc)
	if err != nil || killed.Running || killed.Signal != "SIGKILL" {
		t.Errorf("got %+v, %v", killed, err)
	}
	if again, err := s.Wait(t.Context(), k.Proc, 0); err != nil || again.Signal != "SIGKILL" {
		t.Errorf("an ended command is forgotten: %+v, %v", again, err)
	}
	if _, err := s.Wait(t.Context(), 99, 0); err == nil || !strings.Contains(err.Error(), "no command number 99") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(s.dir+"/gate", []byte("word\n"), 0); err != nil {
		t.Fatal(err)
	}
	w, err := s.Wait(t.Context(), r.Proc, int64(time.Minute))
	if err != nil || w.Running || w.ExitCode != 4 || string(w.Head) != "up\ngot word\n" {
		t.Errorf("got %+v, %v", w, err)
	}
}

func TestTooManyBackgroundCommands(t *testing.T) {
	s := start(t)
	for range guest.MaxBackground {
		s.run(t, guest.ExecRequest{Shell: "exec sleep 60", Background: true})
	}
	_, err := s.Exec(t.Context(), guest.ExecRequest{Shell: "true", Background: true})
	if err == nil || !strings.Contains(err.Error(), "wait for one or kill one") {
		t.Errorf("got %v", err)
	}
	if r := s.run(t, guest.ExecRequest{Shell: "echo fine"}); string(r.Head) != "fine\n" {
		t.Errorf("a foreground command was refused: %+v", r)
	}
}

func TestLostConnectionKillsEverything(t *testing.T) {
	s := start(t)
	r := s.run(t, guest.ExecRequest{Shell: "echo $$ > pid; echo ready; exec sleep 60", Background: true})
	for {
		w, err := s.Wait(t.Context(), r.Proc, int64(time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if w.Bytes > 0 {
			break
		}
	}
	pid := pidIn(t, []byte(s.get(t, "pid")))
	s.Close()
	err := <-s.done
	if err != nil {
		t.Errorf("Serve: %v", err)
	}
	s.done <- nil
	if alive(pid) {
		t.Error("the command survived its guest's connection")
	}
}

func TestLongOutputKeepsHeadAndTail(t *testing.T) {
	s := start(t, func(o *guest.ServerOptions) { o.MaxLog = 1 << 20 })
	r := s.run(t, guest.ExecRequest{Shell: "seq 1 400000", Head: 20, Tail: 14})
	if got, want := string(r.Head), "1\n2\n3\n4\n5\n6\n7\n8\n9\n10"; got != want {
		t.Errorf("head %q", got)
	}
	if got, want := string(r.Tail), "399999\n400000\n"; got != want {
		t.Errorf("tail %q", got)
	}
	if r.Lines != 400_000 || r.Bytes != 2_688_895 || !r.LogCut {
		t.Errorf("lines %d, bytes %d, cut %v", r.Lines, r.Bytes, r.LogCut)
	}
	b, err := os.ReadFile(r.Log)
	if err != nil || !strings.HasSuffix(string(b), "\n[log cut here at 1048576 bytes]\n") {
		t.Errorf("log of %d bytes ends badly: %v", len(b), err)
	}
	small := s.run(t, guest.ExecRequest{Shell: "printf 'a\nb'"})
	if small.Lines != 2 || small.LogCut || string(small.Head) != "a\nb" {
		t.Errorf("got %+v", small)
	}
	if b, err := os.ReadFile(small.Log); err != nil || string(b) != "a\nb" {
		t.Errorf("log %q, %v", b, err)
	}
}

func TestOldLogsGiveWay(t *testing.T) {
	s := start(t, func(o *guest.ServerOptions) { o.MaxLog = 1000 })
	var logs []string
	for range 6 {
		logs = append(logs, s.run(t, guest.ExecRequest{Shell: "seq 1 1000"}).Log)
	}
	for i, log := range logs {
		if _, err := os.Stat(log); (err == nil) != (i >= 2) {
			t.Errorf("log %d of 6: %v", i, err)
		}
	}
}

func TestFetch(t *testing.T) {
	s := start(t)
	big := strings.Repeat("0123456789abcdef", 50_000) // several frames
	s.put(t, "big", big)
	for _, max := range []int64{0, 1, 256 << 10, 256<<10 + 1, int64(len(big)) - 1, int64(len(big)), 1 << 40} {
		b, cut, err := s.Fetch(t.Context(), "big", max)
		want := big[:min(int64(len(big)), max)]
		if err != nil || string(b) != want || cut != (len(want) < len(big)) {
			t.Errorf("max %d: %d bytes, cut %v, %v", max, len(b), cut, err)
		}
	}
	for _, p := range []string{"nothing", ".", "../x"} {
		if _, _, err := s.Fetch(t.Context(), p, 10); err == nil {
			t.Errorf("%s was fetched", p)
		}
	}
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// parts remembers how much it was given at once.
type parts struct {
	bytes.Buffer
	largest int
}

func (p *parts) Write(b []byte) (int, error) {
	p.largest = max(p.largest, len(b))
	return p.Buffer.Write(b)
}

// A copy is as long as it was said to be, and never in memory as a whole.
func TestCopy(t *testing.T) {
	s := start(t)
	text := strings.Repeat("0123456789abcde\n", 10<<16) // of 10 MiB
	s.put(t, "big", text)
	s.put(t, "empty", "")
	for _, c := range []struct {
		path string
		size int64
		ok   bool
	}{
		{"big", 10 << 20, true},
		{"big", 10<<20 - 1, false},
		{"big", 10<<20 + 1, false},
		{"big", 8 << 20, false},
		{"big", 12 << 20, false},
		{"big", 0, false},
		{"big", -1, false},
		{"empty", 0, true},
		{"empty", 1, false},
		{".", 1, false},
		{"nothing", 0, false},
	} {
		var got parts
		err := s.Copy(t.Context(), &got, c.path, c.size)
		if (err == nil) != c.ok || int64(got.Len()) > max(c.size, 0) || got.largest > 4<<20 || !strings.HasPrefix(text, got.String()) || c.ok && int64(got.Len()) != c.size {
			t.Errorf("%s of %d bytes: %d bytes, %d at once, %v", c.path, c.size, got.Len(), got.largest, err)
		}
	}
	full := errors.New("no room")
	if err := s.Copy(t.Context(), failing{full}, "big", 10<<20); !errors.Is(err, full) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
