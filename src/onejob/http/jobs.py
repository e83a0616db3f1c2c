"""Jobs over HTTP: submit, look, list, cancel."""

from datetime import timedelta

from onejob.core.invalid import Invalid
from onejob.core.roles import Act
from onejob.core.states import JobState
from onejob.core.views import Receipt
from onejob.engine import PAGE_MAX
from onejob.errors import OnejobError
from onejob.intake import Submission

from .accepted import accepted
from .answers import Answer, answer, error_out
from .key_header import one_key
from .problems import presented
from .request import Request
from .routes import Parameter, Route
from .shapes import BATCH_MAX, JOB_ID
from .wire import (
    BatchBody,
    BatchOut,
    JobsOut,
    OneJobOut,
    SubmitBody,
    SubmitOut,
    VerdictOut,
    idempotency_out,
    job_out,
)


async def submit(request: Request) -> Answer:
    key = request.key()
    dry = request.query("dryRun").get("dryRun") if request.scope["query_string"] else None
    submission = submission_of(await request.decoded(SubmitBody), key)
    if dry is not None:
        return await _foreseen(request, submission, dry)
    return accepted(await request.ledger.send(submission), request.id)


async def submit_batch(request: Request) -> Answer:
    """Independent items, each with its own key and a verdict of its own."""
    if request.key() is not None:
        raise Invalid("Idempotency-Key", "a batch has no key; give each of its jobs an idempotencyKey")
    request.query()
    body = await request.decoded(BatchBody)
    if not 1 <= len(body.jobs) <= BATCH_MAX:
        raise Invalid("jobs", f"a batch has 1 to {BATCH_MAX} jobs; split it")
    items = [_item(item) for item in body.jobs]
    sent = iter(await request.ledger.submit_many([one for one in items if isinstance(one, Submission)]))
    verdicts = [next(sent) if isinstance(one, Submission) else one for one in items]
    mismatch = request.limits.mismatch_status
    return answer(200, BatchOut(request.id, [_verdict(verdict, mismatch) for verdict in verdicts]))


async def job(request: Request) -> Answer:
    request.query()
    found = await request.ledger.job(request.path[0])
    return answer(200, OneJobOut(request.id, job_out(found)))


async def jobs(request: Request) -> Answer:
    asked = request.query("state", "type", "user", "cursor", "limit")
    limit = limit_of(asked.get("limit", "100"))
    found = await request.ledger.jobs(
        state=asked.get("state"),
        type=asked.get("type"),
        user=asked.get("user"),
        before=asked.get("cursor"),
        limit=limit,
    )
    following = found[-1].id if len(found) == limit else None
    return answer(200, JobsOut(request.id, [job_out(one) for one in found], following))


async def cancel(request: Request) -> Answer:
    """Idempotent by itself: a key is accepted and changes nothing."""
    request.key()
    request.query()
    await request.no_body()
    return answer(200, OneJobOut(request.id, job_out(await request.ledger.cancel(request.path[0]))))


def submission_of(body: SubmitBody, key: str | None) -> Submission:
    ttl, timeout = body.idempotency_ttl_seconds, body.timeout_seconds
    return Submission(
        type=body.type,
        input=body.input,
        idempotency_key=one_key(key, body.idempotency_key, "idempotencyKey"),
        idempotency_ttl=None if ttl is None else _seconds("idempotencyTtlSeconds", ttl),
        scope=body.scope,
        delivery=body.delivery,
        priority=int(body.priority),
        run_at=body.run_at,
        max_attempts=int(body.max_attempts),
        timeout=None if timeout is None else _seconds("timeoutSeconds", timeout),
        labels=body.labels,
    )


def _item(body: SubmitBody) -> Submission | Invalid:
    try:
        return submission_of(body, None)
    except Invalid as error:
        return error


async def _foreseen(request: Request, submission: Submission, dry: str) -> Answer:
    if dry != "true":
        raise Invalid("dryRun", "dryRun is true or left out")
    forecast = await request.ledger.foresee(submission)
    job = job_out(forecast.job) if forecast.job else None
    return answer(200, SubmitOut(request.id, job, idempotency_out(forecast)))


def _verdict(verdict: Receipt | OnejobError, mismatch_status: int) -> VerdictOut:
    if isinstance(verdict, Receipt):
        job = job_out(verdict.job) if verdict.job else None
        return VerdictOut(202, job, idempotency_out(verdict))
    found = presented(verdict, mismatch_status=mismatch_status)
    return VerdictOut(found.status, error=error_out(found))


def _seconds(what: str, seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise Invalid(what, f"{what} is a number of seconds; choose a smaller one") from error


def limit_of(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= PAGE_MAX):
        raise Invalid("limit", f"limit is a whole number from 1 to {PAGE_MAX}")
    return int(text)


LIMIT = Parameter("limit", "how many, at most", {"type": "integer", "minimum": 1, "maximum": PAGE_MAX})
_DRY = Parameter(
    "dryRun", "`true`: say what would happen, change nothing", {"type": "string", "enum": ["true"]}
)

ROUTES = (
    Route(
        "POST",
        "/api/jobs",
        submit,
        Act.SUBMIT,
        "Submit a job, or get the one that this key already made",
        SubmitBody,
        SubmitOut,
        202,
        (_DRY,),
        takes_key=True,
        errors=("CONFLICT", "IN_PROGRESS", "REJECTED"),
    ),
    Route(
        "POST",
        "/api/jobs/batch",
        submit_batch,
        Act.SUBMIT,
        "Submit independent jobs, each with its own key and its own verdict",
        BatchBody,
        BatchOut,
    ),
    Route(
        "GET",
        "/api/jobs",
        jobs,
        Act.READ,
        "List jobs, newest first",
        None,
        JobsOut,
        query=(
            Parameter("state", "only jobs in this state", {"type": "string", "enum": list(JobState)}),
            Parameter("type", "only jobs of this type"),
            Parameter("user", "only jobs of this user"),
            Parameter("cursor", "`next` of the page before", JOB_ID),
            LIMIT,
        ),
    ),
    Route("GET", "/api/jobs/{id}", job, Act.READ, "Look at a job", None, OneJobOut, errors=("NOT_FOUND",)),
    Route(
        "POST",
        "/api/jobs/{id}/cancel",
        cancel,
        Act.CANCEL,
        "Cancel a job that has not ended",
        None,
        OneJobOut,
        takes_key=True,
        errors=("NOT_FOUND",),
    ),
)
