"""Tasks that leave a line in a file; they are found by their import path."""

import os
from pathlib import Path
from typing import Any

import django

if django.VERSION >= (6,):
    from django.tasks import default_task_backend, task
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_finished
else:
    from django_tasks import default_task_backend, task
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_finished

__all__ = ["TaskResultDoesNotExist", "add", "attempt", "default_task_backend", "fail", "return_object", "task_finished"]


def note(text: str) -> None:
    with (Path(os.environ["TASKS_FOLDER"]) / "notes").open("a") as notes:
        notes.write(f"{text}\n")


@task
def add(a: int, b: int = 0) -> int:
    note(f"add {a} {b}")
    return a + b


@task(takes_context=True)
def attempt(context: Any) -> int:
    note("attempt")
    if context.attempt < 2:
        raise ValueError("the first attempt")
    return int(context.attempt)


@task
async def fail() -> None:
    raise LookupError("always")


class CardDeclined(Exception):
    pass


@task
def decline() -> None:
    raise CardDeclined("card 4711")


@task
def return_object() -> object:
    return object()
