package prover

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/setup"
	"github.com/daybreak-agent/daybreak/internal/snapshot"
)

// The operator's environment stays last; prepared programs come first on whatever PATH it set.
func TestLayered(t *testing.T) {
	l := snapshot.Layers{Digest: "d", Home: "/l/home", System: "/l/system", Env: []string{"VIRTUAL_ENV=/v"}, Path: []string{"/v/bin"}}
	for _, c := range []struct {
		name string
		own  []string
		want []string
	}{
		{"nothing set", nil, []string{"VIRTUAL_ENV=/v", "PATH=/v/bin:" + sandbox.Path}},
		{"a PATH of the operator's", []string{"A=1", "PATH=/opt/bin"}, []string{"VIRTUAL_ENV=/v", "PATH=/v/bin:/opt/bin", "A=1"}},
		{"the same variable", []string{"VIRTUAL_ENV=/other"}, []string{"VIRTUAL_ENV=/v", "PATH=/v/bin:" + sandbox.Path, "VIRTUAL_ENV=/other"}},
	} {
		spec := sandbox.Spec{Env: c.own}
		layered(&spec, l)
		if diff := cmp.Diff(c.want, spec.Env); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		if spec.Work.Lower != nil || len(spec.Home.Lower) != 1 || len(spec.System.Lower) != 1 {
			t.Errorf("%s: layers %+v", c.name, spec)
		}
	}
	spec := sandbox.Spec{Env: []string{"PATH=/opt/bin"}}
	layered(&spec, snapshot.Layers{})
	if diff := cmp.Diff(sandbox.Spec{Env: []string{"PATH=/opt/bin"}}, spec); diff != "" {
		t.Errorf("without layers: %s", diff)
	}
}

func TestSetupError(t *testing.T) {
	for want, err := range map[string]*SetupError{
		"setup failed: `npm ci` in web ended with exit code 1: no such thing": {
			Step: setup.Step{Run: "npm ci", Dir: "web"}, Reason: "ended with exit code 1", Tail: []string{"a", "no  such\tthing"},
		},
		"setup failed: ended: \ufffd[2Jgone \ufffdback": {Reason: "ended", Tail: []string{"\x1b[2Jgone \u202eback"}},
		"setup failed: `pip install .` ended with exit code 1: ERROR: Could not find a version that satisfies the requirement flit_core>=3 (from versions: none)": {
			Step: setup.Step{Run: "pip install ."}, Reason: "ended with exit code 1", Tail: []string{
				"  error: subprocess-exited-with-error", "  × pip subprocess to install build dependencies did not run successfully.", "  │ exit code: 1", "  ╰─> [2 lines of output]",
				"      ERROR: Could not find a version that satisfies the requirement flit_core>=3 (from versions: none)", "      ERROR: No matching distribution found for flit_core>=3",
				"      [end of output]", "  note: This error originates from a subprocess, and is likely not a problem with pip.",
			},
		},
		"setup failed: `npm ci` ended with exit code 1: npm error network request to http://x/left-pad failed, reason: connect ECONNREFUSED": {
			Step: setup.Step{Run: "npm ci"}, Reason: "ended with exit code 1", Tail: []string{
				"npm warn deprecated x", "npm error code ECONNREFUSED", "npm error syscall connect", "npm error network request to http://x/left-pad failed, reason: connect ECONNREFUSED",
				"npm error A complete log of this run can be found in: /x.log",
			},
		},
		"setup failed: pnpm is missing": {Reason: "pnpm is missing"},
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err.Error(), want)
		}
	}
}
