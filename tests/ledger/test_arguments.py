"""What the ledger takes as arguments: durations are timedeltas, keys are texts or IdempotencyKeys, options have types."""

import inspect
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import onejob
import onejob.sync
from onejob.client.client import ClientBase, ClientOptions
from onejob.client.requests import SubmitOptions, submit_call
from onejob.ledger.api_keys import ApiKeys
from onejob.ledger.parse import SubmissionOptions
from onejob.middleware import Rule
from onejob.middleware.rules import IdempotencyRules, LayerOptions
from onejob.worker.worker import WorkerOptions

ROOT = Path(__file__).parents[2]


def calls_with_bare_numbers(queue: Any) -> dict[str, Callable[[], Any]]:
    app = onejob.App()
    app.job("t")(lambda: None)
    number: Any = 5
    sequenced: Any = {"scope": "t", "idempotency_ttl": number}
    return {
        "idempotency_ttl": lambda: queue.submit("t", idempotency_ttl=number),
        "idempotency_ttl of a sequence": lambda: queue.submit_sequence("c", 1, "k", "t", **sequenced),
        "timeout": lambda: queue.submit("t", timeout=number),
        "lease": lambda: queue.check_or_reserve("t", idempotency_key="k", lease=number),
        "lease of a claim": lambda: queue.claim("t", lease=number),
        "wait": lambda: queue.claim("t", wait=number),
        "lease of a worker": lambda: app.worker(queue, lease=number),
        "drain": lambda: app.worker(queue, drain=number),
        "lease of the middleware": lambda: IdempotencyRules(scope=str, lease=number),
        "window": lambda: Rule("POST /**", window=number),
        "window of a ledger": lambda: onejob.open("memory://", window=number),
        "window of a client": lambda: onejob.Client("http://localhost:1", window=number),
        "retention": lambda: onejob.open("memory://", retention=number),
        "overlap": lambda: ApiKeys(queue).rotate("k", overlap=number),
        "idempotency_ttl of a client": lambda: submit_call(onejob.Submission(type="t", idempotency_ttl=number), "k"),
        "timeout of a client": lambda: submit_call(onejob.Submission(type="t", timeout=number), "k"),
    }


@pytest.mark.parametrize("case", list(calls_with_bare_numbers(None)))
@pytest.mark.parametrize("url", ["memory"], indirect=True)
async def test_a_bare_number_as_a_duration_is_refused_with_the_right_spelling(queue: onejob.Ledger, case: str) -> None:
    name = case.split()[0]
    call = calls_with_bare_numbers(queue)[case]

    async def call_and_wait() -> None:
        called = call()
        if inspect.isawaitable(called):
            await called

    with pytest.raises(onejob.Invalid, match=rf"write {name}=timedelta\(seconds=5\)"):
        await call_and_wait()


async def test_a_window_in_days_is_a_number(queue: onejob.Ledger) -> None:
    made = await queue.submit("t", idempotency_key="k", idempotency_ttl_days=1.5)
    assert made.job is not None
    assert made.expires_at == made.job.created_at + timedelta(days=1.5)
    wrong: Any = timedelta(days=1)
    with pytest.raises(onejob.Invalid, match="a timedelta is given as idempotency_ttl"):
        await queue.submit("t", idempotency_ttl_days=wrong)


async def test_an_idempotency_key_is_taken_wherever_a_key_is_taken(queue: onejob.Ledger) -> None:
    keys = onejob.KeyGenerator("host:1")
    key = next(keys)
    made = await queue.submit("t", {"n": 1}, idempotency_key=key)
    assert made.key == str(key)
    again = (await queue.submit("t", {"n": 1}, idempotency_key=str(key))).job_id
    assert again == made.job_id
    assert (await queue.dry_run("t", {"n": 1}, idempotency_key=key)).job_id == made.job_id
    (listed,) = await queue.submit_many([onejob.Submission(type="t", input={"n": 1}, idempotency_key=key)])
    assert isinstance(listed, onejob.Receipt)
    assert listed.job_id == made.job_id
    assert (await queue.explain(key, scope="t")).key == str(key)
    await queue.forget(key, scope="t")
    with pytest.raises(onejob.IdempotencyConflict) as caught:
        await queue.submit("t", {"n": 2}, idempotency_key=key)
    assert caught.value.key == str(key)


async def test_an_idempotency_key_is_taken_by_the_other_verbs(queue: onejob.Ledger) -> None:
    keys = onejob.KeyGenerator("host:1")
    held = await queue.check_or_reserve("t", idempotency_key=next(keys))
    assert isinstance(held, onejob.HeldKey)
    assert (await queue.commit(held)).key == held.key
    key = next(keys)
    receipt = await queue.submit_sequence("host:1", 1, key, "t", scope="t")
    assert receipt.key == str(key)
    slot = await queue.reserve_job_slot("u", idempotency_key=key)
    assert await queue.reserve_job_slot("u", idempotency_key=str(key)) == slot
    stored = await queue.store_idempotency_key(next(keys), "job-elsewhere")
    assert stored.job_id == "job-elsewhere"
    app = onejob.App()
    handler = app.job("h")(lambda: None)
    assert (await handler.submit(queue, idempotency_key=key)).key == str(key)


@pytest.mark.parametrize(
    ("options", "function"),
    [
        (WorkerOptions, onejob.Worker.__init__),
        (ClientOptions, ClientBase.__init__),
        (LayerOptions, IdempotencyRules.__init__),
    ],
)
def test_typed_options_are_those_of_their_function(options: Any, function: Callable[..., Any]) -> None:
    keywords = [one for one in inspect.signature(function).parameters.values() if one.kind is one.KEYWORD_ONLY]
    assert list(options.__annotations__) == [one.name for one in keywords if one.name not in ("scope", "rules")]


def test_clients_and_ledgers_have_the_same_options() -> None:
    assert set(SubmitOptions.__annotations__) == set(SubmissionOptions.__annotations__)


def test_the_blocking_ledger_is_opened_with_the_options_of_the_other() -> None:
    options: Any = inspect.signature(onejob.sync.open).parameters
    assert options == inspect.signature(onejob.open).parameters


MISSPELLED = """
from datetime import timedelta

import onejob
import onejob.sync
from onejob.middleware import IdempotencyMiddleware
from starlette.applications import Starlette

app = onejob.App()


@app.job("t")
def run() -> None: ...


async def main(queue: onejob.Ledger) -> None:
    await run.submit(queue, None, prioritee=1)  # WRONG
    await run.submit(queue, None, priority=1)
    await queue.submit("t", None, idempotency_ttl=300)  # WRONG
    await queue.submit("t", None, idempotency_key=next(onejob.KeyGenerator("h")))
    app.worker(queue, concurency=2)  # WRONG
    app.worker(queue, concurrency=2, lease=timedelta(seconds=5))
    onejob.sync.open("memory://", tennant="t")  # WRONG
    onejob.sync.open("memory://", tenant="t")
    onejob.Client("http://127.0.0.1:1", apikey="k")  # WRONG
    onejob.Client("http://127.0.0.1:1", api_key="k")
    web = Starlette()
    web.add_middleware(IdempotencyMiddleware, ledger=queue, scope=lambda scope: "user")
    web.add_middleware(IdempotencyMiddleware, ledger="memory://", scope=lambda scope: "user", body_bytes_max=10)
    web.add_middleware(IdempotencyMiddleware, ledger=queue, scope=lambda scope: "user", body_bytes=10)  # WRONG
"""


def test_a_type_checker_finds_misspelled_options_and_accepts_the_middleware(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(MISSPELLED)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--hide-error-context", str(program)]
    command += ["--config-file", "", "--cache-dir", str(tmp_path / "cache")]
    ran = subprocess.run(
        command,
        cwd=tmp_path,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = {
        int(line.split(":")[1])
        for line in ran.stdout.splitlines()
        if line.startswith("program.py:") and ": error:" in line
    }
    wrong = {number for number, line in enumerate(MISSPELLED.splitlines(), 1) if "# WRONG" in line}
    assert lines == wrong, ran.stdout
