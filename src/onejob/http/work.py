"""Running jobs over HTTP: the verbs of workers in any language, and the operator's word about what went wrong.

A claim is repeated with its holder: what it had won is answered again, so that a lost answer loses no job.
"""

from datetime import timedelta

from msgspec import Raw, UnsetType, json
from msgspec.structs import asdict

from onejob.claiming import Taken, Wanted
from onejob.core.attempts import DELAY_MS_MAX, Fence, checked_holder, checked_offset
from onejob.core.finish import RESULT_BYTES_MAX
from onejob.core.ids import parse_id
from onejob.core.invalid import Invalid
from onejob.core.roles import Act
from onejob.core.views import JobView
from onejob.core.work import LEASE_MS_MAX, LEASE_MS_MIN
from onejob.waiters import TooManyWaiters
from onejob.working import attempt_of

from .answers import Answer, answer
from .patience import attended
from .problems import Leaving, RateLimited, Unauthorized
from .request import Request, TooLarge, beside, unbent
from .routes import Route
from .shapes import micro_steps
from .wire import OneJobOut, job_out
from .work_wire import (
    LEASE_SECONDS,
    WAIT_SECONDS_MAX,
    ClaimBody,
    ClaimOut,
    ExtendBody,
    ExtendOut,
    FinishBody,
    ReleaseBody,
    RerunBody,
    ResolveBody,
    StartBody,
    StartOut,
    claimed_out,
)

COME_BACK_SECONDS = 5
_MS = timedelta(milliseconds=1)


async def claim(request: Request) -> Answer:
    request.query()
    body = await request.decoded(ClaimBody)
    wait = _wait(body.wait)
    wanted = request.ledger._wanted(
        body.types,
        limit=whole("limit", body.limit),
        lease=_span("leaseSeconds", body.lease_seconds, LEASE_MS_MIN, LEASE_MS_MAX),
        holder=None if body.holder is None else _holder(body.holder),
        worker=_named(body.worker),
        start=body.start,
    )
    taken = await request.ledger._host.claims.claim(wanted)
    if not taken and wait:
        taken = await _awaited(request, wanted, wait)
    jobs = [claimed_out(attempt_of(one, wanted.lease_ms)) for one in taken]
    return answer(200, ClaimOut(request.id, jobs))


async def start(request: Request) -> Answer:
    request.query()
    body = await request.decoded(StartBody)
    if body.holder is None:
        holder = request.ledger._new_holder(_named(body.worker))
    else:
        holder = _holder(body.holder)
    begun = await request.ledger.start(_fence(request, body.token, holder, body.lease_seconds))
    return answer(200, StartOut(request_id=request.id, **asdict(claimed_out(begun))))


async def extend(request: Request) -> Answer:
    request.query()
    body = await request.decoded(ExtendBody)
    said = {} if isinstance(body.progress, UnsetType) else {"progress": _line(body.progress)}
    extended = await request.ledger.extend(
        _fence(request, body.token, _holder(body.holder), body.lease_seconds),
        logs=body.logs,
        offset=checked_offset(whole("offset", body.offset)),
        **said,
    )
    out = ExtendOut(request.id, job_out(extended.job), extended.lease_until, extended.head.logs)
    return answer(200, out)


async def finish(request: Request) -> Answer:
    request.query()
    body = await request.decoded(FinishBody)
    result = None if isinstance(body.result, UnsetType) else body.result
    size = 0 if result is None else len(bytes(result))
    if size > RESULT_BYTES_MAX:
        raise TooLarge(f"a result has at most {RESULT_BYTES_MAX} bytes; store it elsewhere, send a reference")
    await beside(size, unbent, "result", b"null" if result is None else bytes(result))
    later = _span("retryAfterSeconds", body.retry_after_seconds or 0, 0, DELAY_MS_MAX)
    return _shown(
        request,
        await request.ledger.finish(
            _fence(request, body.token, _holder(body.holder)),
            result,
            error=body.error,
            final=body.final,
            retry_after=later or None,
            cost=None if body.cost is None else micro_steps(body.cost),
        ),
    )


async def release(request: Request) -> Answer:
    request.query()
    body = await request.decoded(ReleaseBody)
    delay = _span("delaySeconds", body.delay_seconds, 0, DELAY_MS_MAX)
    fence = _fence(request, body.token, _holder(body.holder))
    return _shown(request, await request.ledger.release(fence, delay=delay))


async def resolve(request: Request) -> Answer:
    request.query()
    body = await request.decoded(ResolveBody)
    return _shown(request, await request.ledger.resolve(request.path[0], body.resolution, note=body.note))


async def rerun(request: Request) -> Answer:
    request.query()
    body = await request.decoded(RerunBody)
    return _shown(request, await request.ledger.rerun(request.path[0], note=body.note))


async def _awaited(request: Request, wanted: Wanted, wait: float) -> list[Taken]:
    """What can be had within the time. Whoever goes away meanwhile takes nothing along."""

    async def allowed() -> None:
        if not await request.allowed():
            raise Unauthorized("the credential is not valid any more; get another one")

    waiters = request.ledger.waiters
    claims = request.ledger._host.claims
    try:
        with waiters.waiting(request.credential.caller.tenant):
            taken = await attended(request, claims.claim_in_time(wanted, wait, again=allowed))
    except TooManyWaiters as error:
        raise RateLimited(str(error), COME_BACK_SECONDS) from error
    if taken is None and waiters.leaving:
        raise Leaving("this server is being stopped; repeat, with the same holder")
    return taken or []


def _shown(request: Request, job: JobView) -> Answer:
    return answer(200, OneJobOut(request.id, job_out(job)))


def _fence(request: Request, token: float, holder: bytes, lease_seconds: float = LEASE_SECONDS) -> Fence:
    lease = _span("leaseSeconds", lease_seconds, LEASE_MS_MIN, LEASE_MS_MAX)
    return Fence(
        job_id=parse_id(request.path[0]), token=whole("token", token), holder=holder, lease_ms=lease // _MS
    )


def _holder(text: str) -> bytes:
    if not text.isprintable():
        raise Invalid("holder", "a holder is printable text; choose another")
    return checked_holder(text.encode())


def _named(worker: str) -> str:
    if not worker.isprintable():
        raise Invalid("worker", "a worker's name is printable text; choose another")
    return worker


def _line(progress: Raw) -> Raw:
    """As one line, for streams of events."""
    return Raw(json.format(bytes(progress), indent=-1))


def _wait(seconds: float) -> float:
    if not 0 <= seconds <= WAIT_SECONDS_MAX:
        raise Invalid("wait", f"wait is a number of seconds from 0 to {WAIT_SECONDS_MAX}; choose one")
    return seconds


def _span(what: str, seconds: float, least_ms: int, most_ms: int) -> timedelta:
    if not least_ms <= seconds * 1000 <= most_ms:
        least, most = least_ms / 1000, most_ms // 1000
        raise Invalid(what, f"{what} is a number of seconds from {least:g} to {most}; choose one in between")
    return timedelta(milliseconds=round(seconds * 1000))


def whole(what: str, number: float) -> int:
    """In JSON 3.0 is the whole number 3."""
    if number != int(number):
        raise Invalid(what, f"{what} is a whole number; send one")
    return int(number)


_HELD = ("NOT_FOUND", "STALE")

ROUTES = (
    Route(
        "POST",
        "/api/work/claim",
        claim,
        Act.WORK,
        "Take jobs to run, most urgent first; wait for them if you like",
        ClaimBody,
        ClaimOut,
        errors=("RATE_LIMITED",),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/start",
        start,
        Act.WORK,
        "Begin to run a job; of several who try with one token, one does",
        StartBody,
        StartOut,
        errors=_HELD,
    ),
    Route(
        "POST",
        "/api/jobs/{id}/extend",
        extend,
        Act.WORK,
        "Keep a job; tell of progress, append log lines at an offset",
        ExtendBody,
        ExtendOut,
        errors=(*_HELD, "TIMED_OUT", "SEQUENCE_GAP", "NOT_ALLOWED"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/finish",
        finish,
        Act.WORK,
        "Say how an attempt ended: with a result, or with an error",
        FinishBody,
        OneJobOut,
        errors=_HELD,
    ),
    Route(
        "POST",
        "/api/jobs/{id}/release",
        release,
        Act.WORK,
        "Hand a job back, for at once or for later",
        ReleaseBody,
        OneJobOut,
        errors=(*_HELD, "NOT_ALLOWED"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/resolve",
        resolve,
        Act.RESOLVE,
        "Decide about a lost job",
        ResolveBody,
        OneJobOut,
        errors=("NOT_FOUND", "NOT_ALLOWED", "QUOTA_EXCEEDED", "COST_LIMIT_EXCEEDED", "RATE_LIMITED"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/rerun",
        rerun,
        Act.RESOLVE,
        "Run a failed or lost job again: the same id, a new token",
        RerunBody,
        OneJobOut,
        errors=("NOT_FOUND", "NOT_ALLOWED", "QUOTA_EXCEEDED", "COST_LIMIT_EXCEEDED", "RATE_LIMITED"),
    ),
)
