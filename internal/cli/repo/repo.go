// Package repo owns `daybreak repo`: registering a repository of a forge, and what is looked at
// before that.
//
// Invariants: a repository is registered under the forge's own number, which every later call is
// held to; what speaks against it is said in plain words, and what would hand secrets to an
// agent's code is refused until a person accepts it in so many words; nothing is changed on the
// forge.
package repo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/cli/taskview"
	"github.com/daybreak-agent/daybreak/internal/forge"
	"github.com/daybreak-agent/daybreak/internal/git"
	"github.com/daybreak-agent/daybreak/internal/intake"
	"github.com/daybreak-agent/daybreak/internal/policy/pipelines"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// NewCmd makes the command.
func NewCmd(env *kit.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "repo", Short: "Register repositories of the configured forges; see, prepare and forget what is kept of them"}
	cmd.AddCommand(add(env), list(env), remove(env), prepare(env), forget(env))
	return cmd
}

func add(env *kit.Env) *cobra.Command {
	var label string
	var accept bool
	cmd := &cobra.Command{
		Use: "add URL", Args: kit.Takes,
		Short: "Register a repository, after a look at who may steer, what protects it and what its CI would do",
		Long: "Looks at what Daybreak's user may do, how the default branch is protected, who may steer, and what the repository's CI\n" +
			"would do with branches below daybreak/ and with which secrets. Refuses what would hand secrets to an agent's code or\n" +
			"lets nobody stand between it and the default branch; --accept registers it all the same.",
		Example: "  daybreak repo add https://git.example.com/shop/cart",
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), env, func(a *app.App) error { return register(cmd.Context(), env, a, args[0], label, accept) })
		},
	}
	cmd.Flags().StringVar(&label, "label", "", "label that asks for a task (default: intake.label)")
	cmd.Flags().BoolVar(&accept, "accept", false, "register although something speaks against it")
	return cmd
}

func with(ctx context.Context, env *kit.Env, do func(*app.App) error) error {
	a, err := env.Open(ctx, nil)
	if err != nil {
		return err
	}
	return errors.Join(do(a), a.Close())
}

func register(ctx context.Context, env *kit.Env, a *app.App, url, label string, accept bool) error {
	fs, err := a.Forges()
	if err != nil {
		return err
	}
	h, ok := fs.Host(url)
	if !ok {
		if _, err := os.Stat(url); err == nil {
			return &task.Error{Class: task.Invalid, Msg: url + " is a directory of this machine, which needs no adding", Fix: "name it where it is used, as in `daybreak run --repo " + url + "`"}
		}
		return &task.Error{Class: task.Invalid, Msg: url + " is on none of the configured forges", Fix: "add its forge to the configuration, under forges"}
	}
	s, err := h.Standing(ctx, url)
	if err != nil {
		return err
	}
	name := nameOf(fs, h)
	if label == "" {
		label = a.Config.Intake.Label
	}
	r := intake.Repository{
		Forge: name, ID: s.Repository.ID, Path: s.Repository.Path, URL: s.Repository.Clone, Bot: s.Bot.Name, Label: label, Added: a.Now().UTC(),
	}
	a.Registry().Try(r) // its files are read with the credential that it will have
	ci, err := lookAtCI(ctx, env, a, s.Repository)
	if err != nil {
		return err
	}
	found := append(judge(s), ci...)
	say(env, s, found)
	if against := slices.ContainsFunc(found, func(f pipelines.Finding) bool { return f.Severity == pipelines.Refuse }); against && !accept {
		return &kit.ExitError{Code: kit.Failure, Err: fmt.Errorf("%s was not registered; put right what is refused above, or repeat with --accept", s.Repository.Path)}
	}
	if err := a.Registry().Add(ctx, r); err != nil {
		return err
	}
	fmt.Fprintf(env.Out, "\nregistered %s as number %s of %s; the label %q on an issue asks for a task\n", r.Path, r.ID, r.Forge, r.Label)
	fmt.Fprintf(env.Out, "webhook: POST to /hooks/%s of `daybreak serve`, as JSON, with the secret of that forge; without one the poller finds issues every %s\n", r.Forge, a.Config.Intake.Poll)
	return nil
}

func nameOf(fs *app.Forges, h forge.Host) string {
	for _, name := range slices.Sorted(maps.Keys(fs.Hosts)) {
		if fs.Hosts[name] == h {
			return name
		}
	}
	return h.Name()
}

// judge says what the forge's own settings mean.
func judge(s forge.Standing) []pipelines.Finding {
	var out []pipelines.Finding
	find := func(sev pipelines.Severity, fix, format string, args ...any) {
		out = append(out, pipelines.Finding{Severity: sev, Text: fmt.Sprintf(format, args...), Fix: fix})
	}
	for _, m := range s.Missing {
		find(pipelines.Refuse, "give it that", "%s lacks %s", s.Bot.Name, m)
	}
	for _, m := range s.TooMuch {
		find(pipelines.Warn, "give it write access and nothing more", "%s has more rights than it needs: %s", s.Bot.Name, m)
	}
	if s.Repository.Archived {
		find(pipelines.Refuse, "", "the repository is archived")
	}
	p, branch := s.Protection, s.Repository.DefaultBranch
	switch {
	case !p.On:
		find(pipelines.Refuse, "protect it, with at least one approval by a person", "the branch %s is not protected: %s could push to it, if its token were stolen", branch, s.Bot.Name)
	case p.BotPushes:
		find(pipelines.Refuse, "take it out of those who may push", "%s may push to the protected branch %s", s.Bot.Name, branch)
	case p.Approvals == 0:
		find(pipelines.Warn, "require at least one approval", "a merge into %s needs no approval", branch)
	case !p.Stale:
		find(pipelines.Warn, "dismiss approvals when new commits come", "an approval stays good for commits that come after it, or the forge does not say")
	}
	if p.On && p.BotMerges && p.Approvals == 0 {
		find(pipelines.Warn, "take it out of those who may merge", "%s could merge; Daybreak has no code that does, but a stolen token would", s.Bot.Name)
	}
	if len(s.Steer) == 0 {
		find(pipelines.Warn, "", "the forge names nobody else who may write: nobody can ask for a task")
	}
	for _, u := range s.Unknown {
		find(pipelines.Note, "", "the forge does not say %s", u)
	}
	return out
}

// lookAtCI reads the CI files of the default branch out of the mirror, where what it fetches stays
// for the first task.
func lookAtCI(ctx context.Context, env *kit.Env, a *app.App, r forge.Repository) ([]pipelines.Finding, error) {
	if r.DefaultBranch == "" {
		return nil, nil
	}
	bar := newBar(env)
	store := a.Snapshots.Telling(bar.at)
	defer store.Release()
	gitdir, commit, _, err := store.Fetch(ctx, r.Clone, r.DefaultBranch)
	bar.end()
	if task.ClassOf(err) == task.NotFound {
		return []pipelines.Finding{{Severity: pipelines.Note, Text: "the repository has no commits yet"}}, nil
	}
	if err != nil {
		return nil, err
	}
	entries, err := a.Git.ListTree(ctx, gitdir, commit)
	if err != nil {
		return nil, err
	}
	var out []pipelines.Finding
	for _, e := range entries {
		if !pipelines.Is(e.Path) || e.Mode == git.ModeLink {
			continue
		}
		b, _, err := a.Git.File(ctx, gitdir, commit, e.Path, 1<<20+1)
		if err != nil && task.ClassOf(err) != task.Invalid {
			return nil, err
		}
		if err != nil {
			out = append(out, pipelines.Finding{Severity: pipelines.Refuse, Path: e.Path, Text: "the file is too large to be judged", Fix: "read it yourself"})
			continue
		}
		out = append(out, pipelines.Look(e.Path, b, git.BranchPrefix)...)
	}
	return out, nil
}

func say(env *kit.Env, s forge.Standing, found []pipelines.Finding) {
	fmt.Fprintf(env.Out, "%s (number %s), as %s, who may %s\n", s.Repository.Path, s.Repository.ID, s.Bot.Name, s.May)
	if len(s.Steer) > 0 {
		fmt.Fprintf(env.Out, "may steer: %s\n", strings.Join(s.Steer, ", "))
	}
	if len(s.Secrets) > 0 {
		fmt.Fprintf(env.Out, "secrets that workflows can ask for: %s\n", strings.Join(s.Secrets, ", "))
	}
	word := map[pipelines.Severity]string{pipelines.Refuse: "refused", pipelines.Warn: "warning", pipelines.Note: "note"}
	for _, f := range found {
		line := fmt.Sprintf("%-8s ", word[f.Severity])
		if f.Path != "" {
			line += f.Path + ": "
		}
		line += f.Text
		if f.Fix != "" {
			line += "; " + f.Fix
		}
		fmt.Fprintln(env.Out, taskview.Escape(line))
	}
}

func list(env *kit.Env) *cobra.Command {
	var disk bool
	cmd := &cobra.Command{
		Use: "ls", Args: cobra.NoArgs, Short: "List the registered repositories, or what is kept of any on disk",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), env, func(a *app.App) error {
				if disk {
					return listKept(cmd.Context(), env, a)
				}
				rs, err := a.Registry().List(cmd.Context())
				if err != nil {
					return err
				}
				if len(rs) == 0 {
					fmt.Fprintln(env.Out, "no repositories are registered; register one of a forge with `daybreak repo add URL`")
					return nil
				}
				w := tabwriter.NewWriter(env.Out, 0, 4, 2, ' ', 0)
				if env.Width() > 0 {
					fmt.Fprintln(w, "FORGE\tNUMBER\tREPOSITORY\tLABEL\tAS")
				}
				for _, r := range rs {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", r.Forge, r.ID, r.URL, r.Label, r.Bot)
				}
				return w.Flush()
			})
		},
	}
	cmd.Flags().BoolVar(&disk, "disk", false, "list snapshots, prepared dependencies and mirrors: what each holds, took to make and takes on disk, when it was last used, and what is not as it seems")
	return cmd
}

func remove(env *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use: "rm URL", Args: kit.Takes, Short: "Forget a repository: nothing more is read from it or written to it",
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd.Context(), env, func(a *app.App) error {
				gone, err := a.Registry().Remove(cmd.Context(), args[0])
				if err == nil && !gone {
					err = &task.Error{Class: task.NotFound, Msg: args[0] + " is not registered", Fix: "see `daybreak repo ls`; what is kept of it on disk goes with `daybreak repo forget`"}
				}
				if err == nil {
					fmt.Fprintf(env.Out, "%s is no longer registered; what is kept of it on disk goes with `daybreak repo forget`\n", taskview.Escape(args[0]))
				}
				return err
			})
		},
	}
}
