"""Identities: computed once, where a command is made; they travel with it.

Every identity but a job's begins with a digest of the tenant, so that a tenant's facts are one range
of every index, and the parts are framed or hashed, so that no two (tenant, scope, key) collide. A short
key's own bytes stand in the identity: ordered keys make ordered index pages, which is twice as fast.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from hashlib import sha256

from .actor import FORBIDDEN_CHARACTERS
from .invalid import Invalid

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
    if (
        not isinstance(text, str)
        or not 1 <= len(text) <= CLIENT_ID_CHARS_MAX
        or FORBIDDEN_CHARACTERS.search(text)
    ):
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
