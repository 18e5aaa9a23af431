// Package mirrors owns the hidden command that is the package mirror's process.
//
// Invariants: it reads no configuration and no environment; what it needs it is given on the
// channel of whoever started it.
package mirrors

import (
	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
)

// NewCmd builds `daybreak mirror`.
func NewCmd(env *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use:    app.MirrorArgs()[0],
		Short:  "The package mirror's process, started by the worker",
		Hidden: true,
		Args:   cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.RunMirror(cmd.Context(), args, env.Err)
		},
	}
}
