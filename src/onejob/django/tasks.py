"""A backend for Django's tasks (Django 6.0, or the package django-tasks before): a task is a job.

    TASKS = {"default": {"BACKEND": "onejob.django.tasks.OnejobBackend"}}

    @task
    def charge(order): ...

    charge.using(idempotency_key="order-7").enqueue(7)

If the ledger is in a database of the project, a task that is enqueued in a transaction is part of it.
"""

import builtins
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db import connections
from django.utils.module_loading import import_string
from msgspec import json

from onejob.core.states import JobState
from onejob.errors import Invalid, NotFound
from onejob.ledger.parse import ATTEMPTS_DEFAULT
from onejob.middleware.request_fingerprint import scope_name
from onejob.resources.jobs import JobView
from onejob.worker import Context
from onejob.worker.handlers import Handler, build_handler

try:
    from django import tasks
    from django.tasks import base, exceptions, signals
    from django.tasks.backends.base import BaseTaskBackend
except ImportError:  # before Django 6.0
    import django_tasks as tasks
    from django_tasks import base, exceptions, signals
    from django_tasks.backends.base import BaseTaskBackend

from .ledger import get_ledger, in_transaction
from .settings import project_settings

TYPE_PREFIX = "django-task:"
SCOPE_PREFIX = "django-task:"

_STATUSES = {
    JobState.RUNNING: base.TaskResultStatus.RUNNING,
    JobState.SUCCESS: base.TaskResultStatus.SUCCESSFUL,
    JobState.FAILED: base.TaskResultStatus.FAILED,
    JobState.CANCELLED: base.TaskResultStatus.FAILED,
    JobState.LOST: base.TaskResultStatus.FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnejobTask(base.Task):
    """A task that can have a key: enqueued again with the same key and arguments, it is the same job."""

    idempotency_key: str | None = None

    def using(self, **changes: Any) -> "OnejobTask":
        return replace(self, **{name: value for name, value in changes.items() if value is not None})


class OnejobBackend(BaseTaskBackend):
    """`OPTIONS`: `max_attempts`, `delivery` and `timeout` (seconds) of the jobs, as in `@app.job`."""

    task_class = OnejobTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Submit the task as a job. Another job under the same key raises IdempotencyConflict."""
        self.validate_task(task)
        submission = {
            "input": {"task": task.module_path, "args": list(args), "kwargs": kwargs},
            "idempotency_key": getattr(task, "idempotency_key", None),
            "scope": scope_name(task.module_path, SCOPE_PREFIX),
            "priority": task.priority,
            "run_at": task.run_after,
            **_job_options(self.options),
        }
        job = _submitter().submit(f"{TYPE_PREFIX}{task.queue_name}", **submission).job
        result = self._build_result(job, task, list(args), kwargs)
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        ledger = get_ledger()
        try:
            job = ledger.job(result_id)
            given = json.decode(ledger.input(result_id))
        except (NotFound, Invalid) as error:
            raise exceptions.TaskResultDoesNotExist(result_id) from error
        if not job.type.startswith(TYPE_PREFIX):
            raise exceptions.TaskResultDoesNotExist(result_id)
        task = import_string(given["task"]).using(priority=job.priority, run_after=job.run_at)
        result = self._build_result(job, task, given["args"], given["kwargs"])
        if job.state is JobState.SUCCESS:
            object.__setattr__(result, "_return_value", ledger.result(result_id))
        return result

    def _build_result(self, job: JobView, task: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        errors = (
            [base.TaskError(exception_class_path=_error_class(job.error), traceback=job.error)] if job.error else []
        )
        return base.TaskResult(
            task=task,
            id=job.id,
            status=_STATUSES.get(job.state, base.TaskResultStatus.READY),
            enqueued_at=job.created_at,
            started_at=job.started_at,
            last_attempted_at=job.started_at,
            finished_at=job.ended_at,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=errors,
            worker_ids=["onejob"] * job.attempts,
        )


def task_handlers() -> dict[str, Handler]:
    """A handler for each queue of each backend of this kind, for the worker."""
    handlers = {}
    for alias in tasks.task_backends:
        backend = tasks.task_backends[alias]
        if isinstance(backend, OnejobBackend):
            for queue in backend.queues:
                type = f"{TYPE_PREFIX}{queue}"
                handlers[type] = build_handler(type, _run_task, **_job_options(backend.options))
    return handlers


def _run_task(input: dict[str, Any], ctx: Context) -> Any:
    task = import_string(input["task"])
    backend = task.get_backend()
    result = backend.get_result(ctx.job_id)
    signals.task_started.send(type(backend), task_result=result)
    context = (base.TaskContext(task_result=result),) if task.takes_context else ()
    try:
        returned = task.call(*context, *input["args"], **input["kwargs"])
    except Exception:
        if len(result.worker_ids) >= _job_options(backend.options)["max_attempts"]:
            _finish(backend, result, base.TaskResultStatus.FAILED)
        raise
    object.__setattr__(result, "_return_value", returned)
    _finish(backend, result, base.TaskResultStatus.SUCCESSFUL)
    return returned


def _finish(backend: OnejobBackend, result: Any, status: Any) -> None:
    object.__setattr__(result, "status", status)
    signals.task_finished.send(type(backend), task_result=result)


def _job_options(options: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(options) - {"max_attempts", "delivery", "timeout"})
    if unknown:
        raise Invalid("OPTIONS", f"TASKS has no option {', '.join(unknown)}; choose max_attempts, delivery or timeout")
    seconds = options.get("timeout")
    return {
        "max_attempts": options.get("max_attempts", ATTEMPTS_DEFAULT),
        "delivery": options.get("delivery", "at_least_once"),
        "timeout": timedelta(seconds=seconds) if isinstance(seconds, int | float) else seconds,
    }


def _submitter() -> Any:
    """The transaction of the project's database, if the ledger is there and a transaction is open; else the ledger."""
    using = project_settings().database
    return in_transaction() if using and connections[using].in_atomic_block else get_ledger()


def _error_class(error: str) -> str:
    """The class of the stored error if it is one of Python's own; its full name is not stored."""
    name = error.partition(" ")[0]
    return f"builtins.{name}" if isinstance(getattr(builtins, name, None), type) else "builtins.Exception"
