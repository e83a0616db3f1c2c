"""A backend for Django's tasks (Django 6.0, or the package django-tasks before): a task is a job.

    TASKS = {"default": {"BACKEND": "onejob.django.tasks.OnejobBackend"}}

    @task
    def charge(order): ...

    charge.using(idempotency_key="order-7").enqueue(7)

If the ledger is in a database of the project, a task that is enqueued in a transaction is part of it.
"""

import sys
import traceback
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib import import_module
from typing import Any

from django.db import connections
from django.utils.module_loading import autodiscover_modules
from msgspec import MsgspecError, Struct, json, structs

from onejob.core.states import JobState
from onejob.core.work import MESSAGE_CHARS_MAX
from onejob.errors import Invalid, NotFound
from onejob.ledger.parse import ATTEMPTS_DEFAULT
from onejob.middleware.request_fingerprint import scope_name
from onejob.resources.jobs import JobView
from onejob.worker import Context, Retry
from onejob.worker.handlers import Handler, build_handler, describe_exception

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
ANY_QUEUE = "*"  # stands for all queues where `QUEUES` is empty

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


class TaskCall(Struct, omit_defaults=True):
    """The input of a job."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    queue: str = ""  # only where the type does not name it


class OnejobBackend(BaseTaskBackend):
    """`OPTIONS`: `max_attempts`, `delivery` and `timeout` (seconds) of the jobs, as in `@app.job`.

    And `modules`, whose tasks a worker runs besides those in the `tasks` modules of the project's apps.
    """

    task_class = OnejobTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Submit the task as a job. Another job under the same key raises IdempotencyConflict."""
        self.validate_task(task)
        submission = {
            "input": TaskCall(task.module_path, list(args), kwargs, "" if self.queues else task.queue_name),
            "idempotency_key": getattr(task, "idempotency_key", None),
            "scope": scope_name(task.module_path, SCOPE_PREFIX),
            "priority": task.priority,
            "run_at": task.run_after,
            **_job_options(self.options),
        }
        job = _submitter().submit(_job_type(task.queue_name if self.queues else ANY_QUEUE), **submission).job
        result = self._build_result(job, task, list(args), kwargs)
        signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        ledger = get_ledger()
        try:
            job, call = ledger.job(result_id), _load_call(result_id)
        except (NotFound, Invalid, MsgspecError) as error:
            raise exceptions.TaskResultDoesNotExist(result_id) from error
        task = _find_task(call.task)
        if task is None or not job.type.startswith(TYPE_PREFIX):
            raise exceptions.TaskResultDoesNotExist(result_id)
        queue = call.queue or None  # else that of the task
        task = task.using(priority=job.priority, run_after=job.run_at, queue_name=queue)
        result = self._build_result(job, task, call.args, call.kwargs)
        if job.state is JobState.SUCCESS:
            object.__setattr__(result, "_return_value", ledger.result(result_id))
        return result

    def _build_result(self, job: JobView, task: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        errors = []
        if job.error:
            failures = get_ledger().failures(job.id)  # none where the operator keeps no messages
            text = failures[-1].detail if failures else job.error
            errors = [base.TaskError(exception_class_path=_error_class(job.error), traceback=text)]
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
    _import_tasks()
    handlers = {}
    for backend in _backends():
        for queue in backend.queues or (ANY_QUEUE,):
            handler = build_handler(_job_type(queue), _run_task, **_job_options(backend.options))
            handlers[handler.type] = structs.replace(
                handler, describe=_describe, message=_traceback_text, on_end=_send_finished
            )
    return handlers


def _backends() -> list[OnejobBackend]:
    backends = [tasks.task_backends[alias] for alias in tasks.task_backends]
    return [backend for backend in backends if isinstance(backend, OnejobBackend)]


def _import_tasks() -> None:
    """Import the modules that the project names, by its apps and its setting, and so register their tasks."""
    autodiscover_modules("tasks")
    for backend in _backends():
        for module in backend.options.get("modules", ()):
            import_module(module)


def _find_task(path: str) -> Any:
    """The task that has this import path in an imported module, or None. What a job names is not imported."""
    task = _imported(path)
    if task is None:
        _import_tasks()
        task = _imported(path)
    return task if isinstance(task, base.Task) and task.module_path == path else None


def _imported(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return vars(sys.modules[module]).get(name) if module in sys.modules else None


def _job_type(queue: str) -> str:
    return f"{TYPE_PREFIX}{queue}"


def _load_call(job_id: str) -> TaskCall:
    return json.decode(get_ledger().input(job_id), type=TaskCall)


def _run_task(input: TaskCall, ctx: Context) -> Any:
    task = _find_task(input.task)
    if task is None:
        raise Retry(
            "this worker does not know the task of the job; put it into the tasks.py of an app, "
            "or name its module in OPTIONS['modules'] of TASKS"
        )
    backend = task.get_backend()
    result = backend.get_result(ctx.job_id)
    signals.task_started.send(type(backend), task_result=result)
    context = (base.TaskContext(task_result=result),) if task.takes_context else ()
    return task.call(*context, *input.args, **input.kwargs)


def _send_finished(job_id: str) -> None:
    """After the end is stored, so that a receiver sees what everybody else will see."""
    task = _find_task(_load_call(job_id).task)
    if task is not None:
        backend = task.get_backend()
        signals.task_finished.send(type(backend), task_result=backend.get_result(job_id))


def _describe(error: BaseException) -> str:
    """As for other jobs, with the module of the class, for `TaskError.exception_class`."""
    kind = type(error)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return prefix + describe_exception(error)


def _traceback_text(error: BaseException) -> str:
    """The end of the traceback, as much as is stored."""
    return "".join(traceback.format_exception(error))[-MESSAGE_CHARS_MAX:]


def _job_options(options: dict[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(options) - {"max_attempts", "delivery", "timeout", "modules"})
    if unknown:
        raise Invalid(
            "OPTIONS", f"TASKS has no option {', '.join(unknown)}; choose max_attempts, delivery, timeout or modules"
        )
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
    """The class of the stored error if it is an exception that is imported here: whoever reports an error names no module."""
    path = error.partition(" ")[0]
    path = path if "." in path else f"builtins.{path}"
    kind = _imported(path)
    return path if isinstance(kind, type) and issubclass(kind, BaseException) else "builtins.Exception"
