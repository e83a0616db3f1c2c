import asyncio
from random import Random

import pytest

from .loop import Owner, Stuck, VirtualLoop

SEEDS = 200


def loop_of(seed: int, *, jitter: float) -> VirtualLoop:
    return VirtualLoop(Random(seed), jitter=jitter, delay_max=0.01)


def race_is_seen(seed: int, *, jitter: float) -> bool:
    """Check, yield, act: two do it at once, and only an unlucky order shows it."""
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

    loop_of(seed, jitter=jitter).run(both())
    return len(made) > 1


def test_virtual_time_alone_finds_nothing_and_late_callbacks_do() -> None:
    assert not any(race_is_seen(seed, jitter=0.0) for seed in range(SEEDS))
    assert sum(race_is_seen(seed, jitter=0.25) for seed in range(SEEDS)) > SEEDS // 20


def test_hours_pass_in_a_moment() -> None:
    async def nap() -> float:
        await asyncio.sleep(7200)
        return asyncio.get_running_loop().time()

    assert loop_of(1, jitter=0.25).run(nap()) == pytest.approx(7200, abs=1)


def test_the_dead_do_nothing_and_the_paused_do_it_later() -> None:
    done: list[tuple[str, float]] = []
    loop = loop_of(1, jitter=0.0)
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


def test_waiting_for_nothing_is_noticed() -> None:
    async def hang() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        loop_of(1, jitter=0.25).run(hang())


def test_an_error_in_a_callback_is_kept() -> None:
    def fail() -> None:
        raise ValueError("astray")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(fail)
        await asyncio.sleep(1)

    loop = loop_of(1, jitter=0.0)
    loop.run(main())
    assert "astray" in loop.errors[0]
