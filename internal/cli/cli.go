// Package cli assembles the command line from one package per command.
//
// Invariants: it holds no behaviour of its own beyond the flags that all commands share.
package cli

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
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
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !started { // a flag or an argument: no command has run
		err = wrongUse(cmd, err.Error())
	}
	env.Print(err)
	return kit.CodeOf(err)
}

// wrongUse says what is wrong and where the command's use is told.
func wrongUse(c *cobra.Command, what string) error {
	return &kit.ExitError{Code: kit.Usage, Err: fmt.Errorf("%s; see `%s --help`", what, c.CommandPath())}
}

// markGroups makes every command that only has others below it print its help, or refuse a name that
// is none of theirs.
func markGroups(cmd *cobra.Command) {
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args, cmd.SuggestionsMinimumDistance = cobra.ArbitraryArgs, 2
		cmd.RunE = func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return c.Help()
			}
			what := fmt.Sprintf("unknown command %q for %q", args[0], c.CommandPath())
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				what += fmt.Sprintf("; did you mean `%s %s`?", c.CommandPath(), near[0])
			}
			return wrongUse(c, what)
		}
	}
	for _, c := range cmd.Commands() {
		markGroups(c)
	}
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
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .Runnable}}", "{{if and .Runnable (not .HasAvailableSubCommands)}}", 1))
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
	markGroups(root)
	return root
}
