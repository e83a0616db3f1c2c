-- What operators see: policies that expire (worker presence, sessions), and counts and lists of jobs by state.

ALTER TABLE policy ADD COLUMN expires_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX policy_due ON policy (expires_at) WHERE expires_at > 0;

-- Jobs by state and type: counted in the order of the index, without sorting, and listed newest first by merging types.
CREATE INDEX job_state ON job (tenant, state, type);
