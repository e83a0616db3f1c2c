"""Runs one simulation: the plan with its faults; then, without faults, every call must be answered."""

import asyncio
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b
from random import Random
from typing import Any

from msgspec import Struct

from onejob.core import identity
from onejob.core.facts import Job, Kind, Policy, Record
from onejob.core.limits import QUOTA_POLICY_NAME, Limits, TenantLimits, encode_limits
from onejob.core.replies import AnyReply, InProgress
from onejob.core.slots import SLOT_TTL_MS_MAX
from onejob.core.states import ENDED_STATES, IMMUTABLE_STATES, IdempotencyStatus, JobState
from onejob.core.work import Cancel, Resolution, Resolve
from onejob.ids import SeededIds

from .client import Client
from .commit_checks import CommitChecker
from .invariants import slots_in_use
from .loop import Deadlock, VirtualLoop
from .model_state import ModelKey
from .plan import Op, Plan, Verb
from .process import Components, Process
from .reply_checks import ReplyChecker
from .store import Snapshot
from .usage_model import ModelPolicy

RECOVERY_SECONDS_MAX = 600.0  # of virtual time, in which every call must be answered
_FAULT_INTERVAL_SECONDS = 0.25
_RECEIPT_SECONDS_MAX = 5.0  # plans whose gates remember a receipt for longer are not checked for what is left
_ROLLED_BACK_SECONDS_MAX = 1.0
_SNAPSHOTS_MAX = 8
_JUMP_MS_MAX = 3000
_JUMPS_MAX = 3
SEQUENCED_CLIENT_ID = "seq"


class SimulationResult(Struct, frozen=True):
    """The outcome of one simulation."""

    seed: int
    steps: int
    seconds: float  # virtual
    digest: str
    violations: tuple[str, ...]
    counts: dict[str, int]
    trace: tuple[str, ...] = ()


def simulate(plan: Plan, components: Components | None = None, *, tracing: bool = False) -> SimulationResult:
    return Simulation(plan, components or Components(), tracing=tracing).run()


class Simulation:
    def __init__(self, plan: Plan, components: Components, *, tracing: bool) -> None:
        def rng(purpose: str) -> Random:
            return Random(f"{purpose} {plan.seed} {plan.salt}")

        self.plan = plan
        self.client_timeout_seconds = plan.client_timeout
        self.counts: Counter[str] = Counter()
        self.job_ids_by_key: dict[bytes, bytes] = {}
        self.ids = SeededIds(rng("ids"))
        self.loop = VirtualLoop(rng("order"), jitter=plan.jitter, delay_max=plan.delay_max)
        self.commit_checker = CommitChecker(self.loop, self.record_event)
        self.store = components.store(self.loop, plan, rng("faults"), self.commit_checker.on_commit)
        self.commit_checker.store = self.store
        self.reply_checker = ReplyChecker(self.commit_checker, self.store)
        self.reply_checker.slack_ms = 20 if plan.faults.drift else 0
        self._rng = rng("world")
        self._roll_back_rng = rng("roll back")
        self._snapshots: list[Snapshot] = []  # older ones first
        self._newest: Snapshot | None = None  # of the store, while an older one is in its place
        self._components = components
        self._processes: list[Process] = []
        self._closing: list[Process] = []
        self._fault_injector: asyncio.Task[None] | None = None
        self._digest = blake2b(digest_size=8)
        self._trace: list[str] | None = [] if tracing else None
        self._record_ids: dict[tuple[str, int], bytes] = {}

    def run(self) -> SimulationResult:
        try:
            self.loop.run(self._run())
        except Deadlock as stuck:
            self.commit_checker.report_violation("no caller waits forever", str(stuck))
        for error in self.loop.errors:
            self.commit_checker.report_violation("no error is unhandled", error)
        if self.store.counts["written twice"]:
            self.commit_checker.report_violation("an attachment is written once", "")
        counts = self.counts + self.commit_checker.counts + self.store.counts
        return SimulationResult(
            self.plan.seed,
            self.loop.steps,
            self.loop.time(),
            self._digest.hexdigest(),
            tuple(self.commit_checker.violations),
            dict(counts),
            tuple(self._trace or ()),
        )

    def record_event(self, text: str) -> None:
        """Add an event to the trace and to the digest; equal digests mean equal simulations."""
        line = f"{self.loop.time():.6f} {text}"
        self._digest.update(line.encode())
        if self._trace is not None:
            self._trace.append(line)

    def any_process(self) -> Process | None:
        alive = [process for process in self._processes if not process.dead]
        return self._rng.choice(alive) if alive else None

    def new_candidate(self) -> bytes:
        job_id = self.ids.job_id()
        self.commit_checker.proposed_job_ids.add(job_id)
        return job_id

    def record_id(self, tenant: str, key: int) -> bytes:
        found = self._record_ids.get((tenant, key))
        if found is None:
            found = self._record_ids[tenant, key] = identity.record_id(tenant, "walk", f"key{key}")
        return found

    def is_key_without_job(self, key: int) -> bool:
        return key >= self.plan.keys - self.plan.keys_without_job and key < self.plan.keys

    async def _run(self) -> None:
        if self.plan.has_sequenced_key:
            self._store_sequenced_key()
        if self.plan.quota is not None:
            self._store_policies(self.plan.quota)
        self._processes = [self._start_process() for _ in range(self.plan.processes)]
        self._fault_injector = self.loop.create_task(self._inject_faults())
        clients = [Client(self, number) for number in range(len(self.plan.clients))]
        await asyncio.gather(*(c.run(ops) for c, ops in zip(clients, self.plan.clients, strict=True)))
        self.record_event("calm")
        self._stop_faults()
        await self._check_every_key_is_answered(clients)
        lost = self.reply_checker.acknowledged - self.commit_checker.existing_jobs - self.commit_checker.deleted_jobs
        if lost:
            self.commit_checker.report_violation("no acknowledged job is lost", f"{len(lost)} are lost")
        await self._check_everything_expires(clients)
        # A process may still be paused. What it remembers expires too, even if a late purge has already deleted all records.
        await asyncio.sleep(max(self.plan.slow_max, _RECEIPT_SECONDS_MAX))
        self._check_nothing_leaks()

    def _store_sequenced_key(self) -> None:
        """Store a key that belongs to a sequenced client."""
        id, now = self.record_id("tenant0", self.plan.keys), self.store.clock()
        until = now + 100_000
        record = Record(
            id, "tenant0", "walk", f"key{self.plan.keys}", IdempotencyStatus.COMMITTED, b"\x02", b"", b"seq",
            1, 0, now, now, until, 100_000, "client:seq", "seq", client_id=SEQUENCED_CLIENT_ID,
        )  # fmt: skip
        self.store.tables[Kind.RECORD][id] = record
        self.commit_checker.model.keys[id] = ModelKey(
            b"\x02", "committed", b"", b"seq", 1, 0, until, 100_000, now, client_id=SEQUENCED_CLIENT_ID
        )

    def _store_policies(self, quota: int) -> None:
        """Store the default limits of all tenants."""
        for n in range(self.plan.tenants):
            tenant, now = f"tenant{n}", self.store.clock()
            body = encode_limits(TenantLimits(default=Limits(max_concurrent=quota)))
            id = identity.policy_id(tenant, QUOTA_POLICY_NAME)
            self.store.tables[Kind.POLICY][id] = Policy(id, tenant, QUOTA_POLICY_NAME, body, now)
            self.commit_checker.model.policies[id] = ModelPolicy(body, now)

    def _start_process(self) -> Process:
        return Process(self.store, self.plan, self._rng, self._components)

    async def _inject_faults(self) -> None:
        faults: dict[str, Callable[[int], None]] = {
            "crash": self._crash,
            "roll": self._rolling_restart,
            "pause": self._pause,
            "back": self._step_back,
            "forward": self._step_forward,
        }
        while True:
            await asyncio.sleep(_FAULT_INTERVAL_SECONDS)
            self._check_memory_bound()
            if self.plan.faults.roll_back:
                self._roll_back_sometimes()
            for fault, inject in faults.items():
                if self._rng.random() < getattr(self.plan.faults, fault) * _FAULT_INTERVAL_SECONDS:
                    self.counts[fault] += 1
                    self.record_event(fault)
                    inject(self._rng.randrange(len(self._processes)))

    def _roll_back_sometimes(self) -> None:
        rng = self._roll_back_rng
        if self._newest is not None:
            return
        self._snapshots = [*self._snapshots, self.store.take_snapshot()][-_SNAPSHOTS_MAX:]
        if rng.random() < self.plan.faults.roll_back * _FAULT_INTERVAL_SECONDS:
            older = rng.choice(self._snapshots)
            if older.ledger.generation < self.store.ledger.generation:
                if rng.random() < 0.5:
                    self.store.begin_new_ledger()
                self.counts["roll_back"] += 1
                self.record_event("roll_back")
                self._newest = self.store.take_snapshot()
                self.store.put_back(older)
                self.loop.call_later(_ROLLED_BACK_SECONDS_MAX * rng.random(), self._put_newest_back)

    def _put_newest_back(self) -> None:
        if self._newest is not None:
            self.store.put_back(self._newest)
            self._newest = None

    def _check_memory_bound(self) -> None:
        for process in self._processes:
            stats = process.gate.stats()
            if stats.committed + stats.rejected > self.plan.max_entries:
                self.commit_checker.report_violation("memory is bounded", f"{stats}")

    def _crash(self, n: int) -> None:
        self._processes[n].crash()
        self.loop.call_later(self._rng.random(), self._restart, n)

    def _restart(self, n: int) -> None:
        if self._processes[n].dead:
            self._processes[n] = self._start_process()

    def _rolling_restart(self, n: int) -> None:
        if not self._processes[n].dead:
            self._processes[n].close()
            self._closing.append(self._processes[n])
            self._processes[n] = self._start_process()

    def _pause(self, n: int) -> None:
        self._processes[n].paused_until = self.loop.time() + self.plan.slow_max * self._rng.random()

    def _step_back(self, _: int) -> None:
        jump = self._rng.randint(1, _JUMP_MS_MAX)
        if self.counts["back"] <= _JUMPS_MAX and not self._would_resurrect(self.store.clock() - jump):
            self.store.offset_ms -= jump
            self.reply_checker.steps_back.append((self.loop.time(), self.store.clock()))

    def _would_resurrect(self, clock: int) -> bool:
        """True if a record whose job was deleted would be live again; no reply about it could be correct."""
        records, jobs = self.store.tables[Kind.RECORD], self.store.tables[Kind.JOB]
        return any(
            record.job_ids and record.job_id not in jobs and record.expires_at >= clock for record in records.values()
        )

    def _step_forward(self, _: int) -> None:
        if self.counts["forward"] <= _JUMPS_MAX:
            jump = self._rng.randint(1, _JUMP_MS_MAX)
            self.store.offset_ms += jump
            # With a coarse clock, a gate's cache entry may last one tick longer than the jump allows.
            self.reply_checker.slack_ms += jump + self.plan.tick_ms

    def _stop_faults(self) -> None:
        assert self._fault_injector is not None
        if self._fault_injector.done():
            self._fault_injector.result()  # it has failed
        self._fault_injector.cancel()
        self._put_newest_back()
        self.store.stop_faults()
        self.client_timeout_seconds = RECOVERY_SECONDS_MAX
        for n, process in enumerate(self._processes):
            process.paused_until = 0.0
            self._restart(n)

    async def _check_every_key_is_answered(self, clients: list[Client]) -> None:
        """Without faults, a submission of every key through every process is answered soon."""
        try:
            async with asyncio.timeout(RECOVERY_SECONDS_MAX):
                await asyncio.gather(
                    *(
                        self._submit_until_answered(client, process, key)
                        for client in clients[: self.plan.tenants]
                        for process in self._processes
                        for key in range(self.plan.keys)
                    )
                )
                while any(process.is_busy() for process in (*self._processes, *self._closing)):
                    await asyncio.sleep(0.5)
        except TimeoutError:
            self.commit_checker.report_violation("every call is answered", "a call still waits")

    async def _submit_until_answered(self, client: Client, process: Process, key: int) -> None:
        op = Op(Verb.SUBMIT, key=key)
        reply: AnyReply | None = None
        while reply is None or isinstance(reply, InProgress):
            reply = await client.submit(op, process=process)
            await asyncio.sleep(0.2)

    async def _check_everything_expires(self, clients: list[Client]) -> None:
        """Cancel all jobs; then all records and jobs must expire."""
        records, jobs = self.store.tables[Kind.RECORD], self.store.tables[Kind.JOB]
        rounds = facts_left = 0
        while rounds < 10:
            for job in [job for job in jobs.values() if job.state not in IMMUTABLE_STATES]:
                await self._end_job(clients[int(job.tenant[-1])], job)
            await clients[0].sweep(Op(Verb.SWEEP))
            if not jobs and all(record.client_id == SEQUENCED_CLIENT_ID for record in records.values()):
                return
            await asyncio.sleep(2.0)
            rounds = rounds + 1 if facts_left == len(records) + len(jobs) else 0
            facts_left = len(records) + len(jobs)
        self.commit_checker.report_violation(
            "expired facts are deleted", f"{len(records)} records and {len(jobs)} jobs are left"
        )

    async def _end_job(self, client: Client, job: Job) -> None:
        fields: dict[str, Any] = {
            "tenant": job.tenant,
            "job_id": job.id,
            "actor": "client:end",
            "retention_ms": self.plan.retention_ms,
        }
        if job.state is JobState.LOST:
            await client.ask_until_answered(Resolve(**fields, resolution=Resolution.FAILED))
        elif job.state not in ENDED_STATES:
            await client.ask_until_answered(Cancel(**fields))

    def _check_nothing_leaks(self) -> None:
        for usage in self.store.tables[Kind.USAGE].values():
            # Reservations may be left, but they expire.
            if slots_in_use(usage, usage.changed_at + SLOT_TTL_MS_MAX) or usage.cost_held:
                self.commit_checker.report_violation("every slot is freed", f"{usage.user} still holds {usage.live}")
        for process in (*self._processes, *self._closing):
            if process.wrongly_cancelled:
                self.commit_checker.report_violation(
                    "a disconnected caller affects no other", f"{len(process.wrongly_cancelled)} callers were cancelled"
                )
            if process.dead:
                continue
            stats = process.gate.stats()
            # Keys that are held are pending too, until their leases end.
            if process.gate.cache.in_flight or stats.waiters or process.gate._pending_waiters._polls:
                self.commit_checker.report_violation("no caller waits forever", f"{stats}")
            process.gate.cache.evict_expired()
            stats = process.gate.stats()
            if stats.total - stats.pending and self.plan.committed_ttl < _RECEIPT_SECONDS_MAX:
                self.commit_checker.report_violation("memory is bounded", f"{stats}")
