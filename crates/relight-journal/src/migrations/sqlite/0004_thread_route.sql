-- The route on which a thread began: a key that is limited to routes may use no other thread.

ALTER TABLE threads ADD COLUMN route TEXT;
UPDATE threads SET route = (SELECT route FROM invocations WHERE invocation_id = threads.committed_by);
