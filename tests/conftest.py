"""Fixtures of several folders: a real PostgreSQL, and a ledger on each engine with a clock that the test moves."""

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import hypothesis
import pytest

import onejob
from onejob.audit import audit_log
from onejob.clock import FakeClock
from onejob.ledger import leases
from onejob.logs import LogHandler
from onejob.runtime import counts
from tests.http.auth_server import AuthServer, run_auth_server
from tests.support.command_line import CommandRunner, run_service
from tests.support.leftovers import end_leftovers, name_run
from tests.support.manager_process import run_manager_process
from tests.support.postgres_server import Server, SharedDatabase, StoreClock
from tests.support.raw_http import engine_line
from tests.support.seaweedfs import SeaweedServer
from tests.support.sizes import starts_a_program

# How long an example takes says something about the machine.
_PATIENT = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.register_profile("busy machine", _PATIENT)
hypothesis.settings.load_profile("busy machine")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        name_run()


def pytest_itemcollected(item: pytest.Item) -> None:
    if starts_a_program(item):
        item.add_marker("long")


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """After the workers have ended: whatever they could not end themselves."""
    if not hasattr(config, "workerinput") and (left := end_leftovers()):
        print("\nended what the run left behind:", *left, sep="\n  ")


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


@pytest.fixture(scope="session")
def seaweedfs() -> Iterator[SeaweedServer]:
    server = SeaweedServer()
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(autouse=True)
def own_log_handlers() -> Iterator[None]:
    """A command that logs on stderr sets up `logging` for its process, which the next test is in, too."""
    yield
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, LogHandler)]:
        root.removeHandler(handler)
    audit_log.setLevel(logging.NOTSET)


@pytest.fixture(scope="session", autouse=True)
def replica_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The replicas of buckets are made in a folder of the tests, also by the processes they start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def bucket_url(seaweedfs: SeaweedServer) -> str:
    return seaweedfs.url()


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


@pytest.fixture
def frequent_renewals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of 3 s, which outlast a stall of the machine, are renewed every 0.1 s."""
    monkeypatch.setattr(leases, "RENEWALS_PER_LEASE", 30)


@pytest.fixture
def patient_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A count is waited for, and repeated after its interval, however long a stall of the machine made it take."""
    monkeypatch.setattr(counts, "WAIT_SECONDS_MAX", 30.0)
    monkeypatch.setattr(counts, "SHARE_OF_TIME", 1)


@pytest.fixture(params=["sqlite", "postgres"])
def durable_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that outlives whoever opens it, and that several may open."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return f"sqlite:///{tmp_path / 'onejob.db'}"


@pytest.fixture
def settings(durable_url: str) -> str:
    """What the servers of a test share."""
    return engine_line(durable_url)


@pytest.fixture(scope="module", params=["sqlite", "postgres", pytest.param("manager", marks=pytest.mark.matrix)])
def shared_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One store for all tests of a file; what serves the third is a gate."""
    if request.param == "postgres":
        yield str(request.getfixturevalue("postgres").database())
        return
    engine = f"sqlite:///{tmp_path_factory.mktemp('shared') / 'onejob.db'}"
    if request.param == "sqlite":
        yield engine
        return
    with run_manager_process("--engine", engine) as manager:
        yield manager.url


@pytest.fixture(scope="module")
def shared_settings(shared_url: str) -> str:
    return engine_line(shared_url)


@pytest.fixture(scope="module")
def auth_server(shared_url: str) -> Iterator[AuthServer]:
    yield from run_auth_server(shared_url)


@pytest.fixture
def rate_limited_server(durable_url: str) -> Iterator[AuthServer]:
    """Two new submissions of a credential, and then one every thousand seconds."""
    yield from run_auth_server(durable_url, rate_per_second=0.001, rate_burst=2)


@pytest.fixture
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("ONEJOB_ENGINE", "ONEJOB_URL", "ONEJOB_API_KEY", "NO_COLOR", "GITHUB_ACTIONS", "GITHUB_OUTPUT"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> CommandRunner:
    return CommandRunner(capsys)


@pytest.fixture
def on_engine(run: CommandRunner, durable_url: str) -> CommandRunner:
    """The command on an engine of its own."""
    return run.with_arguments("--engine", durable_url)


@pytest.fixture(scope="module")
def server_and_engine(shared_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server and its store: where both doors lead to one place."""
    with run_service(tmp_path_factory.mktemp("served"), "--engine", shared_url) as url:
        yield url, shared_url


@pytest.fixture
def empty_store(server_and_engine: tuple[str, str]) -> None:
    """Nothing of an earlier test is left."""
    asked = Request(f"{server_and_engine[0]}/api/tenants/default", method="DELETE")
    with urlopen(asked, timeout=120) as told:
        assert told.status == 200


@pytest.fixture(params=["engine", "url"])
def backend(request: pytest.FixtureRequest, server_and_engine: tuple[str, str], run: CommandRunner) -> CommandRunner:
    url, engine = server_and_engine
    return run.with_arguments("--url", url) if request.param == "url" else run.with_arguments("--engine", engine)
