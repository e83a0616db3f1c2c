"""A key that `store_idempotency_key` stored without naming a type, submitted at every door, on every engine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.identity import Actor
from onejob.http.app import HttpApp
from onejob.ledger import service
from onejob.ledger.base import runtime_of
from onejob.ledger.service import ServiceLedger
from onejob.runtime import external_keys
from tests.support.app_server import serve_app
from tests.support.job_rows import load_job_row

REPLAYED = onejob.Outcome.REPLAYED


@pytest.fixture
async def second(url: str, clock: FakeClock, queue: onejob.Ledger) -> AsyncIterator[onejob.Ledger]:
    """Another process on the same store; a store in memory has only one."""
    if url.startswith("memory:"):
        yield queue
        return
    async with onejob.open(url, clock=clock, sweep=False) as ledger:
        yield ledger


DOORS: dict[str, Callable[[onejob.Ledger], Awaitable[Any]]] = {
    "submit": lambda queue: queue.submit("t", {"n": 1}, idempotency_key="k"),
    "submit_many": lambda queue: queue.submit_many([onejob.Submission(type="t", input={"n": 1}, idempotency_key="k")]),
    "check_or_reserve": lambda queue: queue.check_or_reserve("t", {"n": 1}, idempotency_key="k"),
    "dry_run": lambda queue: queue.dry_run("t", idempotency_key="k"),
    "own scope": lambda queue: queue.submit("t", idempotency_key="k", scope="mine"),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
async def test_a_stored_key_is_a_hit_at_every_door(
    queue: onejob.Ledger, second: onejob.Ledger, door: Callable[[onejob.Ledger], Awaitable[Any]]
) -> None:
    await second.submit("t", idempotency_key="before")  # it knows that there are no stored keys
    await queue.store_idempotency_key("k", "job-xyz789", user_id=42, ttl_hours=24)
    for ledger in (second, queue):
        answer = await door(ledger)
        (receipt,) = answer if isinstance(answer, list) else (answer,)
        assert (receipt.outcome, receipt.job_id, receipt.job) == (REPLAYED, "job-xyz789", None)
    assert len(await queue.jobs()) == 1


async def test_a_key_that_has_its_job_keeps_it_whatever_is_stored_later(queue: onejob.Ledger) -> None:
    first = await queue.submit("t", idempotency_key="k")
    await queue.store_idempotency_key("k", "job-xyz789")
    assert (await queue.submit("t", idempotency_key="k")).job_id == first.job_id
    assert (await queue.dry_run("t", idempotency_key="k")).job_id == first.job_id
    assert (await queue.submit("other", idempotency_key="k")).job_id == "job-xyz789"
    assert (await queue.submit("t", idempotency_key="another")).created


async def test_a_stored_key_makes_a_new_job_after_its_window(queue: onejob.Ledger, clock: FakeClock) -> None:
    await queue.store_idempotency_key("k", "job-xyz789", ttl_hours=1)
    assert not (await queue.submit("t", idempotency_key="k")).created
    clock.advance(3601)
    assert (await queue.submit("t", idempotency_key="k")).created


async def test_a_key_that_is_stored_and_submitted_at_once_has_one_answer(
    queue: onejob.Ledger, second: onejob.Ledger
) -> None:
    await queue.store_idempotency_key("first", "x")
    for n in range(20):
        key = f"k{n}"
        _, *receipts = await asyncio.gather(
            queue.store_idempotency_key(key, "job-xyz789"),
            *(ledger.submit("t", idempotency_key=key) for ledger in (queue, second, queue, second)),
        )
        receipts.append(await second.submit("t", idempotency_key=key))
        assert len({receipt.job_id for receipt in receipts}) == 1


async def test_the_stored_keys_of_one_tenant_are_no_hits_for_another(queue: onejob.Ledger) -> None:
    await queue.store_idempotency_key("k", "job-xyz789")
    other = queue.acting_as(tenant="other", user="u", actor=Actor.user("u"))
    assert (await other.submit("t", idempotency_key="k")).created


async def test_with_very_many_tenants_all_submissions_look_for_stored_keys(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_keys, "TENANTS_MAX", 1)
    monkeypatch.setattr(external_keys, "ANNOUNCE_SECONDS", 0)
    monkeypatch.setattr(external_keys, "CACHE_SECONDS", 0)
    for name in ("a", "b", "c"):
        tenant = queue.acting_as(tenant=name, user="u", actor=Actor.user("u"))
        await tenant.store_idempotency_key("k", f"job-of-{name}")
        assert (await tenant.submit("t", idempotency_key="k")).job_id == f"job-of-{name}"


async def test_a_stored_key_is_a_hit_over_http(queue: onejob.Ledger) -> None:
    await queue.store_idempotency_key("k", "job-xyz789")
    async with serve_app(HttpApp(queue)) as client:
        answer = await client.post("/api/jobs", {"type": "t", "input": 1}, b"idempotency-key: k")
        assert (answer.status, answer.body["job"], answer.body["jobId"]) == (202, None, "job-xyz789")
        assert answer.body["idempotency"]["outcome"] == "replayed"


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process knows at once which tenants have stored keys."""
    monkeypatch.setattr(external_keys, "ANNOUNCE_SECONDS", 0)
    monkeypatch.setattr(external_keys, "CACHE_SECONDS", 0)


async def reserve_and_fail(queue: onejob.Ledger, **options: Any) -> onejob.HeldKey:
    held = await queue.check_or_reserve("t", {"n": 1}, idempotency_key="k", **options)
    assert isinstance(held, onejob.HeldKey)
    await queue.fail(held, "the provider is down")
    return held


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("door", DOORS.values(), ids=DOORS)
async def test_a_key_that_is_stored_after_a_failed_reservation_makes_no_job_at_any_door(
    queue: onejob.Ledger, second: onejob.Ledger, door: Callable[[onejob.Ledger], Awaitable[Any]]
) -> None:
    held = await reserve_and_fail(queue)
    await queue.store_idempotency_key("k", "job-xyz789")
    for ledger in (second, queue):
        answer = await door(ledger)
        (receipt,) = answer if isinstance(answer, list) else (answer,)
        assert (receipt.outcome, receipt.job_id, receipt.job) == (REPLAYED, "job-xyz789", None)
    (job,) = await queue.jobs()
    assert job.id == held.job_id
    assert job.state in ("preparing", "cancelled")  # a dry run, or a submission of another scope, leaves it alone


@pytest.mark.usefixtures("at_once")
async def test_the_preparation_of_a_stored_key_is_cancelled_and_says_why(
    queue: onejob.Ledger, clock: FakeClock
) -> None:
    lapsed = await queue.check_or_reserve("t", {"n": 1}, idempotency_key="k")
    assert isinstance(lapsed, onejob.HeldKey)
    clock.advance(600)
    await queue.store_idempotency_key("k", "job-xyz789")
    assert not (await queue.submit("t", {"n": 1}, idempotency_key="k")).created
    job = await queue.job(lapsed.job_id)
    assert (job.state, job.error) == ("cancelled", "the key was stored for another job, job-xyz789")
    for late in (queue.commit(lapsed), queue.renew(lapsed), queue.reject(lapsed)):
        with pytest.raises(onejob.LeaseLost):
            await late


@pytest.mark.usefixtures("at_once")
async def test_a_submission_that_waits_for_a_holder_finds_the_key_that_was_stored_meanwhile(url: str) -> None:
    async with onejob.open(url, sweep=False) as queue:
        held = await queue.check_or_reserve("t", {"n": 1}, idempotency_key="k")
        assert isinstance(held, onejob.HeldKey)
        await queue.store_idempotency_key("k", "job-xyz789")  # for all types; this one has a holder, which may commit
        waiting = asyncio.create_task(queue.submit("t", {"n": 1}, idempotency_key="k"))
        while not (runtime_of(queue).gate.stats().waiters or waiting.done()):
            await asyncio.sleep(0.001)
        await queue.fail(held)
        assert (await waiting).job_id == "job-xyz789"
        assert (await queue.job(held.job_id)).state == "cancelled"


WAITING_DOORS = {name: DOORS[name] for name in ("submit", "submit_many", "check_or_reserve")}


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("door", WAITING_DOORS.values(), ids=WAITING_DOORS)
async def test_a_submission_that_waits_already_finds_the_key_that_is_stored_before_the_holder_gives_up(
    url: str, door: Callable[[onejob.Ledger], Awaitable[Any]]
) -> None:
    async with onejob.open(url, sweep=False) as queue:
        await queue.store_idempotency_key("first", "x")  # the tenant has stored keys
        held = await queue.check_or_reserve("t", {"n": 1}, idempotency_key="k")
        assert isinstance(held, onejob.HeldKey)
        waiting = [asyncio.ensure_future(door(queue)) for _ in range(2)]  # the second one is not sent before the end
        while not any(task.done() for task in waiting) and runtime_of(queue).gate.stats().waiters < 2:
            await asyncio.sleep(0.001)
        await queue.store_idempotency_key("k", "job-xyz789")
        await queue.fail(held)
        for answer in await asyncio.gather(*waiting):
            (receipt,) = answer if isinstance(answer, list) else (answer,)
            assert (receipt.outcome, receipt.job_id) == (REPLAYED, "job-xyz789")
        assert (await queue.job(held.job_id)).state == "cancelled"


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("door", WAITING_DOORS.values(), ids=WAITING_DOORS)
@pytest.mark.parametrize("was_held", [True, False], ids=["held", "free"])
async def test_a_submission_that_was_frozen_after_it_looked_finds_a_key_that_was_stored_and_released_meanwhile(
    url: str, door: Callable[[onejob.Ledger], Awaitable[Any]], was_held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with onejob.open(url, sweep=False) as queue:
        await queue.store_idempotency_key("first", "x")
        held = await queue.check_or_reserve("t", {"n": 1}, idempotency_key="k") if was_held else None
        look_up, is_frozen = external_keys.look_up_external_keys, True

        async def look_up_and_freeze(*args: Any, **options: Any) -> Any:
            nonlocal is_frozen, held
            found = await look_up(*args, **options)
            if is_frozen:
                is_frozen = False
                held = held or await queue.check_or_reserve("t", {"n": 1}, idempotency_key="k")
                assert isinstance(held, onejob.HeldKey)
                await queue.store_idempotency_key("k", "job-xyz789")
                await queue.fail(held)
            return found

        monkeypatch.setattr(external_keys, "look_up_external_keys", look_up_and_freeze)
        answer = await door(queue)
        (receipt,) = answer if isinstance(answer, list) else (answer,)
        assert (receipt.outcome, receipt.job_id) == (REPLAYED, "job-xyz789")
        assert {job.state for job in await queue.jobs()} == {onejob.JobState.CANCELLED}


@pytest.mark.usefixtures("at_once")
async def test_a_preparation_that_was_stored_and_released_after_it_was_looked_up_is_not_taken_over(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.store_idempotency_key("first", "x")
    first = await reserve_and_fail(queue)
    row = await load_job_row(queue, first.job_id)
    look_up = external_keys.look_up_external_keys

    async def look_up_and_freeze(*args: Any, **options: Any) -> Any:
        found = await look_up(*args, **options)
        monkeypatch.setattr(service, "look_up_external_keys", look_up)
        held = await queue.check_or_reserve("t", {"n": 1}, idempotency_key="k")
        assert isinstance(held, onejob.HeldKey)
        await queue.store_idempotency_key("k", "job-xyz789")
        await queue.fail(held)
        return found

    monkeypatch.setattr(service, "look_up_external_keys", look_up_and_freeze)
    assert await ServiceLedger.of(queue).take_over_preparation(row) is None
    assert await ServiceLedger.of(queue).take_over_preparation(row) is None
    assert (await queue.job(first.job_id)).state == "cancelled"
    assert (await queue.submit("t", {"n": 1}, idempotency_key="k")).job_id == "job-xyz789"


@pytest.mark.usefixtures("at_once")
async def test_a_preparation_is_taken_over_before_its_key_is_stored_or_never(
    queue: onejob.Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored for all types while a type holds the key does not change what the type is answered."""
    await queue.store_idempotency_key("first", "x")
    first = await reserve_and_fail(queue)
    look_up = external_keys.look_up_external_keys

    async def look_up_and_freeze(*args: Any, **options: Any) -> Any:
        found = await look_up(*args, **options)
        await queue.store_idempotency_key("k", "job-xyz789")
        return found

    monkeypatch.setattr(service, "look_up_external_keys", look_up_and_freeze)
    held = await ServiceLedger.of(queue).take_over_preparation(await load_job_row(queue, first.job_id))
    assert held is not None  # as if it had been before the key was stored: it has not been anything else since
    assert (await queue.commit(held)).job_id == first.job_id
    assert (await queue.submit("t", {"n": 1}, idempotency_key="k")).job_id == first.job_id
    assert (await queue.submit("other", {"n": 1}, idempotency_key="k")).job_id == "job-xyz789"


@pytest.mark.usefixtures("at_once")
async def test_a_submission_that_waits_is_not_sent_again_if_the_stored_keys_cannot_be_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with onejob.open(url, sweep=False) as queue:
        await queue.store_idempotency_key("first", "x")
        held = await queue.check_or_reserve("t", {"n": 1}, idempotency_key="k")
        assert isinstance(held, onejob.HeldKey)
        waiting = asyncio.ensure_future(queue.submit("t", {"n": 1}, idempotency_key="k"))
        while not (runtime_of(queue).gate.stats().waiters or waiting.done()):
            await asyncio.sleep(0.001)

        async def fail(*_: Any, **__: Any) -> Any:
            raise onejob.Unavailable("the list of tenants cannot be read")

        with monkeypatch.context() as patch:
            patch.setattr(runtime_of(queue).external_keys, "has_keys", fail)
            await queue.fail(held)
            with pytest.raises(onejob.SubmissionInProgress):
                await waiting
        (job,) = await queue.jobs()
        assert job.state == "preparing"


@pytest.mark.usefixtures("at_once")
async def test_the_preparation_of_a_stored_key_is_not_taken_over(queue: onejob.Ledger) -> None:
    held = await reserve_and_fail(queue)
    await queue.store_idempotency_key("k", "job-xyz789")
    assert await ServiceLedger.of(queue).take_over_preparation(await load_job_row(queue, held.job_id)) is None
    assert (await queue.job(held.job_id)).state == "cancelled"
    assert (await queue.submit("t", {"n": 1}, idempotency_key="k")).job_id == "job-xyz789"


@pytest.mark.parametrize("with_job", [True, False], ids=["job", "no job"])
async def test_storing_in_the_own_scope_after_a_failed_reservation_settles_the_key(
    queue: onejob.Ledger, with_job: bool
) -> None:
    await reserve_and_fail(queue, job=with_job)
    stored = await queue.store_idempotency_key("k", "job-xyz789", scope="t")
    assert (stored.outcome, stored.job_id) == ("created", "job-xyz789")
    assert (await queue.submit("t", {"n": 1}, idempotency_key="k")).job_id == "job-xyz789"
    assert {job.state for job in await queue.jobs()} <= {"cancelled"}


async def test_storing_a_held_key_is_never_acknowledged(queue: onejob.Ledger) -> None:
    held = await queue.check_or_reserve("t", {"n": 1}, idempotency_key="k")
    assert isinstance(held, onejob.HeldKey)
    for id in ("job-xyz789", held.job_id):
        with pytest.raises(onejob.SubmissionRefused):
            await queue.store_idempotency_key("k", id, scope="t")
    await queue.commit(held)
    assert (await queue.store_idempotency_key("k", held.job_id, scope="t")).job_id == held.job_id
