CREATE VIEW idempotency_keys AS
SELECT
    key AS idempotency_key,
    CASE WHEN external_id <> '' THEN external_id ELSE
        lower(substr(hex(job_ids), 1, 8) || '-' || substr(hex(job_ids), 9, 4) || '-'
            || substr(hex(job_ids), 13, 4) || '-' || substr(hex(job_ids), 17, 4) || '-'
            || substr(hex(job_ids), 21, 12)) END AS job_id,
    user AS user_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', max(expires_at, lease_until) / 1000.0, 'unixepoch') AS expires_at,
    tenant, scope, status
FROM record
WHERE (job_ids <> x'' OR external_id <> '')
    AND max(expires_at, lease_until) >= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER);

CREATE VIEW job_reservations AS
SELECT
    held.key AS reservation_id,
    usage.user AS user_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(held.value, '$[0]') / 1000.0, 'unixepoch') AS created_at,
    strftime('%Y-%m-%dT%H:%M:%fZ', json_extract(held.value, '$[1]') / 1000.0, 'unixepoch') AS expires_at,
    json_extract(held.value, '$[2]') = 'consumed' AS consumed,
    usage.tenant
FROM usage, json_each(usage.reservations) AS held
WHERE json_extract(held.value, '$[2]') <> 'released'
    AND json_extract(held.value, '$[1]') >= CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER);

CREATE TABLE attachment (
    job_id BLOB NOT NULL, kind INTEGER NOT NULL, "index" INTEGER NOT NULL, data BLOB NOT NULL,
    PRIMARY KEY (job_id, kind, "index")
) WITHOUT ROWID;

CREATE TABLE clock (boot_id TEXT NOT NULL PRIMARY KEY, offset_ms INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE job (
    id BLOB NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, type TEXT NOT NULL, state TEXT NOT NULL,
    scope TEXT NOT NULL, key TEXT NOT NULL, actor TEXT NOT NULL, user TEXT NOT NULL,
    created_at INTEGER NOT NULL, changed_at INTEGER NOT NULL, keep_until INTEGER NOT NULL,
    run_at INTEGER NOT NULL, priority INTEGER NOT NULL, delivery TEXT NOT NULL, attempts_max INTEGER NOT NULL,
    timeout_ms INTEGER NOT NULL, labels BLOB NOT NULL, due_at INTEGER NOT NULL, version INTEGER NOT NULL,
    format INTEGER NOT NULL, token INTEGER NOT NULL, holder BLOB NOT NULL, lease_until INTEGER NOT NULL,
    attempts INTEGER NOT NULL, usage_id BLOB NOT NULL, cost_held INTEGER NOT NULL, events INTEGER NOT NULL,
    ended_at INTEGER NOT NULL, error TEXT NOT NULL, started_at INTEGER NOT NULL, logs INTEGER NOT NULL,
    progress TEXT NOT NULL, finish_digest BLOB NOT NULL, verb_keys BLOB NOT NULL
, memos INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;

CREATE TABLE ledger (id TEXT NOT NULL PRIMARY KEY, generation INTEGER NOT NULL) WITHOUT ROWID;

CREATE TABLE memo (
    id BLOB NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, job_id BLOB NOT NULL, name TEXT NOT NULL,
    fingerprint BLOB NOT NULL, token INTEGER NOT NULL, holder BLOB NOT NULL, began_at INTEGER NOT NULL,
    changed_at INTEGER NOT NULL, runs INTEGER NOT NULL, ended_at INTEGER NOT NULL, result BLOB NOT NULL,
    version INTEGER NOT NULL, format INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE policy (
    id BLOB NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL,
    changed_at INTEGER NOT NULL, version INTEGER NOT NULL, format INTEGER NOT NULL
, expires_at INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;

CREATE TABLE record (
    id BLOB NOT NULL, tenant TEXT NOT NULL, scope TEXT NOT NULL, key TEXT NOT NULL, status TEXT NOT NULL,
    fingerprint BLOB NOT NULL, job_ids BLOB NOT NULL, holder BLOB NOT NULL, token INTEGER NOT NULL,
    lease_until INTEGER NOT NULL, created_at INTEGER NOT NULL, changed_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL, ttl_ms INTEGER NOT NULL, actor TEXT NOT NULL, user TEXT NOT NULL,
    version INTEGER NOT NULL, format INTEGER NOT NULL, receipt BLOB NOT NULL, external_id TEXT NOT NULL,
    client_id TEXT NOT NULL, sequence INTEGER NOT NULL, hits INTEGER NOT NULL, conflicts INTEGER NOT NULL,
    last_hit_at INTEGER NOT NULL
, recent_conflicts BLOB NOT NULL DEFAULT x'');

CREATE TABLE stream (
    id BLOB NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, scope TEXT NOT NULL, client_id TEXT NOT NULL,
    last INTEGER NOT NULL, last_seen INTEGER NOT NULL, owner TEXT NOT NULL, changed_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL, evicted INTEGER NOT NULL, version INTEGER NOT NULL, format INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE usage (
    id BLOB NOT NULL PRIMARY KEY, tenant TEXT NOT NULL, user TEXT NOT NULL, live INTEGER NOT NULL,
    changed_at INTEGER NOT NULL, cost_held INTEGER NOT NULL, spent TEXT NOT NULL, spent_at INTEGER NOT NULL,
    minutes TEXT NOT NULL, hours TEXT NOT NULL, counted_at INTEGER NOT NULL, reservations TEXT NOT NULL,
    version INTEGER NOT NULL, format INTEGER NOT NULL, limits BLOB NOT NULL, due_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX job_due ON job (due_at) WHERE due_at > 0;

CREATE INDEX job_held ON job (holder) WHERE lease_until > 0;

CREATE INDEX job_ready ON job (type, tenant, priority DESC, run_at) WHERE state IN ('pending', 'scheduled');

CREATE INDEX job_state ON job (tenant, state, type);

CREATE INDEX job_tenant ON job (tenant);

CREATE INDEX job_usage ON job (usage_id) WHERE usage_id <> x'';

CREATE INDEX memo_job ON memo (job_id);

CREATE INDEX policy_due ON policy (expires_at) WHERE expires_at > 0;

CREATE INDEX record_due ON record (expires_at);

CREATE UNIQUE INDEX record_id ON record (id);

CREATE INDEX stream_due ON stream (expires_at);

CREATE INDEX usage_due ON usage (due_at) WHERE due_at > 0;

PRAGMA application_id = 1869505898
PRAGMA auto_vacuum = 0
PRAGMA encoding = UTF-8
PRAGMA journal_mode = wal
PRAGMA page_size = 4096
PRAGMA user_version = 5

