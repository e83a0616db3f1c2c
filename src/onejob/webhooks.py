"""Signatures of webhook callbacks: signed with the secret of a tenant, verified by the receiver.

    Onejob-Delivery:  the id of the callback, the same on every repetition
    Onejob-Signature: t=<unix seconds>,v1=<hex of HMAC-SHA256 over "<t>.<body>">

After a rotation there are two `v1`, one for each secret, so that receivers can switch to the new one in between.
"""

import hmac
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, json

from . import audit
from .clock import SystemClock
from .core.credentials import ABSENT, LookUpPolicy, SetPolicy
from .core.identity import policy_id
from .core.replies import Missing, PolicyFound
from .engine import Engine
from .ids import Ids
from .ledger.base import LedgerBase
from .ledger.present import to_exception

DELIVERY_HEADER: Final = "Onejob-Delivery"
SIGNATURE_HEADER: Final = "Onejob-Signature"
TOLERANCE_SECONDS: Final = 300.0
POLICY_NAME: Final = "webhook"
SECRETS_MAX = 2
_SIGNATURE_CHARS_MAX = 1000


class StoredSecrets(Struct, frozen=True):
    """The newest first."""

    secrets: tuple[str, ...] = ()


def sign(secrets: Sequence[str], body: bytes, at: int) -> str:
    """The Onejob-Signature header of a body that is sent at this unix time."""
    return ",".join([f"t={at}", *(f"v1={_digest(secret, body, at)}" for secret in secrets)])


def verify_webhook(
    secret: str, signature: str, body: bytes, *, tolerance: float = TOLERANCE_SECONDS, now: float | None = None
) -> bool:
    """True if the body was signed with the secret, at most `tolerance` seconds ago."""
    if len(signature) > _SIGNATURE_CHARS_MAX or not signature.isascii():
        return False
    parts = [part.strip().partition("=")[::2] for part in signature.split(",")]
    times = [value for name, value in parts if name == "t"]
    if len(times) != 1 or not times[0].isdigit() or len(times[0]) > 15:
        return False
    at = int(times[0])
    current = SystemClock().wall_ms() / 1000 if now is None else now
    expected = _digest(secret, body, at)
    # All are compared, so that the timing does not depend on which one matches.
    matches = [hmac.compare_digest(expected, value) for name, value in parts if name == "v1"]
    return any(matches) and abs(current - at) <= tolerance


async def load_secrets(engine: Engine, tenant: str) -> tuple[str, ...]:
    """The secrets that sign the callbacks of a tenant, the newest first; empty if none was created."""
    look = LookUpPolicy(tenant=tenant, policy_id=policy_id(tenant, POLICY_NAME))
    (reply,) = await engine.execute([look])
    if isinstance(reply, PolicyFound):
        return json.decode(reply.policy.body, type=StoredSecrets).secrets
    if isinstance(reply, Missing):
        return ()
    raise to_exception(reply, "")


async def load_or_create_secrets(engine: Engine, tenant: str, ids: Ids, *, actor: str) -> tuple[str, ...]:
    """The secrets of a tenant; if it has none, a new one, which `onejob webhook-secret rotate` replaces by a known one."""
    if secrets := await load_secrets(engine, tenant):
        return secrets
    created = (ids.secret(),)
    (reply,) = await engine.execute([_set_secrets(tenant, created, expected_version=ABSENT)])
    if isinstance(reply, PolicyFound):
        audit.write_audit_record("webhook-secret", tenant=tenant, actor=actor)
        return created
    return await load_secrets(engine, tenant)  # another process was faster


def _set_secrets(tenant: str, secrets: tuple[str, ...], *, expected_version: int | None = None) -> SetPolicy:
    return SetPolicy(
        tenant=tenant,
        policy_id=policy_id(tenant, POLICY_NAME),
        name=POLICY_NAME,
        body=json.encode(StoredSecrets(secrets)),
        expected_version=expected_version,
    )


class WebhookSecret(LedgerBase):
    """The webhook secret of the caller's tenant."""

    async def rotate(self) -> str:
        """Create a new secret; the previous one signs as well until the next rotation."""
        tenant, secret = self._caller.tenant, self._runtime.ids.secret()
        previous = await load_secrets(self._gate, tenant)
        reply = await self._execute(_set_secrets(tenant, (secret, *previous)[:SECRETS_MAX]))
        if not isinstance(reply, PolicyFound):
            raise to_exception(reply, "")
        audit.write_audit_record("webhook-secret", tenant=tenant, actor=self._caller.actor)
        return secret


def _digest(secret: str, body: bytes, at: int) -> str:
    return hmac.new(secret.encode(), b"%d.%b" % (at, body), "sha256").hexdigest()
