"""The cloud contract: every submission that it can answer is answered with 200, and `success` says how it went.

Its clients call with `curl -f`, which hides the body of any other status. Only who may not ask at all, and what has
nothing to do with a submission, is refused by status.
"""

import asyncio
from collections.abc import Mapping
from datetime import timedelta

from msgspec.structs import replace

from onejob.core.receipt import Caution, Limit, Outcome
from onejob.core.roles import Act
from onejob.core.views import Receipt, Reservation
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
from onejob.ids import Ids
from onejob.intake import Submission
from onejob.ledger import Ledger

from .answers import Answer, answer
from .cloud_wire import (
    PROVIDER_CHARS_MAX,
    STATUS_OF,
    CloudBody,
    CloudOut,
    CloudStatus,
    Members,
    checked_provider,
    submission_of,
)
from .config import ServiceConfig
from .hooks import Hook, checked, loaded
from .preparing import UPLOADED, NotPrepared, Preparations
from .problems import presented
from .request import Request, TooLarge
from .routes import Parameter, Route

# Of a key that the server drew itself: nobody else knows it, so that it need not outlive its lease for long.
DRAWN_WINDOW = timedelta(minutes=1)
ROUNDS_MAX = 3
WINNER_SECONDS = 0.02  # in which a winner on this server, who was told in the same moment, has begun

_PROVIDER = Parameter(
    "provider",
    "where the job goes: its type is `cloud.` and this name",
    {"type": "string", "minLength": 1, "maxLength": PROVIDER_CHARS_MAX},
    required=True,
)


class Cloud:
    def __init__(
        self, config: ServiceConfig, hooks: Mapping[str, Hook], preparations: Preparations, ids: Ids
    ) -> None:
        self._config = config
        given = {name: checked(f"prepare[{name!r}]", hook) for name, hook in hooks.items()}
        self._hooks = loaded(config.providers) | given
        self._preparations = preparations
        self._ids = ids

    def routes(self) -> tuple[Route, ...]:
        summary = "Submit a job for a provider, or get the one that this key already made; always 200"
        return (
            Route(
                "POST",
                "/api/cloud/jobs/submit",
                self.submit,
                Act.SUBMIT,
                summary,
                CloudBody,
                CloudOut,
                query=(_PROVIDER,),
                takes_key=True,
            ),
        )

    async def submit(self, request: Request) -> Answer:
        try:
            told = await self._submitted(request)
        except TooLarge:
            message = f"a body has at most {request.limits.body_bytes_max} bytes; send less"
            told = CloudOut(False, error=message)
        except OnejobError as error:
            told = CloudOut(False, error=_message(error))
        return answer(200, told)

    async def _submitted(self, request: Request) -> CloudOut:
        provider = self._known(checked_provider(request.query("provider").get("provider")))
        submission = submission_of(provider, await request.decoded(Members), request.key())
        ledger = request.ledger
        try:
            if hook := self._hooks.get(provider):
                return await self._prepared(ledger, hook, provider, submission)
            receipt = await ledger.send(submission)
            return _told(receipt, receipt.warnings)
        except SubmissionInProgress as held:
            return await _being_prepared(ledger, held.job_id)

    async def _prepared(self, ledger: Ledger, hook: Hook, provider: str, submission: Submission) -> CloudOut:
        """The key, the job and its slot are taken first: whoever asks during the preparation finds them."""
        named = self._named(submission)
        seconds = asyncio.get_running_loop().time
        until = seconds() + self._config.preparation_wait_seconds
        try:
            held = await self._taken(ledger, named, until)
            if isinstance(held, Receipt):
                return _told(held)
            left = until - seconds()
            receipt = await self._preparations.done(ledger, hook, provider, named, held, seconds=left)
        except LeaseLost:
            return await _overtaken(ledger, named)
        except Unknown as error:
            if submission.idempotency_key is not None:
                raise
            message = (
                "it may be done, and without a key nobody can tell; look at the jobs before you repeat it"
            )
            raise MayBeDone(message) from error
        if receipt is None:
            hit, warnings = held.taken_over, _warnings(held.warnings)
            return CloudOut(True, held.job_id, CloudStatus.UPLOADING, False, hit, None, *warnings)
        return _told(replace(receipt, taken_over=held.taken_over), held.warnings)

    async def _taken(self, ledger: Ledger, submission: Submission, until: float) -> Reservation | Receipt:
        """Take the key, from a holder that is gone if need be. To say `uploading` of a dead one would lose the job."""
        for _ in range(ROUNDS_MAX):
            if why := self._preparations.closed_to_new:
                return await self._found(ledger, submission, why)
            try:
                with self._preparations.entering():
                    return await ledger.reserve(submission, wait=False)
            except SubmissionInProgress as other:
                await asyncio.sleep(WINNER_SECONDS)
                if other.job_id in self._preparations:
                    raise
                left = until - asyncio.get_running_loop().time()
                watch = ledger.holder_lives(submission, seconds=left)
                if await self._preparations.unless_leaving(watch):
                    raise
        raise NotPrepared("others hold this key one after the other; repeat with the same key")

    async def _found(self, ledger: Ledger, submission: Submission, why: str) -> Receipt:
        """What the key says by itself, when nothing can be done for it here."""
        found = await ledger.foresee(submission)
        if found.outcome is Outcome.REPLAYED:
            return found
        key = submission.idempotency_key
        if found.outcome is Outcome.IN_PROGRESS and key is not None and found.job_id in self._preparations:
            raise SubmissionInProgress(key=key, job_id=found.job_id, retry_after=1)
        raise NotPrepared(why)

    def _named(self, submission: Submission) -> Submission:
        """Only a key can be held: a submission without one is given one, so that every one of them is new."""
        if submission.idempotency_key is not None:
            return submission
        return replace(
            submission, idempotency_key=f"drawn-{self._ids.holder().hex()}", idempotency_ttl=DRAWN_WINDOW
        )

    def _known(self, provider: str) -> str:
        if (
            self._config.providers_closed
            and provider not in self._config.providers
            and provider not in self._hooks
        ):
            raise Invalid("provider", "there is no such provider here; name one that is configured")
        return provider


async def _being_prepared(ledger: Ledger, job_id: str) -> CloudOut:
    """Somebody is at it. Its job is looked at all the same, for it may have been cancelled since."""
    try:
        state = (await ledger.job(job_id)).state
    except NotFound:
        return CloudOut(True, job_id, CloudStatus.UPLOADING, idempotent_hit=True)
    return CloudOut(True, job_id, STATUS_OF[state], idempotent_hit=True)


async def _overtaken(ledger: Ledger, submission: Submission) -> CloudOut:
    """Another server took the key while this one stood still: what the key says now is the answer."""
    found = await ledger.foresee(submission)
    if found.outcome is Outcome.REPLAYED:
        return _told(found)
    if found.outcome is Outcome.IN_PROGRESS:
        return await _being_prepared(ledger, found.job_id)
    raise NotPrepared("another server took this over, and has given it up; repeat with the same key")


def _told(receipt: Receipt, cautions: tuple[Caution, ...] = ()) -> CloudOut:
    return CloudOut(
        True,
        receipt.job_id,
        # Of a foreign job nobody here knows more than that it was made.
        CloudStatus.PENDING if receipt.head is None else STATUS_OF[receipt.head.state],
        receipt.receipt == UPLOADED,
        receipt.outcome is Outcome.REPLAYED or receipt.taken_over,
        None,
        *_warnings(cautions),
    )


def _warnings(cautions: tuple[Caution, ...]) -> tuple[list[str], str | None]:
    """What is near a limit: of jobs, and of money."""
    money = [one.message for one in cautions if one.limit is Limit.COST]
    return [one.message for one in cautions if one.limit is not Limit.COST], "; ".join(money) or None


def _message(error: OnejobError) -> str:
    if isinstance(error, (NotPrepared, SubmissionError)):  # said to whoever submits, and to nobody else
        return str(error)
    if isinstance(error, Invalid):
        return str(error)  # this contract has the names that Python has
    return presented(error, mismatch_status=409).message
