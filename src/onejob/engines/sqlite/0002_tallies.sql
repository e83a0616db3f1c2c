-- A user's own limits stand on the tally, and upkeep looks at tallies as it looks at jobs.
ALTER TABLE tally ADD COLUMN limits BLOB NOT NULL DEFAULT x'';
ALTER TABLE tally ADD COLUMN due_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX tally_due ON tally (due_at) WHERE due_at > 0;
CREATE INDEX job_slot ON job (slot) WHERE slot <> x'';
