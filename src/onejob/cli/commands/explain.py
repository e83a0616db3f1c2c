"""Show the history of a key: who used it first, its job, its duplicates, its window."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from onejob.cli.arguments import add_target_arguments
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import STATE_STYLES, Screen, field_lines, job_line, paint_state, sanitize
from onejob.core.work import FIRST_EVENTS_MAX
from onejob.resources.keys import KeyHistory

EXAMPLE = "onejob explain charge-ORD-123 --scope charge"


class TimelineEntry(NamedTuple):
    at: datetime
    text: str
    actor: str = ""
    style: str = ""


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument("key", metavar="KEY", help="the key as it was submitted")
    command.add_argument("--scope", required=True, help="the job type, unless the submission named another scope")
    command.add_argument("--user", metavar="NAME", help="the user of the key, if every user has its own keys")
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    return call_backend(
        options, lambda backend: backend.explain(options.key, scope=options.scope, user=options.user), render
    )


def render(screen: Screen, response: KeyHistory) -> str:
    head = f"key {screen.paint('bold', sanitize(response.key))} {paint_state(screen, response.status)}"
    rows = [
        ("scope", sanitize(response.scope)),
        ("job", job_line(screen, response.job) if response.job else "none"),
        ("by", f"{sanitize(response.actor)} for user {sanitize(response.user)}"),
        ("hits", str(response.hits)),
        ("conflicts", screen.paint("yellow" if response.conflicts else "", str(response.conflicts))),
    ]
    return "\n".join([head, *field_lines(screen, rows), "", *timeline_lines(screen, response)])


def timeline_lines(screen: Screen, history: KeyHistory) -> list[str]:
    """The past and future events of a key, oldest first."""
    lines = []
    for index, entry in enumerate(sorted(_timeline_entries(history), key=lambda entry: entry.at)):
        mark = screen.paint(entry.style, screen.to_charset("○" if entry.at > screen.now else "●"))
        at = screen.paint("dim", f"{screen.time(entry.at)}")
        ago = screen.paint("dim", f"({screen.ago(entry.at)})")
        actor = f" by {sanitize(entry.actor)}" if entry.actor else ""
        lines.append(f"  {at}  {mark}  {sanitize(entry.text)}{actor} {ago}")
        dropped = history.events_total - len(history.events)
        if index == FIRST_EVENTS_MAX - 1 and dropped > 0:
            lines.append(
                f"  {'':20}  {screen.to_charset('│')}  {screen.to_charset('…')} {dropped} more events, not kept"
            )
    return lines


def _timeline_entries(history: KeyHistory) -> Iterable[TimelineEntry]:
    if not history.events:
        yield TimelineEntry(history.first_seen, "taken", history.actor)
    for event in history.events:
        detail = f": {event.detail}" if event.detail else ""
        yield TimelineEntry(event.at, event.what + detail, event.actor, STATE_STYLES.get(event.what, ""))
    if history.last_hit_at is not None:
        # Hits are counted in memory and stored now and then: this is when they were stored.
        times = "a duplicate was" if history.hits == 1 else f"{history.hits} duplicates were"
        yield TimelineEntry(history.last_hit_at, f"until then, {times} answered with the same job", style="cyan")
    for conflict in history.recent_conflicts:
        paths = f": {', '.join(conflict.paths)}" if conflict.paths else ""
        yield TimelineEntry(conflict.at, f"conflict, another body under the key{paths}", conflict.actor, "yellow")
    if history.held_until is not None:
        yield TimelineEntry(history.held_until, "the hold ends, unless it is renewed", style="yellow")
    yield TimelineEntry(history.expires_at, "the window ends, then the key may be used again", style="dim")
