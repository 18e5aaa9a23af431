// Package demo owns `daybreak demo`: the main job end to end on an embedded repository, issue
// and transcript.
//
// Invariants: it runs the code of `run`; the scripted model is reached through a real provider
// client over HTTP on loopback; it says plainly that the model is scripted; a key of the
// operator's is used only with --model.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/run"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/demo"
	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// scriptedKey is what the demo's client and server agree on. It opens nothing.
const scriptedKey = "scripted-demo-key"

// NewCmd makes the command.
func NewCmd(env *kit.Env) *cobra.Command {
	var o run.Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See the whole job on a sample repository: issue in, proven pull request out",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd.Context(), env, o)
		},
	}
	run.AddFlags(cmd, &o)
	return cmd
}

func show(ctx context.Context, env *kit.Env, o run.Options) error {
	if env.Dir == "" {
		dir, err := os.MkdirTemp("", "daybreak-demo-")
		if err != nil {
			return err
		}
		env.Dir = dir
	}
	dir, err := filepath.Abs(env.Dir)
	if err != nil {
		return err
	}
	o.Repo = filepath.Join(dir, "checkout")
	if err := sample(ctx, o.Repo); err != nil {
		return err
	}
	say := func(format string, a ...any) {
		if !o.JSON {
			fmt.Fprintf(env.Out, format+"\n", a...)
		}
	}
	say("Daybreak demo: an issue goes in, a proven pull request comes out.\n")
	say("  repository  %s (a small checkout service in Go)", o.Repo)
	say("  issue       %s", firstLine(demo.Issue()))
	change := func(*app.Options) {}
	if o.Model == "" {
		url, stop, err := serve(ctx)
		if err != nil {
			return err
		}
		defer stop()
		o.Model = "anthropic/claude-sonnet-4-5"
		change = func(a *app.Options) { a.BaseURL, a.Key = url, scriptedKey }
		say("  model       scripted: a recorded story played over the provider's own protocol, no model is called;")
		say("              everything else (sandbox, tools, tests, verification, git) is real. With a key: daybreak demo --model provider/model")
	} else {
		say("  model       %s", o.Model)
	}
	say("  data        %s\n", dir)
	a, err := env.Open(ctx, change)
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }()
	a.Config.Model = o.Model
	if err := run.Task(ctx, env, a, o, []byte(demo.Issue())); err != nil {
		return err
	}
	if o.JSON {
		return nil
	}
	return showPullRequest(ctx, env.Out, a, o.Repo)
}

// sample makes the sample repository, or keeps the one of an interrupted demo.
func sample(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		return nil
	}
	base, err := demo.WriteRepo(ctx, dir)
	if err == nil && base != demo.Base {
		err = &task.Error{Class: task.Internal, Msg: "the sample repository has an unexpected commit " + base}
	}
	return err
}

func firstLine(s string) string {
	l, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return strings.TrimSpace(strings.TrimLeft(l, "# "))
}

// serve starts the scripted model on loopback.
func serve(ctx context.Context) (url string, stop func(), err error) {
	script, err := transcript.Parse(strings.NewReader(string(demo.Transcript())))
	if err != nil {
		return "", nil, fmt.Errorf("embedded transcript: %w", err)
	}
	return scripted.Listen(ctx, script, scripted.Options{APIKey: scriptedKey})
}

// showPullRequest prints the document and the way to see its proof by hand.
func showPullRequest(ctx context.Context, w io.Writer, a *app.App, repo string) error {
	res, err := run.Newest(ctx, a)
	if err != nil {
		return err
	}
	if res.PullRequest == "" {
		return errors.New("the demo ended without a pull request")
	}
	body, err := os.ReadFile(res.PullRequest)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n── the pull request %s\n\n%s\n── try it\n\n", strings.Repeat("─", 50), strings.TrimSpace(string(body))+"\n")
	fmt.Fprintf(w, "  git -C %s diff main...%s\n", repo, res.Branch)
	if len(res.Reproduction) > 0 {
		proof := filepath.Join(filepath.Dir(repo), "proof-"+string(res.Task))
		fmt.Fprintf(w, "  git -C %s worktree add %s %s && cd %s && %s\n", repo, proof, res.Branch, proof, taskview.Escape(res.Reproduction[0].Rerun))
	}
	return nil
}
