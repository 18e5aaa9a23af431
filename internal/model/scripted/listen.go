package scripted

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/daybreak-agent/daybreak/internal/model/scripted/transcript"
)

// Listen serves a transcript on a free port of the loopback address. stop ends the server and
// cuts what is still streaming; it must be called.
func Listen(ctx context.Context, t transcript.Transcript, o Options) (url string, stop func(), err error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen on loopback: %w", err)
	}
	srv := &http.Server{Handler: NewServer(t, o), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = srv.Serve(ln) // always ends with ErrServerClosed
	}()
	return "http://" + ln.Addr().String(), func() { _ = srv.Close(); <-done }, nil
}
