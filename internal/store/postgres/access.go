package postgres

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const tokenColumns = `id, name, hash, scopes, repos, maker, created, expires, revoked, used`

// AddToken implements [store.Access].
func (s *Store) AddToken(ctx context.Context, t store.Token) error {
	scopes, err := json.Marshal(t.Scopes)
	if err != nil {
		return err
	}
	repos, err := json.Marshal(t.Repos)
	if err != nil {
		return err
	}
	return s.write(ctx, "keep token", "", func(ctx context.Context, tx pgx.Tx, again bool) error {
		if again { // the answer was lost: it may be there
			var n int
			if err := tx.QueryRow(ctx, `SELECT count(*) FROM tokens WHERE id = $1 AND hash = $2`, t.ID, t.Hash).Scan(&n); err != nil || n == 1 {
				return err
			}
		}
		_, err := tx.Exec(ctx, `INSERT INTO tokens (`+tokenColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
			t.ID, text(t.Name), t.Hash, text(string(scopes)), text(string(repos)), text(t.By), moment(t.Created), moment(t.Expires), moment(t.Revoked), moment(t.Used))
		if is(err, uniqueViolation) {
			return failure(task.Conflict, "there is a token named %s already", t.Name)
		}
		return err
	})
}

// Token implements [store.Access].
func (s *Store) Token(ctx context.Context, id string) (t store.Token, err error) {
	err = s.try(ctx, "read token", func(ctx context.Context, _ bool) error {
		t, err = scanToken(s.pool.QueryRow(ctx, `SELECT `+tokenColumns+` FROM tokens WHERE id = $1`, text(id)))
		return err
	})
	if none(err) {
		return store.Token{}, failure(task.NotFound, "no such token")
	}
	return t, err
}

// Tokens implements [store.Access].
func (s *Store) Tokens(ctx context.Context) (out []store.Token, err error) {
	err = s.try(ctx, "list tokens", func(ctx context.Context, _ bool) error {
		rows, err := s.pool.Query(ctx, `SELECT `+tokenColumns+` FROM tokens ORDER BY created, id`)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (store.Token, error) { return scanToken(row) })
		return err
	})
	return out, err
}

func scanToken(row pgx.Row) (t store.Token, err error) {
	var scopes, repos string
	var created, expires, revoked, used int64
	if err := row.Scan(&t.ID, &t.Name, &t.Hash, &scopes, &repos, &t.By, &created, &expires, &revoked, &used); err != nil {
		return t, err
	}
	t.Created, t.Expires, t.Revoked, t.Used = fromMoment(created), fromMoment(expires), fromMoment(revoked), fromMoment(used)
	return t, errors.Join(json.Unmarshal([]byte(scopes), &t.Scopes), json.Unmarshal([]byte(repos), &t.Repos))
}

// RevokeToken implements [store.Access].
func (s *Store) RevokeToken(ctx context.Context, id string, at time.Time) error {
	return s.write(ctx, "revoke token", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		tag, err := tx.Exec(ctx, `UPDATE tokens SET revoked = CASE revoked WHEN 0 THEN $1 ELSE revoked END WHERE id = $2`, moment(at), text(id))
		if err == nil && tag.RowsAffected() == 0 {
			return failure(task.NotFound, "no such token")
		}
		return err
	})
}

// TokenUsed implements [store.Access].
func (s *Store) TokenUsed(ctx context.Context, id string, at time.Time) error {
	return s.write(ctx, "note token", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		_, err := tx.Exec(ctx, `UPDATE tokens SET used = $1 WHERE id = $2 AND used < $1`, moment(at), text(id))
		return err
	})
}

// PutGrant implements [store.Access].
func (s *Store) PutGrant(ctx context.Context, g store.Grant) error {
	return s.write(ctx, "keep grant", "", func(ctx context.Context, tx pgx.Tx, again bool) error {
		tag, err := tx.Exec(ctx, `INSERT INTO grants (hash, kind, body, created, expires) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (hash) DO NOTHING`,
			g.Hash, g.Kind, append([]byte{}, g.Body...), moment(g.Created), moment(g.Expires))
		if err == nil && tag.RowsAffected() == 0 && !again { // again: its answer was lost
			return failure(task.Conflict, "there is such a grant already")
		}
		return err
	})
}

const findGrant = `kind = $1 AND hash = $2 AND expires > $3`

// Grant implements [store.Access].
func (s *Store) Grant(ctx context.Context, kind string, hash []byte, now time.Time) (g store.Grant, err error) {
	err = s.try(ctx, "read grant", func(ctx context.Context, _ bool) error {
		g, err = scanGrant(s.pool.QueryRow(ctx, `SELECT hash, kind, body, created, expires FROM grants WHERE `+findGrant, kind, hash, moment(now)))
		return err
	})
	return g, noGrant(err)
}

// TakeGrant implements [store.Access]. When the server's answer was lost nobody gets it.
func (s *Store) TakeGrant(ctx context.Context, kind string, hash []byte, now time.Time) (g store.Grant, err error) {
	err = s.write(ctx, "take grant", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		g, err = scanGrant(tx.QueryRow(ctx, `DELETE FROM grants WHERE `+findGrant+` RETURNING hash, kind, body, created, expires`, kind, hash, moment(now)))
		return err
	})
	if err != nil {
		return store.Grant{}, noGrant(err)
	}
	return g, nil
}

func noGrant(err error) error {
	if none(err) {
		return failure(task.NotFound, "no such grant")
	}
	return err
}

func scanGrant(row pgx.Row) (g store.Grant, err error) {
	var created, expires int64
	err = row.Scan(&g.Hash, &g.Kind, &g.Body, &created, &expires)
	g.Created, g.Expires = fromMoment(created), fromMoment(expires)
	return g, err
}

// DropGrants implements [store.Access].
func (s *Store) DropGrants(ctx context.Context, before time.Time) (n int, err error) {
	err = s.write(ctx, "drop grants", "", func(ctx context.Context, tx pgx.Tx, _ bool) error {
		tag, err := tx.Exec(ctx, `DELETE FROM grants WHERE expires < $1`, moment(before))
		n = int(tag.RowsAffected())
		return err
	})
	return n, err
}

// moment is a time in the database, where 0 is none.
func moment(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return micros(t)
}

func fromMoment(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return fromMicros(n)
}
