"""The command `settings`: shows the settings that are stored in a ledger, and changes them."""

from argparse import Namespace
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from onejob.cli.render import Screen, table_lines
from onejob.core.ledger_settings import LedgerSettings
from onejob.core.timestamps import to_utc
from onejob.runtime.settings import (
    SettingsChange,
    change_settings,
    in_use_message,
    list_changes,
    parse_settings,
    preview_settings,
    shown_settings,
)
from onejob.sync import SyncLedger


class SettingOut(Struct, frozen=True, rename="camel"):
    name: str
    value: str
    is_default: bool  # nobody has said it


class NotedChangeOut(Struct, frozen=True, rename="camel"):
    version: int
    at: datetime
    actor: str
    settings: str  # what was set from then on


class SettingsOut(Struct, frozen=True, rename="camel"):
    version: int
    settings: list[SettingOut]
    changes: list[NotedChangeOut] = []  # the last ones, the newest last


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
        changes = ledger.run(list_changes(runtime.gate))
        noted = [NotedChangeOut(one.version, to_utc(one.at), one.actor, one.settings) for one in changes]
        return replace(_settings_out(ledger, runtime.settings), changes=noted)
    said = parse_settings(options.settings)
    if options.dry_run:
        change = ledger.run(preview_settings(runtime.gate, said))
    else:
        change = ledger.run(change_settings(runtime.gate, said, actor=ledger.async_ledger.caller.actor))
    return SettingsChangeOut(
        changed=change.after != change.before and change.is_possible and not options.dry_run,
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
    if change.after == change.before:
        return "nothing was changed: it is so already"
    if dry_run:
        return "nothing was changed: this is what would be; leave --dry-run out to change it"
    return "changed; every process of this ledger adopts it, and one that is configured otherwise accepts nothing more"


def render_settings(screen: Screen, response: SettingsOut | SettingsChangeOut) -> str:
    if isinstance(response, SettingsOut):
        rows = [(one.name, one.value, "default" if one.is_default else "set") for one in response.settings]
        lines = [f"version {response.version}", *table_lines(screen, ("SETTING", "VALUE", ""), rows)]
        if response.changes:
            noted = [(screen.time_ago(one.at), one.actor, one.settings) for one in response.changes]
            lines += ["", *table_lines(screen, ("CHANGED", "BY", "SET FROM THEN ON"), noted)]
        return "\n".join(lines)
    pairs = zip(response.before.settings, response.after.settings, strict=True)
    changed = [f"{old.name}: {old.value} -> {new.value}" for old, new in pairs if old.value != new.value]
    return "\n".join([*changed, response.message])
