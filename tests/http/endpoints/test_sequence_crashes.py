"""Sequenced clients with several servers, and with servers that are killed: no number is lost or executed twice."""

import asyncio
import json
import random
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw_http import HttpResponse, KeepAliveClient, Server, request, run_server

SERVERS = 3
COPIES = 100
CLIENTS = 3
NUMBERS = 130
KILLS = 5
SCOPE = "acme/vault-1"


def sequence_request(client: str, sequence: int, jobs: int = 1) -> bytes:
    body = {
        "scope": SCOPE,
        "sequence": sequence,
        "idempotencyKey": f"{client}:{sequence}",
        "jobs": [{"type": "write", "input": [client, sequence, n]} for n in range(jobs)],
    }
    return request("POST", f"/api/clients/{client}/jobs", json.dumps(body).encode(), close=False)


async def test_a_hundred_copies_over_three_servers_are_executed_once(tmp_path: Path, settings: str) -> None:
    async def copy(server: Server) -> HttpResponse:
        client = await KeepAliveClient.connect(server.port)
        reply = await client.ask(sequence_request("c", 1, jobs=3))
        client.close()
        assert reply is not None
        return reply

    with ExitStack() as stack:
        servers = [stack.enter_context(run_server(tmp_path, settings)) for _ in range(SERVERS)]
        async with asyncio.timeout(120):
            replies = await asyncio.gather(*(copy(servers[n % SERVERS]) for n in range(COPIES)))
        assert sorted(reply.status for reply in replies) == [200] * (COPIES - 1) + [202]
        (ids,) = {tuple(job["id"] for job in reply.body["jobs"]) for reply in replies}
        found = servers[0].ask("GET", "/api/jobs").body["jobs"]
        assert sorted(job["id"] for job in found) == sorted(ids)


class SequencedClient:
    """A client as the seed describes it: it writes each number to disk before it sends it, and survives a crash."""

    def __init__(self, folder: Path, name: str, chance: random.Random) -> None:
        self.name = name
        self._disk = folder / f"{name}.json"
        self._chance = chance
        self.receipts: dict[int, list[str]] = {}
        self.repeated = 0
        self.restart()

    def restart(self) -> None:
        """Drop the memory; the last used number is read from disk and sent again."""
        stored: dict[str, Any] = json.loads(self._disk.read_text()) if self._disk.exists() else {"used": 0}
        self._used, self._jobs, self._open = stored["used"], stored.get("jobs", 0), stored["used"] > 0

    @property
    def done(self) -> bool:
        return self._used == NUMBERS and not self._open

    async def run(self, server: Server) -> None:
        """Send numbers until all are acknowledged or the server is gone."""
        try:
            connection = await KeepAliveClient.connect(server.port)
        except OSError:
            return
        while not self.done:
            if not self._open:
                self._used, self._jobs, self._open = self._used + 1, self._chance.choice([1, 1, 2, 7]), True
                self._disk.write_text(json.dumps({"used": self._used, "jobs": self._jobs}))
            reply = await connection.ask(sequence_request(self.name, self._used, self._jobs))
            if reply is None:
                break
            self._handle_response(reply)
            if self._chance.random() < 0.05:
                self.restart()
        connection.close()

    def _handle_response(self, reply: HttpResponse) -> None:
        assert reply.status in (200, 202), reply
        assert reply.body["assignedSequence"] == reply.body["lastCommittedSequence"] == self._used
        ids = [job["id"] for job in reply.body["jobs"]]
        assert len(ids) == self._jobs
        assert self.receipts.setdefault(self._used, ids) == ids
        self.repeated += reply.status == 200
        self._open = False


@pytest.mark.timeout(900)
async def test_no_number_is_lost_or_executed_twice_when_servers_are_killed(tmp_path: Path, settings: str) -> None:
    chance = random.Random(seed := random.randrange(1 << 32))
    print("seed", seed)
    clients = [SequencedClient(tmp_path, f"c{n}", random.Random(seed + n)) for n in range(CLIENTS)]
    for kill in range(KILLS + 1):
        with run_server(tmp_path, settings) as server:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                running = [group.create_task(client.run(server)) for client in clients]
                if kill < KILLS:
                    target = min(len(clients[0].receipts) + chance.randrange(1, 30), NUMBERS)
                    while len(clients[0].receipts) < target and not all(task.done() for task in running):
                        await asyncio.sleep(0.001)
                    server.process.kill()
    with run_server(tmp_path, settings) as server:
        for client in clients:
            assert sorted(client.receipts) == list(range(1, NUMBERS + 1))
            state = server.ask("GET", f"/api/clients/{client.name}/state?scope={SCOPE}").body
            assert state["lastCommittedSequence"] == NUMBERS
        made = all_job_ids(server)
    acknowledged = [id for client in clients for ids in client.receipts.values() for id in ids]
    assert len(acknowledged) == len(set(acknowledged))
    assert made == set(acknowledged)
    assert sum(client.repeated for client in clients) > 0


def all_job_ids(server: Server) -> set[str]:
    found: set[str] = set()
    cursor = ""
    while True:
        page = server.ask("GET", f"/api/jobs?limit=1000{cursor}").body
        found |= {job["id"] for job in page["jobs"]}
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"
