"""Policies: limits, defaults and credentials of a tenant, set and read by name.

A policy is a fact like every other: read inside a decision, so that a change made by one process holds in all.
"""

from typing import ClassVar

from .command import CommandData
from .facts import Policy, next_version
from .invalid import Invalid
from .receipt import Maintained, Missing, PolicyFound, Reason, Refused
from .step import Facts, Footprint, Step

POLICY_BODY_BYTES_MAX = 16_384
ABSENT = 0  # as an expected version: there must be none


class PolicyCommand(CommandData, frozen=True, gc=False, kw_only=True):
    policy_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, policy=self.policy_id)


class LookUpPolicy(PolicyCommand, frozen=True, gc=False, kw_only=True):
    writes: ClassVar[bool] = False

    def decide(self, facts: Facts, now: int) -> Step[PolicyFound | Missing]:
        policy = facts.policy
        return Step(Missing(now) if policy is None else PolicyFound(policy, now))


class SetPolicy(PolicyCommand, frozen=True, gc=False, kw_only=True):
    """Write a policy; with an expected version only over that one. Repeated with equal content it succeeds."""

    name: str
    body: bytes
    expected_version: int | None = None  # None: over whatever is there

    def __post_init__(self) -> None:
        if len(self.body) > POLICY_BODY_BYTES_MAX:
            raise Invalid("policy", f"a policy takes at most {POLICY_BODY_BYTES_MAX} bytes; make it smaller")

    @property
    def payload_bytes(self) -> int:
        return len(self.body)

    def decide(self, facts: Facts, now: int) -> Step[PolicyFound | Refused]:
        policy = facts.policy
        version = ABSENT if policy is None else policy.version
        if policy is not None and policy.body == self.body and self.expected_version in (None, version - 1):
            return Step(PolicyFound(policy, now))
        if self.expected_version not in (None, version):
            return Step(_stale_refusal(version, now))
        if policy is None:
            made = Policy(
                id=self.policy_id, tenant=self.tenant, name=self.name, body=self.body, changed_at=now
            )
            return Step(PolicyFound(made, now), (made,))
        assert policy.name == self.name
        written = next_version(policy, now, body=self.body)
        return Step(PolicyFound(written, now), (written,))


class DropPolicy(PolicyCommand, frozen=True, gc=False, kw_only=True):
    """Remove a policy; with an expected version only that one."""

    expected_version: int | None = None

    def decide(self, facts: Facts, now: int) -> Step[Maintained | Refused]:
        policy = facts.policy
        if policy is None:
            return Step(Maintained(False, now))
        if self.expected_version not in (None, policy.version):
            return Step(_stale_refusal(policy.version, now))
        return Step(Maintained(True, now), drops=(policy,))


def _stale_refusal(version: int, now: int) -> Refused:
    return Refused(
        Reason.STALE, "somebody changed this policy meanwhile; read it again", now, {"version": version}
    )
