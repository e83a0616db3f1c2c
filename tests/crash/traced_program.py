"""A program that runs a small scenario on one SQLite file and records every answer.

It is run under strace, killed at any call, given disk errors, and run again. Every step may be repeated: a key that
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
from onejob.engines import sqlite
from onejob.engines.sqlite import schema

R = TypeVar("R")

KEYS = ("plain", "batch-0", "batch-1", "batch-2", "kept", "refused", "failed", "last")
SHORT_WINDOW_KEY = "brief"  # its window ends within the scenario
GAVE_UP = 3
# So small that commits of this scenario checkpoint and restart the journal.
CHECKPOINT_PAGES = 24
_LEASE = timedelta(seconds=1)
_CONFIG = onejob.IdempotencyConfig(rejected_ttl_seconds=3600.0, wait_for_pending=False, pending_wait_timeout=0.0)


class AnswerLog:
    """Answers in their order, one write each: `key job_id`, or `key !Error message` for a failure."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def record_answer(self, key: str, job_id: str) -> None:
        os.write(self._file, f"{key} {job_id}\n".encode())

    def record_failure(self, key: str, error: Exception) -> None:
        assert str(error), "an error without a message"
        os.write(self._file, f"{key} !{type(error).__name__} {error}\n".encode())

    def close(self) -> None:
        os.close(self._file)


class GaveUp(Exception):
    """The store still failed after the last retry."""


class Scenario:
    def __init__(self, path: str, acks: AnswerLog, *, at: float, retries: int) -> None:
        self.path = path
        self.acks = acks
        self.clock = FakeClock(monotonic=1_000.0 + at)
        self.retries = retries

    async def first_run(self) -> None:
        """Create a file, and use every verb once."""
        ledger = await self.retry("-", self.open, attempts_max=2)
        try:
            await self.submissions(ledger)
            await self.reservations(ledger)
            await self.cancel_and_sweep(ledger)
        finally:
            await ledger.aclose()

    async def second_run(self) -> None:
        """Open an existing file."""
        ledger = await self.retry("-", self.open, attempts_max=2)
        try:
            await self.submit(ledger, "plain")
            await self.submit(ledger, "last")
        finally:
            await ledger.aclose()

    async def duplicates_only(self) -> None:
        """Send only duplicates of settled keys; then kill the process."""
        ledger = await self.open()
        for key in KEYS:
            request = submission(key)
            expected = await ledger.dry_run(request.type, request.input, idempotency_key=key)
            if expected.outcome is onejob.Outcome.REPLAYED:
                await self.submit(ledger, key)
        os.kill(os.getpid(), signal.SIGKILL)

    async def open(self) -> onejob.Ledger:
        url = f"sqlite:///{self.path}"
        retention = timedelta(seconds=1)
        return await onejob.open(url, sweep=False, clock=self.clock, config=_CONFIG, retention=retention)

    async def submissions(self, ledger: onejob.Ledger) -> None:
        await self.submit(ledger, "plain")
        batch = [f"batch-{n}" for n in range(3)]
        for key, result in zip(batch, await ledger.submit_many(map(submission, batch)), strict=True):
            if isinstance(result, onejob.Receipt):
                self.acks.record_answer(key, result.job_id)
            else:
                self.acks.record_failure(key, result)
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
        await self.retry(SHORT_WINDOW_KEY, ledger.admin.sweep)

    async def submit(self, ledger: onejob.Ledger, key: str) -> str:
        request = submission(key)
        receipt = await self.retry(
            key,
            lambda: ledger.submit(
                request.type, request.input, idempotency_key=key, idempotency_ttl=request.idempotency_ttl
            ),
        )
        self.acks.record_answer(key, receipt.job_id)
        return receipt.job_id

    async def reserve(self, ledger: onejob.Ledger, key: str) -> onejob.HeldKey | None:
        """Hold the key; None if it is settled already."""
        request = submission(key)
        try:
            answer = await self.retry(
                key,
                lambda: ledger.check_or_reserve(request.type, request.input, idempotency_key=key, lease=_LEASE),
            )
        except onejob.SubmissionRejected as rejected:
            self.acks.record_answer(key, rejected.job_id)
            return None
        self.acks.record_answer(key, answer.job_id)
        return answer if isinstance(answer, onejob.HeldKey) else None

    async def retry(self, key: str, call: Callable[[], Awaitable[R]], *, attempts_max: int = 1000) -> R:
        """Repeat until there is an answer; any error must be Unavailable or Unknown."""
        for attempt in range(min(self.retries + 1, attempts_max)):
            try:
                return await call()
            except (onejob.Unavailable, onejob.Unknown) as error:
                self.acks.record_failure(key, error)
            except onejob.SubmissionInProgress:
                # A reservation whose answer was lost: its lease must expire first.
                assert attempt, "no other caller holds this key"
                self.clock.advance(2)
        raise GaveUp(key)


def submission(key: str) -> onejob.Submission:
    ttl = timedelta(seconds=1) if key == SHORT_WINDOW_KEY else timedelta(days=1)
    return onejob.Submission(type="t", input={"of": key}, idempotency_key=key, idempotency_ttl=ttl)


def main(part: str, path: str, acks_path: str, at: str, retries: str) -> int:
    schema._CHECKPOINT_PAGES = CHECKPOINT_PAGES
    sqlite.FAST_PATH_PAUSE_BATCHES = 0
    acks = AnswerLog(acks_path)
    scenario = Scenario(path, acks, at=float(at), retries=int(retries))
    try:
        asyncio.run(
            {
                "first_run": scenario.first_run,
                "second_run": scenario.second_run,
                "duplicates": scenario.duplicates_only,
            }[part]()
        )
    except GaveUp:
        return GAVE_UP
    finally:
        acks.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
