"""What a caller may see. What it may not see is not there for it."""

from .core.facts import Job
from .core.lookup import LookUpJob
from .core.receipt import Found, Missing
from .engine import Engine
from .intake import Caller
from .outcome import failure


async def seen_job(engine: Engine, caller: Caller, job_id: bytes) -> Job:
    """A job that the caller may see; NotFound where there is none."""
    (reply,) = await engine.execute([LookUpJob(tenant=caller.tenant, job_id=job_id)])
    if not isinstance(reply, Found) or reply.job is None:
        raise failure(reply, "")
    if not caller.sees(reply.job.user):
        raise failure(Missing(reply.at), "")
    return reply.job


async def check_sight(engine: Engine, caller: Caller, job_id: bytes) -> bytes:
    """The id of a job that the caller may see. Whose a job is never changes, so to look first is safe."""
    if not caller.oversees:
        await seen_job(engine, caller, job_id)
    return job_id
