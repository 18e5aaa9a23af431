package oci

import (
	"context"
	"slices"
	"testing"
	"time"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// AwaitEmpty waits until a sandbox has no process, with no help to that end.
func AwaitEmpty(t *testing.T, r *Runtime, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	g := group{r.groups, "/daybreak/" + id}
	if err := poll(ctx, func() (bool, error) { return len(g.pids()) == 0, nil }); err != nil {
		t.Errorf("sandbox %s outlives its worker: processes %v", id, g.pids())
	}
}

// Alter changes the configuration of every later container: it takes a layer away, beside the
// one that the build goes without.
func Alter(r *Runtime, f func(*specs.Spec)) {
	base := layersOff()
	r.alter = func(s *specs.Spec) {
		for _, off := range []func(*specs.Spec){base, f} {
			if off != nil {
				off(s)
			}
		}
	}
}

// WithoutLandlock takes the fence of Landlock away.
func WithoutLandlock(s *specs.Spec) {
	if i := slices.Index(s.Process.Args, landlockFlag); i >= 0 {
		s.Process.Args = slices.Delete(s.Process.Args, i, i+4)
	}
}

// GainPrivileges takes "no new privileges" away, and Landlock, which the kernel gives to
// nobody else.
func GainPrivileges(s *specs.Spec) {
	s.Process.NoNewPrivileges = false
	WithoutLandlock(s)
}

// WithoutLimit lets a sandbox have user namespaces below its own.
func WithoutLimit(s *specs.Spec) { s.Hooks = nil }

// AwaitNoHolder waits until no holder answers.
func AwaitNoHolder(t *testing.T, r *Runtime) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	err := poll(ctx, func() (bool, error) {
		conn, err := r.holder.dial()
		if err == nil {
			conn.Close()
		}
		return err != nil, nil
	})
	if err != nil {
		t.Error("the holder lives")
	}
}
