"""Endpoints for jobs: submit, list, get, wait for the end, cancel, read result and log."""

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Annotated, ClassVar

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, ValidationError, convert, field
from msgspec.structs import force_setattr

from onejob.core.callback import has_public_port
from onejob.core.credentials import Permission
from onejob.core.errors import Invalid
from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.large_json import Pause, do_not_pause
from onejob.core.states import ENDED_STATES, Delivery, JobState
from onejob.core.submit import Submit
from onejob.engine import PAGE_MAX
from onejob.errors import OnejobError
from onejob.http.config import CallbackScope
from onejob.http.problems import Forbidden, RateLimited, Unauthorized, to_public_problem
from onejob.http.request import (
    DECODE_CACHE_BODY_BYTES_MAX,
    DECODE_CACHE_MAX,
    INLINE_BYTES_MAX,
    BodyTooLarge,
    Request,
    check_strict_json_except,
    decode_cached,
    decode_data,
    decode_struct,
    run_in_thread_if_large,
)
from onejob.http.responses import JSON_CONTENT_TYPE, Response, resource_response, submission_response, to_error_body
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.types import (
    BATCH_MAX,
    JOB_ID,
    LABEL,
    TIMESTAMP,
    CallbackBody,
    Key,
    KeyTtlSeconds,
    Labels,
    MaxAttempts,
    Money,
    Name,
    Priority,
    RequestBody,
    ReservationId,
    SiteNames,
    TimeoutSeconds,
    Timestamp,
    round_to_micro,
    to_integer,
)
from onejob.http.schemas.work import WAIT_SECONDS_MAX
from onejob.http.streaming import wait_unless_disconnected
from onejob.idempotency_key_header import parse_key_header, resolve_key
from onejob.ledger.parse import ATTEMPTS_DEFAULT, Submission, with_prepared_input
from onejob.ledger.service import ServiceLedger
from onejob.resources.jobs import Failures, Jobs, LogPage, SingleJob, SitesOfJob
from onejob.resources.submissions import BatchResponse, BatchVerdict, SubmitResponse
from onejob.runtime.receipts import Receipt, to_submit_response
from onejob.runtime.watch import TooManyWatchers

from .events import RETRY_AFTER_SECONDS

_NULL = Raw(b"null")
_SECONDS_PATTERN = re.compile(r"[0-9]{1,2}(?:[.][0-9]{1,3})?")
_INTEGER_PATTERN = re.compile(r"[0-9]{1,16}")


class SubmitBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    large_member: ClassVar[str] = "input"  # checked apart from the body, by the rules that hold for every input

    type: Name
    input: Raw = field(default_factory=lambda: _NULL)
    scope: Name | None = None
    idempotency_ttl_seconds: KeyTtlSeconds | None = None
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    priority: Priority = 0
    run_at: Timestamp | None = None
    max_attempts: MaxAttempts = ATTEMPTS_DEFAULT
    timeout_seconds: TimeoutSeconds | None = None
    labels: Labels | None = None
    idempotency_key: Key | None = None
    estimated_cost: Money | None = None
    reservation: ReservationId | None = None
    callback: CallbackBody | None = None
    sites: SiteNames | None = None

    def __post_init__(self) -> None:
        if type(self.priority) is float or type(self.max_attempts) is float:
            force_setattr(self, "priority", to_integer("priority", self.priority))
            force_setattr(self, "max_attempts", to_integer("maxAttempts", self.max_attempts))


class JobOptionsBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """The input and the options of one job; UNSET if they were not sent."""

    input: Raw | UnsetType = UNSET
    delivery: Delivery | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    run_at: Timestamp | UnsetType = UNSET
    max_attempts: MaxAttempts | UnsetType = UNSET
    timeout_seconds: TimeoutSeconds | UnsetType = UNSET
    labels: Labels | UnsetType = UNSET
    estimated_cost: Money | UnsetType = UNSET


class BatchBody(RequestBody, frozen=True, rename="camel", forbid_unknown_fields=True):
    jobs: Annotated[list[SubmitBody], Meta(extra_json_schema={"minItems": 1, "maxItems": BATCH_MAX})]


class RawBatchBody(Struct, frozen=True):
    """The items of a batch as raw JSON."""

    jobs: list[Raw]


async def submit(request: Request) -> Response:
    key = parse_key_header(request.headers)
    dry_run = request.query("dryRun").get("dryRun") if request.scope["query_string"] else None
    data = request.complete_body()
    if data is None:
        data = await request.body()
    if dry_run is not None or len(data) > DECODE_CACHE_BODY_BYTES_MAX:
        submission, prepared = await _parse_submission(request, key, data), None
        if dry_run is not None:
            return await _dry_run(request, submission, dry_run)
    else:
        cached = _cached_request(request.ledger, key, data)
        if cached.submission is not None and cached.prepared is not None:
            receipt = None if request.precondition is not None else request.ledger.replay_now(cached.prepared)
            if receipt is None:
                receipt = await request.ledger.submit_prepared(cached.submission, request.precondition)
            return submission_response(receipt, request.id)
        submission = build_submission(decode_cached(data, SubmitBody), key, callbacks=request.limits.callbacks)
        prepared = request.ledger.prepare(submission, request.precondition)
        cached.submission, cached.prepared = submission, prepared
    receipt = await request.ledger.submit_prepared(submission, request.precondition, prepared)
    return submission_response(receipt, request.id)


class _CachedRequest(Struct):
    """A request whose bytes were sent before: a retry sends the same again, and needs not be parsed again."""

    submission: Submission | None = None  # None: these bytes are new
    prepared: Submit | None = None


@lru_cache(DECODE_CACHE_MAX)
def _cached_request(ledger: ServiceLedger, key: str | None, data: bytes) -> _CachedRequest:
    """The same object for the same caller and bytes, while they are among the last."""
    return _CachedRequest()


async def _parse_submission(request: Request, key: str | None, data: bytes) -> Submission:
    tenant = request.credential.caller.tenant
    body = await decode_data(data, SubmitBody, tenant)
    size = memoryview(body.input).nbytes
    if size > INPUT_BYTES_MAX:
        raise BodyTooLarge(f"an input has at most {INPUT_BYTES_MAX} bytes; store it elsewhere, send a reference")
    submission = build_submission(body, key, callbacks=request.limits.callbacks)
    if size > INLINE_BYTES_MAX:
        submission = await run_in_thread_if_large(tenant, size, with_prepared_input, submission)
    return submission


async def submit_batch(request: Request) -> Response:
    """Submit independent items, each with its own key and its own verdict."""
    if request.key() is not None:
        raise Invalid("Idempotency-Key", "a batch has no key; give each of its jobs an idempotencyKey")
    request.query()
    data = await request.body()
    tenant = request.credential.caller.tenant
    items = await run_in_thread_if_large(tenant, len(data), parse_batch, data, request.limits.callbacks)
    results = iter(await request.ledger.submit_many([item for item in items if isinstance(item, Submission)]))
    verdicts = [next(results) if isinstance(item, Submission) else item for item in items]
    mismatch = request.limits.mismatch_status
    return resource_response(
        200, BatchResponse([_batch_verdict(verdict, mismatch) for verdict in verdicts]), request.id
    )


async def list_jobs(request: Request) -> Response:
    query = request.query("state", "type", "user", "label", "createdAfter", "createdBefore", "cursor", "limit")
    page = await request.ledger.jobs(
        state=query.get("state"),
        type=query.get("type"),
        user=query.get("user"),
        label=parse_label(query["label"]) if "label" in query else None,
        created_after=_parse_time("createdAfter", query.get("createdAfter")),
        created_before=_parse_time("createdBefore", query.get("createdBefore")),
        before=query.get("cursor"),
        limit=parse_limit(query.get("limit", "100")),
    )
    return resource_response(200, Jobs(page, page.next), request.id)


def parse_label(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise Invalid("label", "a label has the form name=value; send both")
    return name, value


def _parse_time(name: str, text: str | None) -> datetime | None:
    try:
        return None if text is None else convert(text, Timestamp)
    except ValidationError:
        raise Invalid(name, f"{name} is a time with its zone, such as 2026-01-31T12:00:00Z; send one") from None


async def get_job(request: Request) -> Response:
    wait = _parse_wait(request.query("wait").get("wait", "0"))
    job = await request.ledger.job(request.path_params[0])
    if wait and job.state not in ENDED_STATES:
        await _wait_for_end(request, wait)
        job = await request.ledger.job(request.path_params[0])
    return resource_response(200, SingleJob(job), request.id)


async def cancel(request: Request) -> Response:
    key = request.key()
    request.query()
    await request.require_no_body()
    job = await request.ledger.cancel(request.path_params[0], idempotency_key=key)
    return resource_response(200, SingleJob(job), request.id)


async def get_result(request: Request) -> Response:
    request.query()
    return Response(200, await request.ledger.result_json(request.path_params[0]), (JSON_CONTENT_TYPE,))


async def get_input(request: Request) -> Response:
    request.query()
    _check_payloads_shown(request)
    return Response(200, await request.ledger.input(request.path_params[0]), (JSON_CONTENT_TYPE,))


async def get_failures(request: Request) -> Response:
    request.query()
    _check_payloads_shown(request)
    failures = await request.ledger.failures(request.path_params[0])
    return resource_response(200, Failures(failures), request.id)


def _check_payloads_shown(request: Request) -> None:
    if request.limits.hide_payloads:
        raise Forbidden(
            "this server hides inputs and messages of exceptions (hide_payloads); ask the operator of this server"
        )


async def get_sites(request: Request) -> Response:
    request.query()
    return resource_response(200, SitesOfJob(await request.ledger.sites(request.path_params[0])), request.id)


async def get_logs(request: Request) -> Response:
    query = request.query("offset", "limit")
    page = await request.ledger.log_lines(
        request.path_params[0],
        offset=_parse_integer("offset", query.get("offset", "0")),
        limit=_parse_integer("limit", query.get("limit", "100")),
    )
    return resource_response(200, page, request.id)


def build_submission(body: SubmitBody, key: str | None, *, callbacks: CallbackScope = "none") -> Submission:
    if body.callback is not None and callbacks == "none":
        raise Invalid(
            "callback", "callbacks are disabled on this server; leave it out, and wait for the job or watch it"
        )
    if body.callback is not None and callbacks == "public" and not has_public_port(body.callback.url):
        raise Invalid("callback", "a callback goes to port 80 or 443 only; use one of these")
    ttl, timeout, cost = body.idempotency_ttl_seconds, body.timeout_seconds, body.estimated_cost
    return Submission(
        type=body.type,
        input=body.input,
        idempotency_key=resolve_key(key, body.idempotency_key, "idempotencyKey"),
        idempotency_ttl=None if ttl is None else to_timedelta("idempotencyTtlSeconds", ttl),
        scope=body.scope,
        delivery=body.delivery,
        priority=int(body.priority),
        run_at=body.run_at,
        max_attempts=int(body.max_attempts),
        timeout=None if timeout is None else to_timedelta("timeoutSeconds", timeout),
        labels=body.labels,
        estimated_cost=None if cost is None else round_to_micro(cost),
        reservation=body.reservation,
        callback=None if body.callback is None else body.callback.url,
        sites=body.sites,
    )


def parse_batch(
    data: bytes, callbacks: CallbackScope = "none", *, pause: Pause = do_not_pause
) -> list[Submission | Invalid]:
    """The items of a batch. A body that does not match the schema is refused; any other error is of its item."""
    bodies = decode_struct(data, BatchBody).jobs
    texts = [bytes(text) for text in decode_struct(data, RawBatchBody).jobs]
    if not 1 <= len(bodies) <= BATCH_MAX:
        raise Invalid("jobs", f"a batch has 1 to {BATCH_MAX} jobs; split it")
    # The only quotes outside the items are those of "jobs": more of them are a second member of that name.
    if data.count(b'"') != len('""') + sum(text.count(b'"') for text in texts):
        raise Invalid("body", "the body has two members of one name in an object; send each name once")
    return [_parse_batch_item(body, text, callbacks, pause) for body, text in zip(bodies, texts, strict=True)]


def _parse_batch_item(body: SubmitBody, text: bytes, callbacks: CallbackScope, pause: Pause) -> Submission | Invalid:
    pause()
    try:
        check_strict_json_except("item", text, SubmitBody.large_member)
        submission = build_submission(body, None, callbacks=callbacks)
        return with_prepared_input(submission, pause=pause) if len(text) > DECODE_CACHE_BODY_BYTES_MAX else submission
    except Invalid as error:
        return error


async def _dry_run(request: Request, submission: Submission, flag: str) -> Response:
    if flag != "true":
        raise Invalid("dryRun", "dryRun must be `true` or omitted")
    receipt = await request.ledger.dry_run_prepared(submission)
    return resource_response(200, to_submit_response(receipt), request.id)


def _batch_verdict(verdict: Receipt | OnejobError, mismatch_status: int) -> BatchVerdict:
    if isinstance(verdict, Receipt):
        answer = to_submit_response(verdict)
        return BatchVerdict(202, answer.job, answer.idempotency, job_id=answer.job_id, warnings=answer.warnings)
    problem = to_public_problem(verdict, mismatch_status=mismatch_status)
    return BatchVerdict(problem.status, error=to_error_body(problem))


async def _wait_for_end(request: Request, wait: float) -> None:
    """Return when the job has ended, at the timeout, when the client disconnects or the server shuts down."""
    try:
        await wait_unless_disconnected(
            request, request.ledger.wait_at_most(request.path_params[0], timedelta(seconds=wait))
        )
    except TooManyWatchers as error:
        raise RateLimited(str(error), RETRY_AFTER_SECONDS) from error
    if not await request.still_authorized():
        raise Unauthorized("the credential is no longer valid; use another one")


def _parse_wait(text: str) -> float:
    if not _SECONDS_PATTERN.fullmatch(text) or float(text) > WAIT_SECONDS_MAX:
        raise Invalid("wait", f"wait is a number of seconds from 0 to {WAIT_SECONDS_MAX}; choose one")
    return float(text)


def _parse_integer(what: str, text: str) -> int:
    if not _INTEGER_PATTERN.fullmatch(text):
        raise Invalid(what, f"{what} is a whole number; send one")
    return int(text)


def to_timedelta(what: str, seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise Invalid(what, f"{what} is a number of seconds; choose a smaller one") from error


def parse_limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= PAGE_MAX):
        raise Invalid("limit", f"limit is a whole number from 1 to {PAGE_MAX}")
    return int(text)


# The error codes of quotas, and of a key that another submission uses.
QUOTA_ERRORS = ("FORBIDDEN", "QUOTA_EXCEEDED", "COST_LIMIT_EXCEEDED", "RATE_LIMITED", "IDEMPOTENCY_KEY_REUSED")
LIMIT = Parameter(
    "limit", "the largest number of items to return", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX}
)
_DRY_RUN = Parameter("dryRun", "`true`: return what would happen, change nothing", {"type": "string", "enum": ["true"]})

_WAIT_PARAMETER = Parameter(
    "wait",
    "wait for the end of the job, at most this many seconds",
    {"type": "number", "minimum": 0, "maximum": WAIT_SECONDS_MAX, "multipleOf": 0.001},
)

ROUTES = (
    Route(
        "POST",
        "/api/jobs",
        submit,
        Permission.SUBMIT,
        "Submit a job, or get the one that this key already created",
        SubmitBody,
        SubmitResponse,
        202,
        (_DRY_RUN,),
        takes_key=True,
        errors=("CONFLICT", "IN_PROGRESS", "REJECTED", *QUOTA_ERRORS),
        optimistic_auth=True,
    ),
    Route(
        "POST",
        "/api/jobs/batch",
        submit_batch,
        Permission.SUBMIT,
        "Submit independent jobs, each with its own key and its own verdict",
        BatchBody,
        BatchResponse,
    ),
    Route(
        "GET",
        "/api/jobs",
        list_jobs,
        Permission.READ,
        "List jobs, newest first; with a filter a page may be short, continue while there is a next",
        None,
        Jobs,
        query=(
            Parameter("state", "only jobs in this state", {"type": "string", "enum": list(JobState)}),
            Parameter("type", "only jobs of this type"),
            Parameter("user", "only jobs of this user"),
            Parameter("label", "only jobs with this label, e.g. `name=value`", LABEL),
            Parameter("createdAfter", "only jobs created at this time or later", TIMESTAMP),
            Parameter("createdBefore", "only jobs created at this time or earlier", TIMESTAMP),
            Parameter("cursor", "`next` of the previous page", JOB_ID),
            LIMIT,
        ),
    ),
    Route(
        "POST",
        "/api/jobs/{id}/cancel",
        cancel,
        Permission.CANCEL,
        "Cancel a job that has not ended",
        None,
        SingleJob,
        takes_key=True,
        errors=("NOT_FOUND", "IDEMPOTENCY_KEY_REUSED"),
    ),
)

RESULT_ROUTES = (
    Route(
        "GET",
        "/api/jobs/{id}",
        get_job,
        Permission.READ,
        "Get a job, or wait for its end",
        None,
        SingleJob,
        query=(_WAIT_PARAMETER,),
        errors=("NOT_FOUND", "RATE_LIMITED"),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/result",
        get_result,
        Permission.READ,
        "Get the result of a job, as its worker sent it",
        None,
        Raw,
        errors=("NOT_FOUND",),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/input",
        get_input,
        Permission.INSPECT,
        "Get the input of a job, as it was submitted; for operators",
        None,
        Raw,
        errors=("NOT_FOUND",),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/failures",
        get_failures,
        Permission.INSPECT,
        "Get the messages of the exceptions that failed a job's attempts; for operators",
        None,
        Failures,
        errors=("NOT_FOUND",),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/sites",
        get_sites,
        Permission.READ,
        "Get how a job stands at each of its data centres, as far as they have answered",
        None,
        SitesOfJob,
        errors=("NOT_FOUND",),
    ),
    Route(
        "GET",
        "/api/jobs/{id}/logs",
        get_logs,
        Permission.READ,
        "Read the log lines of a job from an offset on; the newest thousand are kept",
        None,
        LogPage,
        query=(
            Parameter("offset", "how many lines to skip", {"type": "integer", "minimum": 0, "maximum": 2**53 - 1}),
            LIMIT,
        ),
        errors=("NOT_FOUND",),
    ),
)
