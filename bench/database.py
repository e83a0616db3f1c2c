"""The PostgreSQL server of the benchmarks, with large buffers so that no checkpoint falls into a round."""

from tests.support.postgres_server import Server


def database_server() -> Server:
    return Server(shared_buffers="128MB", max_wal_size="4GB", checkpoint_timeout="30min", autovacuum_naptime="1min")
