"""The verbs of workers and operators, for edges: checked values in, heads out, refusals raised.

A worker is bound to its tenant, not to a user: whoever may work runs the jobs of all.
"""

from collections.abc import Sequence

from msgspec import json

from .core.facts import Job
from .core.finish import Ends, Finish, Resolution, Resolve
from .core.identity import policy_id, tally_id
from .core.ids import parse_id
from .core.invalid import Invalid
from .core.limits import POLICY_NAME
from .core.receipt import AnyReply, Extended, Finished, Reason, Refused, Released, Resolved, Started
from .core.work import (
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    LOG_CHARS_MAX,
    LOG_LINES_AT_ONCE_MAX,
    PROGRESS_CHARS_MAX,
    Extend,
    Release,
    Start,
)
from .errors import WorkRefused
from .front import Front
from .handing import Handed, Wish, handed
from .outcome import failure, input_of
from .sight import seen_job

CLAIMS_MAX = 100
TYPES_MAX = 100
HOLDER_BYTES_MAX = 64
DELAY_MS_MAX = 365 * 24 * 3600 * 1000
NOTE_CHARS_MAX = 500
_TOKEN_MAX = 2**63 - 1
_WORK = (Reason.STALE, Reason.TIMED_OUT, Reason.NOT_ALLOWED, Reason.NOT_READY, Reason.SEQUENCE_GAP)


class Verbs(Front):
    async def claim(self, wish: Wish) -> list[Handed]:
        """Jobs for a wish; none when there are none."""
        return await handed(self._gate, wish)

    def wish(
        self,
        types: Sequence[str],
        limit: int,
        lease_ms: int,
        *,
        holder: str | None,
        worker: str = "",
        start: bool = False,
    ) -> Wish:
        """A wish for jobs, checked. Without a holder one is drawn, which begins with the worker's name."""
        if not 1 <= len(types) <= TYPES_MAX:
            raise Invalid("types", f"name 1 to {TYPES_MAX} types of jobs")
        if not 1 <= limit <= CLAIMS_MAX:
            raise Invalid("limit", f"limit is a whole number from 1 to {CLAIMS_MAX}")
        return Wish(
            tenant=self._caller.tenant,
            types=tuple(dict.fromkeys(types)),
            limit=limit,
            holder=self._holder(holder, worker),
            lease_ms=checked_lease(lease_ms),
            start=start,
            named=holder is not None,
        )

    async def start(
        self, job_id: str, token: int, *, holder: str | None, worker: str, lease_ms: int
    ) -> Handed:
        command = Start(
            tenant=self._caller.tenant,
            job_id=parse_id(job_id),
            token=_token(token),
            holder=self._holder(holder, worker),
            lease_ms=checked_lease(lease_ms),
        )
        reply = await self._ask(command)
        if not isinstance(reply, Started):
            raise refused(reply)
        return Handed(reply.job, await input_of(self._gate, self._caller.tenant, reply.job.id))

    async def extend(
        self,
        job_id: str,
        token: int,
        holder: str,
        *,
        lease_ms: int,
        progress: bytes = b"",
        logs: Sequence[str] = (),
        offset: int = 0,
    ) -> Job:
        """Log lines are cut, not refused: a worker must not lose its job by them."""
        progress = json.format(progress, indent=-1) if progress else b""  # one line, for streams of events
        if len(progress) > PROGRESS_CHARS_MAX:
            raise Invalid("progress", f"progress takes at most {PROGRESS_CHARS_MAX} bytes as JSON; say less")
        if len(logs) > LOG_LINES_AT_ONCE_MAX:
            raise Invalid(
                "logs", f"at most {LOG_LINES_AT_ONCE_MAX} log lines are taken at once; send the rest next"
            )
        if not 0 <= offset <= _TOKEN_MAX:
            raise Invalid("offset", "offset is how many log lines were sent before these")
        command = Extend(
            tenant=self._caller.tenant,
            job_id=parse_id(job_id),
            token=_token(token),
            holder=_holder_bytes(holder),
            lease_ms=checked_lease(lease_ms),
            progress=progress.decode(),
            logs=tuple(line[:LOG_CHARS_MAX] for line in logs),
            offset=offset,
        )
        return _of(await self._ask(command), Extended)

    async def finish(
        self,
        job_id: str,
        token: int,
        holder: str,
        *,
        result: bytes = b"",
        error: str | None = None,
        final: bool = False,
        retry_ms: int = 0,
        cost: int | None = None,
    ) -> Job:
        """An error says that the attempt failed; without one it succeeded."""
        command = Finish(
            tenant=self._caller.tenant,
            job_id=parse_id(job_id),
            token=_token(token),
            holder=_holder_bytes(holder),
            ends=Ends.SUCCESS if error is None else Ends.FAILED,
            result=result,
            error=error or "",
            final=final,
            retry_ms=_delay("retryAfterSeconds", retry_ms),
            cost=cost,
            actor=self._caller.actor,
            retention_ms=self._host.retention_ms,
        )
        return _of(await self._ask(command), Finished)

    async def release(self, job_id: str, token: int, holder: str, *, delay_ms: int = 0) -> Job:
        command = Release(
            tenant=self._caller.tenant,
            job_id=parse_id(job_id),
            token=_token(token),
            holder=_holder_bytes(holder),
            delay_ms=_delay("delaySeconds", delay_ms),
        )
        return _of(await self._ask(command), Released)

    async def let_go(self, taken: Sequence[Handed]) -> None:
        """Hand back what nobody will hear of. What is at most once and was started stays as it is."""
        await self._gate.execute(
            [
                Release(tenant=one.job.tenant, job_id=one.job.id, token=one.job.token, holder=one.job.holder)
                for one in taken
            ]
        )

    async def resolve(self, job_id: str, resolution: Resolution, note: str = "") -> Job:
        if len(note) > NOTE_CHARS_MAX:
            raise Invalid("note", f"a note has at most {NOTE_CHARS_MAX} characters; shorten it")
        tenant = self._caller.tenant
        job = await seen_job(self._gate, self._caller, parse_id(job_id))  # whose job it is never changes
        command = Resolve(
            tenant=tenant,
            job_id=job.id,
            resolution=resolution,
            actor=self._caller.actor,
            note=note,
            user=job.user,
            tally_id=tally_id(tenant, job.user),
            policy_id=policy_id(tenant, POLICY_NAME),
            retention_ms=self._host.retention_ms,
        )
        return _of(await self._ask(command), Resolved)

    def _holder(self, holder: str | None, worker: str) -> bytes:
        if holder is None:
            return _holder_bytes(":".join(filter(None, (worker, self._host.ids.nonce()))))
        return _holder_bytes(holder)


def checked_lease(lease_ms: int) -> int:
    if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
        least, most = LEASE_MS_MIN / 1000, LEASE_MS_MAX // 1000
        raise Invalid(
            "leaseSeconds", f"leaseSeconds is a number from {least} to {most}; choose one in between"
        )
    return lease_ms


def refused(reply: AnyReply) -> BaseException:
    if isinstance(reply, Refused) and reply.reason in _WORK:
        return WorkRefused(reply.reason, reply.message, reply.details)
    return failure(reply, "")


def _of(reply: AnyReply, kind: type[Extended | Finished | Released | Resolved]) -> Job:
    if not isinstance(reply, kind):
        raise refused(reply)
    return reply.job


def _token(token: int) -> int:
    if not 1 <= token <= _TOKEN_MAX:
        raise Invalid("token", "a token is the number that came with the job; send it as it was received")
    return token


def _holder_bytes(holder: str) -> bytes:
    data = holder.encode()
    if not 1 <= len(data) <= HOLDER_BYTES_MAX or not holder.isprintable():
        raise Invalid(
            "holder", f"a holder has 1 to {HOLDER_BYTES_MAX} bytes of printable text; choose another"
        )
    return data


def _delay(what: str, ms: int) -> int:
    if not 0 <= ms <= DELAY_MS_MAX:
        raise Invalid(what, f"{what} is a number of seconds up to {DELAY_MS_MAX // 1000}; choose one")
    return ms
