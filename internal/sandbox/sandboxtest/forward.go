package sandboxtest

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// service answers at a Unix socket of the host.
func service(t *testing.T, h http.HandlerFunc) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // short: an address holds 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close() })
	return socket
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, text) }
}

// listening lists the addresses that take connections, as /proc/net spells them.
func listening(t *testing.T, b sandbox.Sandbox) string {
	t.Helper()
	return strings.TrimSpace(ok(t, b, `cat /proc/net/tcp /proc/net/tcp6 | awk '$4 == "0A" {print $2}' | sort | tr '\n' ' '; tail -qn +2 /proc/net/udp /proc/net/udp6`))
}

// forwards: what is forwarded answers at its port, nothing else does, and no other sandbox's.
func (s *suite) forwards(t *testing.T) {
	held, dropped := make(chan struct{}), make(chan struct{})
	one := service(t, says("one"))
	two := service(t, says("two"))
	hold := service(t, func(_ http.ResponseWriter, r *http.Request) {
		close(held)
		<-r.Context().Done()
		close(dropped)
	})
	tree := s.tree(t, nil)
	a := s.start(t, sandbox.Spec{Tree: tree, Forwards: []sandbox.Forward{{Socket: one, Port: 3128}, {Socket: hold, Port: 3129}}})
	b := s.start(t, sandbox.Spec{Tree: tree, Forwards: []sandbox.Forward{{Socket: two, Port: 3128}}})
	none := s.start(t, sandbox.Spec{Tree: tree})
	for _, c := range []struct {
		name  string
		box   sandbox.Sandbox
		ports string
		get   map[string]string
	}{
		{"first", a, "0100007F:0C38 0100007F:0C39", map[string]string{"127.0.0.1:3128": "one", "127.0.0.1:3130": "error ECONNREFUSED\n", "[::1]:3128": "error ECONNREFUSED\n"}},
		{"second", b, "0100007F:0C38", map[string]string{"127.0.0.1:3128": "two", "127.0.0.1:3129": "error ECONNREFUSED\n"}},
		{"without", none, "", map[string]string{"127.0.0.1:3128": "error ECONNREFUSED\n"}},
	} {
		if got := listening(t, c.box); got != c.ports {
			t.Errorf("%s sandbox listens on %q, want %q", c.name, got, c.ports)
		}
		for addr, want := range c.get {
			if got := ok(t, c.box, "./probe get "+addr); got != want {
				t.Errorf("%s sandbox: %s says %q, want %q", c.name, addr, got, want)
			}
		}
		if out := ok(t, c.box, "./probe net"); strings.Contains(out, " true") && strings.Count(out, " true") != 1 || !strings.Contains(out, "loopback true") {
			t.Errorf("%s sandbox: more than loopback is reached:\n%s", c.name, out)
		}
		if out := ok(t, c.box, "getent hosts example.com || echo none"); out != "none\n" {
			t.Errorf("%s sandbox: a name was resolved: %s", c.name, out)
		}
		// The socket itself can be neither changed nor replaced.
		if out, code := sh(t, c.box, "rm -f /.daybreak/forward-0 || chmod 0 /.daybreak/forward-0 || touch /.daybreak/x"); code == 0 && c.ports != "" {
			t.Errorf("%s sandbox: the socket's place is writable: %s", c.name, out)
		}
	}
	background(t, a, "exec ./probe get 127.0.0.1:3129")
	await(t, held, "the connection does not arrive")
	if err := a.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, dropped, "a connection outlives its sandbox")
}

func await(t *testing.T, c <-chan struct{}, or string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatal(or)
	}
}

func (s *suite) forwardRefusals(t *testing.T) {
	socket := service(t, says("one"))
	private := service(t, says("one"))
	if err := os.Chmod(private, 0o600); err != nil {
		t.Fatal(err)
	}
	plain, link := filepath.Join(t.TempDir(), "plain"), filepath.Join(t.TempDir(), "link")
	write(t, plain, "", 0o666)
	if err := os.Symlink(socket, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{socket + "x", plain, link, private, filepath.Dir(socket)} {
		var refused *sandbox.RefusedError
		_, err := s.rt.Start(t.Context(), sandbox.Spec{Forwards: []sandbox.Forward{{Socket: path, Port: 3128}}})
		if !errors.As(err, &refused) || !strings.HasPrefix(refused.Layer, "forward") || refused.Fix == "" {
			t.Errorf("%s: %v, want a refusal that names the forward", path, err)
		}
	}
	for _, all := range [][]sandbox.Forward{
		{{Socket: "relative", Port: 3128}},
		{{Socket: socket, Port: 80}},
		{{Socket: socket, Port: 0}},
		{{Socket: socket, Port: 70000}},
		{{Socket: socket, Port: 3128}, {Socket: socket, Port: 3128}},
	} {
		if _, err := s.rt.Start(t.Context(), sandbox.Spec{Forwards: all}); task.ClassOf(err) != task.Invalid {
			t.Errorf("%v: %v, want class invalid", all, err)
		}
	}
}
