"""Credentials: API keys, the roles and their permissions, and the commands on policies.

An API key is a text of three parts, `oj_TENANT.ID.SECRET`: the tenant in base64url, twelve hex digits that name the key
inside it, and a secret of 256 random bits, of which only a digest is stored. The key is stored as a policy of its tenant.

A policy is a named document of a tenant: limits, or an API key. It is a fact like every other, read inside decisions, so
one point read verifies a key, and a change or a revocation takes effect in all processes at once.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import ClassVar, NamedTuple, Protocol

import msgspec
from msgspec import Struct, json
from msgspec.structs import replace

from .command import CommandData, Facts, Footprint, Precondition, Step
from .errors import Invalid
from .facts import NewerFormat, Policy, next_version, unexpired_policy
from .identity import (
    NAME_CHARS_MAX,
    SETTINGS_POLICY_NAME,
    SYSTEM_TENANT,
    api_key_user,
    checked_name,
    decode_base64url,
    encode_base64url,
)
from .replies import AnyReply, Maintained, Missing, PolicyFound, Reason, Refused

API_KEY_PREFIX = "oj_"
KEY_ID_CHARS = 12
SECRETS_MAX = 4
ROTATION_OVERLAP_MS_MAX = 90 * 86_400_000
POLICY_BODY_BYTES_MAX = 16_384
ABSENT = 0  # as an expected version: the policy must not exist

API_KEY_POLICY_PREFIX = "apikey:"
GATE_KEY_POLICY_PREFIX = "gate/"  # of the system tenant; see gate_keys.py
_TENANT_CACHE_MAX = 1024
_TENANT_CHARS_MAX = -(-NAME_CHARS_MAX * 4 * 4 // 3)  # characters of at most four bytes each, in base64
_API_KEY_PATTERN = re.compile(
    rf"{API_KEY_PREFIX}([A-Za-z0-9_-]{{2,{_TENANT_CHARS_MAX}}})\.([0-9a-f]{{{KEY_ID_CHARS}}})\.([A-Za-z0-9_-]{{43}})"
)
_KEY_ID_PATTERN = re.compile(rf"[0-9a-f]{{{KEY_ID_CHARS}}}")
API_KEY_CHARS_MAX = len(API_KEY_PREFIX) + _TENANT_CHARS_MAX + 1 + KEY_ID_CHARS + 1 + 43


class Role(StrEnum):
    SUBMITTER = "submitter"
    WORKER = "worker"
    OPERATOR = "operator"
    ADMIN = "admin"
    METRICS = "metrics"


class Permission(StrEnum):
    SUBMIT = "submit"
    READ = "read"  # jobs, keys and their history
    OVERSEE = "oversee"  # also those of other users, where each user sees only its own
    INSPECT = "inspect"  # the inputs of jobs and the messages of their exceptions
    CANCEL = "cancel"
    WORK = "work"  # claim, start, extend, finish, release
    FORGET = "forget"
    RESOLVE = "resolve"  # decide about lost jobs, run failed ones again
    ADMINISTER = "administer"  # credentials, limits, purging a tenant
    SCRAPE = "scrape"  # the metrics, without those that name job types of other tenants
    SCRAPE_ALL = "scrape-all"  # the metrics of all tenants


# Who may submit may also read: a replay shows a job.
ROLE_PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.SUBMITTER: frozenset({Permission.SUBMIT, Permission.READ, Permission.CANCEL}),
    Role.WORKER: frozenset({Permission.READ, Permission.WORK}),
    Role.OPERATOR: frozenset(
        {
            Permission.SUBMIT,
            Permission.READ,
            Permission.OVERSEE,
            Permission.INSPECT,
            Permission.CANCEL,
            Permission.FORGET,
            Permission.RESOLVE,
        }
    ),
    Role.ADMIN: frozenset(Permission) - {Permission.SCRAPE_ALL},
    Role.METRICS: frozenset({Permission.SCRAPE, Permission.SCRAPE_ALL}),
}


def roles_with(permission: Permission) -> tuple[Role, ...]:
    return tuple(role for role, permissions in ROLE_PERMISSIONS.items() if permission in permissions)


def has_permission(roles: frozenset[Role], permission: Permission) -> bool:
    return permission in _permissions_of(roles)


def may_grant(roles: frozenset[Role], granted: Iterable[Role]) -> bool:
    """True if a caller with these roles may give the others: nobody gives a permission that they do not have."""
    return all(has_permission(roles, permission) for role in granted for permission in ROLE_PERMISSIONS[role])


@lru_cache(256)
def _permissions_of(roles: frozenset[Role]) -> tuple[Permission, ...]:
    # A tuple, because hashing an enum member costs more than comparing it with all of them.
    return tuple(permission for permission in Permission if any(permission in ROLE_PERMISSIONS[role] for role in roles))


class Secret(Struct, frozen=True, gc=False):
    """The stored part of a secret: its digest, and until when it is valid (0: no expiry)."""

    digest: bytes
    until: int = 0


class ApiKey(Struct, frozen=True):
    """A credential of a program. Its name identifies the program, and stays when the secret is rotated."""

    id: str
    name: str
    user: str  # the user it acts for; empty: quotas count the key under its own name
    roles: tuple[Role, ...]
    secrets: tuple[Secret, ...]  # newest first
    created_at: int
    created_by: str
    rotated_at: int = 0
    revoked_at: int = 0
    revoked_by: str = ""


class HasSecrets(Protocol):
    """An API key, or the credential of a gate."""

    @property
    def secrets(self) -> tuple[Secret, ...]: ...

    @property
    def revoked_at(self) -> int: ...


class ParsedApiKey(NamedTuple):
    """An API key as it is sent."""

    tenant: str
    id: str
    secret: str

    def __str__(self) -> str:
        return f"{API_KEY_PREFIX}{encode_base64url(self.tenant.encode())}.{self.id}.{self.secret}"


# Compared with in place of missing secrets, so that every verification takes the same time.
_DUMMY_SECRETS = (Secret(bytes(sha256().digest_size), until=-1),) * SECRETS_MAX


def parse_api_key(text: str) -> ParsedApiKey | None:
    """Parse an API key; None if it is malformed."""
    match = _API_KEY_PATTERN.fullmatch(text) if len(text) <= API_KEY_CHARS_MAX else None
    tenant = _decode_tenant(match[1]) if match is not None else None
    return ParsedApiKey(tenant, match[2], match[3]) if match is not None and tenant is not None else None


def api_key_policy_name(key_id: str) -> str:
    """The name of the policy that stores an API key."""
    if not isinstance(key_id, str) or not _KEY_ID_PATTERN.fullmatch(key_id):
        raise Invalid("API key", f"the id of an API key is {KEY_ID_CHARS} hex digits; send it as it is listed")
    return API_KEY_POLICY_PREFIX + key_id


def encode_api_key(key: ApiKey) -> bytes:
    return json.encode(key)


@lru_cache(1024)
def decode_api_key(body: bytes) -> ApiKey:
    try:
        return _decode_json(body)
    except msgspec.ValidationError:  # for example a role of a newer program
        raise NewerFormat("an API key is stored in a format that this program does not know; upgrade it") from None


def secret_digest(secret: str) -> bytes:
    # A secret of 256 random bits needs no salt and no slow hash: it cannot be guessed.
    return sha256(secret.encode()).digest()


def new_api_key(*, id: str, name: str, user: str, roles: frozenset[Role], secret: str, by: str, now: int) -> ApiKey:
    if not roles:
        raise Invalid("roles", f"an API key has at least one role of {', '.join(Role)}; name one")
    name = checked_name("name", name)
    if not user and len(api_key_user(name)) > NAME_CHARS_MAX:
        longest = NAME_CHARS_MAX - len(api_key_user(""))
        message = f"the name of an API key without a user has at most {longest} characters; shorten it, or bind the key to a user"
        raise Invalid("name", message)
    return ApiKey(
        id=id,
        name=name,
        user=checked_name("user", user) if user else "",
        roles=tuple(sorted(roles)),
        secrets=(Secret(secret_digest(secret)),),
        created_at=now,
        created_by=by,
    )


def is_valid_secret(key: ApiKey | None, secret: str, now: int) -> bool:
    return secret_valid_until(key, secret, now) is not None


def secret_valid_until(key: "HasSecrets | None", secret: str, now: int) -> int | None:
    """Until when a secret is valid for this key (0: no expiry), None if it is not valid now.

    Unknown, revoked and wrong keys take the same steps, so that the time reveals nothing.
    """
    digest = secret_digest(secret)
    stored = (*(key.secrets if key is not None else ()), *_DUMMY_SECRETS)[:SECRETS_MAX]
    until: int | None = None
    for candidate in stored:
        is_equal = compare_digest(candidate.digest, digest)
        if is_equal and (not candidate.until or now <= candidate.until):
            until = candidate.until
    return until if key is not None and not key.revoked_at else None


def is_valid_digest(key: ApiKey, digest: bytes, now: int) -> bool:
    """True if the secret with this digest is valid now."""
    equal = [candidate for candidate in key.secrets if compare_digest(candidate.digest, digest)]
    return not key.revoked_at and any(not candidate.until or now <= candidate.until for candidate in equal)


def rotated_api_key(key: ApiKey, secret: str, *, overlap_ms: int, now: int) -> ApiKey:
    """The key with a new secret. The previous ones stay valid for the overlap, or until they were to end before that."""
    return replace(key, secrets=rotated_secrets(key, secret, overlap_ms=overlap_ms, now=now), rotated_at=now)


def rotated_secrets(key: HasSecrets, secret: str, *, overlap_ms: int, now: int) -> tuple[Secret, ...]:
    if not 0 <= overlap_ms <= ROTATION_OVERLAP_MS_MAX:
        raise Invalid("overlap", "the overlap of two secrets is 0 to 90 days; choose one in between")
    if key.revoked_at:
        raise Invalid("API key", "this key is revoked for good; create another")
    # Not only the last one: if the answer to a rotation was lost and it is repeated, nobody knows the last one.
    end = now + overlap_ms
    old = [
        replace(previous, until=min(previous.until or end, end))
        for previous in key.secrets
        if not previous.until or now <= previous.until
    ]
    return (Secret(secret_digest(secret)), *(old if overlap_ms else ()))[:SECRETS_MAX]


def revoked_api_key(key: ApiKey, *, by: str, now: int) -> ApiKey:
    """The key revoked for good. A second revocation changes nothing, so the first stays on record."""
    return key if key.revoked_at else replace(key, revoked_at=now, revoked_by=by)


@lru_cache(_TENANT_CACHE_MAX)
def _decode_tenant(encoded: str) -> str | None:
    try:
        tenant = checked_name("tenant", decode_base64url(encoded).decode())
    except ValueError:  # invalid base64, UTF-8 or name
        return None
    # One spelling for each tenant: the spare bits of base64 would allow others.
    return tenant if encode_base64url(tenant.encode()) == encoded else None


_decode_json = msgspec.json.Decoder(ApiKey).decode


class PolicyCommand(CommandData, frozen=True, gc=False, kw_only=True):
    policy_id: bytes

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, policy=self.policy_id)


class LookUpPolicy(PolicyCommand, frozen=True, gc=False, kw_only=True):
    writes: ClassVar[bool] = False

    def decide(self, facts: Facts, now: int) -> Step[PolicyFound | Missing]:
        policy = facts.policy
        if (
            policy is None or 0 < policy.expires_at < now
        ):  # as `unexpired_policy`: every request with an API key asks this
            return Step(Missing(now))
        return Step(PolicyFound(policy, now))


def is_unchanged(reply: AnyReply, precondition: Precondition) -> bool:
    """True if the policy that was looked up meets the precondition; an expired one is not found."""
    if not isinstance(reply, PolicyFound) or reply.policy.body != precondition.expected_body:
        return False
    return not 0 < precondition.valid_until < reply.at


class SetPolicy(PolicyCommand, frozen=True, gc=False, kw_only=True):
    """Write a policy, if it has the expected version. Repeated with equal content it succeeds.

    With a `ttl_ms` it expires; writing it again restarts that time. An expired policy counts as absent.
    """

    name: str
    body: bytes
    expected_version: int | None = None  # None: any
    ttl_ms: int = 0  # 0: it never expires
    not_after: int = 0  # on the engine's time; 0: no limit

    def __post_init__(self) -> None:
        if len(self.body) > POLICY_BODY_BYTES_MAX:
            raise Invalid("policy", f"a policy takes at most {POLICY_BODY_BYTES_MAX} bytes; make it smaller")

    @property
    def payload_bytes(self) -> int:
        return len(self.body)

    @property
    def has_echo(self) -> bool:
        return self.expected_version is not None

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, policy=self.policy_id, not_after=self.not_after)

    def decide(self, facts: Facts, now: int) -> Step[PolicyFound | Refused]:
        policy, current = facts.policy, unexpired_policy(facts.policy, now)
        version = ABSENT if current is None else current.version
        if current is not None and current.body == self.body and self.expected_version in (None, version - 1):
            if not self.ttl_ms and not current.expires_at:
                return Step(PolicyFound(current, now))
        elif self.expected_version not in (None, version):
            return Step(_stale_refusal(version, now))
        expires_at = now + self.ttl_ms if self.ttl_ms else 0
        if policy is None:
            created = Policy(self.policy_id, self.tenant, self.name, self.body, now, expires_at=expires_at)
            return Step(PolicyFound(created, now), (created,))
        assert policy.name == self.name
        written = next_version(policy, now, body=self.body, expires_at=expires_at)
        return Step(PolicyFound(written, now), (written,))


class DropPolicy(PolicyCommand, frozen=True, gc=False, kw_only=True):
    """Delete a policy, if it has the expected version."""

    expected_version: int | None = None
    not_after: int = 0  # on the engine's time; 0: no limit

    @property
    def has_echo(self) -> bool:
        return self.expected_version is not None

    @property
    def footprint(self) -> Footprint:
        return Footprint(self.tenant, policy=self.policy_id, not_after=self.not_after)

    def decide(self, facts: Facts, now: int) -> Step[Maintained | Refused]:
        policy = facts.policy
        if policy is None:
            return Step(Maintained(False, now))
        if is_permanent(policy):
            message = "gate keys and the settings of a ledger are never deleted; revoke the key, or change the settings"
            return Step(Refused(Reason.NOT_ALLOWED, message, now))
        if self.expected_version not in (None, policy.version):
            return Step(_stale_refusal(policy.version, now))
        return Step(Maintained(True, now), drops=(policy,))


def is_permanent(policy: Policy) -> bool:
    """True for the settings of the ledger, and for the credential of a gate: it is revoked and stays, so that no gate can
    remove another's.
    """
    is_kept = policy.name == SETTINGS_POLICY_NAME or policy.name.startswith(GATE_KEY_POLICY_PREFIX)
    return policy.tenant == SYSTEM_TENANT and is_kept


def _stale_refusal(version: int, now: int) -> Refused:
    return Refused(Reason.STALE, "the policy was changed meanwhile; read it again", now, {"version": version})
