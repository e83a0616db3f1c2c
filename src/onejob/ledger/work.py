"""Work operations of the ledger: claim, start, extend, finish, release; results and waiting."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct, json
from msgspec.structs import replace

from onejob.core.command import Command
from onejob.core.facts import Job
from onejob.core.identity import checked_name, format_job_id, parse_job_id, policy_id, usage_id
from onejob.core.limits import QUOTA_POLICY_NAME, Amount, to_micros
from onejob.core.replies import AnyReply, Extended, Finished, Reason, Refused, Released, Resolved, Started
from onejob.core.states import ENDED_STATES, JobState
from onejob.core.timestamps import checked_timedelta, to_duration_ms, to_utc
from onejob.core.typed_json import encode_safely, to_encodable
from onejob.core.work import (
    LEASE_MS_DEFAULT,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    LOG_CHARS_MAX,
    LOG_LINES_AT_ONCE_MAX,
    PROGRESS_BYTES_MAX,
    RESULT_BYTES_MAX,
    Extend,
    Finish,
    FinishOutcome,
    Release,
    Resolution,
    Resolve,
    Start,
    progress_bytes_max,
)
from onejob.errors import Invalid, NotFound, Unavailable, WorkRefused
from onejob.ids import Ids
from onejob.resources.jobs import JobView, to_job_view
from onejob.runtime.claims import CLAIM_MAX, ClaimedJob, ClaimRequest
from onejob.runtime.present import load_input, load_result, to_exception

from .base import LedgerBase, load_visible_job
from .parse import build_verb_key

HOLDER_BYTES_MAX = 64
NOTE_CHARS_MAX = 500
DELAY_MS_MAX = 365 * 24 * 3600 * 1000
TOKEN_MAX = 2**63 - 1
LEASE_DEFAULT = timedelta(milliseconds=LEASE_MS_DEFAULT)
WAIT_MAX = timedelta(days=36_500)  # of a wait without a timeout
TYPES_MAX = 100
_ELLIPSIS = "…"
_ENCODER = json.Encoder(enc_hook=to_encodable)
_UNSET: Any = object()
_WORK_REFUSALS = (
    Reason.TIMED_OUT,
    Reason.NOT_ALLOWED,
    Reason.NOT_READY,
    Reason.SEQUENCE_GAP,
    Reason.STEP_CONFLICT,
    Reason.STEP_INTERRUPTED,
)


class Fence(Struct, frozen=True, kw_only=True):
    """What proves that a claimed job is still held: for callers that have no `Attempt`, such as HTTP workers."""

    job_id: bytes
    token: int
    holder: bytes
    lease_ms: int = LEASE_MS_DEFAULT

    def __post_init__(self) -> None:
        if not 1 <= self.token <= TOKEN_MAX:
            raise Invalid("token", "a token is the number that came with the job; send it unchanged")
        checked_holder(self.holder)


class Attempt(Struct, frozen=True):
    """A claimed job, held until its lease ends: start it, extend it during the work, then finish or release it."""

    job_row: Job
    input: bytes  # JSON; empty if only the fence was given
    lease_ms: int

    def __repr__(self) -> str:
        return f"<Attempt {self.job_id} {self.job_row.type} token={self.token}>"

    @property
    def job(self) -> JobView:
        return to_job_view(self.job_row)

    @property
    def job_id(self) -> str:
        """The same in every attempt, so it can serve as the idempotency key of calls to other systems."""
        return format_job_id(self.job_row.id)

    @property
    def token(self) -> int:
        return self.job_row.token

    @property
    def holder(self) -> bytes:
        return self.job_row.holder

    @property
    def lease_until(self) -> datetime:
        return to_utc(self.job_row.lease_until)

    @property
    def deadline(self) -> datetime | None:
        """When this attempt times out; None if the job has no timeout or was not started."""
        job = self.job_row
        return to_utc(job.started_at + job.timeout_ms) if job.timeout_ms and job.started_at else None

    @property
    def value(self) -> Any:
        """The input, decoded."""
        return json.decode(self.input)


class WorkOperations(LedgerBase):
    async def claim(
        self,
        types: str | Sequence[str],
        *,
        limit: int = 1,
        lease: timedelta = LEASE_DEFAULT,
        start: bool = False,
        wait: timedelta = timedelta(0),
        holder: bytes | None = None,
    ) -> list[Attempt]:
        """Claim ready jobs, most urgent first. With `start` they are started in the same step.

        A retry with the same holder gets the jobs that it has won before.
        """
        request = build_claim_request(
            self._runtime.ids, types, tenant=self._caller.tenant, limit=limit, lease=lease, start=start, holder=holder
        )
        seconds = checked_timedelta("wait", wait).total_seconds()
        claimed = await self._runtime.claims.claim_or_wait(request, seconds)
        return [build_attempt(job, request.lease_ms) for job in claimed]

    async def start(self, attempt: Attempt | Fence) -> Attempt:
        """Start a claimed job. Of several callers one succeeds; the others get LeaseLost and must not run it."""
        reply = await self._execute(Start(**self._fence_fields(attempt), lease_ms=attempt.lease_ms))
        started = _continued_attempt(attempt, reply, Started)
        if started.input:
            return started
        job = started.job_row
        return replace(started, input=await load_input(self._gate, job.tenant, job.id))

    async def extend(
        self, attempt: Attempt | Fence, *, progress: object = _UNSET, logs: Sequence[str] = (), offset: int = -1
    ) -> Attempt:
        """Extend the lease. Log lines are appended; with `offset`, lines that are sent again are stored once."""
        job = attempt.job_row if isinstance(attempt, Attempt) else None
        if offset < 0:
            offset = 0 if job is None else job.logs
        command = Extend(
            **self._fence_fields(attempt),
            lease_ms=attempt.lease_ms,
            progress="" if progress is _UNSET else checked_progress(progress, job),
            logs=checked_lines(logs),
            offset=checked_offset(offset),
        )
        return _continued_attempt(attempt, await self._execute(command), Extended)

    async def finish(
        self,
        attempt: Attempt | Fence,
        result: Any = None,
        *,
        error: str | None = None,
        message: str = "",
        final: bool = False,
        retry_after: timedelta | None = None,
        cost: Amount | None = None,
    ) -> JobView:
        """Report how the attempt ended. After an error the job is retried while attempts are left, unless it is final.

        `message`, of an exception, is for operators only: see `failures`. A result that comes with an error is stored if
        the job has then ended.
        """
        command = Finish(
            **self._fence_fields(attempt),
            outcome=FinishOutcome.SUCCESS if error is None else FinishOutcome.FAILED,
            result=encode_result(result),
            error=error or "",
            message="" if error is None else message,
            final=final,
            retry_ms=0 if retry_after is None else checked_delay(max(to_duration_ms("retry_after", retry_after), 1)),
            cost=None if cost is None else to_micros("cost", cost),
            actor=self._caller.actor,
            retention_ms=self._runtime.retention_ms,
        )
        return await self._execute_expecting(command, Finished)

    async def release(self, attempt: Attempt | Fence, *, delay: timedelta = timedelta(0)) -> JobView:
        """Give the job back, ready at once or after a delay. The attempt is not counted."""
        command = Release(**self._fence_fields(attempt), delay_ms=checked_delay(max(to_duration_ms("delay", delay), 0)))
        return await self._execute_expecting(command, Released)

    async def resolve(
        self, job_id: str, resolution: Resolution | str, *, note: str = "", idempotency_key: str | None = None
    ) -> JobView:
        """Decide as an operator about a lost job: it succeeded, it failed, or it runs again.

        With a key, a retry changes nothing and returns the job as it is.
        """
        job = await load_visible_job(self._gate, self._caller, parse_job_id(job_id))
        command = Resolve(
            tenant=job.tenant,
            job_id=job.id,
            resolution=_parse_resolution(resolution),
            actor=self._caller.actor,
            note=checked_note(note),
            user=job.user,
            usage_id=usage_id(job.tenant, job.user),
            policy_id=policy_id(job.tenant, QUOTA_POLICY_NAME),
            retention_ms=self._runtime.retention_ms,
            verb_key=build_verb_key(idempotency_key),
        )
        return await self._execute_expecting(command, Resolved)

    async def rerun(self, job_id: str, *, note: str = "", idempotency_key: str | None = None) -> JobView:
        """Run a failed or lost job again: the same id, a new token, and its attempts counted from the first."""
        return await self.resolve(job_id, Resolution.RERUN, note=note, idempotency_key=idempotency_key)

    async def result(self, job_id: str) -> Any:
        """The result of a job, decoded; NotFound while it has none."""
        return json.decode(await self.result_json(job_id))

    async def result_json(self, job_id: str) -> bytes:
        """The result of a job as JSON; NotFound while it has none."""
        job = await load_visible_job(self._gate, self._caller, parse_job_id(job_id))
        data = await load_result(self._gate, job)
        if data or job.state is JobState.SUCCESS:
            return data or b"null"
        raise NotFound(f"the job is {job.state} and has no result; ask again when it has succeeded")

    async def wait(self, job_id: str, timeout: timedelta | float | None = None) -> JobView:
        """The job when it has ended; TimeoutError if that takes longer than `timeout`, a timedelta or seconds."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        job = await self.wait_at_most(job_id, WAIT_MAX if seconds is None else timedelta(seconds=max(0, seconds)))
        if job.has_ended:
            return job
        if self._runtime.job_watcher.is_closed:
            raise Unavailable(f"the ledger was closed while job {job_id} was {job.state}; wait for it with another one")
        raise TimeoutError(f"job {job_id} is {job.state} after {seconds or 0:g} s; look again later")

    async def wait_at_most(self, job_id: str, timeout: timedelta) -> JobView:
        """Return the job when it has ended, or as it is when the time is up."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout.total_seconds()
        job = await load_visible_job(self._gate, self._caller, parse_job_id(job_id))
        if job.state in ENDED_STATES or timeout <= timedelta(0):
            return to_job_view(job)
        async with self._runtime.job_watcher.watch(job.tenant, job.id) as watched:
            while watched.job_row.state not in ENDED_STATES and not watched.closed:
                version = watched.version
                if watched.deleted:
                    raise NotFound("the job was deleted meanwhile; stop waiting for it")
                if not await watched.wait_for_change(version, max(until - loop.time(), 0)):
                    break
            return to_job_view(watched.job_row)

    async def _execute_expecting(self, command: Command[Any], kind: type[Finished | Released | Resolved]) -> JobView:
        reply = await self._execute(command)
        if isinstance(reply, kind):
            return to_job_view(reply.job)
        raise to_work_exception(reply)

    def _fence_fields(self, attempt: Attempt | Fence) -> dict[str, Any]:
        return work_fence_fields(attempt, self._caller.tenant)


def build_claim_request(
    ids: Ids,
    types: str | Sequence[str],
    *,
    tenant: str,
    limit: int = 1,
    lease: timedelta = LEASE_DEFAULT,
    start: bool = False,
    holder: bytes | None = None,
    worker: str = "",
) -> ClaimRequest:
    """Check the arguments of `claim`. Without a holder one is drawn, which begins with the worker's name."""
    return ClaimRequest(
        types=checked_types(types),
        holder=draw_holder(ids, worker) if holder is None else checked_holder(holder),
        limit=checked_limit(limit),
        lease_ms=checked_lease(to_duration_ms("lease", lease)),
        start=start,
        tenant=tenant,
        has_named_holder=holder is not None,
    )


def draw_holder(ids: Ids, worker: str = "") -> bytes:
    """Draw a holder for one claim or start."""
    return checked_holder(f"{worker}:{ids.nonce()}".encode()) if worker else ids.nonce().encode()


def to_work_exception(reply: AnyReply) -> BaseException:
    if isinstance(reply, Refused) and reply.reason in _WORK_REFUSALS:
        return WorkRefused(reply.reason, reply.message, reply.details)
    return to_exception(reply, "")


def build_attempt(claimed: ClaimedJob, lease_ms: int) -> Attempt:
    return Attempt(claimed.job, claimed.input, lease_ms)


def attempt_fence_fields(attempt: Attempt) -> dict[str, Any]:
    """The fields by which a worker's command is accepted or refused as stale."""
    job = attempt.job_row
    return {"tenant": job.tenant, "job_id": job.id, "token": job.token, "holder": job.holder}


def work_fence_fields(attempt: Attempt | Fence, tenant: str) -> dict[str, Any]:
    """The same for callers that may have no `Attempt`."""
    if isinstance(attempt, Attempt):
        return attempt_fence_fields(attempt)
    return {"tenant": tenant, "job_id": attempt.job_id, "token": attempt.token, "holder": attempt.holder}


def encode_result(result: Any) -> bytes:
    """A result as JSON; empty for None."""
    if result is None:
        return b""
    try:
        data = encode_safely(_ENCODER, result)
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid("result", f"a result is JSON, and this is not ({type(error).__name__}); convert it") from None
    if len(data) > RESULT_BYTES_MAX:
        raise Invalid(
            "result", f"a result has at most {RESULT_BYTES_MAX} bytes; store it elsewhere, return a reference"
        )
    return data


def checked_lease(lease_ms: int) -> int:
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        raise Invalid("lease", "a lease lasts from 100 milliseconds to 24 hours; choose another")
    return lease_ms


def checked_holder(holder: bytes) -> bytes:
    if not 1 <= len(holder) <= HOLDER_BYTES_MAX:
        raise Invalid("holder", f"a holder has 1 to {HOLDER_BYTES_MAX} bytes; choose another")
    return holder


def checked_delay(delay_ms: int) -> int:
    if not 0 <= delay_ms <= DELAY_MS_MAX:
        raise Invalid("delay", "a delay is not negative and at most a year; choose another")
    return delay_ms


def checked_offset(offset: int) -> int:
    if not 0 <= offset <= TOKEN_MAX:
        raise Invalid("offset", "offset is the number of log lines sent before these; send that")
    return offset


def checked_note(note: str) -> str:
    if len(note) > NOTE_CHARS_MAX:
        raise Invalid("note", f"a note has at most {NOTE_CHARS_MAX} characters; shorten it")
    return note


def checked_progress(progress: object, job: Job | None = None) -> str:
    """Progress as JSON, if it fits into the job row."""
    data = encode_safely(_ENCODER, progress)
    room = PROGRESS_BYTES_MAX if job is None else progress_bytes_max(job)
    if len(data) > room:
        raise Invalid("progress", f"progress of this job has at most {room} bytes as JSON; shorten it")
    return data.decode()


def checked_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Log lines as they are stored: a line that is too long is truncated."""
    if len(lines) > LOG_LINES_AT_ONCE_MAX:
        raise Invalid("logs", f"at most {LOG_LINES_AT_ONCE_MAX} lines are sent at once; send the others next")
    return tuple(map(truncated_line, lines))


def truncated_line(line: str) -> str:
    return line if len(line) <= LOG_CHARS_MAX else line[: LOG_CHARS_MAX - 1] + _ELLIPSIS


def checked_types(types: str | Sequence[str]) -> tuple[str, ...]:
    names = (types,) if isinstance(types, str) else tuple(types)
    if not 1 <= len(names) <= TYPES_MAX:
        raise Invalid("types", f"a claim is for 1 to {TYPES_MAX} job types; name that many")
    return tuple(dict.fromkeys(checked_name("type", name) for name in names))


def checked_limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= CLAIM_MAX:
        raise Invalid("limit", f"a claim is for 1 to {CLAIM_MAX} jobs; choose such a limit")
    return limit


def _parse_resolution(resolution: Resolution | str) -> Resolution:
    try:
        return Resolution(resolution)
    except ValueError:
        raise Invalid("resolution", f"choose one of {', '.join(Resolution)}") from None


def _continued_attempt(attempt: Attempt | Fence, reply: AnyReply, kind: type[Started | Extended]) -> Attempt:
    if not isinstance(reply, kind):
        raise to_work_exception(reply)
    job: Job = reply.job
    return Attempt(job, attempt.input if isinstance(attempt, Attempt) else b"", attempt.lease_ms)
