"""Every command on every usage, policy and stream: the tables here name the reply to each."""

from importlib import import_module
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from onejob.core.activity import ACTIVITY_POLICY_NAME, AddActivity
from onejob.core.command import Command, CommandBase
from onejob.core.credentials import DropPolicy, LookUpPolicy, PolicyCommand, SetPolicy
from onejob.core.facts import FORMAT, KINDS, U64, Fact, Kind, Policy, Record, Reservation, Stream
from onejob.core.identity import format_job_id, policy_id
from onejob.core.limits import CostLimit, Limits, Period, TenantLimits, encode_limits
from onejob.core.maintenance import ExpirePolicy
from onejob.core.replies import AnyReply, Defect, Maintained, Refused
from onejob.core.sequence import Evict, LookUpStream, SubmitSequence
from onejob.core.slots import (
    Backfill,
    ConsumeSlot,
    LookUpUsage,
    Reconcile,
    ReleaseSlot,
    RenewSlot,
    ReserveSlot,
    SetLimits,
)
from onejob.core.states import JobState, SlotState
from onejob.core.submit import StoreKey
from tests.core.test_quota import POLICY_ID, tenant_policy
from tests.core.test_sequence import CLIENT, STREAM_ID, send
from tests.core.world import (
    BOB,
    DAY,
    HOUR,
    JOB,
    JOB2,
    NOW,
    RECORD_ID,
    SECOND,
    TENANT,
    USAGE_ID,
    USER,
    World,
    a_job,
    a_record,
    a_usage,
)

from .stored_states import ABSENT, ENDED_JOBS, LIVE_JOBS, RECORDS, commands_for, job_named, job_states_of, record_named
from .test_decide_records_and_jobs import AnyCommand, parse_table

SLOT = "slot-one"
# The modules with commands, except work.py, which test_work.py covers.
COMMAND_MODULES = (
    "activity", "credentials", "lookup", "maintenance", "reserve", "sequence", "slots", "submit",
)  # fmt: skip


def slot(state: SlotState = SlotState.ACTIVE, until: int = NOW + SECOND, job: bytes = b"") -> dict[str, Any]:
    return {"reservations": {SLOT: Reservation(NOW - SECOND, until, state, 0, format_job_id(job) if job else "")}}


def own_limits(**limits: Any) -> dict[str, Any]:
    return {"limits": encode_limits(Limits(**limits))}


USAGES: dict[str, dict[str, Any] | None] = {
    "absent": None,
    "plain": {},
    "free": own_limits(max_concurrent=9),
    "full": own_limits(max_concurrent=3),
    "active": slot(),
    "active_to_the_millisecond": slot(until=NOW),
    "active_and_full": {**slot(), **own_limits(max_concurrent=4)},
    "expired": slot(until=NOW - 1),
    "expired_and_consumed": slot(SlotState.CONSUMED, NOW - 1),
    "consumed": slot(SlotState.CONSUMED),
    "consumed_by_the_job": slot(SlotState.CONSUMED, job=JOB),
    "consumed_by_another": slot(SlotState.CONSUMED, job=JOB2),
    "released": slot(SlotState.RELEASED),
    "often": {**own_limits(jobs_per_hour=1), "minutes": (0,) * 59 + (1,), "hours": (0,) * 23 + (1,), "counted_at": NOW},
    "dear": {**own_limits(cost_limit=CostLimit(5, Period.DAY)), "spent": (5, 5, 5), "spent_at": NOW - 1},
    "preparing": {"reservations": {JOB.hex(): Reservation(NOW - SECOND, NOW, SlotState.ACTIVE, 5)}},
}  # fmt: skip
POLICIES: dict[str, Policy | None] = {
    "absent": None,
    "usual": tenant_policy(default=Limits(max_concurrent=9)),
    "closed": tenant_policy(ceiling=Limits(max_concurrent=0)),
    "poor": tenant_policy(ceiling=Limits(cost_limit=CostLimit(0, Period.MONTH))),
}

# By the usage alone; the tenant has no limits, and the job of `with_job` is pending, without a slot.
SLOTS = """
                           reserve   renew     release      consume      with_job
absent                     SlotHeld  LOST      SlotSettled  LOST         LOST
plain                      SlotHeld  LOST      SlotSettled  LOST         LOST
free                       SlotHeld  LOST      SlotSettled  LOST         LOST
full                       QUOTA     LOST      SlotSettled  LOST         LOST
active                     SlotHeld  SlotHeld  SlotSettled  SlotSettled  SlotSettled
active_to_the_millisecond  SlotHeld  SlotHeld  SlotSettled  SlotSettled  SlotSettled
active_and_full            SlotHeld  SlotHeld  SlotSettled  SlotSettled  SlotSettled
expired                    SlotHeld  LOST      SlotSettled  LOST         LOST
expired_and_consumed       SlotHeld  LOST      SlotSettled  LOST         LOST
consumed                   SETTLED   SETTLED   SETTLED      SlotSettled  SETTLED
consumed_by_the_job        SETTLED   SETTLED   SETTLED      SETTLED      SlotSettled
consumed_by_another        SETTLED   SETTLED   SETTLED      SETTLED      SETTLED
released                   SETTLED   SETTLED   SlotSettled  SETTLED      SETTLED
often                      SlotHeld  LOST      SlotSettled  LOST         LOST
dear                       SlotHeld  LOST      SlotSettled  LOST         LOST
preparing                  SlotHeld  LOST      SlotSettled  LOST         LOST
"""
# By the state of the job; it belongs to the user and has no slot, and the user has a usage.
JOBS_TABLE = """
           with_job     backfill
absent     Missing      Maintained-
preparing  SlotSettled  Maintained-
scheduled  SlotSettled  Maintained+
pending    SlotSettled  Maintained+
running    SlotSettled  Maintained+
success    SlotSettled  Maintained-
failed     SlotSettled  Maintained-
cancelled  SlotSettled  Maintained-
lost       SlotSettled  Maintained-
"""
# Number 5 is sent; the name of a stream tells its last number.
NUMBERS = """
                   new        at_4       at_5       at_2       theirs  evicted    at_the_end
absent             GAP        Committed  USED       GAP        OWNER   Committed  USED
expired            GAP        Committed  USED       GAP        OWNER   Committed  USED
same               Committed  Committed  Committed  Committed  OWNER   Committed  Committed
copy               Already    Already    Already    Already    OWNER   Already    Already
other_fingerprint  REUSED     REUSED     REUSED     REUSED     OWNER   REUSED     REUSED
other_client       REUSED     REUSED     REUSED     REUSED     OWNER   REUSED     REUSED
unsequenced        REUSED     REUSED     REUSED     REUSED     OWNER   REUSED     REUSED
leased             REUSED     REUSED     REUSED     REUSED     OWNER   REUSED     REUSED
external           REUSED     REUSED     REUSED     REUSED     OWNER   REUSED     REUSED
"""  # fmt: skip
SLOT_ANSWER, JOB_ANSWER, NUMBER_ANSWER = parse_table(SLOTS), parse_table(JOBS_TABLE), parse_table(NUMBERS)
ABBREVIATIONS = {
    "SLOT_LOST": "LOST", "QUOTA_EXCEEDED": "QUOTA", "ALREADY_SETTLED": "SETTLED", "SEQUENCE_GAP": "GAP",
    "IDEMPOTENCY_KEY_REUSED": "REUSED", "NOT_THE_OWNER": "OWNER", "SequenceAlreadyCommitted": "Already",
    "ALREADY_COMMITTED": "USED",
    "SequenceCommitted": "Committed",
}  # fmt: skip

FIFTH_COMMAND = send(5, jobs=3)
FIFTH_JOB_IDS = b"".join(item.job_id for item in FIFTH_COMMAND.items)
STREAMS: dict[str, dict[str, Any] | None] = {
    "new": None,
    "at_4": {"last": U64(4)},
    "at_5": {"last": U64(5)},
    "at_2": {"last": U64(2)},
    "theirs": {"last": U64(4), "owner": "client:other"},
    "evicted": {"last": U64(4), "evicted": 1, "expires_at": NOW - 1},
    "at_the_end": {"last": U64(2**64 - 1)},
}
_NUMBERED = {
    "id": FIFTH_COMMAND.record_id, "client_id": CLIENT, "sequence": U64(5), "job_ids": FIFTH_JOB_IDS,
    "fingerprint": FIFTH_COMMAND.fingerprint, "holder": FIFTH_COMMAND.items[0].job_id,
}  # fmt: skip
NUMBERED: dict[str, dict[str, Any] | None] = {
    "absent": None,
    "expired": {**_NUMBERED, "expires_at": NOW - 1, "job_ids": JOB},
    "same": _NUMBERED,
    "copy": {**_NUMBERED, "holder": BOB},
    "other_fingerprint": {**_NUMBERED, "fingerprint": b"other"},
    "other_client": {**_NUMBERED, "client_id": "other"},
    "unsequenced": {**_NUMBERED, "client_id": "", "job_ids": JOB},
    "leased": {**_NUMBERED, "client_id": "", "job_ids": JOB, "lease_until": NOW + DAY},
    "external": {**_NUMBERED, "client_id": "", "job_ids": b"", "external_id": "ec2-7"},
}

_USAGE_FIELDS: dict[str, Any] = {"tenant": TENANT, "usage_id": USAGE_ID, "policy_id": POLICY_ID}
COMMANDS: dict[str, Command[Any]] = {
    "reserve": ReserveSlot(**_USAGE_FIELDS, user=USER, reservation=SLOT),
    "reserve_one": ReserveSlot(**_USAGE_FIELDS, user=USER, reservation=SLOT, max_concurrent=1),
    "renew": RenewSlot(**_USAGE_FIELDS, reservation=SLOT),
    "release": ReleaseSlot(**_USAGE_FIELDS, reservation=SLOT),
    "consume": ConsumeSlot(**_USAGE_FIELDS, reservation=SLOT),
    "with_job": ConsumeSlot(**_USAGE_FIELDS, reservation=SLOT, job_id=JOB),
    "look_up": LookUpUsage(**_USAGE_FIELDS),
    "limit": SetLimits(**_USAGE_FIELDS, user=USER, limits=encode_limits(Limits(max_concurrent=1))),
    "unlimit": SetLimits(**_USAGE_FIELDS, user=USER, limits=b""),
    "reconcile": Reconcile(**_USAGE_FIELDS, expected_version=7, live=3, cost_held=0),
    "reconcile_drift": Reconcile(**_USAGE_FIELDS, expected_version=7, live=2, cost_held=1),
    "reconcile_late": Reconcile(**_USAGE_FIELDS, expected_version=6, live=3, cost_held=0),
    "backfill": Backfill(**_USAGE_FIELDS, user=USER, job_id=JOB),
    "sequence": replace(FIFTH_COMMAND, usage_id=USAGE_ID, policy_id=POLICY_ID),
    "look_up_stream": LookUpStream(tenant=TENANT, stream_id=STREAM_ID),
    "evict": Evict(tenant=TENANT, stream_id=STREAM_ID),
    "store_key": StoreKey(
        tenant=TENANT, record_id=RECORD_ID, scope="charge", key="k", external_id="ec2-77", actor="user:ann",
        user=USER, ttl_ms=HOUR,
    ),
    "look_up_policy": LookUpPolicy(tenant=TENANT, policy_id=POLICY_ID),
    "set_policy": SetPolicy(
        tenant=TENANT, policy_id=POLICY_ID, name="quota", body=encode_limits(TenantLimits(Limits(1)))
    ),
    "drop_policy": DropPolicy(tenant=TENANT, policy_id=POLICY_ID),
    "expire_policy": ExpirePolicy(tenant=TENANT, policy_id=POLICY_ID),
    "add_activity": AddActivity(
        tenant=TENANT, policy_id=policy_id(TENANT, ACTIVITY_POLICY_NAME), source="a", number=1, counts={"created": 1}
    ),
}  # fmt: skip
AnyQuotaCommand = (
    ReserveSlot | RenewSlot | ReleaseSlot | ConsumeSlot | LookUpUsage | SetLimits | Reconcile | Backfill
    | SubmitSequence | LookUpStream | Evict | StoreKey | LookUpPolicy | SetPolicy | DropPolicy
    | ExpirePolicy | AddActivity
)  # fmt: skip
command_decoder = msgspec.msgpack.Decoder(AnyQuotaCommand)
reply_decoder = msgspec.msgpack.Decoder(AnyReply)


def test_every_command_is_met_in_some_table() -> None:
    for module in COMMAND_MODULES:
        import_module(f"onejob.core.{module}")
    known = {
        kind for kind in _subclasses(CommandBase) if kind.__module__.removeprefix("onejob.core.") in COMMAND_MODULES
    }
    met = {*AnyCommand.__args__, *AnyQuotaCommand.__args__}
    assert {kind for kind in known if hasattr(kind, "decide")} <= met
    assert {type(command) for command in COMMANDS.values()} == set(AnyQuotaCommand.__args__)


@pytest.mark.parametrize("shape", USAGES)
def test_every_slot_has_its_answer_to_every_command(shape: str) -> None:
    for command in ("reserve", "renew", "release", "consume", "with_job"):
        world = World(*facts_of(USAGES, shape, a_usage), a_job())
        assert reply_name(world.execute(COMMANDS[command])) == SLOT_ANSWER[shape, command], f"{command}: {shape}"


@pytest.mark.parametrize("state", [ABSENT, *LIVE_JOBS, *ENDED_JOBS])
def test_every_state_of_a_job_has_its_answer_to_being_counted(state: str) -> None:
    for command in ("with_job", "backfill"):
        world = World(a_usage(**slot()), *([] if state == ABSENT else [a_job(JobState(state))]))
        assert reply_name(world.execute(COMMANDS[command])) == JOB_ANSWER[state, command], f"{command}: {state}"
        for id in [*world.jobs()] if reply_name(world.execute(COMMANDS[command])) else []:
            assert bool(world.job(id).usage_id) == (state in ("scheduled", "pending", "running"))


@pytest.mark.parametrize("numbered", NUMBERED)
@pytest.mark.parametrize("stream", STREAMS)
def test_every_number_has_its_answer_wherever_its_stream_is(numbered: str, stream: str) -> None:
    world = world_with_sequence(numbered, stream)
    before = dict(world.facts)
    reply = reply_name(world.execute(FIFTH_COMMAND))
    assert reply == NUMBER_ANSWER[numbered, stream]
    last = world.facts[Kind.STREAM, STREAM_ID].last if (Kind.STREAM, STREAM_ID) in world.facts else U64(0)
    if reply == "Committed" and numbered in ("absent", "expired"):
        assert last == 5
        assert {item.job_id for item in FIFTH_COMMAND.items} <= set(world.jobs())
    else:
        assert world.facts == before


@pytest.mark.parametrize("shape", RECORDS)
def test_storing_an_external_key_has_its_answer_to_every_record(shape: str) -> None:
    is_free = "lease_over" in shape or "released" in shape  # nobody holds it, and it has no answer
    settled = shape == "absent" or shape.startswith("expired") or shape == "external" or is_free
    for state in job_states_of(shape):
        world = World(*(fact for fact in (record_named(shape), job_named(shape, state)) if fact is not None))
        assert reply_name(world.execute(COMMANDS["store_key"])) == ("KeySettled" if settled else "REUSED"), shape


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", USAGES)
def test_every_command_here_is_total_and_survives_encoding(shape: str, policy: str) -> None:
    stream = ("new", "at_4", "evicted")[len(shape) % 3]
    for state in (ABSENT, *LIVE_JOBS, *ENDED_JOBS):
        for name, command in COMMANDS.items():
            world = world_with(shape, policy)
            for fact in facts_of(STREAMS, stream, a_stream):
                world.facts[Kind.STREAM, fact.id] = fact
            if state != ABSENT:
                world.facts[Kind.JOB, JOB] = a_job(JobState(state))
            check_decision(world, command, f"{name}: {shape}, {policy}, {stream}, job {state}")
            assert command_decoder.decode(msgspec.msgpack.encode(command)) == command


@pytest.mark.parametrize("shape", RECORDS)
def test_every_submission_is_total_whatever_its_user_holds(shape: str) -> None:
    for name, command in commands_for(shape).items():
        counted = with_quota(command)
        footprint = counted.footprint
        if isinstance(command, PolicyCommand) or not (footprint.usage or footprint.follow_usage):
            continue
        for state in {*job_states_of(shape)} & {ABSENT, "preparing", "pending", "failed", "cancelled"}:
            for usage in USAGES:
                for policy in ("absent", "closed", "poor"):
                    world = world_with(usage, policy)
                    for fact in (record_named(shape), job_named(shape, state)):
                        if fact is not None:
                            world.facts[KINDS[type(fact)], fact.id] = fact
                    reply = world.execute(counted)  # decide_batch checks versions and footprints
                    assert not isinstance(reply, Defect), f"{name}: {shape}, {usage}, {policy}, job {state}"


def check_decision(world: World, command: Command[Any], what: str) -> None:
    """It has a reply, and every change is the next version of a fact of its tenant."""
    footprint = command.footprint
    shown = world.load_facts([footprint]).facts(footprint)
    step = command.decide(shown, NOW)
    for put in step.puts:
        before = world.facts.get((KINDS[type(put)], put.id))
        assert put.version == (1 if before is None else before.version + 1), what
        assert (put.tenant, put.changed_at, put.format) == (TENANT, NOW, FORMAT), what
    assert command.writes or not (step.puts or step.drops or step.attachments or step.trims), what
    reply = world.execute(command)
    assert not isinstance(reply, Defect), f"{what}: {reply}"
    if isinstance(command, AnyQuotaCommand):
        assert reply_decoder.decode(msgspec.msgpack.encode(reply)) == reply


def with_quota(command: Any) -> Command[Any]:
    """The same command of a user with limits."""
    if isinstance(command, (SetPolicy, DropPolicy, LookUpPolicy)):
        return command  # they name the policy that they are about
    inner = getattr(command, "command", None)
    if inner is not None:
        return replace(command, command=with_quota(inner))  # type: ignore[no-any-return]  # a DryRun
    given = {"usage_id": USAGE_ID, "policy_id": POLICY_ID, "cost": 1, "reservation": SLOT}
    if "usage_id" in command.__struct_fields__ and "job_ids" in command.__struct_fields__:
        return command  # type: ignore[no-any-return]  # Purge names what it drops
    fields = {name: value for name, value in given.items() if name in command.__struct_fields__}
    return replace(command, **fields) if fields else command  # type: ignore[no-any-return]  # the same


def world_with(shape: str, policy: str) -> World:
    rules = POLICIES[policy]
    return World(*facts_of(USAGES, shape, a_usage), *([] if rules is None else [rules]))


def world_with_sequence(numbered: str, stream: str) -> World:
    changes = NUMBERED[numbered]
    made: list[Fact] = [*facts_of(STREAMS, stream, a_stream)]
    if changes is not None:
        record: Record = replace(a_record(), **changes)
        ids = [record.job_ids[at : at + 16] for at in range(0, len(record.job_ids), 16)]
        made += [record, *(a_job(id=id) for id in ids)]
    return World(*made)


def a_stream(**changes: Any) -> Stream:
    plain = Stream(
        STREAM_ID, TENANT, FIFTH_COMMAND.scope, CLIENT, U64(4), NOW - HOUR, FIFTH_COMMAND.owner, NOW - HOUR, NOW + HOUR
    )
    return replace(plain, **changes)


def facts_of(shapes: dict[str, Any], name: str, make: Any) -> list[Any]:
    changes = shapes[name]
    return [] if changes is None else [make(**changes)]


def reply_name(reply: AnyReply) -> str:
    if isinstance(reply, Maintained):
        return f"Maintained{'+' if reply.changed else '-'}"
    name = reply.reason.value if isinstance(reply, Refused) else type(reply).__name__
    return ABBREVIATIONS.get(name, name)


def _subclasses(kind: type[Any]) -> set[type[Any]]:
    return {kind, *(below for child in kind.__subclasses__() for below in _subclasses(child))}
