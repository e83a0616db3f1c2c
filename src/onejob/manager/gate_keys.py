"""Gate credentials of a ledger: create, list, rotate, revoke and verify them on its engine."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Struct

from onejob import audit
from onejob.core.credentials import GATE_KEY_POLICY_PREFIX, secret_valid_until
from onejob.core.gate_keys import (
    GateKey,
    ParsedGateKey,
    decode_gate_key,
    encode_gate_key,
    gate_key_policy_name,
    new_gate_key,
    parse_gate_key,
    revoked_gate_key,
    rotated_gate_key,
)
from onejob.core.identity import SYSTEM_TENANT
from onejob.core.timestamps import to_duration_ms, to_utc
from onejob.engine import Engine
from onejob.ids import Ids
from onejob.runtime.credentials import CredentialKind, CredentialStore

OVERLAP_DEFAULT = timedelta(days=1)

_GATE_KEY = CredentialKind(
    noun="gate key",
    command="gatekey",
    policy_prefix=GATE_KEY_POLICY_PREFIX,
    policy_name=gate_key_policy_name,
    encode=encode_gate_key,
    decode=decode_gate_key,
)


class GateKeyView(Struct, frozen=True, rename="camel"):
    """A gate credential without its secrets."""

    id: str
    name: str
    tenants: tuple[str, ...]
    is_site: bool
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    rotated_at: datetime | None
    old_secret_until: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


class NewGateKey(NamedTuple):
    """A credential and its text, which cannot be read again."""

    key: GateKeyView
    text: str


class GateKeys:
    def __init__(self, engine: Engine, ids: Ids, *, actor: str) -> None:
        self._ids = ids
        self._actor = actor
        self._store = CredentialStore(engine, ids, SYSTEM_TENANT, _GATE_KEY)

    async def create(
        self, name: str, *, tenants: Sequence[str] = (), lifetime: timedelta | None = None, is_site: bool = False
    ) -> NewGateKey:
        lifetime_ms = 0 if lifetime is None else to_duration_ms("lifetime", lifetime)
        key, secret = await self._store.create(
            lambda id, secret, now: new_gate_key(
                id=id,
                name=name,
                secret=secret,
                by=self._actor,
                now=now,
                tenants=tuple(tenants),
                lifetime_ms=lifetime_ms,
                is_site=is_site,
            )
        )
        self._audit("create", key)
        return NewGateKey(_to_view(key), str(ParsedGateKey(key.id, secret)))

    async def list(self) -> Sequence[GateKeyView]:
        """All of them, also revoked ones, oldest first."""
        return [_to_view(key) for key in await self._store.list()]

    async def rotate(self, key_id: str, *, overlap: timedelta = OVERLAP_DEFAULT) -> NewGateKey:
        """Give a credential a new secret. The old one stays valid for the overlap."""
        secret = self._ids.secret()
        overlap_ms = to_duration_ms("overlap", overlap)
        key = await self._store.change(
            key_id, lambda key, now: rotated_gate_key(key, secret, overlap_ms=overlap_ms, now=now)
        )
        self._audit("rotate", key)
        return NewGateKey(_to_view(key), str(ParsedGateKey(key_id, secret)))

    async def revoke(self, key_id: str) -> GateKeyView:
        key = await self._store.change(key_id, lambda key, now: revoked_gate_key(key, by=self._actor, now=now))
        self._audit("revoke", key)
        return _to_view(key)

    async def verify(self, text: str) -> GateKey | None:
        """The credential with this text, if it is valid now; one point read."""
        parsed = parse_gate_key(text)
        if parsed is None:
            secret_valid_until(None, text, 0)
            return None
        key, now = await self._store.load(parsed.id)
        if key is None:
            secret_valid_until(None, parsed.secret, now)
            return None
        return key if key.is_valid(parsed.secret, now) else None

    def _audit(self, action: str, key: GateKey) -> None:
        tenants = ",".join(key.tenants) or "all"
        audit.write_audit_record(
            f"gatekey {action}", tenant=SYSTEM_TENANT, actor=self._actor, id=key.id, name=key.name, tenants=tenants
        )


def _to_view(key: GateKey) -> GateKeyView:
    return GateKeyView(
        id=key.id,
        name=key.name,
        tenants=key.tenants,
        is_site=key.is_site,
        created_at=to_utc(key.created_at),
        created_by=key.created_by,
        expires_at=to_utc(key.expires_at) if key.expires_at else None,
        rotated_at=to_utc(key.rotated_at) if key.rotated_at else None,
        old_secret_until=to_utc(key.secrets[1].until) if len(key.secrets) > 1 else None,
        revoked_at=to_utc(key.revoked_at) if key.revoked_at else None,
        revoked_by=key.revoked_by or None,
    )
