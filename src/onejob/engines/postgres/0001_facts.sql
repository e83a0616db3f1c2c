-- Facts: columns in the order of the Structs in core/facts.py. Times are milliseconds, 0 means never.
-- Unsigned 64-bit values (sequence, last) are stored as the signed integer of the same bits.
-- Identities are compared byte for byte; texts too, for no decision and no page follows a language.
-- Records are never partitioned by time: a key retried past midnight would meet no unique index.

CREATE TABLE record (
    id bytea NOT NULL, tenant text COLLATE "C" NOT NULL, scope text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL, status text COLLATE "C" NOT NULL, fingerprint bytea NOT NULL,
    job_ids bytea NOT NULL, holder bytea NOT NULL, token bigint NOT NULL, lease_until bigint NOT NULL,
    created_at bigint NOT NULL, changed_at bigint NOT NULL, expires_at bigint NOT NULL, ttl_ms bigint NOT NULL,
    actor text COLLATE "C" NOT NULL, "user" text COLLATE "C" NOT NULL, version bigint NOT NULL,
    format bigint NOT NULL, receipt bytea NOT NULL, external_id text COLLATE "C" NOT NULL,
    client_id text COLLATE "C" NOT NULL, sequence bigint NOT NULL, hits bigint NOT NULL,
    conflicts bigint NOT NULL, last_hit_at bigint NOT NULL,
    CONSTRAINT record_id PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX record_due ON record (expires_at, id);

CREATE TABLE job (
    id bytea NOT NULL, tenant text COLLATE "C" NOT NULL, type text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL, scope text COLLATE "C" NOT NULL, key text COLLATE "C" NOT NULL,
    actor text COLLATE "C" NOT NULL, "user" text COLLATE "C" NOT NULL, created_at bigint NOT NULL,
    changed_at bigint NOT NULL, keep_until bigint NOT NULL, run_at bigint NOT NULL, priority bigint NOT NULL,
    delivery text COLLATE "C" NOT NULL, attempts_max bigint NOT NULL, timeout_ms bigint NOT NULL,
    labels bytea NOT NULL, due_at bigint NOT NULL, version bigint NOT NULL, format bigint NOT NULL,
    token bigint NOT NULL, holder bytea NOT NULL, lease_until bigint NOT NULL, attempts bigint NOT NULL,
    usage_id bytea NOT NULL, cost_held bigint NOT NULL, events bigint NOT NULL, ended_at bigint NOT NULL,
    error text COLLATE "C" NOT NULL, started_at bigint NOT NULL, logs bigint NOT NULL,
    progress text COLLATE "C" NOT NULL, finish_digest bytea NOT NULL, verb_keys bytea NOT NULL,
    CONSTRAINT job_id PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);
CREATE INDEX job_tenant ON job (tenant, id);
CREATE INDEX job_due ON job (due_at, id) WHERE due_at > 0;
-- Ready jobs are found tenant by tenant, so that a tenant with a million jobs keeps no other from its own.
CREATE INDEX job_ready ON job (type, tenant, priority DESC, run_at, id) WHERE state IN ('pending', 'scheduled');
-- The jobs that a usage counts, so that they can be counted again.
CREATE INDEX job_usage ON job (usage_id, id) WHERE usage_id <> '';
-- The jobs of a holder, so that a claim whose reply was lost finds them again.
CREATE INDEX job_held ON job (holder) WHERE lease_until > 0;

CREATE TABLE attachment (
    job_id bytea NOT NULL, kind bigint NOT NULL, index bigint NOT NULL, data bytea NOT NULL,
    CONSTRAINT attachment_place PRIMARY KEY (job_id, kind, index)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02);

CREATE TABLE stream (
    id bytea NOT NULL, tenant text COLLATE "C" NOT NULL, scope text COLLATE "C" NOT NULL,
    client_id text COLLATE "C" NOT NULL, last bigint NOT NULL, last_seen bigint NOT NULL,
    owner text COLLATE "C" NOT NULL, changed_at bigint NOT NULL, expires_at bigint NOT NULL,
    evicted bigint NOT NULL, version bigint NOT NULL, format bigint NOT NULL,
    CONSTRAINT stream_id PRIMARY KEY (id)
);
CREATE INDEX stream_due ON stream (expires_at, id) WHERE expires_at > 0;

-- One row per user, updated by every job of that user: free space on the page keeps the updates off the indexes.
CREATE TABLE usage (
    id bytea NOT NULL, tenant text COLLATE "C" NOT NULL, "user" text COLLATE "C" NOT NULL, live bigint NOT NULL,
    changed_at bigint NOT NULL, cost_held bigint NOT NULL, spent text COLLATE "C" NOT NULL,
    spent_at bigint NOT NULL, minutes text COLLATE "C" NOT NULL, hours text COLLATE "C" NOT NULL,
    counted_at bigint NOT NULL, reservations text COLLATE "C" NOT NULL, version bigint NOT NULL,
    format bigint NOT NULL, limits bytea NOT NULL, due_at bigint NOT NULL,
    CONSTRAINT usage_id PRIMARY KEY (id)
) WITH (fillfactor = 50);
CREATE INDEX usage_due ON usage (due_at, id) WHERE due_at > 0;

CREATE TABLE policy (
    id bytea NOT NULL, tenant text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, body bytea NOT NULL,
    changed_at bigint NOT NULL, version bigint NOT NULL, format bigint NOT NULL,
    CONSTRAINT policy_id PRIMARY KEY (id)
) WITH (fillfactor = 50);

-- The identity of this store. A process that finds another one refuses to serve: keys that it answered would be new.
CREATE TABLE ledger (id text COLLATE "C" NOT NULL, CONSTRAINT ledger_id PRIMARY KEY (id));
INSERT INTO ledger VALUES (replace(gen_random_uuid()::text, '-', ''));

-- The clock of every process that shares this store.
CREATE FUNCTION onejob_now() RETURNS double precision LANGUAGE sql VOLATILE
    RETURN extract(epoch FROM clock_timestamp())::double precision * 1000;

-- The timestamp of a batch that was decided before it was sent. It lies behind the clock by at most `late_ms`, which is
-- how long a deletion waits before it commits: so no batch is dated before a deletion that it follows. No reply
-- leaves before the clock has passed the timestamp. A batch that was decided on the absence of some facts fails if
-- one of them is there.
CREATE FUNCTION onejob_stamp(
    stamp bigint, late_ms bigint, inserted bigint, there bigint, clock double precision
) RETURNS double precision LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF there > 0 THEN
        RAISE EXCEPTION 'a fact is there already' USING ERRCODE = 'OJ002';
    END IF;
    IF clock - stamp > late_ms OR stamp - clock > late_ms THEN
        RAISE EXCEPTION 'the batch is dated % ms before the clock', clock - stamp USING ERRCODE = 'OJ001';
    END IF;
    IF stamp > clock THEN
        PERFORM pg_sleep((stamp - clock) / 1000);
    END IF;
    RETURN clock;
END $$;

-- Queries that were written for SQLite say datetime('now'): a moment in UTC.
CREATE FUNCTION datetime(moment text) RETURNS timestamptz LANGUAGE sql STABLE
    RETURN CASE WHEN moment = 'now' THEN now() ELSE moment::timestamp AT TIME ZONE 'UTC' END;

-- Views for operators. Expired rows are not shown. A user whose name is a number has it as `user_id`.
CREATE VIEW idempotency_keys AS
SELECT
    key AS idempotency_key,
    CASE WHEN external_id <> '' THEN external_id
        ELSE encode(substr(job_ids, 1, 16), 'hex')::uuid::text END AS job_id,
    CASE WHEN "user" ~ '^[0-9]{1,18}$' THEN "user"::bigint END AS user_id,
    to_timestamp(created_at / 1000.0) AS created_at,
    to_timestamp(greatest(expires_at, lease_until) / 1000.0) AS expires_at,
    tenant, scope, status, "user"
FROM record
WHERE (job_ids <> '' OR external_id <> '') AND greatest(expires_at, lease_until) >= onejob_now();

CREATE VIEW job_reservations AS
SELECT
    held.key AS reservation_id,
    CASE WHEN usage."user" ~ '^[0-9]{1,18}$' THEN usage."user"::bigint END AS user_id,
    to_timestamp((held.value ->> 0)::bigint / 1000.0) AS created_at,
    to_timestamp((held.value ->> 1)::bigint / 1000.0) AS expires_at,
    ((held.value ->> 2) = 'consumed')::integer AS consumed,
    usage.tenant, usage."user"
FROM usage CROSS JOIN LATERAL jsonb_each(usage.reservations::jsonb) AS held
WHERE (held.value ->> 2) <> 'released' AND (held.value ->> 1)::bigint >= onejob_now();

-- The statements have one plan whatever the tables hold, so a tenth of the usual sample is enough. Wide tables that
-- grow fast are sampled often.
DO $$
DECLARE
    place record;
BEGIN
    FOR place IN
        SELECT attrelid::regclass AS owner, attname AS name FROM pg_attribute
        WHERE attrelid IN ('record'::regclass, 'job'::regclass, 'attachment'::regclass)
            AND attnum > 0 AND NOT attisdropped
    LOOP
        EXECUTE format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS 10', place.owner, place.name);
    END LOOP;
END $$;
