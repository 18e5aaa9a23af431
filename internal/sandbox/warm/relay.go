package warm

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// maxConns bounds a relay's connections at once. What it leads to has a stricter bound of its own.
const maxConns = 128

// relay stands in for a forward's socket, which is made only when there is a task. Until it is
// connected, who calls is hung up on.
type relay struct {
	ln *net.UnixListener
	wg sync.WaitGroup

	mu    sync.Mutex
	to    string
	conns map[net.Conn]bool
	ended bool
}

// listen puts sockets of ours in the place of the spec's forwards.
func (b *box) listen(dir string, spec *sandbox.Spec) error {
	if len(spec.Forwards) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var err error
	if b.dir, err = os.MkdirTemp(dir, ""); err != nil {
		return err
	}
	own := make([]sandbox.Forward, len(spec.Forwards))
	for i, f := range spec.Forwards {
		at := filepath.Join(b.dir, fmt.Sprint(i))
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: at})
		if err != nil {
			return err
		}
		r := &relay{ln: ln, conns: map[net.Conn]bool{}}
		b.relays = append(b.relays, r)
		r.wg.Go(r.accept)
		if err := os.Chmod(at, 0o666); err != nil { // the directory keeps others out
			return err
		}
		own[i] = sandbox.Forward{Socket: at, Port: f.Port}
	}
	spec.Forwards = own
	return nil
}

func (b *box) unlisten() {
	for _, r := range b.relays {
		r.close()
	}
	if b.dir != "" {
		if err := os.RemoveAll(b.dir); err != nil {
			b.pool.cfg.Logger.Warn("sockets of a sandbox were left", "path", b.dir, "error", err)
		}
	}
}

func (r *relay) connect(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

func (r *relay) accept() {
	for {
		in, err := r.ln.AcceptUnix()
		if err != nil {
			return // closed
		}
		to, ok := r.open(in)
		if !ok {
			_ = in.Close()
			continue
		}
		r.wg.Go(func() {
			defer r.forget(in)
			out, err := net.Dial("unix", to)
			if err != nil {
				return
			}
			if !r.add(out) {
				_ = out.Close()
				return
			}
			defer r.forget(out)
			both(in, out.(*net.UnixConn))
		})
	}
}

// open admits a connection and says where it goes.
func (r *relay) open(in net.Conn) (to string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.to == "" || r.ended || len(r.conns) >= 2*maxConns {
		return "", false
	}
	r.conns[in] = true
	return r.to, true
}

func (r *relay) add(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		r.conns[c] = true
	}
	return !r.ended
}

func (r *relay) forget(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.conns, c)
	_ = c.Close()
}

// close hangs up and waits until nothing of the relay runs.
func (r *relay) close() {
	_ = r.ln.Close()
	r.mu.Lock()
	r.ended = true
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// both copies in both directions until both are at their end.
func both(a, b *net.UnixConn) {
	var wg sync.WaitGroup
	for _, way := range [][2]*net.UnixConn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, err := io.Copy(way[0], way[1])
			if err = errors.Join(err, way[0].CloseWrite()); err != nil {
				_ = way[1].Close() // nobody takes what it still says
			}
		})
	}
	wg.Wait()
}
