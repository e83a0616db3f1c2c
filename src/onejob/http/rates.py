"""How fast one credential may submit new keys: a bucket of tokens that fills with time.

Only what is created takes a token. A key that has a record is answered even when the bucket is empty, for the
retry of an accepted submission must never be refused; so an empty bucket looks the key up before it says no.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from math import ceil
from typing import NamedTuple

from onejob.core.client_views import SequenceReceipt
from onejob.core.lookup import Probe
from onejob.core.receipt import AnyReply, Committed, Created, Foreseen, Refused
from onejob.core.step import Warrant
from onejob.core.submission import Submit
from onejob.core.views import Receipt, Reservation
from onejob.errors import OnejobError, Unknown
from onejob.host import Host
from onejob.intake import Caller, Submission
from onejob.ledger import CHUNK, Ledger
from onejob.outcome import failure
from onejob.sequences import SequencedSubmission, sequence_of

from .problems import RateLimited

BUCKETS_MAX = 100_000

Who = tuple[str, str]


class Bucket(NamedTuple):
    tokens: float
    at: float  # on the monotonic clock: when it held them


class Rates:
    """A bucket for each credential, full at first; the least recently used leave when there are too many."""

    def __init__(
        self,
        *,
        per_second: float,
        burst: int,
        monotonic: Callable[[], float],
        buckets_max: int = BUCKETS_MAX,
    ) -> None:
        self._per_second = per_second
        self._burst = burst
        self._monotonic = monotonic
        self._buckets_max = buckets_max
        self._buckets: OrderedDict[Who, Bucket] = OrderedDict()

    def take(self, who: Who, wanted: int) -> int:
        """Take up to so many whole tokens; returns how many there were."""
        tokens = self._tokens(who)
        taken = min(wanted, int(tokens))
        self._keep(who, tokens - taken)
        return taken

    def give_back(self, who: Who, count: int) -> None:
        if count:
            self._keep(who, min(self._burst, self._tokens(who) + count))

    def retry_after(self, who: Who) -> int:
        """After how many whole seconds there is a token again."""
        lacking = 1 - self._tokens(who)
        return max(1, ceil(lacking / self._per_second))

    def limited(self, ledger: Ledger) -> "RatedLedger":
        return RatedLedger(ledger._host, ledger._caller, self)

    def __len__(self) -> int:
        return len(self._buckets)

    def _tokens(self, who: Who) -> float:
        bucket = self._bucket(who)
        if bucket is None:
            return self._burst
        return min(self._burst, bucket.tokens + (self._monotonic() - bucket.at) * self._per_second)

    def _keep(self, who: Who, tokens: float) -> None:
        self._put(who, Bucket(tokens, self._monotonic()))

    def _bucket(self, who: Who) -> Bucket | None:
        return self._buckets.get(who)

    def _put(self, who: Who, bucket: Bucket) -> None:
        self._buckets[who] = bucket
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._buckets_max:
            self._buckets.popitem(last=False)


class RatedLedger(Ledger):
    """A caller's ledger whose new submissions are counted."""

    def __init__(self, host: Host, caller: Caller, rates: Rates) -> None:
        super().__init__(host, caller)
        self._rates = rates
        # Who it is, whatever the secret: rotation brings no fresh bucket.
        self._who = (caller.tenant, caller.actor)

    async def send(self, submission: Submission, warrant: Warrant | None = None) -> Receipt:
        if warrant is not None:
            raise TypeError("limited submissions lean on no warrant: they look before they send")
        (verdict,) = await self.submit_many((submission,))
        if isinstance(verdict, Receipt):
            return verdict
        raise verdict

    async def submit_many(self, submissions: Iterable[Submission]) -> list[Receipt | OnejobError]:
        waiting = list(submissions)
        taken = self._rates.take(self._who, len(waiting))
        spent = taken
        try:
            admitted: Sequence[bool] = [True] * len(waiting)
            if taken < len(waiting):
                admitted = await self._admitted(waiting, taken)
            sent = iter(
                await super().submit_many([one for one, ok in zip(waiting, admitted, strict=True) if ok])
            )
            verdicts = [next(sent) if ok else self._refusal() for ok in admitted]
            spent = min(taken, sum(map(_spends, verdicts)))
        finally:
            # A failure leaves in doubt what was created, so the tokens stay spent.
            self._rates.give_back(self._who, taken - spent)
        return verdicts

    async def send_sequence(self, said: SequencedSubmission) -> SequenceReceipt:
        """A number has one key, whatever it brings: it takes one token, if it is executed."""
        taken = self._rates.take(self._who, 1)
        spent = taken
        try:
            if not taken and await self._would_commit(said):
                raise self._refusal()
            receipt = await super().send_sequence(said)
            spent = taken if receipt.committed else 0
        except Unknown:
            raise  # in doubt, as above
        except OnejobError:
            spent = 0
            raise
        finally:
            self._rates.give_back(self._who, taken - spent)
        return receipt

    async def reserve(
        self,
        submission: Submission,
        *,
        lease: timedelta | None = None,
        job: bool = True,
        wait: bool = True,
    ) -> Reservation | Receipt:
        taken = self._rates.take(self._who, 1)
        if not taken and (await self._new((submission,)))[0] is not None:
            raise self._refusal()
        spent = taken
        try:
            held = await super().reserve(submission, lease=lease, job=job, wait=wait)
            spent = min(taken, isinstance(held, Reservation))
        except Unknown:
            raise  # in doubt, as above
        except OnejobError:
            spent = 0
            raise
        finally:
            self._rates.give_back(self._who, taken - spent)
        return held

    async def _would_commit(self, said: SequencedSubmission) -> bool:
        command = sequence_of(said, self._caller, self._host.ids)
        reply = await self._ask(Probe(tenant=command.tenant, command=command))
        if not isinstance(reply, Foreseen):
            raise failure(reply, "")
        return isinstance(reply.reply, Committed)

    async def _admitted(self, waiting: Sequence[Submission], left: int) -> list[bool]:
        """Known keys, whatever is wrong in itself, and as many new keys as there are tokens."""
        admitted: list[bool] = []
        seen: set[bytes] = set()
        for start in range(0, len(waiting), CHUNK):
            for record_id in await self._new(waiting[start : start + CHUNK]):
                # The second of two equal keys in one batch is a duplicate already.
                new = record_id is not None and record_id not in seen
                admitted.append(not new or left > 0)
                left -= new
                if record_id and admitted[-1]:
                    seen.add(record_id)
        return admitted

    async def _new(self, waiting: Sequence[Submission]) -> list[bytes | None]:
        """The identity of each key that is new, empty without a key; None for what creates nothing."""
        commands = [self._parsed(one) for one in waiting]
        probes = [Probe(tenant=one.tenant, command=one) for one in commands if isinstance(one, Submit)]
        replies = iter(await self._gate.execute(probes))
        return [
            one.record_id if isinstance(one, Submit) and _would_create(next(replies)) else None
            for one in commands
        ]

    def _refusal(self) -> RateLimited:
        seconds = self._rates.retry_after(self._who)
        return RateLimited(f"too many new submissions; repeat with the same key in {seconds} s", seconds)


def _spends(verdict: Receipt | OnejobError) -> bool:
    return verdict.created if isinstance(verdict, Receipt) else isinstance(verdict, Unknown)


def _would_create(reply: AnyReply) -> bool:
    if not isinstance(reply, Foreseen):
        raise failure(reply, "")
    return isinstance(reply.reply, (Created, Refused))
