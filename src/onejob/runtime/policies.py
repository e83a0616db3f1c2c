"""Small documents of a tenant, stored as policies: read one, list those with a prefix, change one by compare-and-set."""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import json

from onejob.core.credentials import ABSENT, LookUpPolicy, SetPolicy
from onejob.core.facts import Kind, Policy
from onejob.core.identity import policy_id
from onejob.core.replies import Missing, PolicyFound, Reason, Refused
from onejob.engine import PAGE_MAX, Engine, ListFacts
from onejob.errors import Unavailable

from .present import to_exception

ATTEMPTS_MAX = 100
PAGES_MAX = 20

T = TypeVar("T")


async def load_policy(engine: Engine, tenant: str, name: str) -> tuple[Policy | None, int]:
    """The policy, None if there is none or it has expired; and the engine's time."""
    (reply,) = await engine.execute([LookUpPolicy(tenant=tenant, policy_id=policy_id(tenant, name))])
    if isinstance(reply, PolicyFound):
        return reply.policy, reply.at
    if isinstance(reply, Missing):
        return None, reply.at
    raise to_exception(reply, "")


async def list_policies(engine: Engine, tenant: str, prefix: str) -> list[Policy]:
    """The policies whose name has a prefix, by name. They are looked up again: only a decision knows what has expired."""
    names: list[str] = []
    after = b""
    for _ in range(PAGES_MAX):
        page = await engine.scan(ListFacts(tenant=tenant, kind=Kind.POLICY, after=after, limit=PAGE_MAX))
        names += (fact.name for fact in page.items if isinstance(fact, Policy) and fact.name.startswith(prefix))
        if not page.more:
            break
        after = page.items[-1].id
    if not names:
        return []
    replies = await engine.execute([LookUpPolicy(tenant=tenant, policy_id=policy_id(tenant, name)) for name in names])
    found = [reply.policy for reply in replies if isinstance(reply, PolicyFound)]
    return sorted(found, key=lambda policy: policy.name)


async def try_set_policy(
    engine: Engine, tenant: str, name: str, body: bytes, *, expected_version: int, ttl_ms: int = 0, not_after: int = 0
) -> Policy | None:
    """Write a policy over the expected version (ABSENT: it does not exist); None if it has another one, or it is too late."""
    command = SetPolicy(
        tenant=tenant,
        policy_id=policy_id(tenant, name),
        name=name,
        body=body,
        expected_version=expected_version,
        ttl_ms=ttl_ms,
        not_after=not_after,
    )
    (reply,) = await engine.execute([command])
    match reply:
        case PolicyFound():
            return reply.policy
        case Refused(reason=Reason.STALE | Reason.TOO_LATE):
            return None
    raise to_exception(reply, "")


async def change_policy(
    engine: Engine, tenant: str, name: str, change: Callable[[Policy | None, int], bytes | None], *, ttl_ms: int = 0
) -> None:
    """Write what `change` makes of the policy and the time; None: nothing to change."""
    for _ in range(ATTEMPTS_MAX):
        policy, now = await load_policy(engine, tenant, name)
        body = change(policy, now)
        if body is None:
            return
        version = ABSENT if policy is None else policy.version
        if await try_set_policy(engine, tenant, name, body, expected_version=version, ttl_ms=ttl_ms) is not None:
            return
    raise Unavailable("others keep changing it: nothing was done; retry")


def decode_body(policy: Policy, type: type[T]) -> T:
    try:
        return json.decode(policy.body, type=type)
    except msgspec.ValidationError:
        raise Unavailable(
            f"the policy {policy.name!r} is stored in a format that this program does not know; upgrade it"
        ) from None
