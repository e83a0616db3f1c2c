"""For the tests of those who submit: a clock that is moved, an engine that fails on cue, deaths at named points.

The pytest plugin comes with the package; its fixtures are `onejob_clock`, `onejob_faults` and `onejob_ledger`.
"""

from onejob.clock import FakeClock

from .faulty import Fault, FaultyEngine
from .killing import KillPoints
from .once import assert_submitted_once
from .opening import open_ledger

__all__ = ["FakeClock", "Fault", "FaultyEngine", "KillPoints", "assert_submitted_once", "open_ledger"]
