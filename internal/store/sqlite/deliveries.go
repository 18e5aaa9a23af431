package sqlite

import (
	"context"
	"database/sql"
	"errors"
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
		r, err := s.tx.ExecContext(ctx, `INSERT INTO deliveries (forge, id, repository, body, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (forge, id) DO NOTHING`,
			d.Forge, d.ID, d.Repository, append([]byte{}, d.Body...), micros(s.now()))
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
func (s *Store) Undone(ctx context.Context) (out []string, err error) {
	rows, err := s.readDB.QueryContext(ctx, `SELECT DISTINCT forge FROM deliveries WHERE done = 0 AND due <= ?1 AND claimed <= ?1`, micros(s.now()))
	if err != nil {
		return nil, s.explain("read deliveries", err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, s.explain("read deliveries", err)
		}
		out = append(out, name)
	}
	return out, s.explain("read deliveries", rows.Err())
}

// TakeUp implements [store.Deliveries].
func (s *Store) TakeUp(ctx context.Context, forge, claim string, ttl time.Duration) (d store.Delivery, ok bool, err error) {
	err = s.write(ctx, "take up delivery", func(ctx context.Context) error {
		now := s.now()
		var at int64
		err := s.tx.QueryRowContext(ctx, `UPDATE deliveries SET claim = ?1, claimed = ?2 WHERE n = (
				SELECT n FROM deliveries d WHERE forge = ?3 AND done = 0 AND due <= ?4 AND claimed <= ?4 AND NOT EXISTS (
					SELECT 1 FROM deliveries o WHERE o.forge = d.forge AND o.repository = d.repository AND o.done = 0 AND o.claimed > 0 AND o.claimed > ?4)
				ORDER BY n LIMIT 1)
			RETURNING forge, id, repository, body, at, tries, claim`,
			claim, micros(now.Add(ttl)), forge, micros(now)).Scan(&d.Forge, &d.ID, &d.Repository, &d.Body, &at, &d.Tries, &d.Claim)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		d.At, ok = fromMicros(at), err == nil
		return err
	})
	return d, ok && err == nil, err
}

// Hold implements [store.Deliveries].
func (s *Store) Hold(ctx context.Context, d store.Delivery, ttl time.Duration) error {
	return s.write(ctx, "hold delivery", func(ctx context.Context) error {
		r, err := s.tx.ExecContext(ctx, `UPDATE deliveries SET claimed = ? WHERE forge = ? AND id = ? AND claim = ? AND done = 0`, micros(s.now().Add(ttl)), d.Forge, d.ID, d.Claim)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 1 {
			return err
		}
		return failure(task.Stale, "delivery %s is another's by now", d.ID)
	})
}

// Postpone implements [store.Deliveries].
func (s *Store) Postpone(ctx context.Context, d store.Delivery, after time.Duration, why string) error {
	return s.write(ctx, "postpone delivery", func(ctx context.Context) error {
		_, err := s.tx.ExecContext(ctx, `UPDATE deliveries SET tries = tries + 1, due = ?, outcome = ?, claim = '', claimed = 0 WHERE forge = ? AND id = ? AND claim = ? AND done = 0`,
			micros(s.now().Add(after)), why, d.Forge, d.ID, d.Claim)
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
