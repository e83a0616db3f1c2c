-- True if the settings of the ledger (a policy) are the expected ones; no expectation is always met. A transaction that has
-- announced itself calls this: whoever changes the settings finds the announcement and waits, or has committed before, and is
-- seen here. The snapshot of a REPEATABLE READ or SERIALIZABLE transaction may be older than a change; a lock on the row is
-- a serialization failure then.
CREATE FUNCTION onejob_has_settings(settings_id bytea, expected bytea) RETURNS boolean
LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    IF expected = '' THEN
        RETURN true;
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        PERFORM FROM policy WHERE id = settings_id AND body = expected FOR SHARE;
        RETURN FOUND;
    END IF;
    RETURN EXISTS (SELECT FROM policy WHERE id = settings_id AND body = expected);
END $$;

-- As before, and also that the settings of the ledger are the expected ones.
DROP FUNCTION onejob_is_uncounted(integer, integer, integer, integer, bytea, bytea);
CREATE FUNCTION onejob_is_uncounted(
    tenants_class integer, tenants integer, users_class integer, users integer, of_usage bytea, of_policy bytea,
    settings_id bytea, settings bytea
) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(tenants_class, tenants), pg_advisory_xact_lock_shared(users_class, users);
    RETURN onejob_has_settings(settings_id, settings) AND onejob_is_absent(of_usage, of_policy);
END $$;
