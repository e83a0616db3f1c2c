"""Waiting for the end of a job: a bar on a terminal, a line for every change elsewhere."""

import sys
from datetime import timedelta
from typing import Final

from onejob.clock import SystemClock
from onejob.core.states import ENDED_STATES, JobState
from onejob.http.wire import SingleJobOut

from .screen import format_duration, sanitize
from .work_doors import WAIT_SECONDS_MAX, WorkBackend

REPAINT_SECONDS: Final = 0.5
POLL_SECONDS: Final = 1.0
BAR_WIDTH: Final = 24
ERASE_LINE: Final = "\r\x1b[K"


def wait_for_end(backend: WorkBackend, job_id: str, *, timeout: timedelta | None) -> SingleJobOut:
    """Wait behind the door until a job has ended, or the time is over; the job as it is then."""
    clock, shown = SystemClock(), ProgressBar()
    begin = now = clock.monotonic()
    end = float("inf") if timeout is None else begin + timeout.total_seconds()
    longest = REPAINT_SECONDS if shown.is_animated else WAIT_SECONDS_MAX
    asked = 0.0  # how it stands is shown at once
    try:
        while True:
            found, before, now = backend.wait_for_job(job_id, asked), now, clock.monotonic()
            shown.show(found.job.state, now - begin)
            if found.job.state in ENDED_STATES or now >= end:
                return found
            if now - before < asked / 2:  # nobody waits there now: it is full, or goes down
                clock.sleep(min(POLL_SECONDS, end - now))
                now = clock.monotonic()
            asked = max(0.001, min(longest, end - now))
    finally:
        shown.clear()


class ProgressBar:
    """Written to standard error, so that standard output stays what it is."""

    def __init__(self) -> None:
        self.is_animated = sys.stderr is not None and sys.stderr.isatty()
        self._state: JobState | None = None

    def show(self, state: JobState, seconds: float) -> None:
        if sys.stderr is None:
            return
        told = f"{sanitize(state)} for {format_duration(timedelta(seconds=seconds))}"
        if self.is_animated:
            sys.stderr.write(f"{ERASE_LINE}[{_bar_text(seconds)}] {told}")
        elif state != self._state:
            sys.stderr.write(f"onejob: the job is {state}\n")
        sys.stderr.flush()
        self._state = state

    def clear(self) -> None:
        if self.is_animated and sys.stderr is not None:
            sys.stderr.write(ERASE_LINE)
            sys.stderr.flush()


def _bar_text(seconds: float) -> str:
    """How long it will take is not known, so the bar walks to and fro."""
    room = BAR_WIDTH - 3
    place = int(seconds * 4) % (2 * room)
    place = min(place, 2 * room - place)
    return "-" * place + "===" + "-" * (room - place)
