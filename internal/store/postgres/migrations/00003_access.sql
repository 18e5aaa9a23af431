-- Who may ask over HTTP. Of a secret only the SHA-256 is here. Times are Unix microseconds, 0 is none.

-- +goose Up
CREATE TABLE tokens (
    id      text    PRIMARY KEY,
    name    text    NOT NULL,
    hash    bytea   NOT NULL,
    scopes  text    NOT NULL, -- JSON array
    repos   text    NOT NULL, -- JSON array
    maker   text    NOT NULL,
    created bigint NOT NULL,
    expires bigint NOT NULL,
    revoked bigint NOT NULL,
    used    bigint NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX tokens_good ON tokens (name) WHERE revoked = 0;

CREATE TABLE grants (
    hash    bytea   PRIMARY KEY,
    kind    text    NOT NULL,
    body    bytea   NOT NULL,
    created bigint NOT NULL,
    expires bigint NOT NULL
);

CREATE INDEX grants_expire ON grants (expires);

-- +goose Down
DROP TABLE grants;
DROP TABLE tokens;
