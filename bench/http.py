"""The service over HTTP against an empty application: the share of its throughput with a durable response."""

import asyncio
import re
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import median

from onejob.core.credentials import Role
from onejob.ledger import open as open_ledger
from onejob.ledger.api_keys import ApiKeys

from .bars import HTTP_DUPLICATE, HTTP_NEW
from .measure import Run, interleave, processor_seconds, ratios
from .postgres import side_environment
from .report import Report
from .submissions import REQUEST_BODY

SECONDS = {64: 2, 1: 1}  # of a round, by number of connections
START_SECONDS_MAX = 60

Started = tuple[asyncio.subprocess.Process, str]


async def http(folder: Path, report: Report, rounds: int, pythons: dict[str, str]) -> None:
    report.title("The service over HTTP, SQLite, durable before the answer, authentication and metrics on")
    if shutil.which("wrk") is None:
        report.row("skipped: wrk is not installed", "-")
        return
    async with AsyncExitStack() as stack:
        services, empties, secrets = {}, {}, {}
        for version, python in pythons.items():
            place = folder / f"http-{version}"
            url = f"sqlite:///{place / 'http.db'}"
            await asyncio.to_thread(place.mkdir)
            secrets[version] = await api_key(url)
            services[version] = await stack.enter_async_context(running_service(place, url, python))
            command = [python, "-m", "bench.empty_app"]
            empties[version] = await stack.enter_async_context(running_server(command, place))
        for callers in SECONDS:
            sides: dict[str, Callable[[], Awaitable[Run]]] = {}
            versions = list(pythons) if callers == 64 else list(pythons)[:1]
            for version in versions:
                service, empty, secret = services[version], empties[version], secrets[version]
                place = folder / f"http-{version}"
                sides[f"empty {version}"] = _side(place, empty, callers, secret, "e")
                sides[f"new {version}"] = _side(place, service, callers, secret, "n")
                sides[f"duplicate {version}"] = _side(place, service, callers, secret, "")
            _show(report, callers, await interleave(sides, rounds, warm_up=0), versions)


def _side(folder: Path, server: Started, callers: int, secret: str, prefix: str) -> Callable[[], Awaitable[Run]]:
    """A round; with a prefix every key is new."""
    turn = 0

    async def run() -> Run:
        nonlocal turn
        turn += 1
        key = f'"{prefix}{callers}-{turn}-" .. n' if prefix else f'"d{callers}"'
        return await run_wrk(folder, server, callers, key, secret)

    return run


def _show(report: Report, callers: int, runs: dict[str, list[Run]], versions: list[str]) -> None:
    case = f"{callers} connection{'s' * (callers > 1)}"
    for version in versions:
        is_first = version == versions[0]
        for name in ("empty", "new", "duplicate"):
            measured = runs[f"{name} {version}"]
            side = "empty application" if name == "empty" else "onejob serve, SQLite"
            show_http(report, f"{name}, {case}", side, measured, version)
            report_failed(report, f"{name}, {case}", measured)
        for name, bar in (("new", HTTP_NEW), ("duplicate", HTTP_DUPLICATE)):
            ratio = ratios(runs[f"{name} {version}"], runs[f"empty {version}"])
            if callers == 64 and is_first:
                report.judge(bar, ratio)
            else:
                report.row(f"Python {version}, {case}, {name} / empty", ratio.format(2))


def show_http(report: Report, case: str, side: str, runs: list[Run], python: str = "") -> None:
    p99 = median(run.p99_ms or 0.0 for run in runs)
    report.rate(case, side, runs, python=python, note=f"  p99 {p99:.1f} ms")


def report_failed(report: Report, name: str, runs: list[Run]) -> None:
    if any(run.failed for run in runs):
        report.missed.append(f"{name}: responses that were not 2xx")


async def api_key(url: str) -> str:
    async with open_ledger(url) as ledger:
        return (await ApiKeys(ledger).create("bench", roles=frozenset({Role.SUBMITTER}))).text


@asynccontextmanager
async def running_service(folder: Path, url: str, python: str = sys.executable) -> AsyncIterator[Started]:
    """`onejob serve` with authentication."""
    (folder / "serve.toml").write_text(f'auth = true\nport = 0\nengine = "{url}"\n')
    command = [python, "-m", "onejob.cli", "serve", "--config", "serve.toml"]
    async with running_server(command, folder) as server:
        yield server


@asynccontextmanager
async def running_server(command: list[str], folder: Path) -> AsyncIterator[Started]:
    """A process that prints its URL in its first line."""
    with tempfile.NamedTemporaryFile("w+", dir=folder, suffix=".log") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=errors, env=side_environment()
        )
        try:
            yield process, await _read_url(process, command, Path(errors.name))
        finally:
            await _stop(process)


async def _read_url(process: asyncio.subprocess.Process, command: list[str], errors: Path) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(START_SECONDS_MAX):
        url_match = re.search(rb"http://\S+", await process.stdout.readline())
    said = await asyncio.to_thread(errors.read_text, errors="replace")
    assert url_match, f"{' '.join(command[1:])} did not start: {said.strip()[-300:]}"
    return url_match[0].decode()


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    try:
        async with asyncio.timeout(10):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


async def run_wrk(
    folder: Path,
    server: Started,
    callers: int,
    key: str,
    secret: str,
    *,
    seconds: int | None = None,
    store_seconds: Callable[[], float] | None = None,
) -> Run:
    """A closed load: each connection sends its next request when it has the answer to the last."""
    process, url = server
    script = folder / "wrk.lua"
    script.write_text(
        f"local n = 0\nlocal body = [[{REQUEST_BODY}]]\n"
        "function request()\n  n = n + 1\n"
        f'  return wrk.format("POST", "/api/jobs", {{["Idempotency-Key"] = {key}, '
        f'["Authorization"] = "Bearer {secret}"}}, body)\nend\n'
    )
    before, store_before = processor_seconds(process.pid), store_seconds() if store_seconds else 0.0
    seconds = seconds or SECONDS.get(callers, 2)
    command = ["-t1", f"-c{callers}", f"-d{seconds}s", "--latency", "-s", str(script), url]
    running = await asyncio.create_subprocess_exec("wrk", *command, stdout=asyncio.subprocess.PIPE)
    try:
        async with asyncio.timeout(seconds + 30):
            output = (await running.communicate())[0].decode()
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
    spent = processor_seconds(process.pid) - before
    return _parse_output(output, spent, store_seconds() - store_before if store_seconds else None)


def _parse_output(output: str, cpu_seconds: float, store_seconds: float | None) -> Run:
    requests = int(re.search(r"(\d+) requests in", output)[1])  # type: ignore[index]  # wrk prints it
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1])  # type: ignore[index]  # wrk prints it
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", output)
    assert p99
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    scale = {"us": 0.001, "ms": 1.0, "s": 1000.0}[p99[2]]
    return Run(
        rate,
        cpu_seconds / max(requests, 1) * 1e6,
        None if store_seconds is None else store_seconds / max(requests, 1) * 1e6,
        p99_ms=float(p99[1]) * scale,
        failed=int(failed[1]) if failed else 0,
    )
