package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/codesearch"
	"github.com/daybreak-agent/daybreak/internal/codesearch/symbols"
)

// ServerOptions says where a guest works.
type ServerOptions struct {
	Root   string // the work tree, absolute
	LogDir string // receives the whole output of each command; made when missing
	MaxLog int64  // bytes of one command's log, default 64 MiB
	// OwnNamespace says that every process the guest can see is its own, which lets it kill
	// all of them. It is assumed when the guest is process 1.
	OwnNamespace bool
	Forwards     []Forward        // open before the greeting
	Index        string           // directory of the search index of the tree as it was; none: ripgrep answers alone
	Now          func() time.Time // default time.Now
}

// Serve answers the requests that come from in until in ends or ctx is done; then it kills
// everything it started and returns. The error is nil when in ended at a frame's border.
func Serve(ctx context.Context, in io.Reader, out io.Writer, opts ServerOptions) error {
	s, err := newServer(opts, out)
	if err != nil {
		return err
	}
	defer s.tree.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	carried, err := listen(ctx, opts.Forwards)
	if err != nil {
		return err
	}
	if err := s.send(header{Op: opHello, Version: ProtocolVersion}, nil); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		// A blocked read is the only thing that would keep the loop from seeing the end.
		if c, ok := in.(io.Closer); ok {
			c.Close()
		}
	})
	defer stop()
	err = s.loop(ctx, in)
	cancel(err)
	s.procs.killAll()
	s.running.Wait()
	carried()
	if ctx.Err() != nil && errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// server is one conversation. Requests run concurrently; replies are whole messages in any
// order.
type server struct {
	opts     ServerOptions
	tree     *tree
	procs    *procs
	index    *codesearch.Index // nil: none
	names    *symbols.File     // nil: none
	began    int64             // when the work tree was as it was indexed, by its clock
	rules    rules             // as they were then
	live     liveTags
	verdicts verdicts
	running  sync.WaitGroup

	files sync.Mutex // one change of a file at a time

	outMu sync.Mutex
	out   io.Writer

	mu   sync.Mutex
	open map[uint64]*request
}

// request is one message that is still coming in or being answered.
type request struct {
	op     op
	body   []byte
	cancel context.CancelFunc // nil while parts are missing
}

func newServer(opts ServerOptions, out io.Writer) (*server, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.MaxLog <= 0 {
		opts.MaxLog = DefaultMaxLog
	}
	if os.Getpid() == 1 {
		opts.OwnNamespace = true
	}
	t, err := openTree(opts.Root)
	if err != nil {
		return nil, err
	}
	p, err := newProcs(opts)
	if err != nil {
		t.close()
		return nil, err
	}
	s := &server{opts: opts, tree: t, procs: p, index: openIndex(opts), out: out, open: make(map[uint64]*request)}
	if s.index != nil {
		if s.began, err = codesearch.Clock(opts.LogDir); err != nil {
			s.index = nil // ripgrep answers alone
			return s, nil
		}
		s.rules, s.names = s.rulesNow(), openSymbols(opts)
	}
	return s, nil
}

// loop reads requests until in ends. It never waits for one to be answered.
func (s *server) loop(ctx context.Context, in io.Reader) error {
	f := &frameReader{r: in}
	total := 0
	for {
		h, body, err := f.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Op == opCancel {
			total -= s.abort(h.ID)
			continue
		}
		s.mu.Lock()
		r := s.open[h.ID]
		switch {
		case r == nil && len(s.open) >= maxCalls:
			err = fmt.Errorf("%w: more than %d requests at once", errFrame, maxCalls)
		case r == nil:
			r = &request{op: h.Op}
			s.open[h.ID] = r
		case r.cancel != nil || r.op != h.Op:
			err = fmt.Errorf("%w: request id used twice", errFrame)
		}
		if total += len(body); total > maxRequest {
			err = fmt.Errorf("%w: requests of more than %d bytes", errFrame, maxRequest)
		}
		if err != nil {
			s.mu.Unlock()
			return err
		}
		r.body = append(r.body, body...)
		if h.More {
			s.mu.Unlock()
			continue
		}
		total -= len(r.body)
		rctx, cancel := context.WithCancel(ctx)
		r.cancel = cancel
		s.mu.Unlock()
		s.running.Go(func() {
			defer cancel()
			s.answer(rctx, h.ID, r)
		})
	}
}

// abort ends a request nobody waits for and returns the bytes it held.
func (s *server) abort(id uint64) int {
	s.mu.Lock()
	r := s.open[id]
	if r == nil {
		s.mu.Unlock()
		return 0
	}
	if r.cancel != nil {
		s.mu.Unlock()
		r.cancel()
		return 0
	}
	delete(s.open, id)
	s.mu.Unlock()
	s.reply(header{ID: id, Error: "cancelled"}, nil)
	return len(r.body)
}

// answer runs one request and sends its reply.
func (s *server) answer(ctx context.Context, id uint64, r *request) {
	body := r.body
	r.body = nil
	var h header
	var out []byte
	var err error
	if r.op == opFetch {
		h, out, err = s.fetch(ctx, id, body)
	} else {
		out, err = s.handle(ctx, r.op, body)
	}
	h.ID = id
	if err != nil {
		h, out = header{ID: id, Error: oneLine(err.Error())}, nil
	}
	// The id is free before the client can know the answer, so that it may use it again.
	s.mu.Lock()
	delete(s.open, id)
	s.mu.Unlock()
	s.reply(h, out)
}

// reply sends an answer; when the other side is gone the read loop ends the server.
func (s *server) reply(h header, body []byte) {
	h.Op = opReply
	_ = s.send(h, body)
}

func (s *server) send(h header, body []byte) error {
	s.outMu.Lock()
	defer s.outMu.Unlock()
	return eachFrame(h, body, func(frame []byte) error {
		_, err := s.out.Write(frame)
		return err
	})
}

func (s *server) handle(ctx context.Context, o op, body []byte) ([]byte, error) {
	switch o {
	case opPing:
		return nil, nil
	case opExec:
		return serve(body, func(r ExecRequest) (ExecResult, error) { return s.procs.exec(ctx, r) })
	case opWait:
		return serve(body, func(r procRequest) (ExecResult, error) { return s.procs.wait(ctx, r.Proc, r.For) })
	case opKill:
		return serve(body, func(r procRequest) (ExecResult, error) { return s.procs.kill(r.Proc) })
	case opRead:
		return serve(body, func(r ReadRequest) (ReadResult, error) { return s.tree.read(r) })
	case opEdit:
		return serve(body, func(r EditRequest) (EditResult, error) { return s.edit(ctx, r) })
	case opWrite:
		return serve(body, func(r WriteRequest) (EditResult, error) { return s.write(ctx, r) })
	case opSymbols:
		return serve(body, func(r SymbolsRequest) (SymbolsResult, error) { return s.symbols(ctx, r) })
	case opSearch:
		return serve(body, func(r SearchRequest) (SearchResult, error) { return s.search(ctx, r) })
	}
	return nil, fmt.Errorf("unknown operation %.20q", string(o))
}

func serve[Q, R any](body []byte, do func(Q) (R, error)) ([]byte, error) {
	var q Q
	if err := json.Unmarshal(body, &q); err != nil {
		return nil, fmt.Errorf("bad request: %w", err)
	}
	res, err := do(q)
	if err != nil {
		return nil, err
	}
	return json.Marshal(res)
}

// fetch streams all but the last part of a file and returns the rest as the final frame.
func (s *server) fetch(ctx context.Context, id uint64, body []byte) (header, []byte, error) {
	var q fetchRequest
	if err := json.Unmarshal(body, &q); err != nil {
		return header{}, nil, fmt.Errorf("bad request: %w", err)
	}
	file, err := s.tree.open(q.Path)
	if err != nil {
		return header{}, nil, err
	}
	defer file.Close()
	if st, err := file.Stat(); err != nil || !st.Mode().IsRegular() {
		return header{}, nil, fmt.Errorf("%s is not a regular file", q.Path)
	}
	if _, err := file.Seek(max(q.From, 0), io.SeekStart); err != nil {
		return header{}, nil, fmt.Errorf("read %s: %w", q.Path, err)
	}
	left := q.Max
	buf := make([]byte, maxBody)
	var part []byte
	for ctx.Err() == nil {
		n, err := io.ReadFull(file, buf[:min(int64(maxBody), left)])
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return header{}, nil, fmt.Errorf("read %s: %w", q.Path, err)
		}
		left -= int64(n)
		if n < maxBody {
			part = buf[:n]
			break
		}
		if err := s.send(header{ID: id, Op: opReply, More: true}, buf[:n]); err != nil {
			return header{}, nil, err
		}
	}
	more, _ := file.Read(make([]byte, 1))
	return header{Truncated: more > 0}, part, nil
}
