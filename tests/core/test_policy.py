"""Policies: written over the version that was read, or not at all."""

from typing import Any

import msgspec
import pytest

from onejob.core.command import Command, Precondition
from onejob.core.credentials import ABSENT, POLICY_BODY_BYTES_MAX, DropPolicy, LookUpPolicy, SetPolicy
from onejob.core.errors import Invalid
from onejob.core.facts import FORMAT, Kind, Policy
from onejob.core.identity import policy_id
from onejob.core.maintenance import ExpirePolicy
from onejob.core.replies import AnyReply, Defect, Maintained, Missing, PolicyFound, Reason, Refused
from tests.core.world import NOW, SECOND, TENANT, World, expect_type

NAME = "limits"
ID = policy_id(TENANT, NAME)
LATER = NOW + SECOND


def a_policy(version: int = 1, body: bytes = b"old", **changes: Any) -> Policy:
    plain = Policy(id=ID, tenant=TENANT, name=NAME, body=body, changed_at=NOW, version=version)
    return msgspec.structs.replace(plain, **changes)


def set_policy(body: bytes = b"new", expected: int | None = None, tenant: str = TENANT) -> SetPolicy:
    return SetPolicy(tenant=tenant, policy_id=ID, name=NAME, body=body, expected_version=expected)


def look_up_policy(tenant: str = TENANT) -> LookUpPolicy:
    return LookUpPolicy(tenant=tenant, policy_id=ID)


def drop_policy(expected: int | None = None, tenant: str = TENANT) -> DropPolicy:
    return DropPolicy(tenant=tenant, policy_id=ID, expected_version=expected)


def stored_policy(world: World) -> Policy | None:
    found: Policy | None = world.facts.get((Kind.POLICY, ID))
    return found


# The stored policy, the expected version, and the version afterwards (0: refused).
WRITES: list[tuple[Policy | None, int | None, int]] = [
    (None, None, 1),
    (None, ABSENT, 1),
    (None, 1, 0),
    (a_policy(1), None, 2),
    (a_policy(1), ABSENT, 0),
    (a_policy(1), 1, 2),
    (a_policy(1), 2, 0),
    (a_policy(3), 2, 0),
    (a_policy(1, b"new"), None, 1),  # the same content is there: nothing to write
    (a_policy(1, b"new"), ABSENT, 1),  # this very command was executed before
    (a_policy(4, b"new"), 3, 4),
    (a_policy(4, b"new"), ABSENT, 0),
    (a_policy(4, b"new"), 4, 5),
]


@pytest.mark.parametrize(("before", "expected", "version"), WRITES)
def test_a_policy_is_written_over_the_expected_version_only(
    before: Policy | None, expected: int | None, version: int
) -> None:
    world = World(*([before] if before else []))
    reply = world.execute(set_policy(expected=expected), at=LATER)
    if not version:
        assert expect_type(reply, Refused).reason is Reason.STALE
        assert stored_policy(world) == before
        return
    written = expect_type(reply, PolicyFound).policy
    assert (written.version, written.body, written.name) == (version, b"new", NAME)
    assert stored_policy(world) == written
    assert written.changed_at == (LATER if before is None or version > before.version else NOW)


@pytest.mark.parametrize("expected", [None, ABSENT, 1])
def test_a_repeated_write_gets_the_same_answer_and_changes_nothing(expected: int | None) -> None:
    world = World(*([a_policy()] if expected else []))
    first = expect_type(world.execute(set_policy(expected=expected)), PolicyFound)
    again = expect_type(world.execute(set_policy(expected=expected)), PolicyFound)
    assert first.policy == again.policy
    assert not world.changes


def test_of_two_writers_over_one_version_one_wins_even_in_one_batch() -> None:
    world = World(a_policy())
    won, lost = world.execute_batch(set_policy(b"a", 1), set_policy(b"b", 1))
    assert expect_type(won, PolicyFound).policy.body == b"a"
    assert expect_type(lost, Refused).details == {"version": 2}


def test_a_policy_is_read_as_it_is_now() -> None:
    world = World()
    assert world.execute(look_up_policy()) == Missing(NOW)
    world.execute(set_policy())
    found = expect_type(world.execute(look_up_policy()), PolicyFound)
    assert (found.policy, found.at) == (stored_policy(world), NOW)
    assert not look_up_policy().writes


def test_a_policy_is_dropped_once_and_only_in_the_expected_version() -> None:
    world = World(a_policy(2))
    assert expect_type(world.execute(drop_policy(1)), Refused).reason is Reason.STALE
    assert world.execute(drop_policy(2)) == Maintained(True, NOW)
    assert world.execute(drop_policy(2)) == Maintained(False, NOW)
    assert stored_policy(world) is None
    world.execute(set_policy())
    assert world.execute(drop_policy()) == Maintained(True, NOW)


def test_the_policy_of_another_tenant_is_neither_seen_nor_changed() -> None:
    world = World(a_policy())
    assert world.execute(look_up_policy("umbrella")) == Missing(NOW)
    assert world.execute(drop_policy(tenant="umbrella")) == Maintained(False, NOW)
    assert isinstance(world.execute(set_policy(tenant="umbrella")), Defect)
    assert stored_policy(world) == a_policy()


def test_a_policy_of_a_newer_format_is_not_rewritten() -> None:
    world = World(a_policy(format=FORMAT + 1))
    for command in (set_policy(), look_up_policy(), drop_policy()):
        assert expect_type(world.execute(command), Defect).retryable
    assert world.has(Kind.POLICY, ID)


def test_a_policy_with_a_time_to_live_expires_and_is_then_as_good_as_deleted() -> None:
    world = World()
    command = SetPolicy(tenant=TENANT, policy_id=ID, name=NAME, body=b"here", ttl_ms=SECOND)
    world.execute(command)
    assert isinstance(world.execute(look_up_policy(), at=NOW + SECOND), PolicyFound)
    assert world.execute(ExpirePolicy(tenant=TENANT, policy_id=ID), at=NOW + SECOND) == Maintained(False, NOW + SECOND)
    late = NOW + SECOND + 1
    assert world.execute(look_up_policy(), at=late) == Missing(late)
    condition = Precondition(ID, b"here")
    assert condition.is_met(stored_policy(world), NOW)
    assert not condition.is_met(stored_policy(world), late)
    again = expect_type(world.execute(set_policy(expected=ABSENT), at=late), PolicyFound).policy
    assert (again.version, again.expires_at) == (2, 0)
    assert world.execute(ExpirePolicy(tenant=TENANT, policy_id=ID), at=late) == Maintained(False, late)


def test_writing_an_expiring_policy_again_starts_its_time_anew() -> None:
    world = World()
    command = SetPolicy(tenant=TENANT, policy_id=ID, name=NAME, body=b"here", ttl_ms=SECOND)
    world.execute(command)
    world.execute(command, at=NOW + SECOND)
    assert isinstance(world.execute(look_up_policy(), at=NOW + 2 * SECOND), PolicyFound)
    late = NOW + 2 * SECOND + 1
    assert world.execute(ExpirePolicy(tenant=TENANT, policy_id=ID), at=late) == Maintained(True, late)
    assert stored_policy(world) is None


def test_a_policy_has_a_size() -> None:
    with pytest.raises(Invalid, match="smaller"):
        set_policy(b"x" * (POLICY_BODY_BYTES_MAX + 1))
    assert set_policy(b"x" * POLICY_BODY_BYTES_MAX).payload_bytes == POLICY_BODY_BYTES_MAX


@pytest.mark.parametrize("command", [set_policy(expected=ABSENT), set_policy(), look_up_policy(), drop_policy(3)])
def test_commands_and_replies_survive_encoding(command: Command[AnyReply]) -> None:
    decoder = msgspec.msgpack.Decoder(SetPolicy | LookUpPolicy | DropPolicy)
    again = decoder.decode(msgspec.msgpack.encode(command))
    assert again == command
    assert again.footprint == command.footprint
    reply = World(a_policy()).execute(again)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(reply), type=AnyReply) == reply
