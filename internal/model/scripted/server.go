// Package scripted is a model server that plays a transcript over the vendors' own wire
// formats: Anthropic's Messages, OpenAI's Responses and Chat Completions, streaming or not.
//
// Invariants: which turn is next follows from the conversation alone, by the numbers in the
// ids that the server gave out, so a client that retries or resumes gets the right turn;
// a request that the real API would refuse, or that was not told what the turn expects, is
// refused loudly and never answered with a guess; usage is computed from the bytes received.
package scripted

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
)

// maxBody is the longest request, as with the real APIs.
const maxBody = 32 << 20

// Options change how a server plays. The zero value is usable.
type Options struct {
	Vars    map[string]string                            // for ${name} in texts, inputs and expectations
	APIKey  string                                       // if set, any other key is refused with 401
	Context int                                          // tokens of input that are accepted; 0: any number
	NoUsage bool                                         // send no usage on Chat Completions, as some compatible servers do
	OnError func(error)                                  // called with every mismatch
	Sleep   func(ctx context.Context, d time.Duration)   // for delay_ms; nil: a timer
	Observe func(path string, body []byte, reply Played) // called before a turn is sent; nil: nothing
}

// Played is what the server is about to send.
type Played struct {
	Turn  int // index in Transcript.Turns
	Usage Usage
}

// Server is an http.Handler. It is safe for concurrent use.
type Server struct {
	script transcript.Transcript
	opts   Options
	cache  *cache

	mu       sync.Mutex
	requests []int
	replies  []int
	captured map[string]string
	err      error
}

// NewServer returns a server for a transcript.
func NewServer(t transcript.Transcript, o Options) *Server {
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	return &Server{script: t, opts: o, cache: newCache(), requests: make([]int, len(t.Turns)), replies: make([]int, len(t.Turns)), captured: map[string]string{}}
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Requests counts the well-formed requests per turn, those answered with a fault included.
func (s *Server) Requests() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.requests...)
}

// Replies counts the whole replies per turn: above 1, some client paid twice.
func (s *Server) Replies() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.replies...)
}

// Err is the first mismatch between the transcript and what the clients sent, or nil.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Server) mismatch(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	if s.opts.OnError != nil {
		s.opts.OnError(err)
	}
}

// apiError is an answer in the vendor's error shape.
type apiError struct {
	status     int
	kind       string // error.type
	code       string // error.code, OpenAI only
	message    string
	retryAfter float64
}

func (e *apiError) Error() string { return e.message }

func bad(format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "invalid_request_error", message: fmt.Sprintf(format, args...)}
}

// dialect is one wire format.
type dialect interface {
	// parse reads and validates a body as the real API would.
	parse(s *Server, r *http.Request, body []byte) (*conversation, *apiError)
	// events is a reply as a stream.
	events(c *conversation, r reply) []event
	// whole is the same reply as one JSON value.
	whole(c *conversation, r reply) any
	// usage computes the token classes of the input.
	usage(s *Server, c *conversation) Usage
	fail(w http.ResponseWriter, e *apiError)
	// failEvent is an error inside a stream.
	failEvent(kind, message string) event
}

type event struct {
	name string // may be empty
	data any    // string: sent as it is
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Request-Id", "req_scripted")
	var d dialect
	path := "/" + strings.Trim(r.URL.Path, "/")
	switch path {
	case "/v1/messages", "/v1/messages/count_tokens":
		d = anthropicDialect{}
	case "/v1/responses":
		d = responsesDialect{}
	case "/v1/chat/completions":
		d = chatDialect{noUsage: s.opts.NoUsage}
	case "/v1/models":
		writeJSON(w, http.StatusOK, map[string]any{"object": "list", "has_more": false, "data": []any{
			map[string]any{"id": "scripted", "type": "model", "object": "model", "display_name": "Scripted", "owned_by": "daybreak", "created": 0, "created_at": "1970-01-01T00:00:00Z"},
		}})
		return
	default:
		anthropicDialect{}.fail(w, &apiError{status: http.StatusNotFound, kind: "not_found_error", message: "no such path: " + r.URL.Path})
		return
	}
	if r.Method != http.MethodPost {
		d.fail(w, &apiError{status: http.StatusMethodNotAllowed, kind: "invalid_request_error", message: "use POST"})
		return
	}
	if e := s.authorise(r); e != nil {
		d.fail(w, e)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			d.fail(w, &apiError{status: http.StatusRequestEntityTooLarge, kind: "request_too_large", message: "Request exceeds the maximum size"})
		}
		return
	}
	c, e := d.parse(s, r, body)
	if e != nil {
		s.mismatch(e)
		d.fail(w, e)
		return
	}
	if path == "/v1/messages/count_tokens" {
		writeJSON(w, http.StatusOK, map[string]int64{"input_tokens": c.tokens()})
		return
	}
	if s.opts.Context > 0 && c.tokens() > int64(s.opts.Context) {
		d.fail(w, &apiError{
			status: http.StatusBadRequest, kind: "invalid_request_error", code: "context_length_exceeded",
			message: fmt.Sprintf("prompt is too long: %d tokens > %d maximum", c.tokens(), s.opts.Context),
		})
		return
	}
	s.play(w, r, d, c, body)
}

func (s *Server) authorise(r *http.Request) *apiError {
	if s.opts.APIKey == "" {
		return nil
	}
	if r.Header.Get("X-Api-Key") == s.opts.APIKey || r.Header.Get("Authorization") == "Bearer "+s.opts.APIKey {
		return nil
	}
	return &apiError{status: http.StatusUnauthorized, kind: "authentication_error", code: "invalid_api_key", message: "invalid x-api-key"}
}

// play finds the turn, checks what it expects, and sends it or the next fault before it.
func (s *Server) play(w http.ResponseWriter, r *http.Request, d dialect, c *conversation, body []byte) {
	index, e := s.find(c)
	if e != nil {
		s.mismatch(e)
		d.fail(w, e)
		return
	}
	turn := s.script.Turns[index]
	s.mu.Lock()
	try := s.requests[index]
	s.requests[index]++
	s.mu.Unlock()
	if turn.Delay > 0 {
		s.opts.Sleep(r.Context(), turn.Delay)
	}
	rep := s.compose(c, index)
	rep.usage = d.usage(s, c)
	rep.usage.Output = rep.outputTokens()
	if u := turn.Usage; u != nil {
		rep.usage = Usage(*u)
	}
	var fault *transcript.Fault
	if try < len(turn.Fail) {
		fault = &turn.Fail[try]
	}
	if fault != nil && fault.Status != 0 {
		if fault.Status < 400 {
			w.Header().Set("Location", "/elsewhere")
		}
		d.fail(w, statusFault(*fault))
		return
	}
	if s.opts.Observe != nil {
		s.opts.Observe(r.URL.Path, body, Played{Turn: index, Usage: rep.usage})
	}
	if !c.stream {
		if fault != nil {
			s.breakWhole(w, r, d, *fault)
			return
		}
		s.replied(index)
		writeJSON(w, http.StatusOK, d.whole(c, rep))
		return
	}
	s.sendStream(w, r, d, d.events(c, rep), fault, func() { s.replied(index) })
}

func (s *Server) replied(index int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies[index]++
}

func (s *Server) breakWhole(w http.ResponseWriter, r *http.Request, d dialect, f transcript.Fault) {
	switch {
	case f.Hang:
		<-r.Context().Done()
	case f.ErrorEvent != "":
		d.fail(w, &apiError{status: http.StatusInternalServerError, kind: f.ErrorEvent, code: f.ErrorEvent, message: f.Message})
	default:
		panic(http.ErrAbortHandler)
	}
}

// sendStream calls last before the final event, so that a client that has the reply finds it
// counted.
func (s *Server) sendStream(w http.ResponseWriter, r *http.Request, d dialect, events []event, fault *transcript.Fault, last func()) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	for i, ev := range events {
		if fault != nil {
			switch {
			case fault.Cut > 0 && i == fault.Cut:
				_ = flush.Flush()
				panic(http.ErrAbortHandler) // net/http's way to end a connection in mid-reply
			case fault.Hang && i == 1:
				_ = flush.Flush()
				<-r.Context().Done()
				return
			case fault.ErrorEvent != "" && i == 1:
				writeEvent(w, d.failEvent(fault.ErrorEvent, fault.Message))
				return
			}
		}
		if i == len(events)-1 {
			if fault != nil { // the reply is shorter than the cut: it still must not arrive whole
				panic(http.ErrAbortHandler)
			}
			last()
		}
		if writeEvent(w, ev) != nil || flush.Flush() != nil {
			return
		}
	}
}

func writeEvent(w io.Writer, e event) error {
	data, ok := e.data.(string)
	if !ok {
		b, err := json.Marshal(e.data)
		if err != nil {
			return err
		}
		data = string(b)
	}
	head := ""
	if e.name != "" {
		head = "event: " + e.name + "\n"
	}
	_, err := io.WriteString(w, head+"data: "+data+"\n\n")
	return err
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// statusFault fills in what a vendor says with a status.
func statusFault(f transcript.Fault) *apiError {
	kinds := map[int]string{
		400: "invalid_request_error", 401: "authentication_error", 402: "billing_error", 403: "permission_error",
		404: "not_found_error", 413: "request_too_large", 429: "rate_limit_error", 500: "api_error", 504: "timeout_error", 529: "overloaded_error",
	}
	e := &apiError{status: f.Status, kind: f.Type, message: f.Message, retryAfter: f.RetryAfter}
	if e.kind == "" {
		e.kind = kinds[f.Status]
	}
	if e.kind == "" && f.Status < 500 {
		e.kind = "invalid_request_error"
	}
	if e.kind == "" {
		e.kind = "api_error"
	}
	if e.message == "" {
		e.message = "scripted fault " + strconv.Itoa(f.Status)
	}
	return e
}

func retryHeader(w http.ResponseWriter, e *apiError) {
	if e.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.FormatFloat(e.retryAfter, 'f', -1, 64))
	}
}
