"""Lists the functions of onejob that one request passes, in all threads of this process."""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import onejob

ROOT = Path(onejob.__file__).parent
WARM_UPS = 30
RECORDINGS = 7
ON_RECORD_MIN = 2  # a function that is not in every recording is on record if it is in this many
SETTLE_SECONDS = 0.02
# Comprehensions are functions until Python 3.11, and not any more in 3.12.
_LEFT_OUT = ("<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>")


class Walk(NamedTuple):
    """The functions that were met, in the order of their first call, and how many calls there were."""

    functions: tuple[str, ...]
    calls: int

    def text(self) -> str:
        head = f"functions: {len(self.functions)}, files: {len(files_of(self.functions))}, calls: {self.calls}"
        return "\n".join((head, *self.functions)) + "\n"


def files_of(functions: Iterable[str]) -> set[str]:
    return {function.partition(": ")[0] for function in functions}


class WalkRecorder:
    """The profile function of all threads that are started later; it notes nothing unless `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.calls: Counter[str] = Counter()
        self._names: dict[object, str] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_on and event == "call":
            name = self._names.get(frame.f_code)
            if name is None:
                name = self._names[frame.f_code] = _name_of(frame)
            if name:
                self.calls[name] += 1

    async def record(self, request: Callable[[], Awaitable[object]]) -> Walk:
        self.calls = Counter()
        self.is_on = True
        try:
            await request()
            await asyncio.sleep(SETTLE_SECONDS)
        finally:
            self.is_on = False
        return Walk(tuple(self.calls), self.calls.total())

    @contextmanager
    def paused(self) -> Iterator[None]:
        """For what a request needs and is not part of it."""
        was_on, self.is_on = self.is_on, False
        try:
            yield
        finally:
            self.is_on = was_on


def _name_of(frame: FrameType) -> str:
    """Empty for what is not of onejob."""
    code = frame.f_code
    if not code.co_filename.startswith(str(ROOT)) or code.co_name in _LEFT_OUT:
        return ""
    return f"{Path(code.co_filename).relative_to(ROOT)}: {code.co_qualname.replace('.<locals>', '')}"


@contextmanager
def recording() -> Iterator[WalkRecorder]:
    """Opened before any thread of the ledger is started."""
    recorder = WalkRecorder()
    before = sys.getprofile()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        yield recorder
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


async def walk(
    recorder: WalkRecorder, request: Callable[[], Awaitable[object]], *, warm_ups: int = WARM_UPS
) -> list[Walk]:
    for _ in range(warm_ups):
        await request()
    return [await recorder.record(request) for _ in range(RECORDINGS)]


def on_record(walks: list[Walk]) -> Walk:
    """What belongs to the request, in the order of the shortest recording: timers are in few recordings."""
    counts = Counter(function for walk in walks for function in walk.functions)
    shortest = min(walks, key=lambda walk: (walk.calls, walk.functions))
    functions = [name for name in shortest.functions if counts[name] >= ON_RECORD_MIN]
    functions += sorted(name for name in counts if counts[name] >= ON_RECORD_MIN and name not in functions)
    return Walk(tuple(functions), shortest.calls)


def in_every(walks: list[Walk]) -> set[str]:
    """What the request certainly passes."""
    return set.intersection(*(set(walk.functions) for walk in walks))
