"""Show statistics and workers, live on a terminal (q quits); elsewhere once.

Plain ANSI: the alternate screen, so that the terminal is as before afterwards, and a repaint from the top left corner.
"""

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from msgspec import Struct

from onejob.cli.arguments import add_target_arguments, parse_duration
from onejob.cli.backend import Backend
from onejob.cli.command import CommandResult, call_backend
from onejob.cli.render import Screen, sanitize
from onejob.clock import SystemClock
from onejob.errors import OnejobError
from onejob.resources.operators import OverviewView, Workers
from onejob.settings import CliSettings

from .stats import summary_lines
from .types import type_lines
from .workers import render_workers

EXAMPLE = "onejob top --interval 5s"
INTERVAL_DEFAULT: Final = timedelta(seconds=2)
INTERVAL_SECONDS_MIN: Final = 0.2
_KEY_WAIT_SECONDS: Final = 0.2
_KEYS_AT_ONCE_MAX: Final = 64
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_CLEAR_LINE: Final = "\x1b[K"
_CLEAR_BELOW: Final = "\x1b[J"


class LiveStats(Struct, frozen=True, rename="camel"):
    overview: OverviewView
    workers: Workers


def add_arguments(command: ArgumentParser) -> None:
    command.add_argument(
        "--interval",
        type=parse_duration,
        default=INTERVAL_DEFAULT,
        metavar="DURATION",
        help="how often the screen is painted; default: 2s",
    )
    add_target_arguments(command)


def run(options: Namespace) -> CommandResult:
    def show(backend: Backend) -> LiveStats | None:
        if options.json or not _is_terminal():
            return load_stats(backend)
        seconds = max(options.interval.total_seconds(), INTERVAL_SECONDS_MIN)
        with _terminal() as is_quit_pressed:
            repaint(backend, seconds, is_quit_pressed, color=CliSettings.from_env().color)
        return None

    return call_backend(options, show, render)


def repaint(backend: Backend, seconds: float, is_quit_pressed: Callable[[float], bool], *, color: bool) -> None:
    """Paint until q is pressed. What cannot be loaded now is loaded at the next turn."""
    clock = SystemClock()
    lines: list[str] = []
    while True:
        screen, footer = Screen.from_stdout(color=color), "q: quit"
        try:
            lines = stats_lines(screen, load_stats(backend))
        except OnejobError as error:
            if not error.retryable:
                raise
            footer = screen.paint("red", f"not current: {sanitize(error)}")
        _paint([*lines, "", footer])
        until = clock.monotonic() + seconds
        while (left := until - clock.monotonic()) > 0:
            if is_quit_pressed(min(left, _KEY_WAIT_SECONDS)):
                return


def load_stats(backend: Backend) -> LiveStats:
    return LiveStats(backend.overview(), backend.workers())


def stats_lines(screen: Screen, stats: LiveStats) -> list[str]:
    lines = summary_lines(screen, stats.overview)
    if stats.overview.types:
        lines += ["", *type_lines(screen, stats.overview.types)]
    return [*lines, "", *render_workers(screen, stats.workers).split("\n")]


def render(screen: Screen, stats: LiveStats | None) -> str:
    return "" if stats is None else "\n".join(stats_lines(screen, stats))


def _paint(lines: list[str]) -> None:
    height = shutil.get_terminal_size().lines
    if len(lines) > height:  # the last line says how to quit
        lines = [*lines[: height - 1], lines[-1]]
    sys.stdout.write(_HOME + f"{_CLEAR_LINE}\r\n".join(lines) + _CLEAR_LINE + _CLEAR_BELOW)
    sys.stdout.flush()


def _is_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))


@contextmanager
def _terminal() -> Iterator[Callable[[float], bool]]:
    """The alternate screen, with keys read one by one; gives a function that waits for q."""
    import select
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before: list[Any] = termios.tcgetattr(descriptor)

    def is_quit_pressed(seconds: float) -> bool:
        readable, _, _ = select.select([descriptor], [], [], seconds)
        if not readable:
            return False
        keys = os.read(descriptor, _KEYS_AT_ONCE_MAX)
        return not keys or b"q" in keys.lower()  # nothing: the terminal is gone

    try:
        tty.setcbreak(descriptor)
        sys.stdout.write(_ENTER)
        yield is_quit_pressed
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
