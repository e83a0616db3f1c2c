"""The settings of a ledger change while processes submit: nothing is made under settings that no longer hold.

Some processes submit keys of several users with the settings they last read; they freeze between building a command and sending
it. Others change `key_owner`, and some die half-way. The store commits as PostgreSQL inserts new facts: what a statement has read
of policies is a snapshot, which may be outdated when it commits; only the barrier waits for statements under way.

A key must never have live records of both kinds, of the tenant and of a user.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from random import Random
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from onejob.core.command import Command, is_settings_refusal
from onejob.core.facts import Kind, Record, is_live
from onejob.core.identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT, record_id
from onejob.core.ledger_settings import SETTINGS_POLICY_ID, decode_settings
from onejob.core.replies import AnyReply
from onejob.errors import OnejobError
from onejob.ids import SeededIds
from onejob.ledger.parse import Submission, build_submit
from onejob.runtime import settings as settings_module
from onejob.runtime.callers import Caller
from onejob.runtime.policies import load_policy

from .loop import VirtualLoop
from .plan import Faults, Plan
from .store import FactChange, Proposal, SimEngine, SimStore

TENANT = "default"
USERS = ("ann", "bob")
KEYS = 3
SUBMITTERS = 4
OPERATORS = 2
SUBMISSIONS = 40
CHANGES = 12
WINDOWS_MS = (50, 200, 1500)


class SettingsResult(Struct, frozen=True):
    violations: tuple[str, ...]
    counts: dict[str, int]


class SnapshotStore(SimStore):
    """Policies are not verified again when a proposal is committed."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.under_way: set[object] = set()

    def is_still_valid(self, proposal: Proposal) -> bool:
        if any(command.creates for command in proposal.commands):
            read_set = [entry for entry in proposal.read_set if entry[0] is not Kind.POLICY]
            proposal = proposal._replace(read_set=read_set)
        return super().is_still_valid(proposal)


class SnapshotEngine(SimEngine):
    store: SnapshotStore

    async def _execute(self, commands: Sequence[Command[Any]]) -> Sequence[AnyReply]:
        statement = object()
        self.store.under_way.add(statement)
        try:
            return await super()._execute(commands)
        finally:
            self.store.under_way.discard(statement)

    async def barrier(self, tenant: str | None, user: str | None = None) -> None:
        begun = set(self.store.under_way)
        while begun & self.store.under_way:
            await asyncio.sleep(0.01)


class SettingsSimulation:
    engine_class: type[SnapshotEngine] = SnapshotEngine

    def __init__(self, seed: int) -> None:
        self._rng = Random(f"settings {seed}")
        plan = Plan(seed=seed, clients=(), faults=Faults(unavailable=0.02, slow=0.1), slow_max=0.4)
        self.loop = VirtualLoop(Random(f"order {seed}"), jitter=0.25, delay_max=0.02)
        self.store = SnapshotStore(self.loop, plan, Random(f"faults {seed}"), self._on_commit)
        self.counts: Counter[str] = Counter()
        self.violations: list[str] = []
        self._ids = SeededIds(Random(f"ids {seed}"))

    def run(self) -> SettingsResult:
        self.loop.run(self._main())
        return SettingsResult((*self.violations, *self.loop.errors), dict(self.counts))

    async def _main(self) -> None:
        await self._patiently(lambda: settings_module.open_settings(self._engine(), {}))
        submitters = [asyncio.create_task(self._submit(n)) for n in range(SUBMITTERS)]
        operators = [asyncio.create_task(self._operate()) for _ in range(OPERATORS)]
        await asyncio.gather(*submitters, *operators)

    def _engine(self) -> SnapshotEngine:
        return self.engine_class(self.store, 64)

    async def _submit(self, number: int) -> None:
        engine = self._engine()
        stored = await self._patiently(lambda: settings_module.load_settings(engine))
        for _ in range(SUBMISSIONS):
            user, key = self._rng.choice(USERS), f"k{self._rng.randrange(KEYS)}"
            caller = Caller(TENANT, user, f"user:{user}", stored.settings.owns_keys, settings=stored.body)
            submission = Submission(type="t", idempotency_key=key)
            command = replace(build_submit(submission, caller, self._ids.job_id()), ttl_ms=self._rng.choice(WINDOWS_MS))
            if self._rng.random() < 0.2:
                await asyncio.sleep(self._rng.random() * 3)  # frozen
            with suppress(OnejobError):
                (reply,) = await engine.execute([command])
                self.counts[type(reply).__name__] += 1
                if is_settings_refusal(reply):
                    self.counts["refused"] += 1
                    stored = await self._patiently(lambda: self._read_settings(engine))
            await asyncio.sleep(self._rng.random() * 0.3)

    async def _read_settings(self, engine: SnapshotEngine) -> settings_module.StoredSettings | None:
        """Some doors read what is stored and do not wait until a change has ended."""
        if self._rng.random() < 0.5:
            return await settings_module.load_settings(engine)
        policy, now = await load_policy(engine, SYSTEM_TENANT, SETTINGS_POLICY_NAME)
        assert policy is not None
        return settings_module.StoredSettings(decode_settings(policy.body), policy.body, policy.version, now)

    async def _operate(self) -> None:
        for _ in range(CHANGES):
            owner = self._rng.choice(("tenant", "user"))
            change = asyncio.create_task(
                settings_module.change_settings(self._engine(), {"key_owner": owner}, actor="client:admin")
            )
            dies = self._rng.random() < 0.2
            done, _ = await asyncio.wait([change], timeout=self._rng.random() * 0.2 if dies else None)
            if not done:
                change.cancel()
                self.counts["died"] += 1
            with suppress(OnejobError, asyncio.CancelledError):
                self.counts["changed" if (await change).is_possible else "in use"] += 1
            await asyncio.sleep(self._rng.random())

    async def _patiently(self, ask: Any) -> Any:
        while True:
            try:
                return await ask()
            except OnejobError:
                await asyncio.sleep(0.05)

    def _on_commit(self, proposal: Proposal, changes: list[FactChange]) -> None:
        now = self.store.clock()
        for _, fact in changes:
            if isinstance(fact, Record):
                self._check(fact, now)

    def _check(self, made: Record, now: int) -> None:
        kinds = {
            _is_tenants(record)
            for record in self.store.tables[Kind.RECORD].values()
            if record.key == made.key and is_live(record, now)
        }
        if len(kinds) > 1:
            self.violations.append(f"the key {made.key} has live records of the tenant and of a user")
        settings = decode_settings(self.store.tables[Kind.POLICY][SETTINGS_POLICY_ID].body)
        if not settings.closed_until and settings.owns_keys == _is_tenants(made):
            self.violations.append(f"the key {made.key} was made under settings that no longer hold")


def _is_tenants(record: Record) -> bool:
    return record.id == record_id(TENANT, record.scope, record.key, "")


def simulate_settings(seed: int, engine: type[SnapshotEngine] = SnapshotEngine) -> SettingsResult:
    simulation = SettingsSimulation(seed)
    simulation.engine_class = engine
    return simulation.run()
