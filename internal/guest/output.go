package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// output keeps the head and the tail of a stream and spools all of it to a log, in constant
// memory.
type output struct {
	path string
	cap  int64
	head int
	tail int

	mu     sync.Mutex
	log    *os.File // nil when there is none, or it is full
	logged int64
	first  []byte
	ring   []byte // the last tail bytes after first, as a ring once it is full
	at     int    // oldest byte of a full ring
	bytes  int64
	lines  int64
	ended  bool // the last byte was a line feed
}

func newOutput(path string, limit int64, head, tail int) *output {
	return &output{path: path, cap: limit, head: head, tail: tail, ended: true}
}

// copyFrom reads until the end. A read deadline in the past ends it as well, although somebody
// still holds the pipe; what the pipe holds at that moment is taken.
func (o *output) copyFrom(r io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		o.write(buf[:n])
		if err == nil {
			continue
		}
		if file, ok := r.(*os.File); ok && errors.Is(err, os.ErrDeadlineExceeded) {
			o.drain(file, buf)
		}
		return
	}
}

// drain takes what a pipe holds, at most the 1 MiB that it can, without waiting.
func (o *output) drain(r *os.File, buf []byte) {
	raw, err := r.SyscallConn()
	if err != nil || r.SetReadDeadline(time.Time{}) != nil {
		return
	}
	for range 1 << 20 / len(buf) {
		n := 0
		var rerr error
		err := raw.Read(func(fd uintptr) bool {
			n, rerr = syscall.Read(int(fd), buf)
			return true
		})
		if err != nil || rerr != nil || n <= 0 {
			return
		}
		o.write(buf[:n])
	}
}

func (o *output) write(b []byte) {
	if len(b) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes += int64(len(b))
	o.lines += int64(bytes.Count(b, []byte{'\n'}))
	o.ended = b[len(b)-1] == '\n'
	o.spool(b)
	if room := o.head - len(o.first); room > 0 {
		n := min(room, len(b))
		o.first = append(o.first, b[:n]...)
		b = b[n:]
	}
	if len(b) > o.tail {
		b = b[len(b)-o.tail:]
	}
	if room := o.tail - len(o.ring); room > 0 {
		n := min(room, len(b))
		o.ring = append(o.ring, b[:n]...)
		b = b[n:]
	}
	for len(b) > 0 {
		n := copy(o.ring[o.at:], b)
		o.at = (o.at + n) % o.tail
		b = b[n:]
	}
}

// spool writes to the log up to its cap. The file is made at the first byte.
func (o *output) spool(b []byte) {
	if o.path == "" {
		return
	}
	if o.log == nil {
		// A command may have planted a link or a fifo there: never follow, never wait.
		os.Remove(o.path)
		file, err := os.OpenFile(o.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
		if err != nil {
			o.path = ""
			return
		}
		o.log = file
	}
	if o.logged >= o.cap {
		return
	}
	part := b
	if left := o.cap - o.logged; int64(len(part)) > left {
		part = part[:left]
	}
	n, err := o.log.Write(part)
	o.logged += int64(n)
	if err == nil && o.logged >= o.cap {
		_, err = fmt.Fprintf(o.log, "\n[log cut here at %d bytes]\n", o.cap)
	}
	if err != nil && !errors.Is(err, os.ErrClosed) {
		o.logged = o.cap // a full disk: what is there stays
	}
}

// fill copies what is known so far into a result.
func (o *output) fill(r *ExecResult) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.Bytes, r.Lines = o.bytes, o.lines
	if !o.ended {
		r.Lines++
	}
	if o.log != nil {
		r.Log = o.path
		r.LogCut = o.logged >= o.cap
	}
	r.Head = bytes.Clone(o.first)
	rest := append(bytes.Clone(o.ring[o.at:]), o.ring[:o.at]...)
	if int64(len(r.Head)+len(rest)) == o.bytes {
		r.Head = append(r.Head, rest...)
		return
	}
	r.Tail = rest
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.log != nil {
		o.log.Close()
	}
}
