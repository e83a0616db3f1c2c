"""Keys that `store_idempotency_key` stored for all types, as submissions of a type find them.

A submission looks for its key in its own scope, so a key in the global scope must be looked for as well. Only tenants that
have such keys pay for that. A list of them is shared as a policy, which every process reads at most every half second; the
first key of a tenant is stored only after every process has read the list with the tenant in it.

What is found travels in the submission, which commits its own record with it unless its scope knows the key (core/submit.py).
So one record decides what a key of a scope is answered with, whatever is stored and submitted at the same time. A key that is
held elsewhere meanwhile is found too: a submission that waited for its holder looks again before it is sent again, so if
the holder gave up after the key was stored, it finds the stored job and takes nothing over. And one that was delayed between
looking and being decided is told that the key is in progress, and looks again, if the key became free only after it had looked.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from msgspec import Struct, json
from msgspec.structs import replace

from onejob.core.facts import NOT_FREE, Policy, free_version
from onejob.core.identity import GLOBAL_SCOPE, SYSTEM_TENANT, is_tick_key
from onejob.core.lookup import LookUpKey
from onejob.core.replies import AnyReply, Found
from onejob.core.submit import ExternalJob, SubmissionCommand
from onejob.engine import Engine

from .callers import Caller, key_record_id
from .policies import change_policy, decode_body, load_policy

C = TypeVar("C", bound=SubmissionCommand)

STORED_KEYS_POLICY_NAME = "stored-keys"
CACHE_SECONDS = 0.5
ANNOUNCE_SECONDS = 1.2 * CACHE_SECONDS  # longer than any process goes without reading the list
TENANTS_MAX = 200
_EVERY_TENANT = ""  # no tenant has this name
_LISTED_LONGER_MS = 86_400_000  # than its keys live, so that the list seldom changes


class _Listed(Struct, frozen=True):
    since: int
    until: int


class ExternalKeyTenants:
    """The tenants that have keys for all types, as this process knows them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._listed: dict[str, _Listed] = {}
        self._valid_until = float("-inf")
        self.none_until = float("-inf")  # on the clock of the event loop: until then certainly no tenant has such keys
        self._announced: dict[str, int] = {}

    def is_known_absent(self, tenant: str) -> bool:
        """True if the tenant certainly has no such keys; if not, ask `has_keys`."""
        return asyncio.get_running_loop().time() < self._valid_until and not (self._listed and self._is_listed(tenant))

    async def has_keys(self, tenant: str) -> bool:
        """True if the tenant may have such keys."""
        now = asyncio.get_running_loop().time()
        if now >= self._valid_until:
            self._listed, _ = await self._load()
            self._valid_until = now + CACHE_SECONDS
            self.none_until = float("-inf") if self._listed else self._valid_until
        return self._is_listed(tenant)

    async def announce(self, tenant: str, *, ttl_ms: int) -> None:
        """Return when every process knows that the tenant has such keys, for at least this long."""

        def listed(policy: Policy | None, now: int) -> bytes | None:
            tenants = {} if policy is None else decode_body(policy, dict[str, _Listed])
            live = {name: listed_tenant for name, listed_tenant in tenants.items() if listed_tenant.until >= now}
            name = tenant if tenant in live or len(live) < TENANTS_MAX else _EVERY_TENANT
            known = live.get(name)
            if known is not None and known.until >= now + ttl_ms + _LISTED_LONGER_MS // 2:
                return None
            live[name] = _Listed(now if known is None else known.since, now + ttl_ms + _LISTED_LONGER_MS)
            return json.encode(live)

        await change_policy(self._engine, SYSTEM_TENANT, STORED_KEYS_POLICY_NAME, listed)
        tenants, now = await self._load()
        name = tenant if tenant in tenants else _EVERY_TENANT
        since = tenants[name].since
        if self._announced.get(name) != since:
            # The list is read again by then, also by processes that read it just before it was written.
            await asyncio.sleep(max(0.0, ANNOUNCE_SECONDS - max(0, now - since) / 1000))
            self._announced[name] = since

    def _is_listed(self, tenant: str) -> bool:
        return tenant in self._listed or _EVERY_TENANT in self._listed

    async def _load(self) -> tuple[dict[str, _Listed], int]:
        policy, now = await load_policy(self._engine, SYSTEM_TENANT, STORED_KEYS_POLICY_NAME)
        return {} if policy is None else decode_body(policy, dict[str, _Listed]), now


def list_for_tenants(policy: Policy, tenants: Sequence[str]) -> Policy:
    """The list as somebody may see it who acts for these tenants alone."""
    listed = decode_body(policy, dict[str, _Listed])
    return replace(
        policy, body=json.encode({name: listed[name] for name in (_EVERY_TENANT, *tenants) if name in listed})
    )


class ExternalKeyLookup(NamedTuple):
    """What a submission carries (core/submit.py)."""

    free_version: int | None = None
    external_job: ExternalJob | None = None


async def look_up_external_keys(
    engine: Engine, caller: Caller, keys: Sequence[tuple[str, str]], *, retention_ms: int
) -> list[ExternalKeyLookup]:
    """For each of these keys, with its scope: whether it is free there, and if so, what it is stored for in all types.

    In this order, and the decision verifies that it has been free since. So between a key that is stored for all types and one
    that becomes free afterwards, no submission slips through that had looked before.
    """
    # Only the scheduler decides what becomes of its ticks.
    asked = [bool(key) and scope != GLOBAL_SCOPE and not is_tick_key(scope, key) for scope, key in keys]
    own = iter(await _look_up(engine, caller, [key for key, is_asked in zip(keys, asked, strict=True) if is_asked]))
    versions = [_free_version(next(own)) if is_asked else None for is_asked in asked]
    is_free = [version not in (None, NOT_FREE) for version in versions]
    wanted = [(GLOBAL_SCOPE, key) for (_, key), free in zip(keys, is_free, strict=True) if free]
    stored = iter(await _look_up(engine, caller, wanted))
    return [
        ExternalKeyLookup(version, _external_job(next(stored), retention_ms) if free else None)
        for version, free in zip(versions, is_free, strict=True)
    ]


async def _look_up(engine: Engine, caller: Caller, keys: Sequence[tuple[str, str]]) -> Sequence[AnyReply]:
    lookups = [LookUpKey(tenant=caller.tenant, record_id=key_record_id(caller, scope, key)) for scope, key in keys]
    return await engine.execute(lookups) if lookups else ()


def _free_version(reply: AnyReply) -> int:
    return free_version(reply.record, reply.at) if isinstance(reply, Found) else 0


def _external_job(reply: AnyReply, retention_ms: int) -> ExternalJob | None:
    if not isinstance(reply, Found) or reply.record is None:
        return None
    record = reply.record
    # With a fingerprint, it is the key of a submission that named the scope of all types.
    if not record.external_id or record.fingerprint:
        return None
    return ExternalJob(record.external_id, record.actor, record.user, record.expires_at - reply.at, retention_ms)


async def add_external_jobs(engine: Engine, caller: Caller, commands: Sequence[C], *, retention_ms: int) -> Sequence[C]:
    """These submissions, each with the job that its key is stored for in the scope of all types."""
    keys = [(command.scope, command.key) for command in commands]
    found = await look_up_external_keys(engine, caller, keys, retention_ms=retention_ms)
    return [
        command if external.free_version is None else replace(command, **external._asdict())
        for command, external in zip(commands, found, strict=True)
    ]
