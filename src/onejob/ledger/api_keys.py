"""API keys of a tenant: made, listed, rotated, revoked and verified through its ledger."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec import Struct

from onejob import audit
from onejob.core import credentials
from onejob.core.command import Command, Precondition
from onejob.core.credentials import ABSENT, ApiKey, LookUpPolicy, ParsedApiKey, Role, SetPolicy
from onejob.core.facts import Kind, NewerFormat, Policy
from onejob.core.identity import policy_id
from onejob.core.replies import AnyReply, Missing, PolicyFound, Reason, Refused
from onejob.core.timestamps import to_utc
from onejob.engine import PAGE_MAX, ListFacts
from onejob.errors import Invalid, NotFound, Outdated, Unavailable

from . import Ledger
from .present import to_exception

OVERLAP_DEFAULT = timedelta(days=1)
ATTEMPTS_MAX = 100


class ApiKeyView(Struct, frozen=True, rename="camel"):
    """An API key as it is shown: nothing of its secrets."""

    id: str
    name: str
    user: str | None
    roles: tuple[Role, ...]
    created_at: datetime
    created_by: str
    rotated_at: datetime | None
    old_secret_until: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


class NewKey(NamedTuple):
    """A key and its text, which is told here and never again."""

    key: ApiKeyView
    text: str


class VerifiedKey(NamedTuple):
    """A key that a text opens: true as long as its warrant stands."""

    tenant: str
    key: ApiKey
    lookup: LookUpPolicy
    precondition: Precondition


class ApiKeys:
    """The API keys of the ledger's tenant; what is done to them is told of the ledger's actor."""

    def __init__(self, ledger: Ledger) -> None:
        self._runtime = ledger.runtime
        self._tenant = ledger.caller.tenant
        self._actor = ledger.caller.actor

    async def create(self, name: str, *, roles: Iterable[Role | str], user: str = "") -> NewKey:
        """Make a key. Bound to a user it is counted as that user, else under its own name."""
        wanted = frozenset(_parse_role(role) for role in roles)
        for _ in range(ATTEMPTS_MAX):
            key_id, secret = self._runtime.ids.nonce()[: credentials.KEY_ID_CHARS], self._runtime.ids.secret()
            before = await self._look_up(key_id)
            if not isinstance(before, Missing):
                continue  # somebody has this id: draw another
            key = credentials.new_api_key(
                id=key_id, name=name, user=user, roles=wanted, secret=secret, by=self._actor, now=before.at
            )
            if await self._try_write(key, ABSENT):
                self._audit("create", key)
                return NewKey(to_view(key), str(ParsedApiKey(self._tenant, key_id, secret)))
        raise Unavailable("no API key could be made; repeat")

    async def list(self) -> Sequence[ApiKeyView]:
        """Every key of the tenant, the revoked ones too, oldest first."""
        found: list[ApiKey] = []
        after = b""
        while True:
            query = ListFacts(tenant=self._tenant, kind=Kind.POLICY, after=after, limit=PAGE_MAX)
            page = await self._runtime.gate.scan(query)
            policies = [fact for fact in page.items if isinstance(fact, Policy)]
            found += (_decode_key(one.body) for one in policies if credentials.is_api_key_policy(one.name))
            if not page.more:
                return [to_view(key) for key in sorted(found, key=lambda key: (key.created_at, key.id))]
            after = policies[-1].id

    async def rotate(self, key_id: str, *, overlap: timedelta = OVERLAP_DEFAULT) -> NewKey:
        """Give a key a new secret; the old one opens for the overlap. Who the key is does not change."""
        secret = self._runtime.ids.secret()
        overlap_ms = overlap // timedelta(milliseconds=1)
        key = await self._change(
            key_id, lambda key, now: credentials.rotated_api_key(key, secret, overlap_ms=overlap_ms, now=now)
        )
        self._audit("rotate", key)
        return NewKey(to_view(key), str(ParsedApiKey(self._tenant, key_id, secret)))

    async def revoke(self, key_id: str) -> ApiKeyView:
        """Shut a key for good, in every process at once."""
        key = await self._change(key_id, lambda key, now: credentials.revoked_api_key(key, by=self._actor, now=now))
        self._audit("revoke", key)
        return to_view(key)

    async def verify(self, text: str) -> VerifiedKey | None:
        """The key of any tenant that this text opens now; one point read."""
        sent = credentials.parse_api_key(text)
        if sent is None:
            credentials.secret_valid_until(None, text[: credentials.API_KEY_CHARS_MAX], 0)
            return None
        name = credentials.api_key_policy_name(sent.id)
        look = LookUpPolicy(tenant=sent.tenant, policy_id=policy_id(sent.tenant, name))
        match await self._execute(look):
            case PolicyFound(policy, at):
                key = _decode_key(policy.body)
                until = credentials.secret_valid_until(key, sent.secret, at)
                if until is None:
                    return None
                return VerifiedKey(sent.tenant, key, look, Precondition(policy.id, policy.body, until))
            case Missing(at):
                credentials.secret_valid_until(None, sent.secret, at)
                return None
            case reply:
                raise to_exception(reply, "")

    @property
    def reads_are_synchronous(self) -> bool:
        """Whether `still` waits for nothing."""
        return self._runtime.gate.info.synchronous_reads

    async def is_still_valid(self, verified: VerifiedKey) -> bool:
        """Whether what was found out still holds; the same point read, and nothing else."""
        gate = self._runtime.gate
        replies = gate.read_now((verified.lookup,))
        reply = await gate.dispatch(verified.lookup) if replies is None else replies[0]
        if not isinstance(reply, (PolicyFound, Missing)):
            raise to_exception(reply, "")
        return isinstance(reply, PolicyFound) and verified.precondition.is_met(reply.policy, reply.at)

    def _audit(self, action: str, key: ApiKey) -> None:
        roles = ",".join(key.roles)
        audit.write_audit_record(
            f"apikey {action}", tenant=self._tenant, actor=self._actor, id=key.id, name=key.name, roles=roles
        )

    async def _change(self, key_id: str, change: Callable[[ApiKey, int], ApiKey]) -> ApiKey:
        """Change what is there; when somebody else was faster, look again."""
        for _ in range(ATTEMPTS_MAX):
            before = await self._look_up(key_id)
            if isinstance(before, Missing):
                raise NotFound("no such API key here; `onejob apikey list` shows those of this tenant")
            key = _decode_key(before.policy.body)
            changed = change(key, before.at)
            if changed == key or await self._try_write(changed, before.policy.version):
                return changed
        raise Unavailable("others keep changing this API key: nothing was done; repeat")

    async def _look_up(self, key_id: str) -> PolicyFound | Missing:
        name = credentials.api_key_policy_name(key_id)
        reply = await self._execute(LookUpPolicy(tenant=self._tenant, policy_id=policy_id(self._tenant, name)))
        if isinstance(reply, (PolicyFound, Missing)):
            return reply
        raise to_exception(reply, "")

    async def _try_write(self, key: ApiKey, expected: int) -> bool:
        """False when the version expected is not there any more."""
        name = credentials.api_key_policy_name(key.id)
        reply = await self._execute(
            SetPolicy(
                tenant=self._tenant,
                policy_id=policy_id(self._tenant, name),
                name=name,
                body=credentials.encode_api_key(key),
                expected_version=expected,
            )
        )
        match reply:
            case PolicyFound():
                return True
            case Refused(reason=Reason.STALE):
                return False
        raise to_exception(reply, "")

    async def _execute(self, command: Command[Any]) -> AnyReply:
        return await self._runtime.gate.dispatch(command)


def to_view(key: ApiKey) -> ApiKeyView:
    return ApiKeyView(
        id=key.id,
        name=key.name,
        user=key.user or None,
        roles=key.roles,
        created_at=to_utc(key.created_at),
        created_by=key.created_by,
        rotated_at=to_utc(key.rotated_at) if key.rotated_at else None,
        old_secret_until=to_utc(key.secrets[1].until) if len(key.secrets) > 1 else None,
        revoked_at=to_utc(key.revoked_at) if key.revoked_at else None,
        revoked_by=key.revoked_by or None,
    )


def _decode_key(body: bytes) -> ApiKey:
    try:
        return credentials.decode_api_key(body)
    except NewerFormat as error:
        raise Outdated(str(error)) from error


def _parse_role(word: Role | str) -> Role:
    try:
        return Role(word)
    except ValueError:
        raise Invalid("role", f"a role is one of {', '.join(Role)}; choose among them") from None
