package tasks

import (
	"fmt"
	"math"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/api/client"
	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

func budget(env *kit.Env) *cobra.Command {
	var (
		usd    float64
		steps  int
		tokens int64
		wall   time.Duration
	)
	cmd := &cobra.Command{
		Use: "budget TASK", Args: kit.Takes,
		Short:   "Raise the budget of a task that is under way or whose budget ran out, which then goes on",
		Long:    "The flags name new totals, within what budget_most of the configuration allows.",
		Example: "  daybreak task budget t_01k… --usd 20 --wall 2h",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !(usd >= 0 && usd <= 1e9) || steps < 0 || tokens < 0 || wall < 0 {
				return &task.Error{Class: task.Invalid, Msg: "a budget is negative or no number"}
			}
			asked := task.Limits{Steps: steps, Tokens: tokens, Wall: wall, Cost: task.MicroUSD(math.Round(usd * 1e6))}
			if ok, err := far(cmd.Context(), env, args, func(c *client.Client, id task.ID) error {
				return farBudget(cmd.Context(), env, c, id, asked)
			}); ok {
				return err
			}
			return on(cmd.Context(), env, args, func(a *app.App, id task.ID) error {
				_, again, err := store.Raise(cmd.Context(), a.Store, store.Raised{
					Task: id, Word: ulid.Make().String(), Who: person(), Owner: app.Owner(), Asked: asked, Most: a.Config.Most.Limits(), At: env.Now(),
				})
				if err != nil {
					return err
				}
				if !again {
					fmt.Fprintln(env.Out, "raised; the task takes it up at once, or when it goes on")
					return nil
				}
				t, err := a.Store.Task(cmd.Context(), id)
				if err != nil {
					return err
				}
				next := "with the same `daybreak run`"
				if t.Dispatch {
					next = "within a minute, where `daybreak serve` runs"
				}
				fmt.Fprintf(env.Out, "raised; the task goes on %s\n", next)
				return nil
			})
		},
	}
	f := cmd.Flags()
	f.Float64Var(&usd, "usd", 0, "dollars in all")
	f.IntVar(&steps, "steps", 0, "model calls in all")
	f.Int64Var(&tokens, "tokens", 0, "tokens in all")
	f.DurationVar(&wall, "wall", 0, "time at work in all, such as 2h")
	return cmd
}
