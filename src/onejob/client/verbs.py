"""The acts of a client, written once as generators: they say what is to be done, and either client does it."""

from collections.abc import Callable, Generator, Iterable
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from onejob.core.key import IdempotencyKey, checked_key
from onejob.errors import (
    AmbiguousOutcome,
    Invalid,
    OnejobError,
    SubmissionInProgress,
    Unavailable,
)
from onejob.ids import KeyGenerator, random_fraction

from . import calls, wire
from .calls import Call, SubmissionLike
from .flow import CallOutcome, RetryPolicy, Send, Sleep, StepResult, send_with_retries
from .judged import NextAction, ProblemBody, ServerResponse, classify
from .outbox import Intent, Outbox
from .refusals import decode_or_raise, error_from_problem, raise_no_response
from .said import (
    ClientSubmission,
    call_from_intent,
    client_state_call,
    given_or_derived_key,
    is_transient,
    receipt_from_response,
    split_into_batches,
    to_client_submission,
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
    receipt: wire.ReceiptModel | wire.SequenceReceiptModel | None = None
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

    def submit(self, submission: ClientSubmission) -> Operation[wire.ReceiptModel]:
        key = given_or_derived_key(submission)
        if self.outbox is None:
            call = calls.submit_call(submission, str(next(self._keys)) if key is None else key)
            receipt: wire.ReceiptModel = yield from self._send_for_receipt(call)
            return receipt
        intent = yield from self._write_intent(self.outbox, submission, key)
        receipt = yield from self._resolve_intent(self.outbox, intent)
        return receipt

    def submit_many(
        self, submissions: Iterable[SubmissionLike]
    ) -> Operation[list[wire.ReceiptModel | OnejobError]]:
        """Independent submissions, each with a verdict of its own. Many travel together."""
        if self.outbox is not None:
            return (yield from self._submit_one_by_one(submissions))
        verdicts: list[wire.ReceiptModel | OnejobError] = []
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
    ) -> Operation[wire.SequenceReceiptModel]:
        call = calls.sequence_call(client_id, scope, sequence, checked_key(key), jobs, ttl)
        ended = yield from self._send_with_retries(call)
        receipt: wire.SequenceReceiptModel = decode_or_raise(call, ended)
        return replace(receipt, attempts=ended.attempts)

    def submit_next(
        self, jobs: list[SubmissionLike], *, scope: str, ttl: timedelta | None
    ) -> Operation[wire.SequenceReceiptModel]:
        """Send the next number of this client, which the outbox counts; whatever is under way is finished first."""
        outbox = self._require_outbox()

        def make(key: IdempotencyKey) -> Call:
            return calls.sequence_call(key.client_id, scope, key.sequence, str(key), jobs, ttl)

        make(IdempotencyKey(outbox.client_id, 1, "0" * 16))  # what cannot be sent takes no number
        last = yield from self._last_committed_sequence(outbox.client_id, scope)
        end = self.now() + self._retry.deadline
        while True:
            intent, new = yield DiskWork(partial(outbox.write_next_sequence, scope, last, make))
            if intent.held:
                if self.now() >= end:
                    raise SubmissionInProgress(key=intent.key, job_id="", retry_after=1.0)
                yield Sleep(OUTBOX_POLL_SECONDS)
                continue
            receipt = yield from self._resolve_sequence_intent(outbox, intent, new=new)
            if new and receipt.jobs:
                return receipt
            if new and receipt.attempts > 1:
                # Executed under this key by a lost attempt, or by somebody else under another: nobody can tell.
                ended = CallOutcome(
                    _EMPTY_RESPONSE, receipt.attempts, outcome_unknown=True, window_passed=True
                )
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
        state: wire.ClientStateModel = yield from self.send_idempotent(client_state_call(client_id, scope))
        self._synced_scopes.add(scope)
        return state.last_committed_sequence

    def _resolve_sequence_intent(
        self, outbox: Outbox, intent: Intent, *, new: bool
    ) -> Operation[wire.SequenceReceiptModel]:
        try:
            receipt: wire.SequenceReceiptModel = yield from self._resolve_intent(outbox, intent)
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

    def _write_intent(
        self, outbox: Outbox, submission: ClientSubmission, key: str | None
    ) -> Operation[Intent]:
        scope = submission.options.get("scope") or submission.type
        if key is None:
            write = partial(
                outbox.write_with_new_key, scope, lambda drawn: calls.submit_call(submission, str(drawn))
            )
        else:
            write = partial(outbox.write, calls.submit_call(submission, key), scope)
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
        if isinstance(given, wire.SubmitResponseModel):
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

    def _submit_batch(
        self, parsed: list[Call | OnejobError]
    ) -> Operation[list[wire.ReceiptModel | OnejobError]]:
        found: dict[int, wire.ReceiptModel | OnejobError] = {}
        for places in split_into_batches(parsed):
            own = {place: call for place in places if isinstance(call := parsed[place], Call)}
            bundle = calls.batch_call(own.values())
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
        self, call: Call, verdict: wire.BatchItemModel | None, *, outcome_unknown: bool
    ) -> Operation[wire.ReceiptModel | OnejobError]:
        """One item's own answer; where it has none yet, it is sent alone, with the same key and bytes."""
        try:
            if (
                verdict is not None
                and verdict.idempotency is not None
                and verdict.idempotency.key == call.key
            ):
                given = wire.SubmitResponseModel(verdict.idempotency, verdict.job, verdict.job_id)
                return receipt_from_response(given, call, 1)
            if verdict is not None and verdict.error is not None:
                told = msgspec.convert(verdict.error, ProblemBody)
                said = ServerResponse(verdict.status, {}, msgspec.json.encode({"error": verdict.error}))
                if classify(said) not in (NextAction.RETRY, NextAction.WAIT):
                    return error_from_problem(told, said, call.key or "")
            ended = yield from self._send_with_retries(
                call, call.window_ms / 1000, outcome_unknown=outcome_unknown
            )
            return receipt_from_response(decode_or_raise(call, ended), call, ended.attempts + 1)
        except OnejobError as error:
            return error

    def _submit_one_by_one(
        self, submissions: Iterable[SubmissionLike]
    ) -> Operation[list[wire.ReceiptModel | OnejobError]]:
        verdicts: list[wire.ReceiptModel | OnejobError] = []
        for one in submissions:
            try:
                verdicts.append((yield from self.submit(to_client_submission(one))))
            except OnejobError as error:
                verdicts.append(error)
        return verdicts

    def _build_call(self, submission: SubmissionLike) -> Call | OnejobError:
        try:
            key = given_or_derived_key(to_client_submission(submission))
            return calls.submit_call(submission, str(next(self._keys)) if key is None else key)
        except Invalid as error:
            return error

    def _require_outbox(self) -> Outbox:
        if self.outbox is None:
            raise Invalid("outbox", "this client has no outbox; make it with outbox=PATH")
        return self.outbox
