"""The base class of all ledger operations, and the check which jobs a caller may see."""

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from onejob.core.command import Command
from onejob.core.facts import Job
from onejob.core.lookup import LookUpJob
from onejob.core.replies import AnyReply, Found, Missing
from onejob.core.submit import SubmissionCommand
from onejob.engine import Engine
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from onejob.runtime.external_keys import add_external_jobs
from onejob.runtime.present import SettingsChanged, to_exception

C = TypeVar("C", bound=SubmissionCommand)
L = TypeVar("L", bound="LedgerBase")
P = ParamSpec("P")
R = TypeVar("R")

SETTINGS_ATTEMPTS_MAX = 3


def repeated_under_new_settings(
    verb: Callable[Concatenate[L, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[L, P], Coroutine[Any, Any, R]]:
    """Call a verb again if another process changed the settings of the ledger: its command was not executed."""

    @wraps(verb)
    async def call(self: L, /, *args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(SETTINGS_ATTEMPTS_MAX - 1):
            try:
                return await verb(self, *args, **kwargs)
            except SettingsChanged:
                await self._runtime.adopt_changed_settings()
        return await verb(self, *args, **kwargs)

    return call


class LedgerBase:
    def __init__(self, runtime: Runtime, caller: Caller) -> None:
        self._runtime = runtime
        self._gate = runtime.gate
        self._bound_caller = caller

    @property
    def _caller(self) -> Caller:
        """The caller under the settings that the ledger has now. Read it once for each command."""
        caller = self._bound_caller
        if caller.settings is not self._runtime.settings_body:
            caller = self._bound_caller = self._runtime.bind(caller)
        return caller

    @property
    def caller(self) -> Caller:
        """The tenant, user and actor on whose behalf this ledger acts."""
        return self._caller

    async def _add_external_jobs(self, commands: Sequence[C]) -> Sequence[C]:
        """Let these submissions find keys that `store_idempotency_key` stored for all types."""
        tenant, external_keys = self._caller.tenant, self._runtime.external_keys
        if external_keys.is_known_absent(tenant) or not any(command.key for command in commands):
            return commands
        if not await external_keys.has_keys(tenant):
            return commands
        return await add_external_jobs(self._gate, self._caller, commands, retention_ms=self._runtime.retention_ms)

    async def _renew_external_job(self, command: C) -> C:
        """A submission that waited for the holder of its key, with what is stored for all types now."""
        (renewed,) = await self._add_external_jobs((command,))
        return renewed

    async def _execute(self, command: Command[Any]) -> AnyReply:
        (reply,) = await self._gate.execute((command,))
        return reply


def runtime_of(ledger: LedgerBase) -> Runtime:
    """What all callers of a ledger share, for the servers, workers and commands that are built around one."""
    return ledger._runtime  # noqa: SLF001 - the one way to it


async def load_visible_job(engine: Engine, caller: Caller, job_id: bytes) -> Job:
    """Return the job, or raise NotFound; a job that the caller may not see is reported as missing."""
    (reply,) = await engine.execute([LookUpJob(tenant=caller.tenant, job_id=job_id)])
    if not isinstance(reply, Found) or reply.job is None:
        raise to_exception(reply, "")
    if not caller.can_see(reply.job.user):
        raise to_exception(Missing(reply.at), "")
    return reply.job


async def check_job_visible(engine: Engine, caller: Caller, job_id: bytes) -> bytes:
    """Return the id if the caller may see the job.

    Checking before acting is safe: a take-over changes the user of a job only within a key that both users share, and
    a caller that sees only its own jobs has its user in the identity of its keys.
    """
    if not caller.sees_all_users:
        await load_visible_job(engine, caller, job_id)
    return job_id
