"""The conformance suite: the rules that every engine must follow, as tests for pytest, without skips or flags.

To test an engine, subclass `EngineContract` and give it a `world`: a fresh store, engines on it, and control over time.

    import pytest_asyncio

    from onejob.clock import FakeClock
    from onejob.conformance import EngineContract, World


    class TestMyEngine(EngineContract):
        @pytest_asyncio.fixture
        async def world(self, tmp_path):
            clock = FakeClock()

            async def open_engine():
                return await MyEngine.open(tmp_path / "store", clock=clock)

            async with World(open_engine, advance=lambda ms: clock.advance(ms / 1000)) as world:
                yield world

The suite calls `open_engine` once for the engine under test, and again for each further engine on the same store, as in
another process. `advance` advances the engine's clock by some milliseconds; it may be a coroutine function. Between calls the
clock should stand still, so that expiry is tested at its exact millisecond. Test a gate with `wait_for_pending=False`: the
suite expects the reply *in progress*, not a wait.

The suite needs pytest and pytest-asyncio, which onejob itself does not need. Some commands exist only here
(`onejob.conformance.commands`), because the contract covers every kind of fact and no shipped command writes them all. An
engine that sends commands to another process must be able to send these too.
"""

import pytest

# Failing assertions show their values, as in the engine author's own tests.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "atomicity", "barrier", "closing", "failing_commands", "fences", "footprints", "hints", "late_commands",
            "mixed_batches", "ordering", "preconditions", "queries", "quotas", "races", "retries", "sequences", "sites",
            "steps", "stored_keys", "tenants", "time", "values", "work", "world",
        )
    )
)  # fmt: skip

# Imported after the registration above.
from .atomicity import AtomicityRules  # noqa: E402
from .barrier import BarrierRules  # noqa: E402
from .closing import ClosingRules  # noqa: E402
from .failing_commands import FailingCommandRules  # noqa: E402
from .fences import FencingRules  # noqa: E402
from .footprints import FootprintRules  # noqa: E402
from .hints import HintRules  # noqa: E402
from .late_commands import LateCommandRules  # noqa: E402
from .mixed_batches import MixedBatchRules  # noqa: E402
from .ordering import OrderingRules  # noqa: E402
from .preconditions import PreconditionRules, SettingsRules  # noqa: E402
from .queries import QueryRules  # noqa: E402
from .quotas import QuotaRules  # noqa: E402
from .races import RaceRules  # noqa: E402
from .retries import RetryRules  # noqa: E402
from .sequences import SequenceRules  # noqa: E402
from .sites import SiteRules  # noqa: E402
from .steps import StepRules  # noqa: E402
from .stored_keys import StoredKeyRules  # noqa: E402
from .tenants import TenantRules  # noqa: E402
from .time import TimeRules  # noqa: E402
from .values import ValueRules  # noqa: E402
from .work import WorkRules  # noqa: E402
from .world import World  # noqa: E402

__all__ = ["EngineContract", "World"]


@pytest.mark.asyncio
class EngineContract(
    AtomicityRules,
    BarrierRules,
    ClosingRules,
    FailingCommandRules,
    RetryRules,
    FencingRules,
    FootprintRules,
    HintRules,
    LateCommandRules,
    MixedBatchRules,
    OrderingRules,
    QueryRules,
    QuotaRules,
    RaceRules,
    SequenceRules,
    SiteRules,
    StepRules,
    StoredKeyRules,
    TenantRules,
    TimeRules,
    ValueRules,
    PreconditionRules,
    SettingsRules,
    WorkRules,
):
    """All rules of an engine; a subclass provides the fixture `world`."""
