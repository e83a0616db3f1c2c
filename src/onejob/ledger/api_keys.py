"""API keys of a tenant: create, list, rotate, revoke and verify them through its ledger."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Struct

from onejob import audit
from onejob.core import credentials
from onejob.core.command import Precondition
from onejob.core.credentials import ApiKey, LookUpPolicy, ParsedApiKey, Role
from onejob.core.identity import policy_id
from onejob.core.replies import Missing, PolicyFound
from onejob.core.timestamps import to_duration_ms, to_utc
from onejob.errors import Invalid
from onejob.ledger.base import runtime_of
from onejob.runtime.credentials import CredentialKind, CredentialStore, decode_credential
from onejob.runtime.present import to_exception

from . import Ledger

OVERLAP_DEFAULT = timedelta(days=1)

_API_KEY = CredentialKind(
    noun="API key",
    command="apikey",
    policy_prefix=credentials.API_KEY_POLICY_PREFIX,
    policy_name=credentials.api_key_policy_name,
    encode=credentials.encode_api_key,
    decode=credentials.decode_api_key,
)


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
        runtime, caller = runtime_of(ledger), ledger.caller
        self._gate = runtime.gate
        self._ids = runtime.ids
        self._tenant = caller.tenant
        self._actor = caller.actor
        self._store = CredentialStore(runtime.gate, runtime.ids, caller.tenant, _API_KEY)

    async def create(self, name: str, *, roles: Iterable[Role | str], user: str = "") -> NewKey:
        """Create a key. Its jobs count for the user that it is bound to, otherwise for the user `api_key:NAME`."""
        parsed_roles = frozenset(_parse_role(role) for role in roles)
        key, secret = await self._store.create(
            lambda id, secret, now: credentials.new_api_key(
                id=id, name=name, user=user, roles=parsed_roles, secret=secret, by=self._actor, now=now
            )
        )
        self._audit("create", key)
        return NewKey(to_view(key), str(ParsedApiKey(self._tenant, key.id, secret)))

    async def list(self) -> Sequence[ApiKeyView]:
        """All keys of the tenant, also revoked ones, oldest first."""
        return [to_view(key) for key in await self._store.list()]

    async def rotate(self, key_id: str, *, overlap: timedelta = OVERLAP_DEFAULT) -> NewKey:
        """Give a key a new secret. The old one stays valid for the overlap; the key's identity does not change."""
        secret = self._ids.secret()
        overlap_ms = to_duration_ms("overlap", overlap)
        key = await self._store.change(
            key_id, lambda key, now: credentials.rotated_api_key(key, secret, overlap_ms=overlap_ms, now=now)
        )
        self._audit("rotate", key)
        return NewKey(to_view(key), str(ParsedApiKey(self._tenant, key_id, secret)))

    async def revoke(self, key_id: str) -> ApiKeyView:
        """Make a key invalid for good, in every process at once."""
        key = await self._store.change(
            key_id, lambda key, now: credentials.revoked_api_key(key, by=self._actor, now=now)
        )
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
        """True if the lookup of a key is answered without blocking."""
        return self._gate.info.synchronous_reads

    async def is_still_valid(self, verified: VerifiedKey) -> bool:
        """True if the key has not changed since it was verified; repeats the point read without hashing."""
        reply = await self._gate.dispatch(verified.lookup)
        if not isinstance(reply, (PolicyFound, Missing)):
            raise to_exception(reply, "")
        return credentials.is_unchanged(reply, verified.precondition)

    def _audit(self, action: str, key: ApiKey) -> None:
        roles = ",".join(key.roles)
        audit.write_audit_record(
            f"apikey {action}", tenant=self._tenant, actor=self._actor, id=key.id, name=key.name, roles=roles
        )


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
    return decode_credential(body, _API_KEY)


def _parse_role(role: Role | str) -> Role:
    try:
        return Role(role)
    except ValueError:
        raise Invalid("role", f"a role is one of {', '.join(Role)}; choose among them") from None
