"""Signatures of webhook callbacks: signed with the secret of a tenant, verified by the receiver.

They follow Standard Webhooks (https://www.standardwebhooks.com), for which there are verifiers in most languages:

    webhook-id:        the id of the callback, the same on every retry
    webhook-timestamp: unix seconds
    webhook-signature: v1,<base64 of HMAC-SHA256 over "<id>.<timestamp>.<body>">

and the two headers of earlier versions are sent as well:

    Onejob-Delivery:   the same as webhook-id
    Onejob-Signature:  t=<unix seconds>,v1=<hex of HMAC-SHA256 over "<t>.<body>">

A secret is `whsec_` and a key in base64. The key of webhook-signature is these bytes; that of Onejob-Signature, and of
both for a secret of an earlier version without the prefix, is the text of the secret. After a rotation there is a `v1` for
each of the last three secrets, so that receivers can switch to the new one in between. Three, because a rotation whose
answer was lost is repeated: the secret that receivers know is the third then.
"""

import binascii
import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, json

from . import audit
from .clock import SystemClock
from .core.credentials import ABSENT, LookUpPolicy
from .core.facts import Policy
from .core.identity import decode_base64url, policy_id
from .core.replies import Missing, PolicyFound
from .engine import Engine
from .ids import Ids
from .ledger.base import LedgerBase
from .runtime.policies import change_policy, decode_body, try_set_policy
from .runtime.present import to_exception

ID_HEADER: Final = "webhook-id"
TIMESTAMP_HEADER: Final = "webhook-timestamp"
STANDARD_SIGNATURE_HEADER: Final = "webhook-signature"
SECRET_PREFIX: Final = "whsec_"
DELIVERY_HEADER: Final = "Onejob-Delivery"
SIGNATURE_HEADER: Final = "Onejob-Signature"
TOLERANCE_SECONDS: Final = 300.0
POLICY_NAME: Final = "webhook"
SECRETS_MAX = 3
_SIGNATURE_CHARS_MAX = 1000
_TIMESTAMP_DIGITS_MAX = 15


class StoredSecrets(Struct, frozen=True):
    """The newest first."""

    secrets: tuple[str, ...] = ()


def signed_headers(secrets: Sequence[str], body: bytes, *, delivery: str, at: int) -> dict[str, str]:
    """The headers of a body that is sent at this unix time."""
    return {
        ID_HEADER: delivery,
        TIMESTAMP_HEADER: str(at),
        STANDARD_SIGNATURE_HEADER: " ".join(_standard_signature(secret, delivery, at, body) for secret in secrets),
        DELIVERY_HEADER: delivery,
        SIGNATURE_HEADER: sign(secrets, body, at),
    }


def sign(secrets: Sequence[str], body: bytes, at: int) -> str:
    """The Onejob-Signature header of a body that is sent at this unix time."""
    return ",".join([f"t={at}", *(f"v1={_digest(secret, body, at)}" for secret in secrets)])


def verify_webhook(
    secret: str,
    headers: Mapping[str, str] | str,
    body: bytes,
    *,
    tolerance: float = TOLERANCE_SECONDS,
    now: float | None = None,
) -> bool:
    """True if the body was signed with the secret, at most `tolerance` seconds ago.

    `headers` are those of the request, with names in any case; or the value of its Onejob-Signature header.
    """
    current = SystemClock().wall_ms() / 1000 if now is None else now
    if isinstance(headers, str):
        return _verify_onejob_signature(secret, headers, body, tolerance, current)
    fields = {name.lower(): value for name, value in headers.items()}
    id, timestamp, signatures = (
        fields.get(name, "") for name in (ID_HEADER, TIMESTAMP_HEADER, STANDARD_SIGNATURE_HEADER)
    )
    if not id or not id.isascii() or not _is_timestamp(timestamp) or not _is_signature_text(signatures):
        return False
    expected = _standard_signature(secret, id, int(timestamp), body)
    # All are compared, so that the timing does not depend on which one matches.
    matches = [hmac.compare_digest(expected, signature) for signature in signatures.split(" ")]
    return any(matches) and abs(current - int(timestamp)) <= tolerance


def _verify_onejob_signature(secret: str, signature: str, body: bytes, tolerance: float, current: float) -> bool:
    if not _is_signature_text(signature):
        return False
    parts = [part.strip().partition("=")[::2] for part in signature.split(",")]
    times = [value for name, value in parts if name == "t"]
    if len(times) != 1 or not _is_timestamp(times[0]):
        return False
    at = int(times[0])
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
    created = (_new_secret(ids),)
    body = json.encode(StoredSecrets(created))
    if await try_set_policy(engine, tenant, POLICY_NAME, body, expected_version=ABSENT) is not None:
        audit.write_audit_record("webhook-secret", tenant=tenant, actor=actor)
        return created
    return await load_secrets(engine, tenant)  # another process was faster


def _new_secret(ids: Ids) -> str:
    return SECRET_PREFIX + b64encode(decode_base64url(ids.secret())).decode()


class WebhookSecret(LedgerBase):
    """The webhook secret of the caller's tenant."""

    async def rotate(self) -> str:
        """Create a new secret; the two before it sign as well."""
        tenant = self._caller.tenant
        secret = _new_secret(self._runtime.ids)

        def rotated(policy: Policy | None, now: int) -> bytes:
            previous = () if policy is None else decode_body(policy, StoredSecrets).secrets
            return json.encode(StoredSecrets((secret, *previous)[:SECRETS_MAX]))

        await change_policy(self._gate, tenant, POLICY_NAME, rotated)
        audit.write_audit_record("webhook-secret", tenant=tenant, actor=self._caller.actor)
        return secret


def _digest(secret: str, body: bytes, at: int) -> str:
    return hmac.new(secret.encode(), b"%d.%b" % (at, body), "sha256").hexdigest()


def _standard_signature(secret: str, id: str, at: int, body: bytes) -> str:
    digest = hmac.digest(_standard_key(secret), b"%b.%d.%b" % (id.encode(), at, body), "sha256")
    return f"v1,{b64encode(digest).decode()}"


def _standard_key(secret: str) -> bytes:
    if secret.startswith(SECRET_PREFIX):
        try:
            return b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except (binascii.Error, ValueError):
            pass  # not a secret of ours: nothing was signed with its text
    return secret.encode()


def _is_timestamp(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _TIMESTAMP_DIGITS_MAX


def _is_signature_text(text: str) -> bool:
    return text.isascii() and 0 < len(text) <= _SIGNATURE_CHARS_MAX
