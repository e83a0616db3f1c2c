-- A user's own limits stand on the tally, and upkeep looks at tallies as it looks at jobs.
ALTER TABLE tally ADD COLUMN limits bytea NOT NULL DEFAULT '', ADD COLUMN due_at bigint NOT NULL DEFAULT 0;
CREATE INDEX tally_due ON tally (due_at, id) WHERE due_at > 0;

-- The jobs that bear the mark of a tally, so that they can be counted again.
CREATE INDEX job_slot ON job (slot, id) WHERE slot <> '';

-- What the verbs of workers leave on a job.
ALTER TABLE job ADD COLUMN started_at bigint NOT NULL DEFAULT 0, ADD COLUMN logs bigint NOT NULL DEFAULT 0,
    ADD COLUMN progress text COLLATE "C" NOT NULL DEFAULT '', ADD COLUMN seal bytea NOT NULL DEFAULT '';

-- What is due is looked at in one order, page by page.
DROP INDEX record_due;
DROP INDEX job_due;
DROP INDEX stream_due;
CREATE INDEX record_due ON record (expires_at, id);
CREATE INDEX job_due ON job (due_at, id) WHERE due_at > 0;
CREATE INDEX stream_due ON stream (expires_at, id) WHERE expires_at > 0;

-- A batch that was decided on the absence of some facts falls if one of them is there.
DROP FUNCTION onejob_stamp(bigint, bigint, bigint, double precision);
CREATE FUNCTION onejob_stamp(
    stamp bigint, late_ms bigint, inserted bigint, there bigint, clock double precision
) RETURNS double precision LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF there > 0 THEN
        RAISE EXCEPTION 'something is there' USING ERRCODE = 'OJ002';
    END IF;
    IF clock - stamp > late_ms OR stamp - clock > late_ms THEN
        RAISE EXCEPTION 'the batch is dated % ms before the clock', clock - stamp USING ERRCODE = 'OJ001';
    END IF;
    IF stamp > clock THEN
        PERFORM pg_sleep((stamp - clock) / 1000);
    END IF;
    RETURN clock;
END $$;
