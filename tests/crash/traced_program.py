"""A program that lives a small life on one SQLite file, and writes down every answer it got.

It is run under strace, killed anywhere, lied to by its disk, and run again. Every step may be repeated: a key that
was answered must be answered with the same job.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import onejob
from onejob.clock import FakeClock
from onejob.engines.sqlite import schema

R = TypeVar("R")

KEYS = ("plain", "batch-0", "batch-1", "batch-2", "kept", "refused", "failed", "last")
SHORT_WINDOW_KEY = "brief"  # its window ends within the life
GAVE_UP = 3
# So small that commits of this life copy the journal into the file and begin it anew.
CHECKPOINT_PAGES = 24
_LEASE = timedelta(seconds=1)
_CONFIG = onejob.IdempotencyConfig(rejected_ttl_seconds=3600.0, wait_for_pending=False, pending_wait_timeout=0.0)


class AnswerLog:
    """Answers in the order in which they came, one write each: `key job_id`, or `key !Error` for a failure."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def record_answer(self, key: str, job_id: str) -> None:
        os.write(self._file, f"{key} {job_id}\n".encode())

    def record_failure(self, key: str, error: Exception) -> None:
        assert str(error), "an error without a word"
        os.write(self._file, f"{key} !{type(error).__name__} {error}\n".encode())

    def close(self) -> None:
        os.close(self._file)


class GaveUp(Exception):
    """The store stayed ill for longer than this life's patience."""


class Scenario:
    def __init__(self, path: str, acks: AnswerLog, *, at: float, patience: int) -> None:
        self.path = path
        self.acks = acks
        self.clock = FakeClock(monotonic=1_000.0 + at)
        self.patience = patience

    async def first_run(self) -> None:
        """A file is made, and every verb used once."""
        ledger = await self.retry("-", self.open, most=2)
        try:
            await self.submissions(ledger)
            await self.reservations(ledger)
            await self.cancel_and_sweep(ledger)
        finally:
            await ledger.aclose()

    async def second_run(self) -> None:
        """A file that exists is opened again."""
        ledger = await self.retry("-", self.open, most=2)
        try:
            await self.submit(ledger, "plain")
            await self.submit(ledger, "last")
        finally:
            await ledger.aclose()

    async def duplicates_only(self) -> None:
        """Only duplicates are sent, of keys that are settled; then the process is gone."""
        ledger = await self.open()
        for key in KEYS:
            asked = submission(key)
            foreseen = await ledger.dry_run(asked.type, asked.input, idempotency_key=key)
            if foreseen.outcome is onejob.Outcome.REPLAYED:
                await self.submit(ledger, key)
        os.kill(os.getpid(), signal.SIGKILL)

    async def open(self) -> onejob.Ledger:
        url = f"sqlite:///{self.path}"
        retention = timedelta(seconds=1)
        return await onejob.open(url, sweep=False, clock=self.clock, config=_CONFIG, retention=retention)

    async def submissions(self, ledger: onejob.Ledger) -> None:
        await self.submit(ledger, "plain")
        batch = [f"batch-{n}" for n in range(3)]
        for key, verdict in zip(batch, await ledger.submit_many(map(submission, batch)), strict=True):
            if isinstance(verdict, onejob.Receipt):
                self.acks.record_answer(key, verdict.job_id)
            else:
                self.acks.record_failure(key, verdict)
        for key in batch:
            await self.submit(ledger, key)
        await self.submit(ledger, "plain")

    async def reservations(self, ledger: onejob.Ledger) -> None:
        held = await self.reserve(ledger, "kept")
        if held is not None:
            kept = held
            await self.retry("kept", lambda: ledger.commit(kept, b"done"))
        held = await self.reserve(ledger, "refused")
        if held is not None:
            refused = held
            await self.retry("refused", lambda: ledger.reject(refused, b"no"))
        held = await self.reserve(ledger, "failed")
        if held is not None:
            failed = held
            await self.retry("failed", lambda: ledger.fail(failed, "not yet"))
        await self.submit(ledger, "failed")

    async def cancel_and_sweep(self, ledger: onejob.Ledger) -> None:
        plain = await self.submit(ledger, "plain")
        await self.retry("plain", lambda: ledger.cancel(plain))
        brief = await self.submit(ledger, SHORT_WINDOW_KEY)
        await self.retry(SHORT_WINDOW_KEY, lambda: ledger.cancel(brief))
        self.clock.advance(5)
        await self.retry(SHORT_WINDOW_KEY, ledger.sweep)

    async def submit(self, ledger: onejob.Ledger, key: str) -> str:
        asked = submission(key)
        receipt = await self.retry(
            key,
            lambda: ledger.submit(asked.type, asked.input, idempotency_key=key, idempotency_ttl=asked.idempotency_ttl),
        )
        self.acks.record_answer(key, receipt.job_id)
        return receipt.job_id

    async def reserve(self, ledger: onejob.Ledger, key: str) -> onejob.HeldKey | None:
        """The key for a while; None when it is settled already."""
        asked = submission(key)
        try:
            answer = await self.retry(
                key,
                lambda: ledger.check_or_reserve(asked.type, asked.input, idempotency_key=key, lease=_LEASE),
            )
        except onejob.SubmissionRejected as rejected:
            self.acks.record_answer(key, rejected.job_id)
            return None
        self.acks.record_answer(key, answer.job_id)
        return answer if isinstance(answer, onejob.HeldKey) else None

    async def retry(self, key: str, ask: Callable[[], Awaitable[R]], *, most: int = 1000) -> R:
        """Ask until there is an answer; whatever else happens must be one of the two failures."""
        for attempt in range(min(self.patience + 1, most)):
            try:
                return await ask()
            except (onejob.Unavailable, onejob.Unknown) as error:
                self.acks.record_failure(key, error)
            except onejob.SubmissionInProgress:
                # A reservation that was made, but whose answer was lost: its lease must run out first.
                assert attempt, "nobody else holds this key"
                self.clock.advance(2)
        raise GaveUp(key)


def submission(key: str) -> onejob.Submission:
    ttl = timedelta(seconds=1) if key == SHORT_WINDOW_KEY else timedelta(days=1)
    return onejob.Submission(type="t", input={"of": key}, idempotency_key=key, idempotency_ttl=ttl)


def main(part: str, path: str, acks_path: str, at: str, patience: str) -> int:
    schema._CHECKPOINT_PAGES = CHECKPOINT_PAGES
    acks = AnswerLog(acks_path)
    life = Scenario(path, acks, at=float(at), patience=int(patience))
    try:
        asyncio.run({"youth": life.first_run, "age": life.second_run, "ask": life.duplicates_only}[part]())
    except GaveUp:
        return GAVE_UP
    finally:
        acks.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
