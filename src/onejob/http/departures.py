"""Answers leave together, at the end of a turn of the loop, and in order on each connection.

A write wakes whoever reads at the other end, and that costs more than the write: of many in a row only the first does.
"""

import asyncio
import logging
from typing import Any

from .logs import trail

log = logging.getLogger("onejob.http")

HELD_BYTES_MAX = 16_384  # more than this leaves at once


class Departures:
    """The connections of one loop that have something to send."""

    def __init__(self) -> None:
        self._waiting: list[Departing] = []

    def add(self, one: "Departing") -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._leave)
        self._waiting.append(one)

    def _leave(self) -> None:
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            try:
                one.flush()
            except Exception as error:  # noqa: BLE001 - one connection must not keep the answers of the others
                log.warning("an answer could not be sent: %s", trail(error))
                one.abort()


class Departing(asyncio.Transport):
    """A transport that holds what is written until the turn ends, or until the order of things needs it out."""

    __slots__ = ("_departures", "_ended", "_held", "_transport")

    def __init__(self, transport: asyncio.Transport, departures: Departures) -> None:
        self._transport = transport
        self._departures = departures
        self._held = b""
        self._ended = False

    def write(self, data: Any) -> None:
        if self._ended:
            return  # nobody would read it
        if self._held:
            self._held += data
        else:
            self._held = data
            self._departures.add(self)
        if len(self._held) > HELD_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._transport.write(held)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def can_write_eof(self) -> bool:
        return self._transport.can_write_eof()

    def write_eof(self) -> None:
        self.flush()
        self._ended = True
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._held = b""
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
