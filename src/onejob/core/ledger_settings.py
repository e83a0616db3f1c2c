"""The settings of a ledger: what enters the identity of a key, or must be judged alike by every door.

They are stored in the ledger, as a policy of the system tenant. The rules:

1. A command that may create a record carries the body of the settings that it was built under (`Footprint.settings`). It is
   decided only while the stored body is equal: whatever a process believes, it makes nothing under other settings.
2. Every change has a new version, so no body ever comes back.
3. What enters an identity changes only while no record is live. The doors are closed first: a body that says so proves
   nothing (`is_closed`). When everything that had begun has ended (`Engine.barrier`), the records are counted, and the last
   step stores the new settings, or the old ones again, over that closed body and nothing else.
4. Doors that stay closed for CLOSED_MS, because the process that closed them died, are opened by whoever finds them. That
   process, if it only slept, then finds another body and changes nothing; no step of a change is made later than CLOSED_MS.
5. What nobody has said is the default. A process that is opened may say it while the ledger has no record at all; afterwards
   only an operator does. A ledger that was used before it had settings has the owner of its live keys.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct, json
from msgspec.structs import replace

from .errors import Invalid
from .facts import NewerFormat, Record
from .fingerprint import VERSION as FINGERPRINT_VERSION
from .identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT, is_tick_key, policy_id, record_id
from .timestamps import parse_duration, to_duration_ms

SETTINGS_POLICY_ID: Final = policy_id(SYSTEM_TENANT, SETTINGS_POLICY_NAME)
CLOSED_MS: Final = 30_000
# The time of a bucket is known to a second, and corrected; gates measure by their own clock.
CLOCK_STEP_MS_MAX: Final = 2000
CLOSED_MARK: Final = b'"closed_until"'  # in no other settings, since defaults are left out
KEY_OWNERS: Final = ("tenant", "user")
COMMITTED_TTL_MS_DEFAULT: Final = 300_000
REJECTED_TTL_MS_DEFAULT: Final = 60_000
WINDOW_MS_MIN: Final = 1000
DURATION_MS_MAX: Final = 365 * 24 * 3600 * 1000


class LedgerSettings(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """None: nobody has said it. The lifetimes are ceilings: no gate remembers an answer for longer."""

    version: int = 0  # 0: not read from a ledger
    fingerprint_version: int = FINGERPRINT_VERSION[0]
    key_owner: str | None = None
    window_ms: int | None = None
    committed_ttl_ms: int | None = None
    rejected_ttl_ms: int | None = None
    older_memory_ms: int = 0  # the longest lifetime before the last change, which gates may still use,
    older_memory_until: int = 0  # until this time
    changed_at: int = 0  # 0: as it was made
    changed_by: str = ""
    closed_until: int = 0  # 0: the doors are open
    closed_by: str = ""

    @property
    def owns_keys(self) -> bool:
        """True if every user has its own keys."""
        return self.key_owner == "user"

    @property
    def committed_ttl_ms_max(self) -> int:
        return self.committed_ttl_ms or COMMITTED_TTL_MS_DEFAULT

    @property
    def rejected_ttl_ms_max(self) -> int:
        return self.rejected_ttl_ms or REJECTED_TTL_MS_DEFAULT

    def memory_ms(self, now: int) -> int:
        """The longest time that any gate may remember an answer."""
        older = self.older_memory_ms if now <= self.older_memory_until else 0
        return max(self.committed_ttl_ms_max, self.rejected_ttl_ms_max, older) + CLOCK_STEP_MS_MAX


def parse_key_owner(what: str, text: str) -> str:
    if text not in KEY_OWNERS:
        raise Invalid(what, f"{what} is {' or '.join(KEY_OWNERS)}, not {text!r}; choose one")
    return text


def _parse_window_ms(what: str, text: str) -> int:
    return _checked_duration_ms(what, text, WINDOW_MS_MIN)


def _parse_ttl_ms(what: str, text: str) -> int:
    return _checked_duration_ms(what, text, 1)


def _checked_duration_ms(what: str, text: str, least: int) -> int:
    ms = to_duration_ms(what, parse_duration(what, text))
    if not least <= ms <= DURATION_MS_MAX:
        raise Invalid(what, f"{what} is at least {least} ms and at most 365 days; choose one in between")
    return ms


class Setting(Struct, frozen=True):
    """One setting that a person may say."""

    name: str  # as it is written
    field: str
    parse: Callable[[str, str], Any]
    meaning: str
    is_identity: bool = False  # it enters the identity of keys


SETTINGS: Final = (
    Setting("key_owner", "key_owner", parse_key_owner, "who shares keys: all users of a tenant, or each user has its own", True),
    Setting("window", "window_ms", _parse_window_ms, "how long a key is remembered whose submission says nothing"),
    Setting("committed_ttl", "committed_ttl_ms", _parse_ttl_ms, "how long a gate may remember a settled answer, at most"),
    Setting("rejected_ttl", "rejected_ttl_ms", _parse_ttl_ms, "how long a gate may remember a rejection, at most"),
)  # fmt: skip
DEFAULTS: Final[Mapping[str, object]] = {
    "key_owner": KEY_OWNERS[0],
    "window_ms": None,  # that of the engine
    "committed_ttl_ms": COMMITTED_TTL_MS_DEFAULT,
    "rejected_ttl_ms": REJECTED_TTL_MS_DEFAULT,
}


def encode_settings(settings: LedgerSettings) -> bytes:
    return json.encode(settings)


def is_closed(body: bytes) -> bool:
    """True for the settings of a ledger whose doors are closed. No command may prove them."""
    return CLOSED_MARK in body


FIRST_SETTINGS: Final = encode_settings(LedgerSettings(version=1))


def decode_settings(body: bytes) -> LedgerSettings:
    try:
        return json.decode(body, type=LedgerSettings)
    except msgspec.ValidationError:
        raise NewerFormat("the ledger's settings have a format that this program does not know; upgrade it") from None


def effective_value(settings: LedgerSettings, setting: Setting, *, window_ms: int) -> object:
    """What holds: what was said, else the default; the window's default is the engine's."""
    said = getattr(settings, setting.field)
    if said is not None:
        return said
    return window_ms if setting.field == "window_ms" else DEFAULTS[setting.field]


def changed_settings(stored: LedgerSettings, said: Mapping[str, object], now: int, *, by: str) -> LedgerSettings:
    """The stored settings with these fields, as the next version."""
    opened = reopened_settings(stored)
    changed = replace(opened, changed_at=now, changed_by=by, **said)
    before = stored.memory_ms(now) - CLOCK_STEP_MS_MAX
    if before > max(changed.committed_ttl_ms_max, changed.rejected_ttl_ms_max):
        # `now` is when the stored settings were read.
        changed = replace(changed, older_memory_ms=before, older_memory_until=now + CLOSED_MS + before)
    return changed


def is_changed(stored: LedgerSettings, said: Mapping[str, object]) -> bool:
    return any(getattr(stored, field) != value for field, value in said.items())


def closed_settings(stored: LedgerSettings, now: int, *, by: str) -> LedgerSettings:
    return replace(stored, version=stored.version + 1, closed_until=now + CLOSED_MS, closed_by=by)


def reopened_settings(stored: LedgerSettings) -> LedgerSettings:
    return replace(stored, version=stored.version + 1, closed_until=0, closed_by="")


def affects_identity(stored: LedgerSettings, said: Mapping[str, object]) -> bool:
    """True if one of these fields enters an identity and would get another value."""
    return any(
        setting.is_identity and setting.field in said
        and said[setting.field] != effective_value(stored, setting, window_ms=0)
        for setting in SETTINGS
    )  # fmt: skip


def owner_of_key(record: Record) -> str | None:
    """Which `key_owner` the identity of a record was computed with; None: it is a tick, which belongs to nobody."""
    if is_tick_key(record.scope, record.key):
        return None
    tenant, user = KEY_OWNERS
    return tenant if record.id == record_id(record.tenant, record.scope, record.key) else user
