"""Reads the settings of a ledger when it is opened, and changes them; the rules are in `core/ledger_settings.py`."""

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct

from onejob import audit
from onejob.core.credentials import ABSENT
from onejob.core.errors import Invalid
from onejob.core.facts import Policy
from onejob.core.fingerprint import VERSION as FINGERPRINT_VERSION
from onejob.core.identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT
from onejob.core.ledger_settings import (
    SETTINGS,
    LedgerSettings,
    affects_identity,
    changed_settings,
    closed_settings,
    decode_settings,
    effective_value,
    encode_settings,
    reopened_settings,
)
from onejob.core.timestamps import format_duration, to_utc
from onejob.engine import CountLiveKeys, Engine, LiveKeyCount
from onejob.errors import OnejobError, StoreRefused, Unavailable

from .policies import load_policy, try_set_policy

ATTEMPTS_MAX = 100
CLOSED_POLL_SECONDS = 0.2
CLOSED_POLLS_MAX = 200  # longer than doors stay closed

Said = Mapping[str, object]  # fields of LedgerSettings; what is not said is not among them


class StoredSettings(NamedTuple):
    """The settings, the bytes that prove them, and when they were read, on the engine's time."""

    settings: LedgerSettings
    body: bytes
    version: int  # of the policy
    at: int


class SettingsChange(Struct, frozen=True):
    """What a change of settings does, or would do."""

    before: LedgerSettings
    after: LedgerSettings
    live: LiveKeyCount  # the keys that stand in its way
    at: int

    @property
    def is_possible(self) -> bool:
        return not self.live.count


async def open_settings(engine: Engine, said: Said) -> StoredSettings:
    """The settings of a ledger that is opened. What this process says is stored if nobody has said it before."""
    for _ in range(ATTEMPTS_MAX):
        stored = await load_settings(engine)
        if stored is None:
            await _try_store(engine, LedgerSettings(version=1, **said), expected_version=ABSENT)  # type: ignore[arg-type]
            continue
        refuse_differences(engine, stored.settings, said)
        new = {field: value for field, value in said.items() if getattr(stored.settings, field) is None}
        if not new:
            return stored
        change = await change_settings(engine, new, actor="system:open")
        if not change.is_possible:
            raise StoreRefused(f"{_describe(new)} is set here, but {in_use_message(change)}")
    raise Unavailable("other processes keep changing the settings of the ledger: nothing was done; retry")


def refuse_differences(engine: Engine, settings: LedgerSettings, said: Said) -> None:
    """Raise if this process says otherwise than the ledger."""
    if settings.fingerprint_version != FINGERPRINT_VERSION[0]:
        raise StoreRefused("the ledger's fingerprints are of another version; upgrade the older program")
    for setting in SETTINGS:
        stored, own = getattr(settings, setting.field), said.get(setting.field)
        if own is not None and stored is not None and own != stored:
            shown = format_value(setting.field, stored)
            raise StoreRefused(
                f"{setting.name} is {format_value(setting.field, own)} here, and {shown} in the ledger ({engine.info.name}), so "
                f"that one key could make two jobs; remove it here, or run `onejob settings set {setting.name}=...`"
            )


async def load_settings(engine: Engine) -> StoredSettings | None:
    """The settings, as soon as the doors are open; None: the ledger has none yet."""
    for _ in range(CLOSED_POLLS_MAX):
        policy, now = await load_policy(engine, SYSTEM_TENANT, SETTINGS_POLICY_NAME)
        if policy is None:
            return None
        settings = decode_settings(policy.body)
        if not settings.closed_until:
            return StoredSettings(settings, policy.body, policy.version, now)
        if now > settings.closed_until:
            await _try_store(engine, reopened_settings(settings), expected_version=policy.version)
        else:
            await asyncio.sleep(CLOSED_POLL_SECONDS)
    raise Unavailable("the settings of the ledger are being changed: nothing was done; retry")


async def preview_settings(engine: Engine, said: Said) -> SettingsChange:
    """What `change_settings` would do now."""
    stored = await _require_settings(engine)
    after = changed_settings(stored.settings, said, stored.at)
    live = await _count_live_keys(engine) if affects_identity(stored.settings, said) else LiveKeyCount()
    return SettingsChange(stored.settings, after, live, stored.at)


async def change_settings(engine: Engine, said: Said, *, actor: str) -> SettingsChange:
    """Change the settings, or return which live keys forbid it."""
    for _ in range(ATTEMPTS_MAX):
        stored = await _require_settings(engine)
        if not affects_identity(stored.settings, said):
            change = SettingsChange(
                stored.settings, changed_settings(stored.settings, said, stored.at), LiveKeyCount(), stored.at
            )
            is_decided = await _try_store(engine, change.after, expected_version=stored.version) is not None
        else:
            change, is_decided = await _change_closed(engine, stored, said, actor)
        if is_decided:
            if change.is_possible:
                audit.write_audit_record(
                    "settings set",
                    tenant=SYSTEM_TENANT,
                    actor=actor,
                    version=change.after.version,
                    settings=_describe(said),
                )
            return change
    raise Unavailable("other processes keep changing the settings of the ledger: nothing was done; retry")


async def _change_closed(engine: Engine, stored: StoredSettings, said: Said, actor: str) -> tuple[SettingsChange, bool]:
    """Close the doors, wait for what had begun, count the live keys, then open them with what holds from now on.

    The keys are also counted before: if there are any, no door is closed.
    """
    live = await _count_live_keys(engine)
    if live.count:
        return SettingsChange(stored.settings, stored.settings, live, stored.at), True
    closed = closed_settings(stored.settings, stored.at, by=actor)
    marker = await _try_store(engine, closed, expected_version=stored.version)
    if marker is None:
        return SettingsChange(stored.settings, stored.settings, LiveKeyCount(), stored.at), False
    try:
        await engine.barrier(None)
        live = await _count_live_keys(engine)
    except OnejobError:
        await _try_store(engine, reopened_settings(closed), expected_version=marker.version)
        raise
    after = reopened_settings(closed) if live.count else changed_settings(closed, said, stored.at)
    opened = await _try_store(engine, after, expected_version=marker.version)
    if opened is None:
        raise Unavailable("counting the live keys took too long, and the settings were not changed; retry")
    return SettingsChange(stored.settings, after, live, stored.at), True


async def _count_live_keys(engine: Engine) -> LiveKeyCount:
    page = await engine.scan(CountLiveKeys())
    return page.items[0]


async def _require_settings(engine: Engine) -> StoredSettings:
    stored = await load_settings(engine)
    if stored is None:
        await _try_store(engine, LedgerSettings(version=1), expected_version=ABSENT)
        stored = await load_settings(engine)
    assert stored is not None
    return stored


async def _try_store(engine: Engine, settings: LedgerSettings, *, expected_version: int) -> Policy | None:
    body = encode_settings(settings)
    return await try_set_policy(engine, SYSTEM_TENANT, SETTINGS_POLICY_NAME, body, expected_version=expected_version)


def parse_settings(pairs: list[str]) -> dict[str, object]:
    """The fields of `name=value` texts."""
    by_name = {setting.name: setting for setting in SETTINGS}
    said: dict[str, object] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        setting = by_name.get(name)
        if not equals or setting is None:
            raise Invalid(
                "settings", f"{pair!r} is not a setting of a ledger; use NAME=VALUE with {', '.join(by_name)}"
            )
        said[setting.field] = setting.parse(name, text)
    return said


def in_use_message(change: SettingsChange) -> str:
    """Why the identity of keys cannot be changed now, and when it can."""
    count, last = change.live.count, to_utc(change.live.last_until).isoformat(timespec="seconds")
    return (
        f"{count} live key{'s' if count != 1 else ''} would be new under it; the last one ends at "
        f"{last.replace('+00:00', 'Z')}: change it after that, or forget the keys"
    )


def format_value(field: str, value: object) -> str:
    return format_duration(value) if field.endswith("_ms") and isinstance(value, int) else str(value)


def shown_settings(settings: LedgerSettings, *, window_ms: int) -> dict[str, tuple[str, bool]]:
    """The value that holds by name, and whether somebody has said it."""
    return {
        setting.name: (
            format_value(setting.field, effective_value(settings, setting, window_ms=window_ms)),
            getattr(settings, setting.field) is not None,
        )
        for setting in SETTINGS
    }


def _describe(said: Said) -> str:
    return ", ".join(
        f"{setting.name} = {format_value(setting.field, said[setting.field])}" for setting in SETTINGS if setting.field in said
    )  # fmt: skip
