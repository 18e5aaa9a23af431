-- What forges told. One that was acted upon stays for a while, so that a second telling is known.

-- +goose Up
CREATE TABLE deliveries (
    n       INTEGER PRIMARY KEY AUTOINCREMENT, -- order of arrival
    forge   TEXT    NOT NULL,
    id      TEXT    NOT NULL,
    body    BLOB    NOT NULL,
    at      INTEGER NOT NULL,
    tries   INTEGER NOT NULL DEFAULT 0,
    due     INTEGER NOT NULL DEFAULT 0,
    done    INTEGER NOT NULL DEFAULT 0,        -- when it was concluded
    outcome TEXT    NOT NULL DEFAULT '',
    UNIQUE (forge, id)
) STRICT;

CREATE INDEX deliveries_undone ON deliveries (n) WHERE done = 0;

-- +goose Down
DROP TABLE deliveries;
