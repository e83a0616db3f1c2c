"""The PostgreSQL server of the benchmarks, with large buffers so that no checkpoint falls into a round."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.postgres_server import Server, find_programs

from .measure import processor_seconds


def database_server() -> Server:
    return Server(shared_buffers="128MB", max_wal_size="4GB", checkpoint_timeout="30min", autovacuum_naptime="1min")


@contextmanager
def running_database() -> Iterator[Server]:
    server = database_server()
    try:
        server.init()
        server.start()
        yield server
    finally:
        server.remove()


def database_seconds(server: Server) -> float:
    """Processor time of all processes of a server so far."""
    assert server.process is not None
    return processor_seconds(server.process.pid, with_children=True)


def database_program() -> str:
    return str(find_programs() / "postgres")
