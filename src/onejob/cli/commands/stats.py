"""Show jobs by state and type, and submissions and attempts of the last hour and day."""

from argparse import ArgumentParser, Namespace

from onejob.cli.arguments import add_target_arguments
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, paint_state, sanitize, table_lines
from onejob.resources.operators import OverviewView, SeriesView

from .types import type_lines

EXAMPLE = "onejob stats --url http://127.0.0.1:8001"


def add_arguments(command: ArgumentParser) -> None:
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    return call_backend(options, lambda backend: backend.overview(), render_stats)


def render_stats(screen: Screen, response: OverviewView) -> str:
    return "\n".join([*summary_lines(screen, response), "", *type_lines(screen, response.types)])


def summary_lines(screen: Screen, overview: OverviewView) -> list[str]:
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
            (name, str(row.minutes[-1]), str(sum(row.minutes)), str(sum(row.hours)), _sparkline(screen, row))
            for name, row in sorted(series.items())
        ]
        if rows:
            lines += ["", *table_lines(screen, (title.upper(), "MINUTE", "HOUR", "DAY", "LAST HOUR"), rows)]
    return lines


def _sparkline(screen: Screen, series: SeriesView) -> str:
    """The minutes of the last hour, one character for two of them; empty without Unicode."""
    if not screen.unicode:
        return ""
    pairs = [sum(series.minutes[n : n + 2]) for n in range(0, len(series.minutes), 2)]
    most = max(pairs, default=0)
    return "".join("▁▂▃▄▅▆▇█"[min(count * 8 // (most + 1), 7)] if count else " " for count in pairs).rstrip()
