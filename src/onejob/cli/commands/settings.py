"""Show the settings that are stored in a ledger, which all its processes share; `set` changes them."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from datetime import datetime

from msgspec import Struct
from msgspec.structs import replace

from onejob.cli.arguments import (
    ENGINE_HELP,
    JSON_HELP,
    TARGET_GROUP,
    add_command,
    add_engine_arguments,
    add_subcommands,
)
from onejob.cli.backend import EngineBackend
from onejob.cli.command import CommandResult, call_engine
from onejob.cli.exit_codes import DONE, FAILED
from onejob.cli.render import Screen, table_lines
from onejob.core.ledger_settings import SETTINGS, LedgerSettings
from onejob.core.timestamps import to_utc
from onejob.ledger.base import runtime_of
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

EXAMPLE = "onejob settings --engine sqlite:///onejob.db"


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


def add_arguments(command: ArgumentParser) -> None:
    names = ", ".join(f"{setting.name} ({setting.meaning})" for setting in SETTINGS)
    change = add_command(
        add_subcommands(command, required=False),
        "set",
        f"Change settings of a ledger: {names}. What enters the identity of keys changes only while no key is live.",
        "onejob settings set key_owner=user window=48h --dry-run",
    )
    change.add_argument("settings", nargs="+", metavar="NAME=VALUE", help="e.g. key_owner=user or window=48h")
    change.add_argument("--dry-run", action="store_true", help="show what would change and what stands in its way")
    add_engine_arguments(command, tenant=False)
    target = change.add_argument_group(TARGET_GROUP)  # without defaults: what stands before `set` counts too
    target.add_argument("--engine", metavar="URL", default=SUPPRESS, help=ENGINE_HELP)
    target.add_argument("--json", action="store_true", default=SUPPRESS, help=JSON_HELP)


def run(options: Namespace) -> CommandResult:
    if options.subcommand != "set":
        return call_engine(options, _show, render_settings)
    result = call_engine(options, lambda engine: _change(engine, options), render_change)
    return result._replace(exit_code=FAILED if result.value.live_keys else DONE)


def _show(engine: EngineBackend) -> SettingsOut:
    ledger = engine.ledger
    runtime = runtime_of(ledger.async_ledger)
    changes = ledger.run(list_changes(runtime.gate))
    noted = [NotedChangeOut(change.version, to_utc(change.at), change.actor, change.settings) for change in changes]
    return replace(_settings_out(ledger, runtime.settings), changes=noted)


def _change(engine: EngineBackend, options: Namespace) -> SettingsChangeOut:
    ledger, said = engine.ledger, parse_settings(options.settings)
    runtime = runtime_of(ledger.async_ledger)
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
    shown = shown_settings(settings, window_ms=runtime_of(ledger.async_ledger).engine_info.window_ms)
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


def render_settings(screen: Screen, response: SettingsOut) -> str:
    rows = [(row.name, row.value, "default" if row.is_default else "set") for row in response.settings]
    lines = [f"version {response.version}", *table_lines(screen, ("SETTING", "VALUE", ""), rows)]
    if response.changes:
        noted = [(screen.time_ago(change.at), change.actor, change.settings) for change in response.changes]
        lines += ["", *table_lines(screen, ("CHANGED", "BY", "SET FROM THEN ON"), noted)]
    return "\n".join(lines)


def render_change(_: Screen, response: SettingsChangeOut) -> str:
    pairs = zip(response.before.settings, response.after.settings, strict=True)
    changed = [f"{old.name}: {old.value} -> {new.value}" for old, new in pairs if old.value != new.value]
    return "\n".join([*changed, response.message])
