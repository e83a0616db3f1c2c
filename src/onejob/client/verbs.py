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
from onejob.ids import KeyGenerator, new_chance

from . import calls, wire
from .calls import Call, Said
from .flow import Ended, Heard, RetryPolicy, Send, Sleep, flow
from .judged import Act, Answer, Told, judged
from .outbox import Intent, Outbox
from .refusals import answered, raise_lost, refusal
from .said import Submission, bundles, call_of, key_of, passing, receipt_of, state_call, submission_of

T = TypeVar("T")
BATCH_MAX: Final = 1_000
POLL_SECONDS: Final = 0.05
_NEVER: Final = Answer(0, {}, b"")


class Do(Struct, frozen=True):
    """Work on the disk, which an event loop gives to a thread."""

    work: Callable[[], Any]


Steps = Generator[Send | Sleep | Do, Any, T]


class Resumed(Struct, frozen=True):
    """What became of an intent that was left over: a receipt, or the error it met."""

    key: str
    receipt: wire.Receipt | wire.SequenceReceipt | None = None
    error: OnejobError | None = None


class Verbs:
    def __init__(
        self,
        *,
        retry: RetryPolicy,
        monotonic: Callable[[], float],
        keys: KeyGenerator,
        outbox: Outbox | None,
        chance: Callable[[], float] = new_chance,
    ) -> None:
        self._retry = retry
        self.patience = retry.attempt_timeout  # for one attempt
        self.now = monotonic
        self._keys = keys
        self._chance = chance
        self._counted: set[str] = set()  # scopes in which the server told how far this client is
        self.outbox = outbox

    def submit(self, said: Submission) -> Steps[wire.Receipt]:
        key = key_of(said)
        if self.outbox is None:
            call = calls.submission(said, str(next(self._keys)) if key is None else key)
            receipt: wire.Receipt = yield from self._sent(call)
            return receipt
        intent = yield from self._written(self.outbox, said, key)
        receipt = yield from self._resolved(self.outbox, intent)
        return receipt

    def submit_many(self, said: Iterable[Said]) -> Steps[list[wire.Receipt | OnejobError]]:
        """Independent submissions, each with a verdict of its own. Many travel together."""
        if self.outbox is not None:
            return (yield from self._one_by_one(said))
        verdicts: list[wire.Receipt | OnejobError] = []
        waiting = iter(said)
        while chunk := list(islice(waiting, BATCH_MAX)):
            verdicts += yield from self._many([self._frozen(one) for one in chunk])
        return verdicts

    def submit_sequence(
        self, client_id: str, sequence: int, key: str, jobs: list[Said], *, scope: str, ttl: timedelta | None
    ) -> Steps[wire.SequenceReceipt]:
        call = calls.number(client_id, scope, sequence, checked_key(key), jobs, ttl)
        ended = yield from self._ended(call)
        receipt: wire.SequenceReceipt = answered(call, ended)
        return replace(receipt, attempts=ended.attempts)

    def submit_next(
        self, jobs: list[Said], *, scope: str, ttl: timedelta | None
    ) -> Steps[wire.SequenceReceipt]:
        """Send the next number of this client, which the outbox counts; whatever is under way is finished first."""
        outbox = self._kept()

        def make(key: IdempotencyKey) -> Call:
            return calls.number(key.client_id, scope, key.sequence, str(key), jobs, ttl)

        make(IdempotencyKey(outbox.client_id, 1, "0" * 16))  # what cannot be sent takes no number
        last = yield from self._last(outbox.client_id, scope)
        end = self.now() + self._retry.deadline
        while True:
            intent, new = yield Do(partial(outbox.write_number, scope, last, make))
            if intent.held:
                if self.now() >= end:
                    raise SubmissionInProgress(key=intent.key, job_id="", retry_after=1.0)
                yield Sleep(POLL_SECONDS)
                continue
            receipt = yield from self._number(outbox, intent, new=new)
            if new and receipt.jobs:
                return receipt
            if new and receipt.attempts > 1:
                # Executed under this key by a lost attempt, or by somebody else under another: nobody can tell.
                ended = Ended(_NEVER, receipt.attempts, doubtful=True, window_passed=True)
                raise_lost(
                    replace(call_of(intent), numbered=False),
                    ended,
                    "its number was executed without a receipt",
                )
            # The number was an older one's, or was taken under another key: this submission gets the next.
            self._counted.discard(scope)
            last = yield from self._last(outbox.client_id, scope)

    def _last(self, client_id: str, scope: str) -> Steps[int]:
        """How far the server has this client. Once it was asked, the file knows."""
        if scope in self._counted:
            return 0
        state: wire.ClientState = yield from self.ask(state_call(client_id, scope))
        self._counted.add(scope)
        return state.last_committed_sequence

    def _number(self, outbox: Outbox, intent: Intent, *, new: bool) -> Steps[wire.SequenceReceipt]:
        try:
            receipt: wire.SequenceReceipt = yield from self._resolved(outbox, intent)
        except OnejobError as error:
            if new:
                raise
            raise Unavailable(
                f"number {intent.sequence}, left over from before, came to no good end ({error}): "
                "nothing of this submission was sent; see to that one, then repeat"
            ) from error
        return receipt

    def resume(self) -> Steps[list[Resumed]]:
        """Finish what earlier processes left, in the order it was written; what others are at is theirs."""
        outbox = self._kept()
        resumed: list[Resumed] = []
        last = 0
        while (intent := (yield Do(partial(outbox.claim, last)))) is not None:
            last = intent.id
            try:
                receipt = yield from self._resolved(outbox, intent)
            except OnejobError as error:
                resumed.append(Resumed(intent.key, error=error))
            else:
                resumed.append(Resumed(intent.key, receipt))
        return resumed

    def ask(self, call: Call) -> Steps[Any]:
        """A call that may be repeated without a key."""
        ended = yield from self._ended(call)
        return answered(call, ended)

    def _written(self, outbox: Outbox, said: Submission, key: str | None) -> Steps[Intent]:
        scope = said.options.get("scope") or said.type
        if key is None:
            write = partial(outbox.write_next, scope, lambda drawn: calls.submission(said, str(drawn)))
        else:
            write = partial(outbox.write, calls.submission(said, key), scope)
        intent: Intent = yield Do(write)
        return intent

    def _resolved(self, outbox: Outbox, intent: Intent) -> Steps[Any]:
        """Send an intent until the server has spoken about it. Only then does it leave the disk."""
        call = call_of(intent)
        if not intent.fresh and intent.remaining_ms <= 0:
            yield Do(lambda: outbox.release(intent))
            raise_lost(call, Ended(_NEVER, 0, doubtful=True, window_passed=True), "it was left over")
        try:
            given = yield from self._sent(call, intent)
        except Unavailable as error:
            yield Do(lambda: outbox.release(intent))
            # Not "nothing was done, repeat": with a key that was drawn, that would be a second submission.
            raise AmbiguousOutcome(
                f"{error}; it is kept in the outbox: resume() sends it", key=intent.key, attempts=0
            ) from error
        except OnejobError as error:
            kept = isinstance(error, AmbiguousOutcome) or passing(error, resumed=not intent.fresh)
            yield Do(lambda: outbox.release(intent) if kept else outbox.settle(intent, executed=False))
            raise
        except BaseException:
            # Interrupted: nobody is left to do it, so it is done here.
            outbox.release(intent)
            raise
        yield Do(lambda: outbox.settle(intent))
        return given

    def _sent(self, call: Call, intent: Intent | None = None) -> Steps[Any]:
        fresh = intent is None or intent.fresh
        left = call.window_ms or float("inf") if intent is None else intent.remaining_ms
        ended = yield from self._ended(call, left / 1000, doubtful=not fresh)
        given = answered(call, ended)
        if isinstance(given, wire.Submitted):
            return receipt_of(given, call, ended.attempts)
        return replace(given, attempts=ended.attempts)

    def _ended(
        self, call: Call, window: float = float("inf"), *, doubtful: bool = False
    ) -> Generator[Send | Sleep | Do, Heard, Ended]:
        begin = self.now()
        return (
            yield from flow(
                call,
                self._retry,
                begin=begin,
                chance=self._chance,
                window_end=begin + window,
                doubtful=doubtful,
                fits=call.fits,
            )
        )

    def _many(self, parsed: list[Call | OnejobError]) -> Steps[list[wire.Receipt | OnejobError]]:
        found: dict[int, wire.Receipt | OnejobError] = {}
        for places in bundles(parsed):
            own = {place: call for place in places if isinstance(call := parsed[place], Call)}
            bundle = calls.batch(own.values())
            window = min((call.window_ms for call in own.values()), default=0) / 1000
            ended = yield from self._ended(bundle, window)
            said = ended.said
            whole = isinstance(said, Answer) and judged(said) is Act.KEEP
            verdicts = answered(bundle, ended).verdicts if whole else []
            for index, (place, call) in enumerate(own.items()):
                verdict = verdicts[index] if len(verdicts) == len(own) else None
                found[place] = yield from self._verdict(call, verdict, doubtful=ended.doubtful or not whole)
        return [one if isinstance(one, OnejobError) else found[place] for place, one in enumerate(parsed)]

    def _verdict(
        self, call: Call, verdict: wire.Verdict | None, *, doubtful: bool
    ) -> Steps[wire.Receipt | OnejobError]:
        """One item's own answer; where it has none yet, it is sent alone, with the same key and bytes."""
        try:
            if (
                verdict is not None
                and verdict.idempotency is not None
                and verdict.idempotency.key == call.key
            ):
                given = wire.Submitted(verdict.idempotency, verdict.job, verdict.job_id)
                return receipt_of(given, call, 1)
            if verdict is not None and verdict.error is not None:
                told = msgspec.convert(verdict.error, Told)
                said = Answer(verdict.status, {}, msgspec.json.encode({"error": verdict.error}))
                if judged(said) not in (Act.RETRY, Act.WAIT):
                    return refusal(told, said, call.key or "")
            ended = yield from self._ended(call, call.window_ms / 1000, doubtful=doubtful)
            return receipt_of(answered(call, ended), call, ended.attempts + 1)
        except OnejobError as error:
            return error

    def _one_by_one(self, said: Iterable[Said]) -> Steps[list[wire.Receipt | OnejobError]]:
        verdicts: list[wire.Receipt | OnejobError] = []
        for one in said:
            try:
                verdicts.append((yield from self.submit(submission_of(one))))
            except OnejobError as error:
                verdicts.append(error)
        return verdicts

    def _frozen(self, said: Said) -> Call | OnejobError:
        try:
            key = key_of(submission_of(said))
            return calls.submission(said, str(next(self._keys)) if key is None else key)
        except Invalid as error:
            return error

    def _kept(self) -> Outbox:
        if self.outbox is None:
            raise Invalid("outbox", "this client has no outbox; make it with outbox=PATH")
        return self.outbox
