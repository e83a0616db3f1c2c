"""A ledger on each engine, with a clock that the test moves."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

import onejob
from onejob.clock import FakeClock
from tests.edges.command_line import Command, service
from tests.edges.house import House, housed
from tests.edges.sockets import engine_line


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> FakeClock:
    """Where a test has a store that many share, its clock is that store's."""
    parameters = getattr(getattr(request.node, "callspec", None), "params", {})
    if parameters.get("url") == "postgres":
        return request.getfixturevalue("store_clock")  # type: ignore[no-any-return]  # pytest does not know it
    return FakeClock()


@pytest.fixture
async def queue(url: str, clock: FakeClock) -> AsyncIterator[onejob.Ledger]:
    config = onejob.IdempotencyConfig(pending_wait_timeout=0)
    async with onejob.open(url, clock=clock, config=config, sweep=False) as ledger:
        yield ledger


@pytest.fixture(params=["sqlite", "postgres"])
def lasting_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that outlives whoever opens it, and that several may open."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'onejob.db'}"


@pytest.fixture
def settings(lasting_url: str) -> str:
    """What the servers of a test share."""
    return engine_line(lasting_url)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """One store for all tests of a file."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres").database())
    return f"sqlite:///{tmp_path_factory.mktemp('shared') / 'onejob.db'}"


@pytest.fixture(scope="module")
def shared_settings(shared_url: str) -> str:
    return engine_line(shared_url)


@pytest.fixture(scope="module")
def house(shared_url: str) -> Iterator[House]:
    yield from housed(shared_url)


@pytest.fixture
def slow(lasting_url: str) -> Iterator[House]:
    """Two new submissions of a credential, and then one every thousand seconds."""
    yield from housed(lasting_url, rate_per_second=0.001, rate_burst=2)


@pytest.fixture
def bare_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ONEJOB_ENGINE", "ONEJOB_API_KEY", "NO_COLOR", "GITHUB_ACTIONS", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


@pytest.fixture
def on_engine(run: Command, lasting_url: str) -> Command:
    """The command on an engine of its own."""
    return run.to("--engine", lasting_url)


@pytest.fixture(scope="module")
def store(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server and its store: where both doors lead to one place."""
    with service(tmp_path_factory.mktemp("served"), "--engine", shared_url) as url:
        yield url, shared_url


@pytest.fixture
def emptied(store: tuple[str, str]) -> None:
    """Nothing of an earlier test is left."""
    asked = Request(f"{store[0]}/api/tenants/default", method="DELETE")
    with urlopen(asked, timeout=30) as told:
        assert told.status == 200


@pytest.fixture(params=["engine", "url"])
def door(request: pytest.FixtureRequest, store: tuple[str, str], run: Command) -> Command:
    url, engine = store
    return run.to("--url", url) if request.param == "url" else run.to("--engine", engine)
