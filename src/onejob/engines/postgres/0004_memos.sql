-- The steps of handlers that have begun or finished (core/memo.py). They are deleted with their job.
CREATE TABLE memo (
    id bytea NOT NULL, tenant text COLLATE "C" NOT NULL, job_id bytea NOT NULL, name text COLLATE "C" NOT NULL,
    fingerprint bytea NOT NULL, token bigint NOT NULL, holder bytea NOT NULL, began_at bigint NOT NULL,
    changed_at bigint NOT NULL, runs bigint NOT NULL, ended_at bigint NOT NULL, result bytea NOT NULL,
    version bigint NOT NULL, format bigint NOT NULL,
    CONSTRAINT memo_id PRIMARY KEY (id)
);
CREATE INDEX memo_job ON memo (job_id);

ALTER TABLE job ADD COLUMN memos bigint NOT NULL DEFAULT 0;
