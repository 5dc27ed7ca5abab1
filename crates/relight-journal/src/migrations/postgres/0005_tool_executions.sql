-- Every execution of a tool, one row each; they go with their invocation. `detail` holds content and is sealed like it.

CREATE TABLE tool_executions (
    invocation_id TEXT    NOT NULL REFERENCES invocations ON DELETE CASCADE,
    attempt       BIGINT  NOT NULL,
    target        TEXT    NOT NULL,
    goal_key      TEXT    NOT NULL,
    cause         TEXT    NOT NULL,
    state         TEXT    NOT NULL,
    class         TEXT,
    release       TEXT    NOT NULL,
    started_at    BIGINT  NOT NULL,
    duration_us   BIGINT  NOT NULL,
    detail        TEXT,
    PRIMARY KEY (invocation_id, attempt)
);
CREATE INDEX tool_executions_by_goal ON tool_executions (goal_key, invocation_id);
CREATE INDEX tool_executions_by_target ON tool_executions (target, invocation_id);
