"""What gates and managers cost and bring: processor time per submission, and submissions over a long line to the store.

The gate is `onejob.open("http://…")` in a process of its own, as a gate is without its HTTP edge. The line delays everything by
20 ms each way; its round trip is measured with an echo over the same line, because timers of a busy machine are late.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import NamedTuple
from urllib.parse import urlsplit

import onejob
from onejob.runtime.callers import Caller
from tests.support.manager_process import run_manager_process
from tests.support.postgres_server import Server

from .database import database_server
from .postgres import Side, measure_rate, start_side
from .report import Report

DELAY_SECONDS = 0.02
ONE_WAY, BOTH_WAYS = "PostgreSQL directly", "through gate and manager"
PROCESSOR_RATIO_MAX = 1.5
OVER_ROUND_TRIP_MS_MAX = 10.0
COUNTED_RATIO_MIN = 4.0
CALLERS = 64
TOTAL = 6_400
COUNTED_CALLERS = 32
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class Route(NamedTuple):
    """A way to a store: who submits, and which of our processes work for it."""

    side: Side
    pids: tuple[int, ...]


async def gate(report: Report, rounds: int) -> None:
    server = database_server()
    try:
        server.init()
        server.start()
        await _compare_processor_time(report, rounds, server)
        await _compare_over_a_line(report, rounds, server)
    finally:
        server.remove()


async def _compare_processor_time(report: Report, rounds: int, server: Server) -> None:
    report.title(f"Processor time of our processes per new submission, {CALLERS} callers (PostgreSQL not counted)")
    async with AsyncExitStack() as stack:
        direct_url, managed_url = server.database(), server.database()
        manager = stack.enter_context(run_manager_process("--engine", managed_url))
        direct = await stack.enter_async_context(running_side(direct_url))
        gate = await stack.enter_async_context(running_side(manager.url))
        routes = {ONE_WAY: Route(direct, (direct.pid,)), BOTH_WAYS: Route(gate, (gate.pid, manager.pid))}
        measured: dict[str, list[list[float]]] = {name: [] for name in routes}
        for number in range(rounds + 1):
            for name, route in routes.items():
                before = [processor_seconds(pid) for pid in route.pids]
                await measure_rate(route.side, CALLERS, TOTAL)
                spent = [processor_seconds(pid) - then for pid, then in zip(route.pids, before, strict=True)]
                if number:  # the first round fills pools and prepares statements
                    measured[name].append([seconds / TOTAL * 1e6 for seconds in spent])
    sums = {name: median(map(sum, values)) for name, values in measured.items()}
    for name, value in sums.items():
        report.row(name, f"{value:,.0f} µs")
    report.row("of which the gate", f"{median(values[0] for values in measured[BOTH_WAYS]):,.0f} µs")
    report.bar(f"{BOTH_WAYS} / directly", sums[BOTH_WAYS] / sums[ONE_WAY], most=PROCESSOR_RATIO_MAX)


async def _compare_over_a_line(report: Report, rounds: int, server: Server) -> None:
    report.title(f"Over a line of {DELAY_SECONDS * 1000:g} ms each way, new keys")
    round_trip = await measure_round_trip(rounds)
    report.row("round trip of the line", f"{round_trip:.1f} ms")
    plain = await _measure_over_a_line(rounds, server, counted=False)
    counted = await _measure_over_a_line(rounds, server, counted=True)
    for name in (ONE_WAY, BOTH_WAYS):
        report.row(f"{name}, one caller", f"{1000 / plain[name, 1]:.1f} ms")
        report.row(f"{name}, one caller, counted user", f"{1000 / counted[name, 1]:.1f} ms")
        report.row(f"{name}, {COUNTED_CALLERS} callers of one counted user", f"{counted[name, COUNTED_CALLERS]:,.0f}/s")
    over = 1000 / plain[BOTH_WAYS, 1] - round_trip
    report.bar(f"{BOTH_WAYS}, ms over the round trip", over, most=OVER_ROUND_TRIP_MS_MAX)
    ratio = counted[BOTH_WAYS, COUNTED_CALLERS] / counted[ONE_WAY, COUNTED_CALLERS]
    report.bar("one counted user, gate and manager / PostgreSQL", ratio, least=COUNTED_RATIO_MIN)


async def _measure_over_a_line(rounds: int, server: Server, *, counted: bool) -> dict[tuple[str, int], float]:
    """Submissions per second by route and number of callers."""
    async with AsyncExitStack() as stack:
        direct_url, managed_url = server.database(), server.database()
        if counted:
            await _set_limit(direct_url)
            await _set_limit(managed_url)
        manager = stack.enter_context(run_manager_process("--engine", managed_url))
        database_line = await stack.enter_async_context(running_line("127.0.0.1", server.port))
        manager_line = await stack.enter_async_context(running_line("127.0.0.1", manager.port))
        name = urlsplit(direct_url).path.removeprefix("/")
        sides = {
            ONE_WAY: await stack.enter_async_context(running_side(server.url(name, port=database_line))),
            BOTH_WAYS: await stack.enter_async_context(running_side(f"http://127.0.0.1:{manager_line}")),
        }
        totals = {1: 10} | ({COUNTED_CALLERS: 4 * COUNTED_CALLERS} if counted else {})
        measured: dict[tuple[str, int], list[float]] = {}
        for number in range(rounds + 1):
            for callers, total in totals.items():
                for route, side in sides.items():
                    rate = await measure_rate(side, callers, total)
                    if number:
                        measured.setdefault((route, callers), []).append(rate)
        return {place: median(values) for place, values in measured.items()}


async def _set_limit(url: str) -> None:
    async with onejob.open(url, sweep=False) as queue:
        await queue.set_quota(Caller().user, onejob.Limits(max_concurrent=1_000_000))


async def measure_round_trip(rounds: int) -> float:
    """Milliseconds until an echo is back over a line, as the median."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    measured = []
    async with running_line("127.0.0.1", server.sockets[0].getsockname()[1]) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(rounds * 5):
            begin = perf_counter()
            writer.write(b"x")
            await reader.readexactly(1)
            measured.append((perf_counter() - begin) * 1000)
        writer.close()
    server.close()
    return median(measured)


@asynccontextmanager
async def running_line(host: str, port: int) -> AsyncIterator[int]:
    """The port of a line to this address that delays every piece, in both directions."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                due, data = await pieces.get()
                await asyncio.sleep(due - loop.time())
                if not data:
                    writer.close()
                    return
                writer.write(data)

        delivery = loop.create_task(deliver())
        while data := await reader.read(1 << 20):
            pieces.put_nowait((loop.time() + DELAY_SECONDS, data))
        pieces.put_nowait((loop.time() + DELAY_SECONDS, b""))
        await delivery

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(host, port)
        await asyncio.gather(forward(reader, far_writer), forward(far_reader, writer), return_exceptions=True)

    tasks: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.get_running_loop().create_task(serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def running_side(url: str) -> AsyncIterator[Side]:
    side = await start_side("onejob", url)
    try:
        yield side
    finally:
        side.kill()
        await side.wait()


def processor_seconds(pid: int) -> float:
    """Of a process, with its threads, in user and system mode."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_SECOND
