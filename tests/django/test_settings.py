"""A Django project that says nothing of the settings of a ledger, beside a service that does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.http import JsonResponse
from django.test import Client

from onejob.django import get_ledger, once
from onejob.django.ledger import close_layer
from onejob.django.tasks import SCOPE_PREFIX
from onejob.middleware.request_fingerprint import scope_name
from tests.django import tasks_of_tests as tasks
from tests.support.serve_process import run_serve_process

KEYS = [f"k{n}" for n in range(100)]
RUNS = KEYS[:20]


@pytest.fixture
def ledger_setting(durable_url: str, ledger_setting: dict[str, Any]) -> dict[str, Any]:
    return ledger_setting | {"LEDGER": durable_url}


def test_a_project_and_a_service_make_one_job_of_a_key(
    client: Client, serve: Callable[[Any], None], durable_url: str, tmp_path: Path
) -> None:
    runs: list[str] = []

    @once
    def view(request: Any) -> Any:
        runs.append(request.headers["Idempotency-Key"])
        return JsonResponse({"n": len(runs)})

    serve(view)
    get_ledger()  # it is open before anybody has said who owns keys
    config = tmp_path / "user.toml"
    config.write_text(f'engine = "{durable_url}"\nkey_owner = "user"\n', encoding="utf-8")
    with run_serve_process(tmp_path, "--config", str(config)) as service:
        half = len(KEYS) // 2
        body = {
            "type": "django-task:default",
            "scope": scope_name(tasks.add.module_path, SCOPE_PREFIX),
            "input": {"task": tasks.add.module_path, "args": [1], "kwargs": {}},
        }

        def submit(keys: list[str]) -> dict[str, str]:
            answers = {key: service.ask("POST", "/api/jobs", body, idempotency_key=key) for key in keys}
            return {key: str(one.json["job"]["id"]) for key, one in answers.items()}

        served = submit(KEYS[:half])
        enqueued = {key: tasks.add.using(idempotency_key=key).enqueue(1).id for key in KEYS}
        assert enqueued == served | submit(KEYS[half:])
        first = [client.post("/pay", headers={"Idempotency-Key": key}).content for key in RUNS]
        close_layer()  # another process of the project, which the next request begins
        assert [client.post("/pay", headers={"Idempotency-Key": key}).content for key in RUNS] == first
    assert runs == RUNS
    assert len(get_ledger().jobs(type="django-task:default", limit=1000)) == len(KEYS)
