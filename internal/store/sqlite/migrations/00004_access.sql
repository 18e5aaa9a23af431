-- Who may ask over HTTP. Of a secret only the SHA-256 is here. Times are Unix microseconds, 0 is none.

-- +goose Up
CREATE TABLE tokens (
    id      TEXT    PRIMARY KEY,
    name    TEXT    NOT NULL,
    hash    BLOB    NOT NULL,
    scopes  TEXT    NOT NULL, -- JSON array
    repos   TEXT    NOT NULL, -- JSON array
    maker   TEXT    NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    revoked INTEGER NOT NULL,
    used    INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE UNIQUE INDEX tokens_good ON tokens (name) WHERE revoked = 0;

CREATE TABLE grants (
    hash    BLOB    PRIMARY KEY,
    kind    TEXT    NOT NULL,
    body    BLOB    NOT NULL,
    created INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX grants_expire ON grants (expires);

-- +goose Down
DROP TABLE grants;
DROP TABLE tokens;
