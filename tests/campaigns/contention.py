"""Load on two servers on one PostgreSQL: many connections use the same keys, users and sequences at once.

`python -m tests.campaigns.contention` runs it for longer.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
from collections import Counter
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import asyncpg

from onejob.core.states import ENDED_STATES
from tests.http.auth_server import SECRET, token
from tests.support import postgres_server
from tests.support.raw_http import HttpResponse, KeepAliveClient, Server, request, run_server

REPOSITORY = Path(__file__).parents[2]
IMPORT_PATH = os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
SERVERS = 2
PATIENT_SERVER = (sys.executable, "-m", "tests.support.patient_server")
CONNECTIONS = 64
SECONDS = 60
KEYS = 300
CLIENTS = 6
SCOPE = "crowd"
# The limits of the users, None: unlimited. Some have no free slot most of the time.
USERS: dict[str, int | None] = {"ann": 100_000, "bob": 100_000, "cyd": 40, "dan": 3, "eve": None, "fay": None}
# These are expected: a limit is reached, another request was faster, or the job has ended.
EXPECTED_STATUSES = {200, 201, 202, 404, 409, 429}
SETTINGS = """
auth = true
engine = "{url}"
[jwt]
algorithms = ["HS256"]
secret = "{secret}"
issuer = "https://issuer"
audience = "onejob"
"""


class LoadGenerator:
    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.jobs: dict[str, str] = {}
        self.last_sequences = dict.fromkeys((f"client-{n}" for n in range(CLIENTS)), 0)
        self.counts: Counter[str] = Counter()
        self._slots: list[tuple[str, str]] = []

    @cached_property
    def _headers(self) -> dict[str, dict[str, str]]:
        names = {name: ["submitter", "operator", "admin"] for name in (*USERS, *self.last_sequences)}
        return {name: {"authorization": f"Bearer {token(sub=name, roles=roles)}"} for name, roles in names.items()}

    async def set_limits(self, server: Server) -> None:
        client = await KeepAliveClient.connect(server.port)
        for user, most in USERS.items():
            if most is not None:
                body = {"maxConcurrent": most, "costLimit": {"amount": 1000000, "period": "day"}}
                await self._ask(client, "PUT", f"/api/quotas/{user}", user, body)
        client.close()

    async def run_connection(self, server: Server, until: float) -> None:
        """One connection that sends random requests."""
        client = await KeepAliveClient.connect(server.port)
        loop = asyncio.get_running_loop()
        acts = (
            self.submit,
            self.submit,
            self.batch,
            self.submit_short_window,
            self.submit_next_sequence,
            self.cancel,
            self.reserve_or_release_slot,
        )
        while loop.time() < until:
            act = self._chance.choice(acts)
            await act(client, self._chance.choice(list(USERS)))
        client.close()

    async def submit(self, client: KeepAliveClient, user: str) -> None:
        key = self._draw_key()
        reply = await self._ask(client, "POST", "/api/jobs", user, _body(key), idempotency_key=key)
        if reply.status == 202:
            self._check_same_job(key, reply.body["job"]["id"])

    async def batch(self, client: KeepAliveClient, user: str) -> None:
        keys = list(dict.fromkeys(self._draw_key() for _ in range(self._chance.randrange(2, 30))))
        jobs = [_body(key) | {"idempotencyKey": key} for key in keys]
        reply = await self._ask(client, "POST", "/api/jobs/batch", user, {"jobs": jobs})
        for key, item in zip(keys, reply.body["verdicts"], strict=True):
            if "job" in item:
                self._check_same_job(key, item["job"]["id"])
            else:
                assert item["error"]["code"] == "QUOTA_EXCEEDED", item

    async def submit_short_window(self, client: KeepAliveClient, user: str) -> None:
        """Keys with a short window, so that they are removed while other requests create them again."""
        key = f"brief-{self._chance.randrange(40)}"
        body = _body(key) | {"idempotencyTtlSeconds": 1}
        await self._ask(client, "POST", "/api/jobs", user, body, idempotency_key=key)

    async def submit_next_sequence(self, client: KeepAliveClient, _: str) -> None:
        """The next number of a sequence that other connections use too, with one job or a batch."""
        name = self._chance.choice(list(self.last_sequences))
        number = max(1, self.last_sequences[name] + self._chance.choice((0, 1, 1, 2)))
        jobs = [{"type": "write", "input": [name, number, n]} for n in range(jobs_in_sequence(number))]
        body = {"scope": SCOPE, "sequence": number, "idempotencyKey": f"{name}:{number}", "jobs": jobs}
        reply = await self._ask(client, "POST", f"/api/clients/{name}/jobs", name, body)
        if reply.status in (200, 202):
            self.last_sequences[name] = max(self.last_sequences[name], number)
        else:
            assert reply.code == "SEQUENCE_GAP", reply

    async def cancel(self, client: KeepAliveClient, user: str) -> None:
        if self.jobs:
            job_id = self.jobs[self._chance.choice(list(self.jobs)[-KEYS:])]
            await self._ask(client, "POST", f"/api/jobs/{job_id}/cancel", user)

    async def reserve_or_release_slot(self, client: KeepAliveClient, user: str) -> None:
        if self._slots and self._chance.random() < 0.5:
            slot, owner = self._slots.pop(self._chance.randrange(len(self._slots)))
            await self._ask(client, "POST", f"/api/reservations/{slot}/release", owner)
            return
        reply = await self._ask(client, "POST", "/api/reservations", user)
        if reply.status == 201:
            self._slots.append((reply.body["id"], user))

    async def _ask(
        self, client: KeepAliveClient, method: str, path: str, user: str, body: object = None, **headers: str
    ) -> HttpResponse:
        data = b"" if body is None else json.dumps(body).encode()
        given = self._headers[user] | headers
        reply = await client.ask(request(method, path, data, given, close=False))
        assert reply is not None, f"the connection was lost: {method} {path}"
        assert reply.status in EXPECTED_STATUSES, reply
        self.counts[str(reply.status)] += 1
        return reply

    def _draw_key(self) -> str:
        """One of a few hundred keys, so that connections compete for them; the set changes with time."""
        epoch = sum(self.counts.values()) // 2000
        return f"key-{epoch}-{self._chance.randrange(KEYS)}"

    def _check_same_job(self, key: str, job_id: str) -> None:
        first = self.jobs.setdefault(key, job_id)
        assert first == job_id, f"{key} was answered with {first}, and then with {job_id}"


def jobs_in_sequence(number: int) -> int:
    return 1 + number % 3


def _body(key: str) -> dict[str, Any]:
    return {"type": "charge", "input": {"of": key}, "estimatedCost": 0.01}


async def run_contention(folder: Path, url: str, seed: int, seconds: float) -> LoadGenerator:
    """Run the load for this long, then verify the store."""
    crowd = LoadGenerator(seed)
    environ = os.environ | {"IDEMPOTENCY_CLEANUP_INTERVAL_SECONDS": "1", "PYTHONPATH": IMPORT_PATH}
    with ExitStack() as stack:
        settings = SETTINGS.format(url=url, secret=SECRET)
        servers = [
            stack.enter_context(run_server(folder, settings, environ=environ, command=PATIENT_SERVER))
            for _ in range(SERVERS)
        ]
        await crowd.set_limits(servers[0])
        until = asyncio.get_running_loop().time() + seconds
        async with asyncio.timeout(seconds + 300), asyncio.TaskGroup() as group:
            for server in servers:
                for _ in range(CONNECTIONS):
                    group.create_task(crowd.run_connection(server, until))
    await _verify(crowd, url)
    return crowd


async def _verify(crowd: LoadGenerator, url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        jobs = await connection.fetch("SELECT key, state, usage_id FROM job")
        records = await connection.fetch("SELECT key, job_ids FROM record")
        tallies = await connection.fetch("SELECT id, live FROM usage")
        deadlocks = await connection.fetchval(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
    finally:
        await connection.close()
    made = Counter(row["key"] for row in jobs if not row["key"].startswith("brief-"))
    expected = Counter(dict.fromkeys(crowd.jobs, 1))
    for name, last in crowd.last_sequences.items():
        expected.update({f"{name}:{number}": jobs_in_sequence(number) for number in range(1, last + 1)})
    assert made == expected
    assert len(records) == len({row["key"] for row in records})
    # A job that was created before its user had a limit has no slot.
    marked = Counter(row["usage_id"] for row in jobs if row["usage_id"])
    assert {row["id"]: row["live"] for row in tallies} == {row["id"]: marked[row["id"]] for row in tallies}
    assert not any(row["usage_id"] for row in jobs if row["state"] in ENDED_STATES)
    assert deadlocks == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.contention", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    server = postgres_server.Server()
    try:
        server.init()
        server.start()
        with tempfile.TemporaryDirectory(prefix="onejob-crowd-") as folder:
            crowd = asyncio.run(run_contention(Path(folder), server.database(), given.seed, given.seconds))
        assert "deadlock" not in (server.folder / "log").read_text()
    finally:
        server.remove()
    print(
        f"{len(crowd.jobs)} keys, {sum(crowd.last_sequences.values())} numbers; answers {dict(crowd.counts)}; no deadlock"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
