-- What the scheduler needs, and the rule that the database itself refuses a stale epoch.

-- +goose Up
ALTER TABLE tasks ADD COLUMN dispatch INTEGER NOT NULL DEFAULT 0; -- 1: its runs are ordered by the scheduler
ALTER TABLE tasks ADD COLUMN author   TEXT    NOT NULL DEFAULT '';
ALTER TABLE tasks ADD COLUMN priority INTEGER NOT NULL DEFAULT 2;
ALTER TABLE tasks ADD COLUMN job      INTEGER NOT NULL DEFAULT 0; -- its newest order in the queue
ALTER TABLE tasks ADD COLUMN due      INTEGER NOT NULL DEFAULT 0; -- of that order: not to be worked before

CREATE INDEX tasks_leased ON tasks (until) WHERE owner <> '';
CREATE INDEX tasks_unfinished ON tasks (created) WHERE dispatch = 1 AND done = 0;

-- +goose StatementBegin
CREATE TRIGGER events_of_the_newest_lease BEFORE INSERT ON events
WHEN NEW.epoch <> (SELECT epoch FROM tasks WHERE id = NEW.task)
BEGIN SELECT RAISE(ABORT, 'the epoch of the event is not the newest'); END;
-- +goose StatementEnd

CREATE TABLE shared (
    key   TEXT PRIMARY KEY,
    value BLOB NOT NULL
) STRICT;

-- +goose Down
DROP TABLE shared;
DROP TRIGGER events_of_the_newest_lease;
DROP INDEX tasks_unfinished;
DROP INDEX tasks_leased;
ALTER TABLE tasks DROP COLUMN due;
ALTER TABLE tasks DROP COLUMN job;
ALTER TABLE tasks DROP COLUMN priority;
ALTER TABLE tasks DROP COLUMN author;
ALTER TABLE tasks DROP COLUMN dispatch;
