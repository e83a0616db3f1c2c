"""Commands in the caller's own transaction, through every driver: they commit with it, and leave it usable."""

from datetime import timedelta
from typing import Any

import pytest

import onejob
from onejob.core.limits import Limits
from onejob.core.replies import Replayed
from onejob.core.reserve import Verdict
from onejob.core.states import JobState
from onejob.errors import (
    IdempotencyConflict,
    Invalid,
    LeaseLost,
    NotFound,
    SubmissionInProgress,
    SubmissionRefused,
)
from onejob.ledger.parse import Submission
from onejob.ledger.service import ServiceLedger
from onejob.transaction import InTransaction
from tests.transaction.conftest import OpenDoor
from tests.transaction.doors import AsyncSessionDoor, Door, PsycopgDoor, RollBack, SessionDoor, transaction

ORDER = "INSERT INTO orders VALUES ('one')"


async def count(db: Any, table: str) -> int:
    return int(await db.fetchval(f"SELECT count(*) FROM {table}"))


async def counts(db: Any) -> tuple[int, int, int, int]:
    return tuple([await count(db, name) for name in ("orders", "record", "job", "attachment")])  # type: ignore[return-value]  # four


async def order_and_call(door: Door, verb: str, *arguments: Any) -> None:
    async with transaction(door):
        await door.execute(ORDER)
        await door.call(verb, *arguments)


async def test_the_order_and_the_job_commit_together(door: Door, db: Any, queue: onejob.Ledger) -> None:
    async with transaction(door):
        await door.execute(ORDER)
        receipt = await door.call("submit", "charge", {"order": 1}, idempotency_key="one", labels={"a": 'ä\\"%'})
        assert receipt.outcome == "created"
        assert await counts(db) == (0, 0, 0, 0)
    assert await counts(db) == (1, 1, 1, 1)
    again = await queue.submit("charge", {"order": 1}, idempotency_key="one")
    assert (again.outcome, again.job_id) == ("replayed", receipt.job_id)
    (attempt,) = await queue.claim("charge", start=True)
    assert attempt.value == {"order": 1}
    assert attempt.job.labels == {"a": 'ä\\"%'}


async def test_a_rolled_back_order_has_no_job(door: Door, db: Any, queue: onejob.Ledger) -> None:
    async with transaction(door):
        await door.execute(ORDER)
        await door.call("submit", "charge", {"order": 1}, idempotency_key="one")
        raise RollBack
    assert await counts(db) == (0, 0, 0, 0)
    assert (await queue.submit("charge", {"order": 1}, idempotency_key="one")).outcome == "created"


async def test_a_savepoint_takes_the_job_back(door: Door, db: Any) -> None:
    async with transaction(door):
        await door.execute("SAVEPOINT mine")
        await door.execute(ORDER)
        await door.call("submit", "charge", {"order": 1}, idempotency_key="one")
        await door.execute("ROLLBACK TO SAVEPOINT mine")
        assert (await door.call("submit", "charge", {"order": 2}, idempotency_key="one")).outcome == "created"
    assert await counts(db) == (0, 1, 1, 1)


async def test_a_known_key_is_replayed_and_the_transaction_goes_on(door: Door, db: Any, queue: onejob.Ledger) -> None:
    first = await queue.submit("charge", {"order": 1}, idempotency_key="one")
    async with transaction(door):
        again = await door.call("submit", "charge", {"order": 1}, idempotency_key="one")
        assert (again.outcome, again.job_id) == ("replayed", first.job_id)
        twice = await door.call("submit", "charge", {"order": 2}, idempotency_key="two")
        assert (await door.call("submit", "charge", {"order": 2}, idempotency_key="two")).job_id == twice.job_id
        await door.execute(ORDER)
    assert await counts(db) == (1, 2, 2, 2)


async def test_a_conflict_and_a_refusal_leave_the_transaction_usable(
    door: Door, db: Any, queue: onejob.Ledger, in_transaction: InTransaction
) -> None:
    await queue.submit("charge", {"order": 1}, idempotency_key="one")
    await queue.set_quota("local", Limits(max_concurrent=2))
    async with transaction(door):
        with pytest.raises(IdempotencyConflict, match="/input/order"):
            await door.call("submit", "charge", {"order": 2}, idempotency_key="one")
        assert (await door.call("submit", "charge", {"order": 3}, idempotency_key="three")).outcome == "created"
        with pytest.raises(SubmissionRefused):
            await door.call("submit", "charge", {"order": 4}, idempotency_key="four")
        await door.execute(ORDER)
    assert await counts(db) == (1, 2, 2, 2)
    assert await db.fetchval("SELECT live FROM usage") == 2


async def test_a_connection_without_a_transaction_is_refused(door: Door, db: Any) -> None:
    if isinstance(door, PsycopgDoor):
        door.connection.autocommit = True
    if isinstance(door, SessionDoor | AsyncSessionDoor):
        await door.begin("AUTOCOMMIT")
    with pytest.raises(Invalid, match=r"no transaction.*Ledger\.submit"):
        await door.call("submit", "charge", idempotency_key="one")
    assert await counts(db) == (0, 0, 0, 0)


async def test_a_held_key_is_settled_with_the_callers_commit(door: Door, db: Any, queue: onejob.Ledger) -> None:
    held = await queue.check_or_reserve("pay", {"order": 1}, idempotency_key="one", job=False)
    async with transaction(door):
        await door.execute(ORDER)
        await door.call("settle", held, b"paid")
        raise RollBack
    with pytest.raises(SubmissionInProgress):
        await queue.check_or_reserve("pay", {"order": 1}, idempotency_key="one", job=False)
    async with transaction(door):
        await door.execute(ORDER)
        assert (await door.call("settle", held, b"paid")).receipt == b"paid"
    again = await queue.check_or_reserve("pay", {"order": 1}, idempotency_key="one", job=False)
    assert isinstance(again, onejob.Receipt)
    assert (again.outcome, again.receipt) == ("replayed", b"paid")
    assert await counts(db) == (1, 1, 0, 0)


async def test_a_key_that_another_holder_has_is_not_settled(door: Door, db: Any, queue: onejob.Ledger) -> None:
    reserve = {"type": "r", "scope": "pay", "key": "one", "fingerprint": b"f", "ttl_ms": 60_000}
    held = await ServiceLedger.of(queue).reserve_prepared(**reserve, lease_ms=60_000)  # type: ignore[arg-type]  # of several types
    assert not isinstance(held, Replayed)
    await db.execute("UPDATE record SET lease_until = 1")
    await ServiceLedger.of(queue).reserve_prepared(**reserve, lease_ms=60_000)  # type: ignore[arg-type]  # of several types
    with pytest.raises(LeaseLost):
        await order_and_call(door, "settle", held, b"paid")
    assert await count(db, "orders") == 0


async def test_a_rejected_key_is_rejected_with_the_commit(plain_door: Door, queue: onejob.Ledger) -> None:
    held = await queue.check_or_reserve("pay", idempotency_key="one")
    async with transaction(plain_door):
        await plain_door.call("settle", held, b"no", verdict=Verdict.REJECT)
    with pytest.raises(onejob.SubmissionRejected):
        await queue.check_or_reserve("pay", idempotency_key="one")


async def test_a_job_is_finished_with_the_callers_commit(door: Door, db: Any, queue: onejob.Ledger) -> None:
    await queue.set_quota("local", Limits(max_concurrent=5))
    job_id = (await queue.submit("charge", idempotency_key="one")).job_id
    (attempt,) = await queue.claim("charge", start=True)
    async with transaction(door):
        await door.call("finish", attempt, {"paid": True})
        raise RollBack
    assert (await queue.job(job_id)).state is JobState.RUNNING
    async with transaction(door):
        await door.execute(ORDER)
        assert (await door.call("finish", attempt, {"paid": True})).state is JobState.SUCCESS
    assert await queue.result(job_id) == {"paid": True}
    assert await db.fetchval("SELECT live FROM usage") == 0
    with pytest.raises(LeaseLost):
        await order_and_call(door, "finish", attempt, {"paid": False})
    assert await count(db, "orders") == 1


async def test_a_job_is_cancelled_with_the_callers_commit(door: Door, queue: onejob.Ledger) -> None:
    job_id = (await queue.submit("charge", idempotency_key="one")).job_id
    async with transaction(door):
        await door.call("cancel", job_id)
        raise RollBack
    assert (await queue.job(job_id)).state is JobState.PENDING
    async with transaction(door):
        assert (await door.call("cancel", job_id, idempotency_key="c")).state is JobState.CANCELLED
    assert (await queue.job(job_id)).state is JobState.CANCELLED
    async with transaction(door):
        with pytest.raises(NotFound):
            await door.call("cancel", "01a1e91d-d1aa-74f7-97c9-1ee54565f083")


async def test_many_submissions_have_each_its_verdict(door: Door, db: Any, queue: onejob.Ledger) -> None:
    await queue.submit("charge", 0, idempotency_key="k0")
    submissions = [Submission(type="charge", input=n, idempotency_key=f"k{n}") for n in reversed(range(4))]
    submissions += [
        Submission(type="charge", input=9, idempotency_key="k1"),
        Submission(type="", input=1),
        Submission(type="charge", input=1),
    ]
    async with transaction(door):
        verdicts = await door.call("submit_many", submissions)
    assert [getattr(one, "outcome", type(one)) for one in verdicts] == [
        "created", "created", "created", "replayed", IdempotencyConflict, Invalid, "created",
    ]  # fmt: skip
    assert await counts(db) == (0, 4, 5, 5)


async def test_a_short_window_is_refused(plain_door: Door, db: Any) -> None:
    async with transaction(plain_door):
        with pytest.raises(Invalid, match="at least 60 s"):
            await plain_door.call("submit", "a", idempotency_key="one", idempotency_ttl=timedelta(seconds=59))
        await plain_door.call("submit", "a", idempotency_key="two", idempotency_ttl=timedelta(seconds=60))
    assert await count(db, "record") == 1


async def test_callbacks_schedules_and_submissions_without_a_key_are_the_same_as_outside(
    plain_door: Door, db: Any, queue: onejob.Ledger
) -> None:
    async with transaction(plain_door):
        plain = await plain_door.call("submit", "a", 1)
        again = await plain_door.call("submit", "a", 1)
        called = await plain_door.call("submit", "a", 1, idempotency_key="c", callback="https://example.com/x")
    assert plain.job_id != again.job_id
    assert (await queue.submit("a", 1, idempotency_key="c")).job_id == called.job_id
    assert await counts(db) == (0, 1, 4, 4)  # the callback is a job too


async def test_an_expired_key_makes_a_new_job(plain_door: Door, db: Any, queue: onejob.Ledger) -> None:
    first = await queue.submit("a", 1, idempotency_key="one")
    await db.execute("UPDATE record SET expires_at = 1")
    async with transaction(plain_door):
        receipt = await plain_door.call("submit", "a", 2, idempotency_key="one")
        assert receipt.outcome == "created"
        assert receipt.job_id != first.job_id
    assert await counts(db) == (0, 1, 2, 2)


async def test_a_key_whose_holder_is_gone_is_taken_over(plain_door: Door, db: Any, queue: onejob.Ledger) -> None:
    held = await queue.check_or_reserve("a", 1, idempotency_key="one", lease=timedelta(milliseconds=1))
    assert isinstance(held, onejob.HeldKey)
    async with transaction(plain_door):
        receipt = await plain_door.call("submit", "a", 1, idempotency_key="one")
        assert (receipt.outcome, receipt.job_id) == ("created", held.job_id)
    assert await counts(db) == (0, 1, 1, 1)


async def test_a_key_that_was_stored_after_a_failed_reservation_is_replayed(
    plain_door: Door, queue: onejob.Ledger
) -> None:
    held = await queue.check_or_reserve("charge", {"n": 1}, idempotency_key="k")
    assert isinstance(held, onejob.HeldKey)
    await queue.fail(held)
    await queue.store_idempotency_key("k", "job-xyz789", scope="charge")
    async with transaction(plain_door):
        receipt = await plain_door.call("submit", "charge", {"n": 1}, idempotency_key="k")
    assert (receipt.outcome, receipt.job_id) == ("replayed", "job-xyz789")


async def test_the_first_job_of_a_user_under_a_tenants_limit_is_counted(
    plain_door: Door, db: Any, queue: onejob.Ledger
) -> None:
    await queue.admin.set_tenant_quota(onejob.TenantLimits(default=Limits(max_concurrent=2)))
    async with transaction(plain_door):
        await plain_door.call("submit", "a", 1)
        await plain_door.call("submit", "a", 1, idempotency_key="one")
        with pytest.raises(SubmissionRefused):
            await plain_door.call("submit", "a", 1, idempotency_key="two")
    assert await db.fetchval("SELECT live FROM usage") == 2
    assert await counts(db) == (0, 1, 2, 2)


async def test_callers_are_kept_apart(queue: onejob.Ledger, db: Any, open_another: OpenDoor) -> None:
    shop = await open_another(by=InTransaction(tenant="shop", user="web"))
    async with transaction(shop):
        assert (await shop.call("submit", "a", 1, idempotency_key="one")).outcome == "created"
    assert (await queue.submit("a", 2, idempotency_key="one")).outcome == "created"
    assert sorted(await db.fetchval('SELECT array_agg(tenant || "user") FROM job')) == ["defaultlocal", "shopweb"]
