"""Commands whose footprint and step a test chooses, and the streams and policies that they touch."""

from typing import Any

from msgspec.structs import replace

from onejob.core.command import CommandData, Facts, Footprint, Step
from onejob.core.facts import U64, Fact, Policy, Stream
from onejob.core.identity import policy_id, stream_id
from onejob.core.replies import Maintained
from tests.core.world import HOUR, JOB2, NOW, RECORD_ID, SCOPE, TENANT, USER

STREAM_ID, POLICY_ID = stream_id(TENANT, SCOPE, "c"), policy_id(TENANT, "limits")


class Scripted(CommandData, frozen=True, kw_only=True):
    """Has the footprint and the step that the test gave it."""

    requested: Footprint
    step: Step[Maintained] = Step(Maintained(True, NOW))

    @property
    def footprint(self) -> Footprint:
        return self.requested

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        return self.step


class RecordFacts(CommandData, frozen=True, kw_only=True):
    """Records the facts that its footprint was given."""

    requested: Footprint
    recorded: list[Facts]

    @property
    def footprint(self) -> Footprint:
        return self.requested

    def decide(self, facts: Facts, now: int) -> Step[Maintained]:
        self.recorded.append(facts)
        return Step(Maintained(False, now))


def scripted(footprint: Footprint, *puts: Fact, drops: tuple[Fact, ...] = (), **more: Any) -> Scripted:
    return Scripted(tenant=TENANT, requested=footprint, step=Step(Maintained(True, NOW), puts, drops, **more))


def a_stream(**changes: Any) -> Stream:
    plain = Stream(STREAM_ID, TENANT, SCOPE, "c", U64(2**64 - 1), NOW, USER, NOW - HOUR, NOW + HOUR)
    return replace(plain, **changes)


def a_policy(**changes: Any) -> Policy:
    return replace(Policy(POLICY_ID, TENANT, "limits", b"{}", NOW - HOUR), **changes)


FULL_FOOTPRINT = Footprint(TENANT, RECORD_ID, (JOB2,), STREAM_ID, policy=POLICY_ID, follow_jobs=True, follow_usage=True)
