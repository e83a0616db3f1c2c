"""Gate credentials: which gates may send commands to a manager. A gate acts for all tenants, unless its credential names some.

The text of one is `ojg_ID.SECRET`: twelve hex digits that name it, and 256 random bits of which only a digest is stored. It
is a policy `gate/ID` of the system tenant, so that a revocation holds at every manager of the ledger.
"""

import re
from typing import NamedTuple

import msgspec
from msgspec import Struct, json
from msgspec.structs import replace

from .credentials import (
    GATE_KEY_POLICY_PREFIX,
    KEY_ID_CHARS,
    Secret,
    rotated_secrets,
    secret_digest,
    secret_valid_until,
)
from .errors import Invalid
from .facts import NewerFormat
from .identity import checked_name

GATE_KEY_PREFIX = "ojg_"
TENANTS_MAX = 100

_TEXT = re.compile(rf"{GATE_KEY_PREFIX}([0-9a-f]{{{KEY_ID_CHARS}}})\.([A-Za-z0-9_-]{{43}})")
_KEY_ID = re.compile(rf"[0-9a-f]{{{KEY_ID_CHARS}}}")


class GateKey(Struct, frozen=True):
    id: str
    name: str
    secrets: tuple[Secret, ...]  # newest first
    created_at: int
    created_by: str
    tenants: tuple[str, ...] = ()  # the only ones that it may act for; empty: all
    expires_at: int = 0  # 0: never
    rotated_at: int = 0
    revoked_at: int = 0
    revoked_by: str = ""
    is_site: bool = False  # of another data centre: it may deliver jobs and ask for them, and nothing else

    def may_act_for(self, tenant: str | None) -> bool:
        """`None`: for no tenant in particular."""
        return not self.tenants or tenant in self.tenants

    def is_valid(self, secret: str, now: int) -> bool:
        return secret_valid_until(self, secret, now) is not None and not (self.expires_at and now > self.expires_at)


class ParsedGateKey(NamedTuple):
    id: str
    secret: str

    def __str__(self) -> str:
        return f"{GATE_KEY_PREFIX}{self.id}.{self.secret}"


def parse_gate_key(text: str) -> ParsedGateKey | None:
    match = _TEXT.fullmatch(text)
    return None if match is None else ParsedGateKey(match[1], match[2])


def gate_key_policy_name(key_id: str) -> str:
    if not isinstance(key_id, str) or not _KEY_ID.fullmatch(key_id):
        raise Invalid("gate key", f"the id of a gate key is {KEY_ID_CHARS} hex digits; send it as it is listed")
    return GATE_KEY_POLICY_PREFIX + key_id


def new_gate_key(
    *,
    id: str,
    name: str,
    secret: str,
    by: str,
    now: int,
    tenants: tuple[str, ...] = (),
    lifetime_ms: int = 0,
    is_site: bool = False,
) -> GateKey:
    if len(tenants) > TENANTS_MAX:
        raise Invalid("tenants", f"a gate key names at most {TENANTS_MAX} tenants; create several")
    if is_site and not tenants:
        raise Invalid("tenants", "the key of a site names the tenants that it delivers for; give them")
    return GateKey(
        id=id,
        name=checked_name("name", name),
        secrets=(Secret(secret_digest(secret)),),
        created_at=now,
        created_by=by,
        tenants=tuple(sorted({checked_name("tenant", tenant) for tenant in tenants})),
        expires_at=now + lifetime_ms if lifetime_ms else 0,
        is_site=is_site,
    )


def rotated_gate_key(key: GateKey, secret: str, *, overlap_ms: int, now: int) -> GateKey:
    return replace(key, secrets=rotated_secrets(key, secret, overlap_ms=overlap_ms, now=now), rotated_at=now)


def revoked_gate_key(key: GateKey, *, by: str, now: int) -> GateKey:
    return key if key.revoked_at else replace(key, revoked_at=now, revoked_by=by)


def encode_gate_key(key: GateKey) -> bytes:
    return json.encode(key)


def decode_gate_key(body: bytes) -> GateKey:
    try:
        return json.decode(body, type=GateKey)
    except msgspec.ValidationError:
        raise NewerFormat("a gate key is stored in a format that this program does not know; upgrade it") from None
