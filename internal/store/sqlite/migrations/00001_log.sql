-- Times are microseconds since 1970, UTC. Digests are lower-case hex SHA-256.

-- +goose Up
CREATE TABLE tasks (
    id        TEXT    PRIMARY KEY,
    key       TEXT    NOT NULL,
    state     TEXT    NOT NULL,
    done      INTEGER NOT NULL,              -- 1 when no worker has anything left to do
    repo      TEXT    NOT NULL,
    title     TEXT    NOT NULL,
    created   INTEGER NOT NULL,
    updated   INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL,
    last_hash TEXT    NOT NULL,
    epoch     INTEGER NOT NULL DEFAULT 0,    -- of the newest lease ever given; never goes down
    owner     TEXT    NOT NULL DEFAULT '',   -- of that lease, '' once it is released
    until     INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE UNIQUE INDEX tasks_unfinished_key ON tasks (key) WHERE done = 0 AND key <> '';
CREATE INDEX tasks_key ON tasks (key);
CREATE INDEX tasks_newest ON tasks (created DESC, id DESC);

CREATE TABLE events (
    task    TEXT    NOT NULL REFERENCES tasks (id),
    seq     INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    time    INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    version INTEGER NOT NULL,
    payload BLOB    NOT NULL,
    prev    TEXT    NOT NULL,
    hash    TEXT    NOT NULL,
    PRIMARY KEY (task, seq)
) STRICT, WITHOUT ROWID;

-- +goose StatementBegin
CREATE TRIGGER events_are_not_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE TRIGGER events_are_not_deleted BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;
-- +goose StatementEnd

CREATE TABLE blobs (
    digest TEXT    PRIMARY KEY,
    data   BLOB    NOT NULL
) STRICT;

-- +goose StatementBegin
CREATE TRIGGER blobs_are_not_changed BEFORE UPDATE ON blobs
BEGIN SELECT RAISE(ABORT, 'blobs are never changed'); END;
-- +goose StatementEnd

CREATE TABLE signals (
    n     INTEGER PRIMARY KEY AUTOINCREMENT, -- order of arrival
    id    TEXT    NOT NULL UNIQUE,
    task  TEXT    NOT NULL REFERENCES tasks (id),
    kind  TEXT    NOT NULL,
    who   TEXT    NOT NULL,
    text  TEXT    NOT NULL,
    at    INTEGER NOT NULL,
    taken INTEGER NOT NULL DEFAULT 0         -- seq of the event that took it up
) STRICT;

CREATE INDEX signals_waiting ON signals (task, n) WHERE taken = 0;

-- +goose Down
DROP TABLE signals;
DROP TABLE blobs;
DROP TABLE events;
DROP TABLE tasks;
