"""Running jobs over HTTP: the verbs of workers in any language, and the operator's word about what went wrong.

A claim is repeated with its holder: what it had won is answered again, so that a lost answer loses no job.
"""

import asyncio
from contextlib import suppress

from msgspec import Raw, UnsetType
from msgspec.structs import asdict

from onejob.clock import SystemClock
from onejob.core.facts import Job
from onejob.core.finish import RESULT_BYTES_MAX, Resolution
from onejob.core.identity import checked_name
from onejob.core.invalid import Invalid
from onejob.core.moment import utc
from onejob.core.money import micro_of
from onejob.core.roles import Act
from onejob.core.views import JobView
from onejob.errors import OnejobError
from onejob.handing import Handed, Wish
from onejob.lookout import TooManyWaiters

from .answers import Answer, answer
from .problems import Leaving, RateLimited, Unauthorized
from .request import Request, TooLarge, beside, unbent
from .reservations import said
from .routes import Route
from .shapes import micro_steps
from .wire import OneJobOut, job_out
from .work_wire import (
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


async def claim(request: Request) -> Answer:
    request.query()
    body = await request.decoded(ClaimBody)
    wait = _wait(body.wait)
    wish = request.ledger.verbs.wish(
        [checked_name("type", type) for type in body.types],
        whole("limit", body.limit),
        _ms("leaseSeconds", body.lease_seconds),
        holder=body.holder,
        worker=body.worker,
        start=body.start,
    )
    found = await request.ledger.verbs.claim(wish)
    if not found and wait:
        found = await _awaited(request, wish, wait)
    return answer(200, ClaimOut(request.id, [claimed_out(one) for one in found]))


async def start(request: Request) -> Answer:
    request.query()
    body = await request.decoded(StartBody)
    taken = await request.ledger.verbs.start(
        request.path[0],
        whole("token", body.token),
        holder=body.holder,
        worker=body.worker,
        lease_ms=_ms("leaseSeconds", body.lease_seconds),
    )
    return answer(200, StartOut(request_id=request.id, **asdict(claimed_out(taken))))


async def extend(request: Request) -> Answer:
    request.query()
    body = await request.decoded(ExtendBody)
    head = await request.ledger.verbs.extend(
        request.path[0],
        whole("token", body.token),
        body.holder,
        lease_ms=_ms("leaseSeconds", body.lease_seconds),
        progress=_told(body.progress),
        logs=body.logs,
        offset=whole("offset", body.offset),
    )
    out = ExtendOut(request.id, job_out(JobView(head)), utc(head.lease_until), head.logs)
    return answer(200, out)


async def finish(request: Request) -> Answer:
    request.query()
    body = await request.decoded(FinishBody)
    result = _told(body.result)
    if len(result) > RESULT_BYTES_MAX:
        raise TooLarge(f"a result has at most {RESULT_BYTES_MAX} bytes; store it elsewhere, send a reference")
    await beside(len(result), unbent, "result", result or b"null")
    head = await request.ledger.verbs.finish(
        request.path[0],
        whole("token", body.token),
        body.holder,
        result=result,
        error=body.error,
        final=body.final,
        retry_ms=_ms("retryAfterSeconds", body.retry_after_seconds or 0),
        cost=None if body.cost is None else micro_of("cost", micro_steps(body.cost)),
    )
    return _shown(request, head)


async def release(request: Request) -> Answer:
    request.query()
    body = await request.decoded(ReleaseBody)
    delay_ms = _ms("delaySeconds", body.delay_seconds)
    verbs, token = request.ledger.verbs, whole("token", body.token)
    return _shown(request, await verbs.release(request.path[0], token, body.holder, delay_ms=delay_ms))


async def resolve(request: Request) -> Answer:
    request.query()
    body = await request.decoded(ResolveBody)
    return _shown(request, await request.ledger.verbs.resolve(request.path[0], body.resolution, body.note))


async def rerun(request: Request) -> Answer:
    request.query()
    body = await said(request, RerunBody)
    return _shown(request, await request.ledger.verbs.resolve(request.path[0], Resolution.RERUN, body.note))


async def _awaited(request: Request, wish: Wish, wait: float) -> list[Handed]:
    """What can be had within the time. Whoever goes away meanwhile takes nothing along."""
    lookout = request.ledger.lookout
    try:
        with lookout.waiting(wish.tenant):
            return await _won(request, wish, wait)
    except TooManyWaiters as error:
        raise RateLimited(str(error), COME_BACK_SECONDS) from error


async def _won(request: Request, wish: Wish, wait: float) -> list[Handed]:
    lookout, monotonic = request.ledger.lookout, SystemClock().monotonic
    until = monotonic() + wait
    gone = asyncio.create_task(request.gone())
    try:
        while (left := until - monotonic()) > 0:
            looking = asyncio.create_task(lookout.jobs(wish.tenant, wish.types, left))
            try:
                await asyncio.wait((looking, gone), return_when=asyncio.FIRST_COMPLETED)
            finally:
                looking.cancel()
            if gone.done():
                return []
            if lookout.leaving:
                raise Leaving("this server is being stopped; repeat, with the same holder")
            if not await request.allowed():
                raise Unauthorized("the credential is not valid any more; get another one")
            found = await request.ledger.verbs.claim(wish)
            if found and gone.done():
                with suppress(OnejobError):  # their leases end by themselves
                    await request.ledger.verbs.let_go(found)
            if found:
                return found
        return []
    finally:
        gone.cancel()


def _shown(request: Request, head: Job) -> Answer:
    return answer(200, OneJobOut(request.id, job_out(JobView(head))))


def _told(raw: Raw | UnsetType) -> bytes:
    return b"" if isinstance(raw, UnsetType) else bytes(raw)


def _wait(seconds: float) -> float:
    if not 0 <= seconds <= WAIT_SECONDS_MAX:
        raise Invalid("wait", f"wait is a number of seconds from 0 to {WAIT_SECONDS_MAX}; choose one")
    return seconds


def _ms(what: str, seconds: float) -> int:
    if not abs(seconds) < 1e12:
        raise Invalid(what, f"{what} is a number of seconds; choose a smaller one")
    return round(seconds * 1000)


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
        errors=(*_HELD, "TIMED_OUT", "SEQUENCE_GAP"),
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
