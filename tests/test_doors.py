"""Doors to one ledger that are configured differently: refused by name, or one job for one key."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import onejob
from onejob.cli import main
from tests.support.command_line import ONEJOB
from tests.support.manager_process import GateProcess, RoleProcess, run_manager_process
from tests.support.serve_process import ServeProcess, run_serve_process

KEYS = [f"k{n}" for n in range(200)]
SECONDS_MAX = 60


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
        assert "key_owner = user is set here, but" in refusal
        assert "200 live keys" in refusal
        assert submit_all(first) == jobs
    assert "key_owner = user is set here, but" in refusal_of(tmp_path, "serve", "--port", "0", "--config", user)


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
