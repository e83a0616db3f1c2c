"""What several rooms of tests need: a real PostgreSQL, started by the first that asks for it."""

from collections.abc import Iterator

import pytest

from tests.postgres_server import Server, StoreClock, SharedDatabase


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    server = Server()
    try:
        server.init()
        server.start()
        yield server
    finally:
        server.remove()


@pytest.fixture(scope="session")
def postgres_tables(postgres: Server) -> Iterator[SharedDatabase]:
    tables = SharedDatabase(postgres.database())
    yield tables
    tables.close()


@pytest.fixture
def postgres_url(postgres_tables: SharedDatabase) -> Iterator[str]:
    """A database with nothing in it. The tables are made once, since making them takes longer than most tests."""
    postgres_tables.empty()
    yield postgres_tables.url
    postgres_tables.release_clock()


@pytest.fixture
def store_clock(postgres_url: str, postgres_tables: SharedDatabase) -> StoreClock:
    """The time of the database of this test, in the test's hands."""
    return StoreClock(postgres_tables)
