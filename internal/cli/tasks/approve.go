package tasks

import (
	"fmt"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/api/client"
	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func approve(env *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use: "approve TASK", Args: kit.Takes,
		Short: "Let the verified change of a task that waits for it be published (see publish: hold)",
		Long: "With publish: hold a verified change waits until a person has looked at it: `daybreak task diff TASK` shows what would be\n" +
			"published, this lets it go on, and `daybreak task stop TASK` declines it. The approval is for that change alone.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if ok, err := far(cmd.Context(), env, args, func(c *client.Client, id task.ID) error {
				return farSay(cmd.Context(), env, c, id, "approve", "")
			}); ok {
				return err
			}
			return on(cmd.Context(), env, args, func(a *app.App, id task.ID) error {
				files, err := a.Approve(cmd.Context(), id, person())
				if err != nil {
					return err
				}
				t, err := a.Store.Task(cmd.Context(), id)
				if err != nil {
					return err
				}
				next := "the same `daybreak run` publishes it"
				if t.Dispatch {
					next = "`daybreak serve` publishes it within a minute"
				}
				fmt.Fprintf(env.Out, "approved, %d files changed; %s\n", files, next)
				return nil
			})
		},
	}
}

// person is who gives the word at this command line.
func person() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}
