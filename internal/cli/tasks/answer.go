package tasks

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/api/client"
	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func answer(env *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use: "answer TASK TEXT...", Args: kit.Takes,
		Short: "Answer the question that a task waits with; it goes on with the answer",
		RunE: func(cmd *cobra.Command, args []string) error {
			if ok, err := far(cmd.Context(), env, args, func(c *client.Client, id task.ID) error {
				return farSay(cmd.Context(), env, c, id, "answer", words(args[1:]))
			}); ok {
				return err
			}
			return on(cmd.Context(), env, args, func(a *app.App, id task.ID) error {
				if err := a.Answer(cmd.Context(), id, person(), strings.Join(args[1:], " ")); err != nil {
					return err
				}
				fmt.Fprintln(env.Out, "answered; the task goes on within a minute, where `daybreak serve` runs")
				return nil
			})
		},
	}
}
