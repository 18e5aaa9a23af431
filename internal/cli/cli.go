// Package cli assembles the command line from one package per command.
//
// Invariants: it holds no behaviour of its own beyond the flags that all commands share.
package cli

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/cli/demo"
	"github.com/daybreak-agent/daybreak/internal/cli/doctor"
	"github.com/daybreak-agent/daybreak/internal/cli/evaluate"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/mirrors"
	"github.com/daybreak-agent/daybreak/internal/cli/modelserve"
	"github.com/daybreak-agent/daybreak/internal/cli/outcomes"
	"github.com/daybreak-agent/daybreak/internal/cli/repo"
	"github.com/daybreak-agent/daybreak/internal/cli/run"
	"github.com/daybreak-agent/daybreak/internal/cli/sandboxes"
	"github.com/daybreak-agent/daybreak/internal/cli/serve"
	"github.com/daybreak-agent/daybreak/internal/cli/tasks"
	"github.com/daybreak-agent/daybreak/internal/cli/tokens"
	"github.com/daybreak-agent/daybreak/internal/cli/verify"
)

// Main runs the command line and returns the exit code.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer, getenv func(string) string) int {
	env := &kit.Env{In: in, Out: out, Err: errOut, Getenv: getenv, Now: time.Now}
	root := newRoot(env)
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	started := false
	markStart(root, &started)
	err := root.ExecuteContext(ctx)
	env.Print(err)
	if err != nil && !started {
		return kit.Usage // an unknown command, a flag or an argument: no command has run
	}
	return kit.CodeOf(err)
}

// markStart makes every command below cmd say that it has begun.
func markStart(cmd *cobra.Command, started *bool) {
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(c *cobra.Command, args []string) error {
			*started = true
			return run(c, args)
		}
	}
	for _, c := range cmd.Commands() {
		markStart(c, started)
	}
}

// version is the module's, or the commit it was built from.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "development build"
}

func newRoot(env *kit.Env) *cobra.Command {
	root := &cobra.Command{
		Use:           "daybreak",
		Short:         "A self-hosted background coding agent: an issue goes in, a proven pull request comes out",
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &kit.ExitError{Code: kit.Usage, Err: fmt.Errorf("%w; see `%s --help`", err, c.CommandPath())}
	})
	f := root.PersistentFlags()
	f.StringVar(&env.Dir, "dir", "", "where Daybreak keeps its data (default: the XDG state directory)")
	f.StringVar(&env.ConfigPath, "config", "", "configuration file")
	f.StringVar(&env.ServerURL, "server", "", "service that task and outcomes commands speak to, with DAYBREAK_TOKEN (default: $DAYBREAK_SERVER, else this machine's store)")
	f.BoolVar(&env.Verbose, "verbose", false, "log more to standard error")
	models := &cobra.Command{Use: "model", Short: "Tools for model transcripts"}
	models.AddCommand(modelserve.NewCmd(env))
	evals := &cobra.Command{Use: "eval", Short: "Replay historical fixes against the verifier"}
	evals.AddCommand(evaluate.NewCmd(env), evaluate.NewCasesCmd(env))
	root.AddCommand(demo.NewCmd(env), run.NewCmd(env), serve.NewCmd(env), serve.NewWorkerCmd(env), verify.NewCmd(env), verify.NewEvidenceCmd(env), verify.NewKeyCmd(env), tasks.NewCmd(env), outcomes.NewCmd(env), repo.NewCmd(env), tokens.NewCmd(env), tokens.NewLinkCmd(env), doctor.NewCmd(env), sandboxes.NewCmd(env), mirrors.NewCmd(env), models, evals)
	return root
}
