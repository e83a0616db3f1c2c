"""Waits for the end of a job, with a progress bar."""

from datetime import timedelta
from typing import Final

from onejob.clock import SystemClock
from onejob.core.states import ENDED_STATES, JobState
from onejob.resources.jobs import SingleJob

from .backend import Backend
from .render import StatusLine, format_duration, print_error, sanitize

REPAINT_SECONDS: Final = 0.5
POLL_SECONDS: Final = 1.0
WAIT_SECONDS_MAX: Final = 10.0  # shorter than the timeouts of proxies
BAR_WIDTH: Final = 24


def wait_for_end(backend: Backend, job_id: str, *, timeout: timedelta | None) -> SingleJob:
    """Show a progress bar until the job has ended or the timeout is over; the job as it is then."""
    clock, bar = SystemClock(), ProgressBar()
    begin = now = clock.monotonic()
    end = float("inf") if timeout is None else begin + timeout.total_seconds()
    wait_max = REPAINT_SECONDS if bar.line.is_shown else WAIT_SECONDS_MAX
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
        bar.line.clear()


class ProgressBar:
    """A bar on a terminal, elsewhere a line for every change of state; on standard error."""

    def __init__(self) -> None:
        self.line = StatusLine()
        self._state: JobState | None = None

    def show(self, state: JobState, seconds: float) -> None:
        elapsed = format_duration(timedelta(seconds=seconds))
        self.line.show(f"[{_bar_text(seconds)}] {sanitize(state)} for {elapsed}")
        if not self.line.is_shown and state != self._state:
            print_error(f"state of the job: {state}")
        self._state = state


def _bar_text(seconds: float) -> str:
    """The remaining time is not known, so the bar moves back and forth."""
    room = BAR_WIDTH - 3
    position = int(seconds * 4) % (2 * room)
    position = min(position, 2 * room - position)
    return "-" * position + "===" + "-" * (room - position)
