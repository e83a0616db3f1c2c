"""What all callers of an opened ledger share: the gate, claims, watchers and maintenance."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from onejob import audit
from onejob.clock import Clock
from onejob.core.credentials import DropPolicy, SetPolicy
from onejob.core.identity import policy_id
from onejob.core.ledger_settings import LedgerSettings
from onejob.core.lookup import LookUpJob
from onejob.core.maintenance import ERASURE_POLICY_NAME
from onejob.core.replies import AnyReply, PolicyFound
from onejob.core.reserve import UnansweredReservations
from onejob.core.sites import NO_SITES, Sites
from onejob.core.submit import Submit
from onejob.core.timestamps import to_utc
from onejob.core.work import RETENTION_MS
from onejob.engine import Engine, EngineInfo, LedgerOwner
from onejob.engines.batcher import Batcher
from onejob.engines.gate import Gate
from onejob.errors import OnejobError, StoreRefused, Unavailable, Unknown
from onejob.ids import Ids
from onejob.resources.keys import PurgeResult
from onejob.settings import IdempotencyConfig

from .callers import STANDARD_WINDOWS, Caller, DefaultWindows
from .claims import Claims
from .counts import ActivityReporter, JobCounts
from .external_keys import ExternalKeyTenants
from .key_limit import LiveKeyLimit
from .maintenance import PurgeProgress, Sweeper, SweepResult, purge_tenant
from .paused_types import PausedTypes
from .present import to_exception
from .settings import Said, StoredSettings, load_settings, open_settings, refuse_differences
from .stats import ENDING_REPLIES, AttemptStats, Stats, TenantCounts, ended_attempts
from .wakeups import Waiters
from .watch import JobWatcher

if TYPE_CHECKING:
    from onejob.tracing import Tracing

PROBE_INTERVAL_SECONDS = 3.0
SETTINGS_WAIT_SECONDS = 2.0  # a change takes some milliseconds, unless its process died

_FLUSH_CHUNK_SIZE = 500
_SETTLING_SECONDS_MAX = 2.0
_UNCHANGED = IdempotencyConfig()
_NO_TENANT = ""  # no tenant has this name
READY_POLICY_NAME = "ready"
_PROBE_READ = LookUpJob(tenant=_NO_TENANT, job_id=bytes(16))

SubmissionFilter = Callable[[Submit], Submit]

log = logging.getLogger("onejob")


class Runtime:
    sites: Sites = NO_SITES  # that a submission may name; set where the ledger is opened

    is_closed = False
    settings = LedgerSettings()
    settings_body = b""  # empty: the settings were not read, and commands prove none
    settings_error: StoreRefused | None = None
    _said: Said = MappingProxyType({})
    _settings_task: "asyncio.Task[None] | None" = None
    _maintenance_task: "asyncio.Task[None] | None" = None
    _sweep_totals, _maintenance_failures = SweepResult(), 0

    def __init__(
        self, engine: Engine, config: IdempotencyConfig, *, clock: Clock, ids: Ids, retention_ms: int = RETENTION_MS,
        windows: DefaultWindows = STANDARD_WINDOWS, live_keys_max: int | None = None, coalesce: bool = False,
        tracing: "Tracing | None" = None,
    ) -> None:  # fmt: skip
        info = engine.info
        config = _with_prescribed(config, info.owner)
        self.gate = Gate(Batcher(engine, coalesce=coalesce), config, clock.monotonic)
        self.job_watcher = JobWatcher(self.gate)
        self.waiters = Waiters()
        self.readiness = Readiness(self.gate, clock.monotonic)
        self.ids, self.tracing = ids, tracing
        self.paused_types = PausedTypes(self.gate)
        self.claims = Claims(self.gate, ids, paused_types=self.paused_types, retention_ms=retention_ms)
        self.attempt_stats = AttemptStats()
        self.activity = ActivityReporter(self.gate, ids)
        self.gate.add_commit_listener(self._count_ended_attempts, ENDING_REPLIES)
        self.job_counts = JobCounts(self.gate, ids)
        self.external_keys = ExternalKeyTenants(self.gate)
        self.key_limit = LiveKeyLimit(self.job_counts, live_keys_max)
        # What is done with a submission before it is sent: of the capabilities that are switched on.
        self.submission_filters: tuple[SubmissionFilter, ...] = () if live_keys_max is None else (self.key_limit.apply,)
        self.unanswered_reservations = UnansweredReservations()
        self.retention_ms = retention_ms
        self.windows = windows if windows.ttl_ms else replace(windows, ttl_ms=engine.info.window_ms)
        self.gate.on_settings_changed = self.note_settings_changed
        self.lease_ms = round(config.pending_ttl_seconds * 1000)
        self.rejected_ttl_ms = round(config.rejected_ttl_seconds * 1000)
        # How long any gate may remember a receipt: `forget` must wait for it.
        self.cache_ttl_ms_max = round(max(config.committed_ttl_seconds, config.rejected_ttl_seconds) * 1000)
        self._config = config
        self._sweeper = Sweeper(self.gate, retention_ms=retention_ms)
        self._sweeps_store = info.owner is None
        self._engine = engine
        self.settling_tasks: set[asyncio.Task[Any]] = set()  # of held keys whose work has ended

    def start_maintenance(self, *, process_index: int = 0, process_count: int = 1) -> None:
        """Run maintenance periodically. Processes that share a store take turns with the store's part of it."""
        self._maintenance_task = asyncio.get_running_loop().create_task(
            self._run_maintenance(process_index, process_count)
        )

    async def open_settings(self, said: Said) -> None:
        """Read the settings of the ledger; raises StoreRefused if this process says otherwise."""
        self._said = said
        self._adopt(await open_settings(self._engine, said))

    def bind(self, caller: Caller) -> Caller:
        """The caller under the settings of the ledger."""
        if not self.settings_body:
            return caller
        return replace(caller, owns_keys=self.settings.owns_keys, settings=self.settings_body)

    def note_settings_changed(self) -> None:
        """The store has refused a command that was built under older settings: read the new ones."""
        if self.settings_body and (self._settings_task is None or self._settings_task.done()):
            self._settings_task = asyncio.get_running_loop().create_task(self._try_reload_settings())

    async def adopt_changed_settings(self) -> None:
        """Wait, not for long, until changed settings are adopted here; raises StoreRefused if this process says otherwise."""
        self.note_settings_changed()
        if self._settings_task is not None:
            await asyncio.wait((self._settings_task,), timeout=SETTINGS_WAIT_SECONDS)
        if self.settings_error is not None:
            raise _copied_error(self.settings_error)

    async def _try_reload_settings(self) -> None:
        try:
            await self.reload_settings()
        except OnejobError as error:
            log.error("the settings of the ledger were changed and cannot be adopted; nothing is accepted: %s", error)

    async def reload_settings(self) -> None:
        """Adopt what another process has changed. A process that says otherwise accepts nothing from then on."""
        stored = await load_settings(self._engine)
        if stored is None or stored.body == self.settings_body:
            return
        try:
            refuse_differences(self._engine, stored.settings, self._said)
        except StoreRefused as error:
            self.settings_error = error
            raise
        log.warning("the settings of the ledger were changed (version %d); they are adopted", stored.settings.version)
        self.settings_error = None
        self._adopt(stored)

    def _adopt(self, stored: StoredSettings) -> None:
        settings = stored.settings
        self._warn_of_ceilings(settings)
        self.settings, self.settings_body = settings, stored.body
        self.windows = replace(self.windows, ttl_ms=settings.window_ms or self._engine.info.window_ms)
        self.gate.cache.limit_lifetimes(
            committed_seconds=settings.committed_ttl_ms_max / 1000, rejected_seconds=settings.rejected_ttl_ms_max / 1000
        )

    def _warn_of_ceilings(self, settings: LedgerSettings) -> None:
        for name, own, ceiling_ms in (
            ("committed_ttl", self._config.committed_ttl_seconds, settings.committed_ttl_ms_max),
            ("rejected_ttl", self._config.rejected_ttl_seconds, settings.rejected_ttl_ms_max),
        ):
            if own * 1000 > ceiling_ms and own != getattr(_UNCHANGED, f"{name}_seconds"):
                log.warning(
                    "IDEMPOTENCY_%s_SECONDS is %g, and the ledger allows %g: answers are remembered for %g seconds; to "
                    "change that: onejob settings set %s=%gs",
                    name.upper(), own, ceiling_ms / 1000, ceiling_ms / 1000, name, own,
                )  # fmt: skip

    async def sweep(self) -> SweepResult:
        await self._maintain_memory()
        swept = await self._sweeper.sweep()
        self._sweep_totals = self._sweep_totals.plus(swept)
        return swept

    async def check_ready(self) -> None:
        """Return if submissions can be accepted; otherwise raise what prevents it."""
        if self.settings_error is not None:
            raise _copied_error(self.settings_error)
        await self.readiness.check()

    @property
    def engine_info(self) -> EngineInfo:
        return self._engine.info

    def stats(self) -> Stats:
        info = self._engine.info
        return Stats(
            engine=info.name,
            durability_warning=info.durability_warning,
            config=self._config,
            outcomes=self.gate.outcomes.total(),
            refusals=dict(self.gate.refusals),
            gate=self.gate.stats(),
            queues=self.gate.queue_stats(),
            sweep_totals=self._sweep_totals,
            maintenance_failures=self._maintenance_failures,
        )

    def tenant_counts(self, tenant: str) -> TenantCounts:
        return TenantCounts(dict(self.gate.outcomes.for_tenant(tenant)), self.gate.count_waiters(tenant))

    async def flush_hits(self, *record_ids: bytes) -> None:
        """Store the hits counted for these records, or for all; in chunks, so that submissions can go between."""
        hits = self.gate.hits.take(*record_ids)
        for start in range(0, len(hits), _FLUSH_CHUNK_SIZE):
            await self.gate.execute(hits[start : start + _FLUSH_CHUNK_SIZE])

    async def purge(self, caller: Caller) -> PurgeResult:
        """Delete everything of the caller's tenant."""
        progress = PurgeProgress()
        try:
            await purge_tenant(self.gate, caller.tenant, progress)
            at = await self._request_erasure()
        except Unavailable as error:
            if not progress.count:
                raise
            raise Unknown(
                f"a part of the tenant's data was deleted, then the store failed ({error}); purge again"
            ) from error
        finally:  # a purge that fails half-way has deleted something too
            audit.write_audit_record("purge", tenant=caller.tenant, actor=caller.actor, erased=progress.count)
        return PurgeResult(progress.count, to_utc(at + self.gate.info.erasure_ms))

    async def _request_erasure(self) -> int:
        """Ask a store that keeps its history to remove that too; returns the store's time.

        The body is another each time, so that it is a change.
        """
        (reply,) = await self.gate.execute(
            (
                SetPolicy(
                    tenant=_NO_TENANT,
                    policy_id=policy_id(_NO_TENANT, ERASURE_POLICY_NAME),
                    name=ERASURE_POLICY_NAME,
                    body=self.ids.holder(),
                ),
            )
        )
        if not isinstance(reply, PolicyFound):
            raise to_exception(reply, "")
        return reply.at

    def release_waiters(self) -> None:
        """End all long polls and waits for pending keys, because the process is shutting down."""
        self.gate.release_waiters()
        self.waiters.release()

    async def aclose(self) -> None:
        if self.settling_tasks:
            await asyncio.wait(tuple(self.settling_tasks), timeout=_SETTLING_SECONDS_MAX)
        self.is_closed = True
        self.waiters.release()
        self.job_watcher.close()
        self.claims.close()
        self.job_counts.close()
        if self._settings_task is not None:
            self._settings_task.cancel()
        if self._maintenance_task is not None:
            self._maintenance_task.cancel()
            with suppress(asyncio.CancelledError):
                await self._maintenance_task
        try:
            with suppress(OnejobError):  # only counts can be lost
                await self.flush_hits()
                await self.activity.report()
        finally:
            await self.gate.aclose()

    def _count_ended_attempts(self, replies: Sequence[AnyReply | Exception]) -> None:
        for reply, job in ended_attempts(replies):
            self.attempt_stats.count_end(reply, job)
            self.activity.count_end(job)

    async def _maintain_memory(self) -> None:
        self.gate.cache.evict_expired()
        if self.settings_body:
            await self.reload_settings()
        await self.flush_hits()
        await self.activity.report()
        await self.key_limit.refresh()

    async def _run_maintenance(self, process_index: int, process_count: int) -> None:
        for turn in count():
            await asyncio.sleep(self._config.cleanup_interval_seconds)
            try:
                is_own_turn = self._sweeps_store and turn % process_count == process_index
                await (self.sweep() if is_own_turn else self._maintain_memory())
            except OnejobError as error:
                self._maintenance_failures += 1
                log.warning("maintenance run failed, will retry: %s", error)
            except Exception:
                self._maintenance_failures += 1
                log.exception("maintenance run failed with an unexpected error, will retry")


class Readiness:
    """Checks that the store can be read and written.

    The gate remembers the error of the last write. After one, a tiny policy of no tenant is written and deleted, at most
    every few seconds, so that an idle store is found to work again.
    """

    def __init__(self, gate: Gate, monotonic: Callable[[], float]) -> None:
        self._gate = gate
        self._monotonic = monotonic
        self._last_probe_at = float("-inf")

    async def check(self) -> None:
        """Return if the store can be read and written; otherwise raise its error."""
        await self._gate.execute((_PROBE_READ,))
        last_error = self._gate.last_error
        if last_error is None:
            return
        now = self._monotonic()
        if now - self._last_probe_at < PROBE_INTERVAL_SECONDS:
            raise _copied_error(last_error)
        self._last_probe_at = now
        await self._probe_write()

    async def _probe_write(self) -> None:
        """Set and drop a policy. In one batch they would cancel each other, and nothing would be written."""
        probe_id = policy_id(_NO_TENANT, READY_POLICY_NAME)
        for command in (
            SetPolicy(tenant=_NO_TENANT, policy_id=probe_id, name=READY_POLICY_NAME, body=b""),
            DropPolicy(tenant=_NO_TENANT, policy_id=probe_id),
        ):
            await self._gate.execute((command,))


def _with_prescribed(config: IdempotencyConfig, owner: LedgerOwner | None) -> IdempotencyConfig:
    """The owner of the ledger says what must be the same for all gates, whatever is configured here."""
    if owner is None:
        return config
    return replace(
        config,
        pending_ttl_seconds=owner.prescribed.pending_ttl_seconds,
        rejected_ttl_seconds=owner.prescribed.rejected_ttl_seconds,
    )


def _copied_error(error: Exception) -> OnejobError:
    """A copy, because raising an exception changes it, and this one is raised many times."""
    if isinstance(error, OnejobError):
        return type(error)(*error.args)
    return Unavailable(f"the engine failed unexpectedly ({type(error).__name__})")
