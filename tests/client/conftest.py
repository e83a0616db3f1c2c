"""A real server, and a client of it with short retries."""

from collections.abc import Iterator

import pytest

import onejob
from tests.support.serve_process import ServeProcess, run_serve_process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with run_serve_process(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def quick_retry() -> onejob.RetryPolicy:
    return onejob.RetryPolicy(deadline=10.0, attempt_timeout=5.0, pause_first=0.001, pause_max=0.01)


@pytest.fixture
def client(server: ServeProcess, quick_retry: onejob.RetryPolicy) -> Iterator[onejob.Client]:
    with onejob.Client(server.base_url, retry=quick_retry) as made:
        yield made
