"""Identities: computed once, where a command is made; they travel with it.

Every identity but a job's begins with a digest of the tenant, so that a tenant's facts are one range
of every index, and the parts are framed or hashed, so that no two (tenant, scope, key) collide. A short
key's own bytes stand in the identity: ordered keys make ordered index pages, which is twice as fast.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from typing import Final, Self, final

from msgspec import Struct

from .errors import Invalid

# Job ids as text and bytes; drawing them is the business of onejob.ids.


ID_BYTES: Final = 16

UUID_CHARS: Final = 36
UUID_PATTERN: Final = (
    "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"  # as a pattern; other languages read it too
)

_UUID_REGEX = re.compile(UUID_PATTERN)


def format_job_id(job_id: bytes) -> str:
    """Write an id in its dashed, lower-case form."""
    assert len(job_id) == ID_BYTES
    digits = job_id.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def parse_job_id(text: str) -> bytes:
    """Read an id in its dashed form, in any case."""
    if not isinstance(text, str) or not _UUID_REGEX.fullmatch(text):
        raise Invalid("job id", "a job id has the form 8-4-4-4-12 hex characters; send it as it was received")
    return bytes.fromhex(text.replace("-", ""))


# Actors: who did it, as the server derived it from the credential.


ACTOR_NAME_CHARS_MAX: Final = 200

# Controls, line and paragraph separators, direction overrides, lone surrogates: whatever could forge a line
# of a log. Spelled out rather than asked of str.isprintable, whose answer changes with Python's Unicode
# tables: an actor that one process has stored must be readable by all.
FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class ActorKind(StrEnum):
    USER = "user"
    CLIENT = "client"
    SYSTEM = "system"


@final
class Actor(Struct, frozen=True):
    """Who acted: `user:42`, `client:api_key_abc`, `system:sweep`."""

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
        """Read `kind:name`; the name may contain colons."""
        written, _, name = text.partition(":")
        try:
            kind = ActorKind(written)
        except ValueError as error:
            next_act = "an actor is user:NAME, client:NAME or system:NAME; write one of these"
            raise Invalid("actor", next_act) from error
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


# Base64 for names and paths, without its padding (RFC 4648, section 5).


def encode_base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode_base64url(text: str) -> bytes:
    """The bytes; ValueError where a text cannot be any. Several texts may mean the same bytes."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


NAME_CHARS_MAX = 100
# Of the 2 KiB of a job's head, this is for what callers choose. Plain ASCII at its longest fits in.
CALLER_TEXT_BYTES_MAX = 1400
CLIENT_ID_CHARS_MAX = 200  # so that `client_id:sequence:nonce` is a key, whatever the number
VAULT_SEPARATOR = "/"
GLOBAL_SCOPE = "queue"
# A job type called "queue" must not fall into the global scope of that name.
TYPE_QUEUE_SCOPE = "type:queue"
CALLBACK_TYPE = "onejob.notice"  # see notice.py; only the service makes and runs these
RESERVED_NAMES = (TYPE_QUEUE_SCOPE, CALLBACK_TYPE)

_TENANT_BYTES = 12
_DIGEST_BYTES = 20
SLOT_NONCE_BYTES = 16
_RESERVATION_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{48}")
_KEY_BYTES_INLINE_MAX = 64
_DIGEST_CACHE_MAX = 4096


def checked_name(what: str, text: str) -> str:
    """A tenant, user, type or scope: 1 to 100 printable characters."""
    if not isinstance(text, str) or not 1 <= len(text) <= NAME_CHARS_MAX or FORBIDDEN_CHARACTERS.search(text):
        raise Invalid(what, f"a {what} is 1 to {NAME_CHARS_MAX} printable characters; shorten or clean it")
    if text in RESERVED_NAMES:
        raise Invalid(what, f"{text!r} is reserved; choose another {what}")
    return text


def check_caller_text_size(*names: str, labels: bytes) -> None:
    """Names, key and labels stand in the head of a job: together they must fit in, in UTF-8."""
    chosen = "".join(names)
    # Each has its own limit in characters; only other scripts than ASCII take more bytes than these.
    if chosen.isascii():
        return
    size = len(chosen.encode()) + len(labels)
    if size > CALLER_TEXT_BYTES_MAX:
        raise Invalid(
            "names",
            f"tenant, type, scope, key, actor, user and labels of a job take together at most {CALLER_TEXT_BYTES_MAX} "
            f"bytes in UTF-8, and these take {size}; shorten them",
        )


def resolve_scope(type: str, scope: str | None) -> str:
    """The namespace of a key: the caller's own, else the job type."""
    if scope is not None:
        return checked_name("scope", scope)
    return TYPE_QUEUE_SCOPE if type == GLOBAL_SCOPE else type


def stream_scope(scope: str | tuple[str, str]) -> str:
    """The scope of a stream: a text, or an organisation and a vault of it, which are written organisation/vault."""
    if isinstance(scope, str):
        return checked_name("scope", scope)
    parts = scope if isinstance(scope, tuple) and len(scope) == 2 else ("", "")
    if not all(isinstance(part, str) and part for part in parts) or VAULT_SEPARATOR in parts[0]:
        message = "a scope is a text, or (organisation, vault); an organisation has no slash in it"
        raise Invalid("scope", message)
    return checked_name("scope", VAULT_SEPARATOR.join(parts))


def checked_client_id(text: str) -> str:
    """Who counts a sequence: 1 to 200 printable characters, colons and all."""
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
    """Identity of (tenant, scope, key); `owner` is the user where keys are not shared in a tenant."""
    raw = key.encode()
    if len(raw) <= _KEY_BYTES_INLINE_MAX:
        return _record_id_prefix(tenant, scope, owner) + b"\x00" + raw
    return _record_id_prefix(tenant, scope, owner) + b"\x01" + sha256(raw).digest()


def stream_id(tenant: str, scope: str, client_id: str) -> bytes:
    return tenant_prefix(tenant) + _digest("stream", scope, client_id)[:_DIGEST_BYTES]


@lru_cache(_DIGEST_CACHE_MAX)
def usage_id(tenant: str, user: str) -> bytes:
    return tenant_prefix(tenant) + _digest("tally", user)[:_DIGEST_BYTES]


def encode_reservation_id(usage: bytes, nonce: bytes) -> str:
    """The id of a reservation: it tells whose tally it stands on, so that the id alone finds it."""
    assert len(usage) == _TENANT_BYTES + _DIGEST_BYTES
    assert len(nonce) == SLOT_NONCE_BYTES
    return urlsafe_b64encode(usage[_TENANT_BYTES:] + nonce).decode()


def usage_id_of_reservation(tenant: str, reservation: str) -> bytes:
    """The tally that a reservation stands on."""
    if not isinstance(reservation, str) or not _RESERVATION_ID_PATTERN.fullmatch(reservation):
        raise Invalid("reservation", "the id of a reservation is 48 characters; send it as it was given")
    return tenant_prefix(tenant) + urlsafe_b64decode(reservation)[:_DIGEST_BYTES]


@lru_cache(_DIGEST_CACHE_MAX)
def policy_id(tenant: str, name: str) -> bytes:
    return tenant_prefix(tenant) + _digest("policy", name)[:_DIGEST_BYTES]


def _digest(*parts: str) -> bytes:
    framed = sha256()
    for part in parts:
        raw = part.encode()
        framed.update(len(raw).to_bytes(4, "big"))
        framed.update(raw)
    return framed.digest()
