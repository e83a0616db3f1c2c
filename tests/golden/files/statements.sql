-- Every SQL statement that the PostgreSQL engine can send, whole; `make golden` writes this file.
--
-- The tables are those of the schema 'public'. A statement that differs only in its number of rows is shown with one
-- row and `/* ... n rows */`; parameters are numbered as with one row. LIMIT 101 stands for the limit of a page and one more.
-- The changes of a batch are shown for every combination of facts that the commands of tests/golden/rules.py bring about, alone
-- and in batches; other batches send the same parts in other combinations, in the same order. A list of jobs is shown with each
-- filter alone, some pairs, and all of them; others have the same conditions in the same order. The migrations are files of
-- their own (src/onejob/engines/postgres/*.sql), and what the driver sends for itself is not shown.

-- callers_transaction.py: _decide_and_store
-- Undoes a change that met another one.
RELEASE SAVEPOINT onejob_inside;

-- callers_transaction.py: _decide_and_store
-- Undoes a change that met another one.
ROLLBACK TO SAVEPOINT onejob_inside;

-- callers_transaction.py: _decide_and_store
-- Undoes a change that met another one.
SAVEPOINT onejob_inside;

-- connection.py: Connector.begin_sql
-- Begins a transaction.
BEGIN;

-- connection.py: Connector.begin_sql (200 ms)
-- Begins a part of a split batch.
BEGIN ;
SET LOCAL lock_timeout = 200;
SET LOCAL statement_timeout = 1000;

-- connection.py: Connector.begin_sql (50 ms)
-- Begins a part of a split batch.
BEGIN ;
SET LOCAL lock_timeout = 50;
SET LOCAL statement_timeout = 250;

-- connection.py: Connector.begin_sql (ISOLATION LEVEL REPEATABLE READ)
-- Begins a transaction.
BEGIN ISOLATION LEVEL REPEATABLE READ;

-- connection.py: Connector.begin_sql (pooled; )
-- Begins a transaction.
BEGIN ;
SET LOCAL application_name = 'onejob';
SET LOCAL lock_timeout = '2s';
SET LOCAL statement_timeout = '10s';
SET LOCAL idle_in_transaction_session_timeout = '3s';
SET LOCAL default_transaction_isolation = 'read committed';
SET LOCAL jit = 'off';
SET LOCAL plan_cache_mode = 'force_generic_plan';
SET LOCAL enable_seqscan = 'off';
SET LOCAL enable_hashjoin = 'off';
SET LOCAL enable_mergejoin = 'off';

-- connection.py: Connector.begin_sql (pooled; 200 ms)
-- Begins a part of a split batch.
BEGIN ;
SET LOCAL application_name = 'onejob';
SET LOCAL lock_timeout = '2s';
SET LOCAL statement_timeout = '10s';
SET LOCAL idle_in_transaction_session_timeout = '3s';
SET LOCAL default_transaction_isolation = 'read committed';
SET LOCAL jit = 'off';
SET LOCAL plan_cache_mode = 'force_generic_plan';
SET LOCAL enable_seqscan = 'off';
SET LOCAL enable_hashjoin = 'off';
SET LOCAL enable_mergejoin = 'off';
SET LOCAL lock_timeout = 200;
SET LOCAL statement_timeout = 1000;

-- connection.py: Connector.begin_sql (pooled; 50 ms)
-- Begins a part of a split batch.
BEGIN ;
SET LOCAL application_name = 'onejob';
SET LOCAL lock_timeout = '2s';
SET LOCAL statement_timeout = '10s';
SET LOCAL idle_in_transaction_session_timeout = '3s';
SET LOCAL default_transaction_isolation = 'read committed';
SET LOCAL jit = 'off';
SET LOCAL plan_cache_mode = 'force_generic_plan';
SET LOCAL enable_seqscan = 'off';
SET LOCAL enable_hashjoin = 'off';
SET LOCAL enable_mergejoin = 'off';
SET LOCAL lock_timeout = 50;
SET LOCAL statement_timeout = 250;

-- connection.py: Connector.begin_sql (pooled; ISOLATION LEVEL REPEATABLE READ)
-- Begins a transaction.
BEGIN ISOLATION LEVEL REPEATABLE READ;
SET LOCAL application_name = 'onejob';
SET LOCAL lock_timeout = '2s';
SET LOCAL statement_timeout = '10s';
SET LOCAL idle_in_transaction_session_timeout = '3s';
SET LOCAL default_transaction_isolation = 'read committed';
SET LOCAL jit = 'off';
SET LOCAL plan_cache_mode = 'force_generic_plan';
SET LOCAL enable_seqscan = 'off';
SET LOCAL enable_hashjoin = 'off';
SET LOCAL enable_mergejoin = 'off';

-- connection.py: read_server_settings
-- Reads whether the server is safe.
SELECT current_setting('server_version'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
  current_setting('fsync'), current_setting('full_page_writes'), pg_is_in_recovery();

-- diagnostics.py: _check_tables
-- Lists missing privileges.
SELECT t.name || ': ' || string_agg(lower(r.name), ', ' ORDER BY r.at)
FROM unnest($2::text[]) AS t (name)
CROSS JOIN unnest($3::text[])
WITH ORDINALITY AS r (name, at)
WHERE NOT has_table_privilege(quote_ident($1) || '.' || quote_ident(t.name), r.name)
GROUP BY t.name
ORDER BY 1;

-- diagnostics.py: diagnose
-- Examines a server for `onejob doctor`.
SELECT current_setting('server_version_num')::integer AS version, current_setting('wal_level') AS wal_level,
  current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer AS connections_max, (SELECT count(*) FROM
  pg_catalog.pg_stat_activity WHERE backend_type = 'client backend') AS connections_used, current_user::text AS role, (SELECT rolsuper FROM
  pg_catalog.pg_roles WHERE rolname = current_user) AS superuser, inet_server_port() AS port, current_setting('autovacuum') = 'on' AS autovacuum,
  pg_has_role('pg_monitor', 'MEMBER') OR pg_has_role('pg_read_all_stats', 'MEMBER') AS may_see_standbys, (SELECT count(*) FROM
  pg_catalog.pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS standbys;

-- queries.py: build_statement (CountJobs: all)
-- How many jobs of each type and state there are, of one tenant or of all; the largest numbers first.
SELECT type, state, CAST(sum(count) AS bigint)
FROM (
    SELECT tenant, state, type, count(*) AS count
    FROM "public"."job"
    GROUP BY tenant, state, type
) AS counted
GROUP BY type, state
ORDER BY sum(count) DESC, type, state
LIMIT 101;

-- queries.py: build_statement (CountJobs: tenant)
-- How many jobs of each type and state there are, of one tenant or of all; the largest numbers first.
SELECT type, state, CAST(sum(count) AS bigint)
FROM (
    SELECT tenant, state, type, count(*) AS count
    FROM "public"."job"
    WHERE tenant = $1
    GROUP BY tenant, state, type
) AS counted
GROUP BY type, state
ORDER BY sum(count) DESC, type, state
LIMIT 101;

-- queries.py: build_statement (CountKeys: all)
-- How many keys are stored, of one tenant or of all: one number.
SELECT count(*)
FROM "public"."record"
LIMIT 101;

-- queries.py: build_statement (CountKeys: tenant)
-- How many keys are stored, of one tenant or of all: one number.
SELECT count(*)
FROM "public"."record"
WHERE id > $1 AND id < $2
LIMIT 101;

-- queries.py: build_statement (CountLiveKeys: all)
-- How many records of all tenants are live (`core.facts.is_live`), and until when. It reads every record.
SELECT count(*), coalesce(max(CASE WHEN lease_until > expires_at THEN lease_until ELSE expires_at END), 0)
FROM "public"."record"
WHERE CASE WHEN lease_until > expires_at THEN lease_until ELSE expires_at END >= (SELECT floor("public".onejob_now())::bigint) AND NOT (actor = $1 AND
  scope = $2)
LIMIT 101;

-- queries.py: build_statement (CountReadyJobs: all)
-- How many jobs of each type wait for a worker and since when, of one tenant or of all; the largest first.
SELECT type, count(*), min(encode(id, 'hex')) FILTER (WHERE run_at = 0), min(run_at) FILTER (WHERE run_at > 0)
FROM "public"."job"
WHERE true AND state IN ('pending', 'scheduled') AND run_at <= (SELECT floor("public".onejob_now())::bigint)
GROUP BY type
ORDER BY count(*) DESC, type
LIMIT 101;

-- queries.py: build_statement (CountReadyJobs: tenant)
-- How many jobs of each type wait for a worker and since when, of one tenant or of all; the largest first.
SELECT type, count(*), min(encode(id, 'hex')) FILTER (WHERE run_at = 0), min(run_at) FILTER (WHERE run_at > 0)
FROM "public"."job"
WHERE tenant = $1 AND state IN ('pending', 'scheduled') AND run_at <= (SELECT floor("public".onejob_now())::bigint)
GROUP BY type
ORDER BY count(*) DESC, type
LIMIT 101;

-- queries.py: build_statement (ListAttachments of event: tenant, job_id)
-- The attachments of one kind of a job, ordered by index.
SELECT job_id, kind, "index", data
FROM "public"."attachment"
WHERE job_id = $1 AND kind = $2 AND ("index" < 0, "index") >= ($3, $4) AND EXISTS (SELECT 1 FROM "public"."job" WHERE id = job_id AND tenant = $5)
ORDER BY "index" < 0, "index"
LIMIT 101;

-- queries.py: build_statement (ListAttachments of failure: tenant, job_id)
-- The attachments of one kind of a job, ordered by index.
SELECT job_id, kind, "index", data
FROM "public"."attachment"
WHERE job_id = $1 AND kind = $2 AND ("index" < 0, "index") >= ($3, $4) AND EXISTS (SELECT 1 FROM "public"."job" WHERE id = job_id AND tenant = $5)
ORDER BY "index" < 0, "index"
LIMIT 101;

-- queries.py: build_statement (ListAttachments of input: tenant, job_id)
-- The attachments of one kind of a job, ordered by index.
SELECT job_id, kind, "index", data
FROM "public"."attachment"
WHERE job_id = $1 AND kind = $2 AND ("index" < 0, "index") >= ($3, $4) AND EXISTS (SELECT 1 FROM "public"."job" WHERE id = job_id AND tenant = $5)
ORDER BY "index" < 0, "index"
LIMIT 101;

-- queries.py: build_statement (ListAttachments of log: tenant, job_id)
-- The attachments of one kind of a job, ordered by index.
SELECT job_id, kind, "index", data
FROM "public"."attachment"
WHERE job_id = $1 AND kind = $2 AND ("index" < 0, "index") >= ($3, $4) AND EXISTS (SELECT 1 FROM "public"."job" WHERE id = job_id AND tenant = $5)
ORDER BY "index" < 0, "index"
LIMIT 101;

-- queries.py: build_statement (ListAttachments of progress: tenant, job_id)
-- The attachments of one kind of a job, ordered by index.
SELECT job_id, kind, "index", data
FROM "public"."attachment"
WHERE job_id = $1 AND kind = $2 AND ("index" < 0, "index") >= ($3, $4) AND EXISTS (SELECT 1 FROM "public"."job" WHERE id = job_id AND tenant = $5)
ORDER BY "index" < 0, "index"
LIMIT 101;

-- queries.py: build_statement (ListAttachments of result: tenant, job_id)
-- The attachments of one kind of a job, ordered by index.
SELECT job_id, kind, "index", data
FROM "public"."attachment"
WHERE job_id = $1 AND kind = $2 AND ("index" < 0, "index") >= ($3, $4) AND EXISTS (SELECT 1 FROM "public"."job" WHERE id = job_id AND tenant = $5)
ORDER BY "index" < 0, "index"
LIMIT 101;

-- queries.py: build_statement (ListBacklogs: types)
-- The tenants with waiting jobs of some types, by name. It costs what it returns, however long the backlogs.
SELECT listed.tenant, greatest(min(earliest.run_at) - (SELECT floor("public".onejob_now())::bigint), 0)
FROM (
    WITH RECURSIVE step AS (
        SELECT name, (
            SELECT min(tenant)
            FROM "public"."job"
            WHERE type = name AND state IN ('pending', 'scheduled') AND tenant > $2::text
        ) AS tenant, 1 AS n
        FROM (SELECT DISTINCT unnest($1::text[]) AS name) AS requested
        UNION ALL
        SELECT name, (
            SELECT min(tenant)
            FROM "public"."job"
            WHERE type = name AND state IN ('pending', 'scheduled') AND tenant > step.tenant
        ), n + 1
        FROM step
        WHERE step.tenant IS NOT NULL AND n <= 100
    )
    SELECT DISTINCT tenant
    FROM step
    WHERE tenant IS NOT NULL
    ORDER BY tenant
    LIMIT 101
) AS listed
CROSS JOIN (SELECT DISTINCT unnest($1::text[]) AS name) AS requested
CROSS JOIN LATERAL (
    WITH RECURSIVE level AS (
        (
            SELECT priority, run_at
            FROM "public"."job"
            WHERE type = name AND state IN ('pending', 'scheduled') AND tenant = listed.tenant
            ORDER BY priority DESC, run_at
            LIMIT 1
        )
        UNION ALL
        SELECT below.*
        FROM level
        CROSS JOIN LATERAL (
            SELECT priority, run_at
            FROM "public"."job"
            WHERE type = name AND state IN ('pending', 'scheduled') AND tenant = listed.tenant AND priority < level.priority
            ORDER BY priority DESC, run_at
            LIMIT 1
        ) AS below
        WHERE level.run_at > (SELECT floor("public".onejob_now())::bigint)
    )
    SELECT min(run_at) AS run_at
    FROM level
) AS earliest
GROUP BY listed.tenant
HAVING min(earliest.run_at) IS NOT NULL
ORDER BY listed.tenant
LIMIT 101;

-- queries.py: build_statement (ListBacklogs: types, tenant)
-- The tenants with waiting jobs of some types, by name. It costs what it returns, however long the backlogs.
SELECT listed.tenant, greatest(min(earliest.run_at) - (SELECT floor("public".onejob_now())::bigint), 0)
FROM (SELECT $3::text AS tenant WHERE $3::text > $2::text) AS listed
CROSS JOIN (SELECT DISTINCT unnest($1::text[]) AS name) AS requested
CROSS JOIN LATERAL (
    WITH RECURSIVE level AS (
        (
            SELECT priority, run_at
            FROM "public"."job"
            WHERE type = name AND state IN ('pending', 'scheduled') AND tenant = listed.tenant
            ORDER BY priority DESC, run_at
            LIMIT 1
        )
        UNION ALL
        SELECT below.*
        FROM level
        CROSS JOIN LATERAL (
            SELECT priority, run_at
            FROM "public"."job"
            WHERE type = name AND state IN ('pending', 'scheduled') AND tenant = listed.tenant AND priority < level.priority
            ORDER BY priority DESC, run_at
            LIMIT 1
        ) AS below
        WHERE level.run_at > (SELECT floor("public".onejob_now())::bigint)
    )
    SELECT min(run_at) AS run_at
    FROM level
) AS earliest
GROUP BY listed.tenant
HAVING min(earliest.run_at) IS NOT NULL
ORDER BY listed.tenant
LIMIT 101;

-- queries.py: build_statement (ListDueFacts of job: after)
-- Facts of any tenant that maintenance should look at, in the order of `core.maintenance.due_sort_key`.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE (due_at, id) > ($1, $2) AND due_at < (SELECT floor("public".onejob_now())::bigint) AND due_at > 0
ORDER BY due_at, id
LIMIT 101;

-- queries.py: build_statement (ListDueFacts of policy: after)
-- Facts of any tenant that maintenance should look at, in the order of `core.maintenance.due_sort_key`.
SELECT policy.id, policy.tenant, policy.name, policy.body, policy.changed_at, policy.version, policy.format, policy.expires_at
FROM "public"."policy"
WHERE (expires_at, id) > ($1, $2) AND expires_at < (SELECT floor("public".onejob_now())::bigint) AND expires_at > 0
ORDER BY expires_at, id
LIMIT 101;

-- queries.py: build_statement (ListDueFacts of record: after)
-- Facts of any tenant that maintenance should look at, in the order of `core.maintenance.due_sort_key`.
SELECT record.id, record.tenant, record.scope, record.key, record.status, record.fingerprint, record.job_ids, record.holder, record.token,
  record.lease_until, record.created_at, record.changed_at, record.expires_at, record.ttl_ms, record.actor, record.user, record.version,
  record.format, record.receipt, record.external_id, record.client_id, record.sequence, record.hits, record.conflicts, record.last_hit_at,
  record.recent_conflicts
FROM "public"."record"
WHERE (expires_at, id) > ($1, $2) AND expires_at < (SELECT floor("public".onejob_now())::bigint) AND lease_until < (SELECT
  floor("public".onejob_now())::bigint) AND expires_at > 0
ORDER BY expires_at, id
LIMIT 101;

-- queries.py: build_statement (ListDueFacts of stream: after)
-- Facts of any tenant that maintenance should look at, in the order of `core.maintenance.due_sort_key`.
SELECT stream.id, stream.tenant, stream.scope, stream.client_id, stream.last, stream.last_seen, stream.owner, stream.changed_at, stream.expires_at,
  stream.evicted, stream.version, stream.format
FROM "public"."stream"
WHERE (expires_at, id) > ($1, $2) AND expires_at < (SELECT floor("public".onejob_now())::bigint) AND expires_at > 0
ORDER BY expires_at, id
LIMIT 101;

-- queries.py: build_statement (ListDueFacts of usage: after)
-- Facts of any tenant that maintenance should look at, in the order of `core.maintenance.due_sort_key`.
SELECT usage.id, usage.tenant, usage.user, usage.live, usage.changed_at, usage.cost_held, usage.spent, usage.spent_at, usage.minutes, usage.hours,
  usage.counted_at, usage.reservations, usage.version, usage.format, usage.limits, usage.due_at
FROM "public"."usage"
WHERE (due_at, id) > ($1, $2) AND due_at < (SELECT floor("public".onejob_now())::bigint) AND due_at > 0
ORDER BY due_at, id
LIMIT 101;

-- queries.py: build_statement (ListFacts of job: tenant)
-- All facts of one kind, of a tenant or (None) of all, ordered by id.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND id > $2
ORDER BY id
LIMIT 101;

-- queries.py: build_statement (ListFacts of job: tenant, after)
-- All facts of one kind, of a tenant or (None) of all, ordered by id.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND id > $2
ORDER BY id
LIMIT 101;

-- queries.py: build_statement (ListFacts of memo: tenant)
-- All facts of one kind, of a tenant or (None) of all, ordered by id.
SELECT memo.id, memo.tenant, memo.job_id, memo.name, memo.fingerprint, memo.token, memo.holder, memo.began_at, memo.changed_at, memo.runs,
  memo.ended_at, memo.result, memo.version, memo.format
FROM "public"."memo"
WHERE id > $1 AND id < $2 AND tenant = $3
ORDER BY id
LIMIT 101;

-- queries.py: build_statement (ListFacts of policy: tenant)
-- All facts of one kind, of a tenant or (None) of all, ordered by id.
SELECT policy.id, policy.tenant, policy.name, policy.body, policy.changed_at, policy.version, policy.format, policy.expires_at
FROM "public"."policy"
WHERE id > $1 AND id < $2 AND tenant = $3
ORDER BY id
LIMIT 101;

-- queries.py: build_statement (ListFacts of record: after)
-- All facts of one kind, of a tenant or (None) of all, ordered by id.
SELECT record.id, record.tenant, record.scope, record.key, record.status, record.fingerprint, record.job_ids, record.holder, record.token,
  record.lease_until, record.created_at, record.changed_at, record.expires_at, record.ttl_ms, record.actor, record.user, record.version,
  record.format, record.receipt, record.external_id, record.client_id, record.sequence, record.hits, record.conflicts, record.last_hit_at,
  record.recent_conflicts
FROM "public"."record"
WHERE id > $1
ORDER BY id
LIMIT 101;

-- queries.py: build_statement (ListFacts of record: tenant)
-- All facts of one kind, of a tenant or (None) of all, ordered by id.
SELECT record.id, record.tenant, record.scope, record.key, record.status, record.fingerprint, record.job_ids, record.holder, record.token,
  record.lease_until, record.created_at, record.changed_at, record.expires_at, record.ttl_ms, record.actor, record.user, record.version,
  record.format, record.receipt, record.external_id, record.client_id, record.sequence, record.hits, record.conflicts, record.last_hit_at,
  record.recent_conflicts
FROM "public"."record"
WHERE id > $1 AND id < $2 AND tenant = $3
ORDER BY id
LIMIT 101;

-- queries.py: build_statement (ListFacts of stream: tenant)
-- All facts of one kind, of a tenant or (None) of all, ordered by id.
SELECT stream.id, stream.tenant, stream.scope, stream.client_id, stream.last, stream.last_seen, stream.owner, stream.changed_at, stream.expires_at,
  stream.evicted, stream.version, stream.format
FROM "public"."stream"
WHERE id > $1 AND id < $2 AND tenant = $3
ORDER BY id
LIMIT 101;

-- queries.py: build_statement (ListFacts of usage: tenant)
-- All facts of one kind, of a tenant or (None) of all, ordered by id.
SELECT usage.id, usage.tenant, usage.user, usage.live, usage.changed_at, usage.cost_held, usage.spent, usage.spent_at, usage.minutes, usage.hours,
  usage.counted_at, usage.reservations, usage.version, usage.format, usage.limits, usage.due_at
FROM "public"."usage"
WHERE id > $1 AND id < $2 AND tenant = $3
ORDER BY id
LIMIT 101;

-- queries.py: build_statement (ListInputs: job_ids)
-- The inputs of some jobs of any tenants, ordered by job id. For the process itself, never for a caller.
SELECT job_id, kind, "index", data
FROM "public"."attachment"
WHERE job_id = ANY ($1::bytea[]) AND kind = $2 AND "index" = 0
ORDER BY job_id
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, before)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND id < $2
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, before; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND id < $2 AND id >= $3
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, created_from)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND created_at >= $2 AND id >= $3
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, created_from; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND created_at >= $2 AND id >= $3 AND id >= $4
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, created_to)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND created_at <= $2 AND id < $3
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, created_to; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND created_at <= $2 AND id < $3 AND id >= $4
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, label)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND (position($2::bytea IN labels) = 1 OR position($3::bytea IN labels) > 0)
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, label; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND (position($2::bytea IN labels) = 1 OR position($3::bytea IN labels) > 0) AND id >= $4
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.state = $2
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state, label, created_from, created_to)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.state = $2 AND (position($3::bytea IN labels) = 1 OR position($4::bytea IN labels) > 0) AND created_at >= $5 AND id >= $6
  AND created_at <= $7 AND id < $8
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state, label, created_from, created_to; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.state = $2 AND (position($3::bytea IN labels) = 1 OR position($4::bytea IN labels) > 0) AND created_at >= $5 AND id >= $6
  AND created_at <= $7 AND id < $8 AND id >= $9
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state, label, created_from, created_to; planned: types)
-- A tenant's jobs, newest first.
SELECT *
FROM (
    SELECT *
    FROM (
        SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until,
          job.run_at, job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token,
          job.holder, job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs,
          job.progress, job.finish_digest, job.verb_keys, job.memos
        FROM "public"."job"
        WHERE tenant = $1 AND job.state = $2 AND job.type = $3 AND (position($4::bytea IN labels) = 1 OR position($5::bytea IN labels) > 0) AND
          created_at >= $6 AND id >= $7 AND created_at <= $8 AND id < $9
        ORDER BY id DESC
        LIMIT 101
    ) AS part_0 /* ... n types */
) AS merged
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state, type)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.state = $2 AND job.type = $3
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state, type, user, usage_id, label, created_from, created_to, before)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.state = $2 AND job.type = $3 AND job.user = $4 AND usage_id = $5 AND usage_id <> '' AND (position($6::bytea IN labels) = 1
  OR position($7::bytea IN labels) > 0) AND created_at >= $8 AND id >= $9 AND created_at <= $10 AND id < $11 AND id < $12
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state, type; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.state = $2 AND job.type = $3 AND id >= $4
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state, type; planned: types)
-- A tenant's jobs, newest first.
SELECT *
FROM (
    SELECT *
    FROM (
        SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until,
          job.run_at, job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token,
          job.holder, job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs,
          job.progress, job.finish_digest, job.verb_keys, job.memos
        FROM "public"."job"
        WHERE tenant = $1 AND job.state = $2 AND job.type = $3
        ORDER BY id DESC
        LIMIT 101
    ) AS part_0 /* ... n types */
) AS merged
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state, user)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.state = $2 AND job.user = $3
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state, user; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.state = $2 AND job.user = $3 AND id >= $4
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state, user; planned: types)
-- A tenant's jobs, newest first.
SELECT *
FROM (
    SELECT *
    FROM (
        SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until,
          job.run_at, job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token,
          job.holder, job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs,
          job.progress, job.finish_digest, job.verb_keys, job.memos
        FROM "public"."job"
        WHERE tenant = $1 AND job.state = $2 AND job.type = $3 AND job.user = $4
        ORDER BY id DESC
        LIMIT 101
    ) AS part_0 /* ... n types */
) AS merged
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.state = $2 AND id >= $3
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, state; planned: types)
-- A tenant's jobs, newest first.
SELECT *
FROM (
    SELECT *
    FROM (
        SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until,
          job.run_at, job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token,
          job.holder, job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs,
          job.progress, job.finish_digest, job.verb_keys, job.memos
        FROM "public"."job"
        WHERE tenant = $1 AND job.state = $2 AND job.type = $3
        ORDER BY id DESC
        LIMIT 101
    ) AS part_0 /* ... n types */
) AS merged
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, type)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.type = $2
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, type, user)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.type = $2 AND job.user = $3
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, type, user; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.type = $2 AND job.user = $3 AND id >= $4
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, type; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.type = $2 AND id >= $3
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, usage_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND usage_id = $2 AND usage_id <> ''
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, user)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.user = $2
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant, user; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND job.user = $2 AND id >= $3
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListJobs: tenant; planned: oldest_id)
-- A tenant's jobs, newest first.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE tenant = $1 AND id >= $2
ORDER BY id DESC
LIMIT 101;

-- queries.py: build_statement (ListLeasedJobs: tenant, holder)
-- Jobs under a live lease of one holder, so that a claim whose reply was lost finds what it took.
SELECT job.id, job.tenant, job.type, job.state, job.scope, job.key, job.actor, job.user, job.created_at, job.changed_at, job.keep_until, job.run_at,
  job.priority, job.delivery, job.attempts_max, job.timeout_ms, job.labels, job.due_at, job.version, job.format, job.token, job.holder,
  job.lease_until, job.attempts, job.usage_id, job.cost_held, job.events, job.ended_at, job.error, job.started_at, job.logs, job.progress,
  job.finish_digest, job.verb_keys, job.memos
FROM "public"."job"
WHERE holder = $1 AND tenant = $2 AND lease_until >= (SELECT floor("public".onejob_now())::bigint) AND lease_until > 0
ORDER BY id
LIMIT 101;

-- queries.py: build_statement (ListReadyJobs: types)
-- Jobs of some types that could be claimed, most urgent first.
SELECT job.*
FROM (SELECT DISTINCT unnest($1::text[]) AS name) AS requested
CROSS JOIN LATERAL (
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos", xmin AS xmin_of_row
    FROM "public"."job"
    WHERE type = requested.name AND state IN ('pending', 'scheduled') AND run_at <= (SELECT floor("public".onejob_now())::bigint) AND lease_until <
      (SELECT floor("public".onejob_now())::bigint)
) AS job
ORDER BY priority DESC, run_at, id
LIMIT 101;

-- queries.py: build_statement (ListReadyJobs: types, tenant)
-- Jobs of some types that could be claimed, most urgent first.
WITH RECURSIVE level AS (
    SELECT name, (
        SELECT max(priority)
        FROM "public"."job"
        WHERE type = name AND tenant = $2 AND state IN ('pending', 'scheduled')
    ) AS priority
    FROM (SELECT DISTINCT unnest($1::text[]) AS name) AS requested
    UNION ALL
    SELECT name, (
        SELECT max(priority)
        FROM "public"."job"
        WHERE type = name AND tenant = $2 AND state IN ('pending', 'scheduled') AND priority < level.priority
    )
    FROM level
    WHERE level.priority IS NOT NULL
)
SELECT job.*
FROM level
CROSS JOIN LATERAL (
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos", xmin AS xmin_of_row
    FROM "public"."job"
    WHERE type = name AND tenant = $2 AND state IN ('pending', 'scheduled') AND priority = level.priority AND run_at <= (SELECT
      floor("public".onejob_now())::bigint) AND lease_until < (SELECT floor("public".onejob_now())::bigint)
    ORDER BY run_at, id
    LIMIT 101
) AS job
ORDER BY priority DESC, run_at, id
LIMIT 101;

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
CREATE SCHEMA "public";

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
CREATE TABLE onejob_schema (version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
INSERT INTO onejob_schema (version)
VALUES (1);

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
SELECT coalesce(max(version), 0)
FROM "public".onejob_schema;

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
SELECT count(*)
FROM pg_catalog.pg_class AS t
JOIN pg_catalog.pg_namespace AS n ON n.oid = t.relnamespace
WHERE n.nspname = $1 AND t.relname = $2;

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
SELECT count(*)
FROM pg_catalog.pg_namespace
WHERE nspname = $1;

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
SELECT current_setting('search_path');

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
SELECT durability, has_table_privilege($1, 'UPDATE')
FROM "public".ledger;

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
SELECT id
FROM "public".ledger;

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
SELECT pg_advisory_xact_lock($1, hashtext($2));

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
SELECT set_config('search_path', $1, true);

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
SET LOCAL search_path = "public";

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
SET LOCAL statement_timeout = 0;
SET LOCAL lock_timeout = '60s';

-- schema.py
-- Creates, checks and names the tables when a connection is opened.
UPDATE "public".ledger
SET durability = $1;

-- sql.py: plan_scan (ListJobs)
-- Plans a page of jobs.
SELECT id
FROM "public"."job"
WHERE tenant = $1 AND id < $2
ORDER BY id DESC
LIMIT 1 OFFSET $3;

-- sql.py: plan_scan (ListJobs)
-- Plans a page of jobs.
WITH RECURSIVE one (type) AS (
    SELECT (SELECT min(type) FROM "public"."job" WHERE tenant = $1 AND state = $2)
    UNION ALL
    SELECT (SELECT min(type) FROM "public"."job" WHERE tenant = $1 AND state = $2 AND type > one.type)
    FROM one
    WHERE one.type IS NOT NULL
)
SELECT type
FROM one
WHERE type IS NOT NULL
LIMIT 65;

-- statements.py: Statements.answer_sql
-- Finds the answer of a key in a caller's transaction.
SELECT "public".onejob_now(), "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND
  current_setting('synchronous_commit') NOT IN ('off', 'local'), r."id", r."tenant", r."scope", r."key", r."status", r."fingerprint", r."job_ids",
  r."holder", r."token", r."lease_until", r."created_at", r."changed_at", r."expires_at", r."ttl_ms", r."actor", r."user", r."version", r."format",
  r."receipt", r."external_id", r."client_id", r."sequence", r."hits", r."conflicts", r."last_hit_at", r."recent_conflicts", j."id", j."tenant",
  j."type", j."state", j."scope", j."key", j."actor", j."user", j."created_at", j."changed_at", j."keep_until", j."run_at", j."priority",
  j."delivery", j."attempts_max", j."timeout_ms", j."labels", j."due_at", j."version", j."format", j."token", j."holder", j."lease_until",
  j."attempts", j."usage_id", j."cost_held", j."events", j."ended_at", j."error", j."started_at", j."logs", j."progress", j."finish_digest",
  j."verb_keys", j."memos"
FROM (VALUES (1)) AS one
LEFT JOIN "public"."record" AS r ON r.id = $1::bytea
LEFT JOIN "public"."job" AS j ON j.id = substr(r.job_ids, 1, 16);

-- statements.py: Statements.caller_insert_sql (create job, add)
-- Inserts a new job in a caller's transaction, unless its key or a limit of its user exists. Used by: Submit.
WITH step_1 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT $9::bytea, $10::text, $11::text, $12::text, $13::text, $14::text, $15::text, $16::text, $17::bigint, $18::bigint, $19::bigint, $20::bigint,
      $21::bigint, $22::text, $23::bigint, $24::bigint, $25::bytea, $26::bigint, 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint,
      ''::bytea, 0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_uncounted($1::integer, $2::integer, $3::integer, $4::integer, $5::bytea,
      $6::bytea, $7::bytea, $8::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), step_2 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT $27::bytea, $28::bigint, $29::bigint, $30::bytea
    FROM step_1
    RETURNING 1
)
SELECT count(*), "public".onejob_now(), "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND
  current_setting('synchronous_commit') NOT IN ('off', 'local')
FROM step_2;

-- statements.py: Statements.caller_insert_sql (create record, create job, add)
-- Inserts a new job in a caller's transaction, unless its key or a limit of its user exists. Used by: Submit.
WITH step_1 AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT $9::bytea, $10::text, $11::text, $12::text, $13::text, $14::bytea, $15::bytea, $16::bytea, $17::bigint, $18::bigint, $19::bigint,
      $20::bigint, $21::bigint, $22::bigint, $23::text, $24::text, 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint,
      0::bigint, 0::bigint, ''::bytea
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_uncounted($1::integer, $2::integer, $3::integer, $4::integer, $5::bytea,
      $6::bytea, $7::bytea, $8::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), step_2 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT $25::bytea, $26::text, $27::text, $28::text, $29::text, $30::text, $31::text, $32::text, $33::bigint, $34::bigint, $35::bigint,
      $36::bigint, $37::bigint, $38::text, $39::bigint, $40::bigint, $41::bytea, $42::bigint, 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint,
      0::bigint, ''::bytea, 0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM step_1
    RETURNING 1
), step_3 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT $43::bytea, $44::bigint, $45::bigint, $46::bytea
    FROM step_2
    RETURNING 1
)
SELECT count(*), "public".onejob_now(), "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND
  current_setting('synchronous_commit') NOT IN ('off', 'local')
FROM step_3;

-- statements.py: Statements.caller_insert_sql (create record, insert job, add)
-- Inserts a new job in a caller's transaction, unless its key or a limit of its user exists. Used by: Submit.
WITH step_1 AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT $9::bytea, $10::text, $11::text, $12::text, $13::text, $14::bytea, $15::bytea, $16::bytea, $17::bigint, $18::bigint, $19::bigint,
      $20::bigint, $21::bigint, $22::bigint, $23::text, $24::text, 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint,
      0::bigint, 0::bigint, ''::bytea
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_uncounted($1::integer, $2::integer, $3::integer, $4::integer, $5::bytea,
      $6::bytea, $7::bytea, $8::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), step_2 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT $25::bytea, $26::text, $27::text, $28::text, $29::text, $30::text, $31::text, $32::text, $33::bigint, $34::bigint, $35::bigint,
      $36::bigint, $37::bigint, $38::text, $39::bigint, $40::bigint, $41::bytea, $42::bigint, $43::bigint, $44::bigint, $45::bigint, $46::bytea,
      $47::bigint, $48::bigint, $49::bytea, $50::bigint, $51::bigint, $52::bigint, $53::text, $54::bigint, $55::bigint, $56::text, $57::bytea,
      $58::bytea, $59::bigint
    FROM step_1
    RETURNING 1
), step_3 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT $60::bytea, $61::bigint, $62::bigint, $63::bytea
    FROM step_2
    RETURNING 1
)
SELECT count(*), "public".onejob_now(), "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND
  current_setting('synchronous_commit') NOT IN ('off', 'local')
FROM step_3;

-- statements.py: Statements.caller_insert_sql (create record, insert job, insert usage, add)
-- Inserts a new job in a caller's transaction, unless its key or a limit of its user exists. Used by: Submit.
WITH step_1 AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT $9::bytea, $10::text, $11::text, $12::text, $13::text, $14::bytea, $15::bytea, $16::bytea, $17::bigint, $18::bigint, $19::bigint,
      $20::bigint, $21::bigint, $22::bigint, $23::text, $24::text, 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint,
      0::bigint, 0::bigint, ''::bytea
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_uncounted($1::integer, $2::integer, $3::integer, $4::integer, $5::bytea,
      $6::bytea, $7::bytea, $8::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), step_2 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT $25::bytea, $26::text, $27::text, $28::text, $29::text, $30::text, $31::text, $32::text, $33::bigint, $34::bigint, $35::bigint,
      $36::bigint, $37::bigint, $38::text, $39::bigint, $40::bigint, $41::bytea, $42::bigint, $43::bigint, $44::bigint, $45::bigint, $46::bytea,
      $47::bigint, $48::bigint, $49::bytea, $50::bigint, $51::bigint, $52::bigint, $53::text, $54::bigint, $55::bigint, $56::text, $57::bytea,
      $58::bytea, $59::bigint
    FROM step_1
    RETURNING 1
), step_3 AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    SELECT $60::bytea, $61::text, $62::text, $63::bigint, $64::bigint, $65::bigint, $66::text, $67::bigint, $68::text, $69::text, $70::bigint,
      $71::text, $72::bigint, $73::bigint, $74::bytea, $75::bigint
    FROM step_2
    RETURNING 1
), step_4 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT $76::bytea, $77::bigint, $78::bigint, $79::bytea
    FROM step_3
    RETURNING 1
)
SELECT count(*), "public".onejob_now(), "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND
  current_setting('synchronous_commit') NOT IN ('off', 'local')
FROM step_4;

-- statements.py: Statements.changes_sql (absent job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit.
SELECT (SELECT count(*) FROM "public"."job" WHERE id = ANY ($1::bytea[]));

-- statements.py: Statements.changes_sql (absent job, absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit, SubmitSequence.
SELECT (SELECT count(*) FROM "public"."job" WHERE id = ANY ($1::bytea[])), (SELECT count(*) FROM "public"."usage" WHERE id = ANY ($2::bytea[]));

-- statements.py: Statements.changes_sql (absent record)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit.
SELECT (SELECT count(*) FROM "public"."record" WHERE id = ANY ($1::bytea[]));

-- statements.py: Statements.changes_sql (absent record, absent job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit.
SELECT (SELECT count(*) FROM "public"."record" WHERE id = ANY ($1::bytea[])), (SELECT count(*) FROM "public"."job" WHERE id = ANY ($2::bytea[]));

-- statements.py: Statements.changes_sql (absent record, absent job, absent stream)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: SubmitSequence.
SELECT (SELECT count(*) FROM "public"."record" WHERE id = ANY ($1::bytea[])), (SELECT count(*) FROM "public"."job" WHERE id = ANY ($2::bytea[])),
  (SELECT count(*) FROM "public"."stream" WHERE id = ANY ($3::bytea[]));

-- statements.py: Statements.changes_sql (absent record, absent job, absent stream, absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: SubmitSequence.
SELECT (SELECT count(*) FROM "public"."record" WHERE id = ANY ($1::bytea[])), (SELECT count(*) FROM "public"."job" WHERE id = ANY ($2::bytea[])),
  (SELECT count(*) FROM "public"."stream" WHERE id = ANY ($3::bytea[])), (SELECT count(*) FROM "public"."usage" WHERE id = ANY ($4::bytea[]));

-- statements.py: Statements.changes_sql (absent record, absent job, absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: SubmitSequence.
SELECT (SELECT count(*) FROM "public"."record" WHERE id = ANY ($1::bytea[])), (SELECT count(*) FROM "public"."job" WHERE id = ANY ($2::bytea[])),
  (SELECT count(*) FROM "public"."usage" WHERE id = ANY ($3::bytea[]));

-- statements.py: Statements.changes_sql (absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Backfill, SetLimits, SubmitSequence.
SELECT (SELECT count(*) FROM "public"."usage" WHERE id = ANY ($1::bytea[]));

-- statements.py: Statements.changes_sql (create job, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit.
WITH create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[],
      $8::text::text[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::text[],
      $15::text::bigint[], $16::text::bigint[], $17::text::bytea[], $18::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($19::text::bytea[], $20::text::bigint[], $21::text::bigint[], $22::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_job), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (create job, add, absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit.
WITH create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[],
      $8::text::text[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::text[],
      $15::text::bigint[], $16::text::bigint[], $17::text::bytea[], $18::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($19::text::bytea[], $20::text::bigint[], $21::text::bigint[], $22::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_job), (SELECT count(*) FROM add_), (SELECT count(*) FROM "public"."usage" WHERE id = ANY ($23::bytea[]));

-- statements.py: Statements.changes_sql (create job, update record, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Reserve, Submit.
WITH create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[],
      $8::text::text[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::text[],
      $15::text::bigint[], $16::text::bigint[], $17::text::bytea[], $18::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($19::text::bytea[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[], $24::text::bytea[],
      $25::text::bytea[], $26::text::bytea[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::bigint[], $31::text::bigint[],
      $32::text::bigint[], $33::text::text[], $34::text::text[], $35::text::bigint[], $36::text::bigint[], $37::bytea[], $38::text::text[],
      $39::text::text[], $40::text::bigint[], $41::text::bigint[], $42::text::bigint[], $43::text::bigint[], $44::text::bytea[], $45::text::bigint[])
      AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($46::text::bytea[], $47::text::bigint[], $48::text::bigint[], $49::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_job), (SELECT count(*) FROM update_record), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (create record)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Reserve.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
      "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_record);

-- statements.py: Statements.changes_sql (create record, create job, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Reserve, Submit.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
      "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($17::text::bytea[], $18::text::text[], $19::text::text[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[],
      $24::text::text[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::text[],
      $31::text::bigint[], $32::text::bigint[], $33::text::bytea[], $34::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($35::text::bytea[], $36::text::bigint[], $37::text::bigint[], $38::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_record), (SELECT count(*) FROM create_job), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (create record, create job, add, absent job, absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Cancel, CountHits, DropPolicy, Forget, Purge, Resolve, SetLimits, SetPolicy, Submit.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
      "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($17::text::bytea[], $18::text::text[], $19::text::text[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[],
      $24::text::text[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::text[],
      $31::text::bigint[], $32::text::bigint[], $33::text::bytea[], $34::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($35::text::bytea[], $36::text::bigint[], $37::text::bigint[], $38::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_record), (SELECT count(*) FROM create_job), (SELECT count(*) FROM add_), (SELECT count(*) FROM "public"."job"
  WHERE id = ANY ($39::bytea[])), (SELECT count(*) FROM "public"."usage" WHERE id = ANY ($40::bytea[]));

-- statements.py: Statements.changes_sql (create record, create job, add, absent record, absent job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
      "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($17::text::bytea[], $18::text::text[], $19::text::text[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[],
      $24::text::text[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::text[],
      $31::text::bigint[], $32::text::bigint[], $33::text::bytea[], $34::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($35::text::bytea[], $36::text::bigint[], $37::text::bigint[], $38::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_record), (SELECT count(*) FROM create_job), (SELECT count(*) FROM add_), (SELECT count(*) FROM "public"."record"
  WHERE id = ANY ($39::bytea[])), (SELECT count(*) FROM "public"."job" WHERE id = ANY ($40::bytea[]));

-- statements.py: Statements.changes_sql (create record, create job, add, absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Reserve, Submit.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
      "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($17::text::bytea[], $18::text::text[], $19::text::text[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[],
      $24::text::text[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::text[],
      $31::text::bigint[], $32::text::bigint[], $33::text::bytea[], $34::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($35::text::bytea[], $36::text::bigint[], $37::text::bigint[], $38::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_record), (SELECT count(*) FROM create_job), (SELECT count(*) FROM add_), (SELECT count(*) FROM "public"."usage"
  WHERE id = ANY ($39::bytea[]));

-- statements.py: Statements.changes_sql (create record, insert job, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: CancelAtSite.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
      "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($17::text::bytea[], $18::text::text[], $19::text::text[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[],
      $24::text::text[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::text[],
      $31::text::bigint[], $32::text::bigint[], $33::text::bytea[], $34::text::bigint[], $35::text::bigint[], $36::text::bigint[],
      $37::text::bigint[], $38::text::bytea[], $39::text::bigint[], $40::text::bigint[], $41::text::bytea[], $42::text::bigint[], $43::text::bigint[],
      $44::text::bigint[], $45::text::text[], $46::text::bigint[], $47::text::bigint[], $48::text::text[], $49::text::bytea[], $50::text::bytea[],
      $51::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($52::text::bytea[], $53::text::bigint[], $54::text::bigint[], $55::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_record), (SELECT count(*) FROM insert_job), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (create record, insert job, insert usage, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: SetLimits, Submit.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
      "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($17::text::bytea[], $18::text::text[], $19::text::text[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[],
      $24::text::text[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::text[],
      $31::text::bigint[], $32::text::bigint[], $33::text::bytea[], $34::text::bigint[], $35::text::bigint[], $36::text::bigint[],
      $37::text::bigint[], $38::text::bytea[], $39::text::bigint[], $40::text::bigint[], $41::text::bytea[], $42::text::bigint[], $43::text::bigint[],
      $44::text::bigint[], $45::text::text[], $46::text::bigint[], $47::text::bigint[], $48::text::text[], $49::text::bytea[], $50::text::bytea[],
      $51::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    RETURNING 1
), insert_usage AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM unnest($52::text::bytea[], $53::text::text[], $54::text::text[], $55::text::bigint[], $56::text::bigint[], $57::text::bigint[],
      $58::text::text[], $59::text::bigint[], $60::text::text[], $61::text::text[], $62::text::bigint[], $63::text::text[], $64::text::bigint[],
      $65::text::bigint[], $66::text::bytea[], $67::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at", "cost_held", "spent",
      "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($68::text::bytea[], $69::text::bigint[], $70::text::bigint[], $71::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_record), (SELECT count(*) FROM insert_job), (SELECT count(*) FROM insert_usage), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (create record, insert job, update usage, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Reserve, Submit.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
      "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($17::text::bytea[], $18::text::text[], $19::text::text[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[],
      $24::text::text[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::text[],
      $31::text::bigint[], $32::text::bigint[], $33::text::bytea[], $34::text::bigint[], $35::text::bigint[], $36::text::bigint[],
      $37::text::bigint[], $38::text::bytea[], $39::text::bigint[], $40::text::bigint[], $41::text::bytea[], $42::text::bigint[], $43::text::bigint[],
      $44::text::bigint[], $45::text::text[], $46::text::bigint[], $47::text::bigint[], $48::text::text[], $49::text::bytea[], $50::text::bytea[],
      $51::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($52::text::bytea[], $53::text::text[], $54::text::text[], $55::text::bigint[], $56::text::bigint[], $57::text::bigint[],
      $58::text::text[], $59::text::bigint[], $60::text::text[], $61::text::text[], $62::text::bigint[], $63::text::text[], $64::text::bigint[],
      $65::text::bigint[], $66::text::bytea[], $67::text::bigint[], $68::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($69::text::bytea[], $70::text::bigint[], $71::text::bigint[], $72::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_record), (SELECT count(*) FROM insert_job), (SELECT count(*) FROM update_usage), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (create record, insert job, update usage, add, absent record, absent job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
      "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($17::text::bytea[], $18::text::text[], $19::text::text[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[],
      $24::text::text[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::text[],
      $31::text::bigint[], $32::text::bigint[], $33::text::bytea[], $34::text::bigint[], $35::text::bigint[], $36::text::bigint[],
      $37::text::bigint[], $38::text::bytea[], $39::text::bigint[], $40::text::bigint[], $41::text::bytea[], $42::text::bigint[], $43::text::bigint[],
      $44::text::bigint[], $45::text::text[], $46::text::bigint[], $47::text::bigint[], $48::text::text[], $49::text::bytea[], $50::text::bytea[],
      $51::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($52::text::bytea[], $53::text::text[], $54::text::text[], $55::text::bigint[], $56::text::bigint[], $57::text::bigint[],
      $58::text::text[], $59::text::bigint[], $60::text::text[], $61::text::text[], $62::text::bigint[], $63::text::text[], $64::text::bigint[],
      $65::text::bigint[], $66::text::bytea[], $67::text::bigint[], $68::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($69::text::bytea[], $70::text::bigint[], $71::text::bigint[], $72::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM create_record), (SELECT count(*) FROM insert_job), (SELECT count(*) FROM update_usage), (SELECT count(*) FROM add_),
  (SELECT count(*) FROM "public"."record" WHERE id = ANY ($73::bytea[])), (SELECT count(*) FROM "public"."job" WHERE id = ANY ($74::bytea[]));

-- statements.py: Statements.changes_sql (delete job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: BeginStep, FinishStep, Maintain, Purge.
WITH delete_job AS (
    DELETE FROM "public"."job" AS t
    USING unnest($1::text::bytea[], $2::text::bigint[]) AS u("id", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM delete_job);

-- statements.py: Statements.changes_sql (delete policy)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: DropPolicy, ExpirePolicy, Purge.
WITH delete_policy AS (
    DELETE FROM "public"."policy" AS t
    USING unnest($1::text::bytea[], $2::text::bigint[]) AS u("id", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM delete_policy);

-- statements.py: Statements.changes_sql (delete record)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Expire.
WITH delete_record AS (
    DELETE FROM "public"."record" AS t
    USING unnest($1::text::bytea[], $2::text::bigint[]) AS u("id", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM delete_record);

-- statements.py: Statements.changes_sql (delete record, delete job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Purge.
WITH delete_record AS (
    DELETE FROM "public"."record" AS t
    USING unnest($1::text::bytea[], $2::text::bigint[]) AS u("id", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), delete_job AS (
    DELETE FROM "public"."job" AS t
    USING unnest($3::text::bytea[], $4::text::bigint[]) AS u("id", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM delete_record), (SELECT count(*) FROM delete_job);

-- statements.py: Statements.changes_sql (delete stream)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Evict, Purge.
WITH delete_stream AS (
    DELETE FROM "public"."stream" AS t
    USING unnest($1::text::bytea[], $2::text::bigint[]) AS u("id", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM delete_stream);

-- statements.py: Statements.changes_sql (delete_attachments, delete_memos)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: BeginStep, FinishStep, Maintain, Purge.
WITH delete_attachments_ AS (DELETE FROM "public"."attachment" WHERE job_id = ANY ($1::bytea[]) RETURNING 1), delete_memos_ AS (DELETE FROM
  "public"."memo" WHERE job_id = ANY ($2::bytea[]) RETURNING 1)
SELECT (SELECT count(*) FROM delete_attachments_), (SELECT count(*) FROM delete_memos_);

-- statements.py: Statements.changes_sql (insert job, insert usage, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit.
WITH insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[],
      $8::text::text[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::text[],
      $15::text::bigint[], $16::text::bigint[], $17::text::bytea[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[],
      $21::text::bigint[], $22::text::bytea[], $23::text::bigint[], $24::text::bigint[], $25::text::bytea[], $26::text::bigint[], $27::text::bigint[],
      $28::text::bigint[], $29::text::text[], $30::text::bigint[], $31::text::bigint[], $32::text::text[], $33::text::bytea[], $34::text::bytea[],
      $35::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    RETURNING 1
), insert_usage AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM unnest($36::text::bytea[], $37::text::text[], $38::text::text[], $39::text::bigint[], $40::text::bigint[], $41::text::bigint[],
      $42::text::text[], $43::text::bigint[], $44::text::text[], $45::text::text[], $46::text::bigint[], $47::text::text[], $48::text::bigint[],
      $49::text::bigint[], $50::text::bytea[], $51::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at", "cost_held", "spent",
      "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($52::text::bytea[], $53::text::bigint[], $54::text::bigint[], $55::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_job), (SELECT count(*) FROM insert_usage), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (insert job, update usage, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit.
WITH insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[],
      $8::text::text[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::text[],
      $15::text::bigint[], $16::text::bigint[], $17::text::bytea[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[],
      $21::text::bigint[], $22::text::bytea[], $23::text::bigint[], $24::text::bigint[], $25::text::bytea[], $26::text::bigint[], $27::text::bigint[],
      $28::text::bigint[], $29::text::text[], $30::text::bigint[], $31::text::bigint[], $32::text::text[], $33::text::bytea[], $34::text::bytea[],
      $35::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($36::text::bytea[], $37::text::text[], $38::text::text[], $39::text::bigint[], $40::text::bigint[], $41::text::bigint[],
      $42::text::text[], $43::text::bigint[], $44::text::text[], $45::text::text[], $46::text::bigint[], $47::text::text[], $48::text::bigint[],
      $49::text::bigint[], $50::text::bytea[], $51::text::bigint[], $52::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($53::text::bytea[], $54::text::bigint[], $55::text::bigint[], $56::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_job), (SELECT count(*) FROM update_usage), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (insert memo, update job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: BeginStep.
WITH insert_memo AS (
    INSERT INTO "public"."memo" ("id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at",
      "result", "version", "format")
    SELECT "id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at", "result", "version",
      "format"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::bytea[], $4::text::text[], $5::text::bytea[], $6::text::bigint[], $7::text::bytea[],
      $8::text::bigint[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::bytea[], $13::text::bigint[], $14::text::bigint[]) AS
      u("id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at", "result", "version",
      "format")
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($15::text::bytea[], $16::text::text[], $17::text::text[], $18::text::text[], $19::text::text[], $20::text::text[], $21::text::text[],
      $22::text::text[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::text[],
      $29::text::bigint[], $30::text::bigint[], $31::text::bytea[], $32::text::bigint[], $33::text::bigint[], $34::text::bigint[],
      $35::text::bigint[], $36::text::bytea[], $37::text::bigint[], $38::text::bigint[], $39::text::bytea[], $40::text::bigint[], $41::text::bigint[],
      $42::text::bigint[], $43::text::text[], $44::text::bigint[], $45::text::bigint[], $46::text::text[], $47::text::bytea[], $48::text::bytea[],
      $49::text::bigint[], $50::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_memo), (SELECT count(*) FROM update_job);

-- statements.py: Statements.changes_sql (insert policy)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: AddActivity, SetPolicy.
WITH insert_policy AS (
    INSERT INTO "public"."policy" ("id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at")
    SELECT "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::bytea[], $5::text::bigint[], $6::text::bigint[], $7::text::bigint[],
      $8::text::bigint[]) AS u("id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_policy);

-- statements.py: Statements.changes_sql (insert record)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: StoreKey.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[]) AS u("id", "tenant", "scope", "key",
      "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user",
      "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_record);

-- statements.py: Statements.changes_sql (insert record, create job, insert stream, add, absent job, absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: SubmitSequence.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[]) AS u("id", "tenant", "scope", "key",
      "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user",
      "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($27::text::bytea[], $28::text::text[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[],
      $34::text::text[], $35::text::bigint[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::text[],
      $41::text::bigint[], $42::text::bigint[], $43::text::bytea[], $44::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), insert_stream AS (
    INSERT INTO "public"."stream" ("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
      "version", "format")
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM unnest($45::text::bytea[], $46::text::text[], $47::text::text[], $48::text::text[], $49::text::bigint[], $50::text::bigint[],
      $51::text::text[], $52::text::bigint[], $53::text::bigint[], $54::text::bigint[], $55::text::bigint[], $56::text::bigint[]) AS u("id", "tenant",
      "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($57::text::bytea[], $58::text::bigint[], $59::text::bigint[], $60::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_record), (SELECT count(*) FROM create_job), (SELECT count(*) FROM insert_stream), (SELECT count(*) FROM add_),
  (SELECT count(*) FROM "public"."job" WHERE id = ANY ($61::bytea[])), (SELECT count(*) FROM "public"."usage" WHERE id = ANY ($62::bytea[]));

-- statements.py: Statements.changes_sql (insert record, create job, insert stream, add, absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: SubmitSequence.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[]) AS u("id", "tenant", "scope", "key",
      "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user",
      "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($27::text::bytea[], $28::text::text[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[],
      $34::text::text[], $35::text::bigint[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::text[],
      $41::text::bigint[], $42::text::bigint[], $43::text::bytea[], $44::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), insert_stream AS (
    INSERT INTO "public"."stream" ("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
      "version", "format")
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM unnest($45::text::bytea[], $46::text::text[], $47::text::text[], $48::text::text[], $49::text::bigint[], $50::text::bigint[],
      $51::text::text[], $52::text::bigint[], $53::text::bigint[], $54::text::bigint[], $55::text::bigint[], $56::text::bigint[]) AS u("id", "tenant",
      "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($57::text::bytea[], $58::text::bigint[], $59::text::bigint[], $60::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_record), (SELECT count(*) FROM create_job), (SELECT count(*) FROM insert_stream), (SELECT count(*) FROM add_),
  (SELECT count(*) FROM "public"."usage" WHERE id = ANY ($61::bytea[]));

-- statements.py: Statements.changes_sql (insert record, create job, insert stream, insert policy, add, absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: SetPolicy, Submit, SubmitSequence.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[]) AS u("id", "tenant", "scope", "key",
      "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user",
      "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($27::text::bytea[], $28::text::text[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[],
      $34::text::text[], $35::text::bigint[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::text[],
      $41::text::bigint[], $42::text::bigint[], $43::text::bytea[], $44::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), insert_stream AS (
    INSERT INTO "public"."stream" ("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
      "version", "format")
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM unnest($45::text::bytea[], $46::text::text[], $47::text::text[], $48::text::text[], $49::text::bigint[], $50::text::bigint[],
      $51::text::text[], $52::text::bigint[], $53::text::bigint[], $54::text::bigint[], $55::text::bigint[], $56::text::bigint[]) AS u("id", "tenant",
      "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format")
    RETURNING 1
), insert_policy AS (
    INSERT INTO "public"."policy" ("id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at")
    SELECT "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM unnest($57::text::bytea[], $58::text::text[], $59::text::text[], $60::bytea[], $61::text::bigint[], $62::text::bigint[], $63::text::bigint[],
      $64::text::bigint[]) AS u("id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($65::text::bytea[], $66::text::bigint[], $67::text::bigint[], $68::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_record), (SELECT count(*) FROM create_job), (SELECT count(*) FROM insert_stream), (SELECT count(*) FROM
  insert_policy), (SELECT count(*) FROM add_), (SELECT count(*) FROM "public"."usage" WHERE id = ANY ($69::bytea[]));

-- statements.py: Statements.changes_sql (insert record, create job, insert stream, insert usage, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Reserve, SetLimits, Submit, SubmitSequence.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[]) AS u("id", "tenant", "scope", "key",
      "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user",
      "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($27::text::bytea[], $28::text::text[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[],
      $34::text::text[], $35::text::bigint[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::text[],
      $41::text::bigint[], $42::text::bigint[], $43::text::bytea[], $44::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), insert_stream AS (
    INSERT INTO "public"."stream" ("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
      "version", "format")
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM unnest($45::text::bytea[], $46::text::text[], $47::text::text[], $48::text::text[], $49::text::bigint[], $50::text::bigint[],
      $51::text::text[], $52::text::bigint[], $53::text::bigint[], $54::text::bigint[], $55::text::bigint[], $56::text::bigint[]) AS u("id", "tenant",
      "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format")
    RETURNING 1
), insert_usage AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM unnest($57::text::bytea[], $58::text::text[], $59::text::text[], $60::text::bigint[], $61::text::bigint[], $62::text::bigint[],
      $63::text::text[], $64::text::bigint[], $65::text::text[], $66::text::text[], $67::text::bigint[], $68::text::text[], $69::text::bigint[],
      $70::text::bigint[], $71::text::bytea[], $72::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at", "cost_held", "spent",
      "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($73::text::bytea[], $74::text::bigint[], $75::text::bigint[], $76::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_record), (SELECT count(*) FROM create_job), (SELECT count(*) FROM insert_stream), (SELECT count(*) FROM
  insert_usage), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (insert record, create job, update stream, add, absent usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: SubmitSequence.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[]) AS u("id", "tenant", "scope", "key",
      "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user",
      "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($27::text::bytea[], $28::text::text[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[],
      $34::text::text[], $35::text::bigint[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::text[],
      $41::text::bigint[], $42::text::bigint[], $43::text::bytea[], $44::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), update_stream AS (
    UPDATE "public"."stream" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "client_id" = u."client_id", "last" = u."last", "last_seen" = u."last_seen", "owner" = u."owner",
      "changed_at" = u."changed_at", "expires_at" = u."expires_at", "evicted" = u."evicted", "version" = u."version", "format" = u."format"
    FROM unnest($45::text::bytea[], $46::text::text[], $47::text::text[], $48::text::text[], $49::text::bigint[], $50::text::bigint[],
      $51::text::text[], $52::text::bigint[], $53::text::bigint[], $54::text::bigint[], $55::text::bigint[], $56::text::bigint[], $57::text::bigint[])
      AS u("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($58::text::bytea[], $59::text::bigint[], $60::text::bigint[], $61::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_record), (SELECT count(*) FROM create_job), (SELECT count(*) FROM update_stream), (SELECT count(*) FROM add_),
  (SELECT count(*) FROM "public"."usage" WHERE id = ANY ($62::bytea[]));

-- statements.py: Statements.changes_sql (insert record, insert job, insert stream, update usage, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: SubmitSequence.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[]) AS u("id", "tenant", "scope", "key",
      "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user",
      "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($27::text::bytea[], $28::text::text[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[],
      $34::text::text[], $35::text::bigint[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::text[],
      $41::text::bigint[], $42::text::bigint[], $43::text::bytea[], $44::text::bigint[], $45::text::bigint[], $46::text::bigint[],
      $47::text::bigint[], $48::text::bytea[], $49::text::bigint[], $50::text::bigint[], $51::text::bytea[], $52::text::bigint[], $53::text::bigint[],
      $54::text::bigint[], $55::text::text[], $56::text::bigint[], $57::text::bigint[], $58::text::text[], $59::text::bytea[], $60::text::bytea[],
      $61::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    RETURNING 1
), insert_stream AS (
    INSERT INTO "public"."stream" ("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
      "version", "format")
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM unnest($62::text::bytea[], $63::text::text[], $64::text::text[], $65::text::text[], $66::text::bigint[], $67::text::bigint[],
      $68::text::text[], $69::text::bigint[], $70::text::bigint[], $71::text::bigint[], $72::text::bigint[], $73::text::bigint[]) AS u("id", "tenant",
      "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format")
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($74::text::bytea[], $75::text::text[], $76::text::text[], $77::text::bigint[], $78::text::bigint[], $79::text::bigint[],
      $80::text::text[], $81::text::bigint[], $82::text::text[], $83::text::text[], $84::text::bigint[], $85::text::text[], $86::text::bigint[],
      $87::text::bigint[], $88::text::bytea[], $89::text::bigint[], $90::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($91::text::bytea[], $92::text::bigint[], $93::text::bigint[], $94::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_record), (SELECT count(*) FROM insert_job), (SELECT count(*) FROM insert_stream), (SELECT count(*) FROM
  update_usage), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (insert usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: ReserveSlot, SetLimits.
WITH insert_usage AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::bigint[], $5::text::bigint[], $6::text::bigint[], $7::text::text[],
      $8::text::bigint[], $9::text::text[], $10::text::text[], $11::text::bigint[], $12::text::text[], $13::text::bigint[], $14::text::bigint[],
      $15::text::bytea[], $16::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes",
      "hours", "counted_at", "reservations", "version", "format", "limits", "due_at")
    RETURNING 1
)
SELECT (SELECT count(*) FROM insert_usage);

-- statements.py: Statements.changes_sql (notify)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Expire.
SELECT (SELECT count(pg_notify('onejob_public', id)) FROM unnest($1::text[]) AS id);

-- statements.py: Statements.changes_sql (trim)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Extend.
WITH trim_ AS (
    DELETE FROM "public"."attachment" AS t
    USING unnest($1::text::bytea[], $2::text::bigint[], $3::text::bigint[]) AS u("job_id", "kind", "index")
    WHERE t."job_id" = u."job_id" AND t."kind" = u."kind" AND t."index" = u."index"
    RETURNING 1
)
SELECT (SELECT count(*) FROM trim_);

-- statements.py: Statements.changes_sql (update job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Claim, Extend, Maintain, Release, ReportDelivery, Start, Submit.
WITH update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[],
      $8::text::text[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::text[],
      $15::text::bigint[], $16::text::bigint[], $17::text::bytea[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[],
      $21::text::bigint[], $22::text::bytea[], $23::text::bigint[], $24::text::bigint[], $25::text::bytea[], $26::text::bigint[], $27::text::bigint[],
      $28::text::bigint[], $29::text::text[], $30::text::bigint[], $31::text::bigint[], $32::text::text[], $33::text::bytea[], $34::text::bytea[],
      $35::text::bigint[], $36::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_job);

-- statements.py: Statements.changes_sql (update job, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Cancel, Extend, Finish, Maintain, ReportDelivery.
WITH update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[],
      $8::text::text[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::text[],
      $15::text::bigint[], $16::text::bigint[], $17::text::bytea[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[],
      $21::text::bigint[], $22::text::bytea[], $23::text::bigint[], $24::text::bigint[], $25::text::bytea[], $26::text::bigint[], $27::text::bigint[],
      $28::text::bigint[], $29::text::text[], $30::text::bigint[], $31::text::bigint[], $32::text::text[], $33::text::bytea[], $34::text::bytea[],
      $35::text::bigint[], $36::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($37::text::bytea[], $38::text::bigint[], $39::text::bigint[], $40::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_job), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (update job, update usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Backfill, ConsumeSlot.
WITH update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[],
      $8::text::text[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::text[],
      $15::text::bigint[], $16::text::bigint[], $17::text::bytea[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[],
      $21::text::bigint[], $22::text::bytea[], $23::text::bigint[], $24::text::bigint[], $25::text::bytea[], $26::text::bigint[], $27::text::bigint[],
      $28::text::bigint[], $29::text::text[], $30::text::bigint[], $31::text::bigint[], $32::text::text[], $33::text::bytea[], $34::text::bytea[],
      $35::text::bigint[], $36::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($37::text::bytea[], $38::text::text[], $39::text::text[], $40::text::bigint[], $41::text::bigint[], $42::text::bigint[],
      $43::text::text[], $44::text::bigint[], $45::text::text[], $46::text::text[], $47::text::bigint[], $48::text::text[], $49::text::bigint[],
      $50::text::bigint[], $51::text::bytea[], $52::text::bigint[], $53::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_job), (SELECT count(*) FROM update_usage);

-- statements.py: Statements.changes_sql (update job, update usage, add, absent job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Cancel, Finish.
WITH update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[],
      $8::text::text[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::text[],
      $15::text::bigint[], $16::text::bigint[], $17::text::bytea[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[],
      $21::text::bigint[], $22::text::bytea[], $23::text::bigint[], $24::text::bigint[], $25::text::bytea[], $26::text::bigint[], $27::text::bigint[],
      $28::text::bigint[], $29::text::text[], $30::text::bigint[], $31::text::bigint[], $32::text::text[], $33::text::bytea[], $34::text::bytea[],
      $35::text::bigint[], $36::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($37::text::bytea[], $38::text::text[], $39::text::text[], $40::text::bigint[], $41::text::bigint[], $42::text::bigint[],
      $43::text::text[], $44::text::bigint[], $45::text::text[], $46::text::text[], $47::text::bigint[], $48::text::text[], $49::text::bigint[],
      $50::text::bigint[], $51::text::bytea[], $52::text::bigint[], $53::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($54::text::bytea[], $55::text::bigint[], $56::text::bigint[], $57::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_job), (SELECT count(*) FROM update_usage), (SELECT count(*) FROM add_), (SELECT count(*) FROM "public"."job" WHERE
  id = ANY ($58::bytea[]));

-- statements.py: Statements.changes_sql (update memo)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: BeginStep, FinishStep.
WITH update_memo AS (
    UPDATE "public"."memo" AS t
    SET "tenant" = u."tenant", "job_id" = u."job_id", "name" = u."name", "fingerprint" = u."fingerprint", "token" = u."token", "holder" = u."holder",
      "began_at" = u."began_at", "changed_at" = u."changed_at", "runs" = u."runs", "ended_at" = u."ended_at", "result" = u."result", "version" =
      u."version", "format" = u."format"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::bytea[], $4::text::text[], $5::text::bytea[], $6::text::bigint[], $7::text::bytea[],
      $8::text::bigint[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::bytea[], $13::text::bigint[], $14::text::bigint[],
      $15::text::bigint[]) AS u("id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at",
      "result", "version", "format", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_memo);

-- statements.py: Statements.changes_sql (update policy)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: SetPolicy.
WITH update_policy AS (
    UPDATE "public"."policy" AS t
    SET "tenant" = u."tenant", "name" = u."name", "body" = u."body", "changed_at" = u."changed_at", "version" = u."version", "format" = u."format",
      "expires_at" = u."expires_at"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::bytea[], $5::text::bigint[], $6::text::bigint[], $7::text::bigint[],
      $8::text::bigint[], $9::text::bigint[]) AS u("id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_policy);

-- statements.py: Statements.changes_sql (update record)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: CountHits, StoreKey.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record);

-- statements.py: Statements.changes_sql (update record, notify)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Settle, StoreKey.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record), (SELECT count(pg_notify('onejob_public', id)) FROM unnest($28::text[]) AS id);

-- statements.py: Statements.changes_sql (update record, update job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Renew, Reserve, Submit, TakeOver.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($28::text::bytea[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[],
      $35::text::text[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::text[],
      $42::text::bigint[], $43::text::bigint[], $44::text::bytea[], $45::text::bigint[], $46::text::bigint[], $47::text::bigint[],
      $48::text::bigint[], $49::text::bytea[], $50::text::bigint[], $51::text::bigint[], $52::text::bytea[], $53::text::bigint[], $54::text::bigint[],
      $55::text::bigint[], $56::text::text[], $57::text::bigint[], $58::text::bigint[], $59::text::text[], $60::text::bytea[], $61::text::bytea[],
      $62::text::bigint[], $63::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record), (SELECT count(*) FROM update_job);

-- statements.py: Statements.changes_sql (update record, update job, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Forget, Reserve, Submit.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($28::text::bytea[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[],
      $35::text::text[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::text[],
      $42::text::bigint[], $43::text::bigint[], $44::text::bytea[], $45::text::bigint[], $46::text::bigint[], $47::text::bigint[],
      $48::text::bigint[], $49::text::bytea[], $50::text::bigint[], $51::text::bigint[], $52::text::bytea[], $53::text::bigint[], $54::text::bigint[],
      $55::text::bigint[], $56::text::text[], $57::text::bigint[], $58::text::bigint[], $59::text::text[], $60::text::bytea[], $61::text::bytea[],
      $62::text::bigint[], $63::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($64::text::bytea[], $65::text::bigint[], $66::text::bigint[], $67::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record), (SELECT count(*) FROM update_job), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (update record, update job, add, notify)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Reserve, Settle, StoreKey, Submit.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($28::text::bytea[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[],
      $35::text::text[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::text[],
      $42::text::bigint[], $43::text::bigint[], $44::text::bytea[], $45::text::bigint[], $46::text::bigint[], $47::text::bigint[],
      $48::text::bigint[], $49::text::bytea[], $50::text::bigint[], $51::text::bigint[], $52::text::bytea[], $53::text::bigint[], $54::text::bigint[],
      $55::text::bigint[], $56::text::text[], $57::text::bigint[], $58::text::bigint[], $59::text::text[], $60::text::bytea[], $61::text::bytea[],
      $62::text::bigint[], $63::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($64::text::bytea[], $65::text::bigint[], $66::text::bigint[], $67::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record), (SELECT count(*) FROM update_job), (SELECT count(*) FROM add_), (SELECT count(pg_notify('onejob_public',
  id)) FROM unnest($68::text[]) AS id);

-- statements.py: Statements.changes_sql (update record, update job, notify)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Settle, Submit.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($28::text::bytea[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[],
      $35::text::text[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::text[],
      $42::text::bigint[], $43::text::bigint[], $44::text::bytea[], $45::text::bigint[], $46::text::bigint[], $47::text::bigint[],
      $48::text::bigint[], $49::text::bytea[], $50::text::bigint[], $51::text::bigint[], $52::text::bytea[], $53::text::bigint[], $54::text::bigint[],
      $55::text::bigint[], $56::text::text[], $57::text::bigint[], $58::text::bigint[], $59::text::text[], $60::text::bytea[], $61::text::bytea[],
      $62::text::bigint[], $63::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record), (SELECT count(*) FROM update_job), (SELECT count(pg_notify('onejob_public', id)) FROM unnest($64::text[])
  AS id);

-- statements.py: Statements.changes_sql (update record, update job, update usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Submit.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($28::text::bytea[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[],
      $35::text::text[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::text[],
      $42::text::bigint[], $43::text::bigint[], $44::text::bytea[], $45::text::bigint[], $46::text::bigint[], $47::text::bigint[],
      $48::text::bigint[], $49::text::bytea[], $50::text::bigint[], $51::text::bigint[], $52::text::bytea[], $53::text::bigint[], $54::text::bigint[],
      $55::text::bigint[], $56::text::text[], $57::text::bigint[], $58::text::bigint[], $59::text::text[], $60::text::bytea[], $61::text::bytea[],
      $62::text::bigint[], $63::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($64::text::bytea[], $65::text::text[], $66::text::text[], $67::text::bigint[], $68::text::bigint[], $69::text::bigint[],
      $70::text::text[], $71::text::bigint[], $72::text::text[], $73::text::text[], $74::text::bigint[], $75::text::text[], $76::text::bigint[],
      $77::text::bigint[], $78::text::bytea[], $79::text::bigint[], $80::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record), (SELECT count(*) FROM update_job), (SELECT count(*) FROM update_usage);

-- statements.py: Statements.changes_sql (update record, update job, update usage, absent job)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Reserve.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($28::text::bytea[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[],
      $35::text::text[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::text[],
      $42::text::bigint[], $43::text::bigint[], $44::text::bytea[], $45::text::bigint[], $46::text::bigint[], $47::text::bigint[],
      $48::text::bigint[], $49::text::bytea[], $50::text::bigint[], $51::text::bigint[], $52::text::bytea[], $53::text::bigint[], $54::text::bigint[],
      $55::text::bigint[], $56::text::text[], $57::text::bigint[], $58::text::bigint[], $59::text::text[], $60::text::bytea[], $61::text::bytea[],
      $62::text::bigint[], $63::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($64::text::bytea[], $65::text::text[], $66::text::text[], $67::text::bigint[], $68::text::bigint[], $69::text::bigint[],
      $70::text::text[], $71::text::bigint[], $72::text::text[], $73::text::text[], $74::text::bigint[], $75::text::text[], $76::text::bigint[],
      $77::text::bigint[], $78::text::bytea[], $79::text::bigint[], $80::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record), (SELECT count(*) FROM update_job), (SELECT count(*) FROM update_usage), (SELECT count(*) FROM
  "public"."job" WHERE id = ANY ($81::bytea[]));

-- statements.py: Statements.changes_sql (update record, update job, update usage, add)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: StoreKey.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($28::text::bytea[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[],
      $35::text::text[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::text[],
      $42::text::bigint[], $43::text::bigint[], $44::text::bytea[], $45::text::bigint[], $46::text::bigint[], $47::text::bigint[],
      $48::text::bigint[], $49::text::bytea[], $50::text::bigint[], $51::text::bigint[], $52::text::bytea[], $53::text::bigint[], $54::text::bigint[],
      $55::text::bigint[], $56::text::text[], $57::text::bigint[], $58::text::bigint[], $59::text::text[], $60::text::bytea[], $61::text::bytea[],
      $62::text::bigint[], $63::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($64::text::bytea[], $65::text::text[], $66::text::text[], $67::text::bigint[], $68::text::bigint[], $69::text::bigint[],
      $70::text::text[], $71::text::bigint[], $72::text::text[], $73::text::text[], $74::text::bigint[], $75::text::text[], $76::text::bigint[],
      $77::text::bigint[], $78::text::bytea[], $79::text::bigint[], $80::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($81::text::bytea[], $82::text::bigint[], $83::text::bigint[], $84::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record), (SELECT count(*) FROM update_job), (SELECT count(*) FROM update_usage), (SELECT count(*) FROM add_);

-- statements.py: Statements.changes_sql (update record, update job, update usage, add, notify)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: StoreKey.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($28::text::bytea[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[],
      $35::text::text[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::text[],
      $42::text::bigint[], $43::text::bigint[], $44::text::bytea[], $45::text::bigint[], $46::text::bigint[], $47::text::bigint[],
      $48::text::bigint[], $49::text::bytea[], $50::text::bigint[], $51::text::bigint[], $52::text::bytea[], $53::text::bigint[], $54::text::bigint[],
      $55::text::bigint[], $56::text::text[], $57::text::bigint[], $58::text::bigint[], $59::text::text[], $60::text::bytea[], $61::text::bytea[],
      $62::text::bigint[], $63::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($64::text::bytea[], $65::text::text[], $66::text::text[], $67::text::bigint[], $68::text::bigint[], $69::text::bigint[],
      $70::text::text[], $71::text::bigint[], $72::text::text[], $73::text::text[], $74::text::bigint[], $75::text::text[], $76::text::bigint[],
      $77::text::bigint[], $78::text::bytea[], $79::text::bigint[], $80::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($81::text::bytea[], $82::text::bigint[], $83::text::bigint[], $84::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record), (SELECT count(*) FROM update_job), (SELECT count(*) FROM update_usage), (SELECT count(*) FROM add_),
  (SELECT count(pg_notify('onejob_public', id)) FROM unnest($85::text[]) AS id);

-- statements.py: Statements.changes_sql (update record, update job, update usage, notify)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Settle.
WITH update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::text[], $6::text::bytea[], $7::text::bytea[],
      $8::text::bytea[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[],
      $15::text::text[], $16::text::text[], $17::text::bigint[], $18::text::bigint[], $19::bytea[], $20::text::text[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bigint[], $25::text::bigint[], $26::text::bytea[], $27::text::bigint[]) AS u("id",
      "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at",
      "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at",
      "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($28::text::bytea[], $29::text::text[], $30::text::text[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[],
      $35::text::text[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::text[],
      $42::text::bigint[], $43::text::bigint[], $44::text::bytea[], $45::text::bigint[], $46::text::bigint[], $47::text::bigint[],
      $48::text::bigint[], $49::text::bytea[], $50::text::bigint[], $51::text::bigint[], $52::text::bytea[], $53::text::bigint[], $54::text::bigint[],
      $55::text::bigint[], $56::text::text[], $57::text::bigint[], $58::text::bigint[], $59::text::text[], $60::text::bytea[], $61::text::bytea[],
      $62::text::bigint[], $63::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($64::text::bytea[], $65::text::text[], $66::text::text[], $67::text::bigint[], $68::text::bigint[], $69::text::bigint[],
      $70::text::text[], $71::text::bigint[], $72::text::text[], $73::text::text[], $74::text::bigint[], $75::text::text[], $76::text::bigint[],
      $77::text::bigint[], $78::text::bytea[], $79::text::bigint[], $80::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_record), (SELECT count(*) FROM update_job), (SELECT count(*) FROM update_usage), (SELECT
  count(pg_notify('onejob_public', id)) FROM unnest($81::text[]) AS id);

-- statements.py: Statements.changes_sql (update stream)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: Evict.
WITH update_stream AS (
    UPDATE "public"."stream" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "client_id" = u."client_id", "last" = u."last", "last_seen" = u."last_seen", "owner" = u."owner",
      "changed_at" = u."changed_at", "expires_at" = u."expires_at", "evicted" = u."evicted", "version" = u."version", "format" = u."format"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::text[], $5::text::bigint[], $6::text::bigint[], $7::text::text[],
      $8::text::bigint[], $9::text::bigint[], $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[]) AS u("id", "tenant",
      "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_stream);

-- statements.py: Statements.changes_sql (update usage)
-- Stores the changes of a batch whose facts are locked; the result is the number of rows of each part. Used by: ConsumeSlot, Reconcile, ReleaseSlot, RenewSlot, ReserveSlot, SetLimits.
WITH update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($1::text::bytea[], $2::text::text[], $3::text::text[], $4::text::bigint[], $5::text::bigint[], $6::text::bigint[], $7::text::text[],
      $8::text::bigint[], $9::text::text[], $10::text::text[], $11::text::bigint[], $12::text::text[], $13::text::bigint[], $14::text::bigint[],
      $15::text::bytea[], $16::text::bigint[], $17::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at", "cost_held", "spent",
      "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was
    RETURNING 1
)
SELECT (SELECT count(*) FROM update_usage);

-- statements.py: Statements.clock_sql
-- Reads the clock, for a batch that needs no facts.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys;

-- statements.py: Statements.greeting_sql
-- Reads the clock and the version of the tables, once per process, in a caller's transaction.
SELECT "public".onejob_now(), (SELECT max(version) FROM "public"."onejob_schema");

-- statements.py: Statements.guarded_changes_sql (create job, add)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Submit.
WITH part_1 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[],
      $10::text::text[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[], $16::text::text[],
      $17::text::bigint[], $18::text::bigint[], $19::text::bytea[], $20::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_2 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($21::text::bytea[], $22::text::bigint[], $23::text::bigint[], $24::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2);

-- statements.py: Statements.guarded_changes_sql (create job, update record, add)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Submit.
WITH part_1 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[],
      $10::text::text[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[], $16::text::text[],
      $17::text::bigint[], $18::text::bigint[], $19::text::bytea[], $20::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_2 AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($21::text::bytea[], $22::text::text[], $23::text::text[], $24::text::text[], $25::text::text[], $26::text::bytea[],
      $27::text::bytea[], $28::text::bytea[], $29::text::bigint[], $30::text::bigint[], $31::text::bigint[], $32::text::bigint[], $33::text::bigint[],
      $34::text::bigint[], $35::text::text[], $36::text::text[], $37::text::bigint[], $38::text::bigint[], $39::bytea[], $40::text::text[],
      $41::text::text[], $42::text::bigint[], $43::text::bigint[], $44::text::bigint[], $45::text::bigint[], $46::text::bytea[], $47::text::bigint[])
      AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
), part_3 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($48::text::bytea[], $49::text::bigint[], $50::text::bigint[], $51::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3);

-- statements.py: Statements.guarded_changes_sql (create record, create job, add)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Submit.
WITH part_1 AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::bytea[], $9::text::bytea[],
      $10::text::bytea[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
      $16::text::bigint[], $17::text::text[], $18::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder",
      "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_2 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($19::text::bytea[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[], $24::text::text[], $25::text::text[],
      $26::text::text[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::bigint[], $31::text::bigint[], $32::text::text[],
      $33::text::bigint[], $34::text::bigint[], $35::text::bytea[], $36::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_3 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($37::text::bytea[], $38::text::bigint[], $39::text::bigint[], $40::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3);

-- statements.py: Statements.guarded_changes_sql (create record, insert job, add)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: CancelAtSite.
WITH part_1 AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::bytea[], $9::text::bytea[],
      $10::text::bytea[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
      $16::text::bigint[], $17::text::text[], $18::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder",
      "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_2 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($19::text::bytea[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[], $24::text::text[], $25::text::text[],
      $26::text::text[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::bigint[], $31::text::bigint[], $32::text::text[],
      $33::text::bigint[], $34::text::bigint[], $35::text::bytea[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[],
      $39::text::bigint[], $40::text::bytea[], $41::text::bigint[], $42::text::bigint[], $43::text::bytea[], $44::text::bigint[], $45::text::bigint[],
      $46::text::bigint[], $47::text::text[], $48::text::bigint[], $49::text::bigint[], $50::text::text[], $51::text::bytea[], $52::text::bytea[],
      $53::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_3 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($54::text::bytea[], $55::text::bigint[], $56::text::bigint[], $57::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3);

-- statements.py: Statements.guarded_changes_sql (create record, insert job, update usage, add)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Submit.
WITH part_1 AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::bytea[], $9::text::bytea[],
      $10::text::bytea[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
      $16::text::bigint[], $17::text::text[], $18::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder",
      "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_2 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($19::text::bytea[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[], $24::text::text[], $25::text::text[],
      $26::text::text[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::bigint[], $31::text::bigint[], $32::text::text[],
      $33::text::bigint[], $34::text::bigint[], $35::text::bytea[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[],
      $39::text::bigint[], $40::text::bytea[], $41::text::bigint[], $42::text::bigint[], $43::text::bytea[], $44::text::bigint[], $45::text::bigint[],
      $46::text::bigint[], $47::text::text[], $48::text::bigint[], $49::text::bigint[], $50::text::text[], $51::text::bytea[], $52::text::bytea[],
      $53::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_3 AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($54::text::bytea[], $55::text::text[], $56::text::text[], $57::text::bigint[], $58::text::bigint[], $59::text::bigint[],
      $60::text::text[], $61::text::bigint[], $62::text::text[], $63::text::text[], $64::text::bigint[], $65::text::text[], $66::text::bigint[],
      $67::text::bigint[], $68::text::bytea[], $69::text::bigint[], $70::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
), part_4 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($71::text::bytea[], $72::text::bigint[], $73::text::bigint[], $74::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3), (SELECT count(*) FROM part_4);

-- statements.py: Statements.guarded_changes_sql (insert job, update usage, add)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Submit.
WITH part_1 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[],
      $10::text::text[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[], $16::text::text[],
      $17::text::bigint[], $18::text::bigint[], $19::text::bytea[], $20::text::bigint[], $21::text::bigint[], $22::text::bigint[],
      $23::text::bigint[], $24::text::bytea[], $25::text::bigint[], $26::text::bigint[], $27::text::bytea[], $28::text::bigint[], $29::text::bigint[],
      $30::text::bigint[], $31::text::text[], $32::text::bigint[], $33::text::bigint[], $34::text::text[], $35::text::bytea[], $36::text::bytea[],
      $37::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_2 AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($38::text::bytea[], $39::text::text[], $40::text::text[], $41::text::bigint[], $42::text::bigint[], $43::text::bigint[],
      $44::text::text[], $45::text::bigint[], $46::text::text[], $47::text::text[], $48::text::bigint[], $49::text::text[], $50::text::bigint[],
      $51::text::bigint[], $52::text::bytea[], $53::text::bigint[], $54::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
), part_3 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($55::text::bytea[], $56::text::bigint[], $57::text::bigint[], $58::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3);

-- statements.py: Statements.guarded_changes_sql (insert memo, update job)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: BeginStep.
WITH part_1 AS (
    INSERT INTO "public"."memo" ("id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at",
      "result", "version", "format")
    SELECT "id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at", "result", "version",
      "format"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::bytea[], $6::text::text[], $7::text::bytea[], $8::text::bigint[], $9::text::bytea[],
      $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::bytea[], $15::text::bigint[], $16::text::bigint[]) AS
      u("id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at", "result", "version",
      "format")
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_2 AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($17::text::bytea[], $18::text::text[], $19::text::text[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[],
      $24::text::text[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::text[],
      $31::text::bigint[], $32::text::bigint[], $33::text::bytea[], $34::text::bigint[], $35::text::bigint[], $36::text::bigint[],
      $37::text::bigint[], $38::text::bytea[], $39::text::bigint[], $40::text::bigint[], $41::text::bytea[], $42::text::bigint[], $43::text::bigint[],
      $44::text::bigint[], $45::text::text[], $46::text::bigint[], $47::text::bigint[], $48::text::text[], $49::text::bytea[], $50::text::bytea[],
      $51::text::bigint[], $52::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2);

-- statements.py: Statements.guarded_changes_sql (insert usage, insert job, add)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Submit.
WITH part_1 AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::bigint[], $7::text::bigint[], $8::text::bigint[], $9::text::text[],
      $10::text::bigint[], $11::text::text[], $12::text::text[], $13::text::bigint[], $14::text::text[], $15::text::bigint[], $16::text::bigint[],
      $17::text::bytea[], $18::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes",
      "hours", "counted_at", "reservations", "version", "format", "limits", "due_at")
    WHERE "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_2 AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM unnest($19::text::bytea[], $20::text::text[], $21::text::text[], $22::text::text[], $23::text::text[], $24::text::text[], $25::text::text[],
      $26::text::text[], $27::text::bigint[], $28::text::bigint[], $29::text::bigint[], $30::text::bigint[], $31::text::bigint[], $32::text::text[],
      $33::text::bigint[], $34::text::bigint[], $35::text::bytea[], $36::text::bigint[], $37::text::bigint[], $38::text::bigint[],
      $39::text::bigint[], $40::text::bytea[], $41::text::bigint[], $42::text::bigint[], $43::text::bytea[], $44::text::bigint[], $45::text::bigint[],
      $46::text::bigint[], $47::text::text[], $48::text::bigint[], $49::text::bigint[], $50::text::text[], $51::text::bytea[], $52::text::bytea[],
      $53::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_3 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($54::text::bytea[], $55::text::bigint[], $56::text::bigint[], $57::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3);

-- statements.py: Statements.guarded_changes_sql (update job)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Extend.
WITH part_1 AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[],
      $10::text::text[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[], $16::text::text[],
      $17::text::bigint[], $18::text::bigint[], $19::text::bytea[], $20::text::bigint[], $21::text::bigint[], $22::text::bigint[],
      $23::text::bigint[], $24::text::bytea[], $25::text::bigint[], $26::text::bigint[], $27::text::bytea[], $28::text::bigint[], $29::text::bigint[],
      $30::text::bigint[], $31::text::text[], $32::text::bigint[], $33::text::bigint[], $34::text::text[], $35::text::bytea[], $36::text::bytea[],
      $37::text::bigint[], $38::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1);

-- statements.py: Statements.guarded_changes_sql (update job, add)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Cancel, Extend, Finish.
WITH part_1 AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[],
      $10::text::text[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[], $16::text::text[],
      $17::text::bigint[], $18::text::bigint[], $19::text::bytea[], $20::text::bigint[], $21::text::bigint[], $22::text::bigint[],
      $23::text::bigint[], $24::text::bytea[], $25::text::bigint[], $26::text::bigint[], $27::text::bytea[], $28::text::bigint[], $29::text::bigint[],
      $30::text::bigint[], $31::text::text[], $32::text::bigint[], $33::text::bigint[], $34::text::text[], $35::text::bytea[], $36::text::bytea[],
      $37::text::bigint[], $38::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
), part_2 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($39::text::bytea[], $40::text::bigint[], $41::text::bigint[], $42::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2);

-- statements.py: Statements.guarded_changes_sql (update job, add, trim)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Extend.
WITH part_1 AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[],
      $10::text::text[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[], $16::text::text[],
      $17::text::bigint[], $18::text::bigint[], $19::text::bytea[], $20::text::bigint[], $21::text::bigint[], $22::text::bigint[],
      $23::text::bigint[], $24::text::bytea[], $25::text::bigint[], $26::text::bigint[], $27::text::bytea[], $28::text::bigint[], $29::text::bigint[],
      $30::text::bigint[], $31::text::text[], $32::text::bigint[], $33::text::bigint[], $34::text::text[], $35::text::bytea[], $36::text::bytea[],
      $37::text::bigint[], $38::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
), part_2 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($39::text::bytea[], $40::text::bigint[], $41::text::bigint[], $42::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
), part_3 AS (
    DELETE FROM "public"."attachment" AS t
    USING unnest($43::text::bytea[], $44::text::bigint[], $45::text::bigint[]) AS u("job_id", "kind", "index")
    WHERE t."job_id" = u."job_id" AND t."kind" = u."kind" AND t."index" = u."index" AND EXISTS (SELECT FROM part_1)
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3);

-- statements.py: Statements.guarded_changes_sql (update job, update usage, add)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Cancel, Finish.
WITH part_1 AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[],
      $10::text::text[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[], $16::text::text[],
      $17::text::bigint[], $18::text::bigint[], $19::text::bytea[], $20::text::bigint[], $21::text::bigint[], $22::text::bigint[],
      $23::text::bigint[], $24::text::bytea[], $25::text::bigint[], $26::text::bigint[], $27::text::bytea[], $28::text::bigint[], $29::text::bigint[],
      $30::text::bigint[], $31::text::text[], $32::text::bigint[], $33::text::bigint[], $34::text::text[], $35::text::bytea[], $36::text::bytea[],
      $37::text::bigint[], $38::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
), part_2 AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($39::text::bytea[], $40::text::text[], $41::text::text[], $42::text::bigint[], $43::text::bigint[], $44::text::bigint[],
      $45::text::text[], $46::text::bigint[], $47::text::text[], $48::text::text[], $49::text::bigint[], $50::text::text[], $51::text::bigint[],
      $52::text::bigint[], $53::text::bytea[], $54::text::bigint[], $55::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
), part_3 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($56::text::bytea[], $57::text::bigint[], $58::text::bigint[], $59::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3);

-- statements.py: Statements.guarded_changes_sql (update memo)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: BeginStep, FinishStep.
WITH part_1 AS (
    UPDATE "public"."memo" AS t
    SET "tenant" = u."tenant", "job_id" = u."job_id", "name" = u."name", "fingerprint" = u."fingerprint", "token" = u."token", "holder" = u."holder",
      "began_at" = u."began_at", "changed_at" = u."changed_at", "runs" = u."runs", "ended_at" = u."ended_at", "result" = u."result", "version" =
      u."version", "format" = u."format"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::bytea[], $6::text::text[], $7::text::bytea[], $8::text::bigint[], $9::text::bytea[],
      $10::text::bigint[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::bytea[], $15::text::bigint[], $16::text::bigint[],
      $17::text::bigint[]) AS u("id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at",
      "result", "version", "format", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1);

-- statements.py: Statements.guarded_changes_sql (update record, notify)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Settle.
WITH part_1 AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::bytea[], $9::text::bytea[],
      $10::text::bytea[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
      $16::text::bigint[], $17::text::text[], $18::text::text[], $19::text::bigint[], $20::text::bigint[], $21::bytea[], $22::text::text[],
      $23::text::text[], $24::text::bigint[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bytea[], $29::text::bigint[])
      AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (
    SELECT count(pg_notify('onejob_public', id))
    FROM unnest($30::text[]) AS id
    WHERE EXISTS (SELECT FROM part_1)
);

-- statements.py: Statements.guarded_changes_sql (update record, update job)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Submit.
WITH part_1 AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::bytea[], $9::text::bytea[],
      $10::text::bytea[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
      $16::text::bigint[], $17::text::text[], $18::text::text[], $19::text::bigint[], $20::text::bigint[], $21::bytea[], $22::text::text[],
      $23::text::text[], $24::text::bigint[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bytea[], $29::text::bigint[])
      AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
), part_2 AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($30::text::bytea[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[], $35::text::text[], $36::text::text[],
      $37::text::text[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::bigint[], $42::text::bigint[], $43::text::text[],
      $44::text::bigint[], $45::text::bigint[], $46::text::bytea[], $47::text::bigint[], $48::text::bigint[], $49::text::bigint[],
      $50::text::bigint[], $51::text::bytea[], $52::text::bigint[], $53::text::bigint[], $54::text::bytea[], $55::text::bigint[], $56::text::bigint[],
      $57::text::bigint[], $58::text::text[], $59::text::bigint[], $60::text::bigint[], $61::text::text[], $62::text::bytea[], $63::text::bytea[],
      $64::text::bigint[], $65::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2);

-- statements.py: Statements.guarded_changes_sql (update record, update job, add)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Submit.
WITH part_1 AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::bytea[], $9::text::bytea[],
      $10::text::bytea[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
      $16::text::bigint[], $17::text::text[], $18::text::text[], $19::text::bigint[], $20::text::bigint[], $21::bytea[], $22::text::text[],
      $23::text::text[], $24::text::bigint[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bytea[], $29::text::bigint[])
      AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
), part_2 AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($30::text::bytea[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[], $35::text::text[], $36::text::text[],
      $37::text::text[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::bigint[], $42::text::bigint[], $43::text::text[],
      $44::text::bigint[], $45::text::bigint[], $46::text::bytea[], $47::text::bigint[], $48::text::bigint[], $49::text::bigint[],
      $50::text::bigint[], $51::text::bytea[], $52::text::bigint[], $53::text::bigint[], $54::text::bytea[], $55::text::bigint[], $56::text::bigint[],
      $57::text::bigint[], $58::text::text[], $59::text::bigint[], $60::text::bigint[], $61::text::text[], $62::text::bytea[], $63::text::bytea[],
      $64::text::bigint[], $65::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
), part_3 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($66::text::bytea[], $67::text::bigint[], $68::text::bigint[], $69::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3);

-- statements.py: Statements.guarded_changes_sql (update record, update job, add, notify)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Settle, Submit.
WITH part_1 AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::bytea[], $9::text::bytea[],
      $10::text::bytea[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
      $16::text::bigint[], $17::text::text[], $18::text::text[], $19::text::bigint[], $20::text::bigint[], $21::bytea[], $22::text::text[],
      $23::text::text[], $24::text::bigint[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bytea[], $29::text::bigint[])
      AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
), part_2 AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($30::text::bytea[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[], $35::text::text[], $36::text::text[],
      $37::text::text[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::bigint[], $42::text::bigint[], $43::text::text[],
      $44::text::bigint[], $45::text::bigint[], $46::text::bytea[], $47::text::bigint[], $48::text::bigint[], $49::text::bigint[],
      $50::text::bigint[], $51::text::bytea[], $52::text::bigint[], $53::text::bigint[], $54::text::bytea[], $55::text::bigint[], $56::text::bigint[],
      $57::text::bigint[], $58::text::text[], $59::text::bigint[], $60::text::bigint[], $61::text::text[], $62::text::bytea[], $63::text::bytea[],
      $64::text::bigint[], $65::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
), part_3 AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($66::text::bytea[], $67::text::bigint[], $68::text::bigint[], $69::bytea[]) AS u("job_id", "kind", "index", "data")
    WHERE EXISTS (SELECT FROM part_1)
    ON CONFLICT DO NOTHING
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3), (
    SELECT count(pg_notify('onejob_public', id))
    FROM unnest($70::text[]) AS id
    WHERE EXISTS (SELECT FROM part_1)
);

-- statements.py: Statements.guarded_changes_sql (update record, update job, notify)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Settle, Submit.
WITH part_1 AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::bytea[], $9::text::bytea[],
      $10::text::bytea[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
      $16::text::bigint[], $17::text::text[], $18::text::text[], $19::text::bigint[], $20::text::bigint[], $21::bytea[], $22::text::text[],
      $23::text::text[], $24::text::bigint[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bytea[], $29::text::bigint[])
      AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
), part_2 AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($30::text::bytea[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[], $35::text::text[], $36::text::text[],
      $37::text::text[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::bigint[], $42::text::bigint[], $43::text::text[],
      $44::text::bigint[], $45::text::bigint[], $46::text::bytea[], $47::text::bigint[], $48::text::bigint[], $49::text::bigint[],
      $50::text::bigint[], $51::text::bytea[], $52::text::bigint[], $53::text::bigint[], $54::text::bytea[], $55::text::bigint[], $56::text::bigint[],
      $57::text::bigint[], $58::text::text[], $59::text::bigint[], $60::text::bigint[], $61::text::text[], $62::text::bytea[], $63::text::bytea[],
      $64::text::bigint[], $65::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (
    SELECT count(pg_notify('onejob_public', id))
    FROM unnest($66::text[]) AS id
    WHERE EXISTS (SELECT FROM part_1)
);

-- statements.py: Statements.guarded_changes_sql (update record, update job, update usage, notify)
-- Stores the changes of one command in a caller's transaction, if its session keeps the promise. Used by: Settle.
WITH part_1 AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM unnest($3::text::bytea[], $4::text::text[], $5::text::text[], $6::text::text[], $7::text::text[], $8::text::bytea[], $9::text::bytea[],
      $10::text::bytea[], $11::text::bigint[], $12::text::bigint[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[],
      $16::text::bigint[], $17::text::text[], $18::text::text[], $19::text::bigint[], $20::text::bigint[], $21::bytea[], $22::text::text[],
      $23::text::text[], $24::text::bigint[], $25::text::bigint[], $26::text::bigint[], $27::text::bigint[], $28::text::bytea[], $29::text::bigint[])
      AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND "public".onejob_session_fault(7) = '' AND "public".onejob_is_absent($1::bytea, $2::bytea)
    RETURNING 1
), part_2 AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM unnest($30::text::bytea[], $31::text::text[], $32::text::text[], $33::text::text[], $34::text::text[], $35::text::text[], $36::text::text[],
      $37::text::text[], $38::text::bigint[], $39::text::bigint[], $40::text::bigint[], $41::text::bigint[], $42::text::bigint[], $43::text::text[],
      $44::text::bigint[], $45::text::bigint[], $46::text::bytea[], $47::text::bigint[], $48::text::bigint[], $49::text::bigint[],
      $50::text::bigint[], $51::text::bytea[], $52::text::bigint[], $53::text::bigint[], $54::text::bytea[], $55::text::bigint[], $56::text::bigint[],
      $57::text::bigint[], $58::text::text[], $59::text::bigint[], $60::text::bigint[], $61::text::text[], $62::text::bytea[], $63::text::bytea[],
      $64::text::bigint[], $65::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
), part_3 AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM unnest($66::text::bytea[], $67::text::text[], $68::text::text[], $69::text::bigint[], $70::text::bigint[], $71::text::bigint[],
      $72::text::text[], $73::text::bigint[], $74::text::text[], $75::text::text[], $76::text::bigint[], $77::text::text[], $78::text::bigint[],
      $79::text::bigint[], $80::text::bytea[], $81::text::bigint[], $82::text::bigint[]) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND EXISTS (SELECT FROM part_1)
    RETURNING 1
)
SELECT "public".onejob_session_fault(7), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off',
  'local'), (SELECT count(*) FROM part_1), (SELECT count(*) FROM part_2), (SELECT count(*) FROM part_3), (
    SELECT count(pg_notify('onejob_public', id))
    FROM unnest($83::text[]) AS id
    WHERE EXISTS (SELECT FROM part_1)
);

-- statements.py: Statements.input_sql
-- Reads the input of the first job of a key, to name the difference.
SELECT j.type, a.data
FROM "public"."job" AS j
JOIN "public"."attachment" AS a ON a.job_id = j.id AND a.kind = 0 AND a.index = 0
WHERE j.id = $1::bytea AND j.tenant = $2::text;

-- statements.py: Statements.insert_settings_sql
-- Creates the settings of a new ledger in a caller's transaction.
INSERT INTO "public"."policy" (id, tenant, name, body, changed_at, version, format)
SELECT $1::bytea, '', 'settings', $2::bytea, "public".onejob_now()::bigint, 1, 1
WHERE NOT EXISTS (SELECT FROM "public"."record")
ON CONFLICT DO NOTHING
RETURNING 1;

-- statements.py: Statements.inserts_sql (arrays; absent usage, policy; create job, add; has preconditions)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Submit.
WITH create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($8::text::bytea[], $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[], $13::text::text[], $14::text::text[],
      $15::text::text[], $16::text::bigint[], $17::text::bigint[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[], $21::text::text[],
      $22::text::bigint[], $23::text::bigint[], $24::text::bytea[], $25::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($26::text::bytea[], $27::text::bigint[], $28::text::bigint[], $29::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_) = 0 OR EXISTS (SELECT FROM "public"."usage" WHERE id = ANY
  ($3::bytea[])) OR EXISTS (SELECT FROM "public"."policy" WHERE id = ANY ($4::bytea[])) OR EXISTS (
    SELECT
    FROM unnest($5::bytea[], $6::text[], $7::bytea[]) AS s (id, tenant, body)
    WHERE NOT EXISTS (
        SELECT
        FROM "public"."policy" AS p
        WHERE p.id = s.id AND p.tenant = s.tenant AND p.body = s.body AND (p.expires_at <= 0 OR p.expires_at >= $1::bigint)
    )
) THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint
  THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (arrays; absent usage, policy; create record, create job, add)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Submit.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($5::text::bytea[], $6::text::text[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::bytea[], $11::text::bytea[],
      $12::text::bytea[], $13::text::bigint[], $14::text::bigint[], $15::text::bigint[], $16::text::bigint[], $17::text::bigint[],
      $18::text::bigint[], $19::text::text[], $20::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder",
      "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($21::text::bytea[], $22::text::text[], $23::text::text[], $24::text::text[], $25::text::text[], $26::text::text[], $27::text::text[],
      $28::text::text[], $29::text::bigint[], $30::text::bigint[], $31::text::bigint[], $32::text::bigint[], $33::text::bigint[], $34::text::text[],
      $35::text::bigint[], $36::text::bigint[], $37::text::bytea[], $38::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($39::text::bytea[], $40::text::bigint[], $41::text::bigint[], $42::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM create_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_) = 0 OR EXISTS (SELECT FROM
  "public"."usage" WHERE id = ANY ($3::bytea[])) OR EXISTS (SELECT FROM "public"."policy" WHERE id = ANY ($4::bytea[])) THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (arrays; absent usage, policy; create record, create job, add; has preconditions)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Reserve, Submit.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($8::text::bytea[], $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[], $13::text::bytea[], $14::text::bytea[],
      $15::text::bytea[], $16::text::bigint[], $17::text::bigint[], $18::text::bigint[], $19::text::bigint[], $20::text::bigint[],
      $21::text::bigint[], $22::text::text[], $23::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder",
      "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($24::text::bytea[], $25::text::text[], $26::text::text[], $27::text::text[], $28::text::text[], $29::text::text[], $30::text::text[],
      $31::text::text[], $32::text::bigint[], $33::text::bigint[], $34::text::bigint[], $35::text::bigint[], $36::text::bigint[], $37::text::text[],
      $38::text::bigint[], $39::text::bigint[], $40::text::bytea[], $41::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($42::text::bytea[], $43::text::bigint[], $44::text::bigint[], $45::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM create_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_) = 0 OR EXISTS (SELECT FROM
  "public"."usage" WHERE id = ANY ($3::bytea[])) OR EXISTS (SELECT FROM "public"."policy" WHERE id = ANY ($4::bytea[])) OR EXISTS (
    SELECT
    FROM unnest($5::bytea[], $6::text[], $7::bytea[]) AS s (id, tenant, body)
    WHERE NOT EXISTS (
        SELECT
        FROM "public"."policy" AS p
        WHERE p.id = s.id AND p.tenant = s.tenant AND p.body = s.body AND (p.expires_at <= 0 OR p.expires_at >= $1::bigint)
    )
) THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint
  THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (arrays; create job, add; has preconditions)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Submit.
WITH create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($6::text::bytea[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[], $11::text::text[], $12::text::text[],
      $13::text::text[], $14::text::bigint[], $15::text::bigint[], $16::text::bigint[], $17::text::bigint[], $18::text::bigint[], $19::text::text[],
      $20::text::bigint[], $21::text::bigint[], $22::text::bytea[], $23::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($24::text::bytea[], $25::text::bigint[], $26::text::bigint[], $27::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_) = 0 OR EXISTS (
    SELECT
    FROM unnest($3::bytea[], $4::text[], $5::bytea[]) AS s (id, tenant, body)
    WHERE NOT EXISTS (
        SELECT
        FROM "public"."policy" AS p
        WHERE p.id = s.id AND p.tenant = s.tenant AND p.body = s.body AND (p.expires_at <= 0 OR p.expires_at >= $1::bigint)
    )
) THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint
  THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (arrays; create record, create job, add; has preconditions)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Reserve, Submit.
WITH create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM unnest($6::text::bytea[], $7::text::text[], $8::text::text[], $9::text::text[], $10::text::text[], $11::text::bytea[], $12::text::bytea[],
      $13::text::bytea[], $14::text::bigint[], $15::text::bigint[], $16::text::bigint[], $17::text::bigint[], $18::text::bigint[],
      $19::text::bigint[], $20::text::text[], $21::text::text[]) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder",
      "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM unnest($22::text::bytea[], $23::text::text[], $24::text::text[], $25::text::text[], $26::text::text[], $27::text::text[], $28::text::text[],
      $29::text::text[], $30::text::bigint[], $31::text::bigint[], $32::text::bigint[], $33::text::bigint[], $34::text::bigint[], $35::text::text[],
      $36::text::bigint[], $37::text::bigint[], $38::text::bytea[], $39::text::bigint[]) AS u("id", "tenant", "type", "state", "scope", "key",
      "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at")
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM unnest($40::text::bytea[], $41::text::bigint[], $42::text::bigint[], $43::bytea[]) AS u("job_id", "kind", "index", "data")
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM create_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_) = 0 OR EXISTS (
    SELECT
    FROM unnest($3::bytea[], $4::text[], $5::bytea[]) AS s (id, tenant, body)
    WHERE NOT EXISTS (
        SELECT
        FROM "public"."policy" AS p
        WHERE p.id = s.id AND p.tenant = s.tenant AND p.body = s.body AND (p.expires_at <= 0 OR p.expires_at >= $1::bigint)
    )
) THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint
  THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; absent policy; create record, insert job, insert usage, add)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Submit.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    VALUES ($4::bytea, $5::text, $6::text, $7::text, $8::text, $9::bytea, $10::bytea, $11::bytea, $12::bigint, $13::bigint, $14::bigint, $15::bigint,
      $16::bigint, $17::bigint, $18::text, $19::text, 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea) /* ... n rows */
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    VALUES ($20::bytea, $21::text, $22::text, $23::text, $24::text, $25::text, $26::text, $27::text, $28::bigint, $29::bigint, $30::bigint,
      $31::bigint, $32::bigint, $33::text, $34::bigint, $35::bigint, $36::bytea, $37::bigint, $38::bigint, $39::bigint, $40::bigint, $41::bytea,
      $42::bigint, $43::bigint, $44::bytea, $45::bigint, $46::bigint, $47::bigint, $48::text, $49::bigint, $50::bigint, $51::text, $52::bytea,
      $53::bytea, $54::bigint) /* ... n rows */
    RETURNING 1
), insert_usage AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    VALUES ($55::bytea, $56::text, $57::text, $58::bigint, $59::bigint, $60::bigint, $61::text, $62::bigint, $63::text, $64::text, $65::bigint,
      $66::text, $67::bigint, $68::bigint, $69::bytea, $70::bigint) /* ... n rows */
    RETURNING 1
), insert_attachment AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    VALUES ($71::bytea, $72::bigint, $73::bigint, $74::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_usage) + (SELECT count(*)
  FROM insert_attachment) = 0 OR EXISTS (SELECT FROM "public"."policy" WHERE id = ANY ($3::bytea[])) THEN "public".onejob_stamp($1::bigint,
  $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; absent usage, policy; create job, add)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Submit.
WITH insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    VALUES ($5::bytea, $6::text, $7::text, $8::text, $9::text, $10::text, $11::text, $12::text, $13::bigint, $14::bigint, $15::bigint, $16::bigint,
      $17::bigint, $18::text, $19::bigint, $20::bigint, $21::bytea, $22::bigint, 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint,
      ''::bytea, 0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint) /* ... n rows */
    RETURNING 1
), insert_attachment AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    VALUES ($23::bytea, $24::bigint, $25::bigint, $26::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_attachment) = 0 OR EXISTS (SELECT FROM "public"."usage" WHERE id =
  ANY ($3::bytea[])) OR EXISTS (SELECT FROM "public"."policy" WHERE id = ANY ($4::bytea[])) THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1,
  "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; absent usage, policy; create job, add; has preconditions)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Submit.
WITH insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    VALUES ($8::bytea, $9::text, $10::text, $11::text, $12::text, $13::text, $14::text, $15::text, $16::bigint, $17::bigint, $18::bigint, $19::bigint,
      $20::bigint, $21::text, $22::bigint, $23::bigint, $24::bytea, $25::bigint, 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint,
      ''::bytea, 0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint) /* ... n rows */
    RETURNING 1
), insert_attachment AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    VALUES ($26::bytea, $27::bigint, $28::bigint, $29::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_attachment) = 0 OR EXISTS (SELECT FROM "public"."usage" WHERE id =
  ANY ($3::bytea[])) OR EXISTS (SELECT FROM "public"."policy" WHERE id = ANY ($4::bytea[])) OR EXISTS (
    SELECT
    FROM unnest($5::bytea[], $6::text[], $7::bytea[]) AS s (id, tenant, body)
    WHERE NOT EXISTS (
        SELECT
        FROM "public"."policy" AS p
        WHERE p.id = s.id AND p.tenant = s.tenant AND p.body = s.body AND (p.expires_at <= 0 OR p.expires_at >= $1::bigint)
    )
) THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint
  THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; absent usage, policy; create record, create job, add)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Reserve, Submit.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    VALUES ($5::bytea, $6::text, $7::text, $8::text, $9::text, $10::bytea, $11::bytea, $12::bytea, $13::bigint, $14::bigint, $15::bigint, $16::bigint,
      $17::bigint, $18::bigint, $19::text, $20::text, 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea) /* ... n rows */
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    VALUES ($21::bytea, $22::text, $23::text, $24::text, $25::text, $26::text, $27::text, $28::text, $29::bigint, $30::bigint, $31::bigint,
      $32::bigint, $33::bigint, $34::text, $35::bigint, $36::bigint, $37::bytea, $38::bigint, 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint,
      0::bigint, ''::bytea, 0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint) /* ... n rows
      */
    RETURNING 1
), insert_attachment AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    VALUES ($39::bytea, $40::bigint, $41::bigint, $42::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_attachment) = 0 OR EXISTS
  (SELECT FROM "public"."usage" WHERE id = ANY ($3::bytea[])) OR EXISTS (SELECT FROM "public"."policy" WHERE id = ANY ($4::bytea[])) THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; absent usage, policy; create record, create job, add; has preconditions)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Reserve, Submit.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    VALUES ($8::bytea, $9::text, $10::text, $11::text, $12::text, $13::bytea, $14::bytea, $15::bytea, $16::bigint, $17::bigint, $18::bigint,
      $19::bigint, $20::bigint, $21::bigint, $22::text, $23::text, 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint,
      0::bigint, 0::bigint, ''::bytea) /* ... n rows */
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    VALUES ($24::bytea, $25::text, $26::text, $27::text, $28::text, $29::text, $30::text, $31::text, $32::bigint, $33::bigint, $34::bigint,
      $35::bigint, $36::bigint, $37::text, $38::bigint, $39::bigint, $40::bytea, $41::bigint, 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint,
      0::bigint, ''::bytea, 0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint) /* ... n rows
      */
    RETURNING 1
), insert_attachment AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    VALUES ($42::bytea, $43::bigint, $44::bigint, $45::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_attachment) = 0 OR EXISTS
  (SELECT FROM "public"."usage" WHERE id = ANY ($3::bytea[])) OR EXISTS (SELECT FROM "public"."policy" WHERE id = ANY ($4::bytea[])) OR EXISTS (
    SELECT
    FROM unnest($5::bytea[], $6::text[], $7::bytea[]) AS s (id, tenant, body)
    WHERE NOT EXISTS (
        SELECT
        FROM "public"."policy" AS p
        WHERE p.id = s.id AND p.tenant = s.tenant AND p.body = s.body AND (p.expires_at <= 0 OR p.expires_at >= $1::bigint)
    )
) THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint
  THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; absent usage, policy; create record, insert job, add)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Submit.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    VALUES ($5::bytea, $6::text, $7::text, $8::text, $9::text, $10::bytea, $11::bytea, $12::bytea, $13::bigint, $14::bigint, $15::bigint, $16::bigint,
      $17::bigint, $18::bigint, $19::text, $20::text, 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea) /* ... n rows */
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    VALUES ($21::bytea, $22::text, $23::text, $24::text, $25::text, $26::text, $27::text, $28::text, $29::bigint, $30::bigint, $31::bigint,
      $32::bigint, $33::bigint, $34::text, $35::bigint, $36::bigint, $37::bytea, $38::bigint, $39::bigint, $40::bigint, $41::bigint, $42::bytea,
      $43::bigint, $44::bigint, $45::bytea, $46::bigint, $47::bigint, $48::bigint, $49::text, $50::bigint, $51::bigint, $52::text, $53::bytea,
      $54::bytea, $55::bigint) /* ... n rows */
    RETURNING 1
), insert_attachment AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    VALUES ($56::bytea, $57::bigint, $58::bigint, $59::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_attachment) = 0 OR EXISTS
  (SELECT FROM "public"."usage" WHERE id = ANY ($3::bytea[])) OR EXISTS (SELECT FROM "public"."policy" WHERE id = ANY ($4::bytea[])) THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; create job, add)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Submit.
WITH insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    VALUES ($3::bytea, $4::text, $5::text, $6::text, $7::text, $8::text, $9::text, $10::text, $11::bigint, $12::bigint, $13::bigint, $14::bigint,
      $15::bigint, $16::text, $17::bigint, $18::bigint, $19::bytea, $20::bigint, 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint,
      ''::bytea, 0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint) /* ... n rows */
    RETURNING 1
), insert_attachment AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    VALUES ($21::bytea, $22::bigint, $23::bigint, $24::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_attachment) = 0 THEN "public".onejob_stamp($1::bigint, $2::bigint,
  0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; create job, add; has preconditions)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Submit.
WITH insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    VALUES ($6::bytea, $7::text, $8::text, $9::text, $10::text, $11::text, $12::text, $13::text, $14::bigint, $15::bigint, $16::bigint, $17::bigint,
      $18::bigint, $19::text, $20::bigint, $21::bigint, $22::bytea, $23::bigint, 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint,
      ''::bytea, 0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint) /* ... n rows */
    RETURNING 1
), insert_attachment AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    VALUES ($24::bytea, $25::bigint, $26::bigint, $27::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_attachment) = 0 OR EXISTS (
    SELECT
    FROM unnest($3::bytea[], $4::text[], $5::bytea[]) AS s (id, tenant, body)
    WHERE NOT EXISTS (
        SELECT
        FROM "public"."policy" AS p
        WHERE p.id = s.id AND p.tenant = s.tenant AND p.body = s.body AND (p.expires_at <= 0 OR p.expires_at >= $1::bigint)
    )
) THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint
  THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; create record)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Reserve.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    VALUES ($3::bytea, $4::text, $5::text, $6::text, $7::text, $8::bytea, $9::bytea, $10::bytea, $11::bigint, $12::bigint, $13::bigint, $14::bigint,
      $15::bigint, $16::bigint, $17::text, $18::text, 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_record) = 0 THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN
  "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0,
  "public".onejob_now()) END, current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; create record, create job, add)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Reserve, Submit.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    VALUES ($3::bytea, $4::text, $5::text, $6::text, $7::text, $8::bytea, $9::bytea, $10::bytea, $11::bigint, $12::bigint, $13::bigint, $14::bigint,
      $15::bigint, $16::bigint, $17::text, $18::text, 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea) /* ... n rows */
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    VALUES ($19::bytea, $20::text, $21::text, $22::text, $23::text, $24::text, $25::text, $26::text, $27::bigint, $28::bigint, $29::bigint,
      $30::bigint, $31::bigint, $32::text, $33::bigint, $34::bigint, $35::bytea, $36::bigint, 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint,
      0::bigint, ''::bytea, 0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint) /* ... n rows
      */
    RETURNING 1
), insert_attachment AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    VALUES ($37::bytea, $38::bigint, $39::bigint, $40::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_attachment) = 0 THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.inserts_sql (rows written out; create record, create job, add; has preconditions)
-- Inserts a batch of new facts in one statement that commits by itself. Used by: Reserve, Submit.
WITH insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    VALUES ($6::bytea, $7::text, $8::text, $9::text, $10::text, $11::bytea, $12::bytea, $13::bytea, $14::bigint, $15::bigint, $16::bigint,
      $17::bigint, $18::bigint, $19::bigint, $20::text, $21::text, 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint,
      0::bigint, 0::bigint, ''::bytea) /* ... n rows */
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    VALUES ($22::bytea, $23::text, $24::text, $25::text, $26::text, $27::text, $28::text, $29::text, $30::bigint, $31::bigint, $32::bigint,
      $33::bigint, $34::bigint, $35::text, $36::bigint, $37::bigint, $38::bytea, $39::bigint, 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint,
      0::bigint, ''::bytea, 0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint) /* ... n rows
      */
    RETURNING 1
), insert_attachment AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    VALUES ($40::bytea, $41::bigint, $42::bigint, $43::bytea) /* ... n rows */
    RETURNING 1
)
SELECT CASE WHEN (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_attachment) = 0 OR EXISTS (
    SELECT
    FROM unnest($3::bytea[], $4::text[], $5::bytea[]) AS s (id, tenant, body)
    WHERE NOT EXISTS (
        SELECT
        FROM "public"."policy" AS p
        WHERE p.id = s.id AND p.tenant = s.tenant AND p.body = s.body AND (p.expires_at <= 0 OR p.expires_at >= $1::bigint)
    )
) THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint
  THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.limits_sql
-- Locks the limits of a user in a caller's transaction.
SELECT "public".onejob_now(), "public".onejob_has_settings($5::bytea, $6::bytea), u."id", u."tenant", u."user", u."live", u."changed_at",
  u."cost_held", u."spent", u."spent_at", u."minutes", u."hours", u."counted_at", u."reservations", u."version", u."format", u."limits", u."due_at",
  p."id", p."tenant", p."name", p."body", p."changed_at", p."version", p."format", p."expires_at"
FROM (
    SELECT pg_catalog.pg_advisory_xact_lock_shared(1869507188, $2::integer), pg_catalog.pg_advisory_xact_lock_shared(1869507189, $3::integer)
) AS one
LEFT JOIN LATERAL (
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = $1::bytea
    FOR UPDATE
) AS u ON true
LEFT JOIN LATERAL (
    SELECT "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = $4::bytea AND u.version IS DISTINCT
    FROM -1
    FOR SHARE
) AS p ON true;

-- statements.py: Statements.load_sql (job, FOR UPDATE)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (job, FOR UPDATE, announces)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (
    SELECT pg_catalog.pg_advisory_xact_lock_shared(1869507188, $2::integer), pg_catalog.pg_advisory_xact_lock_shared(1869507189, $3::integer)
) AS one
LEFT JOIN (
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (job, no lock)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
) AS fact ON true;

-- statements.py: Statements.load_sql (memo, FOR UPDATE)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at", "result", "version",
      "format"
    FROM "public"."memo"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (memo, FOR UPDATE, announces)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (
    SELECT pg_catalog.pg_advisory_xact_lock_shared(1869507188, $2::integer), pg_catalog.pg_advisory_xact_lock_shared(1869507189, $3::integer)
) AS one
LEFT JOIN (
    SELECT "id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at", "result", "version",
      "format"
    FROM "public"."memo"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (memo, no lock)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at", "result", "version",
      "format"
    FROM "public"."memo"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
) AS fact ON true;

-- statements.py: Statements.load_sql (policy, FOR SHARE)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR SHARE
) AS fact ON true;

-- statements.py: Statements.load_sql (policy, FOR SHARE, announces)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (
    SELECT pg_catalog.pg_advisory_xact_lock_shared(1869507188, $2::integer), pg_catalog.pg_advisory_xact_lock_shared(1869507189, $3::integer)
) AS one
LEFT JOIN (
    SELECT "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR SHARE
) AS fact ON true;

-- statements.py: Statements.load_sql (policy, FOR UPDATE)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (policy, FOR UPDATE, announces)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (
    SELECT pg_catalog.pg_advisory_xact_lock_shared(1869507188, $2::integer), pg_catalog.pg_advisory_xact_lock_shared(1869507189, $3::integer)
) AS one
LEFT JOIN (
    SELECT "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (policy, no lock)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
) AS fact ON true;

-- statements.py: Statements.load_sql (record, FOR UPDATE)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM "public"."record"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (record, FOR UPDATE, announces)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (
    SELECT pg_catalog.pg_advisory_xact_lock_shared(1869507188, $2::integer), pg_catalog.pg_advisory_xact_lock_shared(1869507189, $3::integer)
) AS one
LEFT JOIN (
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM "public"."record"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (record, no lock)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM "public"."record"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
) AS fact ON true;

-- statements.py: Statements.load_sql (stream, FOR UPDATE)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM "public"."stream"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (stream, FOR UPDATE, announces)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (
    SELECT pg_catalog.pg_advisory_xact_lock_shared(1869507188, $2::integer), pg_catalog.pg_advisory_xact_lock_shared(1869507189, $3::integer)
) AS one
LEFT JOIN (
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM "public"."stream"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (stream, no lock)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM "public"."stream"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
) AS fact ON true;

-- statements.py: Statements.load_sql (usage, FOR UPDATE)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (usage, FOR UPDATE, announces)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (
    SELECT pg_catalog.pg_advisory_xact_lock_shared(1869507188, $2::integer), pg_catalog.pg_advisory_xact_lock_shared(1869507189, $3::integer)
) AS one
LEFT JOIN (
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
    FOR UPDATE
) AS fact ON true;

-- statements.py: Statements.load_sql (usage, no lock)
-- Loads facts of one kind, and the clock.
SELECT "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, fact.*
FROM (VALUES (1)) AS one
LEFT JOIN (
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = ANY ($1::bytea[])
    ORDER BY id
) AS fact ON true;

-- statements.py: Statements.settings_sql
-- Reads the settings of the ledger in a caller's transaction.
SELECT body
FROM "public"."policy"
WHERE id = $1::bytea;

-- statements.py: Statements.snapshot_sql (job)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: Claim, Extend, Purge, Release, Start, Submit.
WITH found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($1::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea,
  NULL::bigint
UNION ALL
SELECT 1, NULL, NULL, 5, xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until",
  "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until",
  "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
FROM found_job;

-- statements.py: Statements.snapshot_sql (job, memo)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: BeginStep, FinishStep, Purge.
WITH found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($1::bytea[])
), found_memo AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at",
      "result", "version", "format"
    FROM "public"."memo"
    WHERE id = ANY ($2::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bytea, NULL::text, NULL::bytea, NULL::text, NULL::bytea, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint
UNION ALL
SELECT 1, NULL, NULL, 5, xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until",
  "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until",
  "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos",
  NULL::bytea, NULL::text, NULL::bytea, NULL::text, NULL::bytea, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bytea, NULL::bigint, NULL::bigint
FROM found_job
UNION ALL
SELECT 5, NULL, NULL, 40, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, "id", "tenant", "job_id", "name", "fingerprint", "token", "holder",
  "began_at", "changed_at", "runs", "ended_at", "result", "version", "format"
FROM found_memo;

-- statements.py: Statements.snapshot_sql (job, policy)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: Submit.
WITH found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($1::bytea[])
), found_policy AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($2::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
UNION ALL
SELECT 1, NULL, NULL, 5, xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until",
  "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until",
  "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos",
  NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_job
UNION ALL
SELECT 4, NULL, NULL, 40, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, "id", "tenant", "name", "body", "changed_at", "version", "format",
  "expires_at"
FROM found_policy;

-- statements.py: Statements.snapshot_sql (job, usage, follows usage)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: Cancel, Finish, Maintain, ReportDelivery, Resolve.
WITH found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($1::bytea[])
), found_usage AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = ANY ($2::bytea[] || ARRAY(SELECT j.usage_id FROM found_job AS j WHERE j.usage_id <> ''))
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text,
  NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint
UNION ALL
SELECT 1, NULL, NULL, 5, xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until",
  "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until",
  "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos",
  NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint
FROM found_job
UNION ALL
SELECT 3, NULL, NULL, 40, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, "id", "tenant", "user", "live", "changed_at", "cost_held", "spent",
  "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at"
FROM found_usage;

-- statements.py: Statements.snapshot_sql (job, usage, policy)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: Backfill, ConsumeSlot, Submit.
WITH found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($1::bytea[])
), found_usage AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = ANY ($2::bytea[])
), found_policy AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($3::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text,
  NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint
UNION ALL
SELECT 1, NULL, NULL, 5, xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until",
  "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until",
  "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos",
  NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint
FROM found_job
UNION ALL
SELECT 3, NULL, NULL, 40, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, "id", "tenant", "user", "live", "changed_at", "cost_held", "spent",
  "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", NULL::bytea, NULL::text, NULL::text,
  NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_usage
UNION ALL
SELECT 4, NULL, NULL, 56, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
FROM found_policy;

-- statements.py: Statements.snapshot_sql (memo)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: FinishStep.
WITH found_memo AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at",
      "result", "version", "format"
    FROM "public"."memo"
    WHERE id = ANY ($1::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::bytea, NULL::text, NULL::bytea, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint
UNION ALL
SELECT 5, NULL, NULL, 5, xmin_of_row, "id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs",
  "ended_at", "result", "version", "format"
FROM found_memo;

-- statements.py: Statements.snapshot_sql (policy)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: AddActivity, DropPolicy, ExpirePolicy, Purge, SetPolicy.
WITH found_policy AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($1::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
UNION ALL
SELECT 4, NULL, NULL, 5, xmin_of_row, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
FROM found_policy;

-- statements.py: Statements.snapshot_sql (record)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: CountHits, Expire, Renew, Reserve, Settle.
WITH found_record AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts"
    FROM "public"."record"
    WHERE id = ANY ($1::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bytea
UNION ALL
SELECT 0, NULL, NULL, 5, xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
  "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
  "conflicts", "last_hit_at", "recent_conflicts"
FROM found_record;

-- statements.py: Statements.snapshot_sql (record, job, follows jobs)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: Forget, Purge, Reserve, Submit.
WITH found_record AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts"
    FROM "public"."record"
    WHERE id = ANY ($1::bytea[])
), found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($2::bytea[] || ARRAY(SELECT substr(r.job_ids, n, 16) FROM found_record AS r, generate_series(1, length(r.job_ids), 16) AS n))
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint
UNION ALL
SELECT 0, NULL, NULL, 5, xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
  "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
  "conflicts", "last_hit_at", "recent_conflicts", NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint
FROM found_record
UNION ALL
SELECT 1, NULL, NULL, 31, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, "id", "tenant", "type", "state", "scope", "key",
  "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at",
  "version", "format", "token", "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs",
  "progress", "finish_digest", "verb_keys", "memos"
FROM found_job;

-- statements.py: Statements.snapshot_sql (record, job, policy, follows jobs)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: Reserve, Submit.
WITH found_record AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts"
    FROM "public"."record"
    WHERE id = ANY ($1::bytea[])
), found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($2::bytea[] || ARRAY(SELECT substr(r.job_ids, n, 16) FROM found_record AS r, generate_series(1, length(r.job_ids), 16) AS n))
), found_policy AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($3::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint
UNION ALL
SELECT 0, NULL, NULL, 5, xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
  "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
  "conflicts", "last_hit_at", "recent_conflicts", NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_record
UNION ALL
SELECT 1, NULL, NULL, 31, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, "id", "tenant", "type", "state", "scope", "key",
  "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at",
  "version", "format", "token", "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs",
  "progress", "finish_digest", "verb_keys", "memos", NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint
FROM found_job
UNION ALL
SELECT 4, NULL, NULL, 66, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, "id",
  "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
FROM found_policy;

-- statements.py: Statements.snapshot_sql (record, job, stream, usage, policy, follows jobs)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: Reserve, SetLimits, SetPolicy, Submit, SubmitSequence.
WITH found_record AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts"
    FROM "public"."record"
    WHERE id = ANY ($1::bytea[])
), found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($2::bytea[] || ARRAY(SELECT substr(r.job_ids, n, 16) FROM found_record AS r, generate_series(1, length(r.job_ids), 16) AS n))
), found_stream AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version",
      "format"
    FROM "public"."stream"
    WHERE id = ANY ($3::bytea[])
), found_usage AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = ANY ($4::bytea[])
), found_policy AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($5::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
UNION ALL
SELECT 0, NULL, NULL, 5, xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
  "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
  "conflicts", "last_hit_at", "recent_conflicts", NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint,
  NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_record
UNION ALL
SELECT 1, NULL, NULL, 31, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, "id", "tenant", "type", "state", "scope", "key",
  "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at",
  "version", "format", "token", "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs",
  "progress", "finish_digest", "verb_keys", "memos", NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_job
UNION ALL
SELECT 2, NULL, NULL, 66, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, "id",
  "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format", NULL::bytea, NULL::text,
  NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_stream
UNION ALL
SELECT 3, NULL, NULL, 78, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version",
  "format", "limits", "due_at", NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_usage
UNION ALL
SELECT 4, NULL, NULL, 94, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
FROM found_policy;

-- statements.py: Statements.snapshot_sql (record, job, usage, follows jobs, follows usage)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: CancelAtSite, Renew, Settle, StoreKey, TakeOver.
WITH found_record AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts"
    FROM "public"."record"
    WHERE id = ANY ($1::bytea[])
), found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($2::bytea[] || ARRAY(SELECT substr(r.job_ids, n, 16) FROM found_record AS r, generate_series(1, length(r.job_ids), 16) AS n))
), found_usage AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = ANY ($3::bytea[] || ARRAY(SELECT j.usage_id FROM found_job AS j WHERE j.usage_id <> ''))
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint
UNION ALL
SELECT 0, NULL, NULL, 5, xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
  "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
  "conflicts", "last_hit_at", "recent_conflicts", NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint
FROM found_record
UNION ALL
SELECT 1, NULL, NULL, 31, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, "id", "tenant", "type", "state", "scope", "key",
  "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at",
  "version", "format", "token", "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs",
  "progress", "finish_digest", "verb_keys", "memos", NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint
FROM found_job
UNION ALL
SELECT 3, NULL, NULL, 66, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, "id",
  "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format",
  "limits", "due_at"
FROM found_usage;

-- statements.py: Statements.snapshot_sql (record, job, usage, policy, follows jobs)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: Reserve, SetLimits, Submit.
WITH found_record AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts"
    FROM "public"."record"
    WHERE id = ANY ($1::bytea[])
), found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($2::bytea[] || ARRAY(SELECT substr(r.job_ids, n, 16) FROM found_record AS r, generate_series(1, length(r.job_ids), 16) AS n))
), found_usage AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = ANY ($3::bytea[])
), found_policy AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($4::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
UNION ALL
SELECT 0, NULL, NULL, 5, xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
  "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
  "conflicts", "last_hit_at", "recent_conflicts", NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_record
UNION ALL
SELECT 1, NULL, NULL, 31, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, "id", "tenant", "type", "state", "scope", "key",
  "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at",
  "version", "format", "token", "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs",
  "progress", "finish_digest", "verb_keys", "memos", NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text,
  NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_job
UNION ALL
SELECT 3, NULL, NULL, 66, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, "id",
  "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format",
  "limits", "due_at", NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_usage
UNION ALL
SELECT 4, NULL, NULL, 82, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
FROM found_policy;

-- statements.py: Statements.snapshot_sql (record, job, usage, policy, follows jobs, follows usage)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: Cancel, CountHits, DropPolicy, Forget, Purge, Resolve, SetLimits, SetPolicy, Settle, Submit.
WITH found_record AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts"
    FROM "public"."record"
    WHERE id = ANY ($1::bytea[])
), found_job AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM "public"."job"
    WHERE id = ANY ($2::bytea[] || ARRAY(SELECT substr(r.job_ids, n, 16) FROM found_record AS r, generate_series(1, length(r.job_ids), 16) AS n))
), found_usage AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = ANY ($3::bytea[] || ARRAY(SELECT j.usage_id FROM found_job AS j WHERE j.usage_id <> ''))
), found_policy AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($4::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
UNION ALL
SELECT 0, NULL, NULL, 5, xmin_of_row, "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until",
  "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
  "conflicts", "last_hit_at", "recent_conflicts", NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text, NULL::text,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint,
  NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_record
UNION ALL
SELECT 1, NULL, NULL, 31, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, "id", "tenant", "type", "state", "scope", "key",
  "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at",
  "version", "format", "token", "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs",
  "progress", "finish_digest", "verb_keys", "memos", NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text,
  NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text,
  NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_job
UNION ALL
SELECT 3, NULL, NULL, 66, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, "id",
  "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format",
  "limits", "due_at", NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
FROM found_usage
UNION ALL
SELECT 4, NULL, NULL, 82, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::text, NULL::text, NULL::bytea, NULL::bytea, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bytea, NULL::text, NULL::text, NULL::text,
  NULL::text, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bytea,
  NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bytea, NULL::bytea, NULL::bigint, NULL::bytea,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text,
  NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
FROM found_policy;

-- statements.py: Statements.snapshot_sql (stream)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: Evict, Purge.
WITH found_stream AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version",
      "format"
    FROM "public"."stream"
    WHERE id = ANY ($1::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
UNION ALL
SELECT 2, NULL, NULL, 5, xmin_of_row, "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
  "version", "format"
FROM found_stream;

-- statements.py: Statements.snapshot_sql (usage, policy)
-- Loads the facts of a batch without locks, all kinds on one snapshot. Used by: ConsumeSlot, Reconcile, ReleaseSlot, RenewSlot, ReserveSlot, SetLimits.
WITH found_usage AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at"
    FROM "public"."usage"
    WHERE id = ANY ($1::bytea[])
), found_policy AS MATERIALIZED (
    SELECT xmin AS xmin_of_row, "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM "public"."policy"
    WHERE id = ANY ($2::bytea[])
)
SELECT -1, "public".onejob_now() AS clock, current_setting('synchronous_standby_names') AS standbys, 0, NULL::xid, NULL::bytea, NULL::text,
  NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint,
  NULL::bigint, NULL::bytea, NULL::bigint, NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bigint
UNION ALL
SELECT 3, NULL, NULL, 5, xmin_of_row, "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours",
  "counted_at", "reservations", "version", "format", "limits", "due_at", NULL::bytea, NULL::text, NULL::text, NULL::bytea, NULL::bigint, NULL::bigint,
  NULL::bigint, NULL::bigint
FROM found_usage
UNION ALL
SELECT 4, NULL, NULL, 21, xmin_of_row, NULL::bytea, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint,
  NULL::text, NULL::text, NULL::bigint, NULL::text, NULL::bigint, NULL::bigint, NULL::bytea, NULL::bigint, "id", "tenant", "name", "body",
  "changed_at", "version", "format", "expires_at"
FROM found_policy;

-- statements.py: Statements.verified_changes_sql (absent job, usage, policy; insert record, create job, insert stream, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: SubmitSequence.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $8::bigint THEN "public".onejob_are_absent(NULL, $5::bytea[], NULL,
      $6::bytea[], $7::bytea[], NULL) END, false) AS ok
), insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM (VALUES ($10::bytea, $11::text, $12::text, $13::text, $14::text, $15::bytea, $16::bytea, $17::bytea, $18::bigint, $19::bigint, $20::bigint,
      $21::bigint, $22::bigint, $23::bigint, $24::text, $25::text, $26::bigint, $27::bigint, $28::bytea, $29::text, $30::text, $31::bigint,
      $32::bigint, $33::bigint, $34::bigint, $35::bytea) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids",
      "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt",
      "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($36::bytea, $37::text, $38::text, $39::text, $40::text, $41::text, $42::text, $43::text, $44::bigint, $45::bigint, $46::bigint,
      $47::bigint, $48::bigint, $49::text, $50::bigint, $51::bigint, $52::bytea, $53::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_stream AS (
    INSERT INTO "public"."stream" ("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
      "version", "format")
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM (VALUES ($54::bytea, $55::text, $56::text, $57::text, $58::bigint, $59::bigint, $60::text, $61::bigint, $62::bigint, $63::bigint,
      $64::bigint, $65::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at",
      "evicted", "version", "format")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($66::bytea, $67::bigint, $68::bigint, $69::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM
  insert_stream) + (SELECT count(*) FROM add_) <> $9::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN
  "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0,
  "public".onejob_now()) END, current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (absent job; create record, insert job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: CancelAtSite.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $6::bigint THEN "public".onejob_are_absent(NULL, $5::bytea[], NULL, NULL,
      NULL, NULL) END, false) AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($8::bytea, $9::text, $10::text, $11::text, $12::text, $13::bytea, $14::bytea, $15::bytea, $16::bigint, $17::bigint, $18::bigint,
      $19::bigint, $20::bigint, $21::bigint, $22::text, $23::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM (VALUES ($24::bytea, $25::text, $26::text, $27::text, $28::text, $29::text, $30::text, $31::text, $32::bigint, $33::bigint, $34::bigint,
      $35::bigint, $36::bigint, $37::text, $38::bigint, $39::bigint, $40::bytea, $41::bigint, $42::bigint, $43::bigint, $44::bigint, $45::bytea,
      $46::bigint, $47::bigint, $48::bytea, $49::bigint, $50::bigint, $51::bigint, $52::text, $53::bigint, $54::bigint, $55::text, $56::bytea,
      $57::bytea, $58::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($59::bytea, $60::bigint, $61::bigint, $62::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM add_)
  <> $7::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (absent policy; create record, insert job, insert usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: SetLimits, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $6::bigint THEN "public".onejob_are_absent(NULL, NULL, NULL, NULL,
      $5::bytea[], NULL) END, false) AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($8::bytea, $9::text, $10::text, $11::text, $12::text, $13::bytea, $14::bytea, $15::bytea, $16::bigint, $17::bigint, $18::bigint,
      $19::bigint, $20::bigint, $21::bigint, $22::text, $23::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM (VALUES ($24::bytea, $25::text, $26::text, $27::text, $28::text, $29::text, $30::text, $31::text, $32::bigint, $33::bigint, $34::bigint,
      $35::bigint, $36::bigint, $37::text, $38::bigint, $39::bigint, $40::bytea, $41::bigint, $42::bigint, $43::bigint, $44::bigint, $45::bytea,
      $46::bigint, $47::bigint, $48::bytea, $49::bigint, $50::bigint, $51::bigint, $52::text, $53::bigint, $54::bigint, $55::text, $56::bytea,
      $57::bytea, $58::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_usage AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM (VALUES ($59::bytea, $60::text, $61::text, $62::bigint, $63::bigint, $64::bigint, $65::text, $66::bigint, $67::text, $68::text, $69::bigint,
      $70::text, $71::bigint, $72::bigint, $73::bytea, $74::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at", "cost_held",
      "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($75::bytea, $76::bigint, $77::bigint, $78::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM
  insert_usage) + (SELECT count(*) FROM add_) <> $7::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN
  "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0,
  "public".onejob_now()) END, current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (absent policy; insert record, create job, insert stream, insert usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve, SetLimits, Submit, SubmitSequence.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $6::bigint THEN "public".onejob_are_absent(NULL, NULL, NULL, NULL,
      $5::bytea[], NULL) END, false) AS ok
), insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM (VALUES ($8::bytea, $9::text, $10::text, $11::text, $12::text, $13::bytea, $14::bytea, $15::bytea, $16::bigint, $17::bigint, $18::bigint,
      $19::bigint, $20::bigint, $21::bigint, $22::text, $23::text, $24::bigint, $25::bigint, $26::bytea, $27::text, $28::text, $29::bigint,
      $30::bigint, $31::bigint, $32::bigint, $33::bytea) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids",
      "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt",
      "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($34::bytea, $35::text, $36::text, $37::text, $38::text, $39::text, $40::text, $41::text, $42::bigint, $43::bigint, $44::bigint,
      $45::bigint, $46::bigint, $47::text, $48::bigint, $49::bigint, $50::bytea, $51::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_stream AS (
    INSERT INTO "public"."stream" ("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
      "version", "format")
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM (VALUES ($52::bytea, $53::text, $54::text, $55::text, $56::bigint, $57::bigint, $58::text, $59::bigint, $60::bigint, $61::bigint,
      $62::bigint, $63::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at",
      "evicted", "version", "format")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_usage AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM (VALUES ($64::bytea, $65::text, $66::text, $67::bigint, $68::bigint, $69::bigint, $70::text, $71::bigint, $72::text, $73::text, $74::bigint,
      $75::text, $76::bigint, $77::bigint, $78::bytea, $79::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at", "cost_held",
      "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($80::bytea, $81::bigint, $82::bigint, $83::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM
  insert_stream) + (SELECT count(*) FROM insert_usage) + (SELECT count(*) FROM add_) <> $7::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint,
  0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (absent policy; insert usage)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: ReserveSlot, SetLimits.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $6::bigint THEN "public".onejob_are_absent(NULL, NULL, NULL, NULL,
      $5::bytea[], NULL) END, false) AS ok
), insert_usage AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM (VALUES ($8::bytea, $9::text, $10::text, $11::bigint, $12::bigint, $13::bigint, $14::text, $15::bigint, $16::text, $17::text, $18::bigint,
      $19::text, $20::bigint, $21::bigint, $22::bytea, $23::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at", "cost_held",
      "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_usage) <> $7::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (absent usage, policy; insert record, create job, insert stream, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: SubmitSequence.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $7::bigint THEN "public".onejob_are_absent(NULL, NULL, NULL, $5::bytea[],
      $6::bytea[], NULL) END, false) AS ok
), insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM (VALUES ($9::bytea, $10::text, $11::text, $12::text, $13::text, $14::bytea, $15::bytea, $16::bytea, $17::bigint, $18::bigint, $19::bigint,
      $20::bigint, $21::bigint, $22::bigint, $23::text, $24::text, $25::bigint, $26::bigint, $27::bytea, $28::text, $29::text, $30::bigint,
      $31::bigint, $32::bigint, $33::bigint, $34::bytea) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids",
      "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt",
      "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($35::bytea, $36::text, $37::text, $38::text, $39::text, $40::text, $41::text, $42::text, $43::bigint, $44::bigint, $45::bigint,
      $46::bigint, $47::bigint, $48::text, $49::bigint, $50::bigint, $51::bytea, $52::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_stream AS (
    INSERT INTO "public"."stream" ("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
      "version", "format")
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM (VALUES ($53::bytea, $54::text, $55::text, $56::text, $57::bigint, $58::bigint, $59::text, $60::bigint, $61::bigint, $62::bigint,
      $63::bigint, $64::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at",
      "evicted", "version", "format")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($65::bytea, $66::bigint, $67::bigint, $68::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM
  insert_stream) + (SELECT count(*) FROM add_) <> $8::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN
  "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0,
  "public".onejob_now()) END, current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (absent usage, policy; insert record, create job, insert stream, insert policy, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: SetPolicy, Submit, SubmitSequence.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $7::bigint THEN "public".onejob_are_absent(NULL, NULL, NULL, $5::bytea[],
      $6::bytea[], NULL) END, false) AS ok
), insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM (VALUES ($9::bytea, $10::text, $11::text, $12::text, $13::text, $14::bytea, $15::bytea, $16::bytea, $17::bigint, $18::bigint, $19::bigint,
      $20::bigint, $21::bigint, $22::bigint, $23::text, $24::text, $25::bigint, $26::bigint, $27::bytea, $28::text, $29::text, $30::bigint,
      $31::bigint, $32::bigint, $33::bigint, $34::bytea) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids",
      "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt",
      "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($35::bytea, $36::text, $37::text, $38::text, $39::text, $40::text, $41::text, $42::text, $43::bigint, $44::bigint, $45::bigint,
      $46::bigint, $47::bigint, $48::text, $49::bigint, $50::bigint, $51::bytea, $52::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_stream AS (
    INSERT INTO "public"."stream" ("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
      "version", "format")
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM (VALUES ($53::bytea, $54::text, $55::text, $56::text, $57::bigint, $58::bigint, $59::text, $60::bigint, $61::bigint, $62::bigint,
      $63::bigint, $64::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at",
      "evicted", "version", "format")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_policy AS (
    INSERT INTO "public"."policy" ("id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at")
    SELECT "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM (VALUES ($65::bytea, $66::text, $67::text, $68::bytea, $69::bigint, $70::bigint, $71::bigint, $72::bigint) /* ... n rows */) AS u("id",
      "tenant", "name", "body", "changed_at", "version", "format", "expires_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($73::bytea, $74::bigint, $75::bigint, $76::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM
  insert_stream) + (SELECT count(*) FROM insert_policy) + (SELECT count(*) FROM add_) <> $8::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint,
  0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (create job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $5::bigint THEN true END, false) AS ok
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($7::bytea, $8::text, $9::text, $10::text, $11::text, $12::text, $13::text, $14::text, $15::bigint, $16::bigint, $17::bigint,
      $18::bigint, $19::bigint, $20::text, $21::bigint, $22::bigint, $23::bytea, $24::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($25::bytea, $26::bigint, $27::bigint, $28::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_) <> $6::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (create record)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $5::bigint THEN true END, false) AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($7::bytea, $8::text, $9::text, $10::text, $11::text, $12::bytea, $13::bytea, $14::bytea, $15::bigint, $16::bigint, $17::bigint,
      $18::bigint, $19::bigint, $20::bigint, $21::text, $22::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) <> $6::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (create record, create job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $5::bigint THEN true END, false) AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($7::bytea, $8::text, $9::text, $10::text, $11::text, $12::bytea, $13::bytea, $14::bytea, $15::bigint, $16::bigint, $17::bigint,
      $18::bigint, $19::bigint, $20::bigint, $21::text, $22::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($23::bytea, $24::text, $25::text, $26::text, $27::text, $28::text, $29::text, $30::text, $31::bigint, $32::bigint, $33::bigint,
      $34::bigint, $35::bigint, $36::text, $37::bigint, $38::bigint, $39::bytea, $40::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($41::bytea, $42::bigint, $43::bigint, $44::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_)
  <> $6::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds job, memo; update memo)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: BeginStep.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_memo AS (
    SELECT
    FROM "public"."memo" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_job) + (SELECT count(*) FROM hold_memo) = $11::bigint
      THEN true END, false) AS ok
), update_memo AS (
    UPDATE "public"."memo" AS t
    SET "tenant" = u."tenant", "job_id" = u."job_id", "name" = u."name", "fingerprint" = u."fingerprint", "token" = u."token", "holder" = u."holder",
      "began_at" = u."began_at", "changed_at" = u."changed_at", "runs" = u."runs", "ended_at" = u."ended_at", "result" = u."result", "version" =
      u."version", "format" = u."format"
    FROM (VALUES ($13::bytea, $14::text, $15::bytea, $16::text, $17::bytea, $18::bigint, $19::bytea, $20::bigint, $21::bigint, $22::bigint,
      $23::bigint, $24::bytea, $25::bigint, $26::bigint, $27::bigint) /* ... n rows */) AS u("id", "tenant", "job_id", "name", "fingerprint", "token",
      "holder", "began_at", "changed_at", "runs", "ended_at", "result", "version", "format", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_memo) <> $12::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds job, usage; absent job; update job, update usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Cancel, Finish.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_job) + (SELECT count(*) FROM hold_usage) = $12::bigint
      THEN "public".onejob_are_absent(NULL, $11::bytea[], NULL, NULL, NULL, NULL) END, false) AS ok
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($14::bytea, $15::text, $16::text, $17::text, $18::text, $19::text, $20::text, $21::text, $22::bigint, $23::bigint, $24::bigint,
      $25::bigint, $26::bigint, $27::text, $28::bigint, $29::bigint, $30::bytea, $31::bigint, $32::bigint, $33::bigint, $34::bigint, $35::bytea,
      $36::bigint, $37::bigint, $38::bytea, $39::bigint, $40::bigint, $41::bigint, $42::text, $43::bigint, $44::bigint, $45::text, $46::bytea,
      $47::bytea, $48::bigint, $49::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($50::bytea, $51::text, $52::text, $53::bigint, $54::bigint, $55::bigint, $56::text, $57::bigint, $58::text, $59::text, $60::bigint,
      $61::text, $62::bigint, $63::bigint, $64::bytea, $65::bigint, $66::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($67::bytea, $68::bigint, $69::bigint, $70::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_job) + (SELECT count(*) FROM update_usage) + (SELECT count(*) FROM add_) <>
  $13::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds job, usage; absent policy; update job, update usage)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Backfill, ConsumeSlot.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_job) + (SELECT count(*) FROM hold_usage) = $12::bigint
      THEN "public".onejob_are_absent(NULL, NULL, NULL, NULL, $11::bytea[], NULL) END, false) AS ok
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($14::bytea, $15::text, $16::text, $17::text, $18::text, $19::text, $20::text, $21::text, $22::bigint, $23::bigint, $24::bigint,
      $25::bigint, $26::bigint, $27::text, $28::bigint, $29::bigint, $30::bytea, $31::bigint, $32::bigint, $33::bigint, $34::bigint, $35::bytea,
      $36::bigint, $37::bigint, $38::bytea, $39::bigint, $40::bigint, $41::bigint, $42::text, $43::bigint, $44::bigint, $45::text, $46::bytea,
      $47::bytea, $48::bigint, $49::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($50::bytea, $51::text, $52::text, $53::bigint, $54::bigint, $55::bigint, $56::text, $57::bigint, $58::text, $59::text, $60::bigint,
      $61::text, $62::bigint, $63::bigint, $64::bytea, $65::bigint, $66::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_job) + (SELECT count(*) FROM update_usage) <> $13::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds job; absent job; update job)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Maintain, ReportDelivery.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_job) = $9::bigint THEN "public".onejob_are_absent(NULL,
      $8::bytea[], NULL, NULL, NULL, NULL) END, false) AS ok
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($11::bytea, $12::text, $13::text, $14::text, $15::text, $16::text, $17::text, $18::text, $19::bigint, $20::bigint, $21::bigint,
      $22::bigint, $23::bigint, $24::text, $25::bigint, $26::bigint, $27::bytea, $28::bigint, $29::bigint, $30::bigint, $31::bigint, $32::bytea,
      $33::bigint, $34::bigint, $35::bytea, $36::bigint, $37::bigint, $38::bigint, $39::text, $40::bigint, $41::bigint, $42::text, $43::bytea,
      $44::bytea, $45::bigint, $46::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_job) <> $10::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds job; absent job; update job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Cancel, Finish, Maintain, ReportDelivery.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_job) = $9::bigint THEN "public".onejob_are_absent(NULL,
      $8::bytea[], NULL, NULL, NULL, NULL) END, false) AS ok
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($11::bytea, $12::text, $13::text, $14::text, $15::text, $16::text, $17::text, $18::text, $19::bigint, $20::bigint, $21::bigint,
      $22::bigint, $23::bigint, $24::text, $25::bigint, $26::bigint, $27::bytea, $28::bigint, $29::bigint, $30::bigint, $31::bigint, $32::bytea,
      $33::bigint, $34::bigint, $35::bytea, $36::bigint, $37::bigint, $38::bigint, $39::text, $40::bigint, $41::bigint, $42::text, $43::bytea,
      $44::bytea, $45::bigint, $46::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($47::bytea, $48::bigint, $49::bigint, $50::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_job) + (SELECT count(*) FROM add_) <> $10::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds job; insert memo, update job)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: BeginStep.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_job) = $8::bigint THEN true END, false) AS ok
), insert_memo AS (
    INSERT INTO "public"."memo" ("id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at",
      "result", "version", "format")
    SELECT "id", "tenant", "job_id", "name", "fingerprint", "token", "holder", "began_at", "changed_at", "runs", "ended_at", "result", "version",
      "format"
    FROM (VALUES ($10::bytea, $11::text, $12::bytea, $13::text, $14::bytea, $15::bigint, $16::bytea, $17::bigint, $18::bigint, $19::bigint,
      $20::bigint, $21::bytea, $22::bigint, $23::bigint) /* ... n rows */) AS u("id", "tenant", "job_id", "name", "fingerprint", "token", "holder",
      "began_at", "changed_at", "runs", "ended_at", "result", "version", "format")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($24::bytea, $25::text, $26::text, $27::text, $28::text, $29::text, $30::text, $31::text, $32::bigint, $33::bigint, $34::bigint,
      $35::bigint, $36::bigint, $37::text, $38::bigint, $39::bigint, $40::bytea, $41::bigint, $42::bigint, $43::bigint, $44::bigint, $45::bytea,
      $46::bigint, $47::bigint, $48::bytea, $49::bigint, $50::bigint, $51::bigint, $52::text, $53::bigint, $54::bigint, $55::text, $56::bytea,
      $57::bytea, $58::bigint, $59::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_memo) + (SELECT count(*) FROM update_job) <> $9::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds job; update job)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Claim, Extend, Release, Start.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_job) = $8::bigint THEN true END, false) AS ok
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($10::bytea, $11::text, $12::text, $13::text, $14::text, $15::text, $16::text, $17::text, $18::bigint, $19::bigint, $20::bigint,
      $21::bigint, $22::bigint, $23::text, $24::bigint, $25::bigint, $26::bytea, $27::bigint, $28::bigint, $29::bigint, $30::bigint, $31::bytea,
      $32::bigint, $33::bigint, $34::bytea, $35::bigint, $36::bigint, $37::bigint, $38::text, $39::bigint, $40::bigint, $41::text, $42::bytea,
      $43::bytea, $44::bigint, $45::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_job) <> $9::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1,
  "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds job; update job, add, trim)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Extend.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_job) = $8::bigint THEN true END, false) AS ok
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($10::bytea, $11::text, $12::text, $13::text, $14::text, $15::text, $16::text, $17::text, $18::bigint, $19::bigint, $20::bigint,
      $21::bigint, $22::bigint, $23::text, $24::bigint, $25::bigint, $26::bytea, $27::bigint, $28::bigint, $29::bigint, $30::bigint, $31::bytea,
      $32::bigint, $33::bigint, $34::bytea, $35::bigint, $36::bigint, $37::bigint, $38::text, $39::bigint, $40::bigint, $41::text, $42::bytea,
      $43::bytea, $44::bigint, $45::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($46::bytea, $47::bigint, $48::bigint, $49::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), trim_ AS (
    DELETE FROM "public"."attachment" AS t
    USING (VALUES ($50::bytea, $51::bigint, $52::bigint) /* ... n rows */) AS u("job_id", "kind", "index")
    WHERE t."job_id" = u."job_id" AND t."kind" = u."kind" AND t."index" = u."index" AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_job) + (SELECT count(*) FROM add_) <> $9::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds memo; update memo)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: FinishStep.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_memo AS (
    SELECT
    FROM "public"."memo" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_memo) = $8::bigint THEN true END, false) AS ok
), update_memo AS (
    UPDATE "public"."memo" AS t
    SET "tenant" = u."tenant", "job_id" = u."job_id", "name" = u."name", "fingerprint" = u."fingerprint", "token" = u."token", "holder" = u."holder",
      "began_at" = u."began_at", "changed_at" = u."changed_at", "runs" = u."runs", "ended_at" = u."ended_at", "result" = u."result", "version" =
      u."version", "format" = u."format"
    FROM (VALUES ($10::bytea, $11::text, $12::bytea, $13::text, $14::bytea, $15::bigint, $16::bytea, $17::bigint, $18::bigint, $19::bigint,
      $20::bigint, $21::bytea, $22::bigint, $23::bigint, $24::bigint) /* ... n rows */) AS u("id", "tenant", "job_id", "name", "fingerprint", "token",
      "holder", "began_at", "changed_at", "runs", "ended_at", "result", "version", "format", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_memo) <> $9::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds policy shared; absent record, job; create record, create job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_policy) = $10::bigint THEN
      "public".onejob_are_absent($8::bytea[], $9::bytea[], NULL, NULL, NULL, NULL) END, false) AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($12::bytea, $13::text, $14::text, $15::text, $16::text, $17::bytea, $18::bytea, $19::bytea, $20::bigint, $21::bigint, $22::bigint,
      $23::bigint, $24::bigint, $25::bigint, $26::text, $27::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($28::bytea, $29::text, $30::text, $31::text, $32::text, $33::text, $34::text, $35::text, $36::bigint, $37::bigint, $38::bigint,
      $39::bigint, $40::bigint, $41::text, $42::bigint, $43::bigint, $44::bytea, $45::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($46::bytea, $47::bigint, $48::bigint, $49::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_)
  <> $11::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds policy shared; absent usage, policy; create job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_policy) = $10::bigint THEN
      "public".onejob_are_absent(NULL, NULL, NULL, $8::bytea[], $9::bytea[], NULL) END, false) AS ok
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($12::bytea, $13::text, $14::text, $15::text, $16::text, $17::text, $18::text, $19::text, $20::bigint, $21::bigint, $22::bigint,
      $23::bigint, $24::bigint, $25::text, $26::bigint, $27::bigint, $28::bytea, $29::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($30::bytea, $31::bigint, $32::bigint, $33::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_) <> $11::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds policy shared; absent usage, policy; create record, create job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_policy) = $10::bigint THEN
      "public".onejob_are_absent(NULL, NULL, NULL, $8::bytea[], $9::bytea[], NULL) END, false) AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($12::bytea, $13::text, $14::text, $15::text, $16::text, $17::bytea, $18::bytea, $19::bytea, $20::bigint, $21::bigint, $22::bigint,
      $23::bigint, $24::bigint, $25::bigint, $26::text, $27::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($28::bytea, $29::text, $30::text, $31::text, $32::text, $33::text, $34::text, $35::text, $36::bigint, $37::bigint, $38::bigint,
      $39::bigint, $40::bigint, $41::text, $42::bigint, $43::bigint, $44::bytea, $45::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($46::bytea, $47::bigint, $48::bigint, $49::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_)
  <> $11::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds policy shared; create job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_policy) = $8::bigint THEN true END, false) AS ok
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($10::bytea, $11::text, $12::text, $13::text, $14::text, $15::text, $16::text, $17::text, $18::bigint, $19::bigint, $20::bigint,
      $21::bigint, $22::bigint, $23::text, $24::bigint, $25::bigint, $26::bytea, $27::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($28::bytea, $29::bigint, $30::bigint, $31::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_) <> $9::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds policy shared; create record, create job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_policy) = $8::bigint THEN true END, false) AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($10::bytea, $11::text, $12::text, $13::text, $14::text, $15::bytea, $16::bytea, $17::bytea, $18::bigint, $19::bigint, $20::bigint,
      $21::bigint, $22::bigint, $23::bigint, $24::text, $25::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($26::bytea, $27::text, $28::text, $29::text, $30::text, $31::text, $32::text, $33::text, $34::bigint, $35::bigint, $36::bigint,
      $37::bigint, $38::bigint, $39::text, $40::bigint, $41::bigint, $42::bytea, $43::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($44::bytea, $45::bigint, $46::bigint, $47::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_)
  <> $9::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds policy shared; insert job, insert usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_policy) = $8::bigint THEN true END, false) AS ok
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM (VALUES ($10::bytea, $11::text, $12::text, $13::text, $14::text, $15::text, $16::text, $17::text, $18::bigint, $19::bigint, $20::bigint,
      $21::bigint, $22::bigint, $23::text, $24::bigint, $25::bigint, $26::bytea, $27::bigint, $28::bigint, $29::bigint, $30::bigint, $31::bytea,
      $32::bigint, $33::bigint, $34::bytea, $35::bigint, $36::bigint, $37::bigint, $38::text, $39::bigint, $40::bigint, $41::text, $42::bytea,
      $43::bytea, $44::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_usage AS (
    INSERT INTO "public"."usage" ("id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at",
      "reservations", "version", "format", "limits", "due_at")
    SELECT "id", "tenant", "user", "live", "changed_at", "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations",
      "version", "format", "limits", "due_at"
    FROM (VALUES ($45::bytea, $46::text, $47::text, $48::bigint, $49::bigint, $50::bigint, $51::text, $52::bigint, $53::text, $54::text, $55::bigint,
      $56::text, $57::bigint, $58::bigint, $59::bytea, $60::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at", "cost_held",
      "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($61::bytea, $62::bigint, $63::bigint, $64::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM insert_usage) + (SELECT count(*) FROM add_) <>
  $9::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds policy; update policy)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: SetPolicy.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_policy) = $8::bigint THEN true END, false) AS ok
), update_policy AS (
    UPDATE "public"."policy" AS t
    SET "tenant" = u."tenant", "name" = u."name", "body" = u."body", "changed_at" = u."changed_at", "version" = u."version", "format" = u."format",
      "expires_at" = u."expires_at"
    FROM (VALUES ($10::bytea, $11::text, $12::text, $13::bytea, $14::bigint, $15::bigint, $16::bigint, $17::bigint, $18::bigint) /* ... n rows */) AS
      u("id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_policy) <> $9::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds record, job, policy shared; absent job, usage, policy; create record, create job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Cancel, CountHits, DropPolicy, Forget, Purge, Resolve, SetLimits, SetPolicy, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($11::bytea, $12::bigint, $13::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) + (SELECT
      count(*) FROM hold_policy) = $17::bigint THEN "public".onejob_are_absent(NULL, $14::bytea[], NULL, $15::bytea[], $16::bytea[], NULL) END, false)
      AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($19::bytea, $20::text, $21::text, $22::text, $23::text, $24::bytea, $25::bytea, $26::bytea, $27::bigint, $28::bigint, $29::bigint,
      $30::bigint, $31::bigint, $32::bigint, $33::text, $34::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($35::bytea, $36::text, $37::text, $38::text, $39::text, $40::text, $41::text, $42::text, $43::bigint, $44::bigint, $45::bigint,
      $46::bigint, $47::bigint, $48::text, $49::bigint, $50::bigint, $51::bytea, $52::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($53::bytea, $54::bigint, $55::bigint, $56::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM add_)
  <> $18::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds record, job, usage; absent job, policy; update record, update job, update usage)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($11::bytea, $12::bigint, $13::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) + (SELECT
      count(*) FROM hold_usage) = $16::bigint THEN "public".onejob_are_absent(NULL, $14::bytea[], NULL, NULL, $15::bytea[], NULL) END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($18::bytea, $19::text, $20::text, $21::text, $22::text, $23::bytea, $24::bytea, $25::bytea, $26::bigint, $27::bigint, $28::bigint,
      $29::bigint, $30::bigint, $31::bigint, $32::text, $33::text, $34::bigint, $35::bigint, $36::bytea, $37::text, $38::text, $39::bigint,
      $40::bigint, $41::bigint, $42::bigint, $43::bytea, $44::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($45::bytea, $46::text, $47::text, $48::text, $49::text, $50::text, $51::text, $52::text, $53::bigint, $54::bigint, $55::bigint,
      $56::bigint, $57::bigint, $58::text, $59::bigint, $60::bigint, $61::bytea, $62::bigint, $63::bigint, $64::bigint, $65::bigint, $66::bytea,
      $67::bigint, $68::bigint, $69::bytea, $70::bigint, $71::bigint, $72::bigint, $73::text, $74::bigint, $75::bigint, $76::text, $77::bytea,
      $78::bytea, $79::bigint, $80::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($81::bytea, $82::text, $83::text, $84::bigint, $85::bigint, $86::bigint, $87::text, $88::bigint, $89::text, $90::text, $91::bigint,
      $92::text, $93::bigint, $94::bigint, $95::bytea, $96::bigint, $97::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) + (SELECT count(*) FROM
  update_usage) <> $17::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint
  BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds record, job, usage; update record, update job, update usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: StoreKey.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($11::bytea, $12::bigint, $13::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) + (SELECT
      count(*) FROM hold_usage) = $14::bigint THEN true END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($16::bytea, $17::text, $18::text, $19::text, $20::text, $21::bytea, $22::bytea, $23::bytea, $24::bigint, $25::bigint, $26::bigint,
      $27::bigint, $28::bigint, $29::bigint, $30::text, $31::text, $32::bigint, $33::bigint, $34::bytea, $35::text, $36::text, $37::bigint,
      $38::bigint, $39::bigint, $40::bigint, $41::bytea, $42::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($43::bytea, $44::text, $45::text, $46::text, $47::text, $48::text, $49::text, $50::text, $51::bigint, $52::bigint, $53::bigint,
      $54::bigint, $55::bigint, $56::text, $57::bigint, $58::bigint, $59::bytea, $60::bigint, $61::bigint, $62::bigint, $63::bigint, $64::bytea,
      $65::bigint, $66::bigint, $67::bytea, $68::bigint, $69::bigint, $70::bigint, $71::text, $72::bigint, $73::bigint, $74::text, $75::bytea,
      $76::bytea, $77::bigint, $78::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($79::bytea, $80::text, $81::text, $82::bigint, $83::bigint, $84::bigint, $85::text, $86::bigint, $87::text, $88::text, $89::bigint,
      $90::text, $91::bigint, $92::bigint, $93::bytea, $94::bigint, $95::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($96::bytea, $97::bigint, $98::bigint, $99::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) + (SELECT count(*) FROM
  update_usage) + (SELECT count(*) FROM add_) <> $15::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN
  "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0,
  "public".onejob_now()) END, current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds record, job, usage; update record, update job, update usage, add; notifies)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: StoreKey.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($11::bytea, $12::bigint, $13::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) + (SELECT
      count(*) FROM hold_usage) = $14::bigint THEN true END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($16::bytea, $17::text, $18::text, $19::text, $20::text, $21::bytea, $22::bytea, $23::bytea, $24::bigint, $25::bigint, $26::bigint,
      $27::bigint, $28::bigint, $29::bigint, $30::text, $31::text, $32::bigint, $33::bigint, $34::bytea, $35::text, $36::text, $37::bigint,
      $38::bigint, $39::bigint, $40::bigint, $41::bytea, $42::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($43::bytea, $44::text, $45::text, $46::text, $47::text, $48::text, $49::text, $50::text, $51::bigint, $52::bigint, $53::bigint,
      $54::bigint, $55::bigint, $56::text, $57::bigint, $58::bigint, $59::bytea, $60::bigint, $61::bigint, $62::bigint, $63::bigint, $64::bytea,
      $65::bigint, $66::bigint, $67::bytea, $68::bigint, $69::bigint, $70::bigint, $71::text, $72::bigint, $73::bigint, $74::text, $75::bytea,
      $76::bytea, $77::bigint, $78::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($79::bytea, $80::text, $81::text, $82::bigint, $83::bigint, $84::bigint, $85::text, $86::bigint, $87::text, $88::text, $89::bigint,
      $90::text, $91::bigint, $92::bigint, $93::bytea, $94::bigint, $95::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($96::bytea, $97::bigint, $98::bigint, $99::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) + (SELECT count(*) FROM
  update_usage) + (SELECT count(*) FROM add_) <> $15::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN
  "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0,
  "public".onejob_now()) END, current_setting('synchronous_standby_names'), pg_current_xact_id()::xid, (SELECT count(pg_notify('onejob_public', id))
  FROM unnest($100::text[]) AS id);

-- statements.py: Statements.verified_changes_sql (holds record, job, usage; update record, update job, update usage; notifies)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Settle.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($11::bytea, $12::bigint, $13::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) + (SELECT
      count(*) FROM hold_usage) = $14::bigint THEN true END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($16::bytea, $17::text, $18::text, $19::text, $20::text, $21::bytea, $22::bytea, $23::bytea, $24::bigint, $25::bigint, $26::bigint,
      $27::bigint, $28::bigint, $29::bigint, $30::text, $31::text, $32::bigint, $33::bigint, $34::bytea, $35::text, $36::text, $37::bigint,
      $38::bigint, $39::bigint, $40::bigint, $41::bytea, $42::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($43::bytea, $44::text, $45::text, $46::text, $47::text, $48::text, $49::text, $50::text, $51::bigint, $52::bigint, $53::bigint,
      $54::bigint, $55::bigint, $56::text, $57::bigint, $58::bigint, $59::bytea, $60::bigint, $61::bigint, $62::bigint, $63::bigint, $64::bytea,
      $65::bigint, $66::bigint, $67::bytea, $68::bigint, $69::bigint, $70::bigint, $71::text, $72::bigint, $73::bigint, $74::text, $75::bytea,
      $76::bytea, $77::bigint, $78::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($79::bytea, $80::text, $81::text, $82::bigint, $83::bigint, $84::bigint, $85::text, $86::bigint, $87::text, $88::text, $89::bigint,
      $90::text, $91::bigint, $92::bigint, $93::bytea, $94::bigint, $95::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) + (SELECT count(*) FROM
  update_usage) <> $15::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint
  BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid, (SELECT count(pg_notify('onejob_public', id)) FROM unnest($96::text[]) AS
  id);

-- statements.py: Statements.verified_changes_sql (holds record, job; absent job; update record, update job)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) = $12::bigint
      THEN "public".onejob_are_absent(NULL, $11::bytea[], NULL, NULL, NULL, NULL) END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($14::bytea, $15::text, $16::text, $17::text, $18::text, $19::bytea, $20::bytea, $21::bytea, $22::bigint, $23::bigint, $24::bigint,
      $25::bigint, $26::bigint, $27::bigint, $28::text, $29::text, $30::bigint, $31::bigint, $32::bytea, $33::text, $34::text, $35::bigint,
      $36::bigint, $37::bigint, $38::bigint, $39::bytea, $40::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($41::bytea, $42::text, $43::text, $44::text, $45::text, $46::text, $47::text, $48::text, $49::bigint, $50::bigint, $51::bigint,
      $52::bigint, $53::bigint, $54::text, $55::bigint, $56::bigint, $57::bytea, $58::bigint, $59::bigint, $60::bigint, $61::bigint, $62::bytea,
      $63::bigint, $64::bigint, $65::bytea, $66::bigint, $67::bigint, $68::bigint, $69::text, $70::bigint, $71::bigint, $72::text, $73::bytea,
      $74::bytea, $75::bigint, $76::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) <> $13::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds record, job; absent job; update record, update job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) = $12::bigint
      THEN "public".onejob_are_absent(NULL, $11::bytea[], NULL, NULL, NULL, NULL) END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($14::bytea, $15::text, $16::text, $17::text, $18::text, $19::bytea, $20::bytea, $21::bytea, $22::bigint, $23::bigint, $24::bigint,
      $25::bigint, $26::bigint, $27::bigint, $28::text, $29::text, $30::bigint, $31::bigint, $32::bytea, $33::text, $34::text, $35::bigint,
      $36::bigint, $37::bigint, $38::bigint, $39::bytea, $40::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($41::bytea, $42::text, $43::text, $44::text, $45::text, $46::text, $47::text, $48::text, $49::bigint, $50::bigint, $51::bigint,
      $52::bigint, $53::bigint, $54::text, $55::bigint, $56::bigint, $57::bytea, $58::bigint, $59::bigint, $60::bigint, $61::bigint, $62::bytea,
      $63::bigint, $64::bigint, $65::bytea, $66::bigint, $67::bigint, $68::bigint, $69::text, $70::bigint, $71::bigint, $72::text, $73::bytea,
      $74::bytea, $75::bigint, $76::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($77::bytea, $78::bigint, $79::bigint, $80::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) + (SELECT count(*) FROM add_)
  <> $13::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds record, job; absent job; update record, update job, add; notifies)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) = $12::bigint
      THEN "public".onejob_are_absent(NULL, $11::bytea[], NULL, NULL, NULL, NULL) END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($14::bytea, $15::text, $16::text, $17::text, $18::text, $19::bytea, $20::bytea, $21::bytea, $22::bigint, $23::bigint, $24::bigint,
      $25::bigint, $26::bigint, $27::bigint, $28::text, $29::text, $30::bigint, $31::bigint, $32::bytea, $33::text, $34::text, $35::bigint,
      $36::bigint, $37::bigint, $38::bigint, $39::bytea, $40::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($41::bytea, $42::text, $43::text, $44::text, $45::text, $46::text, $47::text, $48::text, $49::bigint, $50::bigint, $51::bigint,
      $52::bigint, $53::bigint, $54::text, $55::bigint, $56::bigint, $57::bytea, $58::bigint, $59::bigint, $60::bigint, $61::bigint, $62::bytea,
      $63::bigint, $64::bigint, $65::bytea, $66::bigint, $67::bigint, $68::bigint, $69::text, $70::bigint, $71::bigint, $72::text, $73::bytea,
      $74::bytea, $75::bigint, $76::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($77::bytea, $78::bigint, $79::bigint, $80::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) + (SELECT count(*) FROM add_)
  <> $13::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid, (SELECT count(pg_notify('onejob_public', id)) FROM unnest($81::text[]) AS
  id);

-- statements.py: Statements.verified_changes_sql (holds record, job; absent job; update record, update job; notifies)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) = $12::bigint
      THEN "public".onejob_are_absent(NULL, $11::bytea[], NULL, NULL, NULL, NULL) END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($14::bytea, $15::text, $16::text, $17::text, $18::text, $19::bytea, $20::bytea, $21::bytea, $22::bigint, $23::bigint, $24::bigint,
      $25::bigint, $26::bigint, $27::bigint, $28::text, $29::text, $30::bigint, $31::bigint, $32::bytea, $33::text, $34::text, $35::bigint,
      $36::bigint, $37::bigint, $38::bigint, $39::bytea, $40::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($41::bytea, $42::text, $43::text, $44::text, $45::text, $46::text, $47::text, $48::text, $49::bigint, $50::bigint, $51::bigint,
      $52::bigint, $53::bigint, $54::text, $55::bigint, $56::bigint, $57::bytea, $58::bigint, $59::bigint, $60::bigint, $61::bigint, $62::bytea,
      $63::bigint, $64::bigint, $65::bytea, $66::bigint, $67::bigint, $68::bigint, $69::text, $70::bigint, $71::bigint, $72::text, $73::bytea,
      $74::bytea, $75::bigint, $76::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) <> $13::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid, (SELECT count(pg_notify('onejob_public', id)) FROM unnest($77::text[]) AS
  id);

-- statements.py: Statements.verified_changes_sql (holds record, job; create job, update record, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) = $11::bigint
      THEN true END, false) AS ok
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($13::bytea, $14::text, $15::text, $16::text, $17::text, $18::text, $19::text, $20::text, $21::bigint, $22::bigint, $23::bigint,
      $24::bigint, $25::bigint, $26::text, $27::bigint, $28::bigint, $29::bytea, $30::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($31::bytea, $32::text, $33::text, $34::text, $35::text, $36::bytea, $37::bytea, $38::bytea, $39::bigint, $40::bigint, $41::bigint,
      $42::bigint, $43::bigint, $44::bigint, $45::text, $46::text, $47::bigint, $48::bigint, $49::bytea, $50::text, $51::text, $52::bigint,
      $53::bigint, $54::bigint, $55::bigint, $56::bytea, $57::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($58::bytea, $59::bigint, $60::bigint, $61::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_job) + (SELECT count(*) FROM update_record) + (SELECT count(*) FROM add_)
  <> $12::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds record, job; update record, update job)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Renew, TakeOver.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) = $11::bigint
      THEN true END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($13::bytea, $14::text, $15::text, $16::text, $17::text, $18::bytea, $19::bytea, $20::bytea, $21::bigint, $22::bigint, $23::bigint,
      $24::bigint, $25::bigint, $26::bigint, $27::text, $28::text, $29::bigint, $30::bigint, $31::bytea, $32::text, $33::text, $34::bigint,
      $35::bigint, $36::bigint, $37::bigint, $38::bytea, $39::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($40::bytea, $41::text, $42::text, $43::text, $44::text, $45::text, $46::text, $47::text, $48::bigint, $49::bigint, $50::bigint,
      $51::bigint, $52::bigint, $53::text, $54::bigint, $55::bigint, $56::bytea, $57::bigint, $58::bigint, $59::bigint, $60::bigint, $61::bytea,
      $62::bigint, $63::bigint, $64::bytea, $65::bigint, $66::bigint, $67::bigint, $68::text, $69::bigint, $70::bigint, $71::text, $72::bytea,
      $73::bytea, $74::bigint, $75::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) <> $12::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds record, job; update record, update job, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Forget.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) = $11::bigint
      THEN true END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($13::bytea, $14::text, $15::text, $16::text, $17::text, $18::bytea, $19::bytea, $20::bytea, $21::bigint, $22::bigint, $23::bigint,
      $24::bigint, $25::bigint, $26::bigint, $27::text, $28::text, $29::bigint, $30::bigint, $31::bytea, $32::text, $33::text, $34::bigint,
      $35::bigint, $36::bigint, $37::bigint, $38::bytea, $39::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($40::bytea, $41::text, $42::text, $43::text, $44::text, $45::text, $46::text, $47::text, $48::bigint, $49::bigint, $50::bigint,
      $51::bigint, $52::bigint, $53::text, $54::bigint, $55::bigint, $56::bytea, $57::bigint, $58::bigint, $59::bigint, $60::bigint, $61::bytea,
      $62::bigint, $63::bigint, $64::bytea, $65::bigint, $66::bigint, $67::bigint, $68::text, $69::bigint, $70::bigint, $71::text, $72::bytea,
      $73::bytea, $74::bigint, $75::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($76::bytea, $77::bigint, $78::bigint, $79::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) + (SELECT count(*) FROM add_)
  <> $12::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds record, job; update record, update job, add; notifies)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Settle, StoreKey.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) = $11::bigint
      THEN true END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($13::bytea, $14::text, $15::text, $16::text, $17::text, $18::bytea, $19::bytea, $20::bytea, $21::bigint, $22::bigint, $23::bigint,
      $24::bigint, $25::bigint, $26::bigint, $27::text, $28::text, $29::bigint, $30::bigint, $31::bytea, $32::text, $33::text, $34::bigint,
      $35::bigint, $36::bigint, $37::bigint, $38::bytea, $39::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($40::bytea, $41::text, $42::text, $43::text, $44::text, $45::text, $46::text, $47::text, $48::bigint, $49::bigint, $50::bigint,
      $51::bigint, $52::bigint, $53::text, $54::bigint, $55::bigint, $56::bytea, $57::bigint, $58::bigint, $59::bigint, $60::bigint, $61::bytea,
      $62::bigint, $63::bigint, $64::bytea, $65::bigint, $66::bigint, $67::bigint, $68::text, $69::bigint, $70::bigint, $71::text, $72::bytea,
      $73::bytea, $74::bigint, $75::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($76::bytea, $77::bigint, $78::bigint, $79::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) + (SELECT count(*) FROM add_)
  <> $12::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid, (SELECT count(pg_notify('onejob_public', id)) FROM unnest($80::text[]) AS
  id);

-- statements.py: Statements.verified_changes_sql (holds record, job; update record, update job; notifies)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Settle.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_job AS (
    SELECT
    FROM "public"."job" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) + (SELECT count(*) FROM hold_job) = $11::bigint
      THEN true END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($13::bytea, $14::text, $15::text, $16::text, $17::text, $18::bytea, $19::bytea, $20::bytea, $21::bigint, $22::bigint, $23::bigint,
      $24::bigint, $25::bigint, $26::bigint, $27::text, $28::text, $29::bigint, $30::bigint, $31::bytea, $32::text, $33::text, $34::bigint,
      $35::bigint, $36::bigint, $37::bigint, $38::bytea, $39::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), update_job AS (
    UPDATE "public"."job" AS t
    SET "tenant" = u."tenant", "type" = u."type", "state" = u."state", "scope" = u."scope", "key" = u."key", "actor" = u."actor", "user" = u."user",
      "created_at" = u."created_at", "changed_at" = u."changed_at", "keep_until" = u."keep_until", "run_at" = u."run_at", "priority" = u."priority",
      "delivery" = u."delivery", "attempts_max" = u."attempts_max", "timeout_ms" = u."timeout_ms", "labels" = u."labels", "due_at" = u."due_at",
      "version" = u."version", "format" = u."format", "token" = u."token", "holder" = u."holder", "lease_until" = u."lease_until", "attempts" =
      u."attempts", "usage_id" = u."usage_id", "cost_held" = u."cost_held", "events" = u."events", "ended_at" = u."ended_at", "error" = u."error",
      "started_at" = u."started_at", "logs" = u."logs", "progress" = u."progress", "finish_digest" = u."finish_digest", "verb_keys" = u."verb_keys",
      "memos" = u."memos"
    FROM (VALUES ($40::bytea, $41::text, $42::text, $43::text, $44::text, $45::text, $46::text, $47::text, $48::bigint, $49::bigint, $50::bigint,
      $51::bigint, $52::bigint, $53::text, $54::bigint, $55::bigint, $56::bytea, $57::bigint, $58::bigint, $59::bigint, $60::bigint, $61::bytea,
      $62::bigint, $63::bigint, $64::bytea, $65::bigint, $66::bigint, $67::bigint, $68::text, $69::bigint, $70::bigint, $71::text, $72::bytea,
      $73::bytea, $74::bigint, $75::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at",
      "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token",
      "holder", "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) + (SELECT count(*) FROM update_job) <> $12::bigint THEN
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN
  "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid, (SELECT count(pg_notify('onejob_public', id)) FROM unnest($76::text[]) AS
  id);

-- statements.py: Statements.verified_changes_sql (holds record; update record)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: CountHits, StoreKey.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) = $8::bigint THEN true END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($10::bytea, $11::text, $12::text, $13::text, $14::text, $15::bytea, $16::bytea, $17::bytea, $18::bigint, $19::bigint, $20::bigint,
      $21::bigint, $22::bigint, $23::bigint, $24::text, $25::text, $26::bigint, $27::bigint, $28::bytea, $29::text, $30::text, $31::bigint,
      $32::bigint, $33::bigint, $34::bigint, $35::bytea, $36::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) <> $9::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds record; update record; notifies)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Settle, StoreKey.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_record AS (
    SELECT
    FROM "public"."record" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_record) = $8::bigint THEN true END, false) AS ok
), update_record AS (
    UPDATE "public"."record" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "key" = u."key", "status" = u."status", "fingerprint" = u."fingerprint", "job_ids" = u."job_ids",
      "holder" = u."holder", "token" = u."token", "lease_until" = u."lease_until", "created_at" = u."created_at", "changed_at" = u."changed_at",
      "expires_at" = u."expires_at", "ttl_ms" = u."ttl_ms", "actor" = u."actor", "user" = u."user", "version" = u."version", "format" = u."format",
      "receipt" = u."receipt", "external_id" = u."external_id", "client_id" = u."client_id", "sequence" = u."sequence", "hits" = u."hits", "conflicts"
      = u."conflicts", "last_hit_at" = u."last_hit_at", "recent_conflicts" = u."recent_conflicts"
    FROM (VALUES ($10::bytea, $11::text, $12::text, $13::text, $14::text, $15::bytea, $16::bytea, $17::bytea, $18::bigint, $19::bigint, $20::bigint,
      $21::bigint, $22::bigint, $23::bigint, $24::text, $25::text, $26::bigint, $27::bigint, $28::bytea, $29::text, $30::text, $31::bigint,
      $32::bigint, $33::bigint, $34::bigint, $35::bytea, $36::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format",
      "receipt", "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_record) <> $9::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid, (SELECT count(pg_notify('onejob_public', id)) FROM unnest($37::text[]) AS id);

-- statements.py: Statements.verified_changes_sql (holds stream; absent usage, policy; insert record, create job, update stream, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: SubmitSequence.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_stream AS (
    SELECT
    FROM "public"."stream" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_stream) = $10::bigint THEN
      "public".onejob_are_absent(NULL, NULL, NULL, $8::bytea[], $9::bytea[], NULL) END, false) AS ok
), insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM (VALUES ($12::bytea, $13::text, $14::text, $15::text, $16::text, $17::bytea, $18::bytea, $19::bytea, $20::bigint, $21::bigint, $22::bigint,
      $23::bigint, $24::bigint, $25::bigint, $26::text, $27::text, $28::bigint, $29::bigint, $30::bytea, $31::text, $32::text, $33::bigint,
      $34::bigint, $35::bigint, $36::bigint, $37::bytea) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids",
      "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt",
      "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), create_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", 1::bigint, 1::bigint, 0::bigint, ''::bytea, 0::bigint, 0::bigint, ''::bytea,
      0::bigint, 1::bigint, 0::bigint, ''::text, 0::bigint, 0::bigint, ''::text, ''::bytea, ''::bytea, 0::bigint
    FROM (VALUES ($38::bytea, $39::text, $40::text, $41::text, $42::text, $43::text, $44::text, $45::text, $46::bigint, $47::bigint, $48::bigint,
      $49::bigint, $50::bigint, $51::text, $52::bigint, $53::bigint, $54::bytea, $55::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state",
      "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms",
      "labels", "due_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), update_stream AS (
    UPDATE "public"."stream" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "client_id" = u."client_id", "last" = u."last", "last_seen" = u."last_seen", "owner" = u."owner",
      "changed_at" = u."changed_at", "expires_at" = u."expires_at", "evicted" = u."evicted", "version" = u."version", "format" = u."format"
    FROM (VALUES ($56::bytea, $57::text, $58::text, $59::text, $60::bigint, $61::bigint, $62::text, $63::bigint, $64::bigint, $65::bigint,
      $66::bigint, $67::bigint, $68::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at",
      "expires_at", "evicted", "version", "format", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($69::bytea, $70::bigint, $71::bigint, $72::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM create_job) + (SELECT count(*) FROM
  update_stream) + (SELECT count(*) FROM add_) <> $11::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN
  "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0,
  "public".onejob_now()) END, current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds stream; update stream)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Evict.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_stream AS (
    SELECT
    FROM "public"."stream" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_stream) = $8::bigint THEN true END, false) AS ok
), update_stream AS (
    UPDATE "public"."stream" AS t
    SET "tenant" = u."tenant", "scope" = u."scope", "client_id" = u."client_id", "last" = u."last", "last_seen" = u."last_seen", "owner" = u."owner",
      "changed_at" = u."changed_at", "expires_at" = u."expires_at", "evicted" = u."evicted", "version" = u."version", "format" = u."format"
    FROM (VALUES ($10::bytea, $11::text, $12::text, $13::text, $14::bigint, $15::bigint, $16::text, $17::bigint, $18::bigint, $19::bigint,
      $20::bigint, $21::bigint, $22::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at",
      "expires_at", "evicted", "version", "format", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_stream) <> $9::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds usage, policy shared; absent policy; create record, insert job, update usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_usage) + (SELECT count(*) FROM hold_policy) =
      $12::bigint THEN "public".onejob_are_absent(NULL, NULL, NULL, NULL, $11::bytea[], NULL) END, false) AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($14::bytea, $15::text, $16::text, $17::text, $18::text, $19::bytea, $20::bytea, $21::bytea, $22::bigint, $23::bigint, $24::bigint,
      $25::bigint, $26::bigint, $27::bigint, $28::text, $29::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM (VALUES ($30::bytea, $31::text, $32::text, $33::text, $34::text, $35::text, $36::text, $37::text, $38::bigint, $39::bigint, $40::bigint,
      $41::bigint, $42::bigint, $43::text, $44::bigint, $45::bigint, $46::bytea, $47::bigint, $48::bigint, $49::bigint, $50::bigint, $51::bytea,
      $52::bigint, $53::bigint, $54::bytea, $55::bigint, $56::bigint, $57::bigint, $58::text, $59::bigint, $60::bigint, $61::text, $62::bytea,
      $63::bytea, $64::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($65::bytea, $66::text, $67::text, $68::bigint, $69::bigint, $70::bigint, $71::text, $72::bigint, $73::text, $74::text, $75::bigint,
      $76::text, $77::bigint, $78::bigint, $79::bytea, $80::bigint, $81::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($82::bytea, $83::bigint, $84::bigint, $85::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM
  update_usage) + (SELECT count(*) FROM add_) <> $13::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN
  "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0,
  "public".onejob_now()) END, current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds usage, policy shared; absent policy; insert job, update usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_usage) + (SELECT count(*) FROM hold_policy) =
      $12::bigint THEN "public".onejob_are_absent(NULL, NULL, NULL, NULL, $11::bytea[], NULL) END, false) AS ok
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM (VALUES ($14::bytea, $15::text, $16::text, $17::text, $18::text, $19::text, $20::text, $21::text, $22::bigint, $23::bigint, $24::bigint,
      $25::bigint, $26::bigint, $27::text, $28::bigint, $29::bigint, $30::bytea, $31::bigint, $32::bigint, $33::bigint, $34::bigint, $35::bytea,
      $36::bigint, $37::bigint, $38::bytea, $39::bigint, $40::bigint, $41::bigint, $42::text, $43::bigint, $44::bigint, $45::text, $46::bytea,
      $47::bytea, $48::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($49::bytea, $50::text, $51::text, $52::bigint, $53::bigint, $54::bigint, $55::text, $56::bigint, $57::text, $58::text, $59::bigint,
      $60::text, $61::bigint, $62::bigint, $63::bytea, $64::bigint, $65::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($66::bytea, $67::bigint, $68::bigint, $69::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM update_usage) + (SELECT count(*) FROM add_) <>
  $13::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds usage, policy shared; insert job, update usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_usage) + (SELECT count(*) FROM hold_policy) =
      $11::bigint THEN true END, false) AS ok
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM (VALUES ($13::bytea, $14::text, $15::text, $16::text, $17::text, $18::text, $19::text, $20::text, $21::bigint, $22::bigint, $23::bigint,
      $24::bigint, $25::bigint, $26::text, $27::bigint, $28::bigint, $29::bytea, $30::bigint, $31::bigint, $32::bigint, $33::bigint, $34::bytea,
      $35::bigint, $36::bigint, $37::bytea, $38::bigint, $39::bigint, $40::bigint, $41::text, $42::bigint, $43::bigint, $44::text, $45::bytea,
      $46::bytea, $47::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($48::bytea, $49::text, $50::text, $51::bigint, $52::bigint, $53::bigint, $54::text, $55::bigint, $56::text, $57::text, $58::bigint,
      $59::text, $60::bigint, $61::bigint, $62::bytea, $63::bigint, $64::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($65::bytea, $66::bigint, $67::bigint, $68::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM update_usage) + (SELECT count(*) FROM add_) <>
  $12::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND
  $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END,
  current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds usage, policy shared; update usage)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reconcile.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), hold_policy AS (
    SELECT
    FROM "public"."policy" AS t, (VALUES ($8::bytea, $9::bigint, $10::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR SHARE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_usage) + (SELECT count(*) FROM hold_policy) =
      $11::bigint THEN true END, false) AS ok
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($13::bytea, $14::text, $15::text, $16::bigint, $17::bigint, $18::bigint, $19::text, $20::bigint, $21::text, $22::text, $23::bigint,
      $24::text, $25::bigint, $26::bigint, $27::bytea, $28::bigint, $29::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_usage) <> $12::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds usage; absent policy; create record, insert job, update usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Reserve, Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_usage) = $9::bigint THEN
      "public".onejob_are_absent(NULL, NULL, NULL, NULL, $8::bytea[], NULL) END, false) AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($11::bytea, $12::text, $13::text, $14::text, $15::text, $16::bytea, $17::bytea, $18::bytea, $19::bigint, $20::bigint, $21::bigint,
      $22::bigint, $23::bigint, $24::bigint, $25::text, $26::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM (VALUES ($27::bytea, $28::text, $29::text, $30::text, $31::text, $32::text, $33::text, $34::text, $35::bigint, $36::bigint, $37::bigint,
      $38::bigint, $39::bigint, $40::text, $41::bigint, $42::bigint, $43::bytea, $44::bigint, $45::bigint, $46::bigint, $47::bigint, $48::bytea,
      $49::bigint, $50::bigint, $51::bytea, $52::bigint, $53::bigint, $54::bigint, $55::text, $56::bigint, $57::bigint, $58::text, $59::bytea,
      $60::bytea, $61::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($62::bytea, $63::text, $64::text, $65::bigint, $66::bigint, $67::bigint, $68::text, $69::bigint, $70::text, $71::text, $72::bigint,
      $73::text, $74::bigint, $75::bigint, $76::bytea, $77::bigint, $78::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($79::bytea, $80::bigint, $81::bigint, $82::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM
  update_usage) + (SELECT count(*) FROM add_) <> $10::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN
  "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0,
  "public".onejob_now()) END, current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds usage; absent policy; insert record, insert job, insert stream, update usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: SubmitSequence.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_usage) = $9::bigint THEN
      "public".onejob_are_absent(NULL, NULL, NULL, NULL, $8::bytea[], NULL) END, false) AS ok
), insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM (VALUES ($11::bytea, $12::text, $13::text, $14::text, $15::text, $16::bytea, $17::bytea, $18::bytea, $19::bigint, $20::bigint, $21::bigint,
      $22::bigint, $23::bigint, $24::bigint, $25::text, $26::text, $27::bigint, $28::bigint, $29::bytea, $30::text, $31::text, $32::bigint,
      $33::bigint, $34::bigint, $35::bigint, $36::bytea) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids",
      "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt",
      "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM (VALUES ($37::bytea, $38::text, $39::text, $40::text, $41::text, $42::text, $43::text, $44::text, $45::bigint, $46::bigint, $47::bigint,
      $48::bigint, $49::bigint, $50::text, $51::bigint, $52::bigint, $53::bytea, $54::bigint, $55::bigint, $56::bigint, $57::bigint, $58::bytea,
      $59::bigint, $60::bigint, $61::bytea, $62::bigint, $63::bigint, $64::bigint, $65::text, $66::bigint, $67::bigint, $68::text, $69::bytea,
      $70::bytea, $71::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_stream AS (
    INSERT INTO "public"."stream" ("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted",
      "version", "format")
    SELECT "id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at", "evicted", "version", "format"
    FROM (VALUES ($72::bytea, $73::text, $74::text, $75::text, $76::bigint, $77::bigint, $78::text, $79::bigint, $80::bigint, $81::bigint,
      $82::bigint, $83::bigint) /* ... n rows */) AS u("id", "tenant", "scope", "client_id", "last", "last_seen", "owner", "changed_at", "expires_at",
      "evicted", "version", "format")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($84::bytea, $85::text, $86::text, $87::bigint, $88::bigint, $89::bigint, $90::text, $91::bigint, $92::text, $93::text, $94::bigint,
      $95::text, $96::bigint, $97::bigint, $98::bytea, $99::bigint, $100::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($101::bytea, $102::bigint, $103::bigint, $104::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM
  insert_stream) + (SELECT count(*) FROM update_usage) + (SELECT count(*) FROM add_) <> $10::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint,
  0, 1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds usage; absent policy; update usage)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: ConsumeSlot, Reconcile, ReleaseSlot, RenewSlot, ReserveSlot, SetLimits.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_usage) = $9::bigint THEN
      "public".onejob_are_absent(NULL, NULL, NULL, NULL, $8::bytea[], NULL) END, false) AS ok
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($11::bytea, $12::text, $13::text, $14::bigint, $15::bigint, $16::bigint, $17::text, $18::bigint, $19::text, $20::text, $21::bigint,
      $22::text, $23::bigint, $24::bigint, $25::bytea, $26::bigint, $27::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM update_usage) <> $10::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (holds usage; absent record, job, policy; create record, insert job, update usage, add)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: Submit.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), hold_usage AS (
    SELECT
    FROM "public"."usage" AS t, (VALUES ($5::bytea, $6::bigint, $7::xid) /* ... n rows */) AS u("id", "was", "by")
    WHERE t.id = u.id AND t.version = u.was AND t.xmin = u.by AND (SELECT locks FROM announced) = 2
    FOR UPDATE OF t SKIP LOCKED
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND (SELECT count(*) FROM hold_usage) = $11::bigint THEN
      "public".onejob_are_absent($8::bytea[], $9::bytea[], NULL, NULL, $10::bytea[], NULL) END, false) AS ok
), create_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", 1::bigint, 1::bigint, ''::bytea, ''::text, ''::text, 0::bigint, 0::bigint, 0::bigint, 0::bigint,
      ''::bytea
    FROM (VALUES ($13::bytea, $14::text, $15::text, $16::text, $17::text, $18::bytea, $19::bytea, $20::bytea, $21::bigint, $22::bigint, $23::bigint,
      $24::bigint, $25::bigint, $26::bigint, $27::text, $28::text) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint",
      "job_ids", "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), insert_job AS (
    INSERT INTO "public"."job" ("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at",
      "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts",
      "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos")
    SELECT "id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at", "keep_until", "run_at", "priority",
      "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder", "lease_until", "attempts", "usage_id",
      "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest", "verb_keys", "memos"
    FROM (VALUES ($29::bytea, $30::text, $31::text, $32::text, $33::text, $34::text, $35::text, $36::text, $37::bigint, $38::bigint, $39::bigint,
      $40::bigint, $41::bigint, $42::text, $43::bigint, $44::bigint, $45::bytea, $46::bigint, $47::bigint, $48::bigint, $49::bigint, $50::bytea,
      $51::bigint, $52::bigint, $53::bytea, $54::bigint, $55::bigint, $56::bigint, $57::text, $58::bigint, $59::bigint, $60::text, $61::bytea,
      $62::bytea, $63::bigint) /* ... n rows */) AS u("id", "tenant", "type", "state", "scope", "key", "actor", "user", "created_at", "changed_at",
      "keep_until", "run_at", "priority", "delivery", "attempts_max", "timeout_ms", "labels", "due_at", "version", "format", "token", "holder",
      "lease_until", "attempts", "usage_id", "cost_held", "events", "ended_at", "error", "started_at", "logs", "progress", "finish_digest",
      "verb_keys", "memos")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
), update_usage AS (
    UPDATE "public"."usage" AS t
    SET "tenant" = u."tenant", "user" = u."user", "live" = u."live", "changed_at" = u."changed_at", "cost_held" = u."cost_held", "spent" = u."spent",
      "spent_at" = u."spent_at", "minutes" = u."minutes", "hours" = u."hours", "counted_at" = u."counted_at", "reservations" = u."reservations",
      "version" = u."version", "format" = u."format", "limits" = u."limits", "due_at" = u."due_at"
    FROM (VALUES ($64::bytea, $65::text, $66::text, $67::bigint, $68::bigint, $69::bigint, $70::text, $71::bigint, $72::text, $73::text, $74::bigint,
      $75::text, $76::bigint, $77::bigint, $78::bytea, $79::bigint, $80::bigint) /* ... n rows */) AS u("id", "tenant", "user", "live", "changed_at",
      "cost_held", "spent", "spent_at", "minutes", "hours", "counted_at", "reservations", "version", "format", "limits", "due_at", "was")
    WHERE t.id = u.id AND t.version = u.was AND (SELECT ok FROM held)
    RETURNING 1
), add_ AS (
    INSERT INTO "public"."attachment" ("job_id", "kind", "index", "data")
    SELECT "job_id", "kind", "index", "data"
    FROM (VALUES ($81::bytea, $82::bigint, $83::bigint, $84::bytea) /* ... n rows */) AS u("job_id", "kind", "index", "data")
    WHERE u."job_id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM create_record) + (SELECT count(*) FROM insert_job) + (SELECT count(*) FROM
  update_usage) + (SELECT count(*) FROM add_) <> $12::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0, 1, "public".onejob_now()) WHEN
  "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE "public".onejob_stamp($1::bigint, $2::bigint, 0, 0,
  "public".onejob_now()) END, current_setting('synchronous_standby_names'), pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (insert policy)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: AddActivity, SetPolicy.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $5::bigint THEN true END, false) AS ok
), insert_policy AS (
    INSERT INTO "public"."policy" ("id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at")
    SELECT "id", "tenant", "name", "body", "changed_at", "version", "format", "expires_at"
    FROM (VALUES ($7::bytea, $8::text, $9::text, $10::bytea, $11::bigint, $12::bigint, $13::bigint, $14::bigint) /* ... n rows */) AS u("id",
      "tenant", "name", "body", "changed_at", "version", "format", "expires_at")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_policy) <> $6::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.verified_changes_sql (insert record)
-- Verifies that nothing has changed since the load, stores the changes, and commits by itself. Used by: StoreKey.
WITH announced AS MATERIALIZED (
    SELECT count(pg_catalog.pg_advisory_xact_lock_shared(1869507188, $3::integer)) + count(pg_catalog.pg_advisory_xact_lock_shared(1869507189,
      $4::integer)) AS locks
), held AS MATERIALIZED (
    SELECT coalesce(CASE WHEN (SELECT locks FROM announced) = 2 AND 0 = $5::bigint THEN true END, false) AS ok
), insert_record AS (
    INSERT INTO "public"."record" ("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at",
      "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits",
      "conflicts", "last_hit_at", "recent_conflicts")
    SELECT "id", "tenant", "scope", "key", "status", "fingerprint", "job_ids", "holder", "token", "lease_until", "created_at", "changed_at",
      "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt", "external_id", "client_id", "sequence", "hits", "conflicts",
      "last_hit_at", "recent_conflicts"
    FROM (VALUES ($7::bytea, $8::text, $9::text, $10::text, $11::text, $12::bytea, $13::bytea, $14::bytea, $15::bigint, $16::bigint, $17::bigint,
      $18::bigint, $19::bigint, $20::bigint, $21::text, $22::text, $23::bigint, $24::bigint, $25::bytea, $26::text, $27::text, $28::bigint,
      $29::bigint, $30::bigint, $31::bigint, $32::bytea) /* ... n rows */) AS u("id", "tenant", "scope", "key", "status", "fingerprint", "job_ids",
      "holder", "token", "lease_until", "created_at", "changed_at", "expires_at", "ttl_ms", "actor", "user", "version", "format", "receipt",
      "external_id", "client_id", "sequence", "hits", "conflicts", "last_hit_at", "recent_conflicts")
    WHERE u."id" IS NOT NULL AND (SELECT ok FROM held)
    RETURNING 1
)
SELECT CASE WHEN NOT (SELECT ok FROM held) OR (SELECT count(*) FROM insert_record) <> $6::bigint THEN "public".onejob_stamp($1::bigint, $2::bigint, 0,
  1, "public".onejob_now()) WHEN "public".onejob_now() - $1::bigint BETWEEN 0 AND $2::bigint THEN "public".onejob_now() ELSE
  "public".onejob_stamp($1::bigint, $2::bigint, 0, 0, "public".onejob_now()) END, current_setting('synchronous_standby_names'),
  pg_current_xact_id()::xid;

-- statements.py: Statements.writers_sql
-- Lists the transactions that a barrier waits for.
WITH announced AS ( SELECT virtualtransaction, EXISTS ( SELECT FROM unnest($3::bigint[]) AS wanted (bits) WHERE objid::bigint & bits = bits ) AS
  is_concerned FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND classid::bigint = $2::bigint AND objsubid = 2 AND pid <> pg_backend_pid() AND
  database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) )
SELECT virtualtransaction
FROM announced
WHERE is_concerned AND ($1::text[] IS NULL OR virtualtransaction = ANY ($1::text[]))
UNION
SELECT writer.virtualtransaction
FROM pg_catalog.pg_locks AS writer
JOIN pg_catalog.pg_stat_activity AS session ON session.pid = writer.pid
WHERE writer.relation IN ('"public"."job"'::regclass, '"public"."record"'::regclass) AND writer.mode IN ('RowShareLock', 'RowExclusiveLock') AND
  writer.granted AND writer.pid <> pg_backend_pid() AND ($4::boolean OR session.application_name = 'onejob') AND ($1::text[] IS NULL OR
  writer.virtualtransaction = ANY ($1::text[])) AND writer.virtualtransaction NOT IN (SELECT virtualtransaction FROM announced);

-- store.py: PostgresStore
-- Ends a transaction.
COMMIT;

-- store.py: PostgresStore
-- Ends a transaction.
ROLLBACK;

-- store.py: PostgresStore._change_fast
-- Begins the wait for a standby.
BEGIN;

-- transaction.py: EMIT_WAL_MESSAGE
-- Writes a message that a commit carries to the standby, after a reply that stores nothing.
SELECT pg_logical_emit_message(true, 'onejob', '');

-- transaction.py: save_steps
-- Waits before the commit of a deletion.
SELECT pg_sleep(greatest(0, $1::float8 + $2::float8 - "public".onejob_now()) / 1000);
