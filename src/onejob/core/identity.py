"""Identities: the ids of facts, the text form of job ids, actors, and the names that callers choose.

The ids of facts are computed once, where a command is made, and are part of it. Every id but a job's begins with a
digest of the tenant, so that a tenant's facts are one range of every index. The parts are length-prefixed or hashed, so
that no two (tenant, scope, key) collide. A short key is part of its id byte for byte: ordered keys make ordered index
pages, which is twice as fast.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Final, Self, final

from msgspec import Struct

from .errors import Invalid
from .facts import JOB_ID_BYTES

NAME_CHARS_MAX = 100
ACTOR_NAME_CHARS_MAX: Final = 200
CLIENT_ID_CHARS_MAX = 200  # so that `client_id:sequence:nonce` is a valid key, whatever the number
CALLER_TEXT_BYTES_MAX = 1400  # the share of a job row (2 KiB) for what callers choose; the longest ASCII names fit
UUID_CHARS: Final = 36
UUID_PATTERN: Final = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # also published in JSON schemas
VAULT_SEPARATOR = "/"
GLOBAL_SCOPE = "queue"
# The default scope of a job type called "queue", which must not fall into the global scope of that name.
TYPE_QUEUE_SCOPE = "type:queue"
API_KEY_USER_PREFIX = "api_key:"  # the namespace of the users that are API keys; no token may claim a user in it
CALLBACK_TYPE = "onejob.callback"  # see callback.py; only the service creates and runs these jobs
SITE_TYPE_PREFIX = "onejob.site."  # see sites.py; the same
SCHEDULE_SCOPE = "schedule"  # of the keys of ticks, `NAME@2026-11-17T02:00:00Z`
SCHEDULE_ACTOR = "system:schedule"  # no credential has an actor of the system
RESERVED_NAMES = (TYPE_QUEUE_SCOPE, CALLBACK_TYPE)
SYSTEM_TENANT = ""  # owns what belongs to no tenant; no caller can name it
SETTINGS_POLICY_NAME = "settings"  # of the system tenant; see ledger_settings.py
SLOT_NONCE_BYTES = 16

# Controls, line and paragraph separators, direction overrides, lone surrogates: whatever could forge a line of a log.
# Written out, because the answer of str.isprintable changes with Python's Unicode tables: a name that one process has
# stored must be valid in all.
FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

_TICK_KEY = re.compile(r".*@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.DOTALL | re.ASCII)
_UUID_REGEX = re.compile(UUID_PATTERN)
_RESERVATION_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{48}")
_TENANT_BYTES = 12
_DIGEST_BYTES = 20
_KEY_BYTES_INLINE_MAX = 64
_DIGEST_CACHE_MAX = 4096


def format_job_id(job_id: bytes) -> str:
    """The dashed, lower-case form of a job id."""
    assert len(job_id) == JOB_ID_BYTES
    digits = job_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_job_id(text: str) -> bytes:
    """Parse the dashed form of a job id, in any case."""
    if not isinstance(text, str) or not _UUID_REGEX.fullmatch(text):
        raise Invalid("job id", "a job id has the form 8-4-4-4-12 hex characters; send it as it was received")
    return bytes.fromhex(text.replace("-", ""))


def created_ms(job_id: bytes) -> int:
    """The time in a job id, by the clock of the process that drew it. Nothing is decided by it."""
    return int.from_bytes(job_id[:6], "big")


class ActorKind(StrEnum):
    USER = "user"
    CLIENT = "client"
    SYSTEM = "system"


@final
class Actor(Struct, frozen=True):
    """The person or program that acted, from the credential: `user:42`, `client:api_key_abc`, `system:sweep`."""

    kind: ActorKind
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.kind, ActorKind):
            raise Invalid("actor", "the kind of an actor is user, client or system; choose one")
        if not isinstance(self.name, str) or not 0 < len(self.name) <= ACTOR_NAME_CHARS_MAX:
            raise Invalid("actor", f"the name of an actor has 1 to {ACTOR_NAME_CHARS_MAX} characters; give one")
        if FORBIDDEN_CHARACTERS.search(self.name):
            raise Invalid("actor", "the name of an actor has only printable characters; clean it")

    @classmethod
    def user(cls, name: str) -> Self:
        return cls(ActorKind.USER, name)

    @classmethod
    def client(cls, name: str) -> Self:
        return cls(ActorKind.CLIENT, name)

    @classmethod
    def system(cls, name: str) -> Self:
        return cls(ActorKind.SYSTEM, name)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `kind:name`; the name may contain colons."""
        prefix, _, name = text.partition(":")
        try:
            kind = ActorKind(prefix)
        except ValueError as error:
            message = "an actor is user:NAME, client:NAME or system:NAME; write one of these"
            raise Invalid("actor", message) from error
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def plain_str(text: str) -> str:
    """Of an instance of a subclass of `str` only the text; what is not text is returned as it is, to be refused.

    A subclass may define what it is equal to. A cache of ids, a dictionary or a comparison would then take it for another text.
    """
    return str.__str__(text) if isinstance(text, str) else text


def checked_name(what: str, text: str) -> str:
    """The name of a tenant, user, type or scope, if it is 1 to 100 printable characters."""
    text = plain_str(text)
    if not isinstance(text, str) or not 1 <= len(text) <= NAME_CHARS_MAX or FORBIDDEN_CHARACTERS.search(text):
        raise Invalid(what, f"a {what} is 1 to {NAME_CHARS_MAX} printable characters; shorten or clean it")
    if text in RESERVED_NAMES or is_service_type(text):
        raise Invalid(what, f"{text!r} is reserved; choose another {what}")
    return text


def is_service_type(type: str) -> bool:
    """True for the types of the jobs that the service creates for itself and runs itself: callbacks, deliveries to sites."""
    return type == CALLBACK_TYPE or type.startswith(SITE_TYPE_PREFIX)


def is_tick_key(scope: str, key: str) -> bool:
    """True for the key of a schedule's tick."""
    return scope == SCHEDULE_SCOPE and _TICK_KEY.fullmatch(key) is not None


def check_key_owner(scope: str, key: str, actor: str) -> None:
    """Refuse the key of a tick to all but the scheduler: a caller that took it first would silence the schedule."""
    if scope == SCHEDULE_SCOPE and actor != SCHEDULE_ACTOR and is_tick_key(scope, key):
        raise Invalid(
            "key", f"keys like {key!r} in the scope {scope!r} belong to the scheduler; choose another key or scope"
        )


def api_key_user(name: str) -> str:
    """The user that the jobs of an API key count for if it is bound to none: never the `sub` of a token."""
    return API_KEY_USER_PREFIX + name


def checked_token_user(text: str) -> str:
    """The `sub` of a token, if it names a user outside the namespace of API keys."""
    user = checked_name("user", text)
    if user.startswith(API_KEY_USER_PREFIX):
        raise Invalid("user", f"users whose names begin with {API_KEY_USER_PREFIX!r} are API keys; choose another name")
    return user


def check_caller_text_size(*names: str, labels: bytes) -> None:
    """Refuse names, key and labels that do not fit into the job row together, in UTF-8."""
    text = "".join(names)
    # Each has its own limit in characters; only text beyond ASCII takes more bytes than that.
    if text.isascii():
        return
    size = len(text.encode()) + len(labels)
    if size > CALLER_TEXT_BYTES_MAX:
        raise Invalid(
            "names",
            f"tenant, type, scope, key, actor, user and labels of a job take together at most {CALLER_TEXT_BYTES_MAX} "
            f"bytes in UTF-8, and these take {size}; shorten them",
        )


def resolve_scope(type: str, scope: str | None) -> str:
    """The namespace of a key: the given scope, else the job type."""
    if scope is not None:
        return checked_name("scope", scope)
    return TYPE_QUEUE_SCOPE if type == GLOBAL_SCOPE else type


def stream_scope(scope: str | tuple[str, str]) -> str:
    """The scope of a stream: a text, or (organisation, vault), which becomes organisation/vault."""
    if isinstance(scope, str):
        return checked_name("scope", scope)
    parts = scope if isinstance(scope, tuple) and len(scope) == 2 else ("", "")
    if not all(isinstance(part, str) and part for part in parts) or VAULT_SEPARATOR in parts[0]:
        message = "a scope is a text, or (organisation, vault); an organisation has no slash in it"
        raise Invalid("scope", message)
    return checked_name("scope", VAULT_SEPARATOR.join(parts))


def checked_client_id(text: str) -> str:
    """The id of a sequenced client, if it is 1 to 200 printable characters; colons are allowed."""
    text = plain_str(text)
    if not isinstance(text, str) or not 1 <= len(text) <= CLIENT_ID_CHARS_MAX or FORBIDDEN_CHARACTERS.search(text):
        message = f"a client id is 1 to {CLIENT_ID_CHARS_MAX} printable characters; shorten or clean it"
        raise Invalid("client id", message)
    return text


@lru_cache(_DIGEST_CACHE_MAX)
def tenant_prefix(tenant: str) -> bytes:
    return sha256(tenant.encode()).digest()[:_TENANT_BYTES]


@lru_cache(_DIGEST_CACHE_MAX)
def _record_id_prefix(tenant: str, scope: str, owner: str) -> bytes:
    return tenant_prefix(tenant) + _digest("record", scope, owner)[:_TENANT_BYTES]


def record_id(tenant: str, scope: str, key: str, owner: str = "") -> bytes:
    """The id of (tenant, scope, key); `owner` is the user where users of a tenant do not share keys."""
    if owner and is_tick_key(scope, key):
        owner = ""  # one tick is one job, whoever runs the workers
    raw = key.encode()
    if len(raw) <= _KEY_BYTES_INLINE_MAX:
        return _record_id_prefix(tenant, scope, owner) + b"\x00" + raw
    return _record_id_prefix(tenant, scope, owner) + b"\x01" + sha256(raw).digest()


def stream_id(tenant: str, scope: str, client_id: str) -> bytes:
    return tenant_prefix(tenant) + _digest("stream", scope, client_id)[:_DIGEST_BYTES]


@lru_cache(_DIGEST_CACHE_MAX)
def usage_id(tenant: str, user: str) -> bytes:
    return tenant_prefix(tenant) + _digest("usage", user)[:_DIGEST_BYTES]


def encode_reservation_id(usage: bytes, nonce: bytes) -> str:
    """The id of a reservation. It contains the id of its usage, so that the id alone finds it."""
    assert len(usage) == _TENANT_BYTES + _DIGEST_BYTES
    assert len(nonce) == SLOT_NONCE_BYTES
    return urlsafe_b64encode(usage[_TENANT_BYTES:] + nonce).decode()


def is_reservation_id(text: object) -> bool:
    return isinstance(text, str) and _RESERVATION_ID_PATTERN.fullmatch(text) is not None


def usage_id_of_reservation(tenant: str, reservation: str) -> bytes:
    if not is_reservation_id(reservation):
        raise Invalid("reservation", "the id of a reservation is 48 characters; send it as it was received")
    return tenant_prefix(tenant) + urlsafe_b64decode(reservation)[:_DIGEST_BYTES]


@lru_cache(_DIGEST_CACHE_MAX)
def policy_id(tenant: str, name: str) -> bytes:
    return tenant_prefix(tenant) + _digest("policy", name)[:_DIGEST_BYTES]


def memo_range(tenant: str, job_id: bytes) -> bytes:
    """The common prefix of a job's memo ids."""
    return tenant_prefix(tenant) + job_id


def memo_id(tenant: str, job_id: bytes, name: str) -> bytes:
    return memo_range(tenant, job_id) + _digest("memo", name)[:_DIGEST_BYTES]


def _digest(*parts: str) -> bytes:
    digest = sha256()
    for part in parts:
        raw = part.encode()
        digest.update(len(raw).to_bytes(4, "big"))
        digest.update(raw)
    return digest.digest()


def encode_base64url(data: bytes) -> str:
    """Base64 for names and paths, without padding (RFC 4648, section 5)."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """Raises ValueError on malformed text. Several texts may mean the same bytes."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
