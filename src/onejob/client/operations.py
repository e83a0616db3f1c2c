"""The acts of a client, written once as generators: they say what is to be done, and either client does it."""

from collections.abc import Callable, Generator, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct, json
from msgspec.structs import replace

from onejob.codes import NextAction
from onejob.core.key import IdempotencyKey, checked_key
from onejob.errors import (
    AmbiguousOutcome,
    Invalid,
    OnejobError,
    Reason,
    SubmissionInProgress,
    SubmissionRefused,
    Unavailable,
)
from onejob.ids import KeyGenerator, random_fraction

from . import models, requests
from .errors import decode_or_raise, error_from_problem, raise_no_response
from .flow import (
    CallOutcome,
    ProblemBody,
    RetryPolicy,
    Send,
    ServerResponse,
    Sleep,
    StepResult,
    classify,
    send_with_retries,
)
from .outbox import Intent, Outbox
from .requests import Call, SubmissionLike

# What a caller says, and what it becomes: a key, a call, a receipt.


BATCH_BYTES_MAX: Final = 1 << 20
_QUOTA_REASONS: Final = (Reason.QUOTA_EXCEEDED, Reason.COST_LIMIT_EXCEEDED)


class ClientSubmission(Struct, frozen=True, kw_only=True):
    """One logical submission, as a caller says it; `options` as the ledger has them."""

    type: str
    input: Any = None
    idempotency_key: str | None = None
    key_from: tuple[str, ...] = ()
    options: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.options[name]
        except KeyError:
            raise AttributeError(name) from None


def given_or_derived_key(submission: ClientSubmission) -> str | None:
    """The key that was given, or follows from what was named; None: one is to be drawn."""
    if submission.idempotency_key is not None:
        if submission.key_from:
            raise Invalid("key_from", "give a key, or the members it follows from, not both")
        return checked_key(submission.idempotency_key)
    return requests.derived_key(submission.type, submission.input, submission.key_from) if submission.key_from else None


def is_transient(error: OnejobError, *, resumed: bool) -> bool:
    """A refusal that may end by itself. A full quota keeps an intent only where no caller waits to be told."""
    if isinstance(error, SubmissionRefused):
        return error.reason is Reason.RATE_LIMITED or (resumed and error.reason in _QUOTA_REASONS)
    return isinstance(error, SubmissionInProgress)


def to_client_submission(submission: SubmissionLike) -> ClientSubmission:
    if isinstance(submission, ClientSubmission):
        return submission
    names = [*requests.SubmitOptions.__annotations__]
    options = {name: getattr(submission, name) for name in names if getattr(submission, name, None) is not None}
    return ClientSubmission(
        type=submission.type,
        input=submission.input,
        idempotency_key=submission.idempotency_key,
        options=options,
    )


def split_into_batches(parsed: list[Call | OnejobError]) -> Iterator[list[int]]:
    """Places of what may travel together: what the server takes in one body, and each key once."""
    places: list[int] = []
    size, keys = 0, set[str | None]()
    for place, call in enumerate(parsed):
        if not isinstance(call, Call):
            continue
        if places and (size + len(call.body) > BATCH_BYTES_MAX or call.key in keys):
            yield places
            places, size, keys = [], 0, set()
        places.append(place)
        size += len(call.body) + 1
        keys.add(call.key)
    if places:
        yield places


def call_from_intent(intent: Intent) -> Call:
    """The call of a row, byte for byte as it was frozen."""
    return Call(
        method="POST",
        path=intent.path,
        response_type=models.SequenceReceiptModel if intent.sequence else models.SubmitResponseModel,
        body=intent.body,
        key=intent.key,
        window_ms=intent.window_ms,
        sequenced=bool(intent.sequence),
    )


def receipt_from_response(response: models.SubmitResponseModel, call: Call, attempts: int) -> models.ReceiptModel:
    told = response.idempotency
    assert call.key is not None
    return models.ReceiptModel(
        outcome=told.outcome,
        key=call.key,
        scope=told.scope,
        job_id=response.job.id if response.job else response.job_id or "",
        job=response.job,
        expires_at=told.expires_at,
        attempts=attempts,
        warnings=response.warnings,
    )


def client_state_call(client_id: str, scope: str) -> Call:
    return requests.get_call(
        f"/api/clients/{requests.quote_path_segment(client_id)}/state", models.ClientStateModel, scope=scope
    )


T = TypeVar("T")
BATCH_MAX: Final = 1_000
OUTBOX_POLL_SECONDS: Final = 0.05
_EMPTY_RESPONSE: Final = ServerResponse(0, {}, b"")


class DiskWork(Struct, frozen=True):
    """Work on the disk, which an event loop gives to a thread."""

    work: Callable[[], Any]


Operation = Generator[Send | Sleep | DiskWork, Any, T]


class ResumedIntent(Struct, frozen=True):
    """What became of an intent that was left over: a receipt, or the error it met."""

    key: str
    receipt: models.ReceiptModel | models.SequenceReceiptModel | None = None
    error: OnejobError | None = None


class ClientOperations:
    def __init__(
        self,
        *,
        retry: RetryPolicy,
        monotonic: Callable[[], float],
        keys: KeyGenerator,
        outbox: Outbox | None,
        jitter: Callable[[], float] = random_fraction,
    ) -> None:
        self._retry = retry
        self.attempt_timeout = retry.attempt_timeout  # for one attempt
        self.now = monotonic
        self._keys = keys
        self._jitter = jitter
        self._synced_scopes: set[str] = set()  # scopes in which the server told how far this client is
        self.outbox = outbox

    def submit(self, submission: ClientSubmission) -> Operation[models.ReceiptModel]:
        key = given_or_derived_key(submission)
        if self.outbox is None:
            call = requests.submit_call(submission, str(next(self._keys)) if key is None else key)
            receipt: models.ReceiptModel = yield from self._send_for_receipt(call)
            return receipt
        intent = yield from self._write_intent(self.outbox, submission, key)
        receipt = yield from self._resolve_intent(self.outbox, intent)
        return receipt

    def submit_many(self, submissions: Iterable[SubmissionLike]) -> Operation[list[models.ReceiptModel | OnejobError]]:
        """Independent submissions, each with a verdict of its own. Many travel together."""
        if self.outbox is not None:
            return (yield from self._submit_one_by_one(submissions))
        verdicts: list[models.ReceiptModel | OnejobError] = []
        waiting = iter(submissions)
        while chunk := list(islice(waiting, BATCH_MAX)):
            verdicts += yield from self._submit_batch([self._build_call(one) for one in chunk])
        return verdicts

    def submit_sequence(
        self,
        client_id: str,
        sequence: int,
        key: str,
        jobs: list[SubmissionLike],
        *,
        scope: str,
        ttl: timedelta | None,
    ) -> Operation[models.SequenceReceiptModel]:
        call = requests.sequence_call(client_id, scope, sequence, checked_key(key), jobs, ttl)
        ended = yield from self._send_with_retries(call)
        receipt: models.SequenceReceiptModel = decode_or_raise(call, ended)
        return replace(receipt, attempts=ended.attempts)

    def submit_next(
        self, jobs: list[SubmissionLike], *, scope: str, ttl: timedelta | None
    ) -> Operation[models.SequenceReceiptModel]:
        """Send the next number of this client, which the outbox counts; whatever is under way is finished first."""
        outbox = self._require_outbox()

        def make(key: IdempotencyKey) -> Call:
            return requests.sequence_call(key.client_id, scope, key.sequence, str(key), jobs, ttl)

        make(IdempotencyKey(outbox.client_id, 1, "0" * 16))  # what cannot be sent takes no number
        last = yield from self._last_committed_sequence(outbox.client_id, scope)
        end = self.now() + self._retry.deadline
        while True:
            intent, new = yield DiskWork(partial(outbox.write_next_sequence, scope, last, make))
            if intent.is_leased:
                if self.now() >= end:
                    raise SubmissionInProgress(key=intent.key, job_id="", retry_after=1.0)
                yield Sleep(OUTBOX_POLL_SECONDS)
                continue
            receipt = yield from self._resolve_sequence_intent(outbox, intent, new=new)
            if new and receipt.jobs:
                return receipt
            if new and receipt.attempts > 1:
                # Executed under this key by a lost attempt, or by somebody else under another: nobody can tell.
                ended = CallOutcome(_EMPTY_RESPONSE, receipt.attempts, outcome_unknown=True, window_passed=True)
                raise_no_response(
                    replace(call_from_intent(intent), sequenced=False),
                    ended,
                    "its number was executed without a receipt",
                )
            # The number was an older one's, or was taken under another key: this submission gets the next.
            self._synced_scopes.discard(scope)
            last = yield from self._last_committed_sequence(outbox.client_id, scope)

    def _last_committed_sequence(self, client_id: str, scope: str) -> Operation[int]:
        """How far the server has this client. Once it was asked, the file knows."""
        if scope in self._synced_scopes:
            return 0
        state: models.ClientStateModel = yield from self.send_idempotent(client_state_call(client_id, scope))
        self._synced_scopes.add(scope)
        return state.last_committed_sequence

    def _resolve_sequence_intent(
        self, outbox: Outbox, intent: Intent, *, new: bool
    ) -> Operation[models.SequenceReceiptModel]:
        try:
            receipt: models.SequenceReceiptModel = yield from self._resolve_intent(outbox, intent)
        except OnejobError as error:
            if new:
                raise
            raise Unavailable(
                f"number {intent.sequence}, left over from before, came to no good end ({error}): "
                "nothing of this submission was sent; see to that one, then repeat"
            ) from error
        return receipt

    def resume(self) -> Operation[list[ResumedIntent]]:
        """Finish what earlier processes left, in the order it was written; what others are at is theirs."""
        outbox = self._require_outbox()
        resumed: list[ResumedIntent] = []
        last = 0
        while (intent := (yield DiskWork(partial(outbox.claim, last)))) is not None:
            last = intent.id
            try:
                receipt = yield from self._resolve_intent(outbox, intent)
            except OnejobError as error:
                resumed.append(ResumedIntent(intent.key, error=error))
            else:
                resumed.append(ResumedIntent(intent.key, receipt))
        return resumed

    def send_idempotent(self, call: Call) -> Operation[Any]:
        """A call that may be repeated without a key."""
        ended = yield from self._send_with_retries(call)
        return decode_or_raise(call, ended)

    def _write_intent(self, outbox: Outbox, submission: ClientSubmission, key: str | None) -> Operation[Intent]:
        scope = submission.options.get("scope") or submission.type
        if key is None:
            write = partial(
                outbox.write_with_new_key, scope, lambda drawn: requests.submit_call(submission, str(drawn))
            )
        else:
            write = partial(outbox.write, requests.submit_call(submission, key), scope)
        intent: Intent = yield DiskWork(write)
        return intent

    def _resolve_intent(self, outbox: Outbox, intent: Intent) -> Operation[Any]:
        """Send an intent until the server has spoken about it. Only then does it leave the disk."""
        call = call_from_intent(intent)
        if not intent.is_new and intent.remaining_ms <= 0:
            yield DiskWork(lambda: outbox.release(intent))
            raise_no_response(
                call,
                CallOutcome(_EMPTY_RESPONSE, 0, outcome_unknown=True, window_passed=True),
                "it was left over",
            )
        try:
            given = yield from self._send_for_receipt(call, intent)
        except Unavailable as error:
            yield DiskWork(lambda: outbox.release(intent))
            # Not "nothing was done, repeat": with a key that was drawn, that would be a second submission.
            raise AmbiguousOutcome(
                f"{error}; it is kept in the outbox: resume() sends it", key=intent.key, attempts=0
            ) from error
        except OnejobError as error:
            kept = isinstance(error, AmbiguousOutcome) or is_transient(error, resumed=not intent.is_new)
            yield DiskWork(lambda: outbox.release(intent) if kept else outbox.settle(intent, executed=False))
            raise
        except BaseException:
            # Interrupted: nobody is left to do it, so it is done here.
            outbox.release(intent)
            raise
        yield DiskWork(lambda: outbox.settle(intent))
        return given

    def _send_for_receipt(self, call: Call, intent: Intent | None = None) -> Operation[Any]:
        fresh = intent is None or intent.is_new
        left = call.window_ms or float("inf") if intent is None else intent.remaining_ms
        ended = yield from self._send_with_retries(call, left / 1000, outcome_unknown=not fresh)
        given = decode_or_raise(call, ended)
        if isinstance(given, models.SubmitResponseModel):
            return receipt_from_response(given, call, ended.attempts)
        return replace(given, attempts=ended.attempts)

    def _send_with_retries(
        self, call: Call, window: float = float("inf"), *, outcome_unknown: bool = False
    ) -> Generator[Send | Sleep | DiskWork, StepResult, CallOutcome]:
        begin = self.now()
        return (
            yield from send_with_retries(
                call,
                self._retry,
                begin=begin,
                jitter=self._jitter,
                window_end=begin + window,
                outcome_unknown=outcome_unknown,
                accepts=call.accepts,
            )
        )

    def _submit_batch(self, parsed: list[Call | OnejobError]) -> Operation[list[models.ReceiptModel | OnejobError]]:
        found: dict[int, models.ReceiptModel | OnejobError] = {}
        for places in split_into_batches(parsed):
            own = {place: call for place in places if isinstance(call := parsed[place], Call)}
            bundle = requests.batch_call(own.values())
            window = min((call.window_ms for call in own.values()), default=0) / 1000
            ended = yield from self._send_with_retries(bundle, window)
            said = ended.response
            whole = isinstance(said, ServerResponse) and classify(said) is NextAction.KEEP
            verdicts = decode_or_raise(bundle, ended).verdicts if whole else []
            for index, (place, call) in enumerate(own.items()):
                verdict = verdicts[index] if len(verdicts) == len(own) else None
                found[place] = yield from self._resolve_batch_item(
                    call, verdict, outcome_unknown=ended.outcome_unknown or not whole
                )
        return [one if isinstance(one, OnejobError) else found[place] for place, one in enumerate(parsed)]

    def _resolve_batch_item(
        self, call: Call, verdict: models.BatchItemModel | None, *, outcome_unknown: bool
    ) -> Operation[models.ReceiptModel | OnejobError]:
        """One item's own answer; where it has none yet, it is sent alone, with the same key and bytes."""
        try:
            if verdict is not None and verdict.idempotency is not None and verdict.idempotency.key == call.key:
                given = models.SubmitResponseModel(verdict.idempotency, verdict.job, verdict.job_id)
                return receipt_from_response(given, call, 1)
            if verdict is not None and verdict.error is not None:
                told = msgspec.convert(verdict.error, ProblemBody)
                said = ServerResponse(verdict.status, {}, msgspec.json.encode({"error": verdict.error}))
                if classify(said) not in (NextAction.RETRY, NextAction.WAIT):
                    return error_from_problem(told, said, call.key or "")
            ended = yield from self._send_with_retries(call, call.window_ms / 1000, outcome_unknown=outcome_unknown)
            return receipt_from_response(decode_or_raise(call, ended), call, ended.attempts + 1)
        except OnejobError as error:
            return error

    def _submit_one_by_one(
        self, submissions: Iterable[SubmissionLike]
    ) -> Operation[list[models.ReceiptModel | OnejobError]]:
        verdicts: list[models.ReceiptModel | OnejobError] = []
        for one in submissions:
            try:
                verdicts.append((yield from self.submit(to_client_submission(one))))
            except OnejobError as error:
                verdicts.append(error)
        return verdicts

    def _build_call(self, submission: SubmissionLike) -> Call | OnejobError:
        try:
            key = given_or_derived_key(to_client_submission(submission))
            return requests.submit_call(submission, str(next(self._keys)) if key is None else key)
        except Invalid as error:
            return error

    def _require_outbox(self) -> Outbox:
        if self.outbox is None:
            raise Invalid("outbox", "this client has no outbox; make it with outbox=PATH")
        return self.outbox


# Acts that need no key: to look, to cancel, to forget. Each may be repeated without harm.


# No longer than a server lets anybody wait, nor than most proxies do.
LONG_POLL_SECONDS: Final = 20.0
JOB_POLL_SECONDS: Final = 1.0


class ClientReads:
    def __init__(self, operations: ClientOperations) -> None:
        self._operations = operations

    def get_client_state(self, client_id: str, *, scope: str) -> Operation[models.ClientStateModel]:
        state: models.ClientStateModel = yield from self._operations.send_idempotent(
            client_state_call(client_id, scope)
        )
        return state

    def job(self, job_id: str) -> Operation[models.JobModel]:
        return (yield from self._fetch_job(requests.get_call(_job_path(job_id), models.JobResponseModel)))

    def jobs(
        self,
        *,
        state: str | None = None,
        type: str | None = None,
        user: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Operation[models.JobPageModel]:
        call = requests.get_call(
            "/api/jobs", models.JobPageModel, state=state, type=type, user=user, cursor=before, limit=limit
        )
        page: models.JobPageModel = yield from self._operations.send_idempotent(call)
        return page

    def cancel(self, job_id: str) -> Operation[models.JobModel]:
        return (
            yield from self._fetch_job(
                Call(method="POST", path=f"{_job_path(job_id)}/cancel", response_type=models.JobResponseModel)
            )
        )

    def explain(self, key: str, *, scope: str, user: str | None) -> Operation[models.KeyHistoryModel]:
        story: models.KeyHistoryModel = yield from self._operations.send_idempotent(
            requests.get_call(_key_path(key), models.KeyHistoryModel, scope=scope, user=user)
        )
        return story

    def keys(
        self,
        *,
        scope: str | None = None,
        user: str | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> Operation[models.KeyPageModel]:
        page: models.KeyPageModel = yield from self._operations.send_idempotent(
            requests.get_call("/api/keys", models.KeyPageModel, scope=scope, user=user, cursor=cursor, limit=limit)
        )
        return page

    def forget(self, key: str, *, scope: str, user: str | None) -> Operation[datetime]:
        target = requests.get_call(_key_path(key), models.ForgetResponseModel, scope=scope, user=user)
        forgotten: models.ForgetResponseModel = yield from self._operations.send_idempotent(
            Call(method="DELETE", path=target.path, response_type=models.ForgetResponseModel)
        )
        return forgotten.usable_after

    def wait(self, job_id: str, timeout: timedelta | float | None) -> Operation[models.JobModel]:
        """The server lets each question wait. Where it does not, being full or going down, it is asked now and then."""
        now = self._operations.now
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        end = float("inf") if seconds is None else now() + seconds
        longest = min(LONG_POLL_SECONDS, self._operations.attempt_timeout / 2)
        while True:
            begun = now()
            asked = max(0.0, min(longest, end - begun))
            found = yield from self._fetch_job(
                requests.get_call(_job_path(job_id), models.JobResponseModel, wait=f"{asked:.3f}")
            )
            if found.has_ended:
                return found
            if now() >= end:
                raise TimeoutError(f"job {job_id} is {found.state} after {seconds:g} s; look again later")
            if now() - begun < asked / 2:
                yield Sleep(min(JOB_POLL_SECONDS, end - now()))

    def result(self, job_id: str) -> Operation[Any]:
        return json.decode((yield from self.result_json(job_id)))

    def result_json(self, job_id: str) -> Operation[bytes]:
        found: Raw = yield from self._operations.send_idempotent(requests.get_call(f"{_job_path(job_id)}/result", Raw))
        return bytes(found)

    def log_lines(self, job_id: str, *, offset: int, limit: int) -> Operation[models.LogPageModel]:
        call = requests.get_call(f"{_job_path(job_id)}/logs", models.LogPageModel, offset=offset, limit=limit)
        page: models.LogPageModel = yield from self._operations.send_idempotent(call)
        return page

    def _fetch_job(self, call: Call) -> Operation[models.JobModel]:
        found: models.JobResponseModel = yield from self._operations.send_idempotent(call)
        return found.job


def _job_path(job_id: str) -> str:
    return f"/api/jobs/{requests.quote_path_segment(job_id).lower()}"


def _key_path(key: str) -> str:
    return f"/api/keys/{requests.quote_path_segment(checked_key(key))}"


# Acts about limits and slots, by the ledger's names. Each is harmless when repeated: a slot is taken under a key.


UserId = str | int
SLOT_TTL_SECONDS: Final = 300.0
_MICRO: Final = 1_000_000


class CostLimitLike(Protocol):
    """A limit of money, as `onejob.CostLimit` has it: in micro-units."""

    @property
    def amount(self) -> int: ...
    @property
    def period(self) -> str: ...
    @property
    def action(self) -> str: ...


class LimitsLike(Protocol):
    """What a user may hold, as `onejob.Limits` has it; None: unlimited."""

    @property
    def max_concurrent(self) -> int | None: ...
    @property
    def jobs_per_hour(self) -> int | None: ...
    @property
    def jobs_per_day(self) -> int | None: ...
    @property
    def cost_limit(self) -> CostLimitLike | None: ...


class TenantLimitsLike(Protocol):
    """For users without limits of their own, and above which nobody's reach, as `onejob.TenantLimits` has it."""

    @property
    def default(self) -> LimitsLike: ...
    @property
    def ceiling(self) -> LimitsLike: ...


class ClientQuotas:
    def __init__(self, operations: ClientOperations, key_factory: Callable[[], str]) -> None:
        self._operations = operations
        self._key_factory = key_factory

    def reserve_job_slot(
        self, user_id: UserId | None, max_concurrent: int | None, ttl_seconds: float, key: str | None
    ) -> Operation[str | None]:
        try:
            return (yield from self.reserve_job_slot_or_raise(user_id, max_concurrent, ttl_seconds, key)).id
        except SubmissionRefused as error:
            if error.reason is not Reason.QUOTA_EXCEEDED:
                raise
            return None

    def reserve_job_slot_or_raise(
        self, user_id: UserId | None, max_concurrent: int | None, ttl_seconds: float, key: str | None
    ) -> Operation[models.HeldSlotModel]:
        asked = {"user": _user_name(user_id), "maxConcurrent": max_concurrent, "ttlSeconds": ttl_seconds}
        # Without a key a lost answer would leave a slot that nobody knows of.
        call = requests.reserve_slot_call(
            "/api/reservations",
            _encode_given_fields(asked),
            self._key_factory() if key is None else _checked_header_key(key),
        )
        held: models.HeldSlotModel = yield from self._operations.send_idempotent(call)
        return held

    def consume_reservation(self, reservation_id: str, job_id: str | None) -> Operation[None]:
        yield from self._settle_reservation(reservation_id, "consume", {"jobId": job_id})

    def release_reservation(self, reservation_id: str) -> Operation[None]:
        yield from self._settle_reservation(reservation_id, "release", {})

    def renew_reservation(self, reservation_id: str, ttl_seconds: float) -> Operation[datetime]:
        path = f"/api/reservations/{requests.quote_path_segment(reservation_id)}/renew"
        renewed: models.HeldSlotModel = yield from self._operations.send_idempotent(
            _change_call("POST", path, models.HeldSlotModel, {"ttlSeconds": ttl_seconds})
        )
        return renewed.expires_at

    def reservations(self, user_id: UserId | None) -> Operation[list[models.SlotReservationModel]]:
        found: models.SlotReservationsModel = yield from self._operations.send_idempotent(
            requests.get_call("/api/reservations", models.SlotReservationsModel, user=_user_name(user_id))
        )
        return found.reservations

    def usage(self, user_id: UserId | None) -> Operation[models.UsageModel]:
        found: models.UsageModel = yield from self._operations.send_idempotent(
            requests.get_call("/api/usage", models.UsageModel, user=_user_name(user_id))
        )
        return found

    def quota(self, user_id: UserId) -> Operation[models.QuotaModel]:
        found: models.QuotaModel = yield from self._operations.send_idempotent(
            requests.get_call(_quota_path(user_id), models.QuotaModel)
        )
        return found

    def set_quota(self, user_id: UserId, limits: LimitsLike | models.LimitsModel) -> Operation[models.QuotaModel]:
        call = _change_call("PUT", _quota_path(user_id), models.QuotaModel, _limits_body(limits))
        found: models.QuotaModel = yield from self._operations.send_idempotent(call)
        return found

    def tenant_quota(self) -> Operation[models.TenantQuotaModel]:
        found: models.TenantQuotaModel = yield from self._operations.send_idempotent(
            requests.get_call("/api/quotas", models.TenantQuotaModel)
        )
        return found

    def set_tenant_quota(
        self, limits: TenantLimitsLike | models.TenantQuotaModel
    ) -> Operation[models.TenantQuotaModel]:
        both = {"default": _limits_body(limits.default), "ceiling": _limits_body(limits.ceiling)}
        found: models.TenantQuotaModel = yield from self._operations.send_idempotent(
            _change_call("PUT", "/api/quotas", models.TenantQuotaModel, both)
        )
        return found

    def _settle_reservation(self, reservation_id: str, act: str, fields: dict[str, Any]) -> Operation[None]:
        path = f"/api/reservations/{requests.quote_path_segment(reservation_id)}/{act}"
        yield from self._operations.send_idempotent(_change_call("POST", path, models.SettledSlotModel, fields))


def _change_call(method: str, path: str, response_type: Any, fields: dict[str, Any]) -> Call:
    """A change that is the same however often it is made; nothing is said where there is nothing to say."""
    said = {name: value for name, value in fields.items() if value is not None}
    return Call(
        method=method,
        path=path,
        response_type=response_type,
        body=json.encode(said) if said or method == "PUT" else b"",
    )


def _encode_given_fields(fields: dict[str, Any]) -> bytes:
    return json.encode({name: value for name, value in fields.items() if value is not None})


def _quota_path(user_id: UserId) -> str:
    name = _user_name(user_id)
    return f"/api/quotas/{requests.quote_path_segment('' if name is None else name)}"


def _user_name(user_id: UserId | None) -> str | None:
    """A user by its name or its number."""
    if isinstance(user_id, bool) or not isinstance(user_id, (str, int, type(None))):
        raise Invalid("user", "a user is named by a text or a number; give one")
    return str(user_id) if isinstance(user_id, int) else user_id


def _checked_header_key(key: str) -> str:
    """A key that a header can carry."""
    if not (checked_key(key).isascii() and key.isprintable()):
        raise Invalid("key", "the key of a slot travels in a header: plain ASCII only; choose another")
    return checked_key(key)


def _limits_body(limits: LimitsLike | models.LimitsModel) -> dict[str, Any]:
    cost = limits.cost_limit
    # What the ledger's own Struct says is in micro-units; what a server told is in units, as it goes back.
    unit = 1 if isinstance(limits, models.LimitsModel) else _MICRO
    return {
        "maxConcurrent": limits.max_concurrent,
        "jobsPerHour": limits.jobs_per_hour,
        "jobsPerDay": limits.jobs_per_day,
        "costLimit": None
        if cost is None
        else {"amount": cost.amount / unit, "period": cost.period, "action": cost.action},
    }
