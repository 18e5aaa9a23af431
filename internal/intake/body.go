package intake

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"
)

// What bounds the bodies that nobody has vouched for yet: at most some 260 MiB in all.
const (
	maxUnproven = 256       // at once; most deliveries fit into
	smallBody   = 256 << 10 // bytes,
	maxLarge    = 8         // and so many at once may be larger
	readWithin  = 30 * time.Second
)

// bodies are the places for them.
type bodies struct{ all, large chan struct{} }

func newBodies() bodies {
	return bodies{make(chan struct{}, maxUnproven), make(chan struct{}, maxLarge)}
}

var (
	errBusy  = errors.New("as many deliveries are being read as may be; send it again")
	errLarge = errors.New("the delivery is too large")
)

// read takes a body in. free gives its place back and must be called in every case. The errors
// are errBusy, errLarge, and that of a body that was cut or came too slowly.
func (b bodies) read(w http.ResponseWriter, r *http.Request) (body []byte, free func(), err error) {
	var held []chan struct{}
	free = func() {
		for _, ch := range held {
			<-ch
		}
		held = nil
	}
	take := func(ch chan struct{}) bool {
		select {
		case ch <- struct{}{}:
			held = append(held, ch)
			return true
		default:
			return false
		}
	}
	if r.ContentLength > MaxDelivery {
		return nil, free, errLarge
	}
	if !take(b.all) {
		return nil, free, errBusy
	}
	// Whoever sends a byte now and then would keep a place for minutes.
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(readWithin)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil, free, err
	}
	in := http.MaxBytesReader(w, r.Body, MaxDelivery)
	var buf bytes.Buffer
	n, err := io.CopyN(&buf, in, smallBody+1)
	if err == nil && n > smallBody {
		if !take(b.large) {
			return nil, free, errBusy
		}
		_, err = io.Copy(&buf, in)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, free, errLarge
	case err != nil && !errors.Is(err, io.EOF):
		return nil, free, err
	}
	return buf.Bytes(), free, nil
}
