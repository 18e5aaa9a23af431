-- Times are microseconds since 1970, UTC. Digests are lower-case hex SHA-256. Words of people
-- are bytes: they may hold what a text of this database cannot.

-- +goose Up
CREATE TABLE tasks (
    id        text   PRIMARY KEY,
    key       bytea  NOT NULL,
    state     text   NOT NULL,
    done      bool   NOT NULL,              -- no worker has anything left to do
    repo      bytea  NOT NULL,
    title     bytea  NOT NULL,
    created   bigint NOT NULL,
    updated   bigint NOT NULL,
    last_seq  bigint NOT NULL,
    last_hash text   NOT NULL,
    epoch     bigint NOT NULL DEFAULT 0,    -- of the newest lease ever given; never goes down
    owner     text   NOT NULL DEFAULT '',   -- of that lease, '' once it is released
    until     bigint NOT NULL DEFAULT 0,
    dispatch  bool   NOT NULL DEFAULT false, -- its runs are ordered by the scheduler
    author    bytea  NOT NULL DEFAULT '',
    priority  int    NOT NULL DEFAULT 2,
    job       bigint NOT NULL DEFAULT 0,    -- its newest order in the queue
    due       bigint NOT NULL DEFAULT 0     -- of that order: not to be worked before
);

CREATE UNIQUE INDEX tasks_unfinished_key ON tasks (key) WHERE NOT done AND key <> '';
CREATE INDEX tasks_key ON tasks (key);
CREATE INDEX tasks_newest ON tasks (created DESC, id DESC);
CREATE INDEX tasks_leased ON tasks (until) WHERE owner <> '';
CREATE INDEX tasks_unfinished ON tasks (created) WHERE dispatch AND NOT done;

CREATE TABLE events (
    task    text   NOT NULL REFERENCES tasks (id),
    seq     bigint NOT NULL,
    epoch   bigint NOT NULL,
    time    bigint NOT NULL,
    kind    text   NOT NULL,
    version int    NOT NULL,
    payload bytea  NOT NULL,
    prev    text   NOT NULL,
    hash    text   NOT NULL,
    PRIMARY KEY (task, seq)
);

CREATE TABLE blobs (
    digest text  PRIMARY KEY,
    data   bytea NOT NULL
);

CREATE TABLE signals (
    n     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- order of arrival
    id    text   NOT NULL UNIQUE,
    task  text   NOT NULL REFERENCES tasks (id),
    kind  text   NOT NULL,
    who   bytea  NOT NULL,
    text  bytea  NOT NULL,
    at    bigint NOT NULL,
    taken bigint NOT NULL DEFAULT 0         -- seq of the event that took it up
);

CREATE INDEX signals_waiting ON signals (task, n) WHERE taken = 0;

CREATE TABLE shared (
    key   text  PRIMARY KEY,
    value bytea NOT NULL
);

-- +goose StatementBegin
CREATE FUNCTION daybreak_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION '% are never changed or deleted', TG_TABLE_NAME; END $$;
-- +goose StatementEnd

CREATE TRIGGER events_are_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON events EXECUTE FUNCTION daybreak_refuse();
CREATE TRIGGER blobs_are_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON blobs EXECUTE FUNCTION daybreak_refuse();

-- +goose StatementBegin
CREATE FUNCTION daybreak_newest_epoch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.epoch <> (SELECT epoch FROM tasks WHERE id = NEW.task) THEN
        RAISE EXCEPTION 'the epoch of the event is not the newest';
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd

CREATE TRIGGER events_of_the_newest_lease BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION daybreak_newest_epoch();

-- +goose StatementBegin
CREATE FUNCTION daybreak_now() RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint $$;
-- +goose StatementEnd

-- +goose Down
DROP TABLE shared, signals, blobs, events, tasks;
DROP FUNCTION daybreak_refuse, daybreak_newest_epoch, daybreak_now;
