"""A ledger for tests: in memory, on a clock that is moved, in front of faults."""

from onejob.clock import Clock, FakeClock
from onejob.core.actor import Actor
from onejob.engine import Engine
from onejob.engines.memory import MemoryEngine
from onejob.host import Runtime
from onejob.ids import SystemIds
from onejob.intake import Caller
from onejob.ledger import Ledger
from onejob.settings import IdempotencyConfig

from .faulty import FaultyEngine


def open_ledger(
    engine: Engine | None = None, *, clock: Clock | None = None, config: IdempotencyConfig | None = None
) -> Ledger:
    """A ledger on this engine, or on a new one in memory; a duplicate of what is held is told so at once."""
    clock = clock or FakeClock()
    engine = engine or FaultyEngine(MemoryEngine(clock))
    config = config or IdempotencyConfig(pending_wait_timeout=0)
    host = Runtime(engine, config, clock=clock, ids=SystemIds())
    return Ledger(host, Caller(actor=str(Actor.client("local"))))
