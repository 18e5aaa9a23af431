// Package sandboxes owns `daybreak sandbox`: what is running, ending what nobody owns, a self-test, and a
// shell for a look from the inside.
//
// Invariants: gc ends only sandboxes whose process is gone; exec uses the operator's own
// profile and a sandbox of its own.
package sandboxes

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// NewCmd makes the command.
func NewCmd(env *kit.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "sandbox", Short: "See, clean up and try sandboxes"}
	cmd.AddCommand(list(env), collect(env), execute(env), selfTest(env), hold())
	return cmd
}

// hold is started by the worker of an ordinary user, never by a person.
func hold() *cobra.Command {
	return &cobra.Command{
		Use: "hold", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.HoldSandboxes(cmd.Context()) },
	}
}

func list(env *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the sandboxes of this installation", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), env, func(a *app.App) error {
				rt, err := a.Runtime()
				if err != nil {
					return err
				}
				hs, err := rt.List(cmd.Context())
				if err != nil {
					return err
				}
				if len(hs) == 0 {
					fmt.Fprintln(env.Out, "no sandboxes")
					return nil
				}
				w := tabwriter.NewWriter(env.Out, 0, 4, 2, ' ', 0)
				fmt.Fprintln(w, "ID\tTASK\tPURPOSE\tAGE\tOWNER")
				for _, h := range hs {
					state := "alive"
					switch {
					case owned(h):
					case unfinished(cmd.Context(), a, h):
						state = "gone: its task goes on from it, `daybreak sandbox gc --all` ends it"
					default:
						state = "gone: `daybreak sandbox gc` ends it"
					}
					of := h.Task
					if of == "" { // one that waits for a task, or whose record is damaged
						of = "-"
					}
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", h.ID, of, h.Purpose, env.Now().Sub(h.Started).Round(time.Second), state)
				}
				return w.Flush()
			})
		},
	}
}

func collect(env *kit.Env) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "gc", Short: "End sandboxes whose owner is gone", Args: cobra.NoArgs,
		Long: "Ends sandboxes whose owner is gone. One that holds the work of an unfinished task is kept, because the task goes on from it; --all ends it too.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), env, func(a *app.App) error {
				rt, err := a.Runtime()
				if err != nil {
					return err
				}
				kept := 0
				ended, err := rt.Collect(cmd.Context(), func(h sandbox.Handle) bool {
					if owned(h) {
						return true
					}
					wanted := !all && unfinished(cmd.Context(), a, h)
					if wanted {
						kept++
						fmt.Fprintf(env.Out, "kept %s: the work of task %s, which goes on from it\n", h.ID, h.Task)
					}
					return wanted
				})
				for _, h := range ended {
					fmt.Fprintf(env.Out, "ended %s (%s of task %s)\n", h.ID, h.Purpose, h.Task)
				}
				if len(ended)+kept == 0 && err == nil {
					fmt.Fprintln(env.Out, "nothing to end")
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "end those of unfinished tasks as well: what they had changed since the last check is lost")
	return cmd
}

// unfinished reports whether the sandbox is where an unfinished task would find its work.
func unfinished(ctx context.Context, a *app.App, h sandbox.Handle) bool {
	if h.Purpose != "agent" {
		return false
	}
	t, err := a.Store.Task(ctx, task.ID(h.Task))
	return err == nil && !t.State.Done()
}

// owned reports whether a sandbox has an owner that lives. One whose record is damaged names
// none.
func owned(h sandbox.Handle) bool { return h.Owner != "" && !app.Gone(h.Owner) }

func execute(env *kit.Env) *cobra.Command {
	var repo, base string
	cmd := &cobra.Command{
		Use: "exec [--repo PATH] -- COMMAND [ARG...]", Short: "Run a command in a fresh sandbox of this configuration",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("a command is needed, for example: daybreak sandbox exec -- id")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), env, func(a *app.App) error {
				return runIn(cmd.Context(), env, a, repo, base, args)
			})
		},
	}
	cmd.Flags().StringVar(&repo, "repo", "", "repository to check out in it")
	cmd.Flags().StringVar(&base, "base", "", "commit, branch or tag (default: HEAD)")
	return cmd
}

func runIn(ctx context.Context, env *kit.Env, a *app.App, repo, base string, args []string) (err error) {
	rt, err := a.Runtime()
	if err != nil {
		return err
	}
	spec := a.SandboxSpec("exec")
	if repo != "" {
		snap, err := a.Snapshots.Prepare(ctx, snapshot.Source{Repo: repo, Ref: base, Environment: a.Environment()})
		if err != nil {
			return err
		}
		spec.Tree = snap.Tree
		if a.Snapshots.HasHome(snap) {
			spec.Home.Lower = []string{snap.Home}
		}
	}
	box, err := rt.Start(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, box.Destroy(context.WithoutCancel(ctx))) }()
	res, err := box.Guest().Exec(ctx, guest.ExecRequest{Argv: args, Head: 1 << 20, Tail: 1 << 20})
	if err != nil {
		return err
	}
	if res.Error != "" {
		return &kit.ExitError{Code: kit.Usage, Err: errors.New(res.Error)}
	}
	_, _ = env.Out.Write(res.Head)
	_, _ = env.Out.Write(res.Tail)
	if res.ExitCode != 0 {
		return &kit.ExitError{Code: res.ExitCode}
	}
	return nil
}

func with(ctx context.Context, env *kit.Env, f func(*app.App) error) error {
	a, err := env.Open(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(f(a), a.Close())
}
