package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// cancelGrace is how long a cancelled call waits for the guest to say that the command is
// dead.
const cancelGrace = 3 * time.Second

// Caps on a whole reply, by what was asked.
const (
	maxReply       = 2 << 20
	maxSearchReply = 8 << 20
)

// Client is the worker's end of the wire. It is safe for concurrent use.
type Client struct {
	conn   io.ReadWriteCloser
	out    chan []byte
	closed chan struct{}
	hello  chan struct{}
	slots  chan struct{}

	mu    sync.Mutex
	calls map[uint64]*call
	last  uint64
	err   error // why the connection is closed
}

// call is one request that waits for its reply. The reader owns buf until done is closed.
type call struct {
	buf   []byte
	head  header
	limit int64
	done  chan struct{}
	gone  bool // nobody waits: the reply is counted and dropped
	size  int64
}

// NewClient starts reading frames from conn and waits for the guest's greeting. On an error
// conn is closed.
func NewClient(ctx context.Context, conn io.ReadWriteCloser) (*Client, error) {
	c := &Client{
		conn:   conn,
		out:    make(chan []byte),
		closed: make(chan struct{}),
		hello:  make(chan struct{}),
		slots:  make(chan struct{}, maxCalls),
		calls:  make(map[uint64]*call),
	}
	go c.readLoop()
	go c.writeLoop()
	select {
	case <-c.hello:
		return c, nil
	case <-c.closed:
		return nil, c.cause()
	case <-ctx.Done():
		err := fmt.Errorf("waiting for the guest's greeting: %w", context.Cause(ctx))
		c.fail(err)
		return nil, err
	}
}

// Ping returns when the guest has answered.
func (c *Client) Ping(ctx context.Context) error {
	_, _, err := c.call(ctx, opPing, nil, 0)
	return err
}

// Exec runs a command. It returns when the command ends, at once for a background command,
// or with ctx's error after killing the command when ctx is done.
func (c *Client) Exec(ctx context.Context, r ExecRequest) (ExecResult, error) {
	r.Head, r.Tail = keepSize(r.Head), keepSize(r.Tail)
	return roundTrip[ExecResult](ctx, c, opExec, r, execReplyLimit(r.Head+r.Tail))
}

// Wait waits up to d for a command (d in nanoseconds of time.Duration). A command that is
// not over then comes back with Running set.
func (c *Client) Wait(ctx context.Context, proc int, d int64) (ExecResult, error) {
	return roundTrip[ExecResult](ctx, c, opWait, procRequest{Proc: proc, For: time.Duration(d)}, execReplyLimit(2*MaxKeep))
}

// Kill ends a background command and its tree.
func (c *Client) Kill(ctx context.Context, proc int) (ExecResult, error) {
	return roundTrip[ExecResult](ctx, c, opKill, procRequest{Proc: proc}, execReplyLimit(2*MaxKeep))
}

// Read reads lines of a text file.
func (c *Client) Read(ctx context.Context, r ReadRequest) (ReadResult, error) {
	return roundTrip[ReadResult](ctx, c, opRead, r, maxReply)
}

// Edit edits a file.
func (c *Client) Edit(ctx context.Context, r EditRequest) (EditResult, error) {
	return roundTrip[EditResult](ctx, c, opEdit, r, maxReply)
}

// Write writes a file of at most [MaxWrite] bytes.
func (c *Client) Write(ctx context.Context, r WriteRequest) (EditResult, error) {
	if len(r.Content) > MaxWrite {
		return EditResult{}, &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("file of %d bytes is over the limit of %d", len(r.Content), MaxWrite)}
	}
	return roundTrip[EditResult](ctx, c, opWrite, r, maxReply)
}

// Search searches the work tree.
func (c *Client) Search(ctx context.Context, r SearchRequest) (SearchResult, error) {
	return roundTrip[SearchResult](ctx, c, opSearch, r, maxSearchReply)
}

// Symbols says where names are defined and used.
func (c *Client) Symbols(ctx context.Context, r SymbolsRequest) (SymbolsResult, error) {
	return roundTrip[SymbolsResult](ctx, c, opSymbols, r, maxReply)
}

// Fetch returns up to max bytes of a regular file inside the sandbox. truncated is true when
// the file is longer.
func (c *Client) Fetch(ctx context.Context, path string, max int64) (data []byte, truncated bool, err error) {
	return c.fetch(ctx, fetchRequest{Path: path, Max: max})
}

func (c *Client) fetch(ctx context.Context, r fetchRequest) (data []byte, truncated bool, err error) {
	r.Max = max(r.Max, 0)
	body, err := json.Marshal(r)
	if err != nil {
		return nil, false, err
	}
	h, data, err := c.call(ctx, opFetch, body, r.Max)
	return data, h.Truncated, err
}

// fetchPart is how much of a file that is copied is in memory at a time.
const fetchPart = 4 << 20

// Copy writes a regular file inside the sandbox, of which it is known how large it is, to w. That
// it is of another size, at the end or meanwhile, is an error; what was written until then is
// never more than size.
func (c *Client) Copy(ctx context.Context, w io.Writer, path string, size int64) error {
	for at := int64(0); ; {
		r := fetchRequest{Path: path, From: at, Max: min(size-at, fetchPart)}
		data, more, err := c.fetch(ctx, r)
		if err != nil {
			return err
		}
		at += r.Max
		if int64(len(data)) != r.Max || more != (at < size) {
			return &task.Error{Class: task.Invalid, Msg: fmt.Sprintf("%s has not the %d bytes that it is said to have", oneLine(path), size)}
		}
		if _, err := w.Write(data); err != nil {
			return err
		}
		if at == size {
			return nil
		}
	}
}

// ended is the error of a guest that went away by itself: with its sandbox, at a limit or
// because somebody killed it. What it was doing can be done again in another one.
func ended(err error) error {
	return &task.Error{Class: task.Unavailable, Msg: "the sandbox ended before its work was done (killed at a limit, or from outside)", Err: err}
}

// Close ends the conversation. The guest kills what it started and exits.
func (c *Client) Close() error {
	c.fail(errors.New("the connection to the guest was closed"))
	return nil
}

// Done is closed when the connection is over; Err then says why.
func (c *Client) Done() <-chan struct{} { return c.closed }

// Err is nil while the connection lives.
func (c *Client) Err() error {
	select {
	case <-c.closed:
		return c.cause()
	default:
		return nil
	}
}

func execReplyLimit(keep int) int64 { return int64(keep)*4/3 + 64<<10 }

func keepSize(n int) int {
	if n <= 0 {
		return DefaultKeep
	}
	return min(n, MaxKeep)
}

// roundTrip sends a request as JSON and decodes the reply.
func roundTrip[R any](ctx context.Context, c *Client, o op, req any, limit int64) (R, error) {
	var res R
	body, err := json.Marshal(req)
	if err != nil {
		return res, fmt.Errorf("encode %s request: %w", o, err)
	}
	_, reply, err := c.call(ctx, o, body, limit)
	if err != nil {
		return res, err
	}
	if err := json.Unmarshal(reply, &res); err != nil {
		err = &task.Error{Class: task.Internal, Msg: fmt.Sprintf("the guest's answer to %s is not what this version speaks", o)}
		c.fail(err)
		var zero R
		return zero, err
	}
	return res, nil
}

// call sends one message and waits for its reply of at most limit bytes.
func (c *Client) call(ctx context.Context, o op, body []byte, limit int64) (header, []byte, error) {
	select {
	case c.slots <- struct{}{}:
	case <-c.closed:
		return header{}, nil, c.cause()
	case <-ctx.Done():
		return header{}, nil, context.Cause(ctx)
	}
	k := &call{limit: limit, done: make(chan struct{})}
	c.mu.Lock()
	c.last++
	id := c.last
	c.calls[id] = k
	c.mu.Unlock()

	sent := false
	err := eachFrame(header{ID: id, Op: o}, body, func(frame []byte) error {
		select {
		case c.out <- frame:
			sent = true
			return nil
		case <-c.closed:
			return c.cause()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	if err == nil {
		select {
		case <-k.done:
		case <-c.closed:
			err = c.cause()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	select {
	case <-k.done: // the reply may have come together with the end
	default:
		if !sent {
			c.mu.Lock()
			delete(c.calls, id)
			c.mu.Unlock()
			<-c.slots
			return header{}, nil, err
		}
		return header{}, nil, c.abandon(id, k, err)
	}
	if k.head.Error != "" {
		return k.head, nil, &task.Error{Class: task.Invalid, Msg: oneLine(k.head.Error)}
	}
	return k.head, k.buf, nil
}

// abandon tells the guest that nobody waits any more, and waits a moment for it to comply.
func (c *Client) abandon(id uint64, k *call, cause error) error {
	frame, err := appendFrame(nil, header{ID: id, Op: opCancel}, nil)
	if err != nil {
		return err
	}
	t := time.NewTimer(cancelGrace)
	defer t.Stop()
	select {
	case c.out <- frame:
	case <-c.closed:
		return cause
	case <-t.C:
		c.fail(&task.Error{Class: task.Internal, Msg: "the guest stopped reading"})
		return cause
	}
	select {
	case <-k.done:
	case <-c.closed:
	case <-t.C:
		c.mu.Lock()
		k.gone, k.buf = true, nil
		c.mu.Unlock()
	}
	return cause
}

// writeLoop is the only writer to conn.
func (c *Client) writeLoop() {
	for {
		select {
		case frame := <-c.out:
			if _, err := c.conn.Write(frame); err != nil {
				c.fail(ended(err))
				return
			}
		case <-c.closed:
			return
		}
	}
}

// readLoop is the only reader of conn. Its first complaint closes the connection.
func (c *Client) readLoop() {
	f := &frameReader{r: c.conn}
	greeted := false
	for {
		h, body, err := f.next()
		if err == nil {
			if !greeted {
				err = checkHello(h, body)
				greeted = true
				if err == nil {
					close(c.hello)
				}
			} else {
				err = c.accept(h, body)
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) {
				err = errors.New("the guest is gone")
			}
			c.fail(ended(err))
			return
		}
	}
}

func checkHello(h header, body []byte) error {
	switch {
	case h.Op != opHello || h.ID != 0 || h.More || len(body) > 0:
		return fmt.Errorf("%w: no greeting", errFrame)
	case h.Version != ProtocolVersion:
		return fmt.Errorf("the guest speaks version %d, the worker %d; install matching programs", h.Version, ProtocolVersion)
	}
	return nil
}

// accept adds a frame to the call it answers.
func (c *Client) accept(h header, body []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.calls[h.ID]
	switch {
	case h.Op != opReply:
		return fmt.Errorf("%w: %.20q is not an answer", errFrame, string(h.Op))
	case k == nil:
		return fmt.Errorf("%w: answer to a request that is not open", errFrame)
	case h.Error != "" && (h.More || len(body) > 0):
		return fmt.Errorf("%w: an error with a result", errFrame)
	case h.More && len(body) == 0:
		return fmt.Errorf("%w: an empty part", errFrame)
	}
	k.size += int64(len(body))
	if k.size > k.limit {
		return fmt.Errorf("%w: an answer of more than %d bytes", errFrame, k.limit)
	}
	if !k.gone {
		k.buf = append(k.buf, body...)
	}
	if h.More {
		return nil
	}
	k.head = h
	delete(c.calls, h.ID)
	close(k.done)
	<-c.slots
	return nil
}

// fail closes the connection once; the first cause stays.
func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	for _, k := range c.calls {
		k.gone, k.buf = true, nil
	}
	c.mu.Unlock()
	close(c.closed)
	c.conn.Close()
}

func (c *Client) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
