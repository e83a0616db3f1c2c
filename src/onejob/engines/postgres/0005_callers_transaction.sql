-- Commands in the transaction of a caller (onejob.transaction), whose session has settings of its own.

-- The durability that a service has declared in its URL, so that no caller's session promises less. Empty: undeclared.
ALTER TABLE ledger ADD COLUMN durability text COLLATE "C" NOT NULL DEFAULT '';

-- Why the session of a caller cannot keep the promise of a receipt; empty if it can.
CREATE FUNCTION onejob_session_fault(known_version integer) RETURNS text LANGUAGE sql STABLE
    RETURN CASE
        WHEN (SELECT max(version) FROM onejob_schema) <> known_version THEN 'schema'
        WHEN current_setting('fsync') = 'off' THEN 'fsync'
        WHEN current_setting('synchronous_commit') = 'off' THEN 'off'
        WHEN (SELECT durability FROM ledger) <> 'quorum' THEN ''
        WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN 'level'
        WHEN current_setting('synchronous_standby_names') = '' THEN 'standby'
        ELSE ''
    END;

-- True if neither the usage nor the policy exists; NULL is not asked for. The snapshot of a REPEATABLE READ or SERIALIZABLE
-- transaction may be older than a limit, and does not show it. An index does: an INSERT, which is undone at once, is a
-- serialization failure then. There is no SELECT in that case, because every INSERT of another transaction would conflict
-- with it under SERIALIZABLE.
CREATE FUNCTION onejob_is_absent(of_usage bytea, of_policy bytea) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
DECLARE
    usages bigint;
    policies bigint;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
        RETURN NOT EXISTS (SELECT FROM usage WHERE id = of_usage)
            AND NOT EXISTS (SELECT FROM policy WHERE id = of_policy);
    END IF;
    BEGIN
        INSERT INTO usage (
            id, tenant, "user", live, changed_at, cost_held, spent, spent_at, minutes, hours, counted_at, reservations,
            version, format, limits, due_at
        ) SELECT of_usage, '', '', 0, 0, 0, '', 0, '', '', 0, '{}', 0, 0, '', 0 WHERE of_usage IS NOT NULL
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS usages = ROW_COUNT;
        INSERT INTO policy (id, tenant, name, body, changed_at, version, format)
        SELECT of_policy, '', '', '', 0, 0, 0 WHERE of_policy IS NOT NULL
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS policies = ROW_COUNT;
        RAISE EXCEPTION 'undo both' USING ERRCODE = 'OJ003';
    EXCEPTION WHEN SQLSTATE 'OJ003' THEN
        NULL;
    END;
    RETURN usages = (of_usage IS NOT NULL)::integer AND policies = (of_policy IS NOT NULL)::integer;
END $$;

-- Announces whom a transaction concerns (see `announcement` in statements.py), then looks for limits. Each statement
-- of this function has its own snapshot in READ COMMITTED: whoever sets a limit either finds the announcement and
-- waits for the transaction, or has committed before, and is seen here.
CREATE FUNCTION onejob_is_uncounted(
    tenants_class integer, tenants integer, users_class integer, users integer, of_usage bytea, of_policy bytea
) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(tenants_class, tenants), pg_advisory_xact_lock_shared(users_class, users);
    RETURN onejob_is_absent(of_usage, of_policy);
END $$;
