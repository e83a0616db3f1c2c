"""A ledger on each engine, with a clock that the test moves."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import onejob
from onejob.clock import FakeClock
from tests.edges.command_line import Command, service
from tests.edges.house import House, housed


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
async def queue(url: str, clock: FakeClock) -> AsyncIterator[onejob.Ledger]:
    config = onejob.IdempotencyConfig(pending_wait_timeout=0)
    async with onejob.open(url, clock=clock, config=config, sweep=False) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    yield from housed(tmp_path_factory.mktemp("auth"))


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[House]:
    """Two new submissions of a credential, and then one every thousand seconds."""
    yield from housed(tmp_path, rate_per_second=0.001, rate_burst=2)


@pytest.fixture
def bare_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ONEJOB_ENGINE", "ONEJOB_API_KEY", "NO_COLOR", "GITHUB_ACTIONS", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server and its store: where both doors lead to one place."""
    folder = tmp_path_factory.mktemp("served")
    with service(folder) as url:
        yield url, f"sqlite:///{folder / 'onejob.db'}"


@pytest.fixture(params=["engine", "url"])
def door(request: pytest.FixtureRequest, store: tuple[str, str], run: Command) -> Command:
    url, engine = store
    return run.to("--url", url) if request.param == "url" else run.to("--engine", engine)
