-- True if none of these facts exists. A batch that was decided without locks calls this when it holds the rows that it read:
-- the query below then sees all that is committed by now, and not only what was when the statement of the batch began.
CREATE FUNCTION onejob_are_absent(
    records bytea[], jobs bytea[], streams bytea[], usages bytea[], policies bytea[], memos bytea[]
) RETURNS boolean LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $$
BEGIN
    RETURN NOT EXISTS (SELECT FROM record WHERE id = ANY (records))
        AND NOT EXISTS (SELECT FROM job WHERE id = ANY (jobs))
        AND NOT EXISTS (SELECT FROM stream WHERE id = ANY (streams))
        AND NOT EXISTS (SELECT FROM usage WHERE id = ANY (usages))
        AND NOT EXISTS (SELECT FROM policy WHERE id = ANY (policies))
        AND NOT EXISTS (SELECT FROM memo WHERE id = ANY (memos));
END $$;
