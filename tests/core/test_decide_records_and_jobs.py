"""Every command on every stored record and job: the tables here name the reply to each."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from onejob.core.command import Command, Step
from onejob.core.credentials import DropPolicy, LookUpPolicy, SetPolicy
from onejob.core.facts import FORMAT, KINDS, Job, Kind, is_live
from onejob.core.lookup import DryRun, LookUpAnswer, LookUpJob, LookUpKey
from onejob.core.maintenance import CountHits, Expire, Forget, Maintain, Purge
from onejob.core.replies import AnyReply, Cancelled, Defect, DryRunReply, Maintained, Refused
from onejob.core.reserve import Renew, Reserve, Settle, TakeOver
from onejob.core.states import IdempotencyStatus, JobState
from onejob.core.submit import Submit
from onejob.core.work import Cancel
from tests.core.world import NOW, RECORD_ID, TENANT, World, a_usage

from .stored_states import (
    ABSENT,
    ENDED_JOBS,
    JOB_STATES_BY_STATUS,
    LIVE_JOBS,
    RECORDS,
    commands_for,
    job_named,
    job_states_of,
    policy_named,
    record_named,
)

# The reply to a command, by the shape of the record. A refusal is shown as its reason in capitals; + and - tell whether
# a Maintained or Cancelled changed anything. `bare` reserves without a job.
ANSWERS = """
                          submit      reserve     bare        renew    commit      reject      fail        take_over
absent                    Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
expired_pending_mine      Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
expired_released_mine     Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
expired_committed_mine    Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
expired_rejected_mine     Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
expired_pending_theirs    Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
expired_committed_theirs  Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
expired_rejected_theirs   Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
expired_external          Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
expired_sequenced         Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
expired_bare              Created     KeyHeld     KeyHeld     STALE    STALE       STALE       STALE       Missing
leased_mine               InProgress  KeyHeld     Conflict    KeyHeld  KeySettled  KeySettled  KeySettled  KeyHeld
leased_theirs             InProgress  InProgress  Conflict    STALE    STALE       STALE       STALE       InProgress
leased_past_expiry        InProgress  KeyHeld     Conflict    KeyHeld  KeySettled  KeySettled  KeySettled  KeyHeld
lease_over_mine           Created     KeyHeld     Conflict    KeyHeld  KeySettled  KeySettled  KeySettled  KeyHeld
lease_over_theirs         Created     KeyHeld     Conflict    STALE    STALE       STALE       STALE       KeyHeld
released_mine             Created     KeyHeld     Conflict    SETTLED  SETTLED     SETTLED     KeySettled  KeyHeld
released_theirs           Created     KeyHeld     Conflict    STALE    STALE       STALE       STALE       KeyHeld
committed_mine            Created     Replayed    Conflict    SETTLED  KeySettled  SETTLED     SETTLED     Replayed
committed_theirs          Replayed    Replayed    Conflict    STALE    STALE       STALE       STALE       Replayed
rejected_mine             Rejected    Rejected    Conflict    SETTLED  SETTLED     KeySettled  SETTLED     Rejected
rejected_theirs           Rejected    Rejected    Conflict    STALE    STALE       STALE       STALE       Rejected
external                  Replayed    Replayed    Replayed    STALE    STALE       STALE       STALE       Replayed
sequenced                 REUSED      REUSED      REUSED      STALE    STALE       STALE       STALE       Replayed
other_leased              Conflict    Conflict    Conflict    STALE    STALE       STALE       STALE       InProgress
other_lease_over          Conflict    Conflict    Conflict    STALE    STALE       STALE       STALE       KeyHeld
other_committed           Conflict    Conflict    Conflict    STALE    STALE       STALE       STALE       Replayed
other_rejected            Conflict    Conflict    Conflict    STALE    STALE       STALE       STALE       Rejected
bare_leased_mine          Conflict    Conflict    KeyHeld     KeyHeld  KeySettled  KeySettled  KeySettled  KeyHeld
bare_leased_theirs        Conflict    Conflict    InProgress  STALE    STALE       STALE       STALE       InProgress
bare_lease_over_mine      Conflict    Conflict    KeyHeld     KeyHeld  KeySettled  KeySettled  KeySettled  KeyHeld
bare_released_mine        Conflict    Conflict    KeyHeld     SETTLED  SETTLED     SETTLED     KeySettled  KeyHeld
bare_committed_mine       Conflict    Conflict    Replayed    SETTLED  KeySettled  SETTLED     SETTLED     Replayed
bare_committed_theirs     Conflict    Conflict    Replayed    STALE    STALE       STALE       STALE       Replayed
bare_rejected_mine        Conflict    Conflict    Rejected    SETTLED  SETTLED     KeySettled  SETTLED     Rejected
"""
MAINTENANCE = """
         look_up  expire       forget       count        purge
absent   Missing  Maintained-  Missing      Maintained-  Maintained-
expired  Missing  Maintained+  Missing      Maintained-  Maintained+
leased   Found    Maintained-  IN_PROGRESS  Maintained+  Maintained+
other    Found    Maintained-  Forgotten    Maintained+  Maintained+
"""
# By the policy alone, which has version 3 where it is there.
POLICY_TABLE = """
        look_up_policy  set_policy   set_first    set_over     set_again    drop_policy  drop_stale
absent  Missing         PolicyFound  PolicyFound  STALE        STALE        Maintained-  Maintained-
there   PolicyFound     PolicyFound  STALE        PolicyFound  PolicyFound  Maintained+  STALE
"""
# By the state of the job alone; every job here is due.
JOB_TABLE = """
           look_up_job  cancel      maintain
absent     Missing      Missing     Maintained-
preparing  Found        Cancelled+  Maintained+
scheduled  Found        Cancelled+  Maintained-
pending    Found        Cancelled+  Maintained+
running    Found        Cancelled+  Maintained+
success    Found        Cancelled-  Maintained+
failed     Found        Cancelled-  Maintained+
cancelled  Found        Cancelled-  Maintained+
lost       Found        Cancelled-  Maintained+
"""

AnyCommand = (
    Submit | Reserve | Renew | Settle | TakeOver | LookUpKey | LookUpJob | LookUpAnswer | DryRun | Cancel | Expire | Maintain
    | Forget | Purge | CountHits | LookUpPolicy | SetPolicy | DropPolicy
)  # fmt: skip
reply_decoder = msgspec.msgpack.Decoder(AnyReply)
command_decoder = msgspec.msgpack.Decoder(AnyCommand)


def parse_table(grid: str) -> dict[tuple[str, str], str]:
    columns, *rows = (line.split() for line in grid.strip().splitlines())
    return {(row, column): word for row, *words in rows for column, word in zip(columns, words, strict=True)}


ANSWER, MAINTENANCE_ANSWER, JOB_ANSWER = parse_table(ANSWERS), parse_table(MAINTENANCE), parse_table(JOB_TABLE)
POLICY_ANSWER = parse_table(POLICY_TABLE)
COMMANDS = tuple(commands_for("absent"))


def expected(shape: str, state: str, command: str) -> str:
    if command.startswith("dry_run_"):
        return "DryRunReply " + expected(shape, state, command.removeprefix("dry_run_"))
    if command == "answer_submit":  # what the submission would create or take over has no answer yet
        word = ANSWER[shape, "submit"] if shape != "committed_mine" else "Replayed"
        return "Missing" if word == "Created" else word
    if command in ("look_up_job", "cancel", "maintain"):
        return JOB_ANSWER[state, command]
    if (ABSENT, command) in POLICY_ANSWER:
        return POLICY_ANSWER[ABSENT if policy_named(shape) is None else "there", command]
    if ("absent", command) in MAINTENANCE_ANSWER:
        words = shape.split("_")
        group = next((group for group in ("absent", "expired", "leased") if group in words), "other")
        return MAINTENANCE_ANSWER[group, command]
    if state in ENDED_JOBS and shape in ("lease_over_mine", "lease_over_theirs", "released_mine", "released_theirs"):
        # The job was cancelled while its key was pending: that is the answer.
        return "Replayed" if command in ("submit", "reserve", "take_over") else ANSWER[shape, command]
    if state in ENDED_JOBS and (shape, command) == ("other_lease_over", "take_over"):
        return "Replayed"
    if state != ABSENT and command == "reserve" and (shape == "absent" or shape in EXPIRED_MINE):
        return "STALE"  # this very reservation was made before, and has expired
    return ANSWER[shape, command]


EXPIRED_MINE = {shape for shape in RECORDS if shape.startswith("expired") and shape.endswith("mine")}


def test_the_tables_name_every_shape_every_job_state_and_every_command() -> None:
    assert {shape for shape, _ in ANSWER} == set(RECORDS)
    assert {state for state, _ in JOB_ANSWER} == {ABSENT, *LIVE_JOBS, *ENDED_JOBS}
    columns = {column for grid in (ANSWER, MAINTENANCE_ANSWER, JOB_ANSWER, POLICY_ANSWER) for _, column in grid}
    assert columns == {command for command in COMMANDS if not command.startswith(("dry_run_", "answer_"))}


def test_every_kind_of_command_is_met() -> None:
    met = {type(command) for command in commands_for("absent").values()}
    assert met == set(AnyCommand.__args__)


@pytest.mark.parametrize("shape", RECORDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_its_answer_to_every_state(shape: str, command: str) -> None:
    for state in job_states_of(shape):
        step = decide(shape, state, commands_for(shape)[command])
        assert reply_name(step.reply) == expected(shape, state, command), f"{command}: {shape}, job {state}"


@pytest.mark.parametrize("shape", RECORDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_every_change_is_the_next_version_of_an_own_fact(shape: str, command: str) -> None:
    for state in job_states_of(shape):
        subject = commands_for(shape)[command]
        world = world_of(shape, state)
        step = decide(shape, state, subject)
        changes = (*step.puts, *step.drops, *step.attachments, *step.trims)
        assert subject.writes or not changes
        for put in step.puts:
            before = world.facts.get((KINDS[type(put)], put.id))
            assert put.version == (1 if before is None else before.version + 1)
            assert put.tenant == TENANT
            assert put.changed_at == NOW
            assert put.format == FORMAT
        for dropped in step.drops:
            assert world.facts[KINDS[type(dropped)], dropped.id] == dropped
        written = {fact.id for fact in step.puts if isinstance(fact, Job)}
        assert {one.job_id for one in step.attachments} | {one.job_id for one in step.trims} <= written
        assert not isinstance(world.execute(subject), Defect)  # decide_batch accepts it, too


@pytest.mark.parametrize("shape", RECORDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_and_replies_survive_encoding(shape: str, command: str) -> None:
    for state in job_states_of(shape):
        subject = commands_for(shape)[command]
        step = decide(shape, state, subject)
        again: Command[Any] = command_decoder.decode(msgspec.msgpack.encode(subject))
        assert again == subject
        assert again.footprint == subject.footprint
        assert decide(shape, state, again) == step
        assert reply_decoder.decode(msgspec.msgpack.encode(step.reply)) == step.reply


@pytest.mark.parametrize("shape", RECORDS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_step_makes_an_impossible_pair_and_no_record_outlives_its_job(shape: str, command: str) -> None:
    for state in job_states_of(shape):
        world = world_due_with_record(shape, state)
        world.execute(commands_for(shape)[command])
        record = world.facts.get((Kind.RECORD, RECORD_ID))
        if record is None or not is_live(record, NOW) or not record.job_ids:
            continue
        job = world.job(record.job_id)
        assert job.state in JOB_STATES_BY_STATUS[record.status], f"{command}: {shape}, job {state}"
        assert job.keep_until >= record.expires_at, f"{command}: {shape}, job {state}"
        # A job that is being prepared is due with the lease of its holder, and ends with its record (maintenance.py).
        due_at = job.keep_until if job.state is JobState.PREPARING else job.due_at
        assert not due_at or due_at >= record.expires_at, f"{command}: {shape}, job {state}"


def test_an_impossible_pair_is_a_defect_or_an_answer_but_never_a_crash() -> None:
    everything = {ABSENT, *LIVE_JOBS, *ENDED_JOBS}
    for shape in RECORDS:
        record = record_named(shape)
        if record is None or not record.job_ids or shape.startswith("expired"):
            continue
        for state in everything - set(JOB_STATES_BY_STATUS[IdempotencyStatus(record.status)]):
            for command in commands_for(shape).values():
                world = world_of(shape, state)
                before = dict(world.facts)
                if isinstance(world.execute(command), Defect):
                    assert world.facts == before


def world_of(shape: str, state: str) -> World:
    facts = (record_named(shape), job_named(shape, state), a_usage(), policy_named(shape))
    return World(*(fact for fact in facts if fact is not None))


def world_due_with_record(shape: str, state: str) -> World:
    """The same, with maintenance due exactly when the record expires, as earlier steps leave it."""
    world = world_of(shape, state)
    record, job = record_named(shape), job_named(shape, state)
    if record is not None and job is not None:
        until = max(record.expires_at, record.lease_until)
        due_at = until if state in ("preparing", "success", "failed", "cancelled") else 0
        world.facts[Kind.JOB, job.id] = replace(job, keep_until=until, due_at=due_at)
    return world


def decide(shape: str, state: str, command: Command[Any]) -> Step[AnyReply]:
    """The decision alone, over what the footprint names: exceptions propagate."""
    footprint = command.footprint
    facts = world_of(shape, state).load_facts([footprint]).facts(footprint)
    return command.decide(facts, NOW)


def reply_name(reply: AnyReply) -> str:
    match reply:
        case DryRunReply():
            return f"DryRunReply {reply_name(reply.reply)}"
        case Refused():
            return {"ALREADY_SETTLED": "SETTLED", "IDEMPOTENCY_KEY_REUSED": "REUSED"}.get(
                reply.reason, reply.reason.value
            )
        case Maintained() | Cancelled():
            return f"{type(reply).__name__}{'+' if reply.changed else '-'}"
    return type(reply).__name__
