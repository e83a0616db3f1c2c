"""The pytest plugin with the fixtures; pytest loads it wherever onejob is installed."""

import pytest

from onejob.clock import FakeClock
from onejob.engines.memory import MemoryEngine
from onejob.ledger import Ledger

from . import FaultyEngine, open_ledger


@pytest.fixture
def onejob_clock() -> FakeClock:
    """A clock that stands still until `advance` is called."""
    return FakeClock()


@pytest.fixture
def onejob_faults(onejob_clock: FakeClock) -> FaultyEngine:
    """The engine of `onejob_ledger`, in memory; queue faults on it."""
    return FaultyEngine(MemoryEngine(onejob_clock))


@pytest.fixture
def onejob_ledger(onejob_clock: FakeClock, onejob_faults: FaultyEngine) -> Ledger:
    """A ledger in memory, for one test. It needs no closing: no maintenance task was started."""
    return open_ledger(onejob_faults, clock=onejob_clock)
