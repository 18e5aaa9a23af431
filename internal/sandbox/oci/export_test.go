package oci

import (
	"context"
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

// Alter changes the configuration of every later container: it takes a layer away.
func Alter(r *Runtime, f func(*specs.Spec)) { r.alter = f }

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
