"""The stored row of a job, with what callers do not see: its token, its lease, how many events it had."""

import onejob
from onejob.core.facts import Job
from onejob.core.identity import parse_job_id
from onejob.ledger.base import load_visible_job, runtime_of


async def load_job_row(ledger: onejob.Ledger, job_id: str) -> Job:
    return await load_visible_job(runtime_of(ledger).gate, ledger.caller, parse_job_id(job_id))
