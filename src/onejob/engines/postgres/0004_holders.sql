-- What a holder has, so that a claim whose answer was lost finds it again.
CREATE INDEX job_held ON job (holder) WHERE lease_until > 0;
