"""Reads the settings of a ledger when it is opened, and changes them; the rules are in `core/ledger_settings.py`."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct, json

from onejob import audit
from onejob.core.credentials import ABSENT
from onejob.core.errors import Invalid
from onejob.core.facts import Kind, Policy, Record, is_live
from onejob.core.fingerprint import VERSION as FINGERPRINT_VERSION
from onejob.core.identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT
from onejob.core.ledger_settings import (
    CLOSED_MS,
    DEFAULTS,
    SETTINGS,
    LedgerSettings,
    affects_identity,
    changed_settings,
    closed_settings,
    decode_settings,
    effective_value,
    encode_settings,
    is_changed,
    is_closed,
    owner_of_key,
    reopened_settings,
)
from onejob.core.timestamps import format_duration, to_utc
from onejob.engine import PAGE_MAX, CountLiveKeys, Engine, ListFacts, LiveKeyCount
from onejob.errors import OnejobError, StoreRefused, TenantRefused, Unavailable, Unknown

from .policies import change_policy, decode_body, load_policy, try_set_policy

log = logging.getLogger("onejob")

OPENING_ACTOR = "system:open"
CHANGES_POLICY_NAME = "settings-changes"  # of the system tenant
CHANGES_MAX = 16
ATTEMPTS_MAX = 100
STORE_ATTEMPTS_MAX = 3
CLOSED_POLL_SECONDS = 0.2
CLOSED_POLLS_MAX = 200  # longer than doors stay closed

Said = Mapping[str, object]  # fields of LedgerSettings; what is not said is not among them


class StoredSettings(NamedTuple):
    """The settings, the bytes that prove them, and when they were read, on the engine's time."""

    settings: LedgerSettings
    body: bytes
    version: int  # of the policy
    at: int


class NotedChange(Struct, frozen=True):
    """One change of the settings, as the ledger remembers it."""

    version: int
    at: int
    actor: str
    settings: str  # what somebody has said, from then on


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
    """The settings of a ledger that is opened. What nobody has said is stored if the ledger was never used."""
    for _ in range(ATTEMPTS_MAX):
        stored = await load_settings(engine)
        if stored is None:
            await _store_first_settings(engine, said)
            continue
        refuse_differences(engine, stored.settings, said)
        new = {field: value for field, value in said.items() if getattr(stored.settings, field) is None}
        if not new:
            return stored
        if await _is_used(engine):
            await _refuse_new_values(engine, stored.settings, new)
            return stored
        # One attempt: what another process has said meanwhile is compared first.
        change = await _try_change(engine, stored, new, actor=OPENING_ACTOR)
        if change is not None and not change.is_possible:
            raise StoreRefused(f"{_describe(new)} is set here, but {in_use_message(change)}")
    raise Unavailable("other processes keep changing the settings of the ledger: nothing was done; retry")


async def _refuse_new_values(engine: Engine, settings: LedgerSettings, new: Said) -> None:
    """Raise if one of these fields, which nobody has said, would have another value than its default."""
    different = {
        setting.field: new[setting.field]
        for setting in SETTINGS
        if setting.field in new
        and new[setting.field] != effective_value(settings, setting, window_ms=engine.info.window_ms)
    }
    if not different:
        return
    message = _difference_message(engine, settings, different)
    if affects_identity(settings, different):
        with suppress(OnejobError):
            live = await _count_live_keys(engine)
            message += f". Now {describe_live_keys(live)}" if live.count else ""
    raise StoreRefused(message)


async def _is_used(engine: Engine) -> bool:
    """True if the ledger has a record: then only an operator says what holds. To a gate that may not look it is used."""
    try:
        page = await engine.scan(ListFacts(tenant=None, kind=Kind.RECORD, limit=1))
    except TenantRefused:
        return True
    return bool(page.items)


async def _store_first_settings(engine: Engine, said: Said) -> None:
    """Those of a new ledger; one that programs without settings have used keeps the owner that its live keys have."""
    owners = await _list_owners_of_live_keys(engine)
    if len(owners) > 1:
        raise StoreRefused(
            f"{engine.info.name} has live keys of tenants and live keys of users: programs that were configured differently "
            f"made them, and one key may have two jobs; the last ends at {_utc_text(max(owners.values()))}: open it after that"
        )
    owner = next(iter(owners), None)
    said_owner = said.get("key_owner", owner)
    if owner is not None and said_owner != owner:
        raise StoreRefused(
            f"key_owner is {said_owner} here, and {owner} of the live keys in {engine.info.name}, so that one key could make two "
            f"jobs; the last ends at {_utc_text(owners[owner])}: remove it here, or change it after that"
        )
    kept = {"key_owner": owner} if owner not in (None, DEFAULTS["key_owner"]) else {}
    first = LedgerSettings(version=1, **{**kept, **said})  # type: ignore[arg-type]
    policy = await _try_store(engine, first, expected_version=ABSENT)
    if policy is not None and (said or kept):
        await _note_change(engine, first, policy.changed_at, actor=OPENING_ACTOR)


async def _list_owners_of_live_keys(engine: Engine) -> dict[str, int]:
    """The owners of the live keys, by their identities, and when the last of each ends."""
    owners: dict[str, int] = {}
    _, now = await load_policy(engine, SYSTEM_TENANT, SETTINGS_POLICY_NAME)
    after, more = b"", True
    while more:
        page = await engine.scan(ListFacts(tenant=None, kind=Kind.RECORD, after=after, limit=PAGE_MAX))
        for record in page.items:
            assert isinstance(record, Record)
            after = record.id
            if is_live(record, now) and (owner := owner_of_key(record)) is not None:
                owners[owner] = max(owners.get(owner, 0), record.expires_at, record.lease_until)
        more = page.more
    return owners


def refuse_differences(engine: Engine, settings: LedgerSettings, said: Said) -> None:
    """Raise if this process says otherwise than the ledger."""
    if settings.fingerprint_version != FINGERPRINT_VERSION[0]:
        raise StoreRefused("the ledger's fingerprints are of another version; upgrade the older program")
    different = {
        setting.field: said[setting.field]
        for setting in SETTINGS
        if said.get(setting.field) is not None and getattr(settings, setting.field) not in (None, said[setting.field])
    }
    if different:
        raise StoreRefused(_difference_message(engine, settings, different))


def _difference_message(engine: Engine, settings: LedgerSettings, different: Said) -> str:
    setting = next(setting for setting in SETTINGS if setting.field in different)
    here = format_value(setting.field, different[setting.field])
    held = effective_value(settings, setting, window_ms=engine.info.window_ms)
    return (
        f"{setting.name} is {here} here, and {format_value(setting.field, held)} in the ledger ({engine.info.name}), so that one "
        f"key could make two jobs; remove it here, or change the ledger: `onejob settings set {setting.name}={here}`"
    )


async def load_settings(engine: Engine) -> StoredSettings | None:
    """The settings, as soon as the doors are open; None: the ledger has none yet."""
    loop = asyncio.get_running_loop()
    seen, since = 0, 0.0  # the version of closed doors, and since when: the clock of the store may have been set back
    for _ in range(CLOSED_POLLS_MAX):
        policy, now = await load_policy(engine, SYSTEM_TENANT, SETTINGS_POLICY_NAME)
        if policy is None:
            return None
        if not is_closed(policy.body):
            return StoredSettings(decode_settings(policy.body), policy.body, policy.version, now)
        if policy.version != seen:
            seen, since = policy.version, loop.time()
        settings = decode_settings(policy.body)
        if now > settings.closed_until or loop.time() - since > CLOSED_MS / 1000:
            await _try_store(engine, reopened_settings(settings), expected_version=policy.version)
        else:
            await asyncio.sleep(CLOSED_POLL_SECONDS)
    raise Unavailable("the settings of the ledger are being changed: nothing was done; retry")


async def preview_settings(engine: Engine, said: Said) -> SettingsChange:
    """What `change_settings` would do now."""
    stored = await _require_settings(engine)
    after = changed_settings(stored.settings, said, stored.at, by="")
    live = await _count_live_keys(engine) if affects_identity(stored.settings, said) else LiveKeyCount()
    return SettingsChange(stored.settings, after, live, stored.at)


async def change_settings(engine: Engine, said: Said, *, actor: str) -> SettingsChange:
    """Change the settings, or return which live keys forbid it."""
    for _ in range(ATTEMPTS_MAX):
        change = await _try_change(engine, await _require_settings(engine), said, actor=actor)
        if change is not None:
            return change
    raise Unavailable("other processes keep changing the settings of the ledger: nothing was done; retry")


async def _try_change(engine: Engine, stored: StoredSettings, said: Said, *, actor: str) -> SettingsChange | None:
    """None: another process has changed them since they were read."""
    if not is_changed(stored.settings, said):
        return SettingsChange(stored.settings, stored.settings, LiveKeyCount(), stored.at)
    if affects_identity(stored.settings, said):
        change = await _change_closed(engine, stored, said, actor)
    else:
        after = changed_settings(stored.settings, said, stored.at, by=actor)
        is_stored = await _try_store(engine, after, expected_version=stored.version, read_at=stored.at) is not None
        change = SettingsChange(stored.settings, after, LiveKeyCount(), stored.at) if is_stored else None
    if change is not None and change.is_possible:
        await _note_change(engine, change.after, change.at, actor=actor)
    return change


async def _change_closed(engine: Engine, stored: StoredSettings, said: Said, actor: str) -> SettingsChange | None:
    """Close the doors, wait for what had begun, count the live keys, then open them with what holds from now on.

    The keys are also counted before: if there are any, no door is closed.
    """
    live = await _count_live_keys(engine)
    if live.count:
        return SettingsChange(stored.settings, stored.settings, live, stored.at)
    closed = closed_settings(stored.settings, stored.at, by=actor)
    marker = await _try_store(engine, closed, expected_version=stored.version, read_at=stored.at)
    if marker is None:
        return None
    try:
        await engine.barrier(None)
        live = await _count_live_keys(engine)
    except OnejobError:
        await _try_store(engine, reopened_settings(closed), expected_version=marker.version)
        raise
    after = reopened_settings(closed) if live.count else changed_settings(closed, said, stored.at, by=actor)
    opened = await _try_store(engine, after, expected_version=marker.version, read_at=stored.at)
    if opened is None:
        raise Unavailable("counting the live keys took too long, and the settings were not changed; retry")
    return SettingsChange(stored.settings, after, live, stored.at)


async def open_lapsed_doors(engine: Engine) -> None:
    """Open doors that a process closed which did not come to an end."""
    policy, _ = await load_policy(engine, SYSTEM_TENANT, SETTINGS_POLICY_NAME)
    if policy is not None and is_closed(policy.body):
        await load_settings(engine)


async def list_changes(engine: Engine) -> tuple[NotedChange, ...]:
    """The last changes of the settings, the newest last; that is in the settings themselves, if nobody has noted it."""
    stored = await load_settings(engine)
    policy, _ = await load_policy(engine, SYSTEM_TENANT, CHANGES_POLICY_NAME)
    noted = () if policy is None else decode_body(policy, tuple[NotedChange, ...])
    if stored is None or not (last := stored.settings).changed_at or (noted and noted[-1].at >= last.changed_at):
        return noted
    return (*noted, NotedChange(last.version, last.changed_at, last.changed_by, _describe_said(last)))


async def _note_change(engine: Engine, after: LedgerSettings, at: int, *, actor: str) -> None:
    """Note the change, its actor and its time: in the audit log of this process, and in the ledger."""
    text = _describe_said(after)
    audit.write_audit_record("settings set", tenant=SYSTEM_TENANT, actor=actor, version=after.version, settings=text)

    def add(policy: Policy | None, _: int) -> bytes:
        noted = () if policy is None else decode_body(policy, tuple[NotedChange, ...])
        return json.encode((*noted, NotedChange(after.version, at, actor, text))[-CHANGES_MAX:])

    try:
        await change_policy(engine, SYSTEM_TENANT, CHANGES_POLICY_NAME, add)
    except OnejobError as error:  # the change itself was made
        log.warning("the settings were changed by %s, which could not be noted in the ledger: %s", actor, error)


async def _count_live_keys(engine: Engine) -> LiveKeyCount:
    page = await engine.scan(CountLiveKeys())
    return page.items[0]


async def _require_settings(engine: Engine) -> StoredSettings:
    stored = await load_settings(engine)
    return await open_settings(engine, {}) if stored is None else stored


async def _try_store(
    engine: Engine, settings: LedgerSettings, *, expected_version: int, read_at: int | None = None
) -> Policy | None:
    """None: they have another version now, or those that were read at `read_at` are too old to be changed."""
    not_after = 0 if read_at is None else read_at + CLOSED_MS
    body = encode_settings(settings)
    is_uncertain = False
    for _ in range(STORE_ATTEMPTS_MAX):
        try:
            policy = await try_set_policy(
                engine,
                SYSTEM_TENANT,
                SETTINGS_POLICY_NAME,
                body,
                expected_version=expected_version,
                not_after=not_after,
            )
        except Unknown:  # the same again has the same answer, unless it comes too late
            is_uncertain = True
            await asyncio.sleep(CLOSED_POLL_SECONDS)
            continue
        if policy is None and is_uncertain:
            policy, _ = await load_policy(engine, SYSTEM_TENANT, SETTINGS_POLICY_NAME)
        return policy if policy is not None and policy.body == body else None
    raise Unknown("the settings of the ledger may be changed: look at them with `onejob settings`, and retry")


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
    return describe_live_keys(change.live)


def describe_live_keys(live: LiveKeyCount) -> str:
    return (
        f"{live.count} live key{'s' if live.count != 1 else ''} would be new under it; the last one ends at "
        f"{_utc_text(live.last_until)}: change it after that, or forget the keys"
    )


def _utc_text(at: int) -> str:
    return to_utc(at).isoformat(timespec="seconds").replace("+00:00", "Z")


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


def _describe_said(settings: LedgerSettings) -> str:
    """What somebody has said."""
    fields = [setting.field for setting in SETTINGS]
    return _describe({field: value for field in fields if (value := getattr(settings, field)) is not None})


def _describe(said: Said) -> str:
    return ", ".join(
        f"{setting.name} = {format_value(setting.field, said[setting.field])}" for setting in SETTINGS if setting.field in said
    )  # fmt: skip
