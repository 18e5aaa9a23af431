package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/daybreak-agent/daybreak/internal/task"
)

// lookAround is how often a watching process looks for changes by others.
const lookAround = 200 * time.Millisecond

// Watch implements [store.Store]. Changes by this process wake at once, changes by others
// within [lookAround]; those wake every watcher.
func (s *Store) Watch(ctx context.Context, id task.ID) (<-chan struct{}, error) {
	ch := s.hub.Watch(ctx, id)
	var err error
	s.poll.Do(func() {
		var conn *sql.Conn
		if conn, err = s.readDB.Conn(context.WithoutCancel(ctx)); err == nil {
			go s.look(conn)
		}
	})
	return ch, s.explain("watch", err)
}

// look wakes all watchers when the file changed under another connection than the writer's;
// what the writer changed was told already, and is told once more.
func (s *Store) look(conn *sql.Conn) {
	defer func() { _ = conn.Close() }()
	every := time.NewTicker(lookAround)
	defer every.Stop()
	was := int64(-1)
	for {
		select {
		case <-s.closed:
			return
		case <-every.C:
		}
		var now int64
		if err := conn.QueryRowContext(context.Background(), "PRAGMA data_version").Scan(&now); err != nil {
			if errors.Is(err, sql.ErrConnDone) {
				return
			}
			s.log.Warn("look for changes by other processes", "error", err)
			continue
		}
		if was >= 0 && now != was {
			s.hub.Tell("")
		}
		was = now
	}
}

// Update implements [store.Store].
func (s *Store) Update(ctx context.Context, key string, change func([]byte) ([]byte, error)) error {
	return s.write(ctx, "update "+key, func(ctx context.Context) error {
		var old []byte
		if err := s.w.shared.QueryRowContext(ctx, key).Scan(&old); err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		now, err := change(old)
		if err != nil {
			return err
		}
		if now == nil {
			now = []byte{}
		}
		_, err = s.w.setShared.ExecContext(ctx, key, now)
		return err
	})
}
