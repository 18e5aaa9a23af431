package worker

import (
	"io"

	"github.com/oklog/ulid/v2"
)

func newULID(ms uint64, rand io.Reader) (string, error) {
	u, err := ulid.New(ms, rand)
	return u.String(), err
}
