package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/daybreak-agent/daybreak/internal/store"
	"github.com/daybreak-agent/daybreak/internal/task"
)

const tokenColumns = `id, name, hash, scopes, repos, maker, created, expires, revoked, used`

// AddToken implements [store.Access].
func (s *Store) AddToken(ctx context.Context, t store.Token) error {
	scopes, repos, err := lists(t)
	if err != nil {
		return err
	}
	return s.write(ctx, "keep token", func(ctx context.Context) error {
		_, err := s.tx.ExecContext(ctx, `INSERT INTO tokens (`+tokenColumns+`) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			t.ID, t.Name, t.Hash, scopes, repos, t.By, moment(t.Created), moment(t.Expires), moment(t.Revoked), moment(t.Used))
		if constraint(err) {
			return failure(task.Conflict, "there is a token named %s already", t.Name)
		}
		return err
	})
}

func lists(t store.Token) (scopes, repos string, err error) {
	a, err := json.Marshal(t.Scopes)
	if err != nil {
		return "", "", err
	}
	b, err := json.Marshal(t.Repos)
	return string(a), string(b), err
}

// Token implements [store.Access].
func (s *Store) Token(ctx context.Context, id string) (store.Token, error) {
	t, err := scanToken(s.readDB.QueryRowContext(ctx, `SELECT `+tokenColumns+` FROM tokens WHERE id = ?`, id))
	if errors.Is(err, sql.ErrNoRows) {
		return t, failure(task.NotFound, "no such token")
	}
	return t, s.explain("read token", err)
}

// Tokens implements [store.Access].
func (s *Store) Tokens(ctx context.Context) (out []store.Token, err error) {
	rows, err := s.readDB.QueryContext(ctx, `SELECT `+tokenColumns+` FROM tokens ORDER BY created, id`)
	if err != nil {
		return nil, s.explain("list tokens", err)
	}
	defer rows.Close()
	for rows.Next() {
		t, err := scanToken(rows)
		if err != nil {
			return nil, s.explain("list tokens", err)
		}
		out = append(out, t)
	}
	return out, s.explain("list tokens", rows.Err())
}

func scanToken(row interface{ Scan(...any) error }) (t store.Token, err error) {
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
	return s.write(ctx, "revoke token", func(ctx context.Context) error {
		r, err := s.tx.ExecContext(ctx, `UPDATE tokens SET revoked = CASE revoked WHEN 0 THEN ? ELSE revoked END WHERE id = ?`, moment(at), id)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 1 {
			return err
		}
		return failure(task.NotFound, "no such token")
	})
}

// TokenUsed implements [store.Access].
func (s *Store) TokenUsed(ctx context.Context, id string, at time.Time) error {
	return s.write(ctx, "note token", func(ctx context.Context) error {
		_, err := s.tx.ExecContext(ctx, `UPDATE tokens SET used = ? WHERE id = ? AND used < ?`, moment(at), id, moment(at))
		return err
	})
}

// PutGrant implements [store.Access].
func (s *Store) PutGrant(ctx context.Context, g store.Grant) error {
	return s.write(ctx, "keep grant", func(ctx context.Context) error {
		_, err := s.tx.ExecContext(ctx, `INSERT INTO grants (hash, kind, body, created, expires) VALUES (?, ?, ?, ?, ?)`,
			g.Hash, g.Kind, append([]byte{}, g.Body...), moment(g.Created), moment(g.Expires))
		if constraint(err) {
			return failure(task.Conflict, "there is such a grant already")
		}
		return err
	})
}

const findGrant = `kind = ? AND hash = ? AND expires > ?`

// Grant implements [store.Access].
func (s *Store) Grant(ctx context.Context, kind string, hash []byte, now time.Time) (store.Grant, error) {
	g, err := scanGrant(s.readDB.QueryRowContext(ctx, `SELECT hash, kind, body, created, expires FROM grants WHERE `+findGrant, kind, hash, moment(now)))
	return g, s.explain("read grant", err)
}

// TakeGrant implements [store.Access].
func (s *Store) TakeGrant(ctx context.Context, kind string, hash []byte, now time.Time) (g store.Grant, err error) {
	err = s.write(ctx, "take grant", func(ctx context.Context) error {
		g, err = scanGrant(s.tx.QueryRowContext(ctx, `DELETE FROM grants WHERE `+findGrant+` RETURNING hash, kind, body, created, expires`, kind, hash, moment(now)))
		return err
	})
	if err != nil {
		return store.Grant{}, err
	}
	return g, nil
}

func scanGrant(row *sql.Row) (g store.Grant, err error) {
	var created, expires int64
	err = row.Scan(&g.Hash, &g.Kind, &g.Body, &created, &expires)
	if errors.Is(err, sql.ErrNoRows) {
		return g, failure(task.NotFound, "no such grant")
	}
	g.Created, g.Expires = fromMoment(created), fromMoment(expires)
	return g, err
}

// DropGrants implements [store.Access].
func (s *Store) DropGrants(ctx context.Context, before time.Time) (n int, err error) {
	err = s.write(ctx, "drop grants", func(ctx context.Context) error {
		r, err := s.tx.ExecContext(ctx, `DELETE FROM grants WHERE expires < ?`, moment(before))
		if err != nil {
			return err
		}
		gone, err := r.RowsAffected()
		n = int(gone)
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
