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
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/demo"
	"github.com/daybreak-agent/daybreak/internal/model/scripted"
	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// scriptedModel is the model's name in the record, so that nobody takes it for a real one.
const scriptedModel = "scripted/coupon-story"

// scriptedKey is what the demo's client and server agree on. It opens nothing.
const scriptedKey = "scripted-demo-key"

// NewCmd makes the command.
func NewCmd(env *kit.Env) *cobra.Command {
	var o run.Options
	var serve bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See the whole job on a sample repository: issue in, proven pull request out",
		Long: "Takes a sample issue on a sample Go repository to a proven pull request, in a few minutes. The model is scripted\n" +
			"unless --model names a real one; sandbox, tools, tests, verification and git are real. Without --dir all of it is\n" +
			"in a new temporary directory; with --dir an interrupted demo goes on. With --serve its pages are there to watch, until\n" +
			"ctrl-C.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd.Context(), env, o, serve)
		},
	}
	run.AddFlags(cmd, &o)
	cmd.Flags().BoolVar(&serve, "serve", false, "show the task's pages in a browser while it runs, and after it, until ctrl-C")
	cmd.Flags().Lookup("model").Usage = "model as provider/model (default: the scripted one of the demo)"
	return cmd
}

func show(ctx context.Context, env *kit.Env, o run.Options, pages bool) error {
	if pages && o.JSON {
		return &kit.ExitError{Code: kit.Usage, Err: errors.New("--serve is for people and --json for programs; give one of them")}
	}
	ours := env.Dir == ""
	if ours {
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
	say("  repository  %s (a small Go service)", o.Repo)
	say("  issue       %s", firstLine(demo.Issue()))
	say("              (its log tries to talk the agent into looking for secrets)")
	change := func(*app.Options) {}
	if o.Model == "" {
		url, stop, err := serve(ctx)
		if err != nil {
			return err
		}
		defer stop()
		o.Model = scriptedModel
		change = func(a *app.Options) { a.BaseURL, a.Key = url, scriptedKey }
		say("  model       scripted: its words are a written story. No model is called;")
		say("              its tokens and dollars are simulated")
		say("  real        all else: sandbox, tools, tests, verification, git")
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
	if o.Model == scriptedModel {
		provider, _, _ := strings.Cut(scriptedModel, "/")
		a.Config.Providers[provider] = config.Provider{
			API: "anthropic", Context: 200_000, MaxOutput: 64_000,
			Price: &config.Price{Input: 3, Output: 15, CacheRead: 0.3, CacheWrite: 3.75},
		}
	}
	var shown *site
	if pages {
		if shown, err = openSite(ctx, a); err != nil {
			return err
		}
		defer shown.close()
		link, err := shown.link(ctx, "/")
		if err != nil {
			return err
		}
		say("watch it in a browser (the link signs you in once)\n  %s\n", link)
	}
	if err := run.Task(ctx, env, a, o, []byte(demo.Issue())); err != nil {
		if shown == nil || ctx.Err() != nil {
			return err
		}
		env.Print(err)
		return errors.Join(shown.rest(ctx, env.Out), &kit.ExitError{Code: kit.CodeOf(err)}) // its page says how it ended
	}
	if o.JSON {
		return nil
	}
	if err := showPullRequest(ctx, env.Out, a, o); err != nil {
		return err
	}
	if ours {
		fmt.Fprintf(env.Out, "remove what the demo has left\n  rm -rf %s\n", dir)
	}
	if shown == nil {
		return nil
	}
	return shown.rest(ctx, env.Out)
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
func showPullRequest(ctx context.Context, w io.Writer, a *app.App, o run.Options) error {
	repo := o.Repo
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
	fmt.Fprintf(w, "\n── the pull request %s\n\n%s\n── look for yourself %s\n\n", strings.Repeat("─", 50), strings.TrimSpace(string(body))+"\n", strings.Repeat("─", 49))
	me := kit.Program()
	fmt.Fprintf(w, "the change\n")
	fmt.Fprintf(w, "  git -C %s diff main...%s\n", repo, res.Branch)
	if len(res.Reproduction) > 0 {
		fmt.Fprintf(w, "the test passing with the change (the line in the pull request shows it failing first as well)\n")
		proof := filepath.Join(filepath.Dir(repo), "proof-"+string(res.Task))
		fmt.Fprintf(w, "  (git -C %s worktree add %s %s && cd %s && %s)\n", repo, proof, res.Branch, proof, taskview.Escape(res.Reproduction[0].Rerun))
	}
	fmt.Fprintf(w, "what was done, step by step, and whether the record is what was written\n")
	fmt.Fprintf(w, "  %[1]s --dir %[2]s task show\n  %[1]s --dir %[2]s task verify-log\n", me, a.Dir)
	if o.Model == scriptedModel {
		fmt.Fprintf(w, "the same issue with a real model (its key in the environment), then an issue of yours\n")
		fmt.Fprintf(w, "  %[1]s demo --model anthropic/claude-sonnet-4-5\n  %[1]s run --repo PATH --issue FILE --model anthropic/claude-sonnet-4-5\n", me)
	}
	return nil
}
