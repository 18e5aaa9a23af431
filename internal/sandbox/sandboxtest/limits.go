package sandboxtest

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

func (s *suite) spaceCaps(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil), Limits: sandbox.Limits{WorkBytes: 8 << 20, HomeBytes: 8 << 20, TempBytes: 8 << 20}})
	for _, dir := range []string{sandbox.WorkDir, sandbox.HomeDir, sandbox.TempDir, "/dev/shm"} {
		out, code := sh(t, b, "dd if=/dev/zero of="+dir+"/fill bs=1M count=128 2>&1; stat -c %s "+dir+"/fill; rm "+dir+"/fill; exit 0")
		if code != 0 || !strings.Contains(out, "No space left") {
			t.Errorf("%s took more than its cap: %s", dir, out)
		}
	}
	// Inodes are capped too. The loop ends by itself.
	out, _ := sh(t, b, "mkdir i && cd i && seq 1 40000 | xargs touch 2>&1 | tail -1; ls | wc -l; cd .. && rm -rf i")
	if !strings.Contains(out, "No space left") {
		t.Errorf("inodes are not capped: %s", out)
	}
}

func (s *suite) pidsCap(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil), Limits: sandbox.Limits{Pids: 64}})
	// Each child has several threads, so far fewer than 64 of them fit.
	out, code := sh(t, b, "./probe forks")
	n, err := strconv.Atoi(strings.TrimPrefix(strings.TrimSpace(out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]), "children "))
	if code == 0 && (err != nil || n >= 64) {
		t.Errorf("64 processes allowed: %q", out)
	}
	if got := ok(t, b, "echo still here"); got != "still here\n" {
		t.Errorf("after the cap: %q", got)
	}
}

func (s *suite) memoryCap(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil), Limits: sandbox.Limits{Memory: 128 << 20}})
	if s.differs(t, memoryLimit) {
		s.memoryCapOfAll(t, b)
		return
	}
	out, code := sh(t, b, "./probe memory 1024")
	if code != 137 || strings.Contains(out, "allocated") {
		t.Errorf("1 GiB under a cap of 128 MiB: exit code %d, %q", code, out)
	}
	if got := ok(t, b, "echo still here"); got != "still here\n" {
		t.Errorf("after the kill: %q", got)
	}
	// Many small processes together pass the cap as well, and it is never the guest that goes.
	many := s.start(t, sandbox.Spec{Tree: s.tree(t, nil), Limits: sandbox.Limits{Memory: 48 << 20}})
	sh(t, many, "./probe forks 200")
	// The guest raises a command's score just after it has started it.
	ok(t, many, "until [ $(cat /proc/self/oom_score_adj) = 1000 ]; do :; done")
	other := s.start(t, sandbox.Spec{Tree: s.tree(t, nil), Limits: sandbox.Limits{Memory: 512 << 20}})
	if got := ok(t, other, "./probe memory 128"); got != "allocated 128\n" {
		t.Errorf("128 MiB under a cap of 512 MiB: %q", got)
	}
}

// memoryCapOfAll: a cap that ends the sandbox, once it is passed and not before.
func (s *suite) memoryCapOfAll(t *testing.T, b sandbox.Sandbox) {
	res, err := b.Guest().Exec(t.Context(), execRequest("./probe memory 1024"))
	if err == nil {
		t.Errorf("1 GiB under a cap of 128 MiB: exit code %d, %q", res.ExitCode, res.Head)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	other := s.start(t, sandbox.Spec{Tree: s.tree(t, nil), Limits: sandbox.Limits{Memory: 512 << 20}})
	if got := ok(t, other, "./probe memory 128"); got != "allocated 128\n" {
		t.Errorf("128 MiB under a cap of 512 MiB: %q", got)
	}
}

func (s *suite) wallLimit(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil), Limits: sandbox.Limits{Wall: 300 * time.Millisecond}})
	word := s.onHost(t, b, "wall-"+token(t))
	background(t, b, "./probe daemon "+word+" /dev/null")
	// The call ends because the sandbox does, not because the command would.
	if out, err := b.Guest().Exec(t.Context(), execRequest("./probe stay")); err == nil {
		t.Errorf("a command outlived the sandbox: %+v", out)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := hostProcesses(t, word); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

func (s *suite) daemonDies(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil)})
	word := s.onHost(t, b, "daemon-"+token(t))
	ok(t, b, "mkfifo /tmp/ready")
	background(t, b, "./probe daemon "+word+" /tmp/ready")
	if got := ok(t, b, "cat /tmp/ready"); got != "up" {
		t.Fatalf("daemon: %q", got)
	}
	if n := hostProcesses(t, word); n < 2 {
		t.Fatalf("%d processes of the daemon are visible on the host, want at least 2", n)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := hostProcesses(t, word); n != 0 {
		t.Errorf("%d processes are left after Destroy", n)
	}
	if err := b.Destroy(t.Context()); err != nil {
		t.Errorf("second Destroy: %v", err)
	}
}

func (s *suite) forkBombDies(t *testing.T) {
	b := s.start(t, sandbox.Spec{Tree: s.tree(t, nil), Limits: sandbox.Limits{Pids: 400, Memory: 1 << 30}})
	word := s.onHost(t, b, "bomb-"+token(t))
	ok(t, b, "mkfifo /tmp/ready")
	background(t, b, "exec ./probe bomb "+word+" /tmp/ready")
	if got := ok(t, b, "cat /tmp/ready"); got != "20" {
		t.Fatalf("bomb: %q", got)
	}
	if n := hostProcesses(t, word); n < 20 && !s.ownKernel || n == 0 {
		t.Fatalf("%d processes of the bomb are visible on the host", n)
	}
	// It is at the cap now and stays there; the guest lives and says so.
	for {
		res, err := b.Guest().Exec(t.Context(), execRequest("true"))
		if err != nil {
			t.Fatalf("the guest died of a fork bomb: %v", err)
		}
		if res.Error != "" || res.ExitCode != 0 {
			break
		}
	}
	if _, _, err := b.Guest().Fetch(t.Context(), "/etc/passwd", 1<<10); err != nil {
		t.Errorf("the guest does not answer beside a fork bomb: %v", err)
	}
	began := time.Now()
	if err := b.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := hostProcesses(t, word); n != 0 {
		t.Errorf("%d processes are left", n)
	}
	t.Logf("a fork bomb was destroyed in %v", time.Since(began))
}

// A kept HOME lies on the host's disk; passing its cap ends the sandbox.
func (s *suite) keptHomeCap(t *testing.T) {
	b := s.start(t, sandbox.Spec{Home: sandbox.Layers{Keep: filepath.Join(t.TempDir(), "keep")}, Limits: sandbox.Limits{HomeBytes: 4 << 20}})
	ok(t, b, "head -c 1000000 /dev/zero > ~/small")
	res, err := b.Guest().Exec(t.Context(), execRequest("head -c 16000000 /dev/zero > ~/large; exec sleep 1000000"))
	if err == nil {
		t.Errorf("the sandbox goes on: %+v", res)
	}
}
