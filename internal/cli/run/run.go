// Package run owns `daybreak run`: one issue on one repository, from here to a pull request.
//
// Invariants: the same command again goes on with the unfinished task instead of starting a
// second one; the exit code says how the task ended; with --json the last line is the result.
package run

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/progress"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/config"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// Options are the command's flags.
type Options struct {
	Repo, Issue, Base, Model string
	Steps, Attempts          int
	Tokens                   int64
	USD                      float64
	Wall                     time.Duration
	JSON, Fresh              bool
}

// NewCmd makes the command.
func NewCmd(env *kit.Env) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "run --repo PATH|URL --issue FILE|-",
		Short: "Work on one issue until there is a proven pull request, or an honest no",
		Long: "Works on one issue until there is a proven pull request, or an honest no. The pull request is a branch in the\n" +
			"repository and a document beside the record. The same command again goes on with an unfinished task.\n\n" +
			"Exit codes: 0 a verified pull request waits; 1 Daybreak, the machine or the provider failed; 2 wrong usage or\n" +
			"input; 3 declined; 4 a budget ran out; 5 stopped by a person; 6 not verified, or a person must judge a changed expectation first;\n" +
			"7 it waits for a person's word, an approval or an answer.",
		Example: "  daybreak run --repo ~/src/shop --issue issue.md --model anthropic/claude-sonnet-4-5 --budget-usd 5",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Repo == "" || o.Issue == "" {
				return &kit.ExitError{Code: kit.Usage, Err: errors.New("--repo and --issue are needed, for example: daybreak run --repo . --issue issue.md")}
			}
			issue, err := readIssue(env, o.Issue)
			if err != nil {
				return err
			}
			a, err := env.Open(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer func() {
				a.Tidy(context.WithoutCancel(cmd.Context()))
				_ = a.Close()
			}()
			return Task(cmd.Context(), env, a, o, issue)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Repo, "repo", "", "repository: a path or a URL")
	f.StringVar(&o.Issue, "issue", "", "file with the issue's text, - for standard input")
	f.StringVar(&o.Base, "base", "", "commit, branch or tag to start from (default: the repository's HEAD)")
	AddFlags(cmd, &o)
	f.BoolVar(&o.Fresh, "new", false, "start a new task even when one for this issue is unfinished or waits for review")
	return cmd
}

// AddFlags adds the flags that `run` and `demo` share.
func AddFlags(cmd *cobra.Command, o *Options) {
	f := cmd.Flags()
	f.StringVar(&o.Model, "model", "", "model as provider/model (default: from the configuration)")
	f.IntVar(&o.Steps, "budget-steps", 0, "most model calls")
	f.Int64Var(&o.Tokens, "budget-tokens", 0, "most tokens, all classes together")
	f.Float64Var(&o.USD, "budget-usd", 0, "most money in US dollars")
	f.DurationVar(&o.Wall, "budget-wall", 0, "most wall clock time, such as 40m")
	f.IntVar(&o.Attempts, "attempts", 0, "most independent attempts at the issue, all within its budget (default: from the configuration)")
	f.BoolVar(&o.JSON, "json", false, "print one JSON object a line, the result last")
}

// maxIssue is the longest issue that is taken at all.
const maxIssue = 8 << 20

func readIssue(env *kit.Env, path string) ([]byte, error) {
	in := env.In
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, &kit.ExitError{Code: kit.Usage, Err: fmt.Errorf("cannot read the issue: %w", err)}
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxIssue+1))
	if err != nil {
		return nil, &kit.ExitError{Code: kit.Usage, Err: fmt.Errorf("cannot read the issue: %w", err)}
	}
	if len(b) > maxIssue {
		return nil, &kit.ExitError{Code: kit.Usage, Err: errors.New("the issue is larger than 8 MiB; put logs of that size in the repository or cut them")}
	}
	return b, nil
}

// Task creates or finds the task and runs it.
func Task(ctx context.Context, env *kit.Env, a *app.App, o Options, issue []byte) error {
	name := o.Model
	if name == "" {
		name = a.Config.Model
	}
	client, err := a.Model(name)
	if err != nil {
		return &kit.ExitError{Code: kit.Usage, Err: err}
	}
	b, err := budget(a.Config.Budget, o)
	if err != nil {
		return &kit.ExitError{Code: kit.Usage, Err: err}
	}
	attempts := cmp.Or(o.Attempts, a.Config.Attempts)
	if err := config.CheckAttempts(attempts); err != nil {
		return &kit.ExitError{Code: kit.Usage, Err: err}
	}
	limits := b.Limits()
	view := newView(env, a, o.JSON)
	closed := false
	closeView := func() {
		if !closed {
			view.Close()
			closed = true
		}
	}
	defer closeView()
	w, err := a.Worker(app.Hooks{Observe: view.Event, Progress: view.Stage, Show: view.Delta, Far: view.Far})
	if err != nil {
		return err
	}
	repo := o.Repo
	if _, serr := os.Stat(repo); serr == nil {
		if repo, err = filepath.Abs(repo); err != nil {
			return err
		}
	}
	if fs, err := a.Forges(); err != nil {
		return err
	} else if _, on := fs.Host(repo); !on && (strings.HasPrefix(repo, "http://") || strings.HasPrefix(repo, "https://")) {
		view.Note("the branch is pushed without credentials; where the server refuses, it is kept here and the pull request says how to fetch it")
	}
	view.Stage("prepare", "fetching the base commit")
	t, created, err := w.Create(ctx, worker.Request{
		Repo: repo, Ref: o.Base, Issue: issue, Model: name, Limits: limits, RequestedBy: requester(),
		Settings: a.Config.Digest(), Fresh: o.Fresh, Attempts: attempts,
	})
	if t.ID == "" {
		return err
	}
	sum, serr := soFar(ctx, a, t.ID, view, created && o.JSON)
	if err != nil { // recorded as a task that failed
		closeView()
		return report(ctx, env, a, t.ID, o.JSON, err)
	}
	if serr != nil {
		return serr
	}
	view.Begin(t, created, sum.Created.Limits, sum.Spent)
	if !client.Info().Priced && sum.Created.Limits.Cost > 0 {
		view.Note("no price is known for " + name + ", so the budget in dollars cannot hold; set providers.<name>.price")
	}
	if !created && !t.State.Done() && (sum.Created.Limits != limits || sum.Created.Model != name) {
		view.Note("this task keeps the model and the budget it was started with; --new starts another one")
	}
	if t.State.Done() {
		view.Note("this issue has a pull request that waits for review; --new starts another task for it")
	}
	_, err = w.Run(ctx, t.ID)
	closeView()
	return report(ctx, env, a, t.ID, o.JSON, err)
}

// soFar is what the task's log says before this run; show prints it.
func soFar(ctx context.Context, a *app.App, id task.ID, view *progress.View, show bool) (event.Summary, error) {
	events, err := a.Store.Events(ctx, id, 0, 0)
	if err != nil {
		return event.Summary{}, err
	}
	for _, e := range events {
		p, err := event.Decode(e)
		if err != nil {
			return event.Summary{}, err
		}
		if show {
			view.Event(e, p)
		}
	}
	return event.Fold(events)
}

func newView(env *kit.Env, a *app.App, asJSON bool) *progress.View {
	mode, width := progress.Plain, env.Width()
	switch {
	case asJSON:
		mode = progress.JSON
	case width > 0:
		mode = progress.Terminal
	}
	return progress.New(env.Out, mode, width, env.Now, func(t event.Text) (string, error) {
		return store.Load(context.Background(), a.Store, t)
	})
}

// budget is the configured one with what the flags say in its place.
func budget(b config.Budget, o Options) (config.Budget, error) {
	if o.Steps != 0 {
		b.Steps = o.Steps
	}
	if o.Tokens != 0 {
		b.Tokens = o.Tokens
	}
	if o.USD != 0 {
		b.USD = o.USD
	}
	if o.Wall != 0 {
		b.Wall = o.Wall
	}
	return b, b.Check()
}

func requester() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}

// report prints what came of the task and chooses the exit code.
func report(ctx context.Context, env *kit.Env, a *app.App, id task.ID, asJSON bool, runErr error) error {
	res, err := worker.ResultOf(context.WithoutCancel(ctx), a.Store, id)
	if err != nil {
		return errors.Join(runErr, err)
	}
	if runErr != nil && (res.Reason == "" || !res.State.Done()) { // a pause has no state change of its own
		res.Reason = oneLine(runErr.Error())
	}
	code := codeFor(res, runErr)
	said := false
	if asJSON {
		b, err := json.Marshal(res)
		if err != nil {
			return err
		}
		fmt.Fprintf(env.Out, "%s\n", b)
	} else if code != kit.Usage { // wrong input is one line on standard error, like any wrong usage
		said = printEnd(env.Out, a, res)
	}
	if code == kit.OK {
		env.Print(runErr) // of clearing up; the pull request is open all the same
		return nil
	}
	if said && env.Width() > 0 && runErr != nil && strings.HasSuffix(oneLine(runErr.Error()), oneLine(res.Reason)) {
		return &kit.ExitError{Code: code} // the same screen has the reason already
	}
	return &kit.ExitError{Code: code, Err: runErr}
}

func codeFor(res worker.Result, runErr error) int {
	switch res.State {
	case task.InReview, task.Merged:
		if res.Verdict == task.NeedsHuman {
			return kit.NotVerified // there is a pull request, but a person must first judge a changed expectation
		}
		return kit.OK
	case task.Declined, task.Closed:
		return kit.Declined
	case task.Exhausted:
		return kit.Exhausted
	case task.Stopped:
		return kit.Stopped
	}
	var provider *model.FailedError
	switch {
	case errors.Is(runErr, worker.ErrHeld) || errors.Is(runErr, worker.ErrParked):
		return kit.Waits
	case errors.Is(runErr, context.Canceled) || errors.Is(runErr, worker.ErrInterrupted):
		return kit.Stopped
	case errors.As(runErr, &provider): // whatever was verified before, this end is the provider's
		return kit.Failure
	case res.State == task.Failed && badInput(runErr) && res.Budget.Steps == 0 && res.Verdict == "":
		return kit.Usage
	case res.State == task.Failed && (runErr == nil || res.Verdict != "" && task.ClassOf(runErr) == task.Invalid):
		return kit.NotVerified
	}
	return kit.Failure
}

func badInput(err error) bool {
	c := task.ClassOf(err)
	return c == task.Invalid || c == task.NotFound
}

// printEnd is the last thing on the screen; it reports whether it gave the reason.
func printEnd(w io.Writer, a *app.App, r worker.Result) (said bool) {
	fmt.Fprintln(w)
	if r.State == task.InReview {
		fmt.Fprintf(w, "%s, waiting for review\n", strings.ToUpper(string(r.Verdict[:1]))+strings.ReplaceAll(string(r.Verdict[1:]), "_", " "))
		fmt.Fprintf(w, "  pull request  %s\n", r.PullRequest)
		fmt.Fprintf(w, "  branch        %s in %s\n", r.Branch, r.Repo)
		for _, f := range r.Findings {
			if f.Kind == "held_path" {
				fmt.Fprintf(w, "  held back     %s: %s; shown in the pull request, not part of the branch\n", taskview.Escape(f.Path), taskview.Escape(f.Detail))
			}
		}
		for _, t := range r.Reproduction {
			fmt.Fprintf(w, "  proof         %s: %s on the base, %s with the fix\n", taskview.Escape(t.Test), verb(t.Base), verb(t.Head))
			fmt.Fprintf(w, "  run it again  %s  (on that branch)\n", taskview.Escape(t.Rerun))
		}
	} else {
		head, reason := strings.ToUpper(string(r.State[:1]))+strings.ReplaceAll(string(r.State[1:]), "_", " "), oneLine(r.Reason)
		if rest, ok := strings.CutPrefix(reason, "paused: "); ok && !r.State.Done() {
			head, reason = "Paused while "+strings.ReplaceAll(string(r.State), "_", " "), rest
		}
		if rest, ok := strings.CutPrefix(reason, strings.ToLower(head)+" by "); ok {
			head, reason, said = head+" by "+rest, "", true
		}
		fmt.Fprint(w, taskview.Escape(head))
		if reason != "" {
			said = true
			fmt.Fprintf(w, ": %s", taskview.Escape(reason))
		}
		fmt.Fprintln(w)
	}
	b := r.Budget
	cost := fmt.Sprintf("$%.4f", b.USD)
	if b.Unpriced {
		cost = "cost unknown"
	}
	fmt.Fprintf(w, "  spent         %d steps, %d tokens (%d from the cache), %s, %s\n",
		b.Steps, b.Input+b.Output+b.CacheRead+b.CacheWrite, b.CacheRead, cost, time.Duration(b.Wall*float64(time.Second)).Round(time.Second))
	fmt.Fprintf(w, "  record        %s --dir %s task show %s\n", kit.Program(), a.Dir, r.Task)
	return said
}

// verb says what a test does.
func verb(s task.TestStatus) string {
	switch s {
	case task.Pass:
		return "passes"
	case task.Fail:
		return "fails"
	}
	return "is " + strings.ReplaceAll(string(s), "_", " ")
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// Newest is the result of the newest task.
func Newest(ctx context.Context, a *app.App) (worker.Result, error) {
	ts, err := a.Store.Tasks(ctx, store.Filter{Limit: 1})
	if err != nil {
		return worker.Result{}, err
	}
	if len(ts) == 0 {
		return worker.Result{}, &task.Error{Class: task.NotFound, Msg: "there is no task yet", Fix: "start one with `daybreak run --repo PATH --issue FILE`"}
	}
	return worker.ResultOf(ctx, a.Store, ts[0].ID)
}
