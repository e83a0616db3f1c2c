"""Several servers on one store, some of them killed: there is one job for each key."""

import asyncio
import random
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.raw_http import KeepAliveClient, Server, run_server, submission

SERVERS = 3
CALLERS = 1000
CYCLES = 7
CONNECTIONS = 24


async def submit_once(server: Server, key: str) -> tuple[int, str]:
    client = await KeepAliveClient.connect(server.port)
    reply = await client.ask(submission(key))
    client.close()
    assert reply is not None
    return reply.status, reply.body["job"]["id"] if reply.status == 202 else reply.code


async def test_a_thousand_callers_of_three_servers_with_one_key_get_one_job(tmp_path: Path, settings: str) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(run_server(tmp_path, settings)) for _ in range(SERVERS)]
        async with asyncio.timeout(120):
            found = await asyncio.gather(*(submit_once(servers[n % SERVERS], "one") for n in range(CALLERS)))
        assert len(found) == CALLERS
        assert {status for status, _ in found} == {202}
        (job_id,) = {job_id for _, job_id in found}
        (job,) = servers[0].ask("GET", "/api/jobs").body["jobs"]
        assert (job["id"], job["key"]) == (job_id, "one")


class KillCampaign:
    """Clients that submit, and retry with the same key what was not answered."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.answers: dict[str, str] = {}
        self.unanswered: list[str] = []
        self._number = 0

    async def load(self, server: Server) -> None:
        """Submit until the server is gone: new keys, keys with a response, and keys without one."""
        client = await KeepAliveClient.connect(server.port)
        while True:
            key = self._key()
            reply = await client.ask(submission(key))
            if reply is None:
                if key not in self.answers:
                    self.unanswered.append(key)
                client.close()
                return
            assert reply.status == 202, reply
            job_id = reply.body["job"]["id"]
            assert self.answers.setdefault(key, job_id) == job_id

    def _key(self) -> str:
        if self.unanswered:
            return self.unanswered.pop()
        if self.answers and self.chance.random() < 0.2:
            return self.chance.choice(list(self.answers)[-50:])
        self._number += 1
        return f"key-{self._number}"

    async def cycle(self, folder: Path, settings: str) -> None:
        """Start a server, put it under load, and kill it at a random moment."""
        with run_server(folder, settings) as server:
            before = len(self.answers)
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for _ in range(CONNECTIONS):
                    group.create_task(self.load(server))
                wanted = before + self.chance.randrange(1, 120)
                while len(self.answers) < wanted:
                    await asyncio.sleep(0.001)
                server.process.kill()


@pytest.mark.timeout(900)
async def test_killed_under_load_it_keeps_every_answer_and_makes_no_second_job(tmp_path: Path, settings: str) -> None:
    campaign = KillCampaign(seed := random.randrange(1 << 32))
    print("seed", seed)
    for _ in range(CYCLES):
        await campaign.cycle(tmp_path, settings)
    with run_server(tmp_path, settings) as server:
        client = await KeepAliveClient.connect(server.port)
        for key in {*campaign.unanswered, *campaign.answers}:
            reply = await client.ask(submission(key))
            assert reply is not None
            assert reply.status == 202
            job_id = reply.body["job"]["id"]
            assert campaign.answers.setdefault(key, job_id) == job_id
        client.close()
        assert len(set(campaign.answers.values())) == len(campaign.answers)
        assert all_job_ids(server) == set(campaign.answers.values())


def all_job_ids(server: Server) -> set[str]:
    found: set[str] = set()
    cursor = ""
    while True:
        page = server.ask("GET", f"/api/jobs?limit=100{cursor}").body
        found |= {job["id"] for job in page["jobs"]}
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"
