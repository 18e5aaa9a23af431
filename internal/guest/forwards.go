package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"github.com/daybreak-agent/daybreak/internal/guest/forward"
)

// Forward is a port of the loopback that leads to a Unix socket.
type Forward struct {
	Port   int
	Socket string
}

// ParseForward reads "PORT=SOCKET".
func ParseForward(s string) (Forward, error) {
	port, socket, ok := strings.Cut(s, "=")
	n, err := strconv.Atoi(port)
	if !ok || err != nil || n < 1 || n > 65535 || !strings.HasPrefix(socket, "/") {
		return Forward{}, fmt.Errorf("forward %q is not PORT=/SOCKET", s)
	}
	return Forward{Port: n, Socket: socket}, nil
}

// listen opens every port, on 127.0.0.1 alone, and relays until ctx ends. The returned
// function waits for the end of what is carried.
func listen(ctx context.Context, all []Forward) (wait func(), err error) {
	var open []net.Listener
	for _, f := range all {
		l, lerr := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(f.Port)))
		if lerr != nil {
			for _, l := range open {
				err = errors.Join(err, l.Close())
			}
			return nil, errors.Join(fmt.Errorf("forward of port %d: %w", f.Port, lerr), err)
		}
		open = append(open, l)
	}
	var wg sync.WaitGroup
	for i, l := range open {
		wg.Go(func() { _ = forward.Relay(ctx, l, all[i].Socket) }) // its end shows as a refused connection
	}
	return wg.Wait, nil
}
