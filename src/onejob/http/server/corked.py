"""Answers leave together, at the end of a turn of the loop, and in order on each connection.

A write wakes whoever reads at the other end, and that costs more than the write: of many in a row only the first does.
"""

import asyncio
import logging
from typing import Any

from onejob.http.logs import redacted_traceback

log = logging.getLogger("onejob.http")

CORKED_BYTES_MAX = 16_384  # more than this leaves at once


class CorkedWrites:
    """The connections of one loop that have something to send."""

    def __init__(self) -> None:
        self._pending: list[CorkedTransport] = []

    def add(self, transport: "CorkedTransport") -> None:
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._flush_all)
        self._pending.append(transport)

    def _flush_all(self) -> None:
        waiting, self._pending = self._pending, []
        for one in waiting:
            try:
                one.flush()
            except Exception as error:  # noqa: BLE001 - one connection must not keep the answers of the others
                log.warning("an answer could not be sent: %s", redacted_traceback(error))
                one.abort()


class CorkedTransport(asyncio.Transport):
    """A transport that holds what is written until the turn ends, or until the order of things needs it out."""

    __slots__ = ("_buffer", "_corked_writes", "_eof_written", "_transport")

    def __init__(self, transport: asyncio.Transport, corked_writes: CorkedWrites) -> None:
        self._transport = transport
        self._corked_writes = corked_writes
        self._buffer = b""
        self._eof_written = False

    def write(self, data: Any) -> None:
        if self._eof_written:
            return  # nobody would read it
        if self._buffer:
            self._buffer += data
        else:
            self._buffer = data
            self._corked_writes.add(self)
        if len(self._buffer) > CORKED_BYTES_MAX:
            self.flush()

    def flush(self) -> None:
        held, self._buffer = self._buffer, b""
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
        self._eof_written = True
        self._transport.write_eof()

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._buffer = b""
        self._transport.abort()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()
