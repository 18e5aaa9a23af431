package app

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/policy"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func TestOwnerIsGoneOnlyWhenItsProcessIs(t *testing.T) {
	if Gone(Owner()) {
		t.Error("this very process counts as gone")
	}
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	host, _, _ := strings.Cut(Owner(), ":")
	owner := host + ":" + strconv.Itoa(cmd.Process.Pid) + ":" + startTime(cmd.Process.Pid)
	reused := host + ":" + strconv.Itoa(cmd.Process.Pid) + ":1"
	if Gone(owner) {
		t.Error("a live process counts as gone")
	}
	if !Gone(reused) {
		t.Error("a process number that was given again keeps the old owner alive")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !Gone(owner) {
		t.Error("a dead process counts as alive")
	}
	if Gone("elsewhere:1:1") || Gone("nonsense") {
		t.Error("an owner that this machine cannot judge counts as gone")
	}
}

func TestSignerIsMadeOnceAndKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	var wg sync.WaitGroup
	keys := make([]string, 8)
	for i := range keys {
		wg.Go(func() {
			s, err := openSigner(dir, rand.Reader)
			if err != nil {
				t.Error(err)
				return
			}
			keys[i] = string(s.public())
		})
	}
	wg.Wait()
	for _, k := range keys {
		if k == "" || k != keys[0] {
			t.Fatal("first uses at the same time made different keys")
		}
	}
	fi, err := os.Stat(filepath.Join(dir, "checkpoint.key"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("key file: %v %v", fi.Mode(), err)
	}
	s, err := openSigner(dir, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cp := s.sign("t_x", 3, strings.Repeat("a", 64))
	if err := cp.Verify(s.public(), "t_x"); err != nil {
		t.Error(err)
	}
	if err := cp.Verify(s.public(), "t_y"); err == nil {
		t.Error("a checkpoint fits another task")
	}
	if err := os.WriteFile(filepath.Join(dir, "checkpoint.key"), []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openSigner(dir, rand.Reader); task.ClassOf(err) != task.Invalid {
		t.Errorf("a damaged key: %v", err)
	}
}

func TestModelNeedsAKeyUnlessTheServerIsOnesOwn(t *testing.T) {
	cfg := config.Default()
	cfg.Providers["local"] = config.Provider{API: "openai-chat", BaseURL: "http://127.0.0.1:1/v1", Price: &config.Price{Input: 1, Output: 2}}
	a, err := Open(t.Context(), Options{Dir: t.TempDir(), Config: cfg, Getenv: func(string) string { return "" }, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := a.Model("anthropic/claude-sonnet-4-5"); task.ClassOf(err) != task.Auth {
		t.Errorf("no key: %v", err)
	}
	if _, err := a.Model(""); task.ClassOf(err) != task.Invalid || !strings.Contains(err.Error(), "--model") {
		t.Errorf("no model: %v", err)
	}
	c, err := a.Model("local/my/model")
	if err != nil {
		t.Fatal(err)
	}
	if i := c.Info(); i.Provider != "local" || i.Model != "my/model" || !i.Priced || i.Price.Cost(task.Tokens{Input: 1_000_000}) != 1_000_000 {
		t.Errorf("%+v", i)
	}
}

func TestKeysAreMasked(t *testing.T) {
	env := map[string]string{"ANTHROPIC_API_KEY": "canary-3f9a7c21e5d8", "DEPLOY_TOKEN": "other-canary-77aa55"}
	cfg := config.Default()
	cfg.Redact = []string{"DEPLOY_TOKEN"}
	a, err := Open(t.Context(), Options{Dir: t.TempDir(), Config: cfg, Getenv: func(k string) string { return env[k] }, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	out, counts := policy.NewRedactor(a.secrets()).Redact("a canary-3f9a7c21e5d8 b other-canary-77aa55 c")
	if strings.Contains(out, "canary-3f9a7c21e5d8") || strings.Contains(out, "other-canary-77aa55") || len(counts) == 0 {
		t.Errorf("%q %v", out, counts)
	}
}
