-- The steps of handlers that have begun or finished (core/memo.py). They are deleted with their job.
CREATE TABLE memo (
    id BLOB NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, job_id BLOB NOT NULL, name TEXT NOT NULL,
    fingerprint BLOB NOT NULL, token INTEGER NOT NULL, holder BLOB NOT NULL, began_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL, runs INTEGER NOT NULL, ended_at INTEGER NOT NULL, result BLOB NOT NULL,
    version INTEGER NOT NULL, format INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX memo_job ON memo (job_id);

ALTER TABLE job ADD COLUMN memos INTEGER NOT NULL DEFAULT 0;
