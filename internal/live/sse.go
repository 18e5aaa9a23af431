package live

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// writeWithin is how long one write to a viewer may take: one that reads nothing is gone.
const writeWithin = 30 * time.Second

// Sender writes a stream of server-sent events
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
type Sender struct {
	w   http.ResponseWriter
	rc  *http.ResponseController
	buf bytes.Buffer
}

// NewSender begins the answer. Nothing else may write to w from then on.
func NewSender(w http.ResponseWriter) (*Sender, error) {
	s := &Sender{w: w, rc: http.NewResponseController(w)}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would keep it back otherwise
	if err := s.rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, fmt.Errorf("live: %w", err)
	}
	w.WriteHeader(http.StatusOK)
	s.buf.WriteString("retry: 2000\n\n")
	return s, s.Flush()
}

// Event adds one event; it leaves with the next Flush. id is what a viewer that comes back names
// as its position, name may be "". data is split into lines as the format wants it.
func (s *Sender) Event(id, name string, data []byte) {
	if id != "" {
		s.buf.WriteString("id: " + id + "\n")
	}
	if name != "" {
		s.buf.WriteString("event: " + name + "\n")
	}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n")) // a bare one ends a line, too
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		s.buf.WriteString("data: ")
		s.buf.Write(line)
		s.buf.WriteByte('\n')
	}
	s.buf.WriteByte('\n')
}

// Comment adds a line that viewers ignore: it shows that the connection lives. text is one line.
func (s *Sender) Comment(text string) { s.buf.WriteString(": " + text + "\n\n") }

// Flush sends what was added. Its error means that the viewer is gone.
func (s *Sender) Flush() error {
	if err := s.rc.SetWriteDeadline(time.Now().Add(writeWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	_, err := s.w.Write(s.buf.Bytes())
	if s.buf.Cap() > 8<<10 { // most of the time nothing happens
		s.buf = bytes.Buffer{}
	}
	s.buf.Reset()
	if err != nil {
		return err
	}
	return s.rc.Flush()
}

// Send gives a viewer all that next returns, in the form of write, until one of them fails; a
// next without a result becomes a comment. The error is that of next, nil when the viewer left.
func Send[T any](ctx context.Context, s *Sender, next func(context.Context) ([]T, error), write func(*Sender, T) error) error {
	for {
		got, err := next(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if len(got) == 0 {
			s.Comment("still here")
		}
		for _, x := range got {
			if err := write(s, x); err != nil {
				return err
			}
		}
		if s.Flush() != nil {
			return nil
		}
	}
}

// Position is where a viewer wants to go on: the header Last-Event-ID, which a browser sends when
// it comes back, or else the query's after; 0 without either. Class Invalid for what is no number.
func Position(r *http.Request) (int64, error) {
	s := r.Header.Get("Last-Event-ID")
	if s == "" {
		s = r.URL.Query().Get("after")
	}
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, &task.Error{Class: task.Invalid, Msg: "the position in the log is not the number of an event"}
	}
	return n, nil
}
