package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// collector is what runtimes on one host offer beside the seam.
type collector interface {
	Collect(ctx context.Context, alive func(sandbox.Handle) bool) ([]sandbox.Handle, error)
}

func (s *suite) recover(t *testing.T) {
	b := s.start(t, sandbox.Spec{Task: "t1", Purpose: "agent", Tree: s.tree(t, map[string]string{"a": "1", "b": "2"})})
	word := s.onHost(t, b, "recover-"+token(t))
	ok(t, b, "echo -n new > a; rm b; mkfifo /tmp/ready")
	background(t, b, "./probe daemon "+word+" /tmp/ready")
	ok(t, b, "cat /tmp/ready")
	again, err := s.rt.Recover(t.Context(), b.Handle().ID)
	if err != nil {
		t.Fatal(err)
	}
	if again.Guest() != nil {
		t.Error("a recovered sandbox has a guest")
	}
	if n := hostProcesses(t, word); n != 0 {
		t.Errorf("%d processes live after Recover", n)
	}
	if diff := cmp.Diff(b.Handle(), again.Handle()); diff != "" {
		t.Errorf("handle (-started +recovered):\n%s", diff)
	}
	if diff := cmp.Diff([]sandbox.Entry{file("a", "new"), gone("b")}, export(t, again).Entries); diff != "" {
		t.Errorf("change (-want +got):\n%s", diff)
	}
	if err := again.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.rt.Recover(t.Context(), b.Handle().ID); task.ClassOf(err) != task.NotFound {
		t.Errorf("recover a destroyed sandbox: %v", err)
	}
	if _, err := again.Export(t.Context(), sandbox.ExportLimits{}); task.ClassOf(err) != task.NotFound {
		t.Errorf("export a destroyed sandbox: %v", err)
	}
	for _, id := range []string{"", "..", "../../etc", strings.Repeat("0", 32), "x"} {
		if _, err := s.rt.Recover(t.Context(), id); err == nil {
			t.Errorf("recovered %q", id)
		}
	}
}

func (s *suite) lifecycle(t *testing.T) {
	rt := s.fresh(t)
	list := func() []sandbox.Handle {
		t.Helper()
		h, err := rt.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if h := list(); len(h) != 0 {
		t.Fatalf("a new runtime lists %v", h)
	}
	a := start(t, rt, sandbox.Spec{Task: "ta", Purpose: "agent"})
	b := start(t, rt, sandbox.Spec{Task: "tb", Purpose: "red"})
	got := list()
	if len(got) != 2 || a.Handle().Task != "ta" || b.Handle().Purpose != "red" || len(a.Handle().ID) != 32 || a.Handle().ID == b.Handle().ID {
		t.Fatalf("list: %+v", got)
	}
	if c, isCollector := rt.(collector); isCollector {
		dead, err := c.Collect(t.Context(), func(h sandbox.Handle) bool { return h.Task == "ta" })
		if err != nil || len(dead) != 1 || dead[0].ID != b.Handle().ID {
			t.Errorf("collected %v, %v", dead, err)
		}
		ok(t, a, "true")
	} else if err := b.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := b.Guest().Exec(t.Context(), execRequest("true")); err == nil {
		t.Error("a destroyed sandbox answers")
	}
	// A context that is done already stops a start and not a teardown.
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := rt.Start(done, sandbox.Spec{}); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a dead context: %v", err)
	}
	if err := a.Destroy(done); err != nil {
		t.Error(err)
	}
	if h := list(); len(h) != 0 {
		t.Errorf("left: %v", h)
	}
}

func (s *suite) refusals(t *testing.T) {
	rt := s.fresh(t)
	missing := filepath.Join(t.TempDir(), "missing")
	for _, spec := range []sandbox.Spec{
		{Tree: missing},
		{Home: sandbox.Layers{Lower: []string{missing}}},
		{Mounts: []sandbox.Mount{{Source: missing, Target: "/opt/x"}}},
	} {
		_, err := rt.Start(t.Context(), spec)
		var refused *sandbox.RefusedError
		if !errors.As(err, &refused) || refused.Layer == "" || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want one line that names the refused layer", spec, err)
		}
	}
	if _, err := rt.Start(t.Context(), sandbox.Spec{Tree: "relative"}); task.ClassOf(err) != task.Invalid {
		t.Errorf("relative tree: %v", err)
	}
	if h, err := rt.List(t.Context()); err != nil || len(h) != 0 {
		t.Errorf("refused sandboxes left %v, %v", h, err)
	}
}

func (s *suite) concurrent(t *testing.T) {
	const n = 8
	boxes, errs, ids := make([]sandbox.Sandbox, n), make([]error, n), make([]string, n)
	each := func(do func(i int) error) {
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := do(i); err != nil && errs[i] == nil {
					errs[i] = err
				}
			})
		}
		wg.Wait()
	}
	trees := make([]string, n)
	for i := range n {
		trees[i] = s.tree(t, map[string]string{"name": fmt.Sprint(i)})
	}
	each(func(i int) (err error) {
		boxes[i], err = s.rt.Start(t.Context(), sandbox.Spec{Task: fmt.Sprint("t", i), Tree: trees[i]})
		return err
	})
	each(func(i int) error {
		if boxes[i] == nil {
			return nil
		}
		res, err := boxes[i].Guest().Exec(t.Context(), execRequest("cat /proc/self/uid_map name; echo x > new"))
		if err != nil {
			return err
		}
		f := strings.Fields(string(res.Head))
		if len(f) < 4 || f[len(f)-1] != fmt.Sprint(i) {
			return fmt.Errorf("sandbox sees %q", res.Head)
		}
		if ids[i] = f[1]; s.differs(t, uidMap) {
			ids[i] = strings.Join(hostUIDs(t, boxes[i].Handle().ID), " ")
		}
		m, err := boxes[i].Export(t.Context(), sandbox.ExportLimits{})
		if err != nil || len(m.Entries) != 1 || m.Entries[0].Path != "new" {
			return fmt.Errorf("export: %v, %w", m, err)
		}
		return nil
	})
	each(func(i int) error {
		if boxes[i] == nil {
			return nil
		}
		return boxes[i].Destroy(context.Background())
	})
	seen := map[string]bool{}
	for i, err := range errs {
		if err != nil {
			t.Errorf("sandbox %d: %v", i, err)
		}
		if seen[ids[i]] {
			t.Errorf("two live sandboxes share the host ids from %s", ids[i])
		}
		seen[ids[i]] = true
	}
}
