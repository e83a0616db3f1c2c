"""A real server for the clients, and a client of it that does not wait long."""

from collections.abc import Iterator

import pytest

import onejob
from tests.edges.process import Process, process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with process(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def quick() -> onejob.RetryPolicy:
    return onejob.RetryPolicy(deadline=2.0, attempt_timeout=1.0, pause_first=0.001, pause_max=0.01)


@pytest.fixture
def client(server: Process, quick: onejob.RetryPolicy) -> Iterator[onejob.Client]:
    with onejob.Client(server.address, retry=quick) as made:
        yield made
