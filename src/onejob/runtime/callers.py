"""The sender of a command: its tenant, user and actor, the owner of its keys, and the default windows of keys."""

from collections.abc import Mapping

from msgspec import Struct

from onejob.core.identity import record_id
from onejob.core.submit import TTL_MS_DEFAULT


class Caller(Struct, frozen=True):
    """The sender of a command. It comes from the credential, never from the request."""

    tenant: str = "default"
    user: str = "local"
    actor: str = "client:local"
    owns_keys: bool = False  # True: keys belong to the user; False: the tenant's users share them. The ledger says it
    oversees: bool = True  # False: where users own their keys, it sees no jobs and keys of other users
    settings: bytes = b""  # the settings of the ledger that `owns_keys` comes from; every new key proves them

    @property
    def sees_all_users(self) -> bool:
        return self.oversees or not self.owns_keys

    def can_see(self, user: str) -> bool:
        return self.sees_all_users or user == self.user


class DefaultWindows(Struct, frozen=True):
    """The windows of keys whose submissions name none: by job type, and for all other types."""

    ttl_ms: int = TTL_MS_DEFAULT
    by_type: Mapping[str, int] = {}


STANDARD_WINDOWS = DefaultWindows()


def key_record_id(caller: Caller, scope: str, key: str) -> bytes:
    return record_id(caller.tenant, scope, key, caller.user if caller.owns_keys else "")
