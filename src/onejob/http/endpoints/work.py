"""Running jobs over HTTP: the verbs of workers in any language, and the operator's word about what went wrong.

A claim is repeated with its holder: what it had won is answered again, so that a lost answer loses no job.
"""

from datetime import timedelta

from msgspec import Raw, UnsetType, json
from msgspec.structs import asdict

from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.core.identity import parse_job_id
from onejob.core.views import JobView
from onejob.core.work import LEASE_MS_MAX, LEASE_MS_MIN, RESULT_BYTES_MAX
from onejob.http.problems import RateLimited, ServerShuttingDown, Unauthorized
from onejob.http.request import BodyTooLarge, Request, check_strict_json, run_in_thread_if_large
from onejob.http.responses import Response, json_response
from onejob.http.routing import Route
from onejob.http.schemas.jobs import SingleJobOut, job_out
from onejob.http.schemas.types import round_to_micro, to_integer
from onejob.http.schemas.work import (
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
    claimed_job_out,
)
from onejob.http.streaming import wait_unless_disconnected
from onejob.ledger.claims import ClaimedJob, ClaimRequest
from onejob.ledger.wakeups import TooManyWaiters
from onejob.ledger.work import (
    DELAY_MS_MAX,
    Fence,
    build_attempt,
    build_claim_request,
    checked_holder,
    checked_offset,
    draw_holder,
)

RETRY_AFTER_SECONDS = 5
_MS = timedelta(milliseconds=1)


async def claim(request: Request) -> Response:
    request.query()
    body = await request.decode_body(ClaimBody)
    wait = _checked_wait(body.wait)
    wanted = build_claim_request(
        request.ledger.runtime.ids,
        body.types,
        tenant=request.ledger.caller.tenant,
        limit=to_integer("limit", body.limit),
        lease=_parse_duration("leaseSeconds", body.lease_seconds, LEASE_MS_MIN, LEASE_MS_MAX),
        holder=None if body.holder is None else _parse_holder(body.holder),
        worker=_checked_worker_name(body.worker),
        start=body.start,
    )
    taken = await request.ledger.runtime.claims.claim(wanted)
    if not taken and wait:
        taken = await _claim_within(request, wanted, wait)
    jobs = [claimed_job_out(build_attempt(one, wanted.lease_ms)) for one in taken]
    return json_response(200, ClaimOut(request.id, jobs))


async def start(request: Request) -> Response:
    request.query()
    body = await request.decode_body(StartBody)
    if body.holder is None:
        holder = draw_holder(request.ledger.runtime.ids, _checked_worker_name(body.worker))
    else:
        holder = _parse_holder(body.holder)
    begun = await request.ledger.start(_fence(request, body.token, holder, body.lease_seconds))
    return json_response(200, StartOut(request_id=request.id, **asdict(claimed_job_out(begun))))


async def extend(request: Request) -> Response:
    request.query()
    body = await request.decode_body(ExtendBody)
    said = {} if isinstance(body.progress, UnsetType) else {"progress": _to_single_line(body.progress)}
    extended = await request.ledger.extend(
        _fence(request, body.token, _parse_holder(body.holder), body.lease_seconds),
        logs=body.logs,
        offset=checked_offset(to_integer("offset", body.offset)),
        **said,
    )
    out = ExtendOut(request.id, job_out(extended.job), extended.lease_until, extended.job_row.logs)
    return json_response(200, out)


async def finish(request: Request) -> Response:
    request.query()
    body = await request.decode_body(FinishBody)
    result = None if isinstance(body.result, UnsetType) else body.result
    size = 0 if result is None else len(bytes(result))
    if size > RESULT_BYTES_MAX:
        raise BodyTooLarge(f"a result has at most {RESULT_BYTES_MAX} bytes; store it elsewhere, send a reference")
    await run_in_thread_if_large(size, check_strict_json, "result", b"null" if result is None else bytes(result))
    later = _parse_duration("retryAfterSeconds", body.retry_after_seconds or 0, 0, DELAY_MS_MAX)
    return _job_response(
        request,
        await request.ledger.finish(
            _fence(request, body.token, _parse_holder(body.holder)),
            result,
            error=body.error,
            final=body.final,
            retry_after=later or None,
            cost=None if body.cost is None else round_to_micro(body.cost),
        ),
    )


async def release(request: Request) -> Response:
    request.query()
    body = await request.decode_body(ReleaseBody)
    delay = _parse_duration("delaySeconds", body.delay_seconds, 0, DELAY_MS_MAX)
    fence = _fence(request, body.token, _parse_holder(body.holder))
    return _job_response(request, await request.ledger.release(fence, delay=delay))


async def resolve(request: Request) -> Response:
    request.query()
    body = await request.decode_body(ResolveBody)
    return _job_response(request, await request.ledger.resolve(request.path_params[0], body.resolution, note=body.note))


async def rerun(request: Request) -> Response:
    request.query()
    body = await request.decode_body(RerunBody)
    return _job_response(request, await request.ledger.rerun(request.path_params[0], note=body.note))


async def _claim_within(request: Request, claim_request: ClaimRequest, wait: float) -> list[ClaimedJob]:
    """What can be had within the time. Whoever goes away meanwhile takes nothing along."""

    async def allowed() -> None:
        if not await request.still_authorized():
            raise Unauthorized("the credential is not valid any more; get another one")

    waiters = request.ledger.waiters
    claims = request.ledger.runtime.claims
    try:
        with waiters.admit(request.credential.caller.tenant):
            taken = await wait_unless_disconnected(
                request, claims.claim_or_wait(claim_request, wait, before_retry=allowed)
            )
    except TooManyWaiters as error:
        raise RateLimited(str(error), RETRY_AFTER_SECONDS) from error
    if taken is None and waiters.is_shutting_down:
        raise ServerShuttingDown("this server is being stopped; repeat, with the same holder")
    return taken or []


def _job_response(request: Request, job: JobView) -> Response:
    return json_response(200, SingleJobOut(request.id, job_out(job)))


def _fence(request: Request, token: float, holder: bytes, lease_seconds: float = LEASE_SECONDS) -> Fence:
    lease = _parse_duration("leaseSeconds", lease_seconds, LEASE_MS_MIN, LEASE_MS_MAX)
    return Fence(
        job_id=parse_job_id(request.path_params[0]),
        token=to_integer("token", token),
        holder=holder,
        lease_ms=lease // _MS,
    )


def _parse_holder(text: str) -> bytes:
    if not text.isprintable():
        raise Invalid("holder", "a holder is printable text; choose another")
    return checked_holder(text.encode())


def _checked_worker_name(worker: str) -> str:
    if not worker.isprintable():
        raise Invalid("worker", "a worker's name is printable text; choose another")
    return worker


def _to_single_line(progress: Raw) -> Raw:
    """As one line, for streams of events."""
    return Raw(json.format(bytes(progress), indent=-1))


def _checked_wait(seconds: float) -> float:
    if not 0 <= seconds <= WAIT_SECONDS_MAX:
        raise Invalid("wait", f"wait is a number of seconds from 0 to {WAIT_SECONDS_MAX}; choose one")
    return seconds


def _parse_duration(what: str, seconds: float, least_ms: int, most_ms: int) -> timedelta:
    if not least_ms <= seconds * 1000 <= most_ms:
        least, most = least_ms / 1000, most_ms // 1000
        raise Invalid(what, f"{what} is a number of seconds from {least:g} to {most}; choose one in between")
    return timedelta(milliseconds=round(seconds * 1000))


_LEASE_ERRORS = ("NOT_FOUND", "STALE")

ROUTES = (
    Route(
        "POST",
        "/api/work/claim",
        claim,
        Permission.WORK,
        "Take jobs to run, most urgent first; wait for them if you like",
        ClaimBody,
        ClaimOut,
        errors=("RATE_LIMITED",),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/start",
        start,
        Permission.WORK,
        "Begin to run a job; of several who try with one token, one does",
        StartBody,
        StartOut,
        errors=_LEASE_ERRORS,
    ),
    Route(
        "POST",
        "/api/jobs/{id}/extend",
        extend,
        Permission.WORK,
        "Keep a job; tell of progress, append log lines at an offset",
        ExtendBody,
        ExtendOut,
        errors=(*_LEASE_ERRORS, "TIMED_OUT", "SEQUENCE_GAP", "NOT_ALLOWED"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/finish",
        finish,
        Permission.WORK,
        "Say how an attempt ended: with a result, or with an error",
        FinishBody,
        SingleJobOut,
        errors=_LEASE_ERRORS,
    ),
    Route(
        "POST",
        "/api/jobs/{id}/release",
        release,
        Permission.WORK,
        "Hand a job back, for at once or for later",
        ReleaseBody,
        SingleJobOut,
        errors=(*_LEASE_ERRORS, "NOT_ALLOWED"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/resolve",
        resolve,
        Permission.RESOLVE,
        "Decide about a lost job",
        ResolveBody,
        SingleJobOut,
        errors=("NOT_FOUND", "NOT_ALLOWED", "QUOTA_EXCEEDED", "COST_LIMIT_EXCEEDED", "RATE_LIMITED"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/rerun",
        rerun,
        Permission.RESOLVE,
        "Run a failed or lost job again: the same id, a new token",
        RerunBody,
        SingleJobOut,
        errors=("NOT_FOUND", "NOT_ALLOWED", "QUOTA_EXCEEDED", "COST_LIMIT_EXCEEDED", "RATE_LIMITED"),
    ),
)
