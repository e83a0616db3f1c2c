"""Handlers: functions by the type of the jobs that they run."""

import inspect
import os
import traceback
import typing
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import Struct

from onejob.core.identity import checked_name
from onejob.core.states import Delivery
from onejob.core.views import Receipt
from onejob.errors import Invalid
from onejob.ledger import Ledger
from onejob.ledger.parse import ATTEMPTS_DEFAULT

from .context import Context, Fatal

_CONTEXT_NAME = "ctx"
_ERROR_CHARS_MAX = 300


class WrongInput(Fatal):
    """The input is not what the handler takes."""


class Handler(Struct, frozen=True, kw_only=True):
    """A function that runs jobs of a type, and how they are submitted unless the submission says otherwise."""

    type: str
    function: Callable[..., Any]
    input_name: str | None  # None: it takes none
    input_type: Any
    context_name: str | None
    is_async: bool
    delivery: Delivery
    max_attempts: int
    timeout: timedelta | None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, as if it were no handler."""
        return self.function(*args, **kwargs)

    async def submit(self, queue: Ledger, input: Any = None, **options: Any) -> Receipt:
        """Submit a job for this handler."""
        given: dict[str, Any] = {
            "delivery": self.delivery,
            "max_attempts": self.max_attempts,
            "timeout": self.timeout,
        }
        return await queue.submit(self.type, msgspec.to_builtins(input), **given | options)

    def arguments(self, input: bytes, context: Context) -> dict[str, Any]:
        """What the function is called with."""
        given: dict[str, Any] = {}
        if self.input_name is not None:
            given[self.input_name] = self._decode_input(input)
        if self.context_name is not None:
            given[self.context_name] = context
        return given

    def _decode_input(self, input: bytes) -> Any:
        try:
            return msgspec.json.decode(input, type=self.input_type)
        except msgspec.ValidationError as error:
            # Only where it is wrong: what stands there may be nobody else's business.
            place = str(error).rpartition(" - at ")[2] if " - at " in str(error) else "`$`"
            raise WrongInput(f"the input is not what {self.type} takes, at {place}") from None


def build_handler(
    type: str,
    function: Callable[..., Any],
    *,
    delivery: Delivery | str = Delivery.AT_LEAST_ONCE,
    max_attempts: int = ATTEMPTS_DEFAULT,
    timeout: timedelta | float | None = None,
) -> Handler:
    """Read a function's signature: at most one input, and a context by its annotation or by the name `ctx`."""
    hints = typing.get_type_hints(function, include_extras=True)
    context_name = input_name = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise Invalid("job", f"{type}: a handler takes an input and a context by name, not {parameter}")
        if hints.get(name) is Context or (name == _CONTEXT_NAME and name not in hints):
            context_name = name
        elif input_name is None:
            input_name = name
        elif parameter.default is parameter.empty:
            raise Invalid("job", f"{type}: a handler takes one input; put {input_name} and {name} into a Struct")
    return Handler(
        type=checked_name("type", type),
        function=function,
        input_name=input_name,
        input_type=hints.get(input_name, Any) if input_name else Any,
        context_name=context_name,
        is_async=inspect.iscoroutinefunction(function),
        delivery=Delivery(delivery),
        max_attempts=max_attempts,
        timeout=timedelta(seconds=timeout) if isinstance(timeout, (int, float)) else timeout,
    )


def describe_exception(error: BaseException) -> str:
    """What is kept of an unforeseen failure: its kind and its place, for its words may repeat the input."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"[:_ERROR_CHARS_MAX]
