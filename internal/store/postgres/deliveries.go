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
		tag, err := tx.Exec(ctx, `INSERT INTO deliveries (forge, id, repository, body, at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (forge, id) DO NOTHING`,
			d.Forge, d.ID, d.Repository, append([]byte{}, d.Body...), micros(s.now()))
		first = tag.RowsAffected() == 1
		return err
	})
	return first && err == nil, err
}

// Undone implements [store.Deliveries].
func (s *Store) Undone(ctx context.Context) (out []string, err error) {
	err = s.try(ctx, "read deliveries", func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, `SELECT DISTINCT forge FROM deliveries WHERE done = 0 AND due <= daybreak_now() AND claimed <= daybreak_now()`)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return out, err
}

// TakeUp implements [store.Deliveries].
func (s *Store) TakeUp(ctx context.Context, forge, claim string, ttl time.Duration) (d store.Delivery, ok bool, err error) {
	err = s.write(ctx, "take up delivery", "", func(ctx context.Context, tx pgx.Tx, again bool) error {
		// Two at once would both see that nobody acts on a repository.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('daybreak deliveries ' || $1, 0))`, forge); err != nil {
			return err
		}
		const set, get = `UPDATE deliveries SET claim = $1, claimed = daybreak_now() + $2 WHERE n = (`, `) RETURNING forge, id, repository, body, at, tries, claim`
		var at int64
		into := []any{&d.Forge, &d.ID, &d.Repository, &d.Body, &at, &d.Tries, &d.Claim}
		err := pgx.ErrNoRows
		if again { // what was cut off may have claimed one
			err = tx.QueryRow(ctx, set+`SELECT n FROM deliveries WHERE forge = $3 AND done = 0 AND claim = $1 AND claimed > daybreak_now() LIMIT 1`+get, claim, ttl.Microseconds(), forge).Scan(into...)
		}
		if none(err) {
			err = tx.QueryRow(ctx, set+`SELECT n FROM deliveries d WHERE forge = $3 AND done = 0 AND due <= daybreak_now() AND claimed <= daybreak_now() AND NOT EXISTS (
					SELECT 1 FROM deliveries o WHERE o.forge = d.forge AND o.repository = d.repository AND o.done = 0 AND o.claimed > 0 AND o.claimed > daybreak_now())
				ORDER BY n LIMIT 1`+get, claim, ttl.Microseconds(), forge).Scan(into...)
		}
		d.At, ok = fromMicros(at), err == nil
		if none(err) {
			return nil
		}
		return err
	})
	return d, ok && err == nil, err
}

// Hold implements [store.Deliveries].
func (s *Store) Hold(ctx context.Context, d store.Delivery, ttl time.Duration) error {
	return s.write(ctx, "hold delivery", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		tag, err := tx.Exec(ctx, `UPDATE deliveries SET claimed = daybreak_now() + $1 WHERE forge = $2 AND id = $3 AND claim = $4 AND done = 0`, ttl.Microseconds(), d.Forge, d.ID, d.Claim)
		if err == nil && tag.RowsAffected() != 1 {
			return failure(task.Stale, "delivery %s is another's by now", d.ID)
		}
		return err
	})
}

// Postpone implements [store.Deliveries].
func (s *Store) Postpone(ctx context.Context, d store.Delivery, after time.Duration, why string) error {
	return s.write(ctx, "postpone delivery", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		_, err := tx.Exec(ctx, `UPDATE deliveries SET tries = tries + 1, due = daybreak_now() + $1, outcome = $2, claim = '', claimed = 0 WHERE forge = $3 AND id = $4 AND claim = $5 AND done = 0`,
			after.Microseconds(), text(why), d.Forge, d.ID, d.Claim)
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
