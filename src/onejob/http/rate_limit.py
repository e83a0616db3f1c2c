"""Rate limits: each credential has a token bucket, and every new submission takes a token.

A retry of an accepted submission takes none and is never refused. So if the bucket is empty, a dry run finds out
first whether the submission would create something.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from onejob.core.command import Precondition
from onejob.core.lookup import DryRun
from onejob.core.replies import AnyReply, Created, DryRunReply, Refused, SequenceCommitted
from onejob.core.submit import Submit
from onejob.errors import OnejobError, Unknown
from onejob.ledger.base import repeated_under_new_settings
from onejob.ledger.parse import Submission
from onejob.ledger.sequences import SequencedSubmission, build_submit_sequence
from onejob.ledger.service import ServiceLedger
from onejob.ledger.submissions import SUBMIT_CHUNK_SIZE
from onejob.resources.submissions import SequenceReceipt
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from onejob.runtime.present import to_exception
from onejob.runtime.rate_limit import RateLimiter
from onejob.runtime.receipts import HeldKey, Receipt

from .problems import RateLimited


class RateLimitedLedger(ServiceLedger):
    """A caller's ledger whose new submissions take tokens."""

    def __init__(self, runtime: Runtime, caller: Caller, rate_limiter: RateLimiter) -> None:
        super().__init__(runtime, caller)
        self._rate_limiter = rate_limiter
        # By identity, not by secret: a rotated key has no fresh bucket.
        self._bucket_key = (caller.tenant, caller.actor)

    async def submit_prepared(
        self, submission: Submission, precondition: Precondition | None = None, prepared: Submit | None = None
    ) -> Receipt:
        if precondition is not None:
            raise TypeError("rate-limited submissions take no precondition: their credential was checked before")
        await self._rate_limiter.prepare(self._bucket_key, 1)
        with self._take_tokens(1) as tokens:
            if not tokens.taken and (await self._new_record_ids((submission,)))[0] is not None:
                raise self._rate_limited_error()
            receipt = await super().submit_prepared(submission, None, prepared)
            tokens.spent = int(receipt.created)
        return receipt

    async def submit_many(self, submissions: Iterable[Submission]) -> list[Receipt | OnejobError]:
        submissions = list(submissions)
        await self._rate_limiter.prepare(self._bucket_key, len(submissions))
        # After an error some of them may have been created, so no token is given back.
        with self._take_tokens(len(submissions), refund_on_error=False) as tokens:
            admitted: Sequence[bool] = [True] * len(submissions)
            if tokens.taken < len(submissions):
                admitted = await self._admit(submissions, tokens.taken)
            sent = iter(
                await super().submit_many(
                    [submission for submission, ok in zip(submissions, admitted, strict=True) if ok]
                )
            )
            verdicts = [next(sent) if ok else self._rate_limited_error() for ok in admitted]
            tokens.spent = sum(map(_spends_token, verdicts))
        return verdicts

    async def submit_sequence_prepared(self, sequenced: SequencedSubmission) -> SequenceReceipt:
        """A sequence number takes one token, however many jobs it has."""
        await self._rate_limiter.prepare(self._bucket_key, 1)
        with self._take_tokens(1) as tokens:
            if not tokens.taken and await self._would_commit(sequenced):
                raise self._rate_limited_error()
            receipt = await super().submit_sequence_prepared(sequenced)
            tokens.spent = int(receipt.committed)
        return receipt

    async def reserve(
        self, submission: Submission, *, lease: timedelta | None = None, job: bool = True, wait: bool = True
    ) -> HeldKey | Receipt:
        await self._rate_limiter.prepare(self._bucket_key, 1)
        with self._take_tokens(1) as tokens:
            if not tokens.taken and (await self._new_record_ids((submission,)))[0] is not None:
                raise self._rate_limited_error()
            held = await super().reserve(submission, lease=lease, job=job, wait=wait)
            tokens.spent = int(isinstance(held, HeldKey))
        return held

    @contextmanager
    def _take_tokens(self, wanted: int, *, refund_on_error: bool = True) -> Iterator["_TakenTokens"]:
        """Take tokens, and give back those that are not spent; if the outcome is unknown, they are."""
        tokens = _TakenTokens(self._rate_limiter.take(self._bucket_key, wanted))
        try:
            yield tokens
        except OnejobError as error:
            if refund_on_error and not isinstance(error, Unknown):
                tokens.spent = 0
            raise
        finally:
            self._rate_limiter.give_back(self._bucket_key, max(0, tokens.taken - tokens.spent))

    @repeated_under_new_settings
    async def _would_commit(self, sequenced: SequencedSubmission) -> bool:
        command = build_submit_sequence(sequenced, self._caller, self._runtime.ids, windows=self._runtime.windows)
        reply = await self._execute(DryRun(tenant=command.tenant, command=command))
        if not isinstance(reply, DryRunReply):
            raise to_exception(reply, "")
        return isinstance(reply.reply, SequenceCommitted)

    async def _admit(self, submissions: Sequence[Submission], tokens: int) -> list[bool]:
        """Admit known keys, invalid submissions (which fail by themselves), and one new key per token."""
        admitted: list[bool] = []
        seen: set[bytes] = set()
        for start in range(0, len(submissions), SUBMIT_CHUNK_SIZE):
            for record_id in await self._new_record_ids(submissions[start : start + SUBMIT_CHUNK_SIZE]):
                # The second of two equal keys in one batch is a duplicate.
                new = record_id is not None and record_id not in seen
                admitted.append(not new or tokens > 0)
                tokens -= new
                if record_id and admitted[-1]:
                    seen.add(record_id)
        return admitted

    @repeated_under_new_settings
    async def _new_record_ids(self, submissions: Sequence[Submission]) -> list[bytes | None]:
        """The record id of each submission that would create a job (empty without a key), else None."""
        commands = [self._try_build_submit(submission) for submission in submissions]
        submits = await self._add_external_jobs([command for command in commands if isinstance(command, Submit)])
        dry_runs = [DryRun(tenant=submit.tenant, command=submit) for submit in submits]
        replies = iter(await self._gate.execute(dry_runs))
        return [
            command.record_id if isinstance(command, Submit) and _would_create(next(replies)) else None
            for command in commands
        ]

    def _rate_limited_error(self) -> RateLimited:
        seconds = self._rate_limiter.retry_after(self._bucket_key)
        return RateLimited(f"too many new submissions; retry with the same key in {seconds} s", seconds)


class _TakenTokens:
    def __init__(self, taken: int) -> None:
        self.taken = self.spent = taken


def _spends_token(verdict: Receipt | OnejobError) -> bool:
    return verdict.created if isinstance(verdict, Receipt) else isinstance(verdict, Unknown)


def _would_create(reply: AnyReply) -> bool:
    if not isinstance(reply, DryRunReply):
        raise to_exception(reply, "")
    return isinstance(reply.reply, (Created, Refused))
