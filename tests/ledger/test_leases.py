"""Work under the lease of a held key: the lease is renewed, lost work is cancelled, the key is settled once."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

import onejob
from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.replies import Reason
from onejob.core.states import JobState
from onejob.errors import (
    Invalid,
    LeaseLost,
    SubmissionInProgress,
    SubmissionRefused,
    SubmissionRejected,
    Unavailable,
    Unknown,
)
from onejob.ledger.leases import FinalRejection, LeaseRenewal, run_under_lease, run_while_renewing
from tests.http.endpoints.cloud_service import wait_until

RANDOM = bytes(range(16))


@pytest.fixture
async def ledger(url: str, frequent_renewals: None) -> AsyncIterator[onejob.Ledger]:
    keys = onejob.IdempotencyConfig(pending_ttl_seconds=3, wait_for_pending=False)
    async with onejob.open(url, config=keys, sweep=False) as opened:
        yield opened


async def hold_key(ledger: onejob.Ledger, key: str = "k", **options: Any) -> onejob.HeldKey:
    held = await ledger.check_or_reserve("train", {"a": 1}, idempotency_key=key, **options)
    assert isinstance(held, onejob.HeldKey)
    return held


async def test_the_result_of_the_work_is_the_receipt(ledger: onejob.Ledger) -> None:
    async def work(renewal: LeaseRenewal) -> bytes:
        return b"done"

    receipt = await run_under_lease(ledger, await hold_key(ledger), work)
    assert (receipt.created, receipt.receipt) == (True, b"done")
    again = await ledger.check_or_reserve("train", {"a": 1}, idempotency_key="k")
    assert isinstance(again, onejob.Receipt)
    assert (again.job_id, again.receipt) == (receipt.job_id, b"done")


async def test_the_lease_of_a_key_without_a_job_is_renewed_too(ledger: onejob.Ledger) -> None:
    async def work(renewal: LeaseRenewal) -> bytes:
        begin = renewal.lease_until
        await wait_until(lambda: renewal.lease_until > begin)
        return b"answer"

    receipt = await run_under_lease(ledger, await hold_key(ledger, job=False), work)
    assert (receipt.job, receipt.receipt) == (None, b"answer")


async def test_a_failure_releases_the_key_at_once(ledger: onejob.Ledger) -> None:
    async def work(renewal: LeaseRenewal) -> bytes:
        raise KeyError("no")

    first = await hold_key(ledger, lease=timedelta(hours=1))
    with pytest.raises(KeyError):
        await run_under_lease(ledger, first, work)
    second = await hold_key(ledger)
    assert (second.job_id, second.token) == (first.job_id, 2)


async def test_a_cancellation_is_a_failure_too(ledger: onejob.Ledger) -> None:
    started = asyncio.Event()

    async def work(renewal: LeaseRenewal) -> bytes:
        started.set()
        await asyncio.Event().wait()
        return b""

    first = await hold_key(ledger)
    task = asyncio.create_task(run_under_lease(ledger, first, work))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await hold_key(ledger)).token == 2


async def test_work_whose_lease_was_taken_over_is_stopped_and_releases_nothing(ledger: onejob.Ledger) -> None:
    stopped = asyncio.Event()

    async def work(renewal: LeaseRenewal) -> bytes:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return b""

    first = await hold_key(ledger, lease=timedelta(milliseconds=1))
    await asyncio.sleep(0.02)
    second = await hold_key(ledger)
    assert (second.job_id, second.token) == (first.job_id, 2)
    unaware = replace(first, lease_end=math.inf)  # as a process that was suspended
    with pytest.raises(LeaseLost):
        await run_under_lease(ledger, unaware, work)
    await stopped.wait()
    assert (await ledger.commit(second)).job_id == first.job_id


async def test_work_whose_lease_was_taken_over_commits_nothing_even_if_it_finishes_first(ledger: onejob.Ledger) -> None:
    async def work(renewal: LeaseRenewal) -> bytes:
        return b"late"

    first = await hold_key(ledger, lease=timedelta(milliseconds=1))
    await asyncio.sleep(0.02)
    second = await hold_key(ledger)
    with pytest.raises(LeaseLost):
        await run_under_lease(ledger, replace(first, lease_end=math.inf), work)
    assert (await ledger.commit(second, b"right")).receipt == b"right"


async def test_a_job_that_was_cancelled_stops_its_work_and_settles_its_key(ledger: onejob.Ledger) -> None:
    first = await hold_key(ledger)

    async def work(renewal: LeaseRenewal) -> bytes:
        await ledger.cancel(renewal.held_key.job_id)
        await asyncio.Event().wait()
        return b""

    receipt = await run_under_lease(ledger, first, work)
    assert receipt.job is not None
    assert receipt.job.state is JobState.CANCELLED


@pytest.mark.parametrize("error", [Unavailable("away"), Unknown("may be")])
async def test_store_errors_are_retried_until_the_lease_ends(
    ledger: onejob.Ledger, error: onejob.OnejobError, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def fail_twice(name: str) -> None:
        real = getattr(ledger, name)

        async def failing(*args: Any) -> Any:
            calls.append(name)
            if calls.count(name) <= 2:
                if isinstance(error, Unknown):
                    await real(*args)  # it was done, and only the reply was lost
                raise error
            return await real(*args)

        monkeypatch.setattr(ledger, name, failing)

    async def work(renewal: LeaseRenewal) -> bytes:
        await wait_until(lambda: calls.count("renew") >= 3)
        return b"done"

    first = await hold_key(ledger)
    fail_twice("renew")
    fail_twice("commit")
    receipt = await run_under_lease(ledger, first, work)
    assert (receipt.job_id, receipt.receipt) == (first.job_id, b"done")
    assert calls.count("commit") == 3


async def test_renewals_are_in_time_and_jittered() -> None:
    loop = asyncio.get_running_loop()
    moments: list[float] = []

    async def renew() -> float:
        moments.append(loop.time())
        return loop.time() + 10

    async def work() -> str:
        await wait_until(lambda: len(moments) >= 4)
        return "done"

    begin = loop.time()
    ended = await run_while_renewing(
        work(), renew, interval_seconds=0.1, jitter_seed=b"\x00\xff\x00\xff", lease_end=begin + 10
    )
    assert ended == "done"
    pauses = [after - before for before, after in zip([begin, *moments], moments, strict=False)]
    assert all(pause >= 0.079 for pause in pauses)
    assert all(pauses[n] >= 0.099 for n in (0, 2))


async def test_a_refusal_to_renew_ends_the_work() -> None:
    refused = SubmissionRefused(key="k", reason=Reason.SLOT_LOST, message="slot lost")
    stopped = asyncio.Event()

    async def renew() -> float:
        raise refused

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    with pytest.raises(SubmissionRefused):
        await run_while_renewing(work(), renew, interval_seconds=0.01, jitter_seed=RANDOM, lease_end=math.inf)
    await stopped.wait()


async def test_work_stops_when_its_lease_is_over_although_the_renewal_hangs(ledger: onejob.Ledger) -> None:
    loop = asyncio.get_running_loop()
    stopped: list[float] = []

    async def hang() -> float:
        await asyncio.Event().wait()
        return math.inf

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(loop.time())

    sent = loop.time()
    held = await hold_key(ledger, lease=timedelta(seconds=0.3))
    assert sent + 0.29 < held.lease_end <= loop.time() + 0.3
    with pytest.raises(LeaseLost, match="before the store answered"):
        await run_while_renewing(work(), hang, interval_seconds=0.1, jitter_seed=RANDOM, lease_end=held.lease_end)
    await asyncio.sleep(0)
    assert held.lease_end <= stopped[0] < held.lease_end + 2


async def test_work_does_not_begin_when_its_lease_is_over(ledger: onejob.Ledger) -> None:
    began = False

    async def work(renewal: LeaseRenewal) -> bytes:
        nonlocal began
        began = True
        return b""

    held = await hold_key(ledger, lease=timedelta(milliseconds=1))
    await asyncio.sleep(0.02)
    with pytest.raises(LeaseLost):
        await run_under_lease(ledger, held, work)
    assert not began


class Outage:
    """A ledger whose commands on held keys fail while it lasts."""

    def __init__(self, ledger: onejob.Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_on = False
        self.failures = 0
        for name in ("commit", "reject", "fail", "renew"):
            monkeypatch.setattr(ledger, name, self._failing(getattr(ledger, name)))

    def _failing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(*arguments: Any) -> Any:
            if self.is_on:
                self.failures += 1
                raise Unavailable("the store is away: nothing was done; retry")
            return await method(*arguments)

        return call

    async def work(self, _: LeaseRenewal) -> bytes:
        self.is_on = True
        return b"done"

    async def reject(self, _: LeaseRenewal) -> bytes:
        self.is_on = True
        raise FinalRejection(b"no")


async def test_an_outage_after_the_work_does_not_release_its_key(
    ledger: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(ledger, monkeypatch)
    running = asyncio.create_task(run_under_lease(ledger, await hold_key(ledger), outage.work))
    await wait_until(lambda: outage.failures > 6)
    outage.is_on = False
    assert (await running).receipt == b"done"


async def test_a_key_is_settled_after_however_many_attempts(
    ledger: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.ledger.leases.SETTLE_PAUSE_SECONDS_MAX", 0.0)
    outage = Outage(ledger, monkeypatch)
    running = asyncio.create_task(run_under_lease(ledger, await hold_key(ledger), outage.work))
    await wait_until(lambda: outage.failures > 1100)
    outage.is_on = False
    assert (await running).receipt == b"done"


async def test_an_outage_after_a_final_rejection_does_not_release_its_key(
    ledger: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(ledger, monkeypatch)
    running = asyncio.create_task(run_under_lease(ledger, await hold_key(ledger), outage.reject))
    await wait_until(lambda: outage.failures > 6)
    outage.is_on = False
    with pytest.raises(FinalRejection):
        await running
    with pytest.raises(SubmissionRejected):
        await hold_key(ledger)


async def replay(ledger: onejob.Ledger) -> onejob.Receipt:
    while True:
        with suppress(SubmissionInProgress):
            receipt = await ledger.check_or_reserve("train", {"a": 1}, idempotency_key="k")
            assert isinstance(receipt, onejob.Receipt)
            return receipt
        await asyncio.sleep(0.01)


async def test_a_cancelled_caller_does_not_release_the_key_of_work_that_is_done(
    ledger: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(ledger, monkeypatch)
    running = asyncio.create_task(run_under_lease(ledger, await hold_key(ledger), outage.work))
    await wait_until(lambda: outage.failures > 0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    outage.is_on = False
    async with asyncio.timeout(20):
        assert (await replay(ledger)).receipt == b"done"


async def test_a_caller_that_is_cancelled_in_the_moment_the_work_ends_does_not_release_the_key(
    ledger: onejob.Ledger,
) -> None:
    async def work(_: LeaseRenewal) -> bytes:
        running.cancel()
        return b"done"

    running = asyncio.create_task(run_under_lease(ledger, await hold_key(ledger), work))
    with pytest.raises(asyncio.CancelledError):
        await running
    async with asyncio.timeout(20):
        assert (await replay(ledger)).receipt == b"done"


async def test_a_commit_whose_answer_is_lost_is_found_though_the_renewal_is_refused(
    ledger: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, answers_lost, renewals_refused = ledger.commit, 0, 0
    renew = ledger.renew

    async def lose_first_answer(held: onejob.HeldKey, receipt: bytes) -> onejob.Receipt:
        nonlocal answers_lost
        stored = await commit(held, receipt)
        if answers_lost:
            return stored
        answers_lost += 1
        await wait_until(lambda: renewals_refused > 0)
        raise Unknown("the answer was lost")

    async def count_refused(held: onejob.HeldKey) -> onejob.HeldKey:
        nonlocal renewals_refused
        try:
            return await renew(held)
        except LeaseLost:
            renewals_refused += 1
            raise

    async def work(_: LeaseRenewal) -> bytes:
        return b"done"

    monkeypatch.setattr(ledger, "commit", lose_first_answer)
    monkeypatch.setattr(ledger, "renew", count_refused)
    assert (await run_under_lease(ledger, await hold_key(ledger), work)).receipt == b"done"


async def test_settling_ends_when_the_ledger_is_closed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onejob.runtime._SETTLING_SECONDS_MAX", 0.1)
    async with onejob.open(url, sweep=False) as ledger:
        outage = Outage(ledger, monkeypatch)
        held = await hold_key(ledger, lease=timedelta(hours=1))
        running = asyncio.create_task(run_under_lease(ledger, held, outage.work))
        await wait_until(lambda: outage.failures > 0)
    with pytest.raises(Unknown, match="the ledger was closed"):
        await running


async def test_a_ledger_that_is_closed_waits_for_keys_that_are_being_settled(durable_url: str) -> None:
    async def work(_: LeaseRenewal) -> bytes:
        running.cancel()
        return b"done"

    async with onejob.open(durable_url, sweep=False) as ledger:
        running = asyncio.create_task(run_under_lease(ledger, await hold_key(ledger), work))
        with pytest.raises(asyncio.CancelledError):
            await running
    async with onejob.open(durable_url, sweep=False) as ledger:
        assert (await replay(ledger)).receipt == b"done"


async def test_an_outage_until_the_lease_is_over_leaves_the_outcome_unknown(
    ledger: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage(ledger, monkeypatch)
    with pytest.raises(Unknown, match="the work has ended"):
        await run_under_lease(ledger, await hold_key(ledger, lease=timedelta(seconds=1)), outage.work)


async def test_a_receipt_that_cannot_be_stored_releases_the_key(ledger: onejob.Ledger) -> None:
    async def work(_: LeaseRenewal) -> bytes:
        return bytes(INPUT_BYTES_MAX + 1)

    with pytest.raises(Invalid):
        await run_under_lease(ledger, await hold_key(ledger, lease=timedelta(hours=1)), work)
    await hold_key(ledger)


async def test_a_lease_counts_from_after_the_wait_for_another_holder(url: str) -> None:
    config = onejob.IdempotencyConfig(pending_wait_timeout=5)
    async with onejob.open(url, config=config, sweep=False) as waiting:
        first = await hold_key(waiting, lease=timedelta(seconds=3))
        taking = asyncio.create_task(hold_key(waiting, lease=timedelta(seconds=3)))
        await asyncio.sleep(0.5)
        resent = asyncio.get_running_loop().time()
        await waiting.fail(first)
        second = await taking
        assert second.token == 2
        assert second.lease_end >= resent + 3


async def test_work_that_ignores_cancellation_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    go = asyncio.Event()

    async def renew() -> float:
        raise LeaseLost("gone")

    async def work() -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        raise RuntimeError("late")

    async with asyncio.timeout(15):
        with pytest.raises(LeaseLost):
            await run_while_renewing(work(), renew, interval_seconds=0.01, jitter_seed=RANDOM, lease_end=math.inf)
    go.set()
    await wait_until(lambda: "RuntimeError" in caplog.text)
