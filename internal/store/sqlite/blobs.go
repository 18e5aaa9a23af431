package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// PutBlob implements [store.Store]. Storing the same bytes again is free.
func (s *Store) PutBlob(ctx context.Context, data []byte) (string, error) {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	if data == nil {
		data = []byte{} // nil would be NULL
	}
	err := s.write(ctx, "store blob", func(ctx context.Context) error {
		_, err := s.w.putBlob.ExecContext(ctx, digest, data)
		return err
	})
	if err != nil {
		return "", err
	}
	return digest, nil
}

// Blob implements [store.Store]. Bytes that are not what the name says are an error of class
// [task.Internal], never returned.
func (s *Store) Blob(ctx context.Context, digest string) ([]byte, error) {
	var data []byte
	err := s.r.blob.QueryRowContext(ctx, digest).Scan(&data)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, failure(task.NotFound, "no blob %s", digest)
	}
	if err != nil {
		return nil, s.explain("read blob", err)
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != digest {
		return nil, s.damaged(errors.New("blob " + digest + " has other content than its name says"))
	}
	return data, nil
}
