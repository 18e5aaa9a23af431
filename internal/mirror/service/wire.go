// Package service runs the package mirror as a process of its own, and speaks with it.
//
// Invariants: the process that talks to registries has a user of its own, or a user namespace
// where the caller is no root, and in any case its own mount and process namespaces, no
// capability, no privileges to gain, an empty environment, and a file system that holds its
// store, certificates and the resolver's configuration; it creates no socket that a sandbox can
// see, it is given each; a new name is stored by the caller before an upstream hears of it; it
// ends when its caller does.
package service

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/daybreak-agent/daybreak/internal/mirror"
)

const (
	maxOrder = 64 << 20 // bytes of a message to the process: a session brings its lockfiles' names
	maxTale  = 1 << 20  // and from it
	maxFiles = 2        // descriptors with one message
)

// message is one of the things said on the channel; the others are nil.
type message struct {
	// to the process
	Confine   *confinement `json:"confine,omitempty"`
	Configure *Settings    `json:"configure,omitempty"`
	Open      *opening     `json:"open,omitempty"`
	Close     *sessionName `json:"close,omitempty"`
	Answer    *answer      `json:"answer,omitempty"`
	Count     *struct{}    `json:"count,omitempty"`
	// from it
	Ready  *ready       `json:"ready,omitempty"`
	Opened *opened      `json:"opened,omitempty"`
	Closed *sessionName `json:"closed,omitempty"`
	Asked  *asked       `json:"asked,omitempty"`
	// Counted is the answer to Count.
	Counted *mirror.Counts `json:"counted,omitempty"`
}

// opening starts a session on the one or two listeners that come with it: the routes, then the
// front.
type opening struct {
	Session int64       `json:"session"`
	About   Description `json:"about"`
}

type sessionName struct {
	Session int64 `json:"session"`
}

// opened is the answer to an opening.
type opened struct {
	Session   int64  `json:"session"`
	Error     string `json:"error,omitempty"`
	Authority []byte `json:"authority,omitempty"` // PEM, when there is a front
}

// asked is a line of the ledger. When it waits, nothing happens until its answer.
type asked struct {
	Session int64        `json:"session"`
	N       int64        `json:"n"`
	Waits   bool         `json:"waits,omitempty"`
	Entry   mirror.Entry `json:"entry"`
}

// answer lets a name through, or gives the reason why not.
type answer struct {
	Session int64         `json:"session"`
	N       int64         `json:"n"`
	OK      bool          `json:"ok,omitempty"`
	Reason  mirror.Reason `json:"reason,omitempty"` // empty: it could not be recorded
	Detail  string        `json:"detail,omitempty"`
}

// ready says what the process is confined by, as it sees itself.
type ready struct {
	Error string `json:"error,omitempty"`
	UID   int    `json:"uid"`
	Caps  uint64 `json:"caps"`
	NNP   bool   `json:"no_new_privs"`
}

// Description is a session without its clock and ledger.
type Description struct {
	Task          string                        `json:"task"`
	Base          string                        `json:"base"`
	Known         map[mirror.Ecosystem][]string `json:"known,omitempty"`
	KnownVersions map[mirror.Ecosystem][]string `json:"known_versions,omitempty"`
	GoSum         map[string]string             `json:"go_sum,omitempty"`
	Allow         []string                      `json:"allow,omitempty"`
	MinAge        time.Duration                 `json:"min_age,omitempty"`
	Offline       bool                          `json:"offline,omitempty"`
	Limits        mirror.Limits                 `json:"limits"`
	SpentNames    []string                      `json:"spent_names,omitempty"`
	SpentVersions []string                      `json:"spent_versions,omitempty"`
}

// channel carries messages over a Unix socket: four bytes of length, then JSON.
type channel struct {
	conn *net.UnixConn
	mu   sync.Mutex // one writer at a time
}

func (c *channel) send(m message, files ...*os.File) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(b) > maxOrder {
		return fmt.Errorf("a message to the mirror of %d bytes is too long", len(b))
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	head := binary.BigEndian.AppendUint32(nil, uint32(len(b)))
	if _, _, err := c.conn.WriteMsgUnix(head, rights, nil); err != nil {
		return err
	}
	_, err = c.conn.Write(b)
	return err
}

// receive reads the next message and the descriptors that came with it, at most limit bytes.
func (c *channel) receive(limit int) (m message, files []*os.File, err error) {
	defer func() {
		if err != nil {
			closeAll(files)
			files = nil
		}
	}()
	head := make([]byte, 4)
	for have := 0; have < len(head); {
		oob := make([]byte, unix.CmsgSpace(4*maxFiles))
		n, oobn, flags, _, err := c.conn.ReadMsgUnix(head[have:], oob)
		if oobn > 0 {
			got, rerr := rights(oob[:oobn])
			files = append(files, got...)
			if rerr != nil || flags&unix.MSG_CTRUNC != 0 || len(files) > maxFiles {
				return m, files, errors.New("descriptors that were not asked for")
			}
		}
		if err != nil {
			return m, files, err
		}
		if n == 0 {
			return m, files, io.EOF
		}
		have += n
	}
	n := int(binary.BigEndian.Uint32(head))
	if n > limit {
		return m, files, fmt.Errorf("a message of %d bytes, %d are the most", n, limit)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(c.conn, b); err != nil {
		return m, files, err
	}
	m, err = decode(b)
	return m, files, err
}

// decode reads one message. It says exactly one thing.
func decode(b []byte) (message, error) {
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		return message{}, errors.New("a message that is no JSON of the expected form")
	}
	n := 0
	for _, there := range []bool{m.Confine != nil, m.Configure != nil, m.Open != nil, m.Close != nil, m.Answer != nil, m.Ready != nil, m.Opened != nil, m.Closed != nil, m.Asked != nil, m.Count != nil, m.Counted != nil} {
		if there {
			n++
		}
	}
	if n != 1 {
		return message{}, fmt.Errorf("a message that says %d things", n)
	}
	return m, nil
}

func rights(oob []byte) (files []*os.File, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "given"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close() // nothing was written
	}
}

// channelOn is the channel over an inherited descriptor.
func channelOn(fd uintptr) (*channel, error) {
	// A duplicate: the descriptor itself must outlive this program's start inside.
	n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(n), "channel")
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("the channel is no Unix socket"), c.Close())
	}
	return &channel{conn: u}, nil
}
