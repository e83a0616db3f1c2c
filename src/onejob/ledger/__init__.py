"""The ledger: the front door in Python, with one file per group of verbs; and `open`, which returns one."""

from collections.abc import Callable, Coroutine, Generator, Mapping
from datetime import timedelta
from functools import partial
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from onejob.clock import Clock, SystemClock
from onejob.core.identity import Actor, checked_name
from onejob.core.sites import NO_SITES, Sites
from onejob.core.work import RETENTION_MS
from onejob.engine import Durability, Engine
from onejob.engines import open_engine
from onejob.ids import Ids, SystemIds
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from onejob.runtime.key_limit import checked_live_keys_max
from onejob.runtime.settings import Said
from onejob.settings import IdempotencyConfig

from .admin import Admin
from .held_keys import HeldKeyOperations
from .parse import parse_default_windows, parse_retention_ms, said_settings
from .quotas import QuotaOperations
from .reads import ReadOperations
from .sequences import SequenceOperations
from .steps import StepOperations
from .submissions import SubmissionOperations

if TYPE_CHECKING:
    from onejob.tracing import Tracing

URL_DEFAULT = "sqlite:///onejob.db"
RETENTION_DEFAULT = timedelta(milliseconds=RETENTION_MS)


class Ledger(
    SubmissionOperations, ReadOperations, HeldKeyOperations, SequenceOperations, QuotaOperations, StepOperations
):
    """A caller's view of an engine; `onejob.open` returns one. What is not a result is raised."""

    def acting_as(self, *, tenant: str, user: str, actor: Actor) -> "Ledger":
        """The same ledger for another caller. Closing the one that was opened closes both."""
        names = checked_name("tenant", tenant), checked_name("user", user)
        caller = Caller(*names, str(actor))
        return self if self._runtime.bind(caller) == self.caller else Ledger(self._runtime, caller)

    @property
    def admin(self) -> Admin:
        """The verbs of operators."""
        return Admin(self._runtime, self._bound_caller)

    @property
    def durability(self) -> Durability:
        return self._gate.info.durability

    async def aclose(self) -> None:
        await self._runtime.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


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
    key_owner: str | None = None,
    window: timedelta | None = None,
    windows: Mapping[str, timedelta] = MappingProxyType({}),
    retention: timedelta = RETENTION_DEFAULT,
    live_keys_max: int | None = None,
    sweep: bool = True,
    coalesce: bool = False,
    sites: Sites = NO_SITES,
    clock: Clock | None = None,
    ids: Ids | None = None,
    tracing: "Tracing | bool" = False,
) -> LedgerOpener:
    """Open a ledger on an engine. Without `config`, the IDEMPOTENCY_* variables configure it.

    `key_owner` ("tenant" or "user") and `window` belong to the ledger: one that was never used takes them, and a process whose
    values differ is refused. A submission that names no window has that of its type in `windows`, else the ledger's (24 hours,
    on a bucket 30 days). Ended jobs are kept for `retention`. A tenant with about `live_keys_max` keys gets no new ones.
    `coalesce` makes larger batches. `tracing`: by OpenTelemetry; True: with its global provider.
    """
    caller = Caller(checked_name("tenant", tenant), checked_name("user", user), str(actor or Actor.client("local")))
    build_runtime = partial(
        Runtime,
        config=config or IdempotencyConfig.from_env(),
        clock=(clock := clock or SystemClock()),
        ids=ids or SystemIds(),
        retention_ms=parse_retention_ms("retention", retention),
        windows=parse_default_windows(None, windows),
        live_keys_max=checked_live_keys_max(live_keys_max),
        coalesce=coalesce,
        tracing=_load_tracing(tracing),
    )
    said = said_settings(key_owner, window)
    return LedgerOpener(partial(_open_ledger, url, clock, build_runtime, caller, sites, said, sweep=sweep))


async def _open_ledger(
    url: str, clock: Clock, build_runtime: Callable[[Engine], Runtime], caller: Caller, sites: Sites,
    said: Said, *, sweep: bool,
) -> Ledger:  # fmt: skip
    engine = await open_engine(url, clock=clock)
    runtime = build_runtime(engine)
    runtime.sites = sites
    try:
        await runtime.open_settings(said)
    except BaseException:
        await runtime.aclose()
        raise
    if sweep:
        runtime.start_maintenance()
    return Ledger(runtime, caller)


def _load_tracing(tracing: "Tracing | bool") -> "Tracing | None":
    if not isinstance(tracing, bool):
        return tracing
    if not tracing:
        return None
    from onejob.tracing import Tracing  # imported here, because OpenTelemetry is optional

    return Tracing()
