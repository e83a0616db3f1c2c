"""Rules of preconditions: when one is met, and how a batch changes it on the way."""

from msgspec.structs import replace

from onejob.core.batch import decide_batch, load_facts_sync
from onejob.core.command import Footprint, Precondition
from onejob.core.facts import Kind
from onejob.core.lookup import DryRun
from onejob.core.replies import Created, DryRunReply, Reason, Refused
from tests.core.scripted import POLICY_ID, a_policy, scripted
from tests.core.world import JOB, JOB2, NOW, TENANT, World, expect_type, submit

POLICY = a_policy()
PRECONDITION = Precondition(POLICY_ID, POLICY.body)


def test_a_precondition_is_met_while_the_policy_is_unchanged_and_it_has_not_expired() -> None:
    ending = replace(PRECONDITION, valid_until=NOW)
    assert PRECONDITION.is_met(POLICY, NOW)
    assert PRECONDITION.is_met(replace(POLICY, version=9), NOW), "the body is compared, not the version"
    assert not PRECONDITION.is_met(replace(POLICY, body=b"other"), NOW)
    assert not PRECONDITION.is_met(None, NOW)
    assert ending.is_met(POLICY, NOW)
    assert not ending.is_met(POLICY, NOW + 1)


def test_a_batch_sees_what_its_own_commands_did_to_a_policy() -> None:
    world = World(POLICY)
    changed = replace(POLICY, body=b"changed", version=POLICY.version + 1)
    before = submit(JOB, precondition=PRECONDITION)
    after = submit(JOB2, record_id=b"", key="", precondition=PRECONDITION)
    first, _, second = world.execute_batch(before, scripted(Footprint(TENANT, policy=POLICY_ID), changed), after)
    expect_type(first, Created)
    assert expect_type(second, Refused).reason is Reason.CREDENTIAL_CHANGED
    assert world.jobs() == [JOB]


def test_a_dry_run_whose_precondition_failed_reveals_nothing() -> None:
    dry_run = DryRun(tenant=TENANT, command=submit(JOB, precondition=PRECONDITION))
    assert expect_type(World().execute(dry_run), Refused).reason is Reason.CREDENTIAL_CHANGED
    expect_type(World(POLICY).execute(dry_run), DryRunReply)


def test_a_repeated_command_is_answered_whatever_became_of_its_precondition() -> None:
    world = World(POLICY)
    command = submit(JOB, record_id=b"", key="", precondition=PRECONDITION)
    first = expect_type(world.execute(command), Created)
    world.facts.pop((Kind.POLICY, POLICY_ID))
    assert expect_type(world.execute(command), Created).job == first.job
    assert expect_type(world.execute(replace(command, job_id=JOB2)), Refused).reason is Reason.CREDENTIAL_CHANGED
    assert world.jobs() == [JOB]


def test_preconditions_checked_later_are_checked_by_the_store_except_their_expiry() -> None:
    late = submit(JOB2, record_id=b"", key="", precondition=replace(PRECONDITION, valid_until=NOW - 1))
    commands = [submit(JOB, precondition=PRECONDITION), late]
    footprints = [command.footprint for command in commands]
    working_set = load_facts_sync(footprints, lambda request: ())
    first, second = decide_batch(commands, footprints, working_set, NOW, preconditions_checked_later=True)
    expect_type(first, Created)
    assert expect_type(second, Refused).reason is Reason.CREDENTIAL_CHANGED
    assert Kind.POLICY not in working_set.changes().inserts
