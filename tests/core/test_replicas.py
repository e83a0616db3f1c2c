"""Replicas that decide the same commands at the same times end in the same state, however they batch them."""

import random
from collections.abc import Iterator, Sequence
from hashlib import sha256
from itertools import pairwise
from typing import Any, TypeVar

import pytest
from msgspec import msgpack

from onejob.clock import FakeClock
from onejob.core.command import Command
from onejob.core.facts import U64, JobSpec, Kind
from onejob.core.identity import encode_reservation_id, policy_id, record_id, stream_id, usage_id
from onejob.core.limits import QUOTA_POLICY_NAME, Limits, encode_limits
from onejob.core.maintenance import CountHits, Expire, Forget, Maintain, Purge
from onejob.core.replies import AnyReply, Created, Defect, Refused, SequenceCommitted
from onejob.core.sequence import Evict, SubmitSequence
from onejob.core.slots import Backfill, ConsumeSlot, Reconcile, ReleaseSlot, RenewSlot, ReserveSlot, SetLimits
from onejob.core.submit import Submit
from onejob.core.work import Cancel
from onejob.engines.memory import MemoryEngine

T = TypeVar("T")

SEEDS = 25
BATCHES = 60
TENANTS, SCOPES, CLIENTS, USERS = ("acme", "zeta"), ("s", "s/v"), ("a", "b:1"), ("ann", "bob")
HOUR_MS = 3_600_000


class Script:
    """Commands as many callers and a sweeper would send them, from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self._jobs: dict[str, list[bytes]] = {tenant: [] for tenant in TENANTS}
        self._reached: dict[bytes, int] = {}
        self._drawn = 0

    def batches(self) -> Iterator[tuple[float, list[Command[Any]]]]:
        """Seconds that pass, and what is then decided at one instant."""
        for _ in range(BATCHES):
            pause = self.chance.choice([0, 0, 0.001, 1, 600, HOUR_MS / 1000, 20 * 3600, 25 * 3600])
            if self.chance.random() < 0.02:
                pause = 401 * 24 * 3600.0
            yield pause, [self._command() for _ in range(self.chance.randint(1, 24))]

    def remember(self, commands: list[Command[Any]], replies: Sequence[AnyReply]) -> None:
        """Go on from what was answered, as clients do."""
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, Created):
                self._jobs[command.tenant].append(reply.job.id)
            elif isinstance(reply, SequenceCommitted):
                self._jobs[command.tenant] += [job.id for job in reply.jobs]
            elif isinstance(reply, Refused) and isinstance(command, SubmitSequence):
                last = reply.details.get("last_committed_sequence", self._reached[command.stream_id])
                self._reached[command.stream_id] = int(last)

    def split_points(self, length: int) -> list[int]:
        return sorted(self.chance.sample(range(1, length), self.chance.randrange(length)))

    def _command(self) -> Command[Any]:
        kinds = (
            [self._sequence] * 8 + [self._plain] * 3 + [self._cancel] * 3 + [self._maintenance] * 6 + [self._slot] * 3
        )
        tenant = self._pick(TENANTS)
        return self._pick(kinds)(tenant, self._pick(USERS))

    def _sequence(self, tenant: str, user: str) -> SubmitSequence:
        scope, client = self._pick(SCOPES), self._pick(CLIENTS)
        stream = stream_id(tenant, scope, client)
        last = self._reached.get(stream, 0)
        sequence = max(1, last + self._pick([1, 1, 1, 1, 0, -1, 2]))
        self._reached[stream] = last + (sequence == last + 1)
        key = f"{client}-{sequence}-{self._pick(['x', 'x', 'x', 'y'])}"
        many = self._pick([1, 1, 2, 5])
        return SubmitSequence(
            tenant=tenant,
            stream_id=stream,
            record_id=record_id(tenant, scope, key),
            scope=scope,
            client_id=client,
            sequence=U64(sequence),
            key=key,
            fingerprint=self._pick([b"one", b"one", b"other"]),
            items=tuple(JobSpec(self._job_id(), "w", b"%d" % n, cost=n) for n in range(many)),
            actor=f"client:{user}",
            user=user,
            owner=self._pick(["client:ann"] * 9 + ["client:bob"]),
            ttl_ms=self._pick([1000, HOUR_MS, 72 * HOUR_MS]),
            usage_id=usage_id(tenant, user),
            policy_id=policy_id(tenant, QUOTA_POLICY_NAME),
        )

    def _plain(self, tenant: str, user: str) -> Submit:
        scope, key = self._pick(SCOPES), f"plain-{self.chance.randrange(6)}"
        return Submit(
            tenant=tenant,
            job_id=self._job_id(),
            type="w",
            record_id=record_id(tenant, scope, key),
            scope=scope,
            key=key,
            fingerprint=b"one",
            actor=f"user:{user}",
            user=user,
            ttl_ms=HOUR_MS,
            usage_id=usage_id(tenant, user),
            policy_id=policy_id(tenant, QUOTA_POLICY_NAME),
            cost=3,
        )

    def _cancel(self, tenant: str, user: str) -> Cancel:
        return Cancel(tenant=tenant, job_id=self._known_job(tenant), actor=f"user:{user}", retention_ms=HOUR_MS)

    def _maintenance(self, tenant: str, user: str) -> Command[Any]:
        scope, client = self._pick(SCOPES), self._pick(CLIENTS)
        record = record_id(tenant, scope, f"{client}-{self.chance.randint(1, 8)}-x")
        usage = usage_id(tenant, user)
        return self._pick(
            [
                Evict(tenant=tenant, stream_id=stream_id(tenant, scope, client)),
                Evict(tenant=tenant, stream_id=stream_id(tenant, scope, client)),
                Expire(tenant=tenant, record_id=record),
                Maintain(tenant=tenant, job_id=self._known_job(tenant), retention_ms=HOUR_MS),
                Maintain(tenant=tenant, job_id=self._known_job(tenant), retention_ms=HOUR_MS),
                Forget(tenant=tenant, record_id=record, actor="user:ann", grace_ms=1000),
                CountHits(tenant=tenant, record_id=record, hits=2, conflicts=1),
                Reconcile(
                    tenant=tenant,
                    usage_id=usage,
                    expected_version=self.chance.randint(1, 9),
                    live=1,
                    cost_held=1,
                ),
                Backfill(tenant=tenant, usage_id=usage, user=user, job_id=self._known_job(tenant)),
                Purge(tenant=tenant, record_id=record),
            ]
        )

    def _slot(self, tenant: str, user: str) -> Command[Any]:
        usage = usage_id(tenant, user)
        name = encode_reservation_id(usage, bytes([self.chance.randrange(3)]) * 16)
        limits = Limits(max_concurrent=self._pick([0, 3, 10]), jobs_per_hour=self._pick([None, 20]))
        user_limits = self._pick([b"", encode_limits(limits)])
        return self._pick(
            [
                SetLimits(tenant=tenant, usage_id=usage, user=user, limits=user_limits),
                ReserveSlot(tenant=tenant, usage_id=usage, user=user, reservation=name),
                RenewSlot(tenant=tenant, usage_id=usage, reservation=name),
                ReleaseSlot(tenant=tenant, usage_id=usage, reservation=name),
                ConsumeSlot(tenant=tenant, usage_id=usage, reservation=name, job_id=self._known_job(tenant)),
            ]
        )

    def _job_id(self) -> bytes:
        self._drawn += 1
        return self._drawn.to_bytes(16, "big")

    def _known_job(self, tenant: str) -> bytes:
        """A job that was made, as far as this tenant knows."""
        jobs = self._jobs[tenant]
        return self._pick(jobs[-40:]) if jobs else bytes(16)

    def _pick(self, values: Sequence[T]) -> T:
        return self.chance.choice(values)


class Replica:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.engine = MemoryEngine(self.clock)

    async def apply(self, pause: float, commands: list[Command[Any]], split_points: list[int]) -> list[AnyReply]:
        self.clock.advance(pause)
        bounds = [0, *split_points, len(commands)]
        replies: list[AnyReply] = []
        for start, end in pairwise(bounds):
            replies += await self.engine.execute(commands[start:end])
        return replies

    def state(self) -> str:
        """A digest of all facts and attachments."""
        digest = sha256()
        for kind in Kind:
            for _, fact in sorted(self.engine.facts[kind].items()):
                digest.update(msgpack.encode((kind, fact)))
        for place, attachment in sorted(self.engine.attachments.items()):
            digest.update(msgpack.encode((place, attachment)))
        return digest.hexdigest()


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_batches_of_any_size_end_in_the_same_state(seed: int) -> None:
    script = Script(seed)
    together, single, split = Replica(), Replica(), Replica()
    for pause, commands in script.batches():
        length = len(commands)
        replies = [
            await together.apply(pause, commands, []),
            await single.apply(pause, commands, list(range(1, length))),
            await split.apply(pause, commands, script.split_points(length)),
        ]
        script.remember(commands, replies[0])
        assert not any(isinstance(reply, Defect) for reply in replies[0]), replies[0]
        assert replies[0] == replies[1] == replies[2]
        if script.chance.random() < 0.1:
            assert together.state() == single.state() == split.state()
    assert together.state() == single.state() == split.state()


async def test_the_script_reaches_what_it_is_about() -> None:
    seen: dict[str, int] = {}
    for seed in range(SEEDS):
        replica = Replica()
        script = Script(seed)
        for pause, commands in script.batches():
            replies = await replica.apply(pause, commands, [])
            script.remember(commands, replies)
            for command, reply in zip(commands, replies, strict=True):
                reason = getattr(reply, "reason", getattr(reply, "changed", ""))
                name = f"{type(command).__name__} {type(reply).__name__} {reason}".strip()
                seen[name] = seen.get(name, 0) + 1
    for expected in (
        "SubmitSequence SequenceCommitted", "SubmitSequence SequenceAlreadyCommitted", "SubmitSequence Refused SEQUENCE_GAP",
        "SubmitSequence Refused ALREADY_COMMITTED",
        "SubmitSequence Refused IDEMPOTENCY_KEY_REUSED", "SubmitSequence Refused QUOTA_EXCEEDED",
        "SubmitSequence Refused NOT_THE_OWNER", "Evict Maintained True", "Cancel Cancelled True", "Submit Replayed",
        "Maintain Maintained True", "Expire Maintained True", "ConsumeSlot SlotSettled",
    ):  # fmt: skip
        assert seen.get(expected, 0) > 10, (expected, seen)
