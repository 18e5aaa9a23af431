// Package evaluate owns `daybreak eval run`: historical fixes, and known ways to cheat, taken
// through the code of `run` with a scripted model.
//
// Invariants: every case goes through the same command, provider client, sandbox and verifier
// as a real task; the verdicts that are right for it are fixed before it runs; the operator's
// repositories are read, never written.
package evaluate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/daybreak-agent/daybreak/internal/cli/kit"
	"github.com/daybreak-agent/daybreak/internal/eval"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Options are the command's flags.
type Options struct {
	Instances, Repos string
	Only, Variants   []string
	Jobs             int
	JSON, Keep       bool
}

// NewCmd makes the command "run", to be added below "eval".
func NewCmd(env *kit.Env) *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "run --instances FILE --repos DIR",
		Short: "Replay historical fixes and known ways to cheat, and compare the verdicts",
		Long: "Replays each instance as a model that does what the people did (gold), leaves the fix out\n" +
			"(no_fix), writes a test that looks at nothing (weak_test) or makes the runner lie\n" +
			"(fake_runner). The model is scripted; everything else is what `daybreak run` does. The exit\n" +
			"code is 0 when every verdict is as it should be, 6 when one is not, 1 when a case did not run.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return evaluate(cmd.Context(), env, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.Instances, "instances", "", "file with one instance a line")
	f.StringVar(&o.Repos, "repos", "", "folder with the instances' repositories: owner+name, owner/name or name")
	f.StringSliceVar(&o.Only, "only", nil, "run these instances alone: ids, or their ends such as goldmark-568")
	f.StringSliceVar(&o.Variants, "variant", nil, fmt.Sprintf("play these variants alone: %s (default: all)", strings.Join(names(eval.Variants()), ", ")))
	f.IntVar(&o.Jobs, "jobs", 1, "how many instances run at once")
	f.BoolVar(&o.JSON, "json", false, "print one JSON object a line: each case, then the sums")
	f.BoolVar(&o.Keep, "keep", false, "without --dir: keep the temporary data, with every record, and say where it is")
	_ = cmd.MarkFlagRequired("instances") // the flags exist: they were defined above
	_ = cmd.MarkFlagRequired("repos")
	return cmd
}

func names(variants []eval.Variant) []string {
	out := make([]string, len(variants))
	for i, v := range variants {
		out[i] = string(v)
	}
	return out
}

func evaluate(ctx context.Context, env *kit.Env, o Options) error {
	instances, err := load(o.Instances, o.Only)
	if err != nil {
		return err
	}
	variants, err := choose(o.Variants)
	if err != nil {
		return err
	}
	dir, remove, err := directory(env, o.Keep)
	if err != nil {
		return err
	}
	defer remove()
	repos, err := filepath.Abs(o.Repos)
	if err != nil {
		return err
	}
	p := player{env: env, dir: dir, repos: repos}
	r := newReport(env.Out, o.JSON, env.Width())
	r.begin(dir, len(instances)*len(variants))
	each(ctx, max(o.Jobs, 1), instances, func(i eval.Instance) {
		for _, v := range variants { // one after the other: they share a baseline
			if ctx.Err() != nil {
				return
			}
			r.add(p.play(ctx, i, v))
		}
	})
	sums := r.end()
	if err := ctx.Err(); err != nil {
		return &kit.ExitError{Code: kit.Stopped, Err: errors.New("interrupted; cases that had not begun are missing")}
	}
	return sums.exit()
}

// each does one for all, n at once, in order, until ctx is done.
func each[T any](ctx context.Context, n int, all []T, one func(T)) {
	queue := make(chan T)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			for x := range queue {
				one(x)
			}
		})
	}
	for _, x := range all {
		select {
		case queue <- x:
		case <-ctx.Done():
		}
	}
	close(queue)
	wg.Wait()
}

func load(file string, only []string) ([]eval.Instance, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, &task.Error{Class: task.Invalid, Msg: "cannot read the instances", Err: err}
	}
	defer func() { _ = f.Close() }()
	all, err := eval.Load(f)
	if err != nil || len(only) == 0 {
		return all, err
	}
	var out []eval.Instance
	for _, want := range only { // in the order that was asked for
		n := len(out)
		for _, i := range all {
			if (i.ID == want || strings.HasSuffix(i.ID, "__"+want)) && !slices.ContainsFunc(out, func(o eval.Instance) bool { return o.ID == i.ID }) {
				out = append(out, i)
			}
		}
		if len(out) == n {
			return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("--only: there is no instance %q in %s", want, file)}
		}
	}
	return out, nil
}

func choose(asked []string) ([]eval.Variant, error) {
	if len(asked) == 0 {
		return eval.Variants(), nil
	}
	var out []eval.Variant
	for _, a := range asked {
		if !slices.Contains(eval.Variants(), eval.Variant(a)) {
			return nil, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("--variant: %q is none of %s", a, strings.Join(names(eval.Variants()), ", "))}
		}
		out = append(out, eval.Variant(a))
	}
	return out, nil
}

// directory is where the evaluation keeps its data: --dir, else a temporary folder. An
// evaluation never lands among the operator's own tasks.
func directory(env *kit.Env, keep bool) (dir string, remove func(), err error) {
	if env.Dir != "" {
		dir, err = env.Directory()
		return dir, func() {}, err
	}
	if dir, err = os.MkdirTemp("", "daybreak-eval-"); err != nil {
		return "", nil, &task.Error{Class: task.Unavailable, Msg: "cannot make a temporary folder", Fix: "use --dir", Err: err}
	}
	if keep {
		return dir, func() {}, nil
	}
	return dir, func() {
		if err := os.RemoveAll(dir); err != nil {
			fmt.Fprintln(env.Err, "daybreak: the temporary data is left: "+err.Error())
		}
	}, nil
}

// printJSON prints one line.
func printJSON(w io.Writer, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte(`{"type":"error"}`)
	}
	fmt.Fprintf(w, "%s\n", b)
}
