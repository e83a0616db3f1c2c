"""The pytest plugin; pytest finds it by itself where onejob is installed."""

import pytest

from onejob.clock import FakeClock
from onejob.engines.memory import MemoryEngine
from onejob.ledger import Ledger

from . import FaultyEngine, open_ledger


@pytest.fixture
def onejob_clock() -> FakeClock:
    """A clock that stands still until it is told to move."""
    return FakeClock()


@pytest.fixture
def onejob_faults(onejob_clock: FakeClock) -> FaultyEngine:
    """The engine of `onejob_ledger`, in memory; tell it to fail."""
    return FaultyEngine(MemoryEngine(onejob_clock))


@pytest.fixture
def onejob_ledger(onejob_clock: FakeClock, onejob_faults: FaultyEngine) -> Ledger:
    """A ledger in memory, for one test. Nothing is to be closed: no upkeep was started."""
    return open_ledger(onejob_faults, clock=onejob_clock)
