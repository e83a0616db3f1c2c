-- What waits is found tenant by tenant, so that one with a million jobs keeps nobody from theirs.
DROP INDEX job_ready;
CREATE INDEX job_ready ON job (type, tenant, priority DESC, run_at, id) WHERE state IN ('pending', 'scheduled');
