"""What the holder of a gate credential may do at a manager: two tables, and the questions that read them.

1. A gate acts for all tenants, or for those that its credential names. A command names nothing of another tenant.
2. Policies of the system tenant belong to no tenant. `SYSTEM_POLICIES` says which gates read and write them.
3. Another data centre has a credential of a kind of its own (`GATE_KEY_KINDS`): it delivers jobs and asks for them, and what it
   sends is checked as if a caller had submitted it here.
"""

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

from msgspec.structs import replace

from onejob.core.command import Command
from onejob.core.credentials import GATE_KEY_POLICY_PREFIX, POLICY_BODY_BYTES_MAX, DropPolicy, LookUpPolicy, SetPolicy
from onejob.core.errors import Invalid
from onejob.core.facts import Kind, Policy
from onejob.core.gate_keys import GateKey
from onejob.core.identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT, policy_id
from onejob.core.lookup import LookUpJob
from onejob.core.maintenance import ERASURE_POLICY_NAME
from onejob.core.replies import Conflict, Missing, PolicyFound
from onejob.core.site_delivery import CancelAtSite, check_delivered
from onejob.core.submit import Submit
from onejob.engine import Engine, ListFacts, Page, Query
from onejob.engines.remote.codec import WireCodec
from onejob.engines.remote.messages import BODY_BYTES_MAX, SITE_BODY_BYTES_MAX, UnsupportedCommand
from onejob.errors import TenantRefused
from onejob.ledger.submissions import COMPARED_MAX, find_differences
from onejob.runtime import READY_POLICY_NAME
from onejob.runtime.external_keys import STORED_KEYS_POLICY_NAME, list_for_tenants
from onejob.runtime.workers import WORKER_POLICY_PREFIX

COMMANDS_MAX = 10_000
ERASURE_BODY_BYTES_MAX = 64
SITE_COMMANDS_MAX = 1000
PROBE = LookUpJob(tenant=SYSTEM_TENANT, job_id=bytes(16))
ANYBODY = GateKey("", "", (), 0, "")  # where no credential is needed: it may act for all tenants


class AllowedGates(Enum):
    """Which gates may use a policy of the system tenant."""

    NONE = auto()  # only programs on the engine
    UNLIMITED = auto()  # those that act for all tenants
    EVERY = auto()
    EVERY_FOR_ITS_TENANTS = auto()  # a gate for some tenants reads what concerns these


class SystemPolicy(NamedTuple):
    read: AllowedGates
    write: AllowedGates
    bytes_max: int = POLICY_BODY_BYTES_MAX  # of what a gate for some tenants writes
    drop: AllowedGates = AllowedGates.UNLIMITED


SYSTEM_POLICIES = {  # by name, or by the part of the name up to a slash
    READY_POLICY_NAME: SystemPolicy(AllowedGates.EVERY, AllowedGates.EVERY, 0, AllowedGates.EVERY),
    ERASURE_POLICY_NAME: SystemPolicy(AllowedGates.EVERY, AllowedGates.EVERY, ERASURE_BODY_BYTES_MAX),
    SETTINGS_POLICY_NAME: SystemPolicy(AllowedGates.EVERY, AllowedGates.UNLIMITED),
    WORKER_POLICY_PREFIX: SystemPolicy(AllowedGates.EVERY, AllowedGates.UNLIMITED),
    STORED_KEYS_POLICY_NAME: SystemPolicy(AllowedGates.EVERY_FOR_ITS_TENANTS, AllowedGates.UNLIMITED),
    GATE_KEY_POLICY_PREFIX: SystemPolicy(AllowedGates.UNLIMITED, AllowedGates.NONE),
}
_OTHER_POLICY = SystemPolicy(AllowedGates.UNLIMITED, AllowedGates.UNLIMITED)
_OPEN_DROPS = {
    policy_id(SYSTEM_TENANT, name) for name, rule in SYSTEM_POLICIES.items() if rule.drop is AllowedGates.EVERY
}


class GateKeyKind(NamedTuple):
    commands_max: int
    body_bytes_max: int
    codec: WireCodec | None = None  # of the commands that it may send; None: all that the manager knows
    check: Callable[[Submit], None] | None = None  # raises Invalid
    is_delivery: bool = False  # it sends `/execute` alone, and is told where a conflicting job differs


GATE_KEY_KINDS = {  # by `GateKey.is_site`
    False: GateKeyKind(COMMANDS_MAX, BODY_BYTES_MAX),
    True: GateKeyKind(
        SITE_COMMANDS_MAX,
        SITE_BODY_BYTES_MAX,
        WireCodec(commands=(Submit, CancelAtSite, LookUpJob)),
        check_delivered,
        is_delivery=True,
    ),
}


def refusal_of(command: Command[Any] | UnsupportedCommand, key: GateKey) -> UnsupportedCommand | TenantRefused | None:
    """Why a command is not executed; None: it is."""
    kind = GATE_KEY_KINDS[key.is_site]
    if isinstance(command, UnsupportedCommand):
        if not kind.is_delivery:
            return command
        return _refused(f"the credential {key.name!r} of a site may deliver jobs, and nothing else ({command.message})")
    is_system = command.tenant == SYSTEM_TENANT
    # A gate must not make credentials for other gates, under their name or under another.
    if is_system and isinstance(command, SetPolicy) and not _is_writable(command):
        return _refused("gate keys are made on the engine, not through a gate")
    if not key.tenants:
        return None
    if not key.may_act_for(command.tenant):
        is_open = is_system and not kind.is_delivery and _is_open_to_every_gate(command)
        return None if is_open else _refused(not_allowed(key))
    if not _is_within_tenant(command):
        return _refused("a command names what belongs to another tenant")
    if kind.check is not None and isinstance(command, Submit):
        try:
            kind.check(command)
        except Invalid as error:
            return _refused(str(error))
    return None


def may_scan(query: Query[Any], key: GateKey) -> bool:
    return key.may_act_for(getattr(query, "tenant", None)) or _lists_system_policies(query)


def visible_reply(reply: Any, key: GateKey) -> Any:
    """A reply without the names of other tenants, and without the secrets of the system tenant."""
    if not key.tenants or not isinstance(reply, PolicyFound) or reply.policy.tenant != SYSTEM_TENANT:
        return reply
    match _rule_of(reply.policy.name).read:
        case AllowedGates.EVERY:
            return reply
        case AllowedGates.EVERY_FOR_ITS_TENANTS:
            return replace(reply, policy=list_for_tenants(reply.policy, key.tenants))
    return Missing(reply.at)


def visible_page(page: Page[Any], query: Query[Any], key: GateKey) -> Page[Any]:
    """What is hidden keeps its place, so that pages go on where they ended."""
    if not key.tenants or not _lists_system_policies(query):
        return page
    return replace(page, items=[_without_secrets(policy) for policy in page.items])


def not_allowed(key: GateKey) -> str:
    return f"the gate credential {key.name!r} may not act for this tenant"


async def add_differences(engine: Engine, commands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Conflicts with where the bodies differ: another data centre cannot read the inputs of this one."""
    compared = 0
    described: list[Any] = []
    for command, result in zip(commands, results, strict=True):
        if isinstance(command, Submit) and isinstance(result, Conflict) and compared < COMPARED_MAX:
            compared += 1
            result = replace(result, paths=await find_differences(engine, command, result))
        described.append(result)
    return described


def _refused(reason: str) -> TenantRefused:
    return TenantRefused(f"nothing was done: {reason}")


def _rule_of(name: str) -> SystemPolicy:
    prefix, slash, _ = name.partition("/")
    return SYSTEM_POLICIES.get(prefix + slash, _OTHER_POLICY)


def _is_writable(command: SetPolicy) -> bool:
    """True if a gate for all tenants may write this policy of the system tenant. Its id must not be that of another."""
    is_named_right = command.policy_id == policy_id(SYSTEM_TENANT, command.name)
    return is_named_right and _rule_of(command.name).write is not AllowedGates.NONE


def _is_open_to_every_gate(command: Command[Any]) -> bool:
    """What each gate needs of the system tenant: to be ready, to purge, to know the keys for all types, and workers."""
    match command:
        case LookUpJob():
            return command.job_id == PROBE.job_id
        case LookUpPolicy():
            return True  # `visible_reply` hides what it must not see
        case SetPolicy():
            rule = _rule_of(command.name)
            return rule.write is AllowedGates.EVERY and len(command.body) <= rule.bytes_max
        case DropPolicy():
            return command.policy_id in _OPEN_DROPS
    return False


def _is_within_tenant(command: Command[Any]) -> bool:
    """True if all that a command names belongs to its tenant, also where it contains another command."""
    try:
        footprint = command.footprint
    except Exception:  # noqa: BLE001 - the engine answers it with a defect
        return True
    return footprint.tenant == command.tenant and footprint.is_within_tenant()


def _lists_system_policies(query: Query[Any]) -> bool:
    return isinstance(query, ListFacts) and query.tenant == SYSTEM_TENANT and query.kind is Kind.POLICY


def _without_secrets(policy: Policy) -> Policy:
    return policy if _rule_of(policy.name).read is AllowedGates.EVERY else replace(policy, name="", body=b"")
