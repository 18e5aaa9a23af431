package guest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
)

// GW-06: a handle means something on its own connection alone. Another task's command cannot
// be waited for, killed or read through it, whatever number is tried.
func TestHandlesAreOfOneConnection_GW06(t *testing.T) {
	a, b := start(t), start(t)
	r := a.run(t, guest.ExecRequest{Shell: "echo secret-of-a; exec sleep 60", Background: true})
	if !r.Running {
		t.Fatalf("%+v", r)
	}
	for n := range 40 {
		if w, err := b.Wait(t.Context(), n, int64(time.Millisecond)); err == nil {
			t.Errorf("command %d of the other task: %+v", n, w)
		}
		if k, err := b.Kill(t.Context(), n); err == nil {
			t.Errorf("command %d of the other task was killed: %+v", n, k)
		}
	}
	if w, err := a.Wait(t.Context(), r.Proc, int64(time.Millisecond)); err != nil || !w.Running {
		t.Errorf("it did not live through that: %+v, %v", w, err)
	}
	if w := a.run(t, guest.ExecRequest{Shell: "true"}); w.Proc == r.Proc {
		t.Errorf("a number is given twice: %d", w.Proc)
	}
	for _, p := range []string{"", "../" + strings.TrimPrefix(a.logs, "/tmp/"), a.dir + "/x", a.logs} {
		if got, _, err := b.Fetch(t.Context(), p, 100); err == nil {
			t.Errorf("%q of the other task: %q", p, got)
		}
	}
}
