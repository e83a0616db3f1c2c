"""The rules that every engine keeps, as a suite for pytest. There are no skips and no flags.

An engine's author subclasses the contract and gives it a world: a fresh store, engines on it, and time.

    import pytest_asyncio

    from onejob.clock import FakeClock
    from onejob.conformance import EngineContract, World


    class TestMyEngine(EngineContract):
        @pytest_asyncio.fixture
        async def world(self, tmp_path):
            clock = FakeClock()

            async def opened():
                return await MyEngine.open(tmp_path / "store", clock=clock)

            async with World(opened, advance=lambda ms: clock.advance(ms / 1000)) as world:
                yield world

`opened` is called once for the engine under test and again whenever the suite wants a second engine on the same
store, as another process would have it. `advance` lets the engine's time pass by some milliseconds; it may be a
coroutine function. Time should stand still otherwise: only then is expiry tried at its exact millisecond. A gate
is tried with `wait_for_pending=False`, since the suite wants to hear *in progress* and not to wait.

The suite needs pytest and pytest-asyncio, which onejob itself does not. Some commands exist only here
(`onejob.conformance.commands`), because the contract is about every fact and nothing shipped writes them all; an
engine that sends commands elsewhere has to know these there too.
"""

import pytest

# Failing assertions should show their values, as they do in an author's own tests.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "atomicity", "barrier", "closing", "failing_commands", "fences", "footprints", "hints", "mixed_batches",
            "ordering", "preconditions", "queries", "quotas", "races", "retries", "sequences", "tenants", "time",
            "values", "work", "world",
        )
    )
)  # fmt: skip

from .contract import EngineContract  # noqa: E402 - see above: it must not be imported before
from .world import World  # noqa: E402

__all__ = ["EngineContract", "World"]
