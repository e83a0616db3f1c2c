"""Django's tasks are jobs: enqueued, run by the worker of the management command, and read back."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

import onejob
from onejob.django import get_ledger
from onejob.django.management.commands.onejob_worker import build_app
from tests.django import tasks_of_tests as tasks

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("project")

PROGRAM = """
import sys
from tests.support import django_project
from django.core.management import call_command
from django.test import override_settings
with override_settings(ONEJOB={"LEDGER": sys.argv[1], "APP": "tests.django.test_tasks:jobs"}):
    call_command("onejob_worker", "--json")
"""
BACKEND = {"BACKEND": "onejob.django.tasks.OnejobBackend"}
jobs = onejob.App(keep_messages=False)


@jobs.job("greet")
def greet(name: str) -> str:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return f"hello {name}"


@jobs.job("refuse")
def refuse() -> None:
    raise LookupError("a secret")


jobs.every("0 0 * * *", "greet", "everybody", name="nightly")


@contextmanager
def run_worker(ledger: str, folder: Path) -> Iterator[None]:
    environment = os.environ | {"TASKS_FOLDER": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, ledger], cwd=ROOT, env=environment, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline()  # it prints when it is ready
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert process.returncode == 0


def finished(result: Any) -> Any:
    for _ in range(1000):
        result.refresh()
        if result.is_finished:
            return result
        time.sleep(0.02)
    raise TimeoutError(result.status)


def test_the_worker_runs_tasks_and_jobs(ledger_setting: dict[str, Any], tmp_path: Path) -> None:
    added, again = (tasks.add.using(idempotency_key="sum").enqueue(1, b=2) for _ in range(2))
    assert added.id == again.id
    assert added.status == "READY"
    tried, failed = tasks.attempt.enqueue(), tasks.fail.enqueue()
    greeted, refused = get_ledger().submit("greet", "ann").job_id, get_ledger().submit("refuse").job_id
    with run_worker(ledger_setting["LEDGER"], tmp_path):
        assert finished(added).return_value == 3
        assert finished(tried).return_value == 2
        assert get_ledger().wait(greeted, 20).state == "success"
        assert get_ledger().result(greeted) == "hello ann"
        assert finished(failed).status == "FAILED"
        assert failed.errors[0].exception_class is LookupError
        with pytest.raises(ValueError, match="failed"):
            _ = failed.return_value
        assert get_ledger().wait(refused, 20).state == "failed"
        assert not get_ledger().failures(refused)  # no message is kept
        assert [schedule.name for schedule in get_ledger().admin.schedules()] == ["nightly"]
    assert (tmp_path / "notes").read_text().splitlines().count("add 1 2") == 1


def test_a_key_belongs_to_its_task_and_another_argument_is_a_conflict() -> None:
    first = tasks.add.using(idempotency_key="k").enqueue(1)
    with pytest.raises(onejob.IdempotencyConflict):
        tasks.add.using(idempotency_key="k").enqueue(2)
    other = tasks.attempt.using(idempotency_key="k").enqueue()
    assert other.id != first.id


def test_a_task_may_wait_and_have_a_priority() -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    result = tasks.add.using(run_after=later, priority=7).enqueue(1)
    job = get_ledger().job(result.id)
    assert (job.state, job.priority) == ("scheduled", 7)
    read = tasks.add.get_result(result.id)
    assert (read.task.priority, read.args, read.status) == (7, [1], "READY")


async def test_a_coroutine_may_enqueue() -> None:
    result = await tasks.add.aenqueue(4)
    assert (await tasks.add.aget_result(result.id)).args == [4]


def test_what_is_no_task_has_no_result() -> None:
    job = get_ledger().submit("greet", "ann").job_id
    for unknown in (job, "nothing", "0" * 32):
        with pytest.raises(tasks.TaskResultDoesNotExist):
            tasks.default_task_backend.get_result(unknown)


def test_a_worker_without_anything_to_run_is_refused() -> None:
    with override_settings(TASKS={}), pytest.raises(CommandError, match="nothing to run"):
        call_command("onejob_worker")
    with pytest.raises(CommandError, match="nowhere"):
        call_command("onejob_worker", "nowhere:app")


def run_tasks(*job_ids: str, app: onejob.App | None = None) -> None:
    ledger = get_ledger()
    built = build_app(app or onejob.App())

    async def work() -> None:
        async with built.background_worker(ledger.async_ledger):
            for job_id in job_ids:
                job = await ledger.async_ledger.wait(job_id, timedelta(seconds=20))
                assert job.state in ("success", "failed")

    ledger.run(work())


@pytest.mark.parametrize("path", ["antigravity.fly", "os.getcwd", "tests.django.tasks_of_tests.note", "add", "x.y.z"])
def test_a_job_cannot_make_the_worker_import_or_call_what_is_not_a_task(path: str) -> None:
    call = {"task": path, "args": [], "kwargs": {}}
    job_id = get_ledger().submit("django-task:default", call, max_attempts=1).job_id
    with pytest.raises(tasks.TaskResultDoesNotExist):
        tasks.default_task_backend.get_result(job_id)
    run_tasks(job_id)
    assert "does not know the task" in str(get_ledger().job(job_id).error)
    assert "antigravity" not in sys.modules


def test_an_input_that_is_not_a_call_fails_and_has_no_result() -> None:
    job_id = get_ledger().submit("django-task:default", {"task": 1}).job_id
    with pytest.raises(tasks.TaskResultDoesNotExist):
        tasks.default_task_backend.get_result(job_id)
    run_tasks(job_id)
    assert get_ledger().job(job_id).state == "failed"


def test_the_end_is_signalled_as_it_is_stored() -> None:
    ends = []

    def receive(task_result: Any, **_: Any) -> None:
        ends.append((task_result.id, task_result.status, get_ledger().job(task_result.id).state))

    tasks.task_finished.connect(receive)
    try:
        result = tasks.return_object.enqueue()
        run_tasks(result.id)
    finally:
        tasks.task_finished.disconnect(receive)
    assert ends == [(result.id, "FAILED", "failed")]


@pytest.mark.parametrize("keeps", [True, False])
def test_an_error_has_its_class_and_the_traceback_where_messages_are_kept(keeps: bool) -> None:
    with override_settings(TASKS={"default": BACKEND | {"OPTIONS": {"max_attempts": 1}}}):
        result = tasks.decline.enqueue()
        run_tasks(result.id, app=onejob.App(keep_messages=keeps))
    result.refresh()
    [error] = result.errors
    assert error.exception_class is tasks.CardDeclined
    assert ("Traceback" in error.traceback, "card 4711" in error.traceback) == (keeps, keeps)


def test_an_empty_list_of_queues_is_any_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKS_FOLDER", str(tmp_path))
    with override_settings(TASKS={"default": BACKEND | {"QUEUES": []}}):
        result = tasks.add.using(queue_name="anything").enqueue(1, b=2)
        run_tasks(result.id)
        result.refresh()
        assert result.return_value == 3
        assert tasks.add.get_result(result.id).task.queue_name == "anything"
