"""Tasks that leave a line in a file; they are found by their import path."""

import os
from pathlib import Path
from typing import Any

from django_tasks import task


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
