"""The pytest plugin. It is loaded in every test run of its users, so it imports only when a fixture is asked for."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from onejob.clock import FakeClock
    from onejob.ledger import Ledger
    from onejob.testing.faulty import FaultyEngine


@pytest.fixture
def onejob_clock() -> "FakeClock":
    """A clock that stands still until it is told to move."""
    from onejob.clock import FakeClock

    return FakeClock()


@pytest.fixture
def onejob_faults(onejob_clock: "FakeClock") -> "FaultyEngine":
    """The engine of `onejob_ledger`, in memory; tell it to fail."""
    from onejob.engines.memory import MemoryEngine
    from onejob.testing.faulty import FaultyEngine

    return FaultyEngine(MemoryEngine(onejob_clock))


@pytest.fixture
def onejob_ledger(onejob_clock: "FakeClock", onejob_faults: "FaultyEngine") -> "Ledger":
    """A ledger in memory, for one test."""
    from onejob.testing.opening import open_ledger

    # Nothing to close: no upkeep was started, and memory goes with the test.
    return open_ledger(onejob_faults, clock=onejob_clock)
