"""The operations of a client, as generators whose steps a blocking or an async driver performs."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from threading import Lock
from typing import Any, Final, Protocol, TypeVar, Unpack

from msgspec import Struct, json
from msgspec.structs import asdict, replace

from onejob.codes import NextAction
from onejob.core.key import IdempotencyKey, KeyLike, checked_key
from onejob.core.replies import LimitWarning
from onejob.errors import (
    AmbiguousOutcome,
    Invalid,
    OnejobError,
    Reason,
    SubmissionInProgress,
    SubmissionRefused,
    Unavailable,
    WindowPassed,
)
from onejob.ids import KeyGenerator, new_nonce, random_fraction
from onejob.resources.jobs import EventView, Jobs, JobView, LogPage, SiteView
from onejob.resources.keys import KeyHistory, Keys
from onejob.resources.quotas import (
    LimitsView,
    QuotaResponse,
    ReservationHeld,
    ReservationSettled,
    SlotReservation,
    TenantQuotaResponse,
    UsageResponse,
)
from onejob.resources.submissions import BatchVerdict, ClientState, SubmitResponse

from . import requests
from .errors import decode_or_raise, error_from_problem, raise_no_response
from .flow import (
    CallOutcome,
    DiskWork,
    Operation,
    ProblemBody,
    RetryPolicy,
    Send,
    ServerResponse,
    Sleep,
    StepResult,
    classify,
    remaining_window,
    send_with_retries,
)
from .outbox import Intent, Outbox
from .requests import Call, ClientSequenceReceipt, LimitsLike, SubmissionLike, SubmitOptions, UserId

T = TypeVar("T")
BATCH_MAX: Final = 1_000
BATCH_BYTES_MAX: Final = 1 << 20
OUTBOX_POLL_SECONDS: Final = 0.05
LONG_POLL_SECONDS: Final = 20.0  # shorter than the limits of the server and of most proxies
JOB_POLL_SECONDS: Final = 1.0
SLOT_TTL_SECONDS: Final = 300.0
LEARNED_TYPES_MAX: Final = 1_000
_WINDOW_DEFAULT_MS: Final = requests.WINDOW_DEFAULT // timedelta(milliseconds=1)
_EMPTY_RESPONSE: Final = ServerResponse(0, {}, b"")
_QUOTA_REASONS: Final = (Reason.QUOTA_EXCEEDED, Reason.COST_LIMIT_EXCEEDED)


class ClientReceipt(Struct, frozen=True, kw_only=True):
    """The result of a submission."""

    outcome: str
    key: str
    scope: str
    job_id: str
    job: JobView | None  # None if the server knows the job by its id alone
    expires_at: datetime | None
    attempts: int
    warnings: Sequence[LimitWarning] = ()

    @property
    def created(self) -> bool:
        return self.outcome == "created"

    @property
    def replayed(self) -> bool:
        return self.outcome == "replayed"


SubmitCall = Call[SubmitResponse]
SubmitVerdict = ClientReceipt | OnejobError


class ClientSubmission(Struct, frozen=True, kw_only=True):
    """One logical submission; `options` are those of `Ledger.submit`."""

    type: str
    input: Any = None
    idempotency_key: KeyLike | None = None
    key_from: tuple[str, ...] = ()
    options: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        try:
            return self.options[name]
        except KeyError:
            raise AttributeError(name) from None


class TenantLimitsLike(Protocol):
    """The default and the ceiling of a tenant's users, such as `onejob.TenantLimits`."""

    @property
    def default(self) -> LimitsLike: ...
    @property
    def ceiling(self) -> LimitsLike: ...


class ResumedIntent(Struct, frozen=True):
    """The result of an intent that was left in the outbox: a receipt or an error."""

    key: str
    receipt: ClientReceipt | ClientSequenceReceipt | None = None
    error: OnejobError | None = None


class ServerWindows:
    """The server's key window: as configured, and as learned from `Idempotency-Expires`."""

    def __init__(self, stated: timedelta | None) -> None:
        self._seconds_max = requests.checked_window(stated).total_seconds()
        self._seconds_by_type: dict[str, float] = {}
        self._ends: dict[str, float] = {}  # of the keys that are being submitted, on the monotonic clock
        self._lock = Lock()

    def seconds_for(self, call: Call[Any]) -> float:
        if call.server_window_type is None:
            return call.window_ms / 1000 or float("inf")
        with self._lock:
            known = self._seconds_by_type
            learned = known.get(call.server_window_type, min(known.values(), default=float("inf")))
        return min(self._seconds_max, learned)

    def end_for(self, call: Call[Any]) -> float:
        """When the key of this call may be forgotten, as far as the responses to it have told."""
        return self._ends.get(call.key or "", float("inf"))

    def learn(self, call: Call[Any], headers: Mapping[str, str], *, sent_at: float, wall_ms: int) -> None:
        """Read Idempotency-Expires from the head of a response, before its body, which may never come."""
        seconds = remaining_window(headers, wall_ms=wall_ms) if call.key else None
        if seconds is None or not call.key:
            return
        with self._lock:
            self._ends[call.key] = min(self._ends.get(call.key, float("inf")), sent_at + seconds)
            type = call.server_window_type
            if type and "idempotent-replayed" not in headers:  # otherwise a part of the window was over
                shortest = min(seconds, self._seconds_by_type.pop(type, float("inf")))
                self._seconds_by_type[type] = shortest
                if len(self._seconds_by_type) > LEARNED_TYPES_MAX:
                    del self._seconds_by_type[next(iter(self._seconds_by_type))]

    def forget_end(self, call: Call[Any]) -> None:
        with self._lock:
            self._ends.pop(call.key or "", None)


class ClientOperations:
    def __init__(
        self,
        *,
        retry: RetryPolicy,
        monotonic: Callable[[], float],
        keys: KeyGenerator,
        outbox: Outbox | None,
        windows: ServerWindows,
    ) -> None:
        self._retry = retry
        self._windows = windows
        self._now = monotonic
        self._keys = keys
        self._synced_scopes: set[str] = set()  # scopes whose last committed sequence was read from the server
        self.outbox = outbox

    def submit(
        self,
        type: str,
        input: Any = None,
        *,
        idempotency_key: KeyLike | None = None,
        key_from: Iterable[str] = (),
        **options: Unpack[SubmitOptions],
    ) -> Operation[ClientReceipt]:
        """Create one job, or return the one that this key already created. Without a key, one is generated."""
        names = (key_from,) if isinstance(key_from, str) else tuple(key_from)
        submission = ClientSubmission(
            type=type, input=input, idempotency_key=idempotency_key, key_from=names, options={**options}
        )
        return self._submit_one(submission)

    def submit_many(self, submissions: Iterable[SubmissionLike]) -> Operation[list[SubmitVerdict]]:
        """Independent submissions, sent in batches. Each has its own result: a receipt or an error."""
        verdicts: list[SubmitVerdict] = []
        if self.outbox is not None:
            for submission in submissions:
                try:
                    verdicts.append((yield from self._submit_one(_to_client_submission(submission))))
                except OnejobError as error:
                    verdicts.append(error)
            return verdicts
        remaining = iter(submissions)
        while chunk := list(islice(remaining, BATCH_MAX)):
            verdicts += yield from self._submit_chunk([self._try_build_call(submission) for submission in chunk])
        return verdicts

    def submit_sequence(
        self,
        client_id: str,
        sequence: int,
        idempotency_key: KeyLike,
        type: str | None = None,
        input: Any = None,
        *,
        scope: str,
        jobs: Iterable[SubmissionLike] | None = None,
        idempotency_ttl: timedelta | None = None,
    ) -> Operation[ClientSequenceReceipt]:
        """Execute the next sequence number of a client, or return the answer that it had."""
        submissions, key = _sequence_jobs(type, input, jobs), checked_key(idempotency_key)
        call = requests.sequence_call(client_id, sequence, key, submissions, scope=scope, ttl=idempotency_ttl)
        outcome = yield from self._send_with_retries(call)
        return replace(decode_or_raise(call, outcome), attempts=outcome.attempts)

    def submit_next(
        self,
        type: str | None = None,
        input: Any = None,
        *,
        scope: str,
        jobs: Iterable[SubmissionLike] | None = None,
        idempotency_ttl: timedelta | None = None,
    ) -> Operation[ClientSequenceReceipt]:
        """Submit under the next sequence number of this client, which the outbox counts."""
        outbox, submissions = self._require_outbox(), _sequence_jobs(type, input, jobs)

        def make_call(key: IdempotencyKey) -> Call[ClientSequenceReceipt]:
            return requests.sequence_call(
                key.client_id, key.sequence, str(key), submissions, scope=scope, ttl=idempotency_ttl
            )

        make_call(IdempotencyKey(outbox.client_id, 1, "0" * 16))  # an invalid submission takes no number
        last = yield from self._last_committed_sequence(outbox.client_id, scope)
        end = self._now() + self._retry.deadline
        while True:
            intent, new = yield DiskWork(partial(outbox.write_next_sequence, scope, last, make_call))
            if intent.is_leased:
                if self._now() >= end:
                    raise SubmissionInProgress(key=intent.key, job_id="", retry_after=1.0)
                yield Sleep(OUTBOX_POLL_SECONDS)
                continue
            receipt = yield from self._resolve_sequence_intent(outbox, intent, new=new)
            if new and receipt is not None:
                return receipt
            # The number belonged to an older intent or was used under another key: this submission gets the next.
            self._synced_scopes.discard(scope)
            last = yield from self._last_committed_sequence(outbox.client_id, scope)

    def resume(self) -> Operation[list[ResumedIntent]]:
        """Finish what earlier processes left in the outbox, in the order it was written."""
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

    def get_client_state(self, client_id: str, *, scope: str) -> Operation[ClientState]:
        return self._send(requests.client_state_call(client_id, scope=scope))

    def job(self, job_id: str) -> Operation[JobView]:
        return (yield from self._send(requests.job_call(job_id))).job

    def jobs(
        self,
        *,
        state: str | None = None,
        type: str | None = None,
        user: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Operation[Jobs]:
        """A page of jobs, newest first; `before` is `next` of the previous page."""
        return self._send(requests.jobs_call(state=state, type=type, user=user, before=before, limit=limit))

    def cancel(self, job_id: str, *, idempotency_key: str | None = None) -> Operation[JobView]:
        return (yield from self._send(requests.cancel_call(job_id, idempotency_key))).job

    def explain(self, key: KeyLike, *, scope: str, user: str | None = None) -> Operation[KeyHistory]:
        return self._send(requests.key_call(key, scope=scope, user=user))

    def keys(
        self, *, scope: str | None = None, user: str | None = None, cursor: str | None = None, limit: int = 100
    ) -> Operation[Keys]:
        """A page of keys; `cursor` is `next` of the previous page."""
        return self._send(requests.keys_call(scope=scope, user=user, cursor=cursor, limit=limit))

    def forget(self, key: KeyLike, *, scope: str, user: str | None = None) -> Operation[datetime]:
        return (yield from self._send(requests.forget_call(key, scope=scope, user=user))).usable_after

    def wait(self, job_id: str, timeout: timedelta | float | None = None) -> Operation[JobView]:
        """The job when it has ended, by long polling; TimeoutError if that takes longer than `timeout`."""
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        end = float("inf") if seconds is None else self._now() + seconds
        wait_max = min(LONG_POLL_SECONDS, self._retry.attempt_timeout / 2)
        while True:
            begin = self._now()
            wait = max(0.0, min(wait_max, end - begin))
            job = (yield from self._send(requests.job_call(job_id, wait_seconds=wait))).job
            if job.has_ended:
                return job
            if self._now() >= end:
                raise TimeoutError(f"job {job_id} is {job.state} after {seconds:g} s; look again later")
            if self._now() - begin < wait / 2:  # a server that is full or shutting down answers at once
                yield Sleep(min(JOB_POLL_SECONDS, end - self._now()))

    def result(self, job_id: str) -> Operation[Any]:
        """The result of a job, decoded; NotFound while there is none."""
        return json.decode((yield from self.result_json(job_id)))

    def result_json(self, job_id: str) -> Operation[bytes]:
        """The result of a job as the stored JSON; NotFound while there is none."""
        return bytes((yield from self._send(requests.result_call(job_id))))

    def input(self, job_id: str) -> Operation[bytes]:
        """The job's input as JSON; for operators."""
        return bytes((yield from self._send(requests.input_call(job_id))))

    def sites(self, job_id: str) -> Operation[list[SiteView]]:
        """How the job stands at each of its data centres, as far as the server has heard; empty: it has none."""
        return (yield from self._send(requests.sites_call(job_id))).sites

    def failures(self, job_id: str) -> Operation[list[EventView]]:
        """The failed attempts of a job whose exception had a message, which is `detail`; for operators."""
        return [*(yield from self._send(requests.failures_call(job_id))).failures]

    def log_lines(self, job_id: str, *, offset: int = 0, limit: int = 100) -> Operation[LogPage]:
        return self._send(requests.logs_call(job_id, offset=offset, limit=limit))

    def reserve_job_slot(
        self,
        user_id: UserId | None = None,
        max_concurrent: int | None = None,
        ttl_seconds: float = SLOT_TTL_SECONDS,
        *,
        idempotency_key: KeyLike | None = None,
    ) -> Operation[str | None]:
        """Reserve a slot; None when the quota is used up. Without a user it is the caller's own."""
        try:
            held = yield from self.reserve_job_slot_or_raise(
                user_id, max_concurrent, ttl_seconds, idempotency_key=idempotency_key
            )
        except SubmissionRefused as error:
            if error.reason is not Reason.QUOTA_EXCEEDED:
                raise
            return None
        return held.id

    def reserve_job_slot_or_raise(
        self,
        user_id: UserId | None = None,
        max_concurrent: int | None = None,
        ttl_seconds: float = SLOT_TTL_SECONDS,
        *,
        idempotency_key: KeyLike | None = None,
    ) -> Operation[ReservationHeld]:
        """`reserve_job_slot` with its deadline and warnings; a refusal is raised."""
        # Always under a key: without one, a lost response would leave a slot whose id is unknown.
        key = new_nonce() if idempotency_key is None else idempotency_key
        return self._send(
            requests.reserve_slot_call(key, user=user_id, max_concurrent=max_concurrent, ttl_seconds=ttl_seconds)
        )

    def consume_reservation(self, reservation_id: str, job_id: str | None = None) -> Operation[bool]:
        """Turn a slot into that of a job; without a job id the slot ends, because the job is counted elsewhere.

        False if there is no such slot any more: it expired, was released, or was used for another job.
        """
        return (yield from self._settle_slot(requests.consume_slot_call(reservation_id, job_id)))

    def release_reservation(self, reservation_id: str) -> Operation[bool]:
        """Free a slot; False if there is none to free: it is unknown, expired or consumed."""
        return (yield from self._settle_slot(requests.release_slot_call(reservation_id)))

    def _settle_slot(self, call: Call[ReservationSettled]) -> Operation[bool]:
        try:
            return (yield from self._send(call)).was_known
        except SubmissionRefused as error:
            if error.reason is not Reason.ALREADY_SETTLED and not error.details.get("slotLost"):
                raise
            return False

    def renew_reservation(self, reservation_id: str, ttl_seconds: float = SLOT_TTL_SECONDS) -> Operation[datetime]:
        """Prolong a slot that has not expired; returns its new deadline."""
        return (yield from self._send(requests.renew_slot_call(reservation_id, ttl_seconds))).expires_at

    def reservations(self, user_id: UserId | None = None) -> Operation[list[SlotReservation]]:
        return [*(yield from self._send(requests.slots_call(user_id))).reservations]

    def usage(self, user_id: UserId | None = None) -> Operation[UsageResponse]:
        return self._send(requests.usage_call(user_id))

    def quota(self, user_id: UserId) -> Operation[QuotaResponse]:
        return self._send(requests.quota_call(user_id))

    def set_quota(self, user_id: UserId, limits: LimitsLike | LimitsView) -> Operation[QuotaResponse]:
        """Set the limits of a user (`onejob.Limits`); with empty limits the tenant's default applies."""
        return self._send(requests.set_quota_call(user_id, limits))

    def tenant_quota(self) -> Operation[TenantQuotaResponse]:
        return self._send(requests.tenant_quota_call())

    def set_tenant_quota(self, limits: TenantLimitsLike | TenantQuotaResponse) -> Operation[TenantQuotaResponse]:
        return self._send(requests.set_tenant_quota_call(default=limits.default, ceiling=limits.ceiling))

    def _submit_one(self, submission: ClientSubmission) -> Operation[ClientReceipt]:
        key = _given_or_derived_key(submission)
        if self.outbox is None:
            call = requests.submit_call(submission, str(next(self._keys)) if key is None else key)
            receipt: ClientReceipt = yield from self._send_for_receipt(call)
            return receipt
        intent = yield from self._write_intent(self.outbox, submission, key)
        receipt = yield from self._resolve_intent(self.outbox, intent)
        return receipt

    def _submit_chunk(self, calls: list[SubmitCall | OnejobError]) -> Operation[list[SubmitVerdict]]:
        verdicts: dict[int, SubmitVerdict] = {
            index: call for index, call in enumerate(calls) if isinstance(call, OnejobError)
        }
        for batch in _split_into_batches(calls):
            call = requests.batch_call(batch.values())
            outcome = yield from self._send_with_retries(call, min(map(self._windows.seconds_for, batch.values())))
            response = outcome.response
            complete = isinstance(response, ServerResponse) and classify(response) is NextAction.KEEP
            items = decode_or_raise(call, outcome).verdicts if complete else []
            unknown = outcome.outcome_unknown or not complete
            for position, (index, item_call) in enumerate(batch.items()):
                item = items[position] if len(items) == len(batch) else None
                verdicts[index] = yield from self._resolve_batch_item(item_call, item, outcome_unknown=unknown)
        return [verdicts[index] for index in range(len(calls))]

    def _resolve_batch_item(
        self, call: SubmitCall, item: BatchVerdict | None, *, outcome_unknown: bool
    ) -> Operation[SubmitVerdict]:
        """The verdict of one item; if the batch had none, the item is sent alone, with the same key and bytes."""
        try:
            if item is not None and item.idempotency is not None and item.idempotency.key == call.key:
                response = SubmitResponse(item.job, item.idempotency, item.job_id)
                return _receipt_from_response(response, call, 1)
            if item is not None and item.error is not None:
                problem = ProblemBody(**asdict(item.error))
                refusal = ServerResponse(item.status, {}, json.encode({"error": item.error}))
                if classify(refusal) not in (NextAction.RETRY, NextAction.WAIT):
                    return error_from_problem(problem, refusal, call.key or "")
            outcome = yield from self._send_with_retries(
                call, self._windows.seconds_for(call), outcome_unknown=outcome_unknown
            )
            return _receipt_from_response(decode_or_raise(call, outcome), call, outcome.attempts + 1)
        except OnejobError as error:
            return error

    def _try_build_call(self, submission: SubmissionLike) -> SubmitCall | OnejobError:
        try:
            key = _given_or_derived_key(_to_client_submission(submission))
            return requests.submit_call(submission, str(next(self._keys)) if key is None else key)
        except Invalid as error:
            return error

    def _last_committed_sequence(self, client_id: str, scope: str) -> Operation[int]:
        """The last number that the server has executed; 0 once it was read, because then the outbox counts on."""
        if scope in self._synced_scopes:
            return 0
        state = yield from self._send(requests.client_state_call(client_id, scope=scope))
        self._synced_scopes.add(scope)
        return state.last_committed_sequence

    def _write_intent(self, outbox: Outbox, submission: ClientSubmission, key: str | None) -> Operation[Intent]:
        scope = submission.options.get("scope") or submission.type
        if key is None:
            write = partial(outbox.write_with_new_key, scope, lambda new: requests.submit_call(submission, str(new)))
        else:
            write = partial(outbox.write, requests.submit_call(submission, key), scope)
        intent: Intent = yield DiskWork(write)
        return intent

    def _resolve_sequence_intent(
        self, outbox: Outbox, intent: Intent, *, new: bool
    ) -> Operation[ClientSequenceReceipt | None]:
        """The receipt; None if the number was used before, and this submission certainly was not executed under it."""
        try:
            receipt: ClientSequenceReceipt = yield from self._resolve_intent(outbox, intent)
        except OnejobError as error:
            if _is_used_number(error) and not (new and isinstance(error, WindowPassed)):
                return None
            if new:
                raise
            raise Unavailable(
                f"number {intent.sequence}, left over from before, failed ({error}): "
                "nothing of this submission was sent; resolve that one, then retry"
            ) from error
        return receipt

    def _resolve_intent(self, outbox: Outbox, intent: Intent) -> Operation[Any]:
        """Send an intent until the server has answered it; only then it leaves the disk."""
        call = _call_from_intent(intent)
        if intent.window_ms:
            intent = replace(intent, window_ms=int(self._windows.seconds_for(call) * 1000))
        if not intent.is_new and intent.remaining_ms <= 0:
            yield DiskWork(lambda: outbox.release(intent))
            outcome = CallOutcome(_EMPTY_RESPONSE, 0, outcome_unknown=True, window_passed=True)
            raise_no_response(call, outcome, "it was left over")
        try:
            receipt = yield from self._send_for_receipt(call, intent)
        except Unavailable as error:
            yield DiskWork(lambda: outbox.release(intent))
            # Not Unavailable: with a generated key, retrying the call would be a second submission.
            raise AmbiguousOutcome(
                f"{error}; it is kept in the outbox: resume() sends it", key=intent.key, attempts=0
            ) from error
        except OnejobError as error:
            used = bool(intent.sequence) and _is_used_number(error)  # sending it again never gives a receipt
            keep = isinstance(error, AmbiguousOutcome) or _is_transient(error, resumed=not intent.is_new)
            if keep and not used:
                yield DiskWork(lambda: outbox.release(intent))
            elif not (yield DiskWork(lambda: outbox.settle(intent, executed=used))) and not used:
                # Do not raise the refusal: the caller might submit again, and resume() would then send this intent too.
                message = f"{error}; it could not be removed from the outbox: resume() may send it again"
                raise AmbiguousOutcome(message, key=intent.key, attempts=0) from error
            raise
        except BaseException:
            outbox.release(intent)  # interrupted: no driver performs another step
            raise
        yield DiskWork(lambda: outbox.settle(intent))
        return receipt

    def _send_for_receipt(self, call: Call[Any], intent: Intent | None = None) -> Operation[Any]:
        is_new = intent is None or intent.is_new
        window = self._windows.seconds_for(call) if intent is None else intent.remaining_ms / 1000
        outcome = yield from self._send_with_retries(call, window, outcome_unknown=not is_new)
        response = decode_or_raise(call, outcome)
        if isinstance(response, SubmitResponse):
            return _receipt_from_response(response, call, outcome.attempts)
        return replace(response, attempts=outcome.attempts)

    def _send(self, call: Call[T]) -> Operation[T]:
        """Send a call that may be retried at any time, and decode its response."""
        return decode_or_raise(call, (yield from self._send_with_retries(call)))

    def _send_with_retries(
        self, call: Call[Any], window: float = float("inf"), *, outcome_unknown: bool = False
    ) -> Generator[Send | Sleep, StepResult, CallOutcome]:
        begin = self._now()
        try:
            return (
                yield from send_with_retries(
                    call,
                    self._retry,
                    begin=begin,
                    jitter=random_fraction,
                    window_end=begin + window,
                    learned_window_end=lambda: self._windows.end_for(call),
                    outcome_unknown=outcome_unknown,
                    accepts=call.accepts,
                )
            )
        finally:
            self._windows.forget_end(call)

    def _require_outbox(self) -> Outbox:
        if self.outbox is None:
            raise Invalid("outbox", "this client has no outbox; make it with outbox=PATH")
        return self.outbox


def _given_or_derived_key(submission: ClientSubmission) -> str | None:
    """The given key, or the one derived from `key_from`; None if one is to be generated."""
    if submission.idempotency_key is not None:
        if submission.key_from:
            raise Invalid("key_from", "give a key, or the members it follows from, not both")
        return checked_key(submission.idempotency_key)
    return requests.derived_key(submission.type, submission.input, submission.key_from) if submission.key_from else None


def _to_client_submission(submission: SubmissionLike) -> ClientSubmission:
    if isinstance(submission, ClientSubmission):
        return submission
    options = {name: getattr(submission, name, None) for name in SubmitOptions.__annotations__}
    return ClientSubmission(
        type=submission.type,
        input=submission.input,
        idempotency_key=submission.idempotency_key,
        options={name: value for name, value in options.items() if value is not None},
    )


def _sequence_jobs(type: str | None, input: Any, jobs: Iterable[SubmissionLike] | None) -> list[SubmissionLike]:
    if (jobs is None) == (type is None) or (jobs is not None and input is not None):
        raise Invalid("jobs", "give the type and input of one job, or a list of jobs")
    return [ClientSubmission(type=type, input=input)] if type is not None else list(jobs or ())


def _split_into_batches(calls: list[SubmitCall | OnejobError]) -> Iterator[dict[int, SubmitCall]]:
    """Calls by their index, as one request may carry them: up to a size, and each key once."""
    batch: dict[int, SubmitCall] = {}
    size, keys = 0, set[str | None]()
    for index, call in enumerate(calls):
        if isinstance(call, OnejobError):
            continue
        if batch and (size + len(call.body) > BATCH_BYTES_MAX or call.key in keys):
            yield batch
            batch, size, keys = {}, 0, set()
        batch[index] = call
        size += len(call.body) + 1
        keys.add(call.key)
    if batch:
        yield batch


def _call_from_intent(intent: Intent) -> Call[Any]:
    """The call of a row, byte for byte as it was stored."""
    return Call(
        method="POST",
        path=intent.path,
        response_type=ClientSequenceReceipt if intent.sequence else SubmitResponse,
        body=intent.body,
        key=intent.key,
        window_ms=intent.window_ms,
        # An intent keeps no type: the shortest window that is known of any type bounds it.
        server_window_type="" if intent.window_ms == _WINDOW_DEFAULT_MS else None,
        sequenced=bool(intent.sequence),
    )


def _receipt_from_response(response: SubmitResponse, call: SubmitCall, attempts: int) -> ClientReceipt:
    assert call.key is not None
    return ClientReceipt(
        outcome=response.idempotency.outcome,
        key=call.key,
        scope=response.idempotency.scope,
        job_id=response.job.id if response.job else response.job_id or "",
        job=response.job,
        expires_at=response.idempotency.expires_at,
        attempts=attempts,
        warnings=response.warnings,
    )


def _is_transient(error: OnejobError, *, resumed: bool) -> bool:
    """A refusal that may end by itself. A used-up quota keeps an intent only if no caller waits for the answer."""
    if isinstance(error, SubmissionRefused):
        return error.reason is Reason.RATE_LIMITED or (resumed and error.reason in _QUOTA_REASONS)
    return isinstance(error, SubmissionInProgress)


def _is_used_number(error: OnejobError) -> bool:
    """True if a sequence number was executed before, without a receipt for this key: by an attempt of it, perhaps."""
    if isinstance(error, SubmissionRefused):
        return error.reason is Reason.ALREADY_COMMITTED
    return isinstance(error, WindowPassed)
