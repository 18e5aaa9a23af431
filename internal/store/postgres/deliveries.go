package postgres

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

// Deliver implements [store.Deliveries].
func (s *Store) Deliver(ctx context.Context, d store.Delivery) (first bool, err error) {
	if d.Forge == "" || d.ID == "" {
		return false, failure(task.Invalid, "a delivery needs a forge and an id")
	}
	err = s.write(ctx, "keep delivery", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		tag, err := tx.Exec(ctx, `INSERT INTO deliveries (forge, id, body, at) VALUES ($1, $2, $3, $4) ON CONFLICT (forge, id) DO NOTHING`,
			d.Forge, d.ID, append([]byte{}, d.Body...), micros(s.now()))
		first = tag.RowsAffected() == 1
		return err
	})
	return first && err == nil, err
}

// Undone implements [store.Deliveries].
func (s *Store) Undone(ctx context.Context, limit int) (out []store.Delivery, err error) {
	err = s.try(ctx, "read deliveries", func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, `SELECT forge, id, body, at, tries FROM deliveries WHERE done = 0 AND due <= $1 ORDER BY n LIMIT $2`, micros(s.now()), limit)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d store.Delivery, err error) {
			var at int64
			err = row.Scan(&d.Forge, &d.ID, &d.Body, &at, &d.Tries)
			d.At = fromMicros(at)
			return d, err
		})
		return err
	})
	return out, err
}

// Postpone implements [store.Deliveries].
func (s *Store) Postpone(ctx context.Context, forge, id string, after time.Duration, why string) error {
	return s.write(ctx, "postpone delivery", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		_, err := tx.Exec(ctx, `UPDATE deliveries SET tries = tries + 1, due = $1, outcome = $2 WHERE forge = $3 AND id = $4 AND done = 0`,
			micros(s.now().Add(after)), text(why), forge, id)
		return err
	})
}

// Conclude implements [store.Deliveries].
func (s *Store) Conclude(ctx context.Context, forge, id, outcome string) error {
	return s.write(ctx, "conclude delivery", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		_, err := tx.Exec(ctx, `UPDATE deliveries SET done = $1, outcome = $2, body = '' WHERE forge = $3 AND id = $4 AND done = 0`,
			micros(s.now()), text(outcome), forge, id)
		return err
	})
}

// Forget implements [store.Deliveries].
func (s *Store) Forget(ctx context.Context, before time.Time) (n int, err error) {
	err = s.write(ctx, "forget deliveries", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		tag, err := tx.Exec(ctx, `DELETE FROM deliveries WHERE done <> 0 AND done < $1`, micros(before))
		n = int(tag.RowsAffected())
		return err
	})
	return n, err
}

// text is what a column of text can hold.
func text(s string) string { return strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?") }
