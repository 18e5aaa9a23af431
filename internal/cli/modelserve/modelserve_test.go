package modelserve_test

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/modelserve"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/model/anthropic"
	"github.com/daybreak-agent/daybreak/internal/model/openai"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const script = "transcript: 1\n---\nexpect: [{contains: hello}]\ntext: \"Good day, ${who}.\"\n"

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "play.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestServe(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out, outW := io.Pipe()
	errs, errsW := io.Pipe()
	cmd := modelserve.NewCmd(&kit.Env{Out: outW, Err: errsW})
	cmd.SetArgs([]string{"--script", write(t, script), "--var", "who=Ada=Countess"})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	urls := regexp.MustCompile(`http://127\.0\.0\.1:\d+(/v1)?`).FindAllString(line, -1)
	if len(urls) != 2 || !strings.HasPrefix(line, "playing 1 turns") {
		t.Fatalf("line %q", line)
	}
	a, err := anthropic.New(anthropic.Config{APIKey: "k", BaseURL: urls[0], Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	o, err := openai.New(openai.Config{BaseURL: urls[1], Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	say := func(s string) model.Request {
		return model.Request{MaxOutput: 10, Messages: []model.Message{{Role: model.User, Blocks: []model.Block{{Type: model.TextBlock, Text: s}}}}}
	}
	for _, c := range []model.Client{a, o} {
		r, err := model.Collect(c.Stream(ctx, say("hello")), nil)
		if err != nil || r.Message.Text() != "Good day, Ada=Countess." {
			t.Errorf("%s: %q %v", c.Info().Provider, r.Message.Text(), err)
		}
	}
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(errs).ReadString('\n')
		said <- line
	}()
	if _, err := model.Collect(a.Stream(ctx, say("bye")), nil); task.ClassOf(err) != task.Invalid {
		t.Errorf("mismatch: %v", err)
	}
	if got := <-said; !strings.Contains(got, `turn 1 (line 3)`) || !strings.Contains(got, `"hello"`) {
		t.Errorf("said %q", got)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

func TestBadUse(t *testing.T) {
	for name, args := range map[string][]string{
		"line 3":             {"--script", write(t, "transcript: 1\n---\nbogus: 1\n")},
		"no such file":       {"--script", filepath.Join(t.TempDir(), "none")},
		"is not name=value":  {"--script", write(t, script), "--var", "who"},
		"cannot listen on":   {"--script", write(t, script), "--listen", "127.0.0.1:99999"},
		"required flag":      nil,
		"unknown command \"": {"extra"},
	} {
		cmd := modelserve.NewCmd(&kit.Env{Out: io.Discard, Err: io.Discard})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(args)
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v, want %q", args, err, name)
		}
	}
}
