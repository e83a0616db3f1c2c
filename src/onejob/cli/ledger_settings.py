"""The command `settings`: shows the settings that are stored in a ledger, and changes them."""

from argparse import Namespace
from datetime import datetime

from msgspec import Struct

from onejob.core.ledger_settings import LedgerSettings
from onejob.core.timestamps import to_utc
from onejob.ledger.settings import (
    SettingsChange,
    change_settings,
    in_use_message,
    parse_settings,
    preview_settings,
    shown_settings,
)
from onejob.sync import SyncLedger

from .render import Screen, table_lines


class SettingOut(Struct, frozen=True, rename="camel"):
    name: str
    value: str
    is_default: bool  # nobody has said it


class SettingsOut(Struct, frozen=True, rename="camel"):
    version: int
    settings: list[SettingOut]


class SettingsChangeOut(Struct, frozen=True, rename="camel"):
    """What a change did; of a dry run, what it would do."""

    changed: bool
    dry_run: bool
    before: SettingsOut
    after: SettingsOut
    live_keys: int  # that stand in its way
    last_key_ends_at: datetime | None
    message: str


def run_settings(ledger: SyncLedger, options: Namespace) -> SettingsOut | SettingsChangeOut:
    runtime = ledger.async_ledger.runtime
    if options.subcommand != "set":
        return _settings_out(ledger, runtime.settings)
    said = parse_settings(options.settings)
    if options.dry_run:
        change = ledger.run(preview_settings(runtime.gate, said))
    else:
        change = ledger.run(change_settings(runtime.gate, said, actor=ledger.async_ledger.caller.actor))
    return SettingsChangeOut(
        changed=change.is_possible and not options.dry_run,
        dry_run=options.dry_run,
        before=_settings_out(ledger, change.before),
        after=_settings_out(ledger, change.after),
        live_keys=change.live.count,
        last_key_ends_at=to_utc(change.live.last_until) if change.live.count else None,
        message=_message(change, dry_run=options.dry_run),
    )


def _settings_out(ledger: SyncLedger, settings: LedgerSettings) -> SettingsOut:
    shown = shown_settings(settings, window_ms=ledger.async_ledger.runtime.engine_info.window_ms)
    return SettingsOut(
        settings.version, [SettingOut(name, value, not was_said) for name, (value, was_said) in shown.items()]
    )


def _message(change: SettingsChange, *, dry_run: bool) -> str:
    if not change.is_possible:
        return f"nothing was changed: {in_use_message(change)}"
    if dry_run:
        return "nothing was changed: this is what would be; leave --dry-run out to change it"
    return "changed; every process of this ledger adopts it, and one that is configured otherwise accepts nothing more"


def render_settings(screen: Screen, response: SettingsOut | SettingsChangeOut) -> str:
    if isinstance(response, SettingsOut):
        rows = [(one.name, one.value, "default" if one.is_default else "set") for one in response.settings]
        return "\n".join([f"version {response.version}", *table_lines(screen, ("SETTING", "VALUE", ""), rows)])
    pairs = zip(response.before.settings, response.after.settings, strict=True)
    lines = [f"{old.name}: {old.value} -> {new.value}" for old, new in pairs if old.value != new.value]
    return "\n".join([*(lines or ["no setting has another value"]), response.message])
