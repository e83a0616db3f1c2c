"""Builds commands from a verb and three numbers, which select among existing keys, jobs and slots."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from onejob.core.command import Command
from onejob.core.credentials import SetPolicy
from onejob.core.facts import U64, JobSpec
from onejob.core.identity import encode_reservation_id, policy_id, record_id, stream_id, usage_id
from onejob.core.limits import (
    QUOTA_POLICY_NAME,
    CostAction,
    CostLimit,
    Limits,
    Period,
    TenantLimits,
    encode_limits,
)
from onejob.core.maintenance import Expire, Maintain
from onejob.core.replies import AnyReply, KeyHeld, SlotHeld
from onejob.core.reserve import Renew, Reserve, Settle, TakeOver, Verdict
from onejob.core.sequence import Evict, LookUpStream, SubmitSequence
from onejob.core.slots import Backfill, ConsumeSlot, LookUpUsage, ReleaseSlot, RenewSlot, ReserveSlot, SetLimits
from onejob.core.submit import ExternalJob, StoreKey, SubmissionCommand, Submit
from onejob.core.work import Cancel
from onejob.ids import SeededIds
from tests.campaigns.simulation.model import Model
from tests.campaigns.simulation.usage_model import job_id_text

TENANT = "t"
USERS = ("ann", "bob", "eve")
KEYS = 8
CLIENTS = ("till-1", "till-2")
POLICY = policy_id(TENANT, QUOTA_POLICY_NAME)
DURATIONS_MS = (500, 1000, 60_000, 300_000, 3_600_000)
COSTS = (0, 0, 1, 5, 20)
REMEMBERED_MAX = 12  # slots, keys and jobs that later commands may name
BATCH_MAX = 3

VERBS = {
    "submit": 20, "slot": 10, "with_slot": 8, "consume": 4, "release": 4, "renew_slot": 4,
    "prepare": 10, "prepare_with_slot": 3, "renew": 5, "commit": 7, "fail": 4, "reject": 3, "take_over": 3,
    "start": 10, "succeed": 8, "fail_job": 3, "lose": 2, "cancel": 6, "sweep": 8, "limits": 5, "tenant": 2,
    "backfill": 4, "sequence": 12, "repeat": 10, "look_up": 3, "external": 8, "keyless": 4, "batch": 6, "reconcile": 5,
}  # fmt: skip


class CommandFactory:
    def __init__(self, ids: SeededIds, model: Model) -> None:
        self.ids = ids
        self.model = model
        self.slots: list[tuple[str, str]] = []  # user and reservation id
        self.held_keys: list[KeyHeld] = []
        self.sent_commands: list[Command[Any]] = []

    def remember(self, command: Command[Any], reply: AnyReply) -> None:
        if isinstance(reply, SlotHeld) and isinstance(command, ReserveSlot):
            self.slots = [*self.slots, (command.user, reply.reservation)][-REMEMBERED_MAX:]
        if isinstance(reply, KeyHeld):
            self.held_keys = [*self.held_keys, reply][-REMEMBERED_MAX:]
        if isinstance(command, (SubmissionCommand, SubmitSequence, ReserveSlot, ConsumeSlot, Settle, StoreKey)):
            self.sent_commands = [*self.sent_commands, command][-3:]

    def job(self, n: int, *states: str) -> bytes:
        jobs = [id for id, job in self.model.jobs.items() if not states or job.state in states]
        return jobs[-1 - n % min(len(jobs), REMEMBERED_MAX)] if jobs else b""

    def build(self, verb: str, a: int, b: int, c: int) -> list[Command[Any]]:
        return _BUILDERS[verb](self, a, b, c)

    def _user(self, a: int) -> dict[str, Any]:
        user = USERS[min(a % 3, a // 3 % 3)]
        return {"tenant": TENANT, "user": user, "usage_id": usage_id(TENANT, user), "policy_id": POLICY}

    def _submission_fields(self, a: int, b: int, c: int) -> dict[str, Any]:
        key = f"k{b % KEYS}"
        return self._user(a) | {
            "actor": "client:paces",
            "type": "pace",
            "scope": "pace",
            "key": key,
            "record_id": record_id(TENANT, "pace", key),
            "fingerprint": b"\x01" if c % 9 else b"\x02",
            "job_id": self.ids.job_id(),
            "ttl_ms": DURATIONS_MS[b // KEYS % len(DURATIONS_MS)],
            "cost": COSTS[c % len(COSTS)],
        }

    def submit(self, a: int, b: int, c: int) -> list[Command[Any]]:
        return [Submit(**self._submission_fields(a, b, c))]

    def keyless(self, a: int, b: int, c: int) -> list[Command[Any]]:
        return [Submit(**self._submission_fields(a, b, c) | {"key": "", "record_id": b""})]

    def with_slot(self, a: int, b: int, c: int) -> list[Command[Any]]:
        user, name = self.slots[a % len(self.slots)] if self.slots else (USERS[0], "gone")
        owner = {"user": user, "usage_id": usage_id(TENANT, user)}
        return [Submit(**self._submission_fields(a, b, c) | owner | {"reservation": name})]

    def prepare(self, a: int, b: int, c: int) -> list[Command[Any]]:
        lease_ms = DURATIONS_MS[c // 5 % len(DURATIONS_MS)]
        return [Reserve(**self._submission_fields(a, b, c), holder=self.ids.holder(), lease_ms=lease_ms)]

    def prepare_with_slot(self, a: int, b: int, c: int) -> list[Command[Any]]:
        (submit,) = self.with_slot(a, b, c)
        assert isinstance(submit, Submit)
        fields = asdict(submit)
        del fields["callback"], fields["precondition"], fields["sites"]
        return [Reserve(**fields, holder=self.ids.holder(), lease_ms=DURATIONS_MS[c // 5 % len(DURATIONS_MS)])]

    def slot(self, a: int, b: int, c: int) -> list[Command[Any]]:
        user = self._user(a)
        name = encode_reservation_id(user["usage_id"], self.ids.job_id())
        if c % 5 == 0 and self.slots:  # a repeated reservation
            owner, name = self.slots[b % len(self.slots)]
            user |= {"user": owner, "usage_id": usage_id(TENANT, owner)}
        limit = (None, None, 0, 1, 3)[c // 5 % 5]
        return [ReserveSlot(**user, reservation=name, ttl_ms=DURATIONS_MS[b % len(DURATIONS_MS)], max_concurrent=limit)]

    def _slot_fields(self, a: int) -> dict[str, Any] | None:
        if not self.slots:
            return None
        user, name = self.slots[a % len(self.slots)]
        return {
            "tenant": TENANT, "usage_id": usage_id(TENANT, user), "policy_id": POLICY, "reservation": name,
        }  # fmt: skip

    def consume(self, a: int, b: int, c: int) -> list[Command[Any]]:
        ids = self._slot_fields(a)
        return [] if ids is None else [ConsumeSlot(**ids, job_id=self.job(b) if c % 3 else b"")]

    def release(self, a: int, b: int, c: int) -> list[Command[Any]]:
        ids = self._slot_fields(a)
        return [] if ids is None else [ReleaseSlot(**ids)]

    def renew_slot(self, a: int, b: int, c: int) -> list[Command[Any]]:
        ids = self._slot_fields(a)
        return [] if ids is None else [RenewSlot(**ids, ttl_ms=DURATIONS_MS[b % len(DURATIONS_MS)])]

    def _fence(self, a: int) -> dict[str, Any] | None:
        if not self.held_keys:
            return None
        held = self.held_keys[-1 - min(a % len(self.held_keys), a // REMEMBERED_MAX % len(self.held_keys))]
        names = ("record_id", "job_id", "token", "holder")
        return {"tenant": TENANT, "policy_id": POLICY} | {name: getattr(held, name) for name in names}

    def renew(self, a: int, b: int, c: int) -> list[Command[Any]]:
        fence = self._fence(a)
        return [] if fence is None else [Renew(**fence, lease_ms=DURATIONS_MS[b % len(DURATIONS_MS)])]

    def _settle(self, a: int, verdict: Verdict) -> list[Command[Any]]:
        fence = self._fence(a)
        options = {"actor": "client:paces", "retention_ms": 1000, "verdict": verdict}
        return [] if fence is None else [Settle(**fence | options)]

    def take_over(self, a: int, b: int, c: int) -> list[Command[Any]]:
        id = record_id(TENANT, "pace", f"k{b % KEYS}")
        lease_ms = DURATIONS_MS[c % len(DURATIONS_MS)]
        holder = self.ids.holder()
        return [TakeOver(tenant=TENANT, record_id=id, holder=holder, lease_ms=lease_ms, policy_id=POLICY)]

    def cancel(self, a: int, b: int, c: int) -> list[Command[Any]]:
        job_id = self.job(a, "preparing", "pending", "running", "lost")
        return [Cancel(tenant=TENANT, job_id=job_id, actor="client:paces", retention_ms=1000)] if job_id else []

    def limits(self, a: int, b: int, c: int) -> list[Command[Any]]:
        body = encode_limits(_limits(b, c)) if c % 4 else b""
        return [SetLimits(**self._user(a), limits=body)]

    def tenant(self, a: int, b: int, c: int) -> list[Command[Any]]:
        body = encode_limits(
            TenantLimits(_limits(a, b) if a % 2 else Limits(), _limits(b, c) if c % 3 == 0 else Limits())
        )
        return [SetPolicy(tenant=TENANT, policy_id=POLICY, name=QUOTA_POLICY_NAME, body=body)]

    def backfill(self, a: int, b: int, c: int) -> list[Command[Any]]:
        job_id = self.job(a, "pending", "running")
        return [Backfill(**self._user(b), job_id=job_id)] if job_id else []

    def look_up(self, a: int, b: int, c: int) -> list[Command[Any]]:
        user = self._user(a)
        stream = stream_id(TENANT, "pace", CLIENTS[b % 2])
        return [
            LookUpUsage(tenant=TENANT, usage_id=user["usage_id"], policy_id=POLICY),
            LookUpStream(tenant=TENANT, stream_id=stream),
        ]

    def external(self, a: int, b: int, c: int) -> list[Command[Any]]:
        """A key is stored for an external job: in its own scope, or in that of all types, where a submission finds it."""
        fields = self._submission_fields(a, b, c)
        fingerprint = fields["fingerprint"] if a % 2 else b""
        if c // 2 % 3:
            external = ExternalJob(f"ec2-{c % 2}", "client:paces", "ann", fields["ttl_ms"], retention_ms=1000)
            fields["external_job"] = external
            if c // 2 % 3 == 1:
                return [Submit(**fields)]
            return [Reserve(**fields, holder=self.ids.holder(), lease_ms=DURATIONS_MS[c // 6 % len(DURATIONS_MS)])]
        names = ("tenant", "record_id", "scope", "key", "actor", "user", "ttl_ms")
        own = self.model.keys.get(fields["record_id"])
        external_id = job_id_text(own.job) if own is not None and c // 6 % 4 == 0 else ""
        store = StoreKey(
            **{name: fields[name] for name in names},
            external_id=external_id or f"ec2-{c % 2}",
            fingerprint=fingerprint,
            retention_ms=1000,
        )
        return [store]

    def repeat(self, a: int, b: int, c: int) -> list[Command[Any]]:
        return [self.sent_commands[a % len(self.sent_commands)]] if self.sent_commands else []

    def sequence(self, a: int, b: int, c: int) -> list[Command[Any]]:
        client = CLIENTS[b % 2]
        stream = stream_id(TENANT, "pace", client)
        stream_row = self.model.streams.get(stream)
        last = stream_row.last if stream_row else 0
        number = max(1, last + (1, 1, 1, 1, 0, 2, -1, 1)[c % 8])
        key = f"{client}-{number}" if c // 8 % 6 else f"k{b % KEYS}"
        items = tuple(
            JobSpec(self.ids.job_id(), "pace", b"{}", cost=COSTS[(c + n) % len(COSTS)])
            for n in range(1 + a % BATCH_MAX)
        )
        command = SubmitSequence(
            **self._user(a), stream_id=stream, record_id=record_id(TENANT, "pace", key), scope="pace",
            client_id=client, sequence=U64(number), key=key, fingerprint=b"\x03" if b % 11 else b"\x04",
            items=items, actor="client:paces", owner="api_key:1" if b % 13 else "api_key:2",
            ttl_ms=DURATIONS_MS[b // KEYS % len(DURATIONS_MS)],
        )  # fmt: skip
        return [command]

    def sweep(self, a: int, b: int, c: int) -> list[Command[Any]]:
        """Maintenance of all facts; those that are not due stay unchanged."""
        model = self.model
        commands: list[Command[Any]] = [Expire(tenant=TENANT, record_id=id) for id in list(model.keys)]
        commands += [Maintain(tenant=TENANT, job_id=id, retention_ms=1000) for id in list(model.jobs)]
        commands += [Evict(tenant=TENANT, stream_id=id) for id in list(model.streams)]
        return commands

    def batch(self, a: int, b: int, c: int) -> list[Command[Any]]:
        """Several commands in one transaction, each of which sees the changes of those before."""
        makers = (self.submit, self.prepare, self.with_slot, self.slot, self.cancel, self.sequence)
        return [command for n in range(2 + c % 4) for command in makers[(a + n * b) % 6](a + n, b + n, c + n)]


def _limits(b: int, c: int) -> Limits:
    """Mostly tight limits, because a limit that is never reached tests nothing."""
    cost = CostLimit((0, 10, 30, 100)[b % 4], list(Period)[c % 3], list(CostAction)[b // 4 % 2])
    return Limits(
        (None, None, 8, 5, 3, 2, 1, 0)[b // 8 % 8],
        (None, 8, 3, 5)[b // 64 % 4],
        (None, 20, 10, 50)[c // 3 % 4],
        cost if c // 12 % 3 == 0 else None,
    )


_BUILDERS: dict[str, Callable[[CommandFactory, int, int, int], list[Command[Any]]]] = {
    **{verb: getattr(CommandFactory, verb) for verb in VERBS if hasattr(CommandFactory, verb)},
    "commit": lambda factory, a, b, c: factory._settle(a, Verdict.COMMIT),
    "fail": lambda factory, a, b, c: factory._settle(a, Verdict.FAIL),
    "reject": lambda factory, a, b, c: factory._settle(a, Verdict.REJECT),
}
