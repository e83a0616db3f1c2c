"""Policies: written over the version that was read, or not at all."""

from typing import Any

import msgspec
import pytest

from onejob.core.command import Command
from onejob.core.credentials import ABSENT, POLICY_BODY_BYTES_MAX, DropPolicy, LookUpPolicy, SetPolicy
from onejob.core.errors import Invalid
from onejob.core.facts import FORMAT, Kind, Policy
from onejob.core.identity import policy_id
from onejob.core.replies import AnyReply, Defect, Maintained, Missing, PolicyFound, Reason, Refused
from tests.core.world import NOW, SECOND, TENANT, World, the

NAME = "limits"
ID = policy_id(TENANT, NAME)
LATER = NOW + SECOND


def a_policy(version: int = 1, body: bytes = b"old", **changes: Any) -> Policy:
    plain = Policy(id=ID, tenant=TENANT, name=NAME, body=body, changed_at=NOW, version=version)
    return msgspec.structs.replace(plain, **changes)


def setting(body: bytes = b"new", expected: int | None = None, tenant: str = TENANT) -> SetPolicy:
    return SetPolicy(tenant=tenant, policy_id=ID, name=NAME, body=body, expected_version=expected)


def looking(tenant: str = TENANT) -> LookUpPolicy:
    return LookUpPolicy(tenant=tenant, policy_id=ID)


def dropping(expected: int | None = None, tenant: str = TENANT) -> DropPolicy:
    return DropPolicy(tenant=tenant, policy_id=ID, expected_version=expected)


def kept(world: World) -> Policy | None:
    found: Policy | None = world.facts.get((Kind.POLICY, ID))
    return found


# What is there (None, or version and body), what is expected, and the version afterwards; 0: refused.
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
    reply = world.do(setting(expected=expected), at=LATER)
    if not version:
        assert the(reply, Refused).reason is Reason.STALE
        assert kept(world) == before
        return
    written = the(reply, PolicyFound).policy
    assert (written.version, written.body, written.name) == (version, b"new", NAME)
    assert kept(world) == written
    assert written.changed_at == (LATER if before is None or version > before.version else NOW)


@pytest.mark.parametrize("expected", [None, ABSENT, 1])
def test_a_repeated_write_gets_the_same_answer_and_changes_nothing(expected: int | None) -> None:
    world = World(*([a_policy()] if expected else []))
    first = the(world.do(setting(expected=expected)), PolicyFound)
    again = the(world.do(setting(expected=expected)), PolicyFound)
    assert first.policy == again.policy
    assert not world.changes


def test_of_two_writers_over_one_version_one_wins_even_in_one_batch() -> None:
    world = World(a_policy())
    won, lost = world.batch(setting(b"a", 1), setting(b"b", 1))
    assert the(won, PolicyFound).policy.body == b"a"
    assert the(lost, Refused).details == {"version": 2}


def test_a_policy_is_read_as_it_is_now() -> None:
    world = World()
    assert world.do(looking()) == Missing(NOW)
    world.do(setting())
    found = the(world.do(looking()), PolicyFound)
    assert (found.policy, found.at) == (kept(world), NOW)
    assert not looking().writes


def test_a_policy_is_dropped_once_and_only_in_the_expected_version() -> None:
    world = World(a_policy(2))
    assert the(world.do(dropping(1)), Refused).reason is Reason.STALE
    assert world.do(dropping(2)) == Maintained(True, NOW)
    assert world.do(dropping(2)) == Maintained(False, NOW)
    assert kept(world) is None
    world.do(setting())
    assert world.do(dropping()) == Maintained(True, NOW)


def test_the_policy_of_another_tenant_is_neither_seen_nor_changed() -> None:
    world = World(a_policy())
    assert world.do(looking("umbrella")) == Missing(NOW)
    assert world.do(dropping(tenant="umbrella")) == Maintained(False, NOW)
    assert isinstance(world.do(setting(tenant="umbrella")), Defect)
    assert kept(world) == a_policy()


def test_a_policy_of_a_newer_format_is_not_rewritten() -> None:
    world = World(a_policy(format=FORMAT + 1))
    for command in (setting(), looking(), dropping()):
        assert the(world.do(command), Defect).retryable
    assert world.has(Kind.POLICY, ID)


def test_a_policy_has_a_size() -> None:
    with pytest.raises(Invalid, match="smaller"):
        setting(b"x" * (POLICY_BODY_BYTES_MAX + 1))
    assert setting(b"x" * POLICY_BODY_BYTES_MAX).payload_bytes == POLICY_BODY_BYTES_MAX


@pytest.mark.parametrize("command", [setting(expected=ABSENT), setting(), looking(), dropping(3)])
def test_commands_and_replies_travel(command: Command[AnyReply]) -> None:
    decoder = msgspec.msgpack.Decoder(SetPolicy | LookUpPolicy | DropPolicy)
    again = decoder.decode(msgspec.msgpack.encode(command))
    assert again == command
    assert again.footprint == command.footprint
    reply = World(a_policy()).do(again)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(reply), type=AnyReply) == reply
