"""Doors to one ledger that are configured differently: refused by name, or one job for one key."""

import asyncio
import itertools
import json
import subprocess
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import asyncpg
import pytest

import onejob
from onejob.cli import main
from onejob.core.facts import Kind, Record
from onejob.core.ledger_settings import owner_of_key
from onejob.engine import ListFacts
from onejob.engines import open_engine
from onejob.errors import StoreRefused, Unavailable
from onejob.ledger.base import runtime_of
from onejob.runtime.settings import change_settings, open_settings
from onejob.transaction import InTransaction
from tests.support.command_line import ONEJOB
from tests.support.manager_process import GateProcess, RoleProcess, run_manager_process
from tests.support.outbox import Source
from tests.support.serve_process import ServeProcess, run_serve_process

KEYS = [f"k{n}" for n in range(200)]
SECONDS_MAX = 60
SUBMITTERS = 64


@pytest.fixture(params=["sqlite", "postgres", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several processes may open."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'onejob.db'}"
    return str(request.getfixturevalue(f"{request.param}_url"))


def config_file(folder: Path, store: str, **settings: str) -> str:
    path = folder / f"{'-'.join(settings.values()) or 'plain'}.toml"
    lines = [f'engine = "{store}"', *(f'{name} = "{value}"' for name, value in settings.items())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def refusal_of(folder: Path, *words: str) -> str:
    """What a process says that does not start."""
    ended = subprocess.run(
        [*ONEJOB, *words], cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert ended.returncode == 2, (ended.stdout, ended.stderr)
    return ended.stderr


def submit_all(service: ServeProcess, keys: Sequence[str] = KEYS) -> dict[str, str]:
    answers = {key: service.submit("t", None, key) for key in keys}
    assert {one.status for one in answers.values()} <= {200, 202}
    return {key: one.json["job"]["id"] for key, one in answers.items()}


async def submit_in_library(store: str, keys: Sequence[str] = KEYS) -> dict[str, str]:
    async with onejob.open(store, sweep=False) as queue:
        receipts = await queue.submit_many([onejob.Submission(type="t", idempotency_key=key) for key in keys])
        return {key: one.job_id for key, one in zip(keys, receipts, strict=True) if isinstance(one, onejob.Receipt)}


async def count_jobs(store: str) -> int:
    async with onejob.open(store, sweep=False) as queue:
        return len(await queue.jobs(type="t", limit=1000))


async def test_services_the_library_and_the_command_line_make_one_job_of_a_key(
    store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user, tenant = (config_file(tmp_path, store, key_owner=owner) for owner in ("user", "tenant"))
    with run_serve_process(tmp_path, "--config", user) as first:
        jobs = submit_all(first)
        assert "key_owner is tenant here, and user in the ledger" in refusal_of(
            tmp_path, "serve", "--port", "0", "--config", tenant
        )
        with run_serve_process(tmp_path, "--engine", store) as second:  # it says nothing
            assert submit_all(second) == jobs
        assert await submit_in_library(store) == jobs
        capsys.readouterr()
        assert main(["submit", "t", "--key", KEYS[0], "--engine", store, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["job"]["id"] == jobs[KEYS[0]]
    assert "key_owner is tenant here" in refusal_of(tmp_path, "serve", "--port", "0", "--config", tenant)
    assert await count_jobs(store) == len(KEYS)


async def test_a_service_is_not_told_later_that_keys_belong_to_users(store: str, tmp_path: Path) -> None:
    user = config_file(tmp_path, store, key_owner="user")
    with run_serve_process(tmp_path, "--engine", store) as first:
        jobs = submit_all(first)
        refusal = refusal_of(tmp_path, "serve", "--port", "0", "--config", user)
        assert "key_owner is user here, and tenant in the ledger" in refusal
        assert "200 live keys" in refusal
        assert submit_all(first) == jobs
    assert "key_owner is user here, and tenant in the ledger" in refusal_of(
        tmp_path, "serve", "--port", "0", "--config", user
    )


async def test_an_import_makes_the_keys_of_the_ledger(store: str, tmp_path: Path) -> None:
    """Imported keys are found by the doors, whoever owns them."""
    user = config_file(tmp_path, store, key_owner="user")
    lines = [{"scope": "t", "idempotency_key": key, "job_id": f"old-{key}", "user_id": "local"} for key in KEYS]
    file = tmp_path / "keys.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    with run_serve_process(tmp_path, "--config", user) as service:
        assert main(["import", str(file), "--engine", store]) == 0
        answers = [service.submit("t", None, key) for key in KEYS]
        assert {one.json["idempotency"]["outcome"] for one in answers} == {"replayed"}
    assert await count_jobs(store) == 0


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
async def test_managers_that_are_configured_differently_do_not_serve_one_store(store: str, tmp_path: Path) -> None:
    user, tenant = (config_file(tmp_path, store, key_owner=owner) for owner in ("user", "tenant"))
    with run_manager_process("--config", user) as first:
        gate = GateProcess(first.url)
        try:
            service = ServeProcess(gate.port)
            jobs = submit_all(service)
            refusal = refusal_of(tmp_path, "manager", "--bind", "127.0.0.1:0", "--config", tenant)
            assert "key_owner is tenant here, and user in the ledger" in refusal
            with run_manager_process("--engine", store) as second:
                other = GateProcess(second.url)
                try:
                    assert submit_all(ServeProcess(other.port)) == jobs
                finally:
                    other.kill()
        finally:
            gate.kill()
    assert await count_jobs(store) == len(KEYS)


async def test_a_service_that_slept_over_a_change_makes_nothing_under_the_old_settings(store: str) -> None:
    process = RoleProcess("serve", "--port", "0", "--engine", store)
    try:
        service = ServeProcess(process.port)
        process.freeze()
        assert main(["settings", "set", "key_owner=user", "--engine", store]) == 0
        process.wake()
        answer = service.submit("t", None, "k")
        for _ in range(500):
            if answer.status == 202:
                break
            assert answer.status == 503
            answer = service.submit("t", None, "k")
        assert (await submit_in_library(store, ["k"]))["k"] == answer.json["job"]["id"]
    finally:
        process.stop()
    assert await count_jobs(store) == 1


async def submit_in_transaction(store: str, keys: Sequence[str] = KEYS) -> dict[str, str]:
    """As a program does that knows nothing of settings; its user is that of a service without credentials."""
    db = await asyncpg.connect(store)
    try:
        async with db.transaction():
            submissions = [onejob.Submission(type="t", idempotency_key=key) for key in keys]
            receipts = await InTransaction(user="local").asyncpg(db).submit_many(submissions)
    finally:
        await db.close()
    return {key: one.job_id for key, one in zip(keys, receipts, strict=True) if isinstance(one, onejob.Receipt)}


async def test_a_transaction_and_a_service_make_one_job_of_a_key(postgres_url: str, tmp_path: Path) -> None:
    half = len(KEYS) // 2
    with run_serve_process(tmp_path, "--config", config_file(tmp_path, postgres_url, key_owner="user")) as service:
        served = submit_all(service, KEYS[:half])
        made = await submit_in_transaction(postgres_url)
        assert {key: made[key] for key in served} == served
        assert submit_all(service, KEYS[half:]) == {key: made[key] for key in KEYS[half:]}
    assert await count_jobs(postgres_url) == len(KEYS)


async def test_a_service_is_not_told_that_users_own_the_keys_of_a_transaction(
    postgres_url: str, tmp_path: Path
) -> None:
    made = await submit_in_transaction(postgres_url)
    user = config_file(tmp_path, postgres_url, key_owner="user")
    refusal = refusal_of(tmp_path, "serve", "--port", "0", "--config", user)
    assert "key_owner is user here, and tenant in the ledger" in refusal
    assert await submit_in_library(postgres_url) == made


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)  # relays use the library and the service, as above
async def test_relays_and_a_service_make_one_job_of_a_row(store: str, tmp_path: Path) -> None:
    """Two relays read one table: one works on the ledger and was told nothing, the other sends to the service."""
    (tmp_path / "shop.db").touch()
    source = Source(f"sqlite:///{tmp_path / 'shop.db'}", "sqlite")
    relay = ["relay", "--from", source.url, "--once"]
    rows = KEYS[:40]
    for key in rows:
        source.add(key, "null", type="t")
    config = config_file(tmp_path, store, key_owner="user", window="2h")
    with run_serve_process(tmp_path, "--config", config) as service:
        doors = (("--engine", store), ("--url", service.base_url))
        relays = [subprocess.Popen([*ONEJOB, *relay, *door], stdout=subprocess.DEVNULL) for door in doors]
        assert [one.wait(SECONDS_MAX) for one in relays] == [0, 0]
        assert source.rows("id") == []
        assert submit_all(service, rows) == await submit_in_library(store, rows)
    source.close()
    assert await count_jobs(store) == len(rows)


async def test_managers_on_a_bucket_make_one_job_of_a_key(bucket_url: str, tmp_path: Path) -> None:
    user = config_file(tmp_path, bucket_url, key_owner="user")
    with run_manager_process("--config", user) as first, run_manager_process("--engine", bucket_url) as second:
        jobs = await submit_in_library(first.url)  # through a gate
        assert await submit_in_library(second.url) == jobs
        with pytest.raises(StoreRefused, match="key_owner is tenant here, and user in the ledger"):
            await onejob.open(second.url, key_owner="tenant").__aenter__()
        assert await count_jobs(first.url) == len(KEYS)


@pytest.mark.parametrize("store", ["sqlite", "bucket"], indirect=True)
async def test_of_two_services_that_start_at_once_one_is_refused(store: str, tmp_path: Path) -> None:
    async with onejob.open(store, sweep=False):
        pass  # its settings are such that nobody has said
    starters = {
        owner: subprocess.Popen(
            [*ONEJOB, "serve", "--port", "0", "--config", config_file(tmp_path, store, key_owner=owner)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for owner in ("user", "tenant")
    }
    try:
        served = [owner for owner, one in starters.items() if one.stdout is not None and one.stdout.readline()]
        (refused,) = starters.keys() - served
        assert starters[refused].wait(SECONDS_MAX) == 2
        refusal = starters[refused].stderr
        assert refusal is not None
        assert f"key_owner is {refused} here, and {served[0]} in the ledger" in refusal.read()
        async with onejob.open(store, sweep=False) as queue:
            assert runtime_of(queue).settings.key_owner == served[0]
            assert starters[served[0]].poll() is None
    finally:
        for one in starters.values():
            one.terminate()
            one.communicate(timeout=SECONDS_MAX)


async def test_doors_that_remember_for_different_times_agree_after_forget(store: str) -> None:
    """None answers with the job of before after another has answered with the new one."""
    engine = await open_engine(store)
    await open_settings(engine, {"committed_ttl_ms": 400, "rejected_ttl_ms": 400})
    await engine.aclose()
    long, short = (onejob.IdempotencyConfig(committed_ttl_seconds=seconds) for seconds in (600, 0.1))
    async with (
        onejob.open(store, config=long, sweep=False) as patient,
        onejob.open(store, config=short, sweep=False) as forgetful,
    ):
        doors = (forgetful, patient)
        old = (await patient.submit("t", idempotency_key="k")).job_id
        answers = [(await door.submit("t", idempotency_key="k")).job_id for door in doors]
        await forgetful.forget("k", scope="t")
        async with asyncio.timeout(SECONDS_MAX):
            while set(answers) == {old}:
                await asyncio.sleep(0.02)
                answers += [(await door.submit("t", idempotency_key="k")).job_id for door in doors]
        answers += [(await door.submit("t", idempotency_key="k")).job_id for door in doors]
    first_new = next(n for n, job_id in enumerate(answers) if job_id != old)
    assert set(answers[first_new:]) == {answers[-1]}
    assert await count_jobs(store) == 2


async def freeze_between_transactions(process: RoleProcess, operator: onejob.Ledger) -> None:
    """A process that is frozen while it holds a lock of the store keeps everybody else from writing, too."""
    for _ in range(50):
        process.freeze()
        try:
            async with asyncio.timeout(0.4):
                await operator.submit("probe")
                await runtime_of(operator).gate.barrier(None)
            return
        except (TimeoutError, Unavailable):
            process.wake()
            await asyncio.sleep(0.02)
    raise AssertionError("it always holds a lock")


async def list_owners_of_keys(queue: onejob.Ledger, scope: str) -> set[str | None]:
    """By the identities of the keys. A bucket knows the time to a second, so their times do not tell which came first."""
    owners: set[str | None] = set()
    after, more = b"", True
    while more:
        page = await runtime_of(queue).gate.scan(ListFacts(tenant="default", kind=Kind.RECORD, after=after, limit=1000))
        records = [fact for fact in page.items if isinstance(fact, Record)]
        owners |= {owner_of_key(record) for record in records if record.scope == scope}
        after, more = records[-1].id if records else b"", page.more
    return owners


async def test_a_service_that_is_frozen_amid_traffic_makes_nothing_under_the_old_settings(store: str) -> None:
    process = RoleProcess("serve", "--port", "0", "--engine", store)
    service = ServeProcess(process.port)
    is_busy, is_frozen = threading.Barrier(SUBMITTERS + 1), threading.Event()

    def submit(n: int) -> str:
        for round in itertools.count():
            body = {"type": "before", "input": round, "idempotencyTtlSeconds": 1}
            service.ask("POST", "/api/jobs", body, idempotency_key=f"before-{n}-{round}")
            if round == 0:
                is_busy.wait(SECONDS_MAX)
            if is_frozen.is_set():
                break
        answer = service.submit("t", None, KEYS[n])
        while answer.status == 503:
            answer = service.submit("t", None, KEYS[n])
        return str(answer.json["job"]["id"])

    try:
        async with onejob.open(store, sweep=False) as operator:
            with ThreadPoolExecutor(SUBMITTERS) as pool:
                submitted = [pool.submit(submit, n) for n in range(SUBMITTERS)]
                await asyncio.to_thread(is_busy.wait, SECONDS_MAX)
                await freeze_between_transactions(process, operator)
                is_frozen.set()
                change = await change_settings(runtime_of(operator).gate, {"key_owner": "user"}, actor="client:admin")
                while not change.is_possible:
                    await asyncio.sleep(0.1)
                    change = await change_settings(
                        runtime_of(operator).gate, {"key_owner": "user"}, actor="client:admin"
                    )
                made = await submit_in_library(store, KEYS[: SUBMITTERS // 2])
                process.wake()
                answers = {key: one.result() for key, one in zip(KEYS, submitted, strict=False)}
            assert {key: answers[key] for key in made} == made
            assert await submit_in_library(store, list(answers)) == answers
            assert await list_owners_of_keys(operator, "t") == {"user"}
    finally:
        process.stop()
    assert await count_jobs(store) == SUBMITTERS
