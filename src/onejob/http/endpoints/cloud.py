"""The cloud contract: every submission that it can answer is answered with 200, and `success` says how it went.

Its clients call with `curl -f`, which hides the body of any other status. Only who may not ask at all, and what has
nothing to do with a submission, is refused by status.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from msgspec.structs import replace

from onejob.core.credentials import Permission
from onejob.core.replies import LimitName, LimitWarning, Outcome
from onejob.core.views import HeldKey, Receipt
from onejob.errors import (
    Invalid,
    LeaseLost,
    MayBeDone,
    NotFound,
    OnejobError,
    SubmissionError,
    SubmissionInProgress,
    Unknown,
)
from onejob.http.config import ServiceConfig
from onejob.http.problems import to_public_problem
from onejob.http.request import BodyTooLarge, Request
from onejob.http.responses import Response, json_response
from onejob.http.routing import Parameter, Route
from onejob.http.schemas.cloud import (
    CLOUD_STATUS_BY_STATE,
    PROVIDER_CHARS_MAX,
    CloudBody,
    CloudOut,
    CloudStatus,
    RawMembers,
    build_cloud_submission,
    checked_provider,
)
from onejob.ids import Ids
from onejob.ledger import Ledger
from onejob.ledger.parse import Submission

from .preparation import UPLOADED_RECEIPT, Hook, NotPrepared, Preparations, checked_hook, load_hooks

# Of a key that the server drew itself: nobody else knows it, so that it need not outlive its lease for long.
GENERATED_KEY_TTL = timedelta(minutes=1)
ACQUIRE_ATTEMPTS_MAX = 3
WINNER_START_SECONDS = 0.02  # in which a winner on this server, who was told in the same moment, has begun

_PROVIDER = Parameter(
    "provider",
    "where the job goes: its type is `cloud.` and this name",
    {"type": "string", "minLength": 1, "maxLength": PROVIDER_CHARS_MAX},
    required=True,
)


class CloudEndpoints:
    def __init__(self, config: ServiceConfig, hooks: Mapping[str, Hook], preparations: Preparations, ids: Ids) -> None:
        self._config = config
        given = {name: checked_hook(f"prepare[{name!r}]", hook) for name, hook in hooks.items()}
        self._hooks = load_hooks(config.providers) | given
        self._preparations = preparations
        self._ids = ids

    def routes(self) -> tuple[Route, ...]:
        summary = "Submit a job for a provider, or get the one that this key already made; always 200"
        return (
            Route(
                "POST",
                "/api/cloud/jobs/submit",
                self.submit,
                Permission.SUBMIT,
                summary,
                CloudBody,
                CloudOut,
                query=(_PROVIDER,),
                takes_key=True,
            ),
        )

    async def submit(self, request: Request) -> Response:
        try:
            told = await self._submit(request)
        except BodyTooLarge:
            message = f"a body has at most {request.limits.body_bytes_max} bytes; send less"
            told = CloudOut(False, error=message)
        except OnejobError as error:
            told = CloudOut(False, error=_error_message(error))
        return json_response(200, told)

    async def _submit(self, request: Request) -> CloudOut:
        provider = self._require_known_provider(checked_provider(request.query("provider").get("provider")))
        submission = build_cloud_submission(provider, await request.decode_body(RawMembers), request.key())
        ledger = request.ledger
        try:
            if hook := self._hooks.get(provider):
                return await self._submit_with_hook(ledger, hook, provider, submission)
            receipt = await ledger.submit_prepared(submission)
            return _receipt_out(receipt, receipt.warnings)
        except SubmissionInProgress as held:
            return await _report_in_progress(ledger, held.job_id)

    async def _submit_with_hook(self, ledger: Ledger, hook: Hook, provider: str, submission: Submission) -> CloudOut:
        """The key, the job and its slot are taken first: whoever asks during the preparation finds them."""
        named = self._with_key(submission)
        seconds = asyncio.get_running_loop().time
        until = seconds() + self._config.preparation_wait_seconds
        try:
            held = await self._acquire_key(ledger, named, until)
            if isinstance(held, Receipt):
                return _receipt_out(held)
            left = until - seconds()
            receipt = await self._preparations.prepare(ledger, hook, provider, named, held, seconds=left)
        except LeaseLost:
            return await _report_taken_over(ledger, named)
        except Unknown as error:
            if submission.idempotency_key is not None:
                raise
            message = "it may be done, and without a key nobody can tell; look at the jobs before you repeat it"
            raise MayBeDone(message) from error
        if receipt is None:
            hit, warnings = held.taken_over, _split_warnings(held.warnings)
            return CloudOut(True, held.job_id, CloudStatus.UPLOADING, False, hit, None, *warnings)
        return _receipt_out(replace(receipt, taken_over=held.taken_over), held.warnings)

    async def _acquire_key(self, ledger: Ledger, submission: Submission, until: float) -> HeldKey | Receipt:
        """Take the key, from a holder that is gone if need be. To say `uploading` of a dead one would lose the job."""
        for _ in range(ACQUIRE_ATTEMPTS_MAX):
            if why := self._preparations.refusal_reason:
                return await self._find_receipt(ledger, submission, why)
            try:
                with self._preparations.starting():
                    return await ledger.reserve(submission, wait=False)
            except SubmissionInProgress as other:
                await asyncio.sleep(WINNER_START_SECONDS)
                if other.job_id in self._preparations:
                    raise
                left = until - asyncio.get_running_loop().time()
                watch = ledger.is_holder_alive(submission, seconds=left)
                if await self._preparations.wait_unless_stopping(watch):
                    raise
        raise NotPrepared("others hold this key one after the other; repeat with the same key")

    async def _find_receipt(self, ledger: Ledger, submission: Submission, reason: str) -> Receipt:
        """What the key says by itself, when nothing can be done for it here."""
        found = await ledger.dry_run_prepared(submission)
        if found.outcome is Outcome.REPLAYED:
            return found
        key = submission.idempotency_key
        if found.outcome is Outcome.IN_PROGRESS and key is not None and found.job_id in self._preparations:
            raise SubmissionInProgress(key=key, job_id=found.job_id, retry_after=1)
        raise NotPrepared(reason)

    def _with_key(self, submission: Submission) -> Submission:
        """Only a key can be held: a submission without one is given one, so that every one of them is new."""
        if submission.idempotency_key is not None:
            return submission
        return replace(
            submission, idempotency_key=f"drawn-{self._ids.holder().hex()}", idempotency_ttl=GENERATED_KEY_TTL
        )

    def _require_known_provider(self, provider: str) -> str:
        if self._config.providers_closed and provider not in self._config.providers and provider not in self._hooks:
            raise Invalid("provider", "there is no such provider here; name one that is configured")
        return provider


async def _report_in_progress(ledger: Ledger, job_id: str) -> CloudOut:
    """Somebody is at it. Its job is looked at all the same, for it may have been cancelled since."""
    try:
        state = (await ledger.job(job_id)).state
    except NotFound:
        return CloudOut(True, job_id, CloudStatus.UPLOADING, idempotent_hit=True)
    return CloudOut(True, job_id, CLOUD_STATUS_BY_STATE[state], idempotent_hit=True)


async def _report_taken_over(ledger: Ledger, submission: Submission) -> CloudOut:
    """Another server took the key while this one stood still: what the key says now is the answer."""
    found = await ledger.dry_run_prepared(submission)
    if found.outcome is Outcome.REPLAYED:
        return _receipt_out(found)
    if found.outcome is Outcome.IN_PROGRESS:
        return await _report_in_progress(ledger, found.job_id)
    raise NotPrepared("another server took this over, and has given it up; repeat with the same key")


def _receipt_out(receipt: Receipt, warnings: tuple[LimitWarning, ...] = ()) -> CloudOut:
    return CloudOut(
        True,
        receipt.job_id,
        # Of a foreign job nobody here knows more than that it was made.
        CloudStatus.PENDING if receipt.job_row is None else CLOUD_STATUS_BY_STATE[receipt.job_row.state],
        receipt.receipt == UPLOADED_RECEIPT,
        receipt.outcome is Outcome.REPLAYED or receipt.taken_over,
        None,
        *_split_warnings(warnings),
    )


def _split_warnings(warnings: tuple[LimitWarning, ...]) -> tuple[list[str], str | None]:
    """What is near a limit: of jobs, and of money."""
    money = [one.message for one in warnings if one.limit is LimitName.COST]
    return [one.message for one in warnings if one.limit is not LimitName.COST], "; ".join(money) or None


def _error_message(error: OnejobError) -> str:
    if isinstance(error, (NotPrepared, SubmissionError)):  # said to whoever submits, and to nobody else
        return str(error)
    if isinstance(error, Invalid):
        return str(error)  # this contract has the names that Python has
    return to_public_problem(error, mismatch_status=409).message
