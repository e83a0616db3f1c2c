"""Waiting for the end of a job: a bar on a terminal, a line for every change elsewhere."""

import sys
from datetime import timedelta
from typing import Final

from onejob.clock import SystemClock
from onejob.core.states import ENDED, JobState
from onejob.http.wire import OneJobOut

from .screen import clean, span
from .work_doors import AWAIT_SECONDS, WorkDoor

REPAINT_SECONDS: Final = 0.5
POLL_SECONDS: Final = 1.0
WIDTH: Final = 24
ERASE: Final = "\r\x1b[K"


def waited(door: WorkDoor, job_id: str, *, timeout: timedelta | None) -> OneJobOut:
    """Wait behind the door until a job has ended, or the time is over; the job as it is then."""
    clock, shown = SystemClock(), Bar()
    begin = now = clock.monotonic()
    end = float("inf") if timeout is None else begin + timeout.total_seconds()
    longest = REPAINT_SECONDS if shown.moves else AWAIT_SECONDS
    asked = 0.0  # how it stands is shown at once
    try:
        while True:
            found, before, now = door.awaited(job_id, asked), now, clock.monotonic()
            shown.show(found.job.state, now - begin)
            if found.job.state in ENDED or now >= end:
                return found
            if now - before < asked / 2:  # nobody waits there now: it is full, or goes down
                clock.sleep(min(POLL_SECONDS, end - now))
                now = clock.monotonic()
            asked = max(0.001, min(longest, end - now))
    finally:
        shown.clear()


class Bar:
    """Written to standard error, so that standard output stays what it is."""

    def __init__(self) -> None:
        self.moves = sys.stderr is not None and sys.stderr.isatty()
        self._state: JobState | None = None

    def show(self, state: JobState, seconds: float) -> None:
        if sys.stderr is None:
            return
        told = f"{clean(state)} for {span(timedelta(seconds=seconds))}"
        if self.moves:
            sys.stderr.write(f"{ERASE}[{_moving(seconds)}] {told}")
        elif state != self._state:
            sys.stderr.write(f"onejob: the job is {state}\n")
        sys.stderr.flush()
        self._state = state

    def clear(self) -> None:
        if self.moves and sys.stderr is not None:
            sys.stderr.write(ERASE)
            sys.stderr.flush()


def _moving(seconds: float) -> str:
    """How long it will take is not known, so the bar walks to and fro."""
    room = WIDTH - 3
    place = int(seconds * 4) % (2 * room)
    place = min(place, 2 * room - place)
    return "-" * place + "===" + "-" * (room - place)
