"""Jobs over HTTP: submit, look, list, cancel."""

from datetime import timedelta

from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.invalid import Invalid
from onejob.core.roles import Act
from onejob.core.states import JobState
from onejob.core.views import Receipt
from onejob.engine import PAGE_MAX
from onejob.errors import OnejobError
from onejob.intake import Submission, worked_out
from onejob.key_header import one_key

from .accepted import accepted
from .answers import Answer, answer, error_out
from .problems import presented
from .request import BESIDE_BYTES, SMALL_BYTES, Request, TooLarge, beside, shaped, unbent_around
from .routes import Parameter, Route
from .shapes import BATCH_MAX, JOB_ID, micro_steps
from .wire import (
    BatchBody,
    BatchOut,
    BatchTexts,
    JobsOut,
    OneJobOut,
    SubmitBody,
    SubmitOut,
    VerdictOut,
    job_out,
    submit_out,
)


async def submit(request: Request) -> Answer:
    key = request.key()
    dry = request.query("dryRun").get("dryRun") if request.scope["query_string"] else None
    body = await request.decoded(SubmitBody)
    size = memoryview(body.input).nbytes
    if size > INPUT_BYTES_MAX:
        raise TooLarge(f"an input has at most {INPUT_BYTES_MAX} bytes; store it elsewhere, send a reference")
    submission = submission_of(body, key, callbacks=request.limits.callbacks != "none")
    if size > BESIDE_BYTES:
        submission = await beside(size, worked_out, submission)
    if dry is not None:
        return await _foreseen(request, submission, dry)
    return accepted(await request.ledger.send(submission, request.warrant), request.id)


async def submit_batch(request: Request) -> Answer:
    """Independent items, each with its own key and a verdict of its own."""
    if request.key() is not None:
        raise Invalid("Idempotency-Key", "a batch has no key; give each of its jobs an idempotencyKey")
    request.query()
    data = await request.body()
    items = await beside(len(data), batched, data, request.limits.callbacks != "none")
    sent = iter(await request.ledger.submit_many([one for one in items if isinstance(one, Submission)]))
    verdicts = [next(sent) if isinstance(one, Submission) else one for one in items]
    mismatch = request.limits.mismatch_status
    return answer(200, BatchOut(request.id, [_verdict(verdict, mismatch) for verdict in verdicts]))


async def jobs(request: Request) -> Answer:
    asked = request.query("state", "type", "user", "cursor", "limit")
    found = await request.ledger.jobs(
        state=asked.get("state"),
        type=asked.get("type"),
        user=asked.get("user"),
        before=asked.get("cursor"),
        limit=limit_of(asked.get("limit", "100")),
    )
    return answer(200, JobsOut(request.id, [job_out(one) for one in found], found.next))


async def cancel(request: Request) -> Answer:
    """Idempotent by itself: a key is accepted and changes nothing."""
    request.key()
    request.query()
    await request.no_body()
    return answer(200, OneJobOut(request.id, job_out(await request.ledger.cancel(request.path[0]))))


def submission_of(body: SubmitBody, key: str | None, *, callbacks: bool = False) -> Submission:
    if body.callback is not None and not callbacks:
        raise Invalid(
            "callback", "this service tells no URL of ends; leave it out, and wait for the job or watch it"
        )
    ttl, timeout, cost = body.idempotency_ttl_seconds, body.timeout_seconds, body.estimated_cost
    return Submission(
        type=body.type,
        input=body.input,
        idempotency_key=one_key(key, body.idempotency_key, "idempotencyKey"),
        idempotency_ttl=None if ttl is None else seconds("idempotencyTtlSeconds", ttl),
        scope=body.scope,
        delivery=body.delivery,
        priority=int(body.priority),
        run_at=body.run_at,
        max_attempts=int(body.max_attempts),
        timeout=None if timeout is None else seconds("timeoutSeconds", timeout),
        labels=body.labels,
        estimated_cost=None if cost is None else micro_steps(cost),
        reservation=body.reservation,
        callback=None if body.callback is None else body.callback.url,
    )


def batched(data: bytes, callbacks: bool = False) -> list[Submission | Invalid]:
    """The items of a batch. What the shape of the body allows and an item still cannot say is its own fault."""
    bodies = shaped(data, BatchBody).jobs
    texts = [bytes(text) for text in shaped(data, BatchTexts).jobs]
    if not 1 <= len(bodies) <= BATCH_MAX:
        raise Invalid("jobs", f"a batch has 1 to {BATCH_MAX} jobs; split it")
    # There is one member around them; the items of a second one would be missing here with their quotes.
    if data.count(b'"') != len('""') + sum(text.count(b'"') for text in texts):
        raise Invalid("body", "the body has two members of one name in an object; send each name once")
    return [_item(body, text, callbacks) for body, text in zip(bodies, texts, strict=True)]


def _item(body: SubmitBody, text: bytes, callbacks: bool) -> Submission | Invalid:
    try:
        unbent_around("item", text, SubmitBody.apart)
        submission = submission_of(body, None, callbacks=callbacks)
        return worked_out(submission) if len(text) > SMALL_BYTES else submission
    except Invalid as error:
        return error


async def _foreseen(request: Request, submission: Submission, dry: str) -> Answer:
    if dry != "true":
        raise Invalid("dryRun", "dryRun is true or left out")
    return answer(200, submit_out(await request.ledger.foresee(submission), request.id))


def _verdict(verdict: Receipt | OnejobError, mismatch_status: int) -> VerdictOut:
    if isinstance(verdict, Receipt):
        out = submit_out(verdict, "")
        return VerdictOut(202, out.job, out.idempotency, job_id=out.job_id, warnings=out.warnings)
    found = presented(verdict, mismatch_status=mismatch_status)
    return VerdictOut(found.status, error=error_out(found))


def seconds(what: str, seconds: float) -> timedelta:
    try:
        return timedelta(seconds=seconds)
    except (OverflowError, ValueError) as error:
        raise Invalid(what, f"{what} is a number of seconds; choose a smaller one") from error


def limit_of(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= PAGE_MAX):
        raise Invalid("limit", f"limit is a whole number from 1 to {PAGE_MAX}")
    return int(text)


# What a quota may answer a submission with; and a key that belongs to somebody else's submission.
QUOTA_ERRORS = (
    "FORBIDDEN",
    "QUOTA_EXCEEDED",
    "COST_LIMIT_EXCEEDED",
    "RATE_LIMITED",
    "IDEMPOTENCY_KEY_REUSED",
)
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
        errors=("CONFLICT", "IN_PROGRESS", "REJECTED", *QUOTA_ERRORS),
        leans=True,
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
        "List jobs, newest first; with a filter a page may be short, go on while there is a next",
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
