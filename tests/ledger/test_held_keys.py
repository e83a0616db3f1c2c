"""The ledger's verbs for a held key: reserve, renew, commit, reject, fail, take over."""

import asyncio
from datetime import timedelta

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.ledger.service import ServiceLedger

LEASE = timedelta(seconds=10)


async def hold_key(queue: onejob.Ledger, **options: object) -> onejob.HeldKey:
    held = await queue.check_or_reserve("train", {"n": 1}, idempotency_key="k", lease=LEASE, **options)  # type: ignore[arg-type]
    assert isinstance(held, onejob.HeldKey)
    return held


async def test_a_held_key_is_in_progress_for_every_other_caller(queue: onejob.Ledger) -> None:
    held = await hold_key(queue)
    assert (await queue.job(held.job_id)).state is onejob.JobState.PREPARING
    for method in (queue.submit, queue.check_or_reserve):
        with pytest.raises(onejob.SubmissionInProgress) as caught:
            await method("train", {"n": 1}, idempotency_key="k")
        assert caught.value.job_id == held.job_id
        assert 0 < caught.value.retry_after <= 10.001


async def test_a_mismatch_comes_before_in_progress(queue: onejob.Ledger) -> None:
    await hold_key(queue)
    with pytest.raises(onejob.IdempotencyConflict) as caught:
        await queue.submit("train", {"n": 2}, idempotency_key="k")
    assert caught.value.paths == ("/input/n",)


async def test_a_commit_makes_the_job_ready_and_is_the_answer_from_then_on(queue: onejob.Ledger) -> None:
    held = await hold_key(queue)
    done = await queue.commit(held, b"201 Created")
    assert done.job is not None
    assert done.job.state is onejob.JobState.PENDING
    again = await queue.check_or_reserve("train", {"n": 1}, idempotency_key="k")
    assert isinstance(again, onejob.Receipt)
    assert (again.job_id, again.receipt) == (held.job_id, b"201 Created")
    assert (await queue.commit(held, b"201 Created")).job_id == held.job_id
    with pytest.raises(onejob.LeaseLost):
        await queue.commit(held, b"other")


async def test_a_rejection_is_remembered_for_its_time(queue: onejob.Ledger, clock: FakeClock) -> None:
    held = await hold_key(queue)
    await queue.reject(held, b"no such config")
    with pytest.raises(onejob.SubmissionRejected) as caught:
        await queue.submit("train", {"n": 1}, idempotency_key="k")
    assert caught.value.receipt == b"no such config"
    clock.advance(60.001)
    assert (await queue.submit("train", {"n": 1}, idempotency_key="k")).created


async def test_a_failure_keeps_the_body_and_the_job_id(queue: onejob.Ledger) -> None:
    held = await hold_key(queue)
    released = await queue.fail(held, "upload broke")
    assert (released.outcome, released.created, released.expires_at) == (onejob.Outcome.REFUSED, False, None)
    with pytest.raises(onejob.IdempotencyConflict):
        await queue.submit("train", {"n": 2}, idempotency_key="k")
    again = await hold_key(queue)
    assert again.job_id == held.job_id
    assert again.token == held.token + 1


async def test_an_expired_lease_is_taken_over_with_the_same_job_and_the_late_holder_loses(
    queue: onejob.Ledger, clock: FakeClock
) -> None:
    held = await hold_key(queue)
    clock.advance(10)
    with pytest.raises(onejob.SubmissionInProgress):
        await queue.submit("train", {"n": 1}, idempotency_key="k")
    clock.advance(0.001)
    taken = await hold_key(queue)
    assert taken.taken_over
    assert taken.job_id == held.job_id
    for late in (queue.commit, queue.reject, queue.fail, queue.renew):
        with pytest.raises(onejob.LeaseLost):
            await late(held)
    assert (await queue.commit(taken)).job_id == held.job_id


async def test_a_plain_submission_finishes_what_was_abandoned(queue: onejob.Ledger, clock: FakeClock) -> None:
    held = await hold_key(queue)
    clock.advance(10.001)
    receipt = await queue.submit("train", {"n": 1}, idempotency_key="k")
    assert receipt.job_id == held.job_id
    with pytest.raises(onejob.LeaseLost):
        await queue.commit(held)


async def test_a_renewed_lease_keeps_the_key(queue: onejob.Ledger, clock: FakeClock) -> None:
    held = await hold_key(queue)
    for _ in range(5):
        clock.advance(9)
        held = await queue.renew(held)
    with pytest.raises(onejob.SubmissionInProgress):
        await queue.submit("train", {"n": 1}, idempotency_key="k")


async def test_a_record_without_a_job_replays_its_receipt(queue: onejob.Ledger) -> None:
    held = await hold_key(queue, job=False)
    assert not held.job_id
    await queue.commit(held, b"204")
    again = await queue.check_or_reserve("train", {"n": 1}, idempotency_key="k", job=False)
    assert isinstance(again, onejob.Receipt)
    assert (again.job, again.receipt) == (None, b"204")
    assert await queue.jobs() == []


async def test_without_waiting_a_held_key_is_refused_at_once(url: str) -> None:
    async with onejob.open(url, sweep=False) as queue:  # with the default settings a duplicate waits for half a minute
        held = await hold_key(queue)
        submission = onejob.Submission(type="train", input={"n": 1}, idempotency_key="k")
        async with asyncio.timeout(15):
            with pytest.raises(onejob.SubmissionInProgress) as caught:
                await queue.reserve(submission, wait=False)
        assert caught.value.job_id == held.job_id


async def test_only_a_key_can_be_reserved(queue: onejob.Ledger) -> None:
    with pytest.raises(onejob.Invalid):
        await queue.reserve(onejob.Submission(type="train"))


async def test_a_holder_is_alive_if_it_renews_its_lease(url: str) -> None:
    submission = onejob.Submission(type="train", input={"n": 1}, idempotency_key="k")
    async with onejob.open(url, sweep=False) as queue:
        assert not await ServiceLedger.of(queue).is_holder_alive(submission, seconds=5)  # not held
        held = await hold_key(queue)
        assert await ServiceLedger.of(queue).is_holder_alive(
            submission, seconds=0.2
        )  # not renewed yet, not expired either
        watching = asyncio.create_task(ServiceLedger.of(queue).is_holder_alive(submission, seconds=30))
        await asyncio.sleep(0.05)
        held = await queue.renew(held)
        assert await watching
        watching = asyncio.create_task(ServiceLedger.of(queue).is_holder_alive(submission, seconds=30))
        await asyncio.sleep(0.05)
        await queue.fail(held)
        assert not await watching


async def test_waiting_duplicates_are_answered_when_the_holder_settles(url: str) -> None:
    async with onejob.open(url, sweep=False) as queue:
        held = await hold_key(queue)
        waiting = [asyncio.ensure_future(queue.submit("train", {"n": 1}, idempotency_key="k")) for _ in range(20)]
        while queue.admin.cache_stats().waiters < 20:
            await asyncio.sleep(0.001)
        await queue.commit(held)
        receipts = await asyncio.gather(*waiting)
    assert {receipt.job_id for receipt in receipts} == {held.job_id}
    assert not any(receipt.created for receipt in receipts)


async def test_a_hundred_take_overs_have_one_winner(queue: onejob.Ledger, clock: FakeClock) -> None:
    await hold_key(queue)
    clock.advance(11)
    results = await asyncio.gather(
        *(queue.check_or_reserve("train", {"n": 1}, idempotency_key="k", lease=LEASE) for _ in range(100)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, onejob.HeldKey) for result in results) == 1
    assert sum(isinstance(result, onejob.SubmissionInProgress) for result in results) == 99


@pytest.mark.parametrize("job", [True, False])
async def test_stats_count_a_held_key_as_pending_until_it_is_settled(queue: onejob.Ledger, job: bool) -> None:
    held = await hold_key(queue, job=job)
    assert queue.admin.cache_stats().pending == 1
    held = await queue.renew(held)
    assert queue.admin.cache_stats().pending == 1
    await queue.commit(held)
    assert queue.admin.cache_stats().pending == 0


async def test_stats_do_not_count_a_key_whose_lease_is_over(queue: onejob.Ledger, clock: FakeClock) -> None:
    await hold_key(queue)
    clock.advance(10)
    assert queue.admin.cache_stats().pending == 0


async def test_stats_do_not_count_a_key_that_was_released(queue: onejob.Ledger) -> None:
    await queue.fail(await hold_key(queue))
    assert queue.admin.cache_stats().pending == 0
