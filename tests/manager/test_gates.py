"""Gates and managers as processes: death, freezing, restarts; what a gate without a manager answers, and to whom."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from onejob import sync
from onejob.core.credentials import Role
from tests.http.auth_server import AuthServer, run_auth_server, token
from tests.support.command_line import CommandRunner
from tests.support.manager_process import ManagerProcess, run_manager_process
from tests.support.raw_http import Server, engine_line, run_server

FAILOVER_SECONDS_MAX = 5.0


@pytest.fixture
def managers(postgres_url: str) -> Iterator[list[ManagerProcess]]:
    with run_manager_process("--engine", postgres_url) as one, run_manager_process("--engine", postgres_url) as other:
        yield [one, other]


@pytest.fixture
def gate(tmp_path: Path, managers: list[ManagerProcess]) -> Iterator[Server]:
    with run_server(tmp_path, engine_line(",".join(manager.url for manager in managers))) as server:
        yield server


def count_jobs(url: str) -> int:
    with sync.open(url, sweep=False) as ledger:
        return len(ledger.jobs(limit=1000))


def submit_within(gate: Server, key: str, seconds: float) -> str:
    begin = time.monotonic()
    response = gate.submit(key)
    assert response.status == 202, response.body
    assert time.monotonic() - begin < seconds
    return str(response.body["job"]["id"])


def wait_for_states(gate: Server, states: list[str]) -> None:
    until = time.monotonic() + 20
    while [manager["state"] for manager in gate.ask("GET", "/readyz").body["managers"]] != states:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_frozen_and_killed_managers_are_left_and_no_key_has_two_jobs(
    gate: Server, managers: list[ManagerProcess], postgres_url: str
) -> None:
    jobs = {"before": submit_within(gate, "before", FAILOVER_SECONDS_MAX)}
    for n, manager in enumerate(managers):
        manager.freeze()
        jobs[f"frozen{n}"] = submit_within(gate, f"frozen{n}", FAILOVER_SECONDS_MAX)
        manager.wake()
        time.sleep(0.5)
    managers[0].kill()
    jobs["killed"] = submit_within(gate, "killed", FAILOVER_SECONDS_MAX)
    wait_for_states(gate, ["unreachable", "reached"])
    managers[1].kill()
    refused = gate.submit("nobody")
    assert refused.status == 503
    assert refused.headers["retry-after"]
    assert gate.ask("GET", "/readyz").status == 503
    again = ManagerProcess("--engine", postgres_url, bind=managers[1].url.removeprefix("http://"))
    try:
        for key, job in jobs.items():
            assert submit_within(gate, key, FAILOVER_SECONDS_MAX) == job
        assert count_jobs(postgres_url) == len(jobs)
        submit_within(gate, "nobody", FAILOVER_SECONDS_MAX)
    finally:
        assert again.stop() == 0


def test_a_gate_refuses_managers_of_two_files(tmp_path: Path, run: CommandRunner) -> None:
    with (
        run_manager_process("--engine", f"sqlite:///{tmp_path}/a.db") as one,
        run_manager_process("--engine", f"sqlite:///{tmp_path}/b.db") as other,
    ):
        result = run("gate", "--manager", f"{one.url},{other.url}", "--port", "0")
        assert result.code == 2
        assert one.url in result.err
        assert other.url in result.err


def test_a_gate_without_managers_says_what_to_do(run: CommandRunner) -> None:
    result = run("gate", "--port", "0")
    assert result.code == 2
    assert "--manager" in result.err
    assert run("gate", "--manager", "http://127.0.0.1:1", "--port", "0").code not in (0, 1)


def test_a_manager_beyond_loopback_needs_a_gate_key(tmp_path: Path, run: CommandRunner) -> None:
    engine = f"sqlite:///{tmp_path}/onejob.db"
    refused = run("manager", "--engine", engine, "--bind", "0.0.0.0:0")
    assert refused.code == 2
    assert "gatekey create" in refused.err
    assert run("manager", "--engine", engine, "--bind", "nonsense").code == 2


def test_gate_keys_are_made_listed_rotated_and_revoked(tmp_path: Path, run: CommandRunner) -> None:
    target = ("--engine", f"sqlite:///{tmp_path}/onejob.db")
    made = run("gatekey", "create", "dc1", "--for-tenant", "acme", "--expires", "90d", "--json", *target).json
    assert made["secret"].startswith("ojg_")
    id = made["gateKey"]["id"]
    assert "acme" in run("gatekey", "list", *target).out
    rotated = run("gatekey", "rotate", id, "--json", *target).json
    assert rotated["secret"] != made["secret"]
    assert "revoked" in run("gatekey", "revoke", id, *target).out
    listed = run("gatekey", "list", "--json", *target).json["gateKeys"]
    assert [key["revokedAt"] is not None for key in listed] == [True]
    assert run("gatekey", "revoke", "0" * 12, *target).code == 5


def test_gate_keys_are_not_made_through_a_manager(tmp_path: Path, run: CommandRunner) -> None:
    with run_manager_process("--engine", f"sqlite:///{tmp_path}/onejob.db") as manager:
        assert "not through it" in run("gatekey", "create", "dc1", "--engine", manager.url).err


class CutOff:
    """A gate whose manager can be killed, after some jobs have ended."""

    def __init__(self, server: AuthServer, manager: ManagerProcess) -> None:
        self.server = server
        self.manager = manager
        self.api_key = server.create_key("ci")

    def submit(self, credential: str, key: str) -> int:
        return self.server.service.submit(credential, key).status

    def end_job(self, credential: str, key: str) -> None:
        """Submit and cancel: what is remembered of it cannot change any more."""
        job = self.server.service.submit(credential, key).body["job"]["id"]
        operator = self.server.create_key("operator", Role.OPERATOR)
        headers = (("Authorization", f"Bearer {operator}"),)
        assert self.server.service.ask("POST", f"/api/jobs/{job}/cancel", headers).status == 200
        assert self.submit(credential, key) == 202


def run_cut_off(tmp_path: Path, **options: float) -> Iterator[CutOff]:
    with run_manager_process("--engine", f"sqlite:///{tmp_path}/onejob.db") as manager:
        for server in run_auth_server(manager.url, **options):
            yield CutOff(server, manager)


@pytest.fixture
def strict(tmp_path: Path) -> Iterator[CutOff]:
    yield from run_cut_off(tmp_path)


@pytest.fixture
def trusting(tmp_path: Path) -> Iterator[CutOff]:
    yield from run_cut_off(tmp_path, credential_max_age_seconds=60.0)


def test_cut_off_a_gate_answers_what_it_remembers_only_to_callers_it_can_prove(strict: CutOff) -> None:
    jwt = token()
    strict.end_job(jwt, "of-a-token")
    strict.end_job(strict.api_key, "of-a-key")
    strict.manager.kill()
    assert strict.submit(jwt, "of-a-token") == 202
    assert strict.submit(strict.api_key, "of-a-key") == 503
    for credential in (jwt, strict.api_key):
        assert strict.submit(credential, "new") == 503


def test_within_the_age_that_is_set_an_api_key_is_trusted_and_nothing_is_created(trusting: CutOff) -> None:
    trusting.end_job(trusting.api_key, "of-a-key")
    trusting.manager.kill()
    assert trusting.submit(trusting.api_key, "of-a-key") == 202
    assert trusting.submit(trusting.api_key, "new") == 503
    assert trusting.submit(trusting.api_key[:-1] + "x", "of-a-key") in (401, 503)


def test_a_key_that_is_revoked_at_another_gate_is_refused_here(trusting: CutOff) -> None:
    assert trusting.submit(trusting.api_key, "k") == 202
    with sync.open(trusting.manager.url, sweep=False) as other_gate:
        other = AuthServer(trusting.manager.url, trusting.server.service, other_gate)
        (own,) = [key for key in other.api_keys().list() if key.name == "ci"]
        other.api_keys().revoke(own.id)
    assert trusting.submit(trusting.api_key, "k") == 401


def test_rates_hold_for_all_gates_together(tmp_path: Path) -> None:
    config = tmp_path / "manager.toml"
    config.write_text("rate_per_second = 0.001\nrate_burst = 3\n")
    engine = f"sqlite:///{tmp_path}/onejob.db"
    with run_manager_process("--engine", engine, "--config", str(config)) as manager:
        settings = engine_line(manager.url)
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        with run_server(tmp_path / "a", settings) as one, run_server(tmp_path / "b", settings) as other:
            statuses = [gate.submit(f"{n}{gate.port}").status for n in range(3) for gate in (one, other)]
            assert sorted(statuses) == [202] * 3 + [429] * 3
            assert one.submit(f"0{one.port}").status == 202, "a known key takes no token"
