-- What a journal knows of itself, such as the key of its resume tokens; and how much everything in it takes.

CREATE TABLE properties (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO properties (name, value) VALUES ('probe', '');

ALTER TABLE invocations ADD COLUMN content_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE invocations SET content_bytes = COALESCE(OCTET_LENGTH(request), 0) + COALESCE(OCTET_LENGTH(outcome), 0)
    + COALESCE(OCTET_LENGTH(snapshot), 0);
ALTER TABLE threads ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE threads SET bytes =
    (SELECT COALESCE(SUM(OCTET_LENGTH(message)), 0) FROM thread_messages AS m
        WHERE m.tenant = threads.tenant AND m.thread_id = threads.thread_id)
    + (SELECT COALESCE(SUM(OCTET_LENGTH(outcome)), 0) FROM thread_errors AS e
        WHERE e.tenant = threads.tenant AND e.thread_id = threads.thread_id);
CREATE INDEX threads_by_change ON threads (updated_at);

-- How often an owner died with it.
ALTER TABLE invocations ADD COLUMN takeovers INTEGER NOT NULL DEFAULT 0;
