"""API keys of a tenant: create, list, rotate, revoke and verify them through its ledger."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Struct

from onejob import audit
from onejob.core import credentials
from onejob.core.command import Precondition
from onejob.core.credentials import ABSENT, ApiKey, LookUpPolicy, ParsedApiKey, Role
from onejob.core.facts import Kind, NewerFormat, Policy
from onejob.core.identity import policy_id
from onejob.core.replies import Missing, PolicyFound
from onejob.core.timestamps import to_duration_ms, to_utc
from onejob.engine import PAGE_MAX, ListFacts
from onejob.errors import Invalid, NotFound, Outdated, Unavailable

from . import Ledger
from .policies import try_set_policy
from .present import to_exception

OVERLAP_DEFAULT = timedelta(days=1)
ATTEMPTS_MAX = 100


class ApiKeyView(Struct, frozen=True, rename="camel"):
    """An API key without its secrets."""

    id: str
    name: str
    user: str | None
    roles: tuple[Role, ...]
    created_at: datetime
    created_by: str
    rotated_at: datetime | None
    old_secret_until: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


class NewKey(NamedTuple):
    """A key and its text, which cannot be read again."""

    key: ApiKeyView
    text: str


class VerifiedKey(NamedTuple):
    """A key whose secret was right, valid as long as the precondition is met."""

    tenant: str
    key: ApiKey
    lookup: LookUpPolicy
    precondition: Precondition


class ApiKeys:
    """The API keys of the ledger's tenant. The audit log names the ledger's actor for every change."""

    def __init__(self, ledger: Ledger) -> None:
        self._gate = ledger.runtime.gate
        self._ids = ledger.runtime.ids
        self._tenant = ledger.caller.tenant
        self._actor = ledger.caller.actor

    async def create(self, name: str, *, roles: Iterable[Role | str], user: str = "") -> NewKey:
        """Create a key. Its jobs count for the user that it is bound to, otherwise for the user `api_key:NAME`."""
        parsed_roles = frozenset(_parse_role(role) for role in roles)
        for _ in range(ATTEMPTS_MAX):
            key_id, secret = self._ids.nonce()[: credentials.KEY_ID_CHARS], self._ids.secret()
            before = await self._look_up(key_id)
            if not isinstance(before, Missing):
                continue  # the id is in use: draw another
            key = credentials.new_api_key(
                id=key_id, name=name, user=user, roles=parsed_roles, secret=secret, by=self._actor, now=before.at
            )
            if await self._try_write(key, ABSENT):
                self._audit("create", key)
                return NewKey(to_view(key), str(ParsedApiKey(self._tenant, key_id, secret)))
        raise Unavailable("no API key could be created: nothing was done; retry")

    async def list(self) -> Sequence[ApiKeyView]:
        """All keys of the tenant, also revoked ones, oldest first."""
        keys: list[ApiKey] = []
        after = b""
        while True:
            query = ListFacts(tenant=self._tenant, kind=Kind.POLICY, after=after, limit=PAGE_MAX)
            page = await self._gate.scan(query)
            policies = [fact for fact in page.items if isinstance(fact, Policy)]
            keys += (decode_api_key(one.body) for one in policies if credentials.is_api_key_policy(one.name))
            if not page.more:
                return [to_view(key) for key in sorted(keys, key=lambda key: (key.created_at, key.id))]
            after = policies[-1].id

    async def rotate(self, key_id: str, *, overlap: timedelta = OVERLAP_DEFAULT) -> NewKey:
        """Give a key a new secret. The old one stays valid for the overlap; the key's identity does not change."""
        secret = self._ids.secret()
        overlap_ms = to_duration_ms("overlap", overlap)
        key = await self._change(
            key_id, lambda key, now: credentials.rotated_api_key(key, secret, overlap_ms=overlap_ms, now=now)
        )
        self._audit("rotate", key)
        return NewKey(to_view(key), str(ParsedApiKey(self._tenant, key_id, secret)))

    async def revoke(self, key_id: str) -> ApiKeyView:
        """Make a key invalid for good, in every process at once."""
        key = await self._change(key_id, lambda key, now: credentials.revoked_api_key(key, by=self._actor, now=now))
        self._audit("revoke", key)
        return to_view(key)

    async def verify(self, text: str) -> VerifiedKey | None:
        """The key with this text, of any tenant, if the secret is valid now; one point read.

        A secret is hashed and compared even if there is no such key, so that the time taken reveals nothing.
        """
        parsed = credentials.parse_api_key(text)
        if parsed is None:
            credentials.secret_valid_until(None, text[: credentials.API_KEY_CHARS_MAX], 0)
            return None
        name = credentials.api_key_policy_name(parsed.id)
        lookup = LookUpPolicy(tenant=parsed.tenant, policy_id=policy_id(parsed.tenant, name))
        match await self._gate.dispatch(lookup):
            case PolicyFound(policy, at):
                key = decode_api_key(policy.body)
                valid_until = credentials.secret_valid_until(key, parsed.secret, at)
                if valid_until is None:
                    return None
                return VerifiedKey(parsed.tenant, key, lookup, Precondition(policy.id, policy.body, valid_until))
            case Missing(at):
                credentials.secret_valid_until(None, parsed.secret, at)
                return None
            case reply:
                raise to_exception(reply, "")

    @property
    def reads_are_synchronous(self) -> bool:
        """True if `is_still_valid` answers without blocking."""
        return self._gate.info.synchronous_reads

    async def is_still_valid(self, verified: VerifiedKey) -> bool:
        """True if the key has not changed since it was verified; repeats the point read without hashing."""
        replies = self._gate.read_now((verified.lookup,))
        reply = await self._gate.dispatch(verified.lookup) if replies is None else replies[0]
        if not isinstance(reply, (PolicyFound, Missing)):
            raise to_exception(reply, "")
        return isinstance(reply, PolicyFound) and verified.precondition.is_met(reply.policy, reply.at)

    def _audit(self, action: str, key: ApiKey) -> None:
        roles = ",".join(key.roles)
        audit.write_audit_record(
            f"apikey {action}", tenant=self._tenant, actor=self._actor, id=key.id, name=key.name, roles=roles
        )

    async def _change(self, key_id: str, change: Callable[[ApiKey, int], ApiKey]) -> ApiKey:
        """Change the stored key; start over if another caller changed it meanwhile."""
        for _ in range(ATTEMPTS_MAX):
            before = await self._look_up(key_id)
            if isinstance(before, Missing):
                raise NotFound("no such API key here; `onejob apikey list` shows those of this tenant")
            key = decode_api_key(before.policy.body)
            changed = change(key, before.at)
            if changed == key or await self._try_write(changed, before.policy.version):
                return changed
        raise Unavailable("other callers keep changing this API key: nothing was done; retry")

    async def _look_up(self, key_id: str) -> PolicyFound | Missing:
        name = credentials.api_key_policy_name(key_id)
        reply = await self._gate.dispatch(LookUpPolicy(tenant=self._tenant, policy_id=policy_id(self._tenant, name)))
        if isinstance(reply, (PolicyFound, Missing)):
            return reply
        raise to_exception(reply, "")

    async def _try_write(self, key: ApiKey, expected: int) -> bool:
        """False if the stored version is not the expected one."""
        name = credentials.api_key_policy_name(key.id)
        body = credentials.encode_api_key(key)
        return await try_set_policy(self._gate, self._tenant, name, body, expected_version=expected) is not None


def to_view(key: ApiKey) -> ApiKeyView:
    return ApiKeyView(
        id=key.id,
        name=key.name,
        user=key.user or None,
        roles=key.roles,
        created_at=to_utc(key.created_at),
        created_by=key.created_by,
        rotated_at=to_utc(key.rotated_at) if key.rotated_at else None,
        old_secret_until=to_utc(key.secrets[1].until) if len(key.secrets) > 1 else None,
        revoked_at=to_utc(key.revoked_at) if key.revoked_at else None,
        revoked_by=key.revoked_by or None,
    )


def decode_api_key(body: bytes) -> ApiKey:
    """The stored key; Outdated if a newer program wrote it."""
    try:
        return credentials.decode_api_key(body)
    except NewerFormat as error:
        raise Outdated(str(error)) from error


def _parse_role(role: Role | str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise Invalid("role", f"a role is one of {', '.join(Role)}; choose among them") from None
