"""What every part of the front door stands on: a caller, in front of what all callers share."""

from typing import Any

from onejob.core.command import Command
from onejob.core.facts import Job
from onejob.core.lookup import LookUpJob
from onejob.core.replies import AnyReply, Found, Missing
from onejob.engine import Engine

from .parse import Caller
from .present import to_exception
from .runtime import Runtime

# What a caller may see. What it may not see is not there for it.


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


class LedgerBase:
    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self._runtime = runtime
        self._gate = runtime.gate
        self._caller = caller

    async def _execute(self, command: Command[Any]) -> AnyReply:
        (reply,) = await self._gate.execute((command,))
        return reply
