-- Who acts on a delivery, until when. Of one repository it is one at a time; those from before have none.

-- +goose Up
ALTER TABLE deliveries ADD COLUMN repository TEXT NOT NULL DEFAULT '';
ALTER TABLE deliveries ADD COLUMN claim TEXT NOT NULL DEFAULT '';
ALTER TABLE deliveries ADD COLUMN claimed INTEGER NOT NULL DEFAULT 0; -- until then

CREATE INDEX deliveries_claimed ON deliveries (forge, repository) WHERE done = 0 AND claimed > 0;

-- +goose Down
DROP INDEX deliveries_claimed;
ALTER TABLE deliveries DROP COLUMN claimed;
ALTER TABLE deliveries DROP COLUMN claim;
ALTER TABLE deliveries DROP COLUMN repository;
