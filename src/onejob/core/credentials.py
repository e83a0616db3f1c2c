"""API keys: what is stored of one, and who it lets in. The secret itself is stored nowhere.

An API key is text of three parts, `oj_TENANT.ID.SECRET`: the tenant in base64url, twelve hex digits that name
the key inside it, and 256 bits that only its owner knows. It stands as a policy in its own tenant, so that one
point read verifies it and its revocation holds everywhere at once.
"""

import re
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from hmac import compare_digest
from typing import ClassVar, NamedTuple

import msgspec
from msgspec import Struct, json
from msgspec.structs import replace

from . import identity
from .command import CommandData, Facts, Footprint, Step
from .errors import Invalid
from .facts import NewerFormat, Policy, next_version
from .identity import NAME_CHARS_MAX, checked_name
from .replies import Maintained, Missing, PolicyFound, Reason, Refused

# Who may do what, as one table.


class Role(StrEnum):
    SUBMITTER = "submitter"
    WORKER = "worker"
    OPERATOR = "operator"
    ADMIN = "admin"


class Permission(StrEnum):
    SUBMIT = "submit"
    READ = "read"  # jobs, keys and their stories
    OVERSEE = "oversee"  # also those of other users, where each has its own
    CANCEL = "cancel"
    WORK = "work"  # claim, start, extend, finish, release
    FORGET = "forget"
    RESOLVE = "resolve"  # decide about lost jobs, run failed ones again
    ADMINISTER = "administer"  # credentials, limits, purging a tenant


# Whoever may submit may read: a replay shows a job.
ROLE_PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.SUBMITTER: frozenset({Permission.SUBMIT, Permission.READ, Permission.CANCEL}),
    Role.WORKER: frozenset({Permission.READ, Permission.WORK}),
    Role.OPERATOR: frozenset(
        {
            Permission.SUBMIT,
            Permission.READ,
            Permission.OVERSEE,
            Permission.CANCEL,
            Permission.FORGET,
            Permission.RESOLVE,
        }
    ),
    Role.ADMIN: frozenset(Permission),
}


def has_permission(roles: frozenset[Role], permission: Permission) -> bool:
    return permission in _permissions_of(roles)


@lru_cache(256)
def _permissions_of(roles: frozenset[Role]) -> tuple[Permission, ...]:
    # A tuple: to hash a member of an enum costs more than to compare it with all of them.
    return tuple(act for act in Permission if any(act in ROLE_PERMISSIONS[role] for role in roles))


# Policies: limits, defaults and credentials of a tenant, set and read by name.
#
# A policy is a fact like every other: read inside a decision, so that a change made by one process holds in all.


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
            made = Policy(id=self.policy_id, tenant=self.tenant, name=self.name, body=self.body, changed_at=now)
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
    return Refused(Reason.STALE, "somebody changed this policy meanwhile; read it again", now, {"version": version})


API_KEY_PREFIX = "oj_"
KEY_ID_CHARS = 12
SECRETS_MAX = 2
ROTATION_OVERLAP_MS_MAX = 90 * 86_400_000

_POLICY_PREFIX = "apikey:"
_TENANT_CACHE_MAX = 1024
_TENANT_CHARS_MAX = -(-NAME_CHARS_MAX * 4 * 4 // 3)  # of at most four bytes each, as base64
_API_KEY_PATTERN = re.compile(
    rf"{API_KEY_PREFIX}([A-Za-z0-9_-]{{2,{_TENANT_CHARS_MAX}}})\.([0-9a-f]{{{KEY_ID_CHARS}}})\.([A-Za-z0-9_-]{{43}})"
)
_KEY_ID_PATTERN = re.compile(rf"[0-9a-f]{{{KEY_ID_CHARS}}}")
API_KEY_CHARS_MAX = len(API_KEY_PREFIX) + _TENANT_CHARS_MAX + 1 + KEY_ID_CHARS + 1 + 43


class Secret(Struct, frozen=True, gc=False):
    """What is kept of a secret: its digest, and how long it still opens (0: without end)."""

    digest: bytes
    until: int = 0


class ApiKey(Struct, frozen=True):
    """A credential of a program. Its name says who it is, and stays when its secret is rotated."""

    id: str
    name: str
    user: str  # the bound user; empty: counted under its own name
    roles: tuple[Role, ...]
    secrets: tuple[Secret, ...]  # the newest first
    created_at: int
    created_by: str
    rotated_at: int = 0
    revoked_at: int = 0
    revoked_by: str = ""


class ParsedApiKey(NamedTuple):
    """An API key as it is sent."""

    tenant: str
    id: str
    secret: str

    def __str__(self) -> str:
        return f"{API_KEY_PREFIX}{identity.encode_base64url(self.tenant.encode())}.{self.id}.{self.secret}"


# Compared with where there is nothing to compare with, so that every answer takes the same steps.
_DUMMY_SECRET = Secret(bytes(sha256().digest_size), until=-1)


def parse_api_key(text: str) -> ParsedApiKey | None:
    """Read an API key; None where it cannot be one."""
    found = _API_KEY_PATTERN.fullmatch(text) if len(text) <= API_KEY_CHARS_MAX else None
    tenant = _decode_tenant(found[1]) if found is not None else None
    return ParsedApiKey(tenant, found[2], found[3]) if found is not None and tenant is not None else None


def api_key_policy_name(key_id: str) -> str:
    """The name of the policy that an API key is."""
    if not isinstance(key_id, str) or not _KEY_ID_PATTERN.fullmatch(key_id):
        raise Invalid("API key", f"the id of an API key is {KEY_ID_CHARS} hex digits; send it as it is listed")
    return _POLICY_PREFIX + key_id


def is_api_key_policy(name: str) -> bool:
    return name.startswith(_POLICY_PREFIX)


def encode_api_key(key: ApiKey) -> bytes:
    return json.encode(key)


@lru_cache(1024)
def decode_api_key(body: bytes) -> ApiKey:
    try:
        return _decode_json(body)
    except msgspec.ValidationError:  # a role that only its writer knows
        raise NewerFormat("an API key is of a kind that this program does not know; upgrade it") from None


def secret_digest(secret: str) -> bytes:
    # A secret of 256 random bits needs no salt and no slow hash: there is nothing to guess.
    return sha256(secret.encode()).digest()


def new_api_key(*, id: str, name: str, user: str, roles: frozenset[Role], secret: str, by: str, now: int) -> ApiKey:
    if not roles:
        raise Invalid("roles", f"an API key has at least one role of {', '.join(Role)}; name one")
    return ApiKey(
        id=id,
        name=checked_name("name", name),
        user=checked_name("user", user) if user else "",
        roles=tuple(sorted(roles)),
        secrets=(Secret(secret_digest(secret)),),
        created_at=now,
        created_by=by,
    )


def is_valid_secret(key: ApiKey | None, secret: str, now: int) -> bool:
    """Whether a secret opens this key now."""
    return secret_valid_until(key, secret, now) is not None


def secret_valid_until(key: ApiKey | None, secret: str, now: int) -> int | None:
    """How long a secret opens this key (0: without end), None if it does not open it now.

    Unknown, revoked and wrong take the same steps.
    """
    digest = secret_digest(secret)
    kept = (*(key.secrets if key is not None else ()), _DUMMY_SECRET, _DUMMY_SECRET)[:SECRETS_MAX]
    until: int | None = None
    for one in kept:
        same = compare_digest(one.digest, digest)
        if same and (not one.until or now <= one.until):
            until = one.until
    return until if key is not None and not key.revoked_at else None


def rotated_api_key(key: ApiKey, secret: str, *, overlap_ms: int, now: int) -> ApiKey:
    """The same key under a new secret; the one before opens a while longer, any older one no more."""
    if not 0 <= overlap_ms <= ROTATION_OVERLAP_MS_MAX:
        raise Invalid("overlap", "an old secret is kept for 0 to 90 days; choose a time in between")
    if key.revoked_at:
        raise Invalid("API key", "this API key is revoked for good; create another")
    old = (replace(key.secrets[0], until=now + overlap_ms),) if overlap_ms else ()
    return replace(key, secrets=(Secret(secret_digest(secret)), *old), rotated_at=now)


def revoked_api_key(key: ApiKey, *, by: str, now: int) -> ApiKey:
    """The key shut for good; the first revocation is the one that is told."""
    return key if key.revoked_at else replace(key, revoked_at=now, revoked_by=by)


@lru_cache(_TENANT_CACHE_MAX)
def _decode_tenant(encoded: str) -> str | None:
    try:
        tenant = checked_name("tenant", identity.decode_base64url(encoded).decode())
    except ValueError:  # of base64, of UTF-8 or of the name
        return None
    # One spelling for each tenant: the spare bits of base64 must not make a second.
    return tenant if identity.encode_base64url(tenant.encode()) == encoded else None


_decode_json = msgspec.json.Decoder(ApiKey).decode
