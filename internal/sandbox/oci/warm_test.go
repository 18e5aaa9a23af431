package oci_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/guest"
	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/sandbox/warm"
)

// until looks until it holds, for as long as the test may take.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	limit, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	for !holds() {
		select {
		case <-look.C:
		case <-limit.Done():
			t.Fatal(what)
		}
	}
}

// A real sandbox that was ready is handed over: it is found under its task, has its way to its
// own service and to no other, its own file, and goes with the pool only if nobody took it.
func TestWarmSandbox(t *testing.T) {
	rt := newRuntime(t, nil)
	dir := t.TempDir()
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	pool := warm.New(warm.Config{
		Runtime: rt, Dir: filepath.Join(dir, "w"), Count: 2, Memory: 256 << 20, Idle: 15 * time.Minute, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	serve := func(text string) string {
		short, err := os.MkdirTemp("", "s")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(short) })
		at := filepath.Join(short, "s")
		ln, err := net.Listen("unix", at)
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) })}
		go func() { _ = srv.Serve(ln) }()
		t.Cleanup(func() { srv.Close() })
		if err := os.Chmod(at, 0o666); err != nil {
			t.Fatal(err)
		}
		return at
	}
	for i := range 2 {
		text := fmt.Sprintf("service %d", i)
		spec := sandbox.Spec{Task: fmt.Sprint("t", i), Purpose: "green", Tree: tree, Forwards: []sandbox.Forward{{Socket: serve(text), Port: 2000}}}
		spec.Files = []sandbox.File{{Path: "/etc/daybreak/front.pem", Text: []byte("certificate of " + text), Own: true}}
		b, err := pool.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		all, err := rt.List(t.Context())
		if err != nil || !slices.ContainsFunc(all, func(h sandbox.Handle) bool {
			return h.ID == b.Handle().ID && h.Task == spec.Task && h.Purpose == "green"
		}) {
			t.Errorf("%+v %v", all, err)
		}
		res, err := b.Guest().Exec(t.Context(), guest.ExecRequest{Shell: `exec 3<>/dev/tcp/127.0.0.1/2000; printf 'GET / HTTP/1.0\r\n\r\n' >&3; cat <&3`})
		if err != nil || !strings.HasSuffix(string(res.Head), text) {
			t.Errorf("%d: %q %s %v", i, res.Head, res.Error, err)
		}
		if data, _, err := b.Guest().Fetch(t.Context(), spec.Files[0].Path, 100); err != nil || string(data) != "certificate of "+text || b.Info().Stood != (i > 0) {
			t.Errorf("%d: %q %v, %+v", i, data, err, b.Info())
		}
		if got := pool.Stats(); got.Claimed != i {
			t.Errorf("%+v", got)
		}
		until(t, "none is ready", func() bool { return pool.Stats().Ready == 1 })
		if err := b.Destroy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all, err := rt.List(t.Context())
	if err != nil || len(all) != 1 || all[0].Purpose != warm.Purpose || all[0].Task != "" || pool.Stats().Memory <= 0 {
		t.Errorf("%+v %v %+v", all, err, pool.Stats())
	}
	if err := pool.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if all, err := rt.List(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("left: %+v %v", all, err)
	}
	if left, err := os.ReadDir(filepath.Join(dir, "w")); err != nil || len(left) > 0 {
		t.Errorf("sockets left: %v %v", left, err)
	}
}
