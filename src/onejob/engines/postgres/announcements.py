"""Whom a batch concerns, for barriers: two advisory locks per batch, and the transactions that a barrier waits for.

A batch that is loaded under locks, or verified, announces its tenants and users by two shared advisory locks, which conflict
with nothing and end with its transaction. The number of each is a Bloom filter of 32 bits.
"""

from collections.abc import Iterable
from typing import Any
from zlib import crc32

from onejob.core.command import Footprint
from onejob.core.identity import tenant_prefix, usage_id

TENANTS_LOCK_CLASS = 0x6F6E6A74
USERS_LOCK_CLASS = 0x6F6E6A75
_FILTER_BITS = 32


def announcement(footprints: Iterable[Footprint]) -> tuple[int, int]:
    """Whom a batch concerns, as the numbers of its advisory locks; the first statement that loads takes them."""
    tenants = users = 0
    for f in footprints:
        tenant = tenant_prefix(f.tenant)
        tenants |= _filter_of(tenant)
        users |= _filter_of(f.usage or tenant)  # without a usage it may concern any user of its tenant
    return _to_int4(tenants), _to_int4(users)


def barrier_values(tenant: str | None, user: str | None) -> list[Any]:
    """The class and the filters of the announcements that a barrier waits for; no bits fit every announcement.

    A barrier of all tenants also waits for transactions of other programs, which may settle a key without announcing it.
    """
    if tenant is None:
        return [TENANTS_LOCK_CLASS, [0], True]
    any_user = _filter_of(tenant_prefix(tenant))
    if user is None:
        return [TENANTS_LOCK_CLASS, [any_user], False]
    return [USERS_LOCK_CLASS, [any_user, _filter_of(usage_id(tenant, user))], False]


def _filter_of(id: bytes) -> int:
    """Two of the bits."""
    digest = crc32(id)
    return 1 << digest % _FILTER_BITS | 1 << (digest >> 16) % _FILTER_BITS


def _to_int4(bits: int) -> int:
    """The signed integer of the same bits."""
    return bits - (1 << _FILTER_BITS) if bits >> (_FILTER_BITS - 1) else bits
