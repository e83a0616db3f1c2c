"""Credentials as policies of a tenant, one policy each under the id of the credential."""

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from onejob.core.credentials import ABSENT, KEY_ID_CHARS
from onejob.core.facts import Kind, NewerFormat, Policy
from onejob.engine import PAGE_MAX, Engine, ListFacts
from onejob.errors import NotFound, Outdated, Unavailable
from onejob.ids import Ids

from .policies import ATTEMPTS_MAX, load_policy, try_set_policy


class StoredCredential(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> int: ...


C = TypeVar("C", bound=StoredCredential)


class CredentialKind(NamedTuple, Generic[C]):
    """How one kind of credential is stored, and what messages call it."""

    noun: str
    command: str  # of the command line
    policy_prefix: str
    policy_name: Callable[[str], str]  # checks the id
    encode: Callable[[C], bytes]
    decode: Callable[[bytes], C]


class CredentialStore(Generic[C]):
    """The credentials of one kind of one tenant."""

    def __init__(self, engine: Engine, ids: Ids, tenant: str, kind: CredentialKind[C]) -> None:
        self._engine = engine
        self._ids = ids
        self._tenant = tenant
        self._kind = kind

    async def load(self, key_id: str) -> tuple[C | None, int]:
        """The credential, None if there is none; and the engine's time."""
        policy, now = await load_policy(self._engine, self._tenant, self._kind.policy_name(key_id))
        return None if policy is None else self._decode(policy), now

    async def create(self, make: Callable[[str, str, int], C]) -> tuple[C, str]:
        """Store what `make` returns for an unused id, a new secret and the time; with that secret."""
        for _ in range(ATTEMPTS_MAX):
            key_id, secret = self._ids.nonce()[:KEY_ID_CHARS], self._ids.secret()
            existing, now = await self.load(key_id)
            if existing is None and await self._try_write(key := make(key_id, secret, now), ABSENT):
                return key, secret
        raise Unavailable(f"no {self._kind.noun} could be created: nothing was done; retry")

    async def change(self, key_id: str, change: Callable[[C, int], C]) -> C:
        """Store what `change` returns; start over if another caller changed the credential meanwhile."""
        for _ in range(ATTEMPTS_MAX):
            policy, now = await load_policy(self._engine, self._tenant, self._kind.policy_name(key_id))
            if policy is None:
                raise NotFound(f"no such {self._kind.noun} here; `onejob {self._kind.command} list` shows all of them")
            key = self._decode(policy)
            changed = change(key, now)
            if changed == key or await self._try_write(changed, policy.version):
                return changed
        raise Unavailable(f"other callers keep changing this {self._kind.noun}: nothing was done; retry")

    async def list(self) -> list[C]:
        """All of them, also revoked ones, oldest first."""
        found: list[C] = []
        after = b""
        while True:
            page = await self._engine.scan(
                ListFacts(tenant=self._tenant, kind=Kind.POLICY, after=after, limit=PAGE_MAX)
            )
            policies = [fact for fact in page.items if isinstance(fact, Policy)]
            found += (self._decode(policy) for policy in policies if policy.name.startswith(self._kind.policy_prefix))
            if not page.more:
                return sorted(found, key=lambda key: (key.created_at, key.id))
            after = policies[-1].id

    async def _try_write(self, key: C, expected_version: int) -> bool:
        """False if the stored version is not the expected one."""
        name, body = self._kind.policy_name(key.id), self._kind.encode(key)
        written = await try_set_policy(self._engine, self._tenant, name, body, expected_version=expected_version)
        return written is not None

    def _decode(self, policy: Policy) -> C:
        return decode_credential(policy.body, self._kind)


def decode_credential(body: bytes, kind: CredentialKind[C]) -> C:
    try:
        return kind.decode(body)
    except NewerFormat as error:
        raise Outdated(str(error)) from error
