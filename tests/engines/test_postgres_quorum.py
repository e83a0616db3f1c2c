"""A PostgreSQL that waits for a standby: nothing is acknowledged before the standby has it, not even a duplicate."""

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest

from onejob.conformance.samples import TENANT, key_id, submit
from onejob.conformance.world import expect
from onejob.core.lookup import LookUpKey
from onejob.core.replies import Created, Found, Replayed
from onejob.engine import Durability
from onejob.engines import postgres as module
from onejob.engines.postgres import PostgresEngine
from onejob.errors import StoreRefused, Unavailable, Unknown
from tests.support.postgres_server import SUPERUSER, Server


class Cluster:
    """A server, and a receiver of its WAL that it waits for as for a standby."""

    def __init__(self) -> None:
        self.server = Server()
        self.receiver: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.server.init()
        self.server.start()
        self.url = self.server.database()
        target = self.server.folder / "received"
        target.mkdir(mode=0o777)
        target.chmod(0o777)
        self.receiver = self.server.spawn(
            "pg_receivewal", "-D", str(target), "-h", "127.0.0.1", "-p", str(self.server.port), "-U", SUPERUSER,
            "--synchronous", "--no-loop",
        )  # fmt: skip

    def pause(self) -> None:
        assert self.receiver is not None
        self.receiver.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.receiver is not None
        self.receiver.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self.receiver is not None:
            self.receiver.kill()
            self.receiver.wait()
        self.server.remove()


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(cluster.url)
    yield connection
    cluster.resume()
    await set_standby_names(connection, "")
    await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    await connection.close()


async def set_standby_names(admin: Any, names: str) -> None:
    """Change synchronous_standby_names on a running server."""
    await admin.execute("SET synchronous_commit = local")
    await admin.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    await admin.execute("SELECT pg_reload_conf()")
    async with asyncio.timeout(10):
        while await admin.fetchval("SHOW synchronous_standby_names") != names:
            await asyncio.sleep(0.01)
        while names and not await admin.fetchval("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"):
            await asyncio.sleep(0.02)


@pytest.fixture
async def engine(cluster: Cluster, admin: Any) -> AsyncIterator[PostgresEngine]:
    await set_standby_names(admin, "*")
    engine = await PostgresEngine.open(f"{cluster.url}?durability=quorum")
    yield engine
    cluster.resume()
    await engine.aclose()


async def test_a_declared_quorum_has_no_durability_warning(engine: PostgresEngine) -> None:
    assert engine.info.durability is Durability.QUORUM
    assert engine.info.durability_warning == ""
    await expect(engine, submit(), Created)
    await expect(engine, submit(), Replayed)


async def test_what_is_on_no_standby_is_not_acknowledged(
    cluster: Cluster, engine: PostgresEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a creation nor a replay nor a read is answered while the standby is stopped."""
    other = await PostgresEngine.open(f"{cluster.url}?durability=quorum")
    await expect(engine, submit(), Created)
    await expect(other, LookUpKey(tenant=TENANT, record_id=key_id()), Found)
    cluster.pause()
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
    for command in (submit("new"), submit(), LookUpKey(tenant=TENANT, record_id=key_id())):
        with pytest.raises(Unknown):
            await (engine if command.writes else other).execute([command])
    monkeypatch.setattr(module, "ANSWER_SECONDS", 15)
    cluster.resume()
    await expect(engine, submit("new"), Replayed)
    await other.aclose()


async def test_a_commit_whose_wait_an_operator_cancels_is_unknown(
    cluster: Cluster, engine: PostgresEngine, admin: Any
) -> None:
    """The server reports success with a warning: the row is visible, but on no standby."""
    command = submit("cancelled")
    await expect(engine, submit("first"), Created)
    cluster.pause()
    call = asyncio.create_task(engine.execute([command]))
    waiting = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    async with asyncio.timeout(10):
        while not await admin.fetch(waiting):
            await asyncio.sleep(0.01)
    with pytest.raises(Unknown):
        await call
    # The repetition writes and waits, so that its reply is on the standby.
    again = asyncio.create_task(engine.execute([command]))
    await asyncio.sleep(0.3)
    assert not again.done()
    cluster.resume()
    (reply,) = await again
    assert isinstance(reply, Created)


async def test_a_replay_writes_so_that_it_can_be_waited_for(engine: PostgresEngine, admin: Any) -> None:
    await expect(engine, submit(), Created)
    before = await admin.fetchval("SELECT pg_current_wal_insert_lsn()::text")
    await expect(engine, submit(), Replayed)
    await expect(engine, LookUpKey(tenant=TENANT, record_id=key_id()), Found)
    grown = await admin.fetchval("SELECT pg_current_wal_insert_lsn() - $1::text::pg_lsn", before)
    assert grown > 0


async def test_a_server_that_stops_waiting_is_refused(engine: PostgresEngine, admin: Any) -> None:
    await expect(engine, submit(), Created)
    await set_standby_names(admin, "")
    for key in ("a", "b", "c"):
        with pytest.raises((Unknown, StoreRefused)):
            await engine.execute([submit(key)])
    with pytest.raises(StoreRefused, match="synchronous_standby_names"):
        await engine.execute([submit("a")])
    await set_standby_names(admin, "*")
    (reply,) = await engine.execute([submit("a")])
    assert isinstance(reply, (Created, Replayed))


@pytest.mark.parametrize(
    ("setting", "url", "complaint"),
    [
        ("synchronous_standby_names = ''", "?durability=quorum", "synchronous_standby_names"),
        ("synchronous_commit = 'local'", "?durability=quorum", "synchronous_commit"),
        ("synchronous_commit = 'remote_write'", "?durability=quorum", "synchronous_commit"),
        ("synchronous_commit = 'off'", "", "synchronous_commit"),
        ("synchronous_commit = 'off'", "?durability=disk", "synchronous_commit"),
    ],
)
async def test_a_server_that_breaks_the_declared_durability_is_refused_at_opening(
    cluster: Cluster, admin: Any, setting: str, url: str, complaint: str
) -> None:
    await set_standby_names(admin, "" if "names" in setting else "*")
    name, _, value = setting.partition(" = ")
    database = cluster.url.rpartition("/")[2]
    if name == "synchronous_commit":
        await admin.execute(f"ALTER DATABASE {database} SET {name} = {value}")
    try:
        with pytest.raises(StoreRefused, match=complaint):
            await PostgresEngine.open(cluster.url + url)
    finally:
        await admin.execute(f"ALTER DATABASE {database} RESET ALL")


async def test_without_a_declared_quorum_there_is_a_durability_warning(cluster: Cluster, admin: Any) -> None:
    for names, text in (("", "durability is disk"), ("*", "not declared")):
        await set_standby_names(admin, names)
        engine = await PostgresEngine.open(cluster.url)
        assert engine.info.durability is Durability.DISK
        assert text in engine.info.durability_warning
        await engine.aclose()


async def test_a_standby_is_not_written_to(cluster: Cluster, admin: Any) -> None:
    await admin.execute(f"ALTER DATABASE {cluster.url.rpartition('/')[2]} SET default_transaction_read_only = on")
    try:
        with pytest.raises(Unavailable):
            await PostgresEngine.open(cluster.url)
    finally:
        await admin.execute("SET default_transaction_read_only = off")
        await admin.execute(f"ALTER DATABASE {cluster.url.rpartition('/')[2]} RESET ALL")
