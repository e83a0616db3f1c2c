-- What operators see: policies that expire (worker presence, sessions), and counts and lists of jobs by state.

ALTER TABLE policy ADD COLUMN expires_at INTEGER NOT NULL DEFAULT 0;
CREATE INDEX policy_due ON policy (expires_at) WHERE expires_at > 0;

-- A tenant's jobs of one state, newest first. With the type it also covers counting by state and type.
CREATE INDEX job_state ON job (tenant, state, id, type);
