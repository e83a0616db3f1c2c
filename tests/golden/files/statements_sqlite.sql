-- The SQL statements of the SQLite engine, as a workload with every command and query sends them; `make golden` writes this file.
--
-- A statement that differs only in its number of rows or ids is shown with one and `/* ... n rows */`. The migrations are files
-- of their own (src/onejob/engines/sqlite/*.sql).

BEGIN;

BEGIN IMMEDIATE;

COMMIT;

CREATE TEMP TRIGGER insert_new_facts INSTEAD OF INSERT ON new_facts BEGIN
SELECT RAISE(ABORT, 'another process has written')
WHERE NEW.ledger_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM ledger WHERE id = NEW.ledger_id AND generation = NEW.generation);
UPDATE ledger
SET generation = generation + 1
WHERE id = NEW.ledger_id;
SELECT RAISE(ABORT, 'a limit exists')
WHERE EXISTS (SELECT 1 FROM usage WHERE id = NEW.absent_usage) OR EXISTS (SELECT 1 FROM policy WHERE id = NEW.absent_policy);
SELECT RAISE(ABORT, 'a precondition is not met')
WHERE NEW.policy_id IS NOT NULL AND NOT EXISTS ( SELECT 1 FROM policy WHERE id = NEW.policy_id AND tenant = NEW.policy_tenant AND body =
  NEW.policy_body AND changed_at <= NEW.decided_at AND (expires_at <= 0 OR expires_at >= NEW.decided_at) );
INSERT INTO record (id, tenant, scope, key, status, fingerprint, job_ids, holder, token, lease_until, created_at, changed_at, expires_at, ttl_ms,
  actor, user, version, format, receipt, external_id, client_id, sequence, hits, conflicts, last_hit_at, recent_conflicts)
SELECT NEW.record_id, NEW.record_tenant, NEW.record_scope, NEW.record_key, NEW.record_status, NEW.record_fingerprint, NEW.record_job_ids,
  NEW.record_holder, NEW.record_token, NEW.record_lease_until, NEW.record_created_at, NEW.record_changed_at, NEW.record_expires_at, NEW.record_ttl_ms,
  NEW.record_actor, NEW.record_user, 1, 1, X'', '', '', 0, 0, 0, 0, X''
WHERE NEW.record_id IS NOT NULL;
INSERT INTO job (id, tenant, type, state, scope, key, actor, user, created_at, changed_at, keep_until, run_at, priority, delivery, attempts_max,
  timeout_ms, labels, due_at, version, format, token, holder, lease_until, attempts, usage_id, cost_held, events, ended_at, error, started_at, logs,
  progress, finish_digest, verb_keys, memos)
SELECT NEW.job_id, NEW.job_tenant, NEW.job_type, NEW.job_state, NEW.job_scope, NEW.job_key, NEW.job_actor, NEW.job_user, NEW.job_created_at,
  NEW.job_changed_at, NEW.job_keep_until, NEW.job_run_at, NEW.job_priority, NEW.job_delivery, NEW.job_attempts_max, NEW.job_timeout_ms,
  NEW.job_labels, NEW.job_due_at, 1, 1, 0, X'', 0, 0, X'', 0, 1, 0, '', 0, 0, '', X'', X'', 0
WHERE NEW.job_id IS NOT NULL;
INSERT INTO attachment (job_id, kind, "index", data)
SELECT NEW.attachment_job_id, NEW.attachment_kind, NEW.attachment_index, NEW.attachment_data
WHERE NEW.attachment_job_id IS NOT NULL; END;

CREATE TEMP VIEW new_facts (ledger_id, generation, record_id, record_tenant, record_scope, record_key, record_status, record_fingerprint,
  record_job_ids, record_holder, record_token, record_lease_until, record_created_at, record_changed_at, record_expires_at, record_ttl_ms,
  record_actor, record_user, job_id, job_tenant, job_type, job_state, job_scope, job_key, job_actor, job_user, job_created_at, job_changed_at,
  job_keep_until, job_run_at, job_priority, job_delivery, job_attempts_max, job_timeout_ms, job_labels, job_due_at, attachment_job_id,
  attachment_kind, attachment_index, attachment_data, absent_usage, absent_policy, policy_id, policy_tenant, policy_body, decided_at) AS
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
  NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL;

DELETE FROM attachment
WHERE job_id = ?;

DELETE FROM attachment
WHERE job_id = ? AND kind = ? AND "index" = ?;

DELETE FROM clock;

DELETE FROM job
WHERE id = ? AND version = ?;

DELETE FROM memo
WHERE id = ? AND version = ?;

DELETE FROM memo
WHERE job_id = ?;

DELETE FROM policy
WHERE id = ? AND version = ?;

DELETE FROM record
WHERE id = ? AND version = ?;

DELETE FROM stream
WHERE id = ? AND version = ?;

DELETE FROM usage
WHERE id = ? AND version = ?;

INSERT INTO attachment (job_id, kind, "index", data)
VALUES (?,?,?,?) /* ... n rows */;

INSERT INTO clock
VALUES (?, ?) /* ... n rows */;

INSERT INTO job (id, tenant, type, state, scope, key, actor, user, created_at, changed_at, keep_until, run_at, priority, delivery, attempts_max,
  timeout_ms, labels, due_at, version, format, token, holder, lease_until, attempts, usage_id, cost_held, events, ended_at, error, started_at, logs,
  progress, finish_digest, verb_keys, memos)
VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) /* ... n rows */;

INSERT INTO memo (id, tenant, job_id, name, fingerprint, token, holder, began_at, changed_at, runs, ended_at, result, version, format)
VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) /* ... n rows */;

INSERT INTO new_facts
VALUES
  (?,?,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,?,?,?,?)
  /* ... n rows */;

INSERT INTO policy (id, tenant, name, body, changed_at, version, format, expires_at)
VALUES (?,?,?,?,?,?,?,?) /* ... n rows */;

INSERT INTO record (id, tenant, scope, key, status, fingerprint, job_ids, holder, token, lease_until, created_at, changed_at, expires_at, ttl_ms,
  actor, user, version, format, receipt, external_id, client_id, sequence, hits, conflicts, last_hit_at, recent_conflicts)
VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) /* ... n rows */;

INSERT INTO stream (id, tenant, scope, client_id, last, last_seen, owner, changed_at, expires_at, evicted, version, format)
VALUES (?,?,?,?,?,?,?,?,?,?,?,?) /* ... n rows */;

INSERT INTO usage (id, tenant, user, live, changed_at, cost_held, spent, spent_at, minutes, hours, counted_at, reservations, version, format, limits,
  due_at)
VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) /* ... n rows */;

PRAGMA application_id;

PRAGMA application_id = 1869505898;

PRAGMA cache_size = -65536;

PRAGMA cache_size = -8192;

PRAGMA journal_mode = WAL;

PRAGMA synchronous = FULL;

PRAGMA synchronous = OFF;

PRAGMA temp_store = MEMORY;

PRAGMA trusted_schema = OFF;

PRAGMA user_version;

PRAGMA user_version = 1;

PRAGMA user_version = 2;

PRAGMA user_version = 3;

PRAGMA user_version = 4;

PRAGMA user_version = 5;

PRAGMA wal_autocheckpoint = 1000;

ROLLBACK;

SELECT *
FROM (
    SELECT *
    FROM (
        SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until,
          job.run_at, job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token,
          job.holder, job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs,
          job.progress, job.finish_digest, job.verb_keys, job.memos
        FROM job
        WHERE tenant = ?1 AND job.state = ?2 AND job.type = ?3
        ORDER BY id DESC
        LIMIT 101
    ) AS part_0 /* ... n types */
) AS merged
ORDER BY id DESC
LIMIT ?4;

SELECT count(*)
FROM record
LIMIT ?1;

SELECT count(*)
FROM record
WHERE id > ?1 AND id < ?2
LIMIT ?3;

SELECT count(*)
FROM sqlite_master;

SELECT count(*)
FROM sqlite_master
WHERE type = 'table' AND name = 'ledger';

SELECT count(*)
FROM sqlite_master
WHERE type = 'table' AND name = ?;

SELECT count(*), coalesce(max(CASE WHEN lease_until > expires_at THEN lease_until ELSE expires_at END), 0)
FROM record
WHERE CASE WHEN lease_until > expires_at THEN lease_until ELSE expires_at END >= ?1 AND NOT (actor = ?2 AND scope = ?3)
LIMIT ?4;

SELECT generation
FROM ledger
LIMIT ?1;

SELECT id
FROM job
WHERE tenant = ?1 AND id < ?2
ORDER BY id DESC
LIMIT 1 OFFSET ?3;

SELECT id, generation
FROM ledger;

SELECT id, tenant, job_id, name, fingerprint, token, holder, began_at, changed_at, runs, ended_at, result, version, format
FROM memo
WHERE id IN (? /* ... n ids */);

SELECT id, tenant, name, body, changed_at, version, format, expires_at
FROM policy
WHERE id IN (? /* ... n ids */);

SELECT id, tenant, scope, client_id, last, last_seen, owner, changed_at, expires_at, evicted, version, format
FROM stream
WHERE id IN (? /* ... n ids */);

SELECT id, tenant, scope, key, status, fingerprint, job_ids, holder, token, lease_until, created_at, changed_at, expires_at, ttl_ms, actor, user,
  version, format, receipt, external_id, client_id, sequence, hits, conflicts, last_hit_at, recent_conflicts
FROM record
WHERE id IN (? /* ... n ids */);

SELECT id, tenant, type, state, scope, key, actor, user, created_at, changed_at, keep_until, run_at, priority, delivery, attempts_max, timeout_ms,
  labels, due_at, version, format, token, holder, lease_until, attempts, usage_id, cost_held, events, ended_at, error, started_at, logs, progress,
  finish_digest, verb_keys, memos
FROM job
WHERE id IN (? /* ... n ids */);

SELECT id, tenant, type, state, scope, key, actor, user, created_at, changed_at, keep_until, run_at, priority, delivery, attempts_max, timeout_ms,
  labels, due_at, version, format, token, holder, lease_until, attempts, usage_id, cost_held, events, ended_at, error, started_at, logs, progress,
  finish_digest, verb_keys, memos
FROM job
WHERE type = ? AND tenant = ? AND state IN ('pending', 'scheduled') AND priority = ? AND run_at <= ? AND lease_until < ?
ORDER BY run_at, id
LIMIT ?;

SELECT id, tenant, user, live, changed_at, cost_held, spent, spent_at, minutes, hours, counted_at, reservations, version, format, limits, due_at
FROM usage
WHERE id IN (? /* ... n ids */);

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE (due_at, id) > (?1, ?2) AND due_at < ?3 AND due_at > 0
ORDER BY due_at, id
LIMIT ?4;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE holder = ?1 AND tenant = ?2 AND lease_until >= ?3 AND lease_until > 0
ORDER BY id
LIMIT ?4;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND (instr(labels, ?2) = 1 OR instr(labels, ?3) > 0)
ORDER BY id DESC
LIMIT ?4;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND created_at <= ?2 AND id < ?3
ORDER BY id DESC
LIMIT ?4;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND created_at >= ?2 AND id >= ?3
ORDER BY id DESC
LIMIT ?4;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND id < ?2
ORDER BY id DESC
LIMIT ?3;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND id > ?2
ORDER BY id
LIMIT ?3;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND job.state = ?2 AND (instr(labels, ?3) = 1 OR instr(labels, ?4) > 0) AND created_at >= ?5 AND id >= ?6 AND created_at <= ?7 AND
  id < ?8
ORDER BY id DESC
LIMIT ?9;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND job.state = ?2 AND job.type = ?3 AND job.user = ?4 AND usage_id = ?5 AND usage_id <> x'' AND (instr(labels, ?6) = 1 OR
  instr(labels, ?7) > 0) AND created_at >= ?8 AND id >= ?9 AND created_at <= ?10 AND id < ?11 AND id < ?12
ORDER BY id DESC
LIMIT ?13;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND job.state = ?2 AND job.type = ?3
ORDER BY id DESC
LIMIT ?4;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND job.state = ?2 AND job.user = ?3
ORDER BY id DESC
LIMIT ?4;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND job.state = ?2
ORDER BY id DESC
LIMIT ?3;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND job.type = ?2 AND job.user = ?3
ORDER BY id DESC
LIMIT ?4;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND job.type = ?2
ORDER BY id DESC
LIMIT ?3;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND job.user = ?2
ORDER BY id DESC
LIMIT ?3;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1 AND usage_id = ?2 AND usage_id <> x''
ORDER BY id DESC
LIMIT ?3;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE tenant = ?1
ORDER BY id DESC
LIMIT ?2;

SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM job
WHERE type IN (?1 /* ... n ids */) AND state IN ('pending', 'scheduled') AND run_at <= ?2 AND lease_until < ?3
ORDER BY priority DESC, run_at, id
LIMIT ?4;

SELECT job_id, kind, "index", data
FROM attachment
WHERE job_id = ?1 AND kind = ?2 AND ("index" < 0, "index") >= (?3, ?4) AND EXISTS (SELECT 1 FROM job WHERE id = job_id AND tenant = ?5)
ORDER BY "index" < 0, "index"
LIMIT ?6;

SELECT job_id, kind, "index", data
FROM attachment
WHERE job_id IN () AND kind = ?1 AND "index" = 0
ORDER BY job_id
LIMIT ?2;

SELECT job_id, kind, "index", data
FROM attachment
WHERE job_id IN (?1 /* ... n ids */) AND kind = ?2 AND "index" = 0
ORDER BY job_id
LIMIT ?3;

SELECT max(changed_at)
FROM (SELECT changed_at FROM record ORDER BY rowid DESC LIMIT 101);

SELECT memo.id, memo.tenant, memo.job_id, memo.name, memo.fingerprint, memo.token, memo.holder, memo.began_at, memo.changed_at, memo.runs,
  memo.ended_at, memo.result, memo.version, memo.format
FROM memo
WHERE id > ?1 AND id < ?2 AND tenant = ?3
ORDER BY id
LIMIT ?4;

SELECT offset_ms
FROM clock
WHERE boot_id = ?;

SELECT policy.id, policy.tenant, policy.name, policy.body, policy.changed_at, policy.version, policy.format, policy.expires_at
FROM policy
WHERE (expires_at, id) > (?1, ?2) AND expires_at < ?3 AND expires_at > 0
ORDER BY expires_at, id
LIMIT ?4;

SELECT policy.id, policy.tenant, policy.name, policy.body, policy.changed_at, policy.version, policy.format, policy.expires_at
FROM policy
WHERE id > ?1 AND id < ?2 AND tenant = ?3
ORDER BY id
LIMIT ?4;

SELECT priority, run_at
FROM job
WHERE type = ? AND tenant = ? AND state IN ('pending', 'scheduled') AND priority < ?
ORDER BY priority DESC, run_at
LIMIT 1;

SELECT record.id, record.tenant, record.scope, record.key, record.status, record.fingerprint, record.job_ids, record.holder, record.token,
  record.lease_until, record.created_at, record.changed_at, record.expires_at, record.ttl_ms, record.actor, record.user, record.version,
  record.format, record.receipt, record.external_id, record.client_id, record.sequence, record.hits, record.conflicts, record.last_hit_at,
  record.recent_conflicts
FROM record
WHERE (expires_at, id) > (?1, ?2) AND expires_at < ?3 AND lease_until < ?4 AND expires_at > 0
ORDER BY expires_at, id
LIMIT ?5;

SELECT record.id, record.tenant, record.scope, record.key, record.status, record.fingerprint, record.job_ids, record.holder, record.token,
  record.lease_until, record.created_at, record.changed_at, record.expires_at, record.ttl_ms, record.actor, record.user, record.version,
  record.format, record.receipt, record.external_id, record.client_id, record.sequence, record.hits, record.conflicts, record.last_hit_at,
  record.recent_conflicts
FROM record
WHERE id > ?1 AND id < ?2 AND tenant = ?3
ORDER BY id
LIMIT ?4;

SELECT record.id, record.tenant, record.scope, record.key, record.status, record.fingerprint, record.job_ids, record.holder, record.token,
  record.lease_until, record.created_at, record.changed_at, record.expires_at, record.ttl_ms, record.actor, record.user, record.version,
  record.format, record.receipt, record.external_id, record.client_id, record.sequence, record.hits, record.conflicts, record.last_hit_at,
  record.recent_conflicts
FROM record
WHERE id > ?1
ORDER BY id
LIMIT ?2;

SELECT stream.id, stream.tenant, stream.scope, stream.client_id, stream.last, stream.last_seen, stream.owner, stream.changed_at, stream.expires_at,
  stream.evicted, stream.version, stream.format
FROM stream
WHERE (expires_at, id) > (?1, ?2) AND expires_at < ?3 AND expires_at > 0
ORDER BY expires_at, id
LIMIT ?4;

SELECT stream.id, stream.tenant, stream.scope, stream.client_id, stream.last, stream.last_seen, stream.owner, stream.changed_at, stream.expires_at,
  stream.evicted, stream.version, stream.format
FROM stream
WHERE id > ?1 AND id < ?2 AND tenant = ?3
ORDER BY id
LIMIT ?4;

SELECT tenant
FROM job
WHERE type = ? AND tenant > ? AND state IN ('pending', 'scheduled')
ORDER BY tenant
LIMIT 1;

SELECT type, count(*), min(hex(id)) FILTER (WHERE run_at = 0), min(run_at) FILTER (WHERE run_at > 0)
FROM job
WHERE tenant = ?1 AND state IN ('pending', 'scheduled') AND run_at <= ?2
GROUP BY type
ORDER BY count(*) DESC, type
LIMIT ?3;

SELECT type, count(*), min(hex(id)) FILTER (WHERE run_at = 0), min(run_at) FILTER (WHERE run_at > 0)
FROM job
WHERE true AND state IN ('pending', 'scheduled') AND run_at <= ?1
GROUP BY type
ORDER BY count(*) DESC, type
LIMIT ?2;

SELECT type, state, CAST(sum(count) AS bigint)
FROM (SELECT tenant, state, type, count(*) AS count FROM job GROUP BY tenant, state, type) AS counted
GROUP BY type, state
ORDER BY sum(count) DESC, type, state
LIMIT ?1;

SELECT type, state, CAST(sum(count) AS bigint)
FROM (
    SELECT tenant, state, type, count(*) AS count
    FROM job
    WHERE tenant = ?1
    GROUP BY tenant, state, type
) AS counted
GROUP BY type, state
ORDER BY sum(count) DESC, type, state
LIMIT ?2;

SELECT usage.id, usage.tenant, usage.user, usage.live, usage.changed_at, usage.cost_held, usage.spent, usage.spent_at, usage.minutes, usage.hours,
  usage.counted_at, usage.reservations, usage.version, usage.format, usage.limits, usage.due_at
FROM usage
WHERE (due_at, id) > (?1, ?2) AND due_at < ?3 AND due_at > 0
ORDER BY due_at, id
LIMIT ?4;

SELECT usage.id, usage.tenant, usage.user, usage.live, usage.changed_at, usage.cost_held, usage.spent, usage.spent_at, usage.minutes, usage.hours,
  usage.counted_at, usage.reservations, usage.version, usage.format, usage.limits, usage.due_at
FROM usage
WHERE id > ?1 AND id < ?2 AND tenant = ?3
ORDER BY id
LIMIT ?4;

UPDATE job
SET type = ?, state = ?, scope = ?, key = ?, actor = ?, user = ?, created_at = ?, changed_at = ?, keep_until = ?, run_at = ?, priority = ?, delivery =
  ?, attempts_max = ?, timeout_ms = ?, labels = ?, due_at = ?, version = ?, format = ?, token = ?, holder = ?, lease_until = ?, attempts = ?, usage_id
  = ?, cost_held = ?, events = ?, ended_at = ?, error = ?, started_at = ?, logs = ?, progress = ?, finish_digest = ?, verb_keys = ?, memos = ?
WHERE id = ? AND version = ?;

UPDATE ledger
SET generation = generation + 1
WHERE id = ? AND generation >= ?
RETURNING generation;

UPDATE memo
SET job_id = ?, name = ?, fingerprint = ?, token = ?, holder = ?, began_at = ?, changed_at = ?, runs = ?, ended_at = ?, result = ?, version = ?,
  format = ?
WHERE id = ? AND version = ?;

UPDATE policy
SET name = ?, body = ?, changed_at = ?, version = ?, format = ?, expires_at = ?
WHERE id = ? AND version = ?;

UPDATE record
SET scope = ?, key = ?, status = ?, fingerprint = ?, job_ids = ?, holder = ?, token = ?, lease_until = ?, created_at = ?, changed_at = ?, expires_at =
  ?, ttl_ms = ?, actor = ?, user = ?, version = ?, format = ?, receipt = ?, external_id = ?, client_id = ?, sequence = ?, hits = ?, conflicts = ?,
  last_hit_at = ?, recent_conflicts = ?
WHERE id = ? AND version = ?;

UPDATE stream
SET scope = ?, client_id = ?, last = ?, last_seen = ?, owner = ?, changed_at = ?, expires_at = ?, evicted = ?, version = ?, format = ?
WHERE id = ? AND version = ?;

UPDATE usage
SET user = ?, live = ?, changed_at = ?, cost_held = ?, spent = ?, spent_at = ?, minutes = ?, hours = ?, counted_at = ?, reservations = ?, version = ?,
  format = ?, limits = ?, due_at = ?
WHERE id = ? AND version = ?;

WITH RECURSIVE one (type) AS (
    SELECT (SELECT min(type) FROM job WHERE tenant = ?1 AND state = ?2)
    UNION ALL
    SELECT (SELECT min(type) FROM job WHERE tenant = ?1 AND state = ?2 AND type > one.type)
    FROM one
    WHERE one.type IS NOT NULL
)
SELECT type
FROM one
WHERE type IS NOT NULL
LIMIT 65;
