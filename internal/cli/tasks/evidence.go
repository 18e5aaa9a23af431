package tasks

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/api/client"
	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/event"
	"github.com/daybreak-agent/daybreak/internal/evidence"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func evidenceCmd(env *kit.Env) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use: "evidence [TASK]", Short: "Print the signed evidence of a task's change, for `verify-evidence`", Args: kit.Takes,
		Long: "Prints the newest signed account of a verification of the task, byte for byte as it goes with the pull request. With -o it\n" +
			"is written to a file, and the line that checks it is printed.",
		Example: "  daybreak task evidence t_01k… -o proof.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if ok, err := far(cmd.Context(), env, args, func(c *client.Client, id task.ID) error {
				b, err := c.Evidence(cmd.Context(), id)
				if err != nil || out == "" {
					return giveEvidence(env, b, out, "", err)
				}
				me, err := c.Me(cmd.Context())
				return giveEvidence(env, b, out, me.Key, err)
			}); ok {
				return err
			}
			return on(cmd.Context(), env, args, func(a *app.App, id task.ID) error {
				b, err := evidenceOf(cmd.Context(), a, id)
				return giveEvidence(env, b, out, base64.StdEncoding.EncodeToString(a.PublicKey()), err)
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "file to write it to")
	return cmd
}

func evidenceOf(ctx context.Context, a *app.App, id task.ID) ([]byte, error) {
	events, err := a.Store.Events(ctx, id, 0, 0)
	if err != nil {
		return nil, err
	}
	sum, err := event.Fold(events)
	if err != nil {
		return nil, err
	}
	if sum.Signed == nil {
		return nil, &task.Error{Class: task.NotFound, Msg: sum.Unsigned()}
	}
	s, err := store.Load(ctx, a.Store, sum.Signed.Bundle)
	return []byte(s), err
}

// giveEvidence prints a bundle, or writes it and says how it is checked with the key.
func giveEvidence(env *kit.Env, b []byte, file, key string, err error) error {
	if err != nil {
		return err
	}
	if file == "" {
		if env.Width() > 0 { // a terminal would obey what the evidence quotes
			b = []byte(taskview.EscapeLines(string(b)))
		}
		_, err := env.Out.Write(b)
		return err
	}
	if err := os.WriteFile(file, b, 0o644); err != nil {
		return &task.Error{Class: task.Invalid, Msg: "cannot write the evidence", Err: err}
	}
	_, err = fmt.Fprintf(env.Out, "%s: %s\ncheck it: %s verify-evidence %s --key %s\n", file, evidence.Digest(b), kit.Program(), file, taskview.Escape(key))
	return err
}
