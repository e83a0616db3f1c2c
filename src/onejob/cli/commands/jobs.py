"""What operators do on the command line: workers, types, statistics, and one act on all jobs that match a filter."""

import sys
from argparse import Namespace
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from msgspec import Struct

from onejob.cli.backend import Backend
from onejob.cli.render import Screen, format_duration, paint_state, render_jobs, sanitize, table_lines
from onejob.clock import SystemClock
from onejob.core.errors import Invalid
from onejob.core.states import JobState
from onejob.core.timestamps import to_utc
from onejob.http.schemas.jobs import JobsOut
from onejob.http.schemas.overview import OverviewOut, SeriesOut, TypeOut, TypePausedOut, TypesOut, WorkersOut
from onejob.ids import new_nonce
from onejob.ledger.operators import BULK_ERRORS_MAX, BulkAction
from onejob.ledger.reads import JobFilter

_STATES_SHOWN: Final = (JobState.RUNNING, JobState.SCHEDULED, JobState.FAILED, JobState.LOST)
_WORDS: Final = {
    BulkAction.CANCEL: ("cancel", "cancelled"),
    BulkAction.RERUN: ("run again", "run again"),
    BulkAction.RESOLVE_SUCCEEDED: ("resolve as succeeded", "resolved as succeeded"),
    BulkAction.RESOLVE_FAILED: ("resolve as failed", "resolved as failed"),
}


class BulkReport(Struct, frozen=True, rename="camel"):
    """What became of an act on all jobs that match a filter."""

    action: BulkAction
    matched: int
    changed: int
    errors: list[str]
    confirmed: bool = True


def jobs(options: Namespace) -> Callable[[Backend], JobsOut | BulkReport]:
    wanted, action = parse_filter(options), parse_action(options)
    if action is not None:
        if wanted == JobFilter():
            raise Invalid("filter", "this would change every job; name a state, a type or another filter")
        return lambda backend: act_on_jobs(backend, action, wanted, is_confirmed=options.yes)
    return lambda backend: backend.jobs(
        state=wanted.state,
        type=wanted.type,
        user=wanted.user,
        label=wanted.label,
        created_after=wanted.created_after,
        created_before=wanted.created_before,
        before=options.cursor,
        limit=options.limit,
    )


def parse_filter(options: Namespace) -> JobFilter:
    now = to_utc(SystemClock().wall_ms())
    after, before = (now - at if isinstance(at, timedelta) else at for at in (options.since, options.until))
    return JobFilter(
        state=None if options.state is None else JobState(options.state),
        type=options.type,
        user=options.user,
        label=options.label,
        created_after=after,
        created_before=before,
    )


def parse_action(options: Namespace) -> BulkAction | None:
    if options.resolve is not None:
        return BulkAction(f"resolve-{options.resolve}")
    if options.rerun or options.cancel:
        return BulkAction.RERUN if options.rerun else BulkAction.CANCEL
    if options.yes:
        raise Invalid("yes", "--yes belongs to --cancel, --rerun or --resolve; name one of them")
    return None


def act_on_jobs(backend: Backend, action: BulkAction, wanted: JobFilter, *, is_confirmed: bool) -> BulkReport:
    """Act on all jobs that match, page by page, after somebody has confirmed how many they are."""
    count = backend.count_jobs(action, wanted)
    if not count.matched:
        return BulkReport(action, 0, 0, [])
    number = f"more than {count.matched}" if count.more else str(count.matched)
    if not is_confirmed and not ask_to_confirm(f"{_WORDS[action][0]} {number} jobs"):
        return BulkReport(action, count.matched, 0, [], confirmed=False)
    key, matched, changed, errors, cursor = f"cli-{new_nonce()}", 0, 0, list[str](), None
    while True:
        page = backend.bulk_action(action, wanted, before=cursor, idempotency_key=key)
        matched, changed, errors = matched + page.matched, changed + page.changed, errors + page.errors
        if page.next is None:
            return BulkReport(action, matched, changed, errors[:BULK_ERRORS_MAX])
        cursor = page.next


def ask_to_confirm(act: str) -> bool:
    if sys.stdin is None or not sys.stdin.isatty():
        raise Invalid("yes", f"this would {act}, and nobody can be asked; add --yes if that is what you want")
    sys.stderr.write(f"onejob: {act}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def render_jobs_or_report(screen: Screen, response: JobsOut | BulkReport) -> str:
    if isinstance(response, JobsOut):
        return render_jobs(screen, response)
    if not response.matched:
        return "no jobs match; nothing was done"
    if not response.confirmed:
        return f"nothing was done; {response.matched} jobs match"
    lines = [f"{response.changed} of {response.matched} jobs {_WORDS[response.action][1]}"]
    lines += [screen.paint("red", f"  {sanitize(error)}") for error in response.errors]
    return "\n".join(lines)


def types(options: Namespace) -> Callable[[Backend], TypesOut | TypePausedOut]:
    if (options.act is None) != (options.type is None):
        raise Invalid("type", "name an act and a type, as `onejob types pause mail`; or neither, to list all")
    if options.act is None:
        return lambda backend: backend.types()
    if options.act == "pause":
        return lambda backend: backend.pause_type(options.type)
    return lambda backend: backend.resume_type(options.type)


def render_types(screen: Screen, response: TypesOut | TypePausedOut) -> str:
    if isinstance(response, TypePausedOut):
        rest = "its jobs are accepted and wait" if response.paused else "its jobs are claimed again"
        return f"{sanitize(response.type)} {'is paused' if response.paused else 'runs'}: {rest}, within two seconds"
    lines = type_lines(screen, response.types) if response.types else ["no types"]
    if response.counted_at is not None:
        lines.append(screen.paint("dim", f"counted {screen.ago(response.counted_at)}"))
    return "\n".join(lines)


def type_lines(screen: Screen, types: list[TypeOut]) -> list[str]:
    heads = ("READY", "OLDEST", *(state.upper() for state in _STATES_SHOWN), "DONE/DAY", "PAUSED", "TYPE")
    rows = [
        (
            str(one.ready),
            "" if one.oldest_ready_seconds is None else format_duration(timedelta(seconds=one.oldest_ready_seconds)),
            *(str(one.states.get(state, 0)) for state in _STATES_SHOWN),
            str(sum(one.ended_last_day.values())),
            "" if one.paused_since is None else f"{screen.ago(one.paused_since)} by {sanitize(one.paused_by or '')}",
            sanitize(one.type),
        )
        for one in types
    ]
    return table_lines(screen, heads, rows)


def render_workers(screen: Screen, response: WorkersOut) -> str:
    if not response.workers:
        return "no workers were heard of within the last minute; start one with `onejob worker MODULE:APP`"
    return "\n".join(worker_lines(screen, response))


def worker_lines(screen: Screen, response: WorkersOut) -> list[str]:
    heads = ("NAME", "HOST", "PID", "VERSION", "BUSY", "DONE", "SEEN", "TENANTS", "TYPES")
    rows = [
        (
            sanitize(one.name),
            sanitize(one.host),
            str(one.pid),
            sanitize(one.version),
            f"{one.running}/{one.concurrency}",
            str(sum(one.ended.values())),
            screen.ago(one.seen_at),
            "all" if one.all_tenants else "own",
            sanitize(", ".join(one.types)),
        )
        for one in response.workers
    ]
    return table_lines(screen, heads, rows)


def render_stats(screen: Screen, response: OverviewOut) -> str:
    return "\n".join([*summary_lines(screen, response), "", *type_lines(screen, response.types)])


def summary_lines(screen: Screen, overview: OverviewOut) -> list[str]:
    """The store, the jobs by state, and what happened in the last hour and day."""
    counted = "not counted yet" if overview.counted_at is None else f"counted {screen.ago(overview.counted_at)}"
    store = f"{sanitize(overview.engine)}, durability {overview.durability}, {screen.time(overview.now)}"
    states = "  ".join(f"{paint_state(screen, state)} {count}" for state, count in sorted(overview.states.items()))
    lines = [
        f"{screen.paint('bold', 'onejob')} on {store}",
        *([screen.paint("yellow", sanitize(overview.caveat))] if overview.caveat else []),
        f"jobs   {states or 'none'} {screen.paint('dim', f'({counted})')}",
    ]
    for title, series in (("submissions", overview.submissions), ("attempts", overview.ends)):
        rows = [
            (name, str(one.minutes[-1]), str(sum(one.minutes)), str(sum(one.hours)), sparkline(screen, one))
            for name, one in sorted(series.items())
        ]
        if rows:
            lines += ["", *table_lines(screen, (title.upper(), "MINUTE", "HOUR", "DAY", "LAST HOUR"), rows)]
    return lines


def sparkline(screen: Screen, series: SeriesOut) -> str:
    """The minutes of the last hour, one character for two of them; empty without Unicode."""
    if not screen.unicode:
        return ""
    pairs = [sum(series.minutes[n : n + 2]) for n in range(0, len(series.minutes), 2)]
    most = max(pairs, default=0)
    return "".join("▁▂▃▄▅▆▇█"[min(count * 8 // (most + 1), 7)] if count else " " for count in pairs).rstrip()
