// Package doctor owns `daybreak doctor`: whether this machine can run tasks, and what to do
// where it cannot.
//
// Invariants: it changes nothing outside the data directory; each problem is one line with its
// remedy; it exits with 0 only when `run` would work.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"image/color"
	"os/exec"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/network"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// NewCmd makes the command.
func NewCmd(env *kit.Env) *cobra.Command {
	var model string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check whether this machine can run tasks", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return check(cmd.Context(), env, model) },
	}
	cmd.Flags().StringVar(&model, "model", "", "model to check (default: from the configuration)")
	return cmd
}

type report struct {
	env      *kit.Env
	problems int
}

func (r *report) good(name, text string) { r.line("✓", lipgloss.Green, name, text) }
func (r *report) note(name, text string) { r.line("!", lipgloss.Yellow, name, text) }

func (r *report) bad(name, text string) {
	r.problems++
	r.line("✗", lipgloss.Red, name, text)
}

func (r *report) line(mark string, c color.Color, name, text string) {
	if r.env.Width() > 0 {
		mark = lipgloss.NewStyle().Foreground(c).Render(mark)
	}
	_, _ = fmt.Fprintf(r.env.Out, "%s %-10s %s\n", mark, name, strings.Join(strings.Fields(text), " "))
}

func check(ctx context.Context, env *kit.Env, model string) error {
	r := &report{env: env}
	cfg, err := env.Config()
	if err != nil {
		r.bad("config", err.Error())
		return r.end()
	}
	a, err := env.Open(ctx, nil)
	if err != nil {
		r.bad("data", err.Error())
		return r.end()
	}
	defer func() { _ = a.Close() }()
	r.good("data", a.Dir)
	r.programs()
	r.sandbox(ctx, a)
	r.network(ctx, a, cfg.Network)
	if model == "" {
		model = cfg.Model
	}
	client, err := a.Model(model)
	if err != nil {
		r.bad("model", err.Error())
		return r.end()
	}
	info := client.Info()
	key := "key present"
	if p, _, err := cfg.SplitModel(model); err == nil && p.KeyFile == "" && p.KeyEnv == "" {
		key = "no key is set for it"
	}
	text := fmt.Sprintf("%s, %s; not called", model, key)
	if info.Context > 0 {
		text += fmt.Sprintf("; context %d tokens", info.Context)
	}
	r.good("model", text)
	if !info.Priced {
		r.note("price", "the catalogue has no price for "+model+": a budget in dollars cannot hold; set providers.<name>.price")
	}
	return r.end()
}

// network starts the package mirror and says what sandboxes may reach.
func (r *report) network(ctx context.Context, a *app.App, mode string) {
	confined, from, err := a.MirrorFacts(ctx)
	switch {
	case err != nil:
		r.bad("network", err.Error())
	case len(from) == 0:
		r.note("network", "no package registry is configured and none found: sandboxes reach nothing; set mirror in the configuration if dependencies are to be installed")
	default:
		when := "sandboxes reach package registries through the mirror, and nothing else"
		if mode == network.Offline {
			when = "only the sandbox that prepares dependencies reaches package registries, through the mirror"
		}
		r.good("network", when+": "+strings.Join(from, ", "))
		r.good("mirror", confined)
	}
}

func (r *report) end() error {
	if r.problems > 0 {
		return &kit.ExitError{Code: kit.Failure, Err: fmt.Errorf("%s tasks from running", kept(r.problems))}
	}
	return nil
}

func kept(n int) string {
	if n == 1 {
		return "the problem above keeps"
	}
	return fmt.Sprintf("the %d problems above keep", n)
}

// programs looks for what is run by name.
func (r *report) programs() {
	for _, p := range []struct{ name, why string }{
		{"git", "install git"},
		{"rg", "install ripgrep: the agent searches with it"},
		{"ctags", "install universal-ctags: the agent finds definitions with it"},
	} {
		if path, err := exec.LookPath(p.name); err != nil {
			r.bad(p.name, "not found; "+p.why)
		} else if p.name != "git" && !strings.HasPrefix(path, "/usr/") && !strings.HasPrefix(path, "/bin/") {
			r.bad(p.name, path+" is outside /usr, which is all that a sandbox sees of this machine; install it there")
		} else {
			r.good(p.name, path)
		}
	}
}

// sandbox inspects the host, then starts a real one.
func (r *report) sandbox(ctx context.Context, a *app.App) {
	rt, err := a.Runtime()
	if err != nil {
		r.bad("sandbox", err.Error())
		return
	}
	c := rt.Capabilities(ctx)
	for _, m := range c.Missing {
		r.bad("sandbox", m)
	}
	if len(c.Facts) > 0 {
		r.line("·", lipgloss.White, "host", strings.Join(c.Facts, ", "))
	}
	for _, n := range c.Notes {
		r.note("sandbox", n)
	}
	if len(c.Missing) > 0 {
		return
	}
	begin := time.Now()
	box, err := rt.Start(ctx, a.SandboxSpec("doctor"))
	if err != nil {
		r.bad("sandbox", err.Error())
		return
	}
	took := time.Since(begin)
	res, err := box.Guest().Exec(ctx, guest.ExecRequest{Shell: "rg --version >/dev/null && id -u"})
	err = errors.Join(err, box.Destroy(context.WithoutCancel(ctx)))
	switch {
	case err != nil:
		r.bad("sandbox", err.Error())
	case res.ExitCode != 0:
		r.bad("sandbox", fmt.Sprintf("a command in it failed: %s", res.Head))
	default:
		r.good("sandbox", fmt.Sprintf("%s, %s, cgroups %s: started and answered in %s", c.Runtime, c.Isolation, c.Cgroup, took.Round(time.Millisecond)))
		r.good("isolation", fmt.Sprintf("%s; %s", sandbox.Explain(c.Isolation), otherRuntime(c)))
	}
}

// otherRuntime says what else there is, for people who weigh isolation against speed.
func otherRuntime(c sandbox.Capabilities) string {
	if c.OwnKernel {
		return "most of the host's kernel is out of a command's reach"
	}
	return "for tenants that you do not trust set sandbox.runtime to runsc, which gives each sandbox a kernel of its own"
}
