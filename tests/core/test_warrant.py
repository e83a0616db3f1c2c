"""Rules of warrants: when one stands, and what a batch does to it on the way."""

from msgspec.structs import replace

from onejob.core.batch import decide_batch, load_facts_sync
from onejob.core.command import Footprint, Precondition
from onejob.core.facts import Kind
from onejob.core.lookup import DryRun
from onejob.core.replies import Created, DryRunReply, Reason, Refused
from tests.core.scripted import POLICY_ID, a_policy, scripted
from tests.core.world import JOB, JOB2, NOW, TENANT, World, submit, the

POLICY = a_policy()
WARRANT = Precondition(POLICY_ID, POLICY.body)


def test_a_warrant_stands_while_the_policy_reads_the_same_and_its_time_is_not_over() -> None:
    ending = replace(WARRANT, valid_until=NOW)
    assert WARRANT.is_met(POLICY, NOW)
    assert WARRANT.is_met(replace(POLICY, version=9), NOW), "it is about what is written, not how often"
    assert not WARRANT.is_met(replace(POLICY, body=b"other"), NOW)
    assert not WARRANT.is_met(None, NOW)
    assert ending.is_met(POLICY, NOW)
    assert not ending.is_met(POLICY, NOW + 1)


def test_a_batch_sees_what_its_own_commands_did_to_a_policy() -> None:
    world = World(POLICY)
    shut = replace(POLICY, body=b"shut", version=POLICY.version + 1)
    before = submit(JOB, precondition=WARRANT)
    after = submit(JOB2, record_id=b"", key="", precondition=WARRANT)
    first, _, second = world.batch(before, scripted(Footprint(TENANT, policy=POLICY_ID), shut), after)
    the(first, Created)
    assert the(second, Refused).reason is Reason.CREDENTIAL_CHANGED
    assert world.jobs() == [JOB]


def test_a_question_under_a_warrant_that_has_lapsed_is_told_nothing() -> None:
    probe = DryRun(tenant=TENANT, command=submit(JOB, precondition=WARRANT))
    assert the(World().do(probe), Refused).reason is Reason.CREDENTIAL_CHANGED
    the(World(POLICY).do(probe), DryRunReply)


def test_a_command_that_was_let_through_is_answered_again_whatever_became_of_its_warrant() -> None:
    world = World(POLICY)
    command = submit(JOB, record_id=b"", key="", precondition=WARRANT)
    first = the(world.do(command), Created)
    world.facts.pop((Kind.POLICY, POLICY_ID))
    assert the(world.do(command), Created).job == first.job
    assert the(world.do(replace(command, job_id=JOB2)), Refused).reason is Reason.CREDENTIAL_CHANGED
    assert world.jobs() == [JOB]


def test_what_is_presumed_is_proved_by_whoever_stores_and_its_time_is_not() -> None:
    late = submit(JOB2, record_id=b"", key="", precondition=replace(WARRANT, valid_until=NOW - 1))
    commands = [submit(JOB, precondition=WARRANT), late]
    footprints = [command.footprint for command in commands]
    working = load_facts_sync(footprints, lambda wanted: ())
    first, second = decide_batch(commands, footprints, working, NOW, preconditions_checked_later=True)
    the(first, Created)
    assert the(second, Refused).reason is Reason.CREDENTIAL_CHANGED
    assert Kind.POLICY not in working.changes().inserts
