package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// mostCost is what verifying may cost beside the reproduction's runs, as a multiple of the suite's own time.
const mostCost = 2.2

// measureCost verifies changes of real projects: with w.changes, one "name=repository base head"
// each, and the operator's configuration, which says where the tool chains are.
func measureCost(ctx context.Context, w *world, t *table) error {
	if len(w.changes) == 0 {
		return errors.New("say what to verify: -changes 'name=repository base head', by semicolons")
	}
	for _, c := range w.changes {
		name, rest, _ := strings.Cut(c, "=")
		f := strings.Fields(rest)
		if len(f) != 3 {
			return fmt.Errorf("%q is no name=repository base head", c)
		}
		// The first ends after one run: it is there for the base's ledger and build.
		if _, err := w.verify(ctx, f, "--test", "no_such_test_of_the_bench"); err != nil {
			return err
		}
		v, err := w.verify(ctx, f)
		if err != nil {
			return err
		}
		cost, err := costOf(v)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		t.value("verifying "+name+", of the suite's own time", fmt.Sprintf("%.1f×", cost.ratio()), fmt.Sprintf("≤ %.1f×", mostCost), cost.ratio() <= mostCost, cost.beside())
	}
	return nil
}

// cost is what P0 to P5 took with the base's ledger and build there.
type cost struct {
	all          time.Duration
	suite        time.Duration // the suite's run in P5 and the build of the change for it: what anybody pays who tests the change once; not the older tests'
	reproduction time.Duration // its runs, and the build of base + tests for them
	built        time.Duration // of the suite's time: the build
	phases       []string
}

// ratio is all but the reproduction's runs to the suite.
func (c cost) ratio() float64 { return float64(c.all-c.reproduction) / float64(c.suite) }

func (c cost) beside() string {
	return fmt.Sprintf("suite %s (build %s); runs of the reproduction %s; %s", millis(c.suite), millis(c.built), millis(c.reproduction), strings.Join(c.phases, ", "))
}

func costOf(v task.Verdict) (cost, error) {
	var c cost
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, p := range v.Phases {
		if p.Phase == "P0" || p.Phase == "P1" || p.Phase > "P5" {
			continue // of the base's ledger, or bounded by itself
		}
		var build time.Duration
		for _, r := range p.Runs {
			if r.Outcome == "built" {
				build += ms(r.Millis)
			}
			switch {
			case p.Phase == "P5" && p.Name == "older tests":
			case p.Phase == "P5":
				c.suite += ms(r.Millis)
			default:
				c.reproduction += ms(r.Millis)
			}
		}
		c.all += ms(p.Millis)
		if p.Phase == "P5" && p.Name != "older tests" {
			c.built = build
		}
		c.phases = append(c.phases, fmt.Sprintf("%s %s (build %s)", p.Phase, millis(ms(p.Millis)), millis(build)))
	}
	if !v.Kind.Accepted() || c.suite == 0 {
		return c, fmt.Errorf("the change is not verified (%s: %s), so there is no whole cost", v.Kind, v.Reason)
	}
	return c, nil
}

func (w *world) verify(ctx context.Context, change []string, more ...string) (task.Verdict, error) {
	file := filepath.Join(w.dir, "verdict.json")
	args := []string{"--dir", filepath.Join(w.dir, "verify"), "verify", "--repo", change[0], "--exact", "--base", change[1], "--head", change[2], "--json=" + file}
	if w.toolchains != "" {
		args = append([]string{"--config", w.toolchains}, args...)
	}
	cmd := exec.CommandContext(ctx, w.daybreak(), append(args, more...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(w.runc())+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 6) {
		return task.Verdict{}, fmt.Errorf("verify %s: %w: %s", change[0], err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return task.Verdict{}, err
	}
	var got struct {
		Document task.Verdict `json:"document"`
	}
	err = json.Unmarshal(b, &got)
	return got.Document, err
}
