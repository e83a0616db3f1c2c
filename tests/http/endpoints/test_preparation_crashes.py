"""Preparations in servers that are killed, stopped, suspended or raced: one job for each key."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import onejob
from tests.support.raw_http import Server, run_server

from .cloud_service import CONFIG, PATH, set_limits, wait_until

LEASE = 2.5  # is waited for
LONG_LEASE = 12.0  # outlasts a stall of the machine of 8 s, also right before a renewal
SETTINGS = """
drain_seconds_max = 2

[providers.replicate]
prepare = "uploads:upload"

[providers.blocks]
prepare = "uploads:blocks"

[providers.ignores_cancellation]
prepare = "uploads:ignores_cancellation"
"""
UPLOADS = """
import asyncio
import os
import time
from pathlib import Path


def record(preparation):
    with Path("started").open("a") as started:
        started.write(f"{os.getpid()} {preparation.job_id} {preparation.token}\\n")


async def upload(preparation):
    record(preparation)
    while not Path("go").exists():
        await asyncio.sleep(0.01)


def blocks(preparation):
    record(preparation)
    time.sleep(600)


async def ignores_cancellation(preparation):
    record(preparation)
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass
"""


class ServersOnOneStore:
    """Servers on one store, and the log file of their hooks."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        self.folder = folder
        self._url = url
        self._stack = stack
        (folder / "uploads.py").write_text(UPLOADS)

    def server(self, lease: float = LEASE) -> Server:
        environ = {**os.environ, "IDEMPOTENCY_PENDING_TTL_SECONDS": str(lease)}
        return self._stack.enter_context(
            run_server(self.folder, f'engine = "{self._url}"\n{SETTINGS}', environ=environ)
        )

    def started_hooks(self) -> list[tuple[int, str, int]]:
        """Process, job and token of every hook that was started."""
        log_file = self.folder / "started"
        lines = log_file.read_text().splitlines() if log_file.exists() else []
        return [(int(pid), job_id, int(token)) for pid, job_id, token in map(str.split, lines)]

    def release_hooks(self) -> None:
        (self.folder / "go").touch()

    async def set_limit(self, limit: int) -> None:
        async with self.ledger() as ledger:
            await set_limits(ledger, max_concurrent=limit)

    def ledger(self) -> Any:
        return onejob.open(self._url, sweep=False)

    async def jobs(self) -> list[onejob.Job]:
        async with self.ledger() as ledger:
            return list(await ledger.jobs())


@pytest.fixture(params=["sqlite", "postgres"])
def servers_on_one_store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ServersOnOneStore]:
    sqlite_url = f"sqlite:///{tmp_path / 'onejob.db'}"
    with ExitStack() as stack:
        yield ServersOnOneStore(
            tmp_path, sqlite_url if request.param == "sqlite" else request.getfixturevalue("postgres_url"), stack
        )


def ask(server: Server, key: str = "k", provider: str = "replicate") -> Any:
    reply = server.ask("POST", PATH + provider, {**CONFIG, "idempotency_key": key})
    assert reply.status == 200
    return reply.body


def start_asking(server: Server, key: str = "k", provider: str = "replicate") -> "asyncio.Task[Any]":
    return asyncio.create_task(asyncio.to_thread(ask, server, key, provider))


async def test_the_key_of_a_killed_server_is_taken_over_with_the_same_job(
    servers_on_one_store: ServersOnOneStore,
) -> None:
    server = servers_on_one_store.server()
    lost = start_asking(server)
    await wait_until(servers_on_one_store.started_hooks)
    server.kill()
    with pytest.raises(IndexError):  # the connection was closed without a response
        await lost
    (_, job_id, _), *_ = servers_on_one_store.started_hooks()
    server = servers_on_one_store.server(LONG_LEASE)
    servers_on_one_store.release_hooks()
    # A dead holder is noticed only when its lease ends: the response comes then.
    reply = ask(server)
    assert (reply["job_id"], reply["status"], reply["data_uploaded"]) == (job_id, "pending", True)
    assert [(one, token) for _, one, token in servers_on_one_store.started_hooks()] == [(job_id, 1), (job_id, 2)]
    assert [job.id for job in await servers_on_one_store.jobs()] == [job_id]


async def test_two_servers_and_twenty_callers_prepare_one_key_once(servers_on_one_store: ServersOnOneStore) -> None:
    servers = [servers_on_one_store.server(LONG_LEASE), servers_on_one_store.server(LONG_LEASE)]
    tasks = [start_asking(servers[n % 2]) for n in range(20)]
    await wait_until(lambda: sum(task.done() for task in tasks) == 19)
    assert {(one.result()["status"], one.result()["idempotent_hit"]) for one in tasks if one.done()} == {
        ("uploading", True)
    }
    await asyncio.sleep(LONG_LEASE + 1)  # the holder renews
    servers_on_one_store.release_hooks()
    reply = await asyncio.gather(*tasks)
    ((_, job_id, token),) = servers_on_one_store.started_hooks()
    assert ({one["job_id"] for one in reply}, token) == ({job_id}, 1)
    assert [job.id for job in await servers_on_one_store.jobs()] == [job_id]
    assert ask(servers[0]) == ask(servers[1])


async def test_a_server_that_was_suspended_beyond_its_lease_settles_nothing(
    servers_on_one_store: ServersOnOneStore,
) -> None:
    sleeper, other = servers_on_one_store.server(), servers_on_one_store.server(LONG_LEASE)
    first = start_asking(sleeper)
    await wait_until(servers_on_one_store.started_hooks)
    sleeper.process.send_signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE + 0.3)
    second = start_asking(other)
    await wait_until(lambda: len(servers_on_one_store.started_hooks()) == 2)
    sleeper.process.send_signal(signal.SIGCONT)
    reply = await first  # its key was taken over, and it reports the current outcome
    ((_, job_id, _), (_, same_id, token)) = servers_on_one_store.started_hooks()
    assert (job_id, token) == (same_id, 2)
    assert (reply["success"], reply["job_id"], reply["status"]) == (True, job_id, "uploading")
    servers_on_one_store.release_hooks()
    assert (await second)["job_id"] == job_id
    assert [job.id for job in await servers_on_one_store.jobs()] == [job_id]


async def test_a_server_that_is_stopped_frees_key_and_slot(servers_on_one_store: ServersOnOneStore) -> None:
    server = servers_on_one_store.server(LONG_LEASE)
    await servers_on_one_store.set_limit(1)
    first = start_asking(server)
    await wait_until(servers_on_one_store.started_hooks)
    begin = time.monotonic()
    assert await asyncio.to_thread(server.stop) == 0
    assert time.monotonic() - begin < 60
    reply = await first
    assert not reply["success"]
    assert "shutting down" in reply["error"]
    server = servers_on_one_store.server()
    servers_on_one_store.release_hooks()
    reply = ask(server)
    assert (reply["success"], reply["idempotent_hit"]) == (True, True)
    assert [token for _, _, token in servers_on_one_store.started_hooks()] == [1, 2]


@pytest.mark.parametrize("provider", ["blocks", "ignores_cancellation"])
async def test_a_hook_that_ignores_cancellation_does_not_keep_a_server_from_stopping(
    servers_on_one_store: ServersOnOneStore, provider: str
) -> None:
    server = servers_on_one_store.server()
    first = start_asking(server, provider=provider)
    await wait_until(servers_on_one_store.started_hooks)
    begin = time.monotonic()
    assert await asyncio.to_thread(server.stop) == 0
    assert time.monotonic() - begin < 60
    assert "shutting down" in (await first)["error"]


async def test_fifty_racers_for_five_slots_over_three_servers(servers_on_one_store: ServersOnOneStore) -> None:
    servers = [servers_on_one_store.server(LONG_LEASE) for _ in range(3)]
    await servers_on_one_store.set_limit(5)
    tasks = [start_asking(servers[n % 3], f"k{n}") for n in range(50)]
    await wait_until(lambda: sum(task.done() for task in tasks) == 45)
    servers_on_one_store.release_hooks()
    reply = await asyncio.gather(*tasks)
    assert sum(one["success"] for one in reply) == 5
    refused = [one["error"] for one in reply if not one["success"]]
    assert all("Quota exceeded: Maximum 5 concurrent jobs allowed" in error for error in refused)
    assert (len(await servers_on_one_store.jobs()), len(servers_on_one_store.started_hooks())) == (5, 5)
