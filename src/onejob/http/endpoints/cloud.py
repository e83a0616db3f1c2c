"""The cloud contract: submissions get status 200, and the member `success` tells whether a job was created.

Its clients call with `curl -f`, which hides the body of any other status. Only failures before the submission, such as a
missing credential, have a status of their own.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from msgspec.structs import replace

from onejob.core.credentials import Permission
from onejob.core.facts import Job
from onejob.core.identity import Actor
from onejob.core.replies import LimitName, LimitWarning, Outcome
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
    TYPE_PREFIX,
    CloudBody,
    CloudOut,
    CloudStatus,
    RawMembers,
    build_cloud_submission,
    checked_provider,
)
from onejob.ids import Ids
from onejob.ledger.base import runtime_of
from onejob.ledger.parse import Submission
from onejob.ledger.service import ServiceLedger
from onejob.runtime.callers import Caller
from onejob.runtime.maintenance import find_abandoned_preparations
from onejob.runtime.receipts import HeldKey, Receipt

from .preparation import (
    UPLOADED_RECEIPT,
    Hook,
    NotPrepared,
    PreparationExpired,
    Preparations,
    checked_hook,
    load_hooks,
)

# A generated key is known to this server only, so it need not outlive its lease for long.
GENERATED_KEY_TTL = timedelta(minutes=1)
ACQUIRE_ATTEMPTS_MAX = 3
TAKEN_OVER_SECONDS_MAX = 2.0  # to find out who has the key after the lease is over
HOLDERS_MAX = 5  # a job whose preparation kills its servers is not taken over endlessly
WINNER_START_SECONDS = 0.02  # in which a request of this server that has just won the key starts its preparation

log = logging.getLogger("onejob.http")

_PROVIDER = Parameter(
    "provider",
    "the provider of the job, whose type is `cloud.` and this name",
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
        summary = "Submit a job for a provider, or get the job that this key created before; always 200"
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

    @property
    def has_hooks(self) -> bool:
        return bool(self._hooks)

    async def resume_abandoned(self, ledger: ServiceLedger) -> None:
        """Take over the preparations whose server died, of all tenants, while this server may run more of them."""
        for job in await find_abandoned_preparations(runtime_of(ledger).gate):
            provider = job.type.removeprefix(TYPE_PREFIX)
            hook = self._hooks.get(provider) if job.type.startswith(TYPE_PREFIX) else None
            if hook is None:
                continue
            if self._preparations.refusal_reason:
                return
            caller = Caller(job.tenant, job.user, str(Actor.system("preparation")))
            await self._resume(ledger.for_caller(caller), hook, provider, job)

    async def _resume(self, ledger: ServiceLedger, hook: Hook, provider: str, job: Job) -> None:
        with self._preparations.starting():
            held = await ledger.take_over_preparation(job)
        if held is None:
            return
        if held.token > HOLDERS_MAX:
            log.error("job %s: %d servers began its preparation and died; it is rejected", held.job_id, HOLDERS_MAX)
            await ledger.reject(held)
            return
        log.warning("job %s: its preparation was abandoned; this server takes it over", held.job_id)
        await self._preparations.start(ledger, hook, provider, await ledger.input(held.job_id), held)

    async def submit(self, request: Request) -> Response:
        try:
            out = await self._submit(request)
        except BodyTooLarge:
            message = f"a body has at most {request.limits.body_bytes_max} bytes; send less"
            out = CloudOut(False, error=message)
        except OnejobError as error:
            out = CloudOut(False, error=_error_message(error))
        return json_response(200, out)

    async def _submit(self, request: Request) -> CloudOut:
        provider = self._require_known_provider(checked_provider(request.query("provider").get("provider")))
        submission = build_cloud_submission(provider, await request.decode_body(RawMembers), request.key())
        ledger = request.ledger
        try:
            if hook := self._hooks.get(provider):
                return await self._submit_with_hook(ledger, hook, provider, submission)
            receipt = await ledger.submit_prepared(submission)
            return _receipt_out(receipt, receipt.warnings)
        except SubmissionInProgress as other:
            return await _report_in_progress(ledger, other.job_id)

    async def _submit_with_hook(
        self, ledger: ServiceLedger, hook: Hook, provider: str, submission: Submission
    ) -> CloudOut:
        """Acquire the key, the job and its slot before the hook runs, so that a duplicate finds them."""
        keyed = self._with_key(submission)
        now = asyncio.get_running_loop().time
        until = now() + self._config.preparation_wait_seconds
        try:
            held = await self._acquire_key(ledger, keyed, until)
            if isinstance(held, Receipt):
                return _receipt_out(held)
            try:
                receipt = await self._preparations.prepare(ledger, hook, provider, keyed, held, seconds=until - now())
            except PreparationExpired as error:
                return await _report_if_taken_over(ledger, keyed, held.token, error)
        except LeaseLost:
            return await _report_taken_over(ledger, keyed)
        except Unknown as error:
            if submission.idempotency_key is not None:
                raise
            message = (
                "the job may have been created, and without a key a retry would create another; list the jobs first"
            )
            raise MayBeDone(message) from error
        if receipt is None:
            hit, warnings = held.taken_over, _split_warnings(held.warnings)
            return CloudOut(True, held.job_id, CloudStatus.UPLOADING, False, hit, None, *warnings)
        return _receipt_out(replace(receipt, taken_over=held.taken_over), held.warnings)

    async def _acquire_key(self, ledger: ServiceLedger, submission: Submission, until: float) -> HeldKey | Receipt:
        """Acquire the key, also from a dead holder: a reply `uploading` about a dead one would lose the job."""
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
                seconds = until - asyncio.get_running_loop().time()
                watch = ledger.is_holder_alive(submission, seconds=seconds)
                if await self._preparations.wait_unless_stopping(watch):
                    raise
        raise NotPrepared("other requests kept taking this key; retry with the same key")

    async def _find_receipt(self, ledger: ServiceLedger, submission: Submission, reason: str) -> Receipt:
        """The stored outcome of the key, if this server cannot prepare its job."""
        found = await ledger.dry_run_prepared(submission)
        if found.outcome is Outcome.REPLAYED:
            return found
        key = submission.idempotency_key
        if found.outcome is Outcome.IN_PROGRESS and key is not None and found.job_id in self._preparations:
            raise SubmissionInProgress(key=str(key), job_id=found.job_id, retry_after=1)
        raise NotPrepared(reason)

    def _with_key(self, submission: Submission) -> Submission:
        """Generate a key where there is none: a lease needs a key, and a generated one makes the submission new."""
        if submission.idempotency_key is not None:
            return submission
        return replace(
            submission, idempotency_key=f"drawn-{self._ids.holder().hex()}", idempotency_ttl=GENERATED_KEY_TTL
        )

    def _require_known_provider(self, provider: str) -> str:
        if self._config.providers_closed and provider not in self._config.providers and provider not in self._hooks:
            raise Invalid("provider", "no such provider; name one that is configured")
        return provider


async def _report_in_progress(ledger: ServiceLedger, job_id: str) -> CloudOut:
    """Another request prepares the job; its state is read because the job may have been cancelled since."""
    try:
        state = (await ledger.job(job_id)).state
    except NotFound:
        return CloudOut(True, job_id, CloudStatus.UPLOADING, idempotent_hit=True)
    return CloudOut(True, job_id, CLOUD_STATUS_BY_STATE[state], idempotent_hit=True)


async def _report_taken_over(ledger: ServiceLedger, submission: Submission) -> CloudOut:
    """Another server took the key over while this one was stalled; answer with the key's current outcome."""
    found = await ledger.dry_run_prepared(submission)
    if found.outcome is Outcome.REPLAYED:
        return _receipt_out(found)
    if found.outcome is Outcome.IN_PROGRESS:
        return await _report_in_progress(ledger, found.job_id)
    raise NotPrepared("another server took this key over and failed; retry with the same key")


async def _report_if_taken_over(
    ledger: ServiceLedger, submission: Submission, own_token: int, error: PreparationExpired
) -> CloudOut:
    """The lease is over on the clock of this process. If another server has the key, its outcome; else the error."""
    try:
        async with asyncio.timeout(TAKEN_OVER_SECONDS_MAX):
            if await ledger.held_token(submission) == own_token:  # the store's lease may end a moment later
                raise error
            return await _report_taken_over(ledger, submission)
    except (TimeoutError, OnejobError):
        raise error from None


def _receipt_out(receipt: Receipt, warnings: tuple[LimitWarning, ...] = ()) -> CloudOut:
    return CloudOut(
        True,
        receipt.job_id,
        # Of an external job only its id is stored.
        CloudStatus.PENDING if receipt.job_row is None else CLOUD_STATUS_BY_STATE[receipt.job_row.state],
        receipt.receipt == UPLOADED_RECEIPT,
        receipt.outcome is Outcome.REPLAYED or receipt.taken_over,
        None,
        *_split_warnings(warnings),
    )


def _split_warnings(warnings: tuple[LimitWarning, ...]) -> tuple[list[str], str | None]:
    """Warnings about counts as a list, those about cost as one text."""
    costs = [warning.message for warning in warnings if warning.limit is LimitName.COST]
    return [warning.message for warning in warnings if warning.limit is not LimitName.COST], "; ".join(costs) or None


def _error_message(error: OnejobError) -> str:
    # These texts are written for the submitter; member names of this contract are those of Python.
    if isinstance(error, (NotPrepared, SubmissionError, Invalid)):
        return str(error)
    return to_public_problem(error, mismatch_status=409).message
