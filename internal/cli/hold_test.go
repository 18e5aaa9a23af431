package cli

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/app"
	"github.com/daybreak-agent/daybreak/internal/cli/kit"
)

// The worker of an ordinary user starts this program again to hold its sandboxes' mounts.
func TestHolderArgsAreACommand(t *testing.T) {
	var out bytes.Buffer
	env := &kit.Env{In: &out, Out: &out, Err: &out, Getenv: func(string) string { return "" }, Now: time.Now}
	cmd, rest, err := newRoot(env).Find(app.HolderArgs())
	if err != nil || len(rest) != 0 || cmd.RunE == nil || !cmd.Hidden || !slices.Equal([]string{cmd.Parent().Name(), cmd.Name()}, app.HolderArgs()) {
		t.Errorf("%v leads to %v with %v left, %v", app.HolderArgs(), cmd, rest, err)
	}
}

// The worker starts this program again as the package mirror, and that once more inside its walls.
func TestMirrorArgsAreACommand(t *testing.T) {
	var out bytes.Buffer
	env := &kit.Env{In: &out, Out: &out, Err: &out, Getenv: func(string) string { return "" }, Now: time.Now}
	for _, args := range [][]string{app.MirrorArgs(), append(app.MirrorArgs(), "inside")} {
		cmd, rest, err := newRoot(env).Find(args)
		if err != nil || cmd.RunE == nil || !cmd.Hidden || cmd.Name() != app.MirrorArgs()[0] || cmd.Args(cmd, rest) != nil {
			t.Errorf("%v leads to %v with %v left, %v", args, cmd, rest, err)
		}
	}
}
