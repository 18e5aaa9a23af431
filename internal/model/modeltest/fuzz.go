package modeltest

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/daybreak-agent/daybreak/internal/model"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Bytes is a transport that answers every request with the same stream.
type Bytes string

// RoundTrip implements http.RoundTripper.
func (b Bytes) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = r.Body.Close()
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
		Body: io.NopCloser(strings.NewReader(string(b))), Request: r,
	}, nil
}

// CheckStream holds that a stream of any bytes ends with exactly one Done or one classed
// error, and that the record of a Done can be sent back.
func CheckStream(t *testing.T, c model.Client) {
	t.Helper()
	ends := 0
	for d, err := range c.Stream(t.Context(), Request()) {
		if ends > 0 {
			t.Fatal("the stream goes on after its end")
		}
		if err != nil {
			ends++
			if class := task.ClassOf(err); class == task.Internal || class == "" || strings.ContainsAny(err.Error(), "\r\n") {
				t.Fatalf("class %q of %q", class, err)
			}
			continue
		}
		if d.Done == nil {
			continue
		}
		ends++
		if tk := d.Done.Tokens; tk.Input < 0 || d.Done.Stop == "" || d.Done.Message.Role != model.Assistant {
			t.Fatalf("record %+v", d.Done)
		}
		for _, b := range d.Done.Message.Calls() {
			if len(b.Input) == 0 || b.Input[0] != '{' {
				t.Fatalf("input %q", b.Input)
			}
		}
	}
	if ends != 1 {
		t.Fatalf("%d ends", ends)
	}
}
