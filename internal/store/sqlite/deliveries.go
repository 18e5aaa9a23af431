package sqlite

import (
	"context"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Deliver implements [store.Deliveries].
func (s *Store) Deliver(ctx context.Context, d store.Delivery) (first bool, err error) {
	if d.Forge == "" || d.ID == "" {
		return false, failure(task.Invalid, "a delivery needs a forge and an id")
	}
	err = s.write(ctx, "keep delivery", func(ctx context.Context) error {
		r, err := s.tx.ExecContext(ctx, `INSERT INTO deliveries (forge, id, body, at) VALUES (?, ?, ?, ?) ON CONFLICT (forge, id) DO NOTHING`,
			d.Forge, d.ID, append([]byte{}, d.Body...), micros(s.now()))
		if err != nil {
			return err
		}
		n, err := r.RowsAffected()
		first = n == 1
		return err
	})
	return first && err == nil, err
}

// Undone implements [store.Deliveries].
func (s *Store) Undone(ctx context.Context, limit int) ([]store.Delivery, error) {
	rows, err := s.readDB.QueryContext(ctx, `SELECT forge, id, body, at, tries FROM deliveries WHERE done = 0 AND due <= ? ORDER BY n LIMIT ?`, micros(s.now()), limit)
	if err != nil {
		return nil, s.explain("read deliveries", err)
	}
	defer rows.Close()
	var out []store.Delivery
	for rows.Next() {
		var d store.Delivery
		var at int64
		if err := rows.Scan(&d.Forge, &d.ID, &d.Body, &at, &d.Tries); err != nil {
			return nil, s.explain("read deliveries", err)
		}
		d.At = fromMicros(at)
		out = append(out, d)
	}
	return out, s.explain("read deliveries", rows.Err())
}

// Postpone implements [store.Deliveries].
func (s *Store) Postpone(ctx context.Context, forge, id string, after time.Duration, why string) error {
	return s.write(ctx, "postpone delivery", func(ctx context.Context) error {
		_, err := s.tx.ExecContext(ctx, `UPDATE deliveries SET tries = tries + 1, due = ?, outcome = ? WHERE forge = ? AND id = ? AND done = 0`, micros(s.now().Add(after)), why, forge, id)
		return err
	})
}

// Conclude implements [store.Deliveries].
func (s *Store) Conclude(ctx context.Context, forge, id, outcome string) error {
	return s.write(ctx, "conclude delivery", func(ctx context.Context) error {
		_, err := s.tx.ExecContext(ctx, `UPDATE deliveries SET done = ?, outcome = ?, body = x'' WHERE forge = ? AND id = ? AND done = 0`, micros(s.now()), outcome, forge, id)
		return err
	})
}

// Forget implements [store.Deliveries].
func (s *Store) Forget(ctx context.Context, before time.Time) (n int, err error) {
	err = s.write(ctx, "forget deliveries", func(ctx context.Context) error {
		r, err := s.tx.ExecContext(ctx, `DELETE FROM deliveries WHERE done <> 0 AND done < ?`, micros(before))
		if err != nil {
			return err
		}
		gone, err := r.RowsAffected()
		n = int(gone)
		return err
	})
	return n, err
}
