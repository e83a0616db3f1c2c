"""Commands of the tests, which ask for and decide what they are told to; and the facts that only these touch."""

from typing import Any

from msgspec.structs import replace

from onejob.core.command import CommandData, Facts, Footprint, Step
from onejob.core.facts import U64, Fact, Policy, Stream
from onejob.core.identity import policy_id, stream_id
from onejob.core.replies import Maintained
from tests.core.world import HOUR, JOB2, NOW, RECORD_ID, SCOPE, TENANT, USER

STREAM_ID, POLICY_ID = stream_id(TENANT, SCOPE, "c"), policy_id(TENANT, "limits")


class Scripted(CommandData, frozen=True, kw_only=True):
    """Asks for what it is told to, and decides what it is told to."""

    requested: Footprint
    step: Step[Maintained] = Step(Maintained(True, NOW))

    @property
    def footprint(self) -> Footprint:
        return self.requested

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        return self.step


class RecordFacts(CommandData, frozen=True, kw_only=True):
    """Shows the facts that a footprint was given."""

    requested: Footprint
    recorded: list[Facts]

    @property
    def footprint(self) -> Footprint:
        return self.requested

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        self.recorded.append(facts)
        return Step(Maintained(False, now))


def scripted(asks: Footprint, *puts: Fact, drops: tuple[Fact, ...] = (), **beside: Any) -> Scripted:
    return Scripted(tenant=TENANT, requested=asks, step=Step(Maintained(True, NOW), puts, drops, **beside))


def a_stream(**changes: Any) -> Stream:
    plain = Stream(STREAM_ID, TENANT, SCOPE, "c", U64(2**64 - 1), NOW, USER, NOW - HOUR, NOW + HOUR)
    return replace(plain, **changes)


def a_policy(**changes: Any) -> Policy:
    return replace(Policy(POLICY_ID, TENANT, "limits", b"{}", NOW - HOUR), **changes)


FULL_FOOTPRINT = Footprint(TENANT, RECORD_ID, (JOB2,), STREAM_ID, policy=POLICY_ID, follow_jobs=True, follow_usage=True)
