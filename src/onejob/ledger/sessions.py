"""Console sessions: an API key or token that was sent once becomes a session of at most twelve hours.

A session is a policy of its tenant that expires. It holds a digest of its own secret, and of an API key only the digest
of the secret that was sent: the session is valid while that secret is, in every process. A session of a token has the
token's roles and ends with it.

An API key, or a user with tokens, has a bounded number of sessions, which a further policy lists: the newest replaces the oldest.
"""

from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple

from msgspec import Struct, json

from onejob.core import credentials
from onejob.core.credentials import DropPolicy, Role
from onejob.core.facts import Policy
from onejob.core.identity import decode_base64url, encode_base64url, policy_id
from onejob.errors import Unavailable
from onejob.ledger.base import runtime_of
from onejob.runtime.callers import Caller
from onejob.runtime.policies import change_policy, decode_body, load_policy, try_set_policy

from . import Ledger
from .api_keys import decode_api_key

SESSION_MS = 12 * 3_600_000
SESSION_POLICY_PREFIX = "session/"
SESSION_LIST_POLICY_PREFIX = "sessions/"
SESSIONS_MAX = 100  # of an API key, or of a user with tokens
SESSION_TEXT_PREFIX = "ojs_"
_TEXT_CHARS_MAX = 2048


class StoredSession(Struct, frozen=True):
    digest: bytes
    caller: Caller
    name: str
    roles: tuple[Role, ...]  # of an API key: those it had then; its roles of today count
    expires_at: int
    api_key_id: str = ""  # empty: of a token
    api_key_digest: bytes = b""


class ConsoleSession(NamedTuple):
    caller: Caller
    name: str
    roles: frozenset[Role]
    expires_at: int


class NewSession(NamedTuple):
    session: ConsoleSession
    text: str  # cannot be read again


class Sessions:
    def __init__(self, ledger: Ledger) -> None:
        self._gate = runtime_of(ledger).gate
        self._ids = runtime_of(ledger).ids

    async def create(
        self, caller: Caller, *, name: str, roles: frozenset[Role], api_key: str = "", valid_until: int = 0
    ) -> NewSession:
        """`api_key` is the text of the key that was sent; for a token `valid_until` is its end."""
        parsed = credentials.parse_api_key(api_key) if api_key else None
        id, secret = self._ids.nonce(), self._ids.secret()
        _, now = await load_policy(self._gate, caller.tenant, SESSION_POLICY_PREFIX + id)
        until = min(now + SESSION_MS, valid_until) if valid_until else now + SESSION_MS
        stored = StoredSession(
            digest=credentials.secret_digest(secret),
            caller=caller,
            name=name,
            roles=tuple(sorted(roles)),
            expires_at=until,
            api_key_id="" if parsed is None else parsed.id,
            api_key_digest=b"" if parsed is None else credentials.secret_digest(parsed.secret),
        )
        owner = f"user/{sha256(caller.user.encode()).hexdigest()}" if parsed is None else parsed.id
        await self._make_room(caller.tenant, owner, id, until)
        policy_name = SESSION_POLICY_PREFIX + id
        ttl_ms = max(until - now, 1)
        written = await try_set_policy(
            self._gate,
            caller.tenant,
            policy_name,
            json.encode(stored),
            expected_version=credentials.ABSENT,
            ttl_ms=ttl_ms,
        )
        if written is None:
            raise Unavailable("the id of the session is in use: nothing was done; retry")
        return NewSession(ConsoleSession(caller, name, roles, until), _format_text(caller.tenant, id, secret))

    async def _make_room(self, tenant: str, owner: str, id: str, until: int) -> None:
        """List the new session among those of its owner, and end those that are too many."""
        ended: list[str] = []

        def listed(policy: Policy | None, now: int) -> bytes:
            known = {} if policy is None else decode_body(policy, dict[str, int])
            live = [(session, expires_at) for session, expires_at in known.items() if expires_at >= now]
            ended[:] = [session for session, _ in live[: -(SESSIONS_MAX - 1)]]
            return json.encode(dict([*live[-(SESSIONS_MAX - 1) :], (id, until)]))

        await change_policy(self._gate, tenant, SESSION_LIST_POLICY_PREFIX + owner, listed, ttl_ms=SESSION_MS)
        await self._gate.execute([_drop_session(tenant, session) for session in ended])

    async def verify(self, text: str) -> ConsoleSession | None:
        """The session with this text, if it and the API key that it was made from are valid now."""
        parsed = _parse_text(text)
        if parsed is None:
            return None
        tenant, id, secret = parsed
        policy, now = await load_policy(self._gate, tenant, SESSION_POLICY_PREFIX + id)
        if policy is None:
            return None
        stored = decode_body(policy, StoredSession)
        if not compare_digest(stored.digest, credentials.secret_digest(secret)) or now > stored.expires_at:
            return None
        roles = frozenset(stored.roles)
        if stored.api_key_id:
            key_policy, now = await load_policy(self._gate, tenant, credentials.api_key_policy_name(stored.api_key_id))
            if key_policy is None:
                return None
            key = decode_api_key(key_policy.body)
            if not credentials.is_valid_digest(key, stored.api_key_digest, now):
                return None
            roles = frozenset(key.roles)
        return ConsoleSession(stored.caller, stored.name, roles, stored.expires_at)

    async def end(self, text: str) -> None:
        """Ending a session that does not exist is not an error."""
        parsed = _parse_text(text)
        if parsed is None or await self.verify(text) is None:
            return
        await self._gate.execute([_drop_session(parsed[0], parsed[1])])


def _drop_session(tenant: str, id: str) -> DropPolicy:
    return DropPolicy(tenant=tenant, policy_id=policy_id(tenant, SESSION_POLICY_PREFIX + id))


def _format_text(tenant: str, id: str, secret: str) -> str:
    return f"{SESSION_TEXT_PREFIX}{encode_base64url(tenant.encode())}.{id}.{secret}"


def _parse_text(text: str) -> tuple[str, str, str] | None:
    parts = text.removeprefix(SESSION_TEXT_PREFIX).split(".")
    if not text.startswith(SESSION_TEXT_PREFIX) or len(text) > _TEXT_CHARS_MAX or len(parts) != 3:
        return None
    try:
        tenant = decode_base64url(parts[0]).decode()
    except ValueError:
        return None
    return (tenant, parts[1], parts[2]) if tenant else None
