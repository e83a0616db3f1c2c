"""The decorator `idempotent`: functions that are called once per key."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import current_thread
from time import sleep
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import onejob
import onejob.sync
from onejob.middleware import ResultNotRetained, idempotent


@pytest.fixture
async def queue() -> AsyncIterator[onejob.Ledger]:
    async with onejob.open("memory://") as ledger:
        yield ledger


@pytest.fixture
def blocking(tmp_path: Path) -> Iterator[onejob.sync.SyncLedger]:
    with onejob.sync.open(f"sqlite:///{tmp_path / 'calls.db'}") as ledger:
        yield ledger


def order_of(order: str, *_: Any) -> str:
    return order


async def test_concurrent_calls_with_one_key_are_one_call(queue: onejob.Ledger) -> None:
    runs = []

    @idempotent(queue, key=order_of, scope="shop")
    async def charge(order: str, amount: int) -> dict[str, int]:
        runs.append(order)
        await asyncio.sleep(0.05)
        return {"charged": amount}

    results = await asyncio.gather(*(charge("o1", 5) for _ in range(50)))
    assert results == [{"charged": 5}] * 50
    assert runs == ["o1"]
    with pytest.raises(onejob.IdempotencyConflict):
        await charge("o1", 6)


async def test_a_conflict_of_calls_speaks_of_arguments_not_of_a_job(queue: onejob.Ledger) -> None:
    @idempotent(queue, key=order_of, scope="shop", name="charge")
    async def charge(order: str, amount: int) -> int:
        return amount

    await charge("o1", 5)
    with pytest.raises(onejob.IdempotencyConflict, match="was used to call charge with other arguments") as caught:
        await charge("o1", 6)
    assert (caught.value.key, caught.value.job_id) == ("o1", "")
    assert "job" not in str(caught.value)
    assert "body" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
        lambda child: (
            st.lists(child, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), child, max_size=3)
        ),
        max_leaves=5,
    )
)
def test_any_json_result_is_returned_unchanged(value: Any) -> None:
    async def twice() -> None:
        async with onejob.open("memory://", sweep=False) as queue:

            @idempotent(queue, key=order_of, scope="s")
            async def compute(order: str) -> Any:
                return value

            assert (await compute("k"), await compute("k")) == (value, value)

    asyncio.run(twice())


async def test_an_exception_releases_the_key_and_a_final_one_rejects_it(
    queue: onejob.Ledger,
) -> None:
    runs = []

    @idempotent(queue, key=order_of, scope="s", final=(PermissionError,))
    async def charge(order: str) -> int:
        runs.append(order)
        if order == "never":
            raise PermissionError("the card was declined")
        if len(runs) == 1:
            raise OSError("the line is dead")
        return len(runs)

    with pytest.raises(OSError, match="dead"):
        await charge("o")
    assert (await charge("o"), await charge("o")) == (2, 2)
    with pytest.raises(PermissionError, match="declined"):
        await charge("never")
    with pytest.raises(onejob.SubmissionRejected):
        await charge("never")
    assert runs == ["o", "o", "never"]


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_call_that_exits_releases_its_key_before_the_exit_goes_on(kind: type[BaseException]) -> None:
    runs = []

    async def exit_and_retry() -> None:
        async with onejob.open("memory://") as ledger:

            @idempotent(ledger, key=order_of, scope="s")
            async def charge(order: str) -> str:
                runs.append(order)
                if len(runs) == 1:
                    raise kind("once")
                return "done"

            with pytest.raises(kind, match="once"):
                await charge("o")
            assert await charge("o") == "done"

    asyncio.run(exit_and_retry())
    assert runs == ["o", "o"]


async def test_a_cancelled_call_can_be_retried_at_once(queue: onejob.Ledger) -> None:
    begun = asyncio.Event()

    @idempotent(queue, key=order_of, scope="s")
    async def hang(order: str) -> str:
        if not begun.is_set():
            begun.set()
            await asyncio.sleep(60)
        return "done"

    first = asyncio.create_task(hang("o"))
    await begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert await hang("o") == "done"


async def test_a_result_that_is_not_json_is_not_computed_again(queue: onejob.Ledger) -> None:
    @idempotent(queue, key=order_of, scope="s")
    async def odd(order: str) -> object:
        return float("nan")

    await odd("o")
    with pytest.raises(ResultNotRetained):
        await odd("o")


async def test_without_a_scope_nothing_is_called(queue: onejob.Ledger) -> None:
    @idempotent(queue, key=order_of, scope=lambda *_: "")
    async def charge(order: str) -> None:
        raise AssertionError("it was called")

    with pytest.raises(onejob.Invalid, match="scope is empty"):
        await charge("o")


async def test_functions_do_not_share_keys(queue: onejob.Ledger) -> None:
    @idempotent(queue, key=order_of, scope="s", name="one")
    async def one(order: str) -> int:
        return 1

    @idempotent(queue, key=order_of, scope="s", name="two")
    async def two(order: str) -> int:
        return 2

    assert (await one("o"), await two("o")) == (1, 2)


@pytest.mark.usefixtures("frequent_renewals")
def test_concurrent_threads_make_one_call_in_the_thread_of_its_caller(
    blocking: onejob.sync.SyncLedger,
) -> None:
    runs = []

    @idempotent(blocking, key=order_of, scope="s", lease=timedelta(seconds=2))
    def charge(order: str) -> int:
        runs.append(current_thread().name)
        sleep(2.2)  # longer than the lease: it is renewed
        return 0

    with ThreadPoolExecutor(8, thread_name_prefix="caller") as pool:
        assert list(pool.map(charge, ["o"] * 8)) == [0] * 8
    assert len(runs) == 1
    assert runs[0].startswith("caller")


@pytest.mark.parametrize(
    "error", [OSError("once"), StopIteration("once"), SystemExit("once"), KeyboardInterrupt("once")]
)
def test_an_exception_of_a_plain_function_is_raised_and_the_call_can_be_retried(
    blocking: onejob.sync.SyncLedger, error: BaseException
) -> None:
    errors = [error]

    @idempotent(blocking, key=order_of, scope="s", final=(ValueError,))
    def charge(order: str) -> str:
        if errors:
            raise errors.pop()
        if order == "bad":
            raise ValueError("bad")
        return "done"

    with pytest.raises(type(error), match="once"):
        charge("o")
    assert charge("o") == "done"
    with pytest.raises(ValueError, match="bad"):
        charge("bad")
    with pytest.raises(onejob.SubmissionRejected):
        charge("bad")
