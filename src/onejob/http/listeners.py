"""The sockets of the port that workers share: one for each, all of them kept by the supervisor.

The kernel spreads connections evenly over sockets with SO_REUSEPORT; from one socket the workers would take
them as they happen to wake up, up to all of them by one. Since the supervisor keeps every socket open, what
arrives while a worker is away waits there for whoever stands in for it, and is not refused.
"""

import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .serve import BACKLOG, bind_socket


@contextmanager
def open_listeners(host: str, port: int, count: int) -> Iterator[Sequence[socket.socket]]:
    # Others are found by a socket that shares with nobody: one that shares would join them without a word.
    with bind_socket(host, port) as alone:
        alone.listen()
        port = alone.getsockname()[1]
    # Elsewhere the option exists, but spreads nothing.
    spread = sys.platform == "linux"
    opened: list[socket.socket] = []
    try:
        for _ in range(count if spread else 1):
            opened.append(bind_socket(host, port, reuse_port=spread))  # noqa: PERF401 - what is opened is closed
        for listener in opened:
            listener.listen(BACKLOG)
        yield opened
    finally:
        for listener in opened:
            listener.close()
