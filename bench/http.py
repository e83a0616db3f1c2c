"""The service over HTTP against an empty application: the share of its throughput with a durable response."""

import asyncio
import os
import re
import shutil
import sys
from pathlib import Path
from statistics import median
from typing import NamedTuple

from onejob.core.credentials import Role
from onejob.ledger import open as open_ledger
from onejob.ledger.api_keys import ApiKeys

from .measure import Report

SECONDS = 2
BODY = (
    '{"type": "charge_customer", "input": {"customer": "cus_9s6XKzkNRiz8i3", "amount": 4200, '
    '"currency": "eur", "lines": [{"sku": "A-100", "quantity": 2}], "note": "charged once"}}'
)


class Run(NamedTuple):
    rate: float
    p99_ms: float
    cpu_us: float
    failed: int


async def http(folder: Path, report: Report, rounds: int) -> None:
    report.title("The service over HTTP, SQLite, durable before the answer, authentication and metrics on")
    if shutil.which("wrk") is None:
        report.row("skipped: wrk is not installed", "-")
        return
    api_key_text = await api_key(f"sqlite:///{folder / 'http.db'}")
    (folder / "serve.toml").write_text('auth = true\nport = 0\nengine = "sqlite:///http.db"\n')
    service = await start_server(
        [sys.executable, "-m", "onejob.cli", "serve", "--config", "serve.toml"],
        folder,
    )
    empty = await start_server([sys.executable, "-m", "bench.empty_app"], folder, str(Path(__file__).parents[1]))
    try:
        for callers in (64, 1):
            await _compare(folder, report, rounds, callers, api_key_text, service=service, empty=empty)
    finally:
        for process, _ in (service, empty):
            process.terminate()
            await process.wait()


Started = tuple[asyncio.subprocess.Process, str]


async def _compare(
    folder: Path, report: Report, rounds: int, callers: int, key: str, *, service: Started, empty: Started
) -> None:
    runs_by_name: dict[str, list[Run]] = {"empty": [], "new": [], "duplicate": []}
    for number in range(rounds):
        new_key = f'"b{callers}-{number}-" .. n'
        runs_by_name["empty"].append(await run_wrk(folder, empty, callers, new_key, key))
        runs_by_name["new"].append(await run_wrk(folder, service, callers, new_key, key))
        runs_by_name["duplicate"].append(await run_wrk(folder, service, callers, f'"d{callers}"', key))
    for name, runs in runs_by_name.items():
        medians = Run(*(median(values) for values in zip(*runs, strict=True)))
        figures = f"{medians.rate:,.0f}/s  p99 {medians.p99_ms:.1f} ms  {medians.cpu_us:.0f} µs"
        report.row(f"{callers} connections, {name}", figures)
        if any(run.failed for run in runs):
            report.missed.append(f"{name}: responses that were not 2xx")
    for name, least in (("new", 0.25), ("duplicate", 0.5)):
        ratio = median(
            run.rate / base.rate for run, base in zip(runs_by_name[name], runs_by_name["empty"], strict=True)
        )
        report.bar(f"{callers} connections, {name} / empty", ratio, least=least if callers > 1 else 0.01)


async def api_key(url: str) -> str:
    async with open_ledger(url) as ledger:
        return (await ApiKeys(ledger).create("bench", roles=frozenset({Role.SUBMITTER}))).text


async def start_server(command: list[str], folder: Path, path: str = "") -> Started:
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (path, os.environ.get("PYTHONPATH"))))},
    )
    assert process.stdout is not None
    url_match = re.search(rb"http://\S+", await process.stdout.readline())
    assert url_match
    return process, url_match[0].decode()


async def run_wrk(folder: Path, server: Started, callers: int, key: str, secret: str) -> Run:
    process, url = server
    script = folder / "wrk.lua"
    script.write_text(
        f"local n = 0\nlocal body = [[{BODY}]]\n"
        "function request()\n  n = n + 1\n"
        f'  return wrk.format("POST", "/api/jobs", {{["Idempotency-Key"] = {key}, '
        f'["Authorization"] = "Bearer {secret}"}}, body)\nend\n'
    )
    before = _cpu_seconds(process.pid)
    command = ["-t1", f"-c{callers}", f"-d{SECONDS}s", "--latency", "-s", str(script), url]
    running = await asyncio.create_subprocess_exec("wrk", *command, stdout=asyncio.subprocess.PIPE)
    output = (await running.communicate())[0].decode()
    requests = int(re.search(r"(\d+) requests in", output)[1])  # type: ignore[index]  # wrk prints it
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1])  # type: ignore[index]  # wrk prints it
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", output)
    assert p99
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", output)
    scale = {"us": 0.001, "ms": 1.0, "s": 1000.0}[p99[2]]
    cpu = (_cpu_seconds(process.pid) - before) / max(requests, 1) * 1e6
    return Run(rate, float(p99[1]) * scale, cpu, int(failed[1]) if failed else 0)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
