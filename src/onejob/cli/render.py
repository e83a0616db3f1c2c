"""Prints responses: JSON for programs, text for people, with colours only on a terminal."""

import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from msgspec import Raw, Struct, json

from onejob.clock import SystemClock
from onejob.core.identity import FORBIDDEN_CHARACTERS
from onejob.core.key import SEQUENCE_MAX
from onejob.core.states import IdempotencyStatus, JobState
from onejob.core.timestamps import to_utc
from onejob.core.views import SequenceOutcome
from onejob.core.work import FIRST_EVENTS_MAX
from onejob.http.schemas.jobs import EventOut, JobOut, JobsOut, KeyOut, KeysOut, SingleJobOut, SiteOut
from onejob.http.schemas.sequences import ClientStateOut, SequenceOut
from onejob.http.schemas.steps import StepOut
from onejob.http.schemas.work import LogsOut

if TYPE_CHECKING:
    from .backend import SubmitResult

_ANSI_CODES: Final = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36",
}  # fmt: skip
_ASCII_SYMBOLS: Final = {"●": "*", "○": "o", "│": "|", "…": "..."}
_SYMBOLS = re.compile("|".join(_ASCII_SYMBOLS))
_WIDTH_UNLIMITED: Final = 10_000  # for a pipe
_DURATION_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Screen(Struct, frozen=True):
    """What the output device shows: colours, Unicode, its width; and the current time."""

    color: bool = False
    unicode: bool = True
    width: int = _WIDTH_UNLIMITED
    now: datetime = datetime.max.replace(tzinfo=UTC)

    @classmethod
    def from_stdout(cls, *, color: bool) -> "Screen":
        terminal = sys.stdout is not None and sys.stdout.isatty()
        encoding = (getattr(sys.stdout, "encoding", None) or "ascii").lower().replace("-", "")
        width = shutil.get_terminal_size().columns if terminal else _WIDTH_UNLIMITED
        return cls(color and terminal, encoding == "utf8", width, to_utc(SystemClock().wall_ms()))

    def paint(self, style: str, text: str) -> str:
        return f"\x1b[{_ANSI_CODES[style]}m{text}\x1b[0m" if self.color and style and text else text

    def to_charset(self, text: str) -> str:
        return text if self.unicode else _SYMBOLS.sub(lambda found: _ASCII_SYMBOLS[found[0]], text)

    def time(self, moment: datetime) -> str:
        return f"{moment:%Y-%m-%d %H:%M:%S}Z"

    def time_ago(self, moment: datetime) -> str:
        return f"{self.time(moment)} ({self.ago(moment)})"

    def ago(self, moment: datetime) -> str:
        past = self.now - moment
        if abs(past) < timedelta(seconds=1):
            return "now"
        return f"{format_duration(past)} ago" if past > timedelta(0) else f"in {format_duration(-past)}"

    def clip(self, text: str, width: int) -> str:
        if len(text) <= width:
            return text
        dots = self.to_charset("…")
        return text[: max(1, width - len(dots))] + dots


def format_duration(length: timedelta) -> str:
    """A duration in its two largest units: 23 h 59 min."""
    seconds = round(length.total_seconds())
    parts: list[str] = []
    for size, unit in _DURATION_UNITS:
        count, seconds = divmod(seconds, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2])) or "0 s"


def sanitize(text: object) -> str:
    """Text from elsewhere, without characters that could move the cursor or forge a line."""
    return FORBIDDEN_CHARACTERS.sub("?", str(text))


def to_json(response: Any) -> str:
    """The JSON of a response body, without the id of the request."""
    if isinstance(response, msgspec.Raw):  # a result, as it is stored
        return json.format(bytes(response), indent=2).decode()
    plain = json.decode(json.encode(response))
    plain.pop("requestId", None)
    return json.format(json.encode(plain), indent=2).decode()


def write(text: str) -> None:
    """Write to standard output and flush, so that a closed pipe or a full disk is detected here."""
    if sys.stdout is None:
        return
    _escape_unencodable(sys.stdout)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_error(text: str, *, without_prefix: bool = False) -> None:
    if sys.stderr is not None:
        _escape_unencodable(sys.stderr)
        sys.stderr.write(f"{'' if without_prefix else 'onejob: '}{sanitize(text)}\n")


def _escape_unencodable(stream: Any) -> None:
    # Characters that the encoding of the terminal lacks are written as escapes.
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")


_STATE_STYLES: dict[str, str] = {
    JobState.RUNNING: "blue",
    JobState.SUCCESS: "green",
    JobState.FAILED: "red",
    JobState.LOST: "red",
    JobState.CANCELLED: "dim",
    IdempotencyStatus.COMMITTED: "green",
    IdempotencyStatus.REJECTED: "red",
}


def render_submission(screen: Screen, response: "SubmitResult | SequenceOut") -> str:
    if isinstance(response, SequenceOut):
        return render_sequence(screen, response)
    outcome = response.idempotency.outcome
    style = "green" if outcome == "created" else "cyan"
    lines = [f"{screen.paint(style, outcome)} job {screen.paint('bold', sanitize(response.job_id))}"]
    rows = [("state", paint_state(screen, response.job.state))] if response.job else []
    if response.idempotency.key is not None:
        rows.append(("key", _key_in_scope(response.idempotency.key, response.idempotency.scope)))
    if response.idempotency.expires_at is not None:
        rows.append(("window", f"until {screen.time_ago(response.idempotency.expires_at)}"))
    rows += [("warning", screen.paint("yellow", sanitize(one.message))) for one in response.warnings]
    return "\n".join(lines + field_lines(screen, rows))


def render_sequence(screen: Screen, response: SequenceOut) -> str:
    style = "green" if response.outcome is SequenceOutcome.COMMITTED else "cyan"
    head = f"{screen.paint(style, response.outcome)} number {screen.paint('bold', str(response.assigned_sequence))}"
    rows = [("job", _job_line(screen, one)) for one in response.jobs]
    rows += [
        ("client", f"{sanitize(response.client_id)} in scope {sanitize(response.scope)}"),
        ("key", sanitize(response.key)),
    ]
    if response.expires_at is not None:
        rows.append(("window", f"until {screen.time_ago(response.expires_at)}"))
    return "\n".join([head, *field_lines(screen, rows)])


def render_client_state(screen: Screen, response: ClientStateOut) -> str:
    last = response.last_committed_sequence
    seen = "never" if response.last_seen is None else screen.time_ago(response.last_seen)
    rows = [
        ("scope", sanitize(response.scope)),
        ("last", str(last)),
        ("next", str(last + 1) if last < SEQUENCE_MAX else "none: choose another client id"),
        ("seen", seen),
    ]
    return "\n".join([f"client {screen.paint('bold', sanitize(response.client_id))}", *field_lines(screen, rows)])


def render_job(screen: Screen, response: SingleJobOut) -> str:
    one = response.job
    head = f"job {screen.paint('bold', one.id)} {paint_state(screen, one.state)}"
    rows = [
        ("type", sanitize(one.type)),
        ("key", "none" if one.key is None else _key_in_scope(one.key, one.scope)),
        ("by", f"{sanitize(one.actor)} for user {sanitize(one.user)}"),
        ("created", screen.time_ago(one.created_at)),
        ("changed", screen.time_ago(one.changed_at) if one.changed_at != one.created_at else ""),
        ("started", screen.time_ago(one.started_at) if one.started_at else ""),
        ("runs at", screen.time_ago(one.run_at) if one.run_at else ""),
        ("ended", screen.time_ago(one.ended_at) if one.ended_at else ""),
        ("delivery", one.delivery.value),
        ("priority", str(one.priority) if one.priority else ""),
        ("attempts", str(one.attempts)),
        ("progress", sanitize(_progress_text(one.progress))),
        ("labels", sanitize(" ".join(f"{name}={value}" for name, value in one.labels.items()))),
        ("error", screen.paint("red", sanitize(one.error)) if one.error else ""),
    ]
    return "\n".join([head, *field_lines(screen, rows)])


def step_lines(screen: Screen, steps: Sequence[StepOut]) -> list[str]:
    rows = [
        (sanitize(step.name), step.state.value, str(step.runs), screen.time(step.began_at), _step_end(screen, step))
        for step in steps
    ]
    return table_lines(screen, ("STEP", "STATE", "RUNS", "BEGAN", "ENDED"), rows)


def site_lines(screen: Screen, sites: Sequence[SiteOut]) -> list[str]:
    rows = [
        (
            one.site,
            sanitize(one.state or "no answer yet"),
            "" if one.at is None else screen.time(one.at),
            one.on_its_way or "",
            sanitize(one.error or ""),
        )
        for one in sites
    ]
    lines = table_lines(screen, ("SITE", "STATE", "ANSWERED", "ON ITS WAY", "ERROR"), rows)
    return [*lines, *(line for one in sites if one.other_job for line in _other_job_lines(one))]


def _other_job_lines(site: SiteOut) -> list[str]:
    """The other job under the key at a site, which of the two prevails, and how to cancel the other one."""
    lines = [f"{site.site}: the key belongs to job {sanitize(site.other_job or '')} there"]
    if site.paths:
        lines.append(f"  the submissions differ at {sanitize(', '.join(site.paths))}")
    if site.prevailing_job:
        lines.append(f"  the smaller id prevails: {sanitize(site.prevailing_job)}")
    if site.cancel_command:
        lines.append(f"  to cancel the other one, at {site.cancel_at}: {sanitize(site.cancel_command)}")
    elif site.prevailing_job and site.prevailing_job != site.other_job:
        lines.append("  it was cancelled, failed, or is lost: the other one remains, so do not cancel that")
    return lines


def _step_end(screen: Screen, step: StepOut) -> str:
    return "" if step.ended_at is None else screen.time(step.ended_at)


def render_jobs(screen: Screen, response: JobsOut) -> str:
    rows = [
        (one.id, one.state, screen.time(one.created_at), sanitize(one.type), sanitize(one.key or ""))
        for one in response.jobs
    ]
    lines = table_lines(screen, ("JOB", "STATE", "CREATED", "TYPE", "KEY"), rows) if rows else ["no jobs"]
    if response.next is not None:
        lines.append(screen.paint("dim", f"more: --cursor {sanitize(response.next)}"))
    return "\n".join(lines)


def render_key_history(screen: Screen, response: KeyOut) -> str:
    head = f"key {screen.paint('bold', sanitize(response.key))} {paint_state(screen, response.status)}"
    rows = [
        ("scope", sanitize(response.scope)),
        ("job", _job_line(screen, response.job) if response.job else "none"),
        ("by", f"{sanitize(response.actor)} for user {sanitize(response.user)}"),
        ("hits", str(response.hits)),
        ("conflicts", screen.paint("yellow" if response.conflicts else "", str(response.conflicts))),
    ]
    return "\n".join([head, *field_lines(screen, rows), "", *timeline_lines(screen, response)])


def render_keys(screen: Screen, response: KeysOut) -> str:
    rows = [
        (
            one.status,
            screen.time(one.expires_at),
            str(one.hits),
            str(one.conflicts),
            one.job.id if one.job else "",
            sanitize(one.scope),
            sanitize(one.key),
        )
        for one in response.keys
    ]
    heads = ("STATUS", "UNTIL", "HITS", "CONFLICTS", "JOB", "SCOPE", "KEY")
    lines = table_lines(screen, heads, rows) if rows else ["no keys"]
    if response.next is not None:
        lines.append(screen.paint("dim", f"more: --cursor {sanitize(response.next)}"))
    return "\n".join(lines)


def render_result(_: Screen, response: Raw) -> str:
    return "\n".join(map(sanitize, to_json(response).split("\n")))


def render_logs(_: Screen, response: LogsOut) -> str:
    return "\n".join(map(sanitize, response.lines))


class TimelineEntry(NamedTuple):
    at: datetime
    text: str
    actor: str = ""
    style: str = ""


def failure_lines(screen: Screen, failures: Sequence[EventOut]) -> list[str]:
    """The messages of exceptions, which only operators see; a message may have several lines."""
    lines = []
    for failure in failures:
        at, what = screen.paint("dim", screen.time(failure.at)), screen.paint("red", sanitize(failure.what))
        lines.append(f"  {at}  {what}")
        lines += [f"    {sanitize(line)}" for line in failure.detail.splitlines()]
    return lines


def timeline_lines(screen: Screen, history: KeyOut) -> list[str]:
    """The past and future events of a key, oldest first."""
    lines = []
    for index, entry in enumerate(sorted(timeline_entries(history), key=lambda entry: entry.at)):
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


def timeline_entries(history: KeyOut) -> Iterable[TimelineEntry]:
    if not history.events:
        yield TimelineEntry(history.first_seen, "taken", history.actor)
    for event in history.events:
        detail = f": {event.detail}" if event.detail else ""
        yield TimelineEntry(event.at, event.what + detail, event.actor, _STATE_STYLES.get(event.what, ""))
    if history.last_hit_at is not None:
        # Hits are counted in memory and stored now and then: this is when they were stored.
        times = "a duplicate was" if history.hits == 1 else f"{history.hits} duplicates were"
        yield TimelineEntry(history.last_hit_at, f"until then, {times} answered with the same job", style="cyan")
    for conflict in history.recent_conflicts:
        paths = f": {', '.join(conflict.paths)}" if conflict.paths else ""
        yield TimelineEntry(conflict.at, f"conflict, another body under the key{paths}", conflict.actor, "yellow")
    if history.held_until is not None:
        yield TimelineEntry(history.held_until, "the hold ends, unless it is renewed", style="yellow")
    yield TimelineEntry(history.expires_at, "the window ends, then the key may be used anew", style="dim")


def table_lines(screen: Screen, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Columns as wide as their cells; the last one is clipped at the width of the screen."""
    rows = [heads, *rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    room = max(8, screen.width - sum(widths[:-1]) - 2 * (len(heads) - 1))
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        cells.append(screen.clip(row[-1], room))
        if row is heads:
            lines.append(screen.paint("dim", "  ".join(cells)).rstrip())
        else:
            painted = [screen.paint(_STATE_STYLES.get(cell.strip(), ""), cell) for cell in cells]
            lines.append("  ".join(painted).rstrip())
    return lines


def field_lines(screen: Screen, rows: Iterable[tuple[str, str]]) -> list[str]:
    """One line for each name and value; empty values are left out."""
    return [f"  {screen.paint('dim', name.ljust(9))}  {value}" for name, value in rows if value]


def paint_state(screen: Screen, state: str) -> str:
    return screen.paint(_STATE_STYLES.get(state, "yellow"), state)


def _progress_text(progress: Raw) -> str:
    text = bytes(progress).decode()
    return "" if text == "null" else text


def _job_line(screen: Screen, one: JobOut) -> str:
    return f"{one.id} {paint_state(screen, one.state)} ({sanitize(one.type)})"


def _key_in_scope(key: str, scope: str) -> str:
    return f"{sanitize(key)} in scope {sanitize(scope)}"
