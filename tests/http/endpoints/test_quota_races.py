"""Races for a few slots over several servers on one store: the limit is never exceeded."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.support.raw_http import HttpResponse, KeepAliveClient, Server, request, run_server

SERVERS = 3
RACERS = 50
SLOTS = 5


async def race(servers: list[Server], bodies: list[tuple[str, bytes, dict[str, str]]]) -> list[HttpResponse]:
    """Send all requests at once; all clients connect before the first request is sent."""
    clients = [await KeepAliveClient.connect(servers[n % len(servers)].port) for n in range(len(bodies))]

    async def send(client: KeepAliveClient, body: tuple[str, bytes, dict[str, str]]) -> HttpResponse:
        path, data, headers = body
        reply = await client.ask(request("POST", path, data, headers, close=False))
        client.close()
        assert reply is not None
        return reply

    async with asyncio.timeout(60):
        return await asyncio.gather(*map(send, clients, bodies))


async def record_usage(server: Server, samples: list[int], stop: asyncio.Event) -> None:
    """Sample the usage until the race is over."""
    client = await KeepAliveClient.connect(server.port)
    while not stop.is_set():
        reply = await client.ask(request("GET", "/api/usage", close=False))
        assert reply is not None
        samples.append(reply.body["used"])
    client.close()


async def test_fifty_racers_for_five_slots_over_several_servers_make_five_jobs(tmp_path: Path, settings: str) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(run_server(tmp_path, settings)) for _ in range(SERVERS)]
        assert servers[0].ask("PUT", "/api/quotas/local", {"maxConcurrent": SLOTS}).status == 200
        used: list[int] = []
        stop = asyncio.Event()
        watching = asyncio.create_task(record_usage(servers[0], used, stop))
        body = b'{"type":"charge"}'
        replies = await race(servers, [("/api/jobs", body, {"idempotency_key": f"k{n}"}) for n in range(RACERS)])
        stop.set()
        await watching
        refused = [reply for reply in replies if reply.status != 202]
        assert (len(refused), max(used)) == (RACERS - SLOTS, SLOTS)
        assert {(reply.status, reply.code) for reply in refused} == {(429, "QUOTA_EXCEEDED")}
        text = f"Quota exceeded: Maximum {SLOTS} concurrent jobs allowed"
        assert all(reply.body["detail"].startswith(text) for reply in refused)
        jobs = servers[1].ask("GET", "/api/jobs").body["jobs"]
        assert len(jobs) == SLOTS
        servers[2].ask("POST", f"/api/jobs/{jobs[0]['id']}/cancel")
        again = await race(servers, [("/api/jobs", body, {"idempotency_key": f"k{n}"}) for n in range(RACERS)])
        created = [reply for reply in again if reply.status == 202 and "idempotent-replayed" not in reply.headers]
        assert len(created) == 1


async def test_racing_consumers_of_one_reservation_have_one_winner(tmp_path: Path, settings: str) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(run_server(tmp_path, settings)) for _ in range(2)]
        jobs = [servers[0].submit(f"k{n}").body["job"]["id"] for n in range(8)]
        slot = servers[0].ask("POST", "/api/reservations").body["id"]
        path = f"/api/reservations/{slot}/consume"
        replies = await race(servers, [(path, b'{"jobId":"%b"}' % job.encode(), {}) for job in jobs])
        assert sorted(reply.status for reply in replies) == [200] + [409] * 7
        usage: Any = servers[1].ask("GET", "/api/usage").body
        assert (usage["live"], usage["reserved"]) == (1, 0)
