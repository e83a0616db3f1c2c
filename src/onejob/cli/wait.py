"""Waits for the end of a job, with a progress bar."""

import sys
from datetime import timedelta
from typing import Final

from onejob.clock import SystemClock
from onejob.core.states import ENDED_STATES, JobState
from onejob.resources.jobs import SingleJob

from .backend import Backend
from .render import format_duration, sanitize

REPAINT_SECONDS: Final = 0.5
POLL_SECONDS: Final = 1.0
WAIT_SECONDS_MAX: Final = 10.0  # shorter than the timeouts of proxies
BAR_WIDTH: Final = 24
ERASE_LINE: Final = "\r\x1b[K"


def wait_for_end(backend: Backend, job_id: str, *, timeout: timedelta | None) -> SingleJob:
    """Show a progress bar until the job has ended or the timeout is over; the job as it is then."""
    clock, bar = SystemClock(), ProgressBar()
    begin = now = clock.monotonic()
    end = float("inf") if timeout is None else begin + timeout.total_seconds()
    wait_max = REPAINT_SECONDS if bar.is_animated else WAIT_SECONDS_MAX
    wait = 0.0  # the first state is shown at once
    try:
        while True:
            response, before, now = backend.wait(job_id, timedelta(seconds=wait)), now, clock.monotonic()
            bar.show(response.job.state, now - begin)
            if response.job.state in ENDED_STATES or now >= end:
                return response
            if now - before < wait / 2:  # a server that is full or shutting down answers at once
                clock.sleep(min(POLL_SECONDS, end - now))
                now = clock.monotonic()
            wait = max(0.001, min(wait_max, end - now))
    finally:
        bar.clear()


class ProgressBar:
    """A bar on a terminal, elsewhere a line for every change of state; on standard error."""

    def __init__(self) -> None:
        self.is_animated = sys.stderr is not None and sys.stderr.isatty()
        self._state: JobState | None = None

    def show(self, state: JobState, seconds: float) -> None:
        if sys.stderr is None:
            return
        if self.is_animated:
            elapsed = format_duration(timedelta(seconds=seconds))
            sys.stderr.write(f"{ERASE_LINE}[{_bar_text(seconds)}] {sanitize(state)} for {elapsed}")
        elif state != self._state:
            sys.stderr.write(f"onejob: state of the job: {state}\n")
        sys.stderr.flush()
        self._state = state

    def clear(self) -> None:
        if self.is_animated and sys.stderr is not None:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()


def _bar_text(seconds: float) -> str:
    """The remaining time is not known, so the bar moves back and forth."""
    room = BAR_WIDTH - 3
    position = int(seconds * 4) % (2 * room)
    position = min(position, 2 * room - position)
    return "-" * position + "===" + "-" * (room - position)
