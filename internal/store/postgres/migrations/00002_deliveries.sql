-- What forges told. One that was acted upon stays for a while, so that a second telling is known.

-- +goose Up
CREATE TABLE deliveries (
    n       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- order of arrival
    forge   text   NOT NULL,
    id      text   NOT NULL,
    body    bytea  NOT NULL,
    at      bigint NOT NULL,
    tries   int    NOT NULL DEFAULT 0,
    due     bigint NOT NULL DEFAULT 0,
    done    bigint NOT NULL DEFAULT 0,                       -- when it was concluded
    outcome text   NOT NULL DEFAULT '',
    UNIQUE (forge, id)
);

CREATE INDEX deliveries_undone ON deliveries (n) WHERE done = 0;

-- +goose Down
DROP TABLE deliveries;
