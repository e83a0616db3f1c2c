"""Gate credentials of a ledger: create, list, rotate, revoke and verify them on its engine."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec import Struct

from onejob import audit
from onejob.core.credentials import ABSENT, KEY_ID_CHARS, LookUpPolicy, secret_valid_until
from onejob.core.facts import Kind, NewerFormat, Policy
from onejob.core.gate_keys import (
    POLICY_PREFIX,
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
from onejob.core.identity import SYSTEM_TENANT, policy_id
from onejob.core.replies import Missing, PolicyFound
from onejob.core.timestamps import to_duration_ms, to_utc
from onejob.engine import PAGE_MAX, Engine, ListFacts
from onejob.errors import NotFound, Outdated, Unavailable
from onejob.ids import Ids
from onejob.ledger.policies import try_set_policy
from onejob.ledger.present import to_exception

OVERLAP_DEFAULT = timedelta(days=1)
_ATTEMPTS_MAX = 100


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
        self._engine = engine
        self._ids = ids
        self._actor = actor

    async def create(
        self, name: str, *, tenants: Sequence[str] = (), lifetime: timedelta | None = None, is_site: bool = False
    ) -> NewGateKey:
        lifetime_ms = 0 if lifetime is None else to_duration_ms("lifetime", lifetime)
        for _ in range(_ATTEMPTS_MAX):
            key_id, secret = self._ids.nonce()[:KEY_ID_CHARS], self._ids.secret()
            before = await self._look_up(key_id)
            if not isinstance(before, Missing):
                continue  # the id is in use: draw another
            key = new_gate_key(
                id=key_id,
                name=name,
                secret=secret,
                by=self._actor,
                now=before.at,
                tenants=tuple(tenants),
                lifetime_ms=lifetime_ms,
                is_site=is_site,
            )
            if await self._try_write(key, ABSENT):
                self._audit("create", key)
                return NewGateKey(_to_view(key), str(ParsedGateKey(key_id, secret)))
        raise Unavailable("no gate key could be created: nothing was done; retry")

    async def list(self) -> Sequence[GateKeyView]:
        """All of them, also revoked ones, oldest first."""
        keys: list[GateKey] = []
        after = b""
        while True:
            query = ListFacts(tenant=SYSTEM_TENANT, kind=Kind.POLICY, after=after, limit=PAGE_MAX)
            page = await self._engine.scan(query)
            policies = [fact for fact in page.items if isinstance(fact, Policy)]
            keys += (_decode(one.body) for one in policies if one.name.startswith(POLICY_PREFIX))
            if not page.more:
                return [_to_view(key) for key in sorted(keys, key=lambda key: (key.created_at, key.id))]
            after = policies[-1].id

    async def rotate(self, key_id: str, *, overlap: timedelta = OVERLAP_DEFAULT) -> NewGateKey:
        """Give a credential a new secret. The old one stays valid for the overlap."""
        secret = self._ids.secret()
        overlap_ms = to_duration_ms("overlap", overlap)
        key = await self._change(key_id, lambda key, now: rotated_gate_key(key, secret, overlap_ms=overlap_ms, now=now))
        self._audit("rotate", key)
        return NewGateKey(_to_view(key), str(ParsedGateKey(key_id, secret)))

    async def revoke(self, key_id: str) -> GateKeyView:
        key = await self._change(key_id, lambda key, now: revoked_gate_key(key, by=self._actor, now=now))
        self._audit("revoke", key)
        return _to_view(key)

    async def verify(self, text: str) -> GateKey | None:
        """The credential with this text, if it is valid now; one point read."""
        parsed = parse_gate_key(text)
        if parsed is None:
            secret_valid_until(None, text, 0)
            return None
        match await self._look_up(parsed.id):
            case PolicyFound(policy, at):
                key = _decode(policy.body)
                return key if key.is_valid(parsed.secret, at) else None
            case Missing(at):
                secret_valid_until(None, parsed.secret, at)
                return None

    async def _change(self, key_id: str, change: Callable[[GateKey, int], GateKey]) -> GateKey:
        """Change a stored credential; start over if another caller changed it meanwhile."""
        for _ in range(_ATTEMPTS_MAX):
            before = await self._look_up(key_id)
            if isinstance(before, Missing):
                raise NotFound("no such gate key; `onejob gatekey list` shows those of this ledger")
            key = _decode(before.policy.body)
            changed = change(key, before.at)
            if changed == key or await self._try_write(changed, before.policy.version):
                return changed
        raise Unavailable("other callers keep changing this gate key: nothing was done; retry")

    async def _look_up(self, key_id: str) -> PolicyFound | Missing:
        (reply,) = await self._engine.execute([LookUpPolicy(tenant=SYSTEM_TENANT, policy_id=_policy_id(key_id))])
        if isinstance(reply, (PolicyFound, Missing)):
            return reply
        raise to_exception(reply, "")

    async def _try_write(self, key: GateKey, expected: int) -> bool:
        """False if the stored version is not the expected one."""
        name = gate_key_policy_name(key.id)
        body = encode_gate_key(key)
        return await try_set_policy(self._engine, SYSTEM_TENANT, name, body, expected_version=expected) is not None

    def _audit(self, action: str, key: GateKey) -> None:
        tenants = ",".join(key.tenants) or "all"
        audit.write_audit_record(
            f"gatekey {action}", tenant=SYSTEM_TENANT, actor=self._actor, id=key.id, name=key.name, tenants=tenants
        )


def _policy_id(key_id: str) -> bytes:
    return policy_id(SYSTEM_TENANT, gate_key_policy_name(key_id))


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


def _decode(body: bytes) -> GateKey:
    try:
        return decode_gate_key(body)
    except NewerFormat as error:
        raise Outdated(str(error)) from error
