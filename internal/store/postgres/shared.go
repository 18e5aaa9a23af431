package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// channel is where a transaction tells which task it changed.
const channel = "daybreak_task"

// PutBlob implements [store.Store]. Storing the same bytes again is free.
func (s *Store) PutBlob(ctx context.Context, data []byte) (string, error) {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	if data == nil {
		data = []byte{} // nil would be NULL
	}
	err := s.try(ctx, "store blob", func(ctx context.Context, _ bool) error {
		_, err := s.pool.Exec(ctx, `INSERT INTO blobs (digest, data) VALUES ($1, $2) ON CONFLICT (digest) DO NOTHING`, digest, data)
		return err
	})
	if err != nil {
		return "", err
	}
	return digest, nil
}

// Blob implements [store.Store]. Bytes that are not what the name says are an error of class
// [task.Internal], never returned.
func (s *Store) Blob(ctx context.Context, digest string) (data []byte, err error) {
	err = s.try(ctx, "read blob", func(ctx context.Context, _ bool) error {
		return s.pool.QueryRow(ctx, `SELECT data FROM blobs WHERE digest = $1`, digest).Scan(&data)
	})
	if none(err) {
		return nil, failure(task.NotFound, "no blob %s", digest)
	}
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != digest {
		return nil, &task.Error{
			Class: task.Internal, Err: errors.New("blob " + digest + " has other content than its name says"),
			Msg: "the PostgreSQL store is damaged", Fix: "restore it from a backup",
		}
	}
	return data, nil
}

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, key string, change func([]byte) ([]byte, error)) error {
	return s.write(ctx, "update "+key, "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		// A key without a row has nothing to lock but its name.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('daybreak shared ' || $1, 0))`, key); err != nil {
			return err
		}
		var old []byte
		if err := tx.QueryRow(ctx, `SELECT value FROM shared WHERE key = $1`, key).Scan(&old); err != nil && !none(err) {
			return err
		}
		now, err := change(old)
		if err != nil {
			return err
		}
		if now == nil {
			now = []byte{}
		}
		_, err = tx.Exec(ctx, `INSERT INTO shared (key, value) VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, key, now)
		return err
	})
}

// Alone runs do while no other process of the store runs one of the same name.
func (s *Store) Alone(ctx context.Context, name string, do func(ctx context.Context) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.explain(name, err)
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, `SELECT pg_advisory_lock(hashtextextended('daybreak alone ' || $1, 0))`, name); err != nil {
		return s.explain(name, err)
	}
	err = do(ctx)
	_, uerr := conn.Exec(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock(hashtextextended('daybreak alone ' || $1, 0))`, name)
	return errors.Join(err, s.explain(name, uerr))
}

// Watch implements [store.Store], by LISTEN on a connection of its own that all watchers of
// the process share. After that connection broke, every watcher is woken once.
func (s *Store) Watch(ctx context.Context, id task.ID) (<-chan struct{}, error) {
	s.listen.Lock()
	defer s.listen.Unlock()
	if s.heard == nil {
		conn, err := s.listener(ctx)
		if err != nil {
			return nil, s.explain("watch", err)
		}
		run, stop := context.WithCancel(context.WithoutCancel(ctx))
		s.stop, s.heard = stop, make(chan struct{})
		go s.hear(run, conn)
	}
	return s.hub.Watch(ctx, id), nil
}

func (s *Store) listener(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
		return nil, errors.Join(err, conn.Close(ctx))
	}
	return conn, nil
}

func (s *Store) hear(ctx context.Context, conn *pgx.Conn) {
	defer close(s.heard)
	for ctx.Err() == nil {
		n, err := conn.WaitForNotification(ctx)
		if err == nil {
			s.hub.Tell(task.ID(n.Payload))
			continue
		}
		_ = conn.Close(context.WithoutCancel(ctx))
		for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
			if conn, err = s.listener(ctx); err == nil {
				s.hub.Tell("") // of what happened meanwhile
				break
			}
			select {
			case <-ctx.Done():
			case <-time.After(pause):
			}
		}
	}
	if conn != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
	}
}
