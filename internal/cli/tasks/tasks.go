// Package tasks owns `daybreak task`: looking at recorded tasks, checking and exporting their
// logs, and a person's word to a running one.
//
// Invariants: looking changes nothing; steering and stopping go through the inbox, so that the
// worker that holds the lease takes them up and records them.
package tasks

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/api/client"
	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
	"github.com/daybreak-agent/daybreak/internal/worker"
)

// NewCmd makes the command.
func NewCmd(env *kit.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "task", Short: "Look at recorded tasks; steer, stop and approve them"}
	cmd.AddCommand(list(env), show(env), diff(env), evidenceCmd(env), verifyLog(env), export(env), steer(env), stop(env), approve(env), answer(env), budget(env), replayCmd(env))
	return cmd
}

func list(env *kit.Env) *cobra.Command {
	var (
		limit  int
		asJSON bool
		states []string
	)
	cmd := &cobra.Command{
		Use: "ls", Short: "List tasks, newest first", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := store.Filter{Limit: limit}
			for _, s := range states {
				if !slices.Contains(task.States(), task.State(s)) {
					return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("there is no state %q", s), Fix: fmt.Sprintf("use some of %v", task.States())}
				}
				f.States = append(f.States, task.State(s))
			}
			if c, err := env.Server(); c != nil || err != nil {
				if err != nil {
					return err
				}
				return printList(cmd.Context(), env, c, f, asJSON)
			}
			return with(cmd.Context(), env, func(a *app.App) error { return printList(cmd.Context(), env, a.Store, f, asJSON) })
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "at most this many")
	cmd.Flags().StringSliceVar(&states, "state", nil, "only these states, such as in_review,failed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line")
	return cmd
}

func printList(ctx context.Context, env *kit.Env, from rows, f store.Filter, asJSON bool) error {
	ts, err := from.Tasks(ctx, f)
	if err != nil {
		return err
	}
	if len(ts) == 0 && !asJSON && len(f.States) > 0 {
		fmt.Fprintln(env.Out, "no tasks in that state")
		return nil
	}
	if len(ts) == 0 && !asJSON {
		fmt.Fprintln(env.Out, "no tasks yet; start one with `daybreak run --repo PATH --issue FILE`")
		return nil
	}
	if !asJSON && env.Width() > 0 { // a script counts lines
		fmt.Fprintln(env.Out, taskview.Header())
	}
	for _, t := range ts {
		if asJSON {
			if err := jsonLine(env.Out, t); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintln(env.Out, taskview.Line(t, env.Now()))
	}
	return nil
}

func show(env *kit.Env) *cobra.Command {
	var full, asJSON bool
	cmd := &cobra.Command{
		Use: "show [TASK]", Short: "Show a task's record (the newest task without an id)", Args: kit.Takes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if ok, err := far(cmd.Context(), env, args, func(c *client.Client, id task.ID) error {
				return farShow(cmd.Context(), env, c, id, asJSON, full)
			}); ok {
				return err
			}
			return on(cmd.Context(), env, args, func(a *app.App, id task.ID) error {
				if asJSON {
					res, err := worker.ResultOf(cmd.Context(), a.Store, id)
					if err != nil {
						return err
					}
					return jsonLine(env.Out, res)
				}
				events, err := a.Store.Events(cmd.Context(), id, 0, 0)
				if err != nil {
					return err
				}
				return taskview.Show(env.Out, events, loader(cmd.Context(), a), taskview.Options{Full: full})
			})
		},
	}
	cmd.Flags().BoolVar(&full, "full", false, "print every text whole")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the result as one JSON object")
	return cmd
}

func diff(env *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use: "diff [TASK]", Short: "Print the change that a task made, also one that did not get to a pull request", Args: kit.Takes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if ok, err := far(cmd.Context(), env, args, func(c *client.Client, id task.ID) error {
				return farDiff(cmd.Context(), env, c, id)
			}); ok {
				return err
			}
			return on(cmd.Context(), env, args, func(a *app.App, id task.ID) error {
				events, err := a.Store.Events(cmd.Context(), id, 0, 0)
				if err != nil {
					return err
				}
				sum, err := event.Fold(events)
				if err != nil {
					return err
				}
				var text event.Text
				switch {
				case sum.Exported != nil && (sum.PullRequest != nil || sum.Waits()):
					text = sum.Exported.Diff
				case sum.Workspace != nil:
					text = sum.Workspace.Diff
				default:
					return &task.Error{Class: task.NotFound, Msg: "the task has made no change"}
				}
				s, err := store.Load(cmd.Context(), a.Store, text)
				if err != nil {
					return err
				}
				if env.Width() > 0 { // a terminal would obey what the change holds
					s = taskview.EscapeLines(s)
				}
				_, err = io.WriteString(env.Out, s)
				return err
			})
		},
	}
}

func verifyLog(env *kit.Env) *cobra.Command {
	var file, key string
	cmd := &cobra.Command{
		Use: "verify-log [TASK]", Short: "Check that a task's log is what was written", Args: kit.Takes,
		Long: "Checks the hash chain and, at the end of a task, the signed checkpoint. With --file an exported log is checked without a database.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if file != "" {
				return verifyFile(env, file, key)
			}
			if ok, err := far(cmd.Context(), env, args, func(c *client.Client, id task.ID) error {
				return farVerify(cmd.Context(), env, c, id, key)
			}); ok {
				return err
			}
			return on(cmd.Context(), env, args, func(a *app.App, id task.ID) error {
				events, err := a.Store.Events(cmd.Context(), id, 0, 0)
				if err != nil {
					return err
				}
				return verifyEvents(env.Out, id, events, a.PublicKey())
			})
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "an export to check")
	cmd.Flags().StringVar(&key, "key", "", "public `KEY` of the installation that wrote it, as daybreak key prints it, or a file with it")
	return cmd
}

func verifyEvents(w io.Writer, id task.ID, events []event.Event, pub ed25519.PublicKey) error {
	if err := event.VerifyChain(id, events); err != nil {
		return broken(err)
	}
	sum, err := event.Fold(events)
	if err != nil {
		return broken(err)
	}
	fmt.Fprintf(w, "%s: %d events, chain good, root %s\n", id, len(events), sum.LastHash)
	if sum.PullRequest != nil {
		fmt.Fprintf(w, "the pull request names record %d, root %s\n", sum.VerifiedSeq, sum.VerifiedHash)
	}
	switch {
	case sum.Checkpoint == nil && sum.State.Done():
		fmt.Fprintln(w, "no checkpoint: the task ended without one")
	case sum.Checkpoint == nil:
		fmt.Fprintln(w, "no checkpoint yet: the task has not ended")
	case pub == nil:
		fmt.Fprintf(w, "checkpoint by key %s not checked: give --key what `daybreak key` prints on the installation that wrote it\n", sum.Checkpoint.KeyID)
	default:
		if err := event.VerifyCheckpoint(id, events, *sum.Checkpoint, pub); err != nil {
			return broken(err)
		}
		fmt.Fprintf(w, "checkpoint good: signed by key %s at event %d\n", sum.Checkpoint.KeyID, sum.Checkpoint.Seq)
	}
	return nil
}

func broken(err error) error { return &kit.ExitError{Code: kit.Failure, Err: err} }

func verifyFile(env *kit.Env, file, keyFile string) error {
	f, err := os.Open(file)
	if err != nil {
		return &kit.ExitError{Code: kit.Usage, Err: err}
	}
	defer func() { _ = f.Close() }()
	events, err := taskview.VerifyExport(f)
	if err != nil {
		return broken(err)
	}
	var pub ed25519.PublicKey
	if keyFile != "" {
		if pub, err = kit.PublicKey(keyFile); err != nil {
			return err
		}
	}
	if len(events) == 0 {
		return broken(errors.New("the export holds no event"))
	}
	return verifyEvents(env.Out, events[0].Task, events, pub)
}

func export(env *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use: "export [TASK]", Short: "Print a task's events and texts as JSON lines", Args: kit.Takes,
		RunE: func(cmd *cobra.Command, args []string) error {
			if ok, err := far(cmd.Context(), env, args, func(c *client.Client, id task.ID) error {
				return taskview.Export(cmd.Context(), record{c, id}, id, env.Out)
			}); ok {
				return err
			}
			return on(cmd.Context(), env, args, func(a *app.App, id task.ID) error {
				return taskview.Export(cmd.Context(), a.Store, id, env.Out)
			})
		},
	}
}

func steer(env *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use: "steer TASK TEXT...", Short: "Say something to a running task; it is taken up before its next step", Args: kit.Takes,
		RunE: func(cmd *cobra.Command, args []string) error {
			return signal(cmd.Context(), env, args[0], "steer", strings.Join(args[1:], " "))
		},
	}
}

func stop(env *kit.Env) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: "stop [TASK]", Short: "Stop a task for good (the newest one without an id); what it changed is kept", Args: kit.Takes,
		RunE: func(cmd *cobra.Command, args []string) error {
			id := ""
			if len(args) > 0 {
				id = args[0]
			}
			return signal(cmd.Context(), env, id, "stop", reason)
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the record")
	return cmd
}

func signal(ctx context.Context, env *kit.Env, name, kind, text string) error {
	if ok, err := far(ctx, env, []string{name}, func(c *client.Client, id task.ID) error { return farSay(ctx, env, c, id, kind, text) }); ok {
		return err
	}
	return on(ctx, env, []string{name}, func(a *app.App, id task.ID) error {
		t, err := a.Store.Task(ctx, id)
		if err != nil {
			return err
		}
		if t.State.Done() {
			return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("task %s has ended: %s", id, strings.ReplaceAll(string(t.State), "_", " "))}
		}
		word := store.Signal{ID: ulid.Make().String(), Task: id, Kind: kind, Who: person(), Text: text, At: env.Now()}
		if kind == store.Steer {
			answers, err := store.Say(ctx, a.Store, word)
			if answers && err == nil {
				fmt.Fprintf(env.Out, "noted as the answer to its question; it goes on within a minute, where `daybreak serve` runs\n")
			}
			if answers || err != nil {
				return err
			}
		} else if err := a.Store.Signal(ctx, word); err != nil {
			return err
		}
		if t.Owner == "" {
			fmt.Fprintf(env.Out, "noted; no worker has the task now, so it is taken up when it goes on\n")
			return nil
		}
		if kind == "stop" {
			fmt.Fprintf(env.Out, "noted; the task stops at once\n")
			return nil
		}
		fmt.Fprintf(env.Out, "noted; the task takes it up before its next step\n")
		return nil
	})
}

// on opens the installation and finds the task by id, by a unique beginning or end of one, or
// takes the newest.
func on(ctx context.Context, env *kit.Env, args []string, f func(*app.App, task.ID) error) error {
	return with(ctx, env, func(a *app.App) error {
		name := ""
		if len(args) > 0 {
			name = args[0]
		}
		id, err := find(ctx, a.Store, name)
		if err != nil {
			return err
		}
		return f(a, id)
	})
}

func find(ctx context.Context, in rows, name string) (task.ID, error) {
	if id := task.ID(name); id.Valid() {
		_, err := in.Task(ctx, id)
		return id, err
	}
	limit := 10_000
	if name == "" {
		limit = 1
	}
	ts, err := in.Tasks(ctx, store.Filter{Limit: limit})
	if err != nil {
		return "", err
	}
	var found []task.ID
	for _, t := range ts {
		if name == "" || strings.HasPrefix(string(t.ID), name) || strings.HasSuffix(string(t.ID), name) {
			found = append(found, t.ID)
		}
		if name == "" && len(found) == 1 {
			break
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && name == "":
		return "", &task.Error{Class: task.NotFound, Msg: "there is no task yet", Fix: "start one with `daybreak run --repo PATH --issue FILE`"}
	case len(found) == 0:
		return "", &task.Error{Class: task.NotFound, Msg: fmt.Sprintf("no task %q", name), Fix: "see `daybreak task ls`"}
	}
	return "", &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%q fits %d tasks", name, len(found)), Fix: "write more of the id"}
}

func loader(ctx context.Context, a *app.App) func(event.Text) (string, error) {
	return func(t event.Text) (string, error) { return store.Load(ctx, a.Store, t) }
}

func jsonLine(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", b)
	return err
}

func with(ctx context.Context, env *kit.Env, f func(*app.App) error) error {
	a, err := env.Open(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(f(a), a.Close())
}
