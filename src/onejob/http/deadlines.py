"""How long a connection may take for each stage of a request.

It has one deadline, that of its stage, and one slow timer that looks at it: a request that arrives at once costs no
timer. What is late is found late by at most a quarter of the shortest deadline.
"""

import asyncio
from enum import Enum, auto
from typing import ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from .config import ServiceConfig

LINGER_SECONDS = 5.0
TICKS_PER_DEADLINE = 4

_NEVER = float("inf")


class Stage(Enum):
    """What a connection is waiting for."""

    IDLE = auto()  # a request
    HEAD = auto()
    BODY = auto()
    RESPONSE = auto()  # ours
    CLOSING = auto()  # the client, to read the last answer and go


class TimeoutProtocol(HttpToolsProtocol):
    service_config: ClassVar[ServiceConfig] = ServiceConfig()

    stage = Stage.HEAD
    _deadline = _NEVER  # of the stage
    _write_deadline = _NEVER
    _timer: asyncio.TimerHandle | None = None

    def enter_stage(self, stage: Stage, seconds: float = _NEVER) -> None:
        self.stage = stage
        self._deadline = _NEVER if seconds is _NEVER else self.loop.time() + seconds

    def on_stage_timeout(self) -> None:
        """The stage took too long."""
        raise NotImplementedError

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn
        super().connection_made(transport)
        self.enter_stage(Stage.HEAD, self.service_config.head_seconds_max)
        self._check_deadlines()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        # A client that does not read its answer is given as long as one that does not send its body.
        self._write_deadline = self.loop.time() + self.service_config.body_seconds_max
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_deadline = _NEVER
        super().resume_writing()

    def _check_deadlines(self) -> None:
        now = self.loop.time()
        if now >= self._write_deadline:
            self.transport.abort()
        elif now >= self._deadline:
            self._deadline = _NEVER
            self.on_stage_timeout()
        service = self.service_config
        shortest = min(service.head_seconds_max, service.body_seconds_max, service.idle_seconds_max)
        pause = min(shortest, LINGER_SECONDS) / TICKS_PER_DEADLINE
        self._timer = self.loop.call_later(pause, self._check_deadlines)
