package sandboxes

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/guest/probe"
	"github.com/daybreak-agent/daybreak/internal/network"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

func selfTest(env *kit.Env) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "probe", Short: "Try from inside a fresh sandbox what it must not allow, and say what happened", Args: cobra.NoArgs,
		Long: `Starts a sandbox of this configuration, with its runtime, mounts and environment, and tries from inside
what it must not allow: to see the host's files, sockets and processes, to gain privileges, to make namespaces, to call
what ordinary programs have no use for, to reach a network. Every attempt is harmless where it succeeds, and no packet is
sent where there is a way out. Exit code 1 says that an outcome was unexpected.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return with(cmd.Context(), env, func(a *app.App) error { return probeOne(cmd.Context(), env, a, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line, the result last")
	return cmd
}

// probeResult is the last line of --json.
type probeResult struct {
	Type       string   `json:"type"`
	Runtime    string   `json:"runtime"`
	Isolation  string   `json:"isolation"`
	Means      string   `json:"means"` // what the isolation is, in words
	Cgroup     string   `json:"cgroup"`
	Profile    string   `json:"profile"` // digest, as in the record of a task
	Limits     string   `json:"limits"`
	Attempts   int      `json:"attempts"`
	Unexpected int      `json:"unexpected"`
	Notes      []string `json:"notes"`
}

func probeOne(ctx context.Context, env *kit.Env, a *app.App, asJSON bool) (err error) {
	rt, err := a.Runtime()
	if err != nil {
		return err
	}
	spec := a.SandboxSpec("probe")
	shut, err := openMirror(ctx, a, &spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, shut(context.WithoutCancel(ctx))) }()
	c := rt.Capabilities(ctx)
	box, err := rt.Start(ctx, spec)
	if err != nil {
		return err
	}
	seen, err := observe(ctx, box, spec)
	if err = errors.Join(err, box.Destroy(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	findings := probe.Judge(seen, factsOf(spec, c))
	info := box.Info()
	res := probeResult{
		Type: "result", Runtime: info.Runtime, Isolation: info.Isolation, Means: sandbox.Explain(info.Isolation), Cgroup: c.Cgroup,
		Profile: info.Profile, Limits: info.Limits, Attempts: len(findings), Notes: append([]string{}, c.Notes...),
	}
	for _, f := range findings {
		if !f.Expected {
			res.Unexpected++
		}
	}
	show := showTable
	if asJSON {
		show = showJSON
	}
	if err := show(env, findings, res); err != nil {
		return err
	}
	if res.Unexpected > 0 {
		return &kit.ExitError{Code: kit.Failure, Err: fmt.Errorf("%d of %d attempts had an outcome that was not expected", res.Unexpected, res.Attempts)}
	}
	return nil
}

// openMirror gives the sandbox the way to the package registries that an agent's has. What the
// self-test asks of it is refused before any registry hears of it, and is no task's to record.
func openMirror(ctx context.Context, a *app.App, spec *sandbox.Spec) (shut func(context.Context) error, err error) {
	none := func(context.Context) error { return nil }
	if a.Config.Network == network.Offline {
		return none, nil
	}
	reach, err := a.Network()
	if err != nil {
		return nil, err
	}
	way, err := reach.Open(ctx, network.Request{
		Task: "t_probe", Purpose: spec.Purpose, Mode: network.Registries,
		Record: func(context.Context, []network.Entry) error { return nil },
	})
	if err != nil {
		return nil, fmt.Errorf("open the way to the package registries: %w", err)
	}
	if way == nil {
		return none, nil
	}
	spec.Forwards = append(spec.Forwards, way.Forwards...)
	spec.Files = append(spec.Files, way.Files...)
	spec.Env = append(spec.Env, way.Env...)
	return way.Close, nil
}

// observe runs the self-test inside.
func observe(ctx context.Context, box sandbox.Sandbox, spec sandbox.Spec) ([]probe.Observation, error) {
	args := []string{sandbox.GuestPath, "probe"}
	for _, f := range spec.Forwards {
		args = append(args, "--port", strconv.Itoa(f.Port))
	}
	res, err := box.Guest().Exec(ctx, guest.ExecRequest{Argv: args, Head: 1 << 20})
	switch {
	case err != nil:
		return nil, err
	case res.Error != "":
		return nil, fmt.Errorf("the self-test did not start: %s", res.Error)
	}
	return probe.Decode(bytes.NewReader(res.Head)) // whatever its exit code: one cut short has no end
}

// factsOf is what the host knows of such a sandbox.
func factsOf(spec sandbox.Spec, c sandbox.Capabilities) probe.Facts {
	f := probe.Facts{
		OwnKernel: c.OwnKernel, Rootless: c.Rootless, Namespaces: probe.HostNamespaces(),
		Writable: map[string]int64{
			sandbox.WorkDir: spec.Limits.WorkBytes, sandbox.HomeDir: spec.Limits.HomeBytes, sandbox.TempDir: spec.Limits.TempBytes, "/dev/shm": 64 << 20,
		},
	}
	for _, kv := range spec.Env {
		name, _, _ := strings.Cut(kv, "=")
		f.Env = append(f.Env, name)
	}
	for _, m := range spec.Mounts {
		f.Mounts = append(f.Mounts, m.Target)
	}
	for _, w := range spec.Forwards {
		f.Ports = append(f.Ports, w.Port)
	}
	return f
}

func showJSON(env *kit.Env, findings []probe.Finding, res probeResult) error {
	enc := json.NewEncoder(env.Out)
	for _, f := range findings {
		if err := enc.Encode(struct {
			Type string `json:"type"`
			probe.Finding
		}{"attempt", f}); err != nil {
			return err
		}
	}
	return enc.Encode(res)
}

func showTable(env *kit.Env, findings []probe.Finding, res probeResult) error {
	w := tabwriter.NewWriter(env.Out, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "%s, %s: %s\n", res.Runtime, res.Isolation, res.Means)
	fmt.Fprintf(w, "limits by cgroup %s: %s\nprofile %s\n", res.Cgroup, res.Limits, res.Profile)
	area := ""
	for _, f := range findings {
		if f.Area != area {
			area = f.Area
			fmt.Fprintf(w, "\n%s\n", strings.ToUpper(area))
		}
		mark, expected := "✓", ""
		if !f.Expected {
			mark, expected = "✗", "   UNEXPECTED, wanted: "+f.Want
		}
		fmt.Fprintf(w, "%s %s\t%s%s\n", mark, f.Tried, cmp.Or(f.Got, "nothing"), expected)
	}
	for _, n := range res.Notes {
		fmt.Fprintf(w, "\n! %s\n", n)
	}
	fmt.Fprintf(w, "\n%d attempts, %d with an outcome that was not expected\n", res.Attempts, res.Unexpected)
	return w.Flush()
}
