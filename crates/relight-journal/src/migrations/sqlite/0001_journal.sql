-- The journal. Times are microseconds since 1970 in UTC, as the callers' clocks had them. JSON is kept as text.

CREATE TABLE invocations (
    invocation_id    TEXT   PRIMARY KEY,
    tenant           TEXT   NOT NULL,
    request_id       TEXT,
    fingerprint      TEXT   NOT NULL,
    route            TEXT   NOT NULL,
    operation        TEXT   NOT NULL,
    thread_id        TEXT,
    labels           TEXT   NOT NULL,
    created_at       INTEGER NOT NULL,
    deadline_at      INTEGER NOT NULL,
    state            TEXT   NOT NULL CHECK (state IN ('running', 'finished')),
    owner            TEXT   NOT NULL,
    epoch            INTEGER NOT NULL,
    epoch_first_seq  INTEGER NOT NULL,
    lease_expires_at INTEGER NOT NULL,
    last_seq         INTEGER NOT NULL,
    event_count      INTEGER NOT NULL,
    event_bytes      INTEGER NOT NULL,
    cancel_requested INTEGER NOT NULL,
    request          TEXT,
    outcome          TEXT,
    snapshot         TEXT,
    finished_at      INTEGER,
    UNIQUE (tenant, request_id),
    CHECK ((state = 'finished') = (finished_at IS NOT NULL))
);
CREATE INDEX invocations_by_lease ON invocations (lease_expires_at) WHERE state = 'running';
CREATE INDEX invocations_by_end ON invocations (finished_at) WHERE state = 'finished';
CREATE INDEX invocations_with_events ON invocations (finished_at) WHERE state = 'finished' AND event_count > 0;

CREATE TABLE events (
    invocation_id TEXT   NOT NULL REFERENCES invocations ON DELETE CASCADE,
    seq           INTEGER NOT NULL,
    epoch         INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    at            INTEGER NOT NULL,
    step          TEXT   NOT NULL,
    PRIMARY KEY (invocation_id, seq)
);

CREATE TABLE threads (
    tenant             TEXT   NOT NULL,
    thread_id          TEXT   NOT NULL,
    version            INTEGER NOT NULL,
    created_at         INTEGER NOT NULL,
    updated_at         INTEGER NOT NULL,
    running_invocation TEXT,
    committed_by       TEXT,
    PRIMARY KEY (tenant, thread_id)
);

CREATE TABLE thread_messages (
    tenant    TEXT   NOT NULL,
    thread_id TEXT   NOT NULL,
    position  INTEGER NOT NULL,
    message   TEXT   NOT NULL,
    PRIMARY KEY (tenant, thread_id, position),
    FOREIGN KEY (tenant, thread_id) REFERENCES threads ON DELETE CASCADE
);

CREATE TABLE thread_errors (
    tenant        TEXT   NOT NULL,
    thread_id     TEXT   NOT NULL,
    position      INTEGER NOT NULL,
    invocation_id TEXT   NOT NULL,
    outcome       TEXT   NOT NULL,
    PRIMARY KEY (tenant, thread_id, position),
    FOREIGN KEY (tenant, thread_id) REFERENCES threads ON DELETE CASCADE
);
