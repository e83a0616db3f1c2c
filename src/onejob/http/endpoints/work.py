"""Jobs for workers over HTTP (claim, start, extend, finish, release), and resolve and rerun for operators.

A worker retries a claim with the same holder and gets the same jobs again, so that a lost response loses no job.
"""

from datetime import timedelta

from msgspec import Raw, UnsetType, json
from msgspec.structs import asdict

from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.core.identity import parse_job_id
from onejob.core.work import LEASE_MS_MAX, LEASE_MS_MIN, RESULT_BYTES_MAX
from onejob.http.problems import RateLimited, ServerShuttingDown, Unauthorized
from onejob.http.request import BodyTooLarge, Request, check_strict_json, run_in_thread_if_large
from onejob.http.responses import Response, json_response, resource_response
from onejob.http.routing import Route
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
from onejob.ledger.base import runtime_of
from onejob.ledger.work import (
    DELAY_MS_MAX,
    Fence,
    build_attempt,
    build_claim_request,
    checked_holder,
    checked_offset,
    draw_holder,
)
from onejob.resources.jobs import JobView, SingleJob
from onejob.runtime.claims import ClaimedJob, ClaimRequest
from onejob.runtime.wakeups import TooManyWaiters

RETRY_AFTER_SECONDS = 5
_MS = timedelta(milliseconds=1)


async def claim(request: Request) -> Response:
    request.query()
    body = await request.decode_body(ClaimBody)
    wait = _checked_wait(body.wait)
    claim_request = build_claim_request(
        runtime_of(request.ledger).ids,
        body.types,
        tenant=request.ledger.caller.tenant,
        limit=to_integer("limit", body.limit),
        lease=_parse_duration("leaseSeconds", body.lease_seconds, LEASE_MS_MIN, LEASE_MS_MAX),
        holder=None if body.holder is None else parse_holder(body.holder),
        worker=_checked_worker_name(body.worker),
        start=body.start,
    )
    claimed = await runtime_of(request.ledger).claims.claim(claim_request)
    if not claimed and wait:
        claimed = await _claim_within(request, claim_request, wait)
    jobs = [claimed_job_out(build_attempt(job, claim_request.lease_ms)) for job in claimed]
    return json_response(200, ClaimOut(request.id, jobs))


async def start(request: Request) -> Response:
    request.query()
    body = await request.decode_body(StartBody)
    if body.holder is None:
        holder = draw_holder(runtime_of(request.ledger).ids, _checked_worker_name(body.worker))
    else:
        holder = parse_holder(body.holder)
    started = await request.ledger.start(build_fence(request, body.token, holder, body.lease_seconds))
    return json_response(200, StartOut(request_id=request.id, **asdict(claimed_job_out(started))))


async def extend(request: Request) -> Response:
    request.query()
    body = await request.decode_body(ExtendBody)
    progress = {} if isinstance(body.progress, UnsetType) else {"progress": _to_single_line(body.progress)}
    extended = await request.ledger.extend(
        build_fence(request, body.token, parse_holder(body.holder), body.lease_seconds),
        logs=body.logs,
        offset=checked_offset(to_integer("offset", body.offset)),
        **progress,
    )
    out = ExtendOut(request.id, extended.job, extended.lease_until, extended.job_row.logs)
    return json_response(200, out)


async def finish(request: Request) -> Response:
    request.query()
    body = await request.decode_body(FinishBody)
    result = None if isinstance(body.result, UnsetType) else body.result
    size = 0 if result is None else len(bytes(result))
    if size > RESULT_BYTES_MAX:
        raise BodyTooLarge(f"a result has at most {RESULT_BYTES_MAX} bytes; store it elsewhere, send a reference")
    data = b"null" if result is None else bytes(result)
    await run_in_thread_if_large(request.credential.caller.tenant, size, check_strict_json, "result", data)
    retry_after = _parse_duration("retryAfterSeconds", body.retry_after_seconds or 0, 0, DELAY_MS_MAX)
    return _job_response(
        request,
        await request.ledger.finish(
            build_fence(request, body.token, parse_holder(body.holder)),
            result,
            error=body.error,
            message=body.message,
            final=body.final,
            retry_after=retry_after or None,
            cost=None if body.cost is None else round_to_micro(body.cost),
        ),
    )


async def release(request: Request) -> Response:
    request.query()
    body = await request.decode_body(ReleaseBody)
    delay = _parse_duration("delaySeconds", body.delay_seconds, 0, DELAY_MS_MAX)
    fence = build_fence(request, body.token, parse_holder(body.holder))
    return _job_response(request, await request.ledger.release(fence, delay=delay))


async def resolve(request: Request) -> Response:
    key = request.key()
    request.query()
    body = await request.decode_body(ResolveBody)
    job_id = request.path_params[0]
    return _job_response(
        request, await request.ledger.resolve(job_id, body.resolution, note=body.note, idempotency_key=key)
    )


async def rerun(request: Request) -> Response:
    key = request.key()
    request.query()
    body = await request.decode_body(RerunBody)
    return _job_response(
        request, await request.ledger.rerun(request.path_params[0], note=body.note, idempotency_key=key)
    )


async def _claim_within(request: Request, claim_request: ClaimRequest, wait: float) -> list[ClaimedJob]:
    """Claim jobs as soon as some are ready; a client that disconnects meanwhile claims nothing."""

    async def check_credential() -> None:
        if not await request.still_authorized():
            raise Unauthorized("the credential is no longer valid; get another one")

    waiters = runtime_of(request.ledger).waiters
    claims = runtime_of(request.ledger).claims
    try:
        with waiters.admit(request.credential.caller.tenant):
            claimed = await wait_unless_disconnected(
                request, claims.claim_or_wait(claim_request, wait, before_retry=check_credential)
            )
    except TooManyWaiters as error:
        raise RateLimited(str(error), RETRY_AFTER_SECONDS) from error
    if claimed is None and waiters.is_shutting_down:
        raise ServerShuttingDown("this server is shutting down; retry with the same holder")
    return claimed or []


def _job_response(request: Request, job: JobView) -> Response:
    return resource_response(200, SingleJob(job), request.id)


def build_fence(request: Request, token: float, holder: bytes, lease_seconds: float = LEASE_SECONDS) -> Fence:
    lease = _parse_duration("leaseSeconds", lease_seconds, LEASE_MS_MIN, LEASE_MS_MAX)
    return Fence(
        job_id=parse_job_id(request.path_params[0]),
        token=to_integer("token", token),
        holder=holder,
        lease_ms=lease // _MS,
    )


def parse_holder(text: str) -> bytes:
    if not text.isprintable():
        raise Invalid("holder", "a holder is printable text; choose another")
    return checked_holder(text.encode())


def _checked_worker_name(worker: str) -> str:
    if not worker.isprintable():
        raise Invalid("worker", "a worker's name is printable text; choose another")
    return worker


def _to_single_line(progress: Raw) -> Raw:
    """Format JSON on one line, as server-sent events require."""
    return Raw(json.format(bytes(progress), indent=-1))


def _checked_wait(seconds: float) -> float:
    if not 0 <= seconds <= WAIT_SECONDS_MAX:
        raise Invalid("wait", f"wait is a number of seconds from 0 to {WAIT_SECONDS_MAX}; choose one")
    return seconds


def _parse_duration(name: str, seconds: float, min_ms: int, max_ms: int) -> timedelta:
    if not min_ms <= seconds * 1000 <= max_ms:
        raise Invalid(name, f"{name} is a number of seconds from {min_ms / 1000:g} to {max_ms // 1000}; choose one")
    return timedelta(milliseconds=round(seconds * 1000))


_LEASE_ERRORS = ("NOT_FOUND", "STALE")
_RESOLVE_ERRORS = (
    "NOT_FOUND",
    "NOT_ALLOWED",
    "IDEMPOTENCY_KEY_REUSED",
    "QUOTA_EXCEEDED",
    "COST_LIMIT_EXCEEDED",
    "RATE_LIMITED",
)

ROUTES = (
    Route(
        "POST",
        "/api/work/claim",
        claim,
        Permission.WORK,
        "Claim jobs to run, the most urgent first; with `wait`, wait for some",
        ClaimBody,
        ClaimOut,
        errors=("RATE_LIMITED",),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/start",
        start,
        Permission.WORK,
        "Start a claimed job; of several starts with one token, one succeeds",
        StartBody,
        StartOut,
        errors=_LEASE_ERRORS,
    ),
    Route(
        "POST",
        "/api/jobs/{id}/extend",
        extend,
        Permission.WORK,
        "Extend the lease of a job; report progress, append log lines at an offset",
        ExtendBody,
        ExtendOut,
        errors=(*_LEASE_ERRORS, "TIMED_OUT", "SEQUENCE_GAP", "NOT_ALLOWED"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/finish",
        finish,
        Permission.WORK,
        "Finish an attempt with a result or with an error",
        FinishBody,
        SingleJob,
        errors=(*_LEASE_ERRORS, "TIMED_OUT"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/release",
        release,
        Permission.WORK,
        "Return a job to the queue, at once or after a delay",
        ReleaseBody,
        SingleJob,
        errors=(*_LEASE_ERRORS, "NOT_ALLOWED"),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/resolve",
        resolve,
        Permission.RESOLVE,
        "Resolve a lost job",
        ResolveBody,
        SingleJob,
        takes_key=True,
        errors=_RESOLVE_ERRORS,
    ),
    Route(
        "POST",
        "/api/jobs/{id}/rerun",
        rerun,
        Permission.RESOLVE,
        "Run a failed or lost job again, with the same id and a new token",
        RerunBody,
        SingleJob,
        takes_key=True,
        errors=_RESOLVE_ERRORS,
    ),
)
