package tasks

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/replay"
	"github.com/daybreak-agent/daybreak/internal/task"
)

type replayOptions struct {
	file, repo, exec string
	to               int64
	ignorePrompt     bool
	asJSON           bool
}

func replayCmd(env *kit.Env) *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use: "replay [TASK]", Short: "Run a recorded task again and name the first difference", Args: kit.Takes,
		Long: "Runs the task again from its record: the model's replies and people's words are the recorded ones, the loop, the tools, the\n" +
			"sandbox and the verifier are real. No provider is asked, nothing is published, the record stays as it is. What came back from\n" +
			"each tool, each verdict and the final tree are compared; wall times and the like may differ (--verbose lists them). Exit code 6\n" +
			"says that something else did.\n\n" +
			"With --to it stops at that event of the record and opens a shell in the sandbox as it was.",
		Example: "  daybreak task replay t_01k…\n  daybreak task replay --file log.jsonl --repo ~/src/shop\n  daybreak task replay --to 57 --exec 'git diff'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.file != "" && len(args) > 0 {
				return &task.Error{Class: task.Invalid, Msg: "a task and --file are two records", Fix: "name one of them"}
			}
			if o.exec != "" && o.to == 0 {
				return &task.Error{Class: task.Invalid, Msg: "--exec needs --to"}
			}
			if o.file != "" {
				return with(cmd.Context(), env, func(a *app.App) error { return replayFile(cmd.Context(), env, a, o) })
			}
			if env.ServerURL != "" {
				return &task.Error{Class: task.Invalid, Msg: "a replay runs on this machine, from its store or a file", Fix: "bring the log here with `daybreak task export`, then use --file"}
			}
			return on(cmd.Context(), env, args, func(a *app.App, id task.ID) error {
				events, err := a.Store.Events(cmd.Context(), id, 0, 0)
				if err != nil {
					return err
				}
				if err := event.VerifyChain(id, events); err != nil {
					return broken(err)
				}
				return replayRecord(cmd.Context(), env, a, o, replay.Record{Events: events, Blob: a.Store.Blob}, nil)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.file, "file", "", "an exported log instead of a task of this installation")
	f.StringVar(&o.repo, "repo", "", "where the repository is (default: where the record says)")
	f.Int64Var(&o.to, "to", 0, "stop at the event with this number")
	f.StringVar(&o.exec, "exec", "", "with --to: run this command line instead of a shell")
	f.BoolVar(&o.ignorePrompt, "ignore-prompt", false, "go on when the prompt is another one than the recorded")
	f.BoolVar(&o.asJSON, "json", false, "print the report as one JSON object")
	return cmd
}

func replayFile(ctx context.Context, env *kit.Env, a *app.App, o replayOptions) error {
	f, err := os.Open(o.file)
	if err != nil {
		return &kit.ExitError{Code: kit.Usage, Err: err}
	}
	defer func() { _ = f.Close() }()
	events, blobs, problem, err := taskview.ReadExport(f)
	if err != nil {
		return err
	}
	return replayRecord(ctx, env, a, o, replay.Record{Events: events, Blob: func(_ context.Context, digest string) ([]byte, error) {
		b, ok := blobs[digest]
		if !ok {
			return nil, &task.Error{Class: task.NotFound, Msg: "blob " + taskview.Escape(digest) + " is not in the export"}
		}
		return b, nil
	}}, problem)
}

func replayRecord(ctx context.Context, env *kit.Env, a *app.App, o replayOptions, rec replay.Record, problem error) error {
	created, err := event.Decode(rec.Events[0])
	if err != nil {
		return err
	}
	c, ok := created.(*event.TaskCreated)
	if !ok {
		return &task.Error{Class: task.Invalid, Msg: "the record does not begin with the task's creation"}
	}
	source := o.repo
	if st, err := os.Stat(source); source != "" && err == nil && st.IsDir() {
		if source, err = filepath.Abs(source); err != nil {
			return err
		}
	}
	say := func(string, string) {}
	if env.Width() > 0 && !o.asJSON {
		say = func(stage, note string) { fmt.Fprintf(env.Err, "%s: %s\n", stage, taskview.Escape(note)) }
	}
	shellEnd := 0
	cfg := replay.Config{Record: rec, Source: source, IgnorePrompt: o.ignorePrompt, To: o.to, At: func(ctx context.Context, g *guest.Client) error {
		var err error
		shellEnd, err = inside(ctx, env, g, o.exec)
		return err
	}}
	rep, err := a.Replay(ctx, c.Model, cfg, say)
	if problem != nil {
		rep.Notes = append([]string{"the export is not what was written: " + strings.Join(strings.Fields(problem.Error()), " ")}, rep.Notes...)
	}
	if c.Settings != a.Config.Digest() {
		rep.Notes = append(rep.Notes, "the configuration is another one than the task was made with")
	}
	if err != nil {
		return err
	}
	if o.asJSON {
		if err := jsonLine(env.Out, rep); err != nil {
			return err
		}
	} else {
		showReplay(env, rep)
	}
	switch {
	case rep.Divergence != nil:
		return &kit.ExitError{Code: kit.NotVerified}
	case shellEnd != 0:
		return &kit.ExitError{Code: shellEnd}
	}
	return nil
}

func showReplay(env *kit.Env, rep replay.Report) {
	w := env.Out
	if rep.Reached {
		w = env.Err // standard output is the command's
	}
	d := rep.Divergence
	switch {
	case d != nil:
		where := ""
		if d.Seq > 0 {
			where = fmt.Sprintf(" at step %d, event %d", d.Step, d.Seq)
		}
		if d.Call != "" {
			where += fmt.Sprintf(" (call %s of %s)", taskview.Escape(d.Call), taskview.Escape(d.Tool))
		}
		fmt.Fprintf(w, "divergence%s: %s: %s\n", where, d.Kind, taskview.Escape(d.What))
		if d.Diff != "" {
			fmt.Fprintln(w, "  - recorded, + now")
			for line := range strings.Lines(d.Diff) {
				fmt.Fprintf(w, "  %s\n", taskview.Escape(strings.TrimSuffix(line, "\n")))
			}
		}
		fmt.Fprintf(w, "equal before it: %d requests, %d tool results, %d verdicts\n", rep.Requests, rep.Calls, rep.Verdicts)
		if d.Kind == replay.Prompt {
			fmt.Fprintln(w, "--ignore-prompt goes on")
		}
	case rep.Reached:
		fmt.Fprintf(w, "stopped where it was asked to; equal before: %d requests, %d tool results, %d verdicts\n", rep.Requests, rep.Calls, rep.Verdicts)
	default:
		fmt.Fprintf(w, "no divergence: %d requests, %d tool results, %d verdicts", rep.Requests, rep.Calls, rep.Verdicts)
		if rep.Tree != "" {
			fmt.Fprintf(w, ", tree %s", taskview.Escape(rep.Tree[:min(len(rep.Tree), 12)]))
		}
		fmt.Fprintln(w)
	}
	for _, n := range rep.Notes {
		fmt.Fprintf(w, "note: %s\n", taskview.Escape(n))
	}
	if env.Verbose {
		for _, r := range replay.Rules() {
			fmt.Fprintf(w, "may differ: %s (did in %d texts)\n", r.Name, rep.Normalised[r.Name])
		}
	}
}

// inside runs one command line in the sandbox, or a shell as long as the person wants one.
func inside(ctx context.Context, env *kit.Env, g *guest.Client, command string) (exit int, err error) {
	if command != "" {
		exit, _, err = line(ctx, env.Out, g, "", command)
		return exit, err
	}
	in, isFile := env.In.(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return 0, &task.Error{Class: task.Invalid, Msg: "a shell needs a terminal", Fix: "name a command with --exec"}
	}
	fmt.Fprintln(env.Out, "the sandbox as it was; each line is run by bash, `exit` ends it")
	lines := bufio.NewScanner(in)
	dir := ""
	for {
		fmt.Fprintf(env.Out, "sandbox %s$ ", dir)
		if !lines.Scan() || slices.Contains([]string{"exit", "logout"}, strings.TrimSpace(lines.Text())) {
			return 0, lines.Err()
		}
		if strings.TrimSpace(lines.Text()) == "" {
			continue
		}
		if _, dir, err = line(ctx, env.Out, g, dir, lines.Text()); err != nil {
			return 0, err
		}
	}
}

// dirMark stands before the directory in which a line of the shell ended.
const dirMark = "\n\x00daybreak-dir:"

// line runs one line and prints what it printed. On a terminal nothing of it is obeyed.
func line(ctx context.Context, out io.Writer, g *guest.Client, dir, command string) (exit int, now string, err error) {
	res, err := g.Exec(ctx, guest.ExecRequest{
		Shell: command + "\n_end=$?; printf '\\n\\0daybreak-dir:%s' \"$PWD\"; exit $_end", Dir: dir, Head: 1 << 20, Tail: 1 << 20,
	})
	if err != nil {
		return 0, dir, err
	}
	if res.Error != "" {
		return 0, dir, errors.New(res.Error)
	}
	text, at, found := strings.Cut(string(res.Head)+string(res.Tail), dirMark)
	if !found {
		at = dir
	}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		text = taskview.EscapeLines(text)
	}
	_, err = io.WriteString(out, text)
	return res.ExitCode, at, err
}
