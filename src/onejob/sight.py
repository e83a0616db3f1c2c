"""What a caller may see. What it may not see is not there for it."""

from .core.facts import Job
from .core.lookup import LookUpJob
from .core.receipt import Found, Missing
from .engine import Engine
from .intake import Caller
from .outcome import to_exception


async def load_visible_job(engine: Engine, caller: Caller, job_id: bytes) -> Job:
    """A job that the caller may see; NotFound where there is none."""
    (reply,) = await engine.execute([LookUpJob(tenant=caller.tenant, job_id=job_id)])
    if not isinstance(reply, Found) or reply.job is None:
        raise to_exception(reply, "")
    if not caller.can_see(reply.job.user):
        raise to_exception(Missing(reply.at), "")
    return reply.job


async def check_job_visible(engine: Engine, caller: Caller, job_id: bytes) -> bytes:
    """The id of a job that the caller may see. Whose a job is never changes, so to look first is safe."""
    if not caller.oversees:
        await load_visible_job(engine, caller, job_id)
    return job_id
