"""Several processes on one file: one job per key, and no process starves."""

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from random import Random
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

import pytest

from onejob.conformance.samples import submit
from onejob.conformance.world import expect
from onejob.core.replies import Created, Replayed
from onejob.engines.sqlite import FairFileLock, SqliteEngine, schema
from onejob.errors import Unavailable

PROCESSES = 4
SECONDS = 2.0
# The busiest process may write this many times as often as the idlest one, on a machine with other load.
UNFAIRNESS_MAX = 4

# Submits batches of four keys that all processes submit and four of its own, until time is up.
SUBMITTER = """
import asyncio, json, sys, time
from onejob.conformance.samples import submit
from onejob.core.replies import Created, Replayed
from onejob.engines.sqlite import SqliteEngine

async def main(path, name, seconds):
    engine = await SqliteEngine.open(path)
    print("ready", flush=True)
    sys.stdin.readline()
    until = time.monotonic() + seconds
    batches, jobs, created = 0, {}, 0
    while time.monotonic() < until:
        keys = [f"all-{batches * 4 + n}" for n in range(4)] + [f"{name}-{batches * 4 + n}" for n in range(4)]
        for key, reply in zip(keys, await engine.execute([submit(key, ttl_ms=3_600_000) for key in keys])):
            assert isinstance(reply, (Created, Replayed)), reply
            jobs[key] = reply.job.id.hex()
            created += isinstance(reply, Created)
        batches += 1
    await engine.aclose()
    print(json.dumps({"batches": batches, "created": created, "jobs": jobs}), flush=True)

asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
"""

# Takes the lock and holds it.
HOLDER = """
import sys, time
from onejob.engines.sqlite import FairFileLock
with FairFileLock(sys.argv[1], timeout=30).acquire():
    print("locked", flush=True)
    time.sleep(60)
"""

# A shell, an editor: it knows nothing of our locks.
FOREIGN = """
import sqlite3, sys, time
sqlite3.connect(sys.argv[1]).execute("BEGIN IMMEDIATE")
print("locked", flush=True)
time.sleep(60)
"""

# Takes the lock again and again, and notes if another process is inside.
WRITER = """
import fcntl, os, sys
from onejob.engines.sqlite import FairFileLock
from onejob.errors import Unavailable
lock = FairFileLock(sys.argv[1], timeout=1)
inside = os.open(sys.argv[1] + ".inside", os.O_RDWR | os.O_CREAT)
turns = os.open(sys.argv[1] + ".turns", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
print("ready", flush=True)
while True:
    try:
        with lock.acquire():
            try:
                fcntl.flock(inside, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.write(turns, b"alone ")
            except BlockingIOError:
                os.write(turns, b"overlap ")
            fcntl.flock(inside, fcntl.LOCK_UN)
    except Unavailable:
        pass
"""

# `python -O` strips assertions: no write may depend on one.
OPTIMISED = """
import asyncio, sys
from onejob.conformance.commands import IncrementCounter
from onejob.conformance.samples import ACTOR, TENANT, key_id, submit
from onejob.core.lookup import LookUpKey
from onejob.core.maintenance import Purge
from onejob.core.work import Cancel
from onejob.engines.memory import MemoryEngine
from onejob.engines.sqlite import SqliteEngine

async def main(path):
    for engine in (MemoryEngine(), await SqliteEngine.open(path)):
        command = submit(ttl_ms=3_600_000)
        results = []
        for step in (
            command,
            Cancel(tenant=TENANT, job_id=command.job_id, actor=ACTOR),
            submit(ttl_ms=3_600_000),
            IncrementCounter(tenant=TENANT),
            IncrementCounter(tenant=TENANT),
            Purge(tenant=TENANT, record_id=key_id()),
            LookUpKey(tenant=TENANT, record_id=key_id()),
        ):
            (reply,) = await engine.execute([step])
            state = getattr(getattr(reply, "job", None), "state", "")
            version = getattr(getattr(reply, "policy", None), "version", "")
            results.append(f"{type(reply).__name__}{state and ' ' + state}{version}")
        print(__debug__, *results, sep=", ", flush=True)
        await engine.aclose()

asyncio.run(main(sys.argv[1]))
"""


async def test_processes_that_race_make_one_job_per_key_and_lock_fairly(tmp_path: Path) -> None:
    path = str(tmp_path / "onejob.db")
    reports = race(path)
    jobs: dict[str, set[str]] = defaultdict(set)
    for report in reports:
        for key, job in report["jobs"].items():
            jobs[key].add(job)
    assert all(len(ids) == 1 for ids in jobs.values())
    assert sum(report["created"] for report in reports) == len(jobs)

    batches = sorted(report["batches"] for report in reports)
    assert batches[0] * UNFAIRNESS_MAX >= batches[-1], batches

    engine = await SqliteEngine.open(path)
    for key in ("all-0", f"all-{batches[-1] * 4 - 1}"):
        replayed = await expect(engine, submit(key), Replayed)
        assert replayed.job is not None
        assert {replayed.job.id.hex()} == jobs[key]
    await expect(engine, submit("a new one"), Created)
    await engine.aclose()


def test_a_waiting_process_gets_the_lock_next_however_greedy_the_other(tmp_path: Path) -> None:
    path = str(tmp_path / "onejob.db")
    greedy, patient = FairFileLock(path, timeout=30), FairFileLock(path, timeout=30)
    turns: list[str] = []
    started, stop = Event(), Event()

    def lock_repeatedly() -> None:
        while not stop.is_set():
            with greedy.acquire():
                turns.append("greedy")
                started.set()
                sleep(0.005)

    thread = Thread(target=lock_repeatedly)
    thread.start()
    try:
        started.wait()
        for _ in range(10):
            before = len(turns)
            with patient.acquire():
                # The holder at that time, and maybe one that was already in the queue.
                assert len(turns) - before <= 2
                turns.append("patient")
    finally:
        stop.set()
        thread.join()
        greedy.close()
        patient.close()


def test_the_file_lock_ends_with_its_process_and_a_hanging_holder_is_reported(tmp_path: Path) -> None:
    path = str(tmp_path / "onejob.db")
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE) as holder:
        lock = FairFileLock(path, timeout=0.05)
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"locked\n"
            with (
                pytest.raises(
                    Unavailable,
                    match=rf"process {holder.pid}\) has held .*{path}.* nothing was done; see whether it hangs",
                ),
                lock.acquire(),
            ):
                raise AssertionError("two processes have the lock")
            stop(holder.pid)
            with pytest.raises(Unavailable, match=rf"which is stopped.*kill -CONT {holder.pid}"), lock.acquire():
                raise AssertionError("two processes have the lock")
        finally:
            holder.kill()
        holder.wait()
        with lock.acquire():
            pass
        lock.close()


def test_a_process_that_was_stopped_in_the_queue_stops_no_other(tmp_path: Path) -> None:
    path = str(tmp_path / "onejob.db")
    lock, other = FairFileLock(path, timeout=30), FairFileLock(path, timeout=30)
    with subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE) as waiter:
        try:
            with lock.acquire():
                wait_until_queued(path)
                stop(waiter.pid)
            begin = monotonic()
            for _ in range(10):  # only the first of each waits for the queue
                for writer in (lock, other):
                    with writer.acquire():
                        assert not can_lock(path + "-turn"), "two processes have the lock"
            assert monotonic() - begin < 25
            os.kill(waiter.pid, signal.SIGCONT)
            assert waiter.stdout is not None
            assert waiter.stdout.readline() == b"locked\n"
            assert not can_lock(path + "-turn")
            assert can_lock(path + "-next")
        finally:
            waiter.kill()
        waiter.wait()
        with lock.acquire():
            pass
        lock.close()
        other.close()


def test_processes_that_are_stopped_and_killed_at_any_moment_never_hold_the_lock_together(tmp_path: Path) -> None:
    """Each holder notes its turn in a file and looks whether anybody else is in it."""
    path, random = str(tmp_path / "onejob.db"), Random(7)
    writers = [start_writer(path) for _ in range(PROCESSES)]
    stopped: list[subprocess.Popen[str]] = []
    try:
        for _ in range(60):
            sleep(random.uniform(0, 0.03))
            victim = random.choice(writers)
            match random.randrange(4):
                case 0:
                    writers.remove(victim)
                    stopped = [writer for writer in stopped if writer is not victim]
                    end_writer(victim)
                    writers.append(start_writer(path))
                case 1 if len(stopped) < 2 and victim not in stopped:
                    victim.send_signal(signal.SIGSTOP)
                    stopped.append(victim)
                case _ if stopped:
                    stopped.pop(0).send_signal(signal.SIGCONT)
        for writer in stopped:
            writer.send_signal(signal.SIGCONT)
        lock = FairFileLock(path, timeout=30)
        with lock.acquire():
            turns = Path(path + ".turns").read_text(encoding="ascii").split()
        lock.close()
        assert "overlap" not in turns
        assert len(turns) > 100
    finally:
        for writer in writers:
            end_writer(writer)


async def test_another_program_that_locks_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "LOCK_TIMEOUT_SECONDS", 0.2)
    path = str(tmp_path / "onejob.db")
    engine = await SqliteEngine.open(path)
    await expect(engine, submit(), Created)
    with subprocess.Popen([sys.executable, "-c", FOREIGN, path], stdout=subprocess.PIPE) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == b"locked\n"
            stop(program.pid)
            with pytest.raises(
                Unavailable, match=rf"locked by another program \(process {program.pid}, which is stopped\)"
            ):
                await engine.execute([submit("other")])
        finally:
            program.kill()
    await engine.aclose()


def test_an_optimised_program_stores_the_same(tmp_path: Path) -> None:
    output = subprocess.check_output([sys.executable, "-O", "-c", OPTIMISED, str(tmp_path / "onejob.db")], text=True)
    line = (
        "False, Created pending, Cancelled cancelled, Replayed cancelled, FactsRead1, FactsRead2, Maintained, Missing"
    )
    assert output.splitlines() == [line, line]


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)


def wait_until_queued(path: str) -> None:
    while can_lock(path + "-next"):
        sleep(0.01)


def can_lock(path: str) -> bool:
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def start_writer(path: str) -> "subprocess.Popen[str]":
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    return writer


def end_writer(writer: "subprocess.Popen[str]") -> None:
    with writer:
        writer.kill()


def race(path: str) -> list[Any]:
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", SUBMITTER, path, f"p{n}", str(SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(PROCESSES)
    ]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        return [json.loads(racer.communicate(timeout=120)[0]) for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()
