// Package verify owns `daybreak verify`: the verdict on anyone's change, in a terminal or in CI.
//
// Invariants: the verdict is the one a task would get, from the same verifier, sandbox and
// snapshots; the exit code follows the verdict alone; at most one form of the result goes to
// standard output, and wrong input is one line on standard error before anything runs.
package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/prover"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Options are the command's flags.
type Options struct {
	Repo, Base, Head      string
	Tests                 []string
	Exact, Hang, Race     bool
	JSON, JUnit, Markdown string // "": not asked for; "-": standard output; else a file
	Evidence              string // file for the signed account
}

// NewCmd makes the command.
func NewCmd(env *kit.Env) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "verify --base REV [--head REV] [--repo PATH|URL] [--test ID]...",
		Short: "Prove or refuse a change: does its test fail before, pass after, and break nothing?",
		Long: "Takes the difference between where --head left --base and --head, and gives the verdict that a task of Daybreak\n" +
			"would get: the changed tests must fail on the base for the right reason, pass with the change, and leave the rest\n" +
			"of the suite as it was; tests must not be lost, weakened or made to lie. Only commits are read, never the work\n" +
			"tree. Without --test the reproduction is what goes from fail to pass in the changed test files.\n\n" +
			"Exit codes: 0 verified; 6 not verified, or a person must judge a changed expectation; 2 wrong usage or input;\n" +
			"5 interrupted; 1 Daybreak or the machine failed.",
		Example: "  daybreak verify --base main --head my-fix\n  daybreak verify --base origin/main --junit=verify.xml --markdown=comment.md",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return &kit.ExitError{Code: kit.Usage, Err: err}
			}
			a, err := env.Open(cmd.Context(), nil)
			if err != nil {
				return err
			}
			defer func() { _ = a.Close() }()
			return verify(cmd.Context(), env, a, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Repo, "repo", ".", "repository: a path or a URL")
	f.StringVar(&o.Base, "base", "", "commit, branch or tag that the change is meant for")
	f.StringVar(&o.Head, "head", "HEAD", "commit, branch or tag with the change")
	f.StringArrayVar(&o.Tests, "test", nil, "a test that shows the bug, as its runner names it; may be given again")
	f.BoolVar(&o.Exact, "exact", false, "compare with --base itself, not with the commit where --head left it")
	f.BoolVar(&o.Hang, "hang", false, "the change is about a hang: a test that runs out of time may show it")
	f.BoolVar(&o.Race, "race", false, "the change is about a race: its tests run under the race detector where there is one, and up to ten times on the base until one fails")
	f.StringVar(&o.Evidence, "evidence", "", "write the signed account of the verification to a `FILE`; see verify-evidence")
	for name, to := range map[string]*string{"json": &o.JSON, "junit": &o.JUnit, "markdown": &o.Markdown} {
		f.StringVar(to, name, "", "write the result as "+map[string]string{"json": "one JSON object", "junit": "JUnit XML", "markdown": "Markdown for a comment"}[name]+" to standard output, or to a `FILE` with --"+name+"=FILE")
		f.Lookup(name).NoOptDefVal = "-"
	}
	return cmd
}

// check finds contradictions before anything runs.
func (o Options) check() error {
	if o.Base == "" {
		return errors.New("--base is needed, for example: daybreak verify --base main --head my-fix")
	}
	if o.machine() > 1 {
		return errors.New("of --json, --junit and --markdown only one can go to standard output; give the others a file, as in --junit=verify.xml")
	}
	for _, t := range o.Tests {
		if t == "" {
			return errors.New("--test is empty; leave it out to take what the changed test files show")
		}
	}
	return nil
}

// machine counts the forms that go to standard output.
func (o Options) machine() int {
	n := 0
	for _, to := range []string{o.JSON, o.JUnit, o.Markdown} {
		if to == "-" {
			n++
		}
	}
	return n
}

func verify(ctx context.Context, env *kit.Env, a *app.App, o Options) error {
	p, err := a.Prover()
	if err != nil {
		return err
	}
	repo := o.Repo
	if _, serr := os.Stat(repo); serr == nil {
		if repo, err = filepath.Abs(repo); err != nil {
			return err
		}
	}
	v := view{env: env, quiet: o.machine() > 0}
	out, err := p.Change(ctx, prover.Request{
		Repo: repo, Base: o.Base, Head: o.Head, Exact: o.Exact, Tests: o.Tests, Hang: o.Hang, Race: o.Race,
		Environment: a.Environment(), Found: func() { v.begin(o) }, Progress: v.stage,
	})
	if ctx.Err() != nil {
		return &kit.ExitError{Code: kit.Stopped, Err: errors.New("interrupted; nothing was decided")}
	}
	if err != nil {
		return err
	}
	var signed []byte
	if o.Evidence != "" {
		if signed, err = attest(ctx, a, repo, out); err != nil {
			return err
		}
		if err := write(env, o.Evidence, signed); err != nil {
			return err
		}
	}
	r := newResult(repo, o, out, signed)
	for _, f := range []struct {
		to     string
		render func(Result) ([]byte, error)
	}{{o.JSON, asJSON}, {o.JUnit, asJUnit}, {o.Markdown, asMarkdown}} {
		if f.to == "" {
			continue
		}
		b, err := f.render(r)
		if err != nil {
			return err
		}
		if err := write(env, f.to, b); err != nil {
			return err
		}
	}
	if !v.quiet {
		v.end(r)
	}
	return exitOf(out.Verdict)
}

func write(env *kit.Env, to string, b []byte) error {
	if to == "-" {
		_, err := env.Out.Write(b)
		return err
	}
	if err := os.WriteFile(to, b, 0o644); err != nil {
		return &task.Error{Class: task.Invalid, Msg: "the result cannot be written", Err: err, Fix: "name a file in a folder that is there"}
	}
	return nil
}

// exitOf is the exit code of a verdict. A changed expectation is for a person to judge first.
func exitOf(v task.Verdict) error {
	switch {
	case v.Kind == task.VerificationFail:
		return &kit.ExitError{Code: kit.Failure, Err: fmt.Errorf("%s", v.Reason)}
	case v.Kind.Accepted() && v.Kind != task.NeedsHuman:
		return nil
	}
	return &kit.ExitError{Code: kit.NotVerified}
}
