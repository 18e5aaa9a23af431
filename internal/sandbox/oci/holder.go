package oci

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/sandbox"
)

// protocol changes with the form or meaning of orders: a holder outlives its worker, and the
// next worker may be of another version.
const protocol = 3

const (
	maxMessage  = 16 << 20
	holderStart = 20 * time.Second
)

// holder is an ordinary user's way to what needs privileges: a process in a user and a mount
// namespace of the user's own, which carries orders out. It is started on demand, keeps the
// mounts when the worker dies, and ends when no sandbox is left.
type holder struct {
	command []string
	base    string // its socket is beside it

	mu         sync.Mutex
	user       userFiles
	uids, gids subIDs
}

func (h *holder) maps(u userFiles, uids, gids subIDs) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.user, h.uids, h.gids = u, uids, gids
}

// wireError is an error on its way from the holder.
type wireError struct {
	Layer string `json:"layer,omitempty"`
	Fix   string `json:"fix,omitempty"`
	Text  string `json:"text"`
}

type reply struct {
	Answer answer     `json:"answer"`
	Error  *wireError `json:"error,omitempty"`
}

func toWire(err error) *wireError {
	if err == nil {
		return nil
	}
	if ref := (*sandbox.RefusedError)(nil); errors.As(err, &ref) {
		w := &wireError{Layer: ref.Layer, Fix: ref.Fix}
		if ref.Err != nil {
			w.Text = ref.Err.Error()
		}
		return w
	}
	return &wireError{Text: err.Error()}
}

func (w *wireError) err() error {
	if w == nil {
		return nil
	}
	err := errors.New(w.Text)
	if w.Layer != "" {
		return refused(w.Layer, w.Fix, err)
	}
	return err
}

// call sends an order and waits for its outcome. When ctx ends the holder stops working on it.
func (h *holder) call(ctx context.Context, o order, files []*os.File) (answer, error) {
	conn, err := h.reach(ctx)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	var r reply
	err = send(conn, o, fds)
	if err == nil {
		err = receive(conn, &r)
	}
	if ctx.Err() != nil {
		return answer{}, ctx.Err()
	}
	if err != nil {
		return answer{}, refused("holder", "try again; if it stays so, end the sandboxes with `daybreak sandbox gc`", fmt.Errorf("the holder of the mounts is gone: %w", err))
	}
	return r.Answer, r.Error.err()
}

// dismiss ends the holder when no sandbox is left.
func (h *holder) dismiss() error {
	conn, err := h.dial()
	if err != nil {
		return nil //nolint // there is none
	}
	defer conn.Close()
	var r reply
	if err := send(conn, order{Protocol: protocol, Do: doLeave}, nil); err != nil {
		return err
	}
	if err := receive(conn, &r); err != nil {
		return err
	}
	if r.Answer.Ends {
		_, _ = conn.Read(make([]byte, 1)) // until it has ended
	}
	return r.Error.err()
}

// reach connects to the holder and starts one if there is none.
func (h *holder) reach(ctx context.Context) (*net.UnixConn, error) {
	if conn, err := h.dial(); err == nil {
		return conn, nil
	}
	fix := "check that " + filepath.Dir(h.base) + " can be written"
	if err := os.MkdirAll(filepath.Dir(h.base), 0o711); err != nil {
		return nil, refused("mount directory", fix, err)
	}
	unlock, err := lockFile(h.base + ".start")
	if err != nil {
		return nil, refused("mount directory", fix, err)
	}
	defer unlock()
	if conn, err := h.dial(); err == nil {
		return conn, nil
	}
	if err := h.start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, refused("user namespace", "see `daybreak doctor`", err)
	}
	return h.dial()
}

// dial connects to a living holder: one that greets.
func (h *holder) dial() (*net.UnixConn, error) {
	dir, err := os.OpenFile(filepath.Dir(h.base), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: socketName(dir, h.base)})
	if err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// socketName is a short name for the socket: the address of a socket holds 107 bytes.
func socketName(dir *os.File, base string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s.sock", dir.Fd(), filepath.Base(base))
}

// start starts a holder and waits until it listens. The child waits for its id maps, which
// the set-user-id helpers of the host write, and then starts itself again: that gives it the
// capabilities in its namespace.
func (h *holder) start(ctx context.Context) error {
	if len(h.command) == 0 {
		return errors.New("this program cannot hold mounts: it was given no command for that")
	}
	h.mu.Lock()
	u, uids, gids := h.user, h.uids, h.gids
	h.mu.Unlock()
	if uids.count == 0 { // a sandbox of an earlier worker is looked after
		var err error
		u = hostFiles(os.Geteuid())
		if uids, gids, err = u.ids(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, holderStart)
	defer cancel()
	// Not bound to ctx: it outlives this call and this process.
	cmd := exec.Command(h.command[0], h.command[1:]...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, Setsid: true}
	stdin, toChild, err := os.Pipe()
	if err != nil {
		return err
	}
	defer toChild.Close()
	fromChild, stdout, err := os.Pipe()
	if err != nil {
		stdin.Close()
		return err
	}
	defer fromChild.Close()
	cmd.Stdin, cmd.Stdout = stdin, stdout
	err = cmd.Start()
	stdin.Close()
	stdout.Close()
	if err != nil {
		return fmt.Errorf("make a user namespace: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	fail := func(err error) error {
		_ = cmd.Process.Kill()
		return err
	}
	for _, m := range []struct {
		tool string
		own  int
		sub  subIDs
	}{{"newuidmap", u.uid, uids}, {"newgidmap", u.gid, gids}} {
		if err := writeMap(ctx, u, m.tool, cmd.Process.Pid, m.own, m.sub); err != nil {
			return fail(err)
		}
	}
	hello, err := json.Marshal(holderOrder{Base: h.base})
	if err == nil {
		_, err = toChild.Write(append([]byte("\n"), hello...)) // fits the pipe
	}
	if err != nil {
		return fail(err)
	}
	toChild.Close()
	stop := context.AfterFunc(ctx, func() { fromChild.Close() })
	defer stop()
	said, err := io.ReadAll(io.LimitReader(fromChild, 4096))
	if text := strings.TrimSpace(string(said)); err != nil || text != "ready" {
		return fail(fmt.Errorf("the holder of the mounts did not start: %q %w", text, errors.Join(err, ctx.Err())))
	}
	return nil
}

// writeMap maps 0 to the user and the numbers from 1 on to subordinate ids.
func writeMap(ctx context.Context, u userFiles, tool string, pid, own int, sub subIDs) error {
	path, err := u.look(tool)
	if err != nil {
		return err
	}
	args := []string{strconv.Itoa(pid), "0", strconv.Itoa(own), "1", "1", fmt.Sprint(sub.first), fmt.Sprint(sub.count)}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = []string{} // it runs as root and needs nothing of ours
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w (%s)", tool, err, bytes.TrimSpace(out))
	}
	return nil
}

// send writes a message with descriptors.
func send(conn *net.UnixConn, v any, fds []int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	if _, _, err := conn.WriteMsgUnix(binary.BigEndian.AppendUint32(nil, uint32(len(b))), oob, nil); err != nil {
		return err
	}
	_, err = conn.Write(b)
	return err
}

// receive reads a message. Descriptors that came with it are returned open.
func receive(conn *net.UnixConn, v any) error {
	_, err := receiveFiles(conn, v)
	return err
}

func receiveFiles(conn *net.UnixConn, v any) (files []*os.File, err error) {
	head, oob := make([]byte, 4), make([]byte, unix.CmsgSpace(3*4))
	n, oobn, _, _, err := conn.ReadMsgUnix(head, oob)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	if _, err := io.ReadFull(conn, head[n:]); err != nil {
		return files, err
	}
	size := binary.BigEndian.Uint32(head)
	if size > maxMessage {
		return files, errors.New("a message is too long")
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(conn, b); err != nil {
		return files, err
	}
	return files, json.Unmarshal(b, v)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
