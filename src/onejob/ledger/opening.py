"""`onejob.open(url)`: opens a ledger, with `await` or with `async with`."""

from collections.abc import Callable, Coroutine, Generator
from datetime import timedelta
from types import TracebackType
from typing import Any

from onejob.clock import Clock, SystemClock
from onejob.core.identity import Actor, checked_name
from onejob.core.work import RETENTION_MS
from onejob.engines import open_engine
from onejob.ids import Ids, SystemIds
from onejob.settings import IdempotencyConfig

from . import Ledger
from .parse import Caller
from .runtime import Runtime

URL_DEFAULT = "sqlite:///onejob.db"
RETENTION_DEFAULT = timedelta(milliseconds=RETENTION_MS)


class LedgerOpener:
    """What `onejob.open` returns: await it, or enter it with `async with`."""

    def __init__(self, open_ledger: Callable[[], Coroutine[Any, Any, Ledger]]) -> None:
        self._open_ledger = open_ledger
        self._ledger: Ledger | None = None

    def __await__(self) -> Generator[Any, None, Ledger]:
        return self._open_ledger().__await__()

    async def __aenter__(self) -> Ledger:
        self._ledger = await self
        return self._ledger

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._ledger is not None
        await self._ledger.aclose()


def open(
    url: str = URL_DEFAULT,
    *,
    config: IdempotencyConfig | None = None,
    tenant: str = "default",
    user: str = "local",
    actor: Actor | None = None,
    retention: timedelta = RETENTION_DEFAULT,
    sweep: bool = True,
    coalesce: bool = False,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> LedgerOpener:
    """Open a ledger on an engine. Without `config`, the IDEMPOTENCY_* variables configure it.

    With `coalesce`, batches are larger: for a process that serves many connections on this event loop.
    """
    config = config or IdempotencyConfig.from_env()
    caller = Caller(checked_name("tenant", tenant), checked_name("user", user), str(actor or Actor.client("local")))
    retention_ms = retention // timedelta(milliseconds=1)
    clock, ids = clock or SystemClock(), ids or SystemIds()

    async def open_ledger() -> Ledger:
        engine = await open_engine(url, clock=clock)
        runtime = Runtime(engine, config, clock=clock, ids=ids, retention_ms=retention_ms, coalesce=coalesce)
        if sweep:
            runtime.start_maintenance()
        return Ledger(runtime, caller)

    return LedgerOpener(open_ledger)
