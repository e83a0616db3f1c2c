import asyncio
from random import Random

import pytest

from tests.campaigns.simulation.loop import Deadlock, Owner, VirtualLoop

SEEDS = 200


def make_loop(seed: int, *, jitter: float) -> VirtualLoop:
    return VirtualLoop(Random(seed), jitter=jitter, delay_max=0.01)


def race_is_found(seed: int, *, jitter: float) -> bool:
    """Two tasks check, yield and act; only some orders show the race."""
    made: list[str] = []

    async def careless(name: str) -> None:
        for _ in range(4):
            await asyncio.sleep(0)
        if not made:
            await asyncio.sleep(0)
            made.append(name)

    async def careful(name: str) -> None:
        await asyncio.sleep(0.001)
        await careless(name)

    async def both() -> None:
        await asyncio.gather(careless("a"), careful("b"))

    make_loop(seed, jitter=jitter).run(both())
    return len(made) > 1


def test_virtual_time_alone_finds_nothing_and_late_callbacks_do() -> None:
    assert not any(race_is_found(seed, jitter=0.0) for seed in range(SEEDS))
    assert sum(race_is_found(seed, jitter=0.25) for seed in range(SEEDS)) > SEEDS // 20


def test_hours_pass_in_a_moment() -> None:
    async def nap() -> float:
        await asyncio.sleep(7200)
        return asyncio.get_running_loop().time()

    assert make_loop(1, jitter=0.25).run(nap()) == pytest.approx(7200, abs=1)


def test_dead_owners_run_no_callbacks_and_paused_ones_run_them_later() -> None:
    done: list[tuple[str, float]] = []
    loop = make_loop(1, jitter=0.0)
    dead, paused = Owner(), Owner()

    async def act(name: str) -> None:
        await asyncio.sleep(1)
        done.append((name, round(loop.time())))

    async def main() -> None:
        for name, owner in (("dead", dead), ("paused", paused)):
            owner.context.run(loop.create_task, act(name))
        dead.dead, paused.paused_until = True, 5.0
        await asyncio.sleep(10)

    loop.run(main())
    assert done == [("paused", 6)]


def test_a_deadlock_is_detected() -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock):
        make_loop(1, jitter=0.25).run(hang())


def test_an_error_in_a_callback_is_kept() -> None:
    def fail() -> None:
        raise ValueError("unhandled")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)

    loop = make_loop(1, jitter=0.0)
    loop.run(main())
    assert "unhandled" in loop.errors[0]
