"""A handler: the function for a job type, how its arguments are decoded, and how its jobs are submitted."""

import inspect
import os
import traceback
import typing
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Unpack

from msgspec import Struct

from onejob.core.identity import checked_name
from onejob.core.key import KeyLike
from onejob.core.states import Delivery
from onejob.core.typed_json import JsonMismatch, build_json_decoder, check_encodable
from onejob.core.work import MESSAGE_CHARS_MAX
from onejob.errors import Invalid
from onejob.ledger import Ledger
from onejob.ledger.parse import ATTEMPTS_DEFAULT, JobOptions, SubmissionOptions
from onejob.runtime.receipts import Receipt

from .context import Context
from .exceptions import Fatal

_CONTEXT_NAME = "ctx"
_ERROR_CHARS_MAX = 300
_USE_INSTEAD = "use a Struct, a dataclass, a TypedDict, a Pydantic model or plain JSON values"


class WrongInput(Fatal):
    """The input does not match the type that the handler declares."""


class Handler(Struct, frozen=True, kw_only=True):
    """A function that runs the jobs of a type, and the default options for submitting them."""

    type: str
    function: Callable[..., Any]
    input_name: str | None  # None: the function takes no input
    decode_input: Callable[[bytes], Any]  # raises JsonMismatch
    context_name: str | None
    is_async: bool
    delivery: Delivery
    max_attempts: int
    timeout: timedelta | None
    describe: Callable[[BaseException], str] | None = None  # the error that everybody sees; None: that of the app
    message: Callable[[BaseException], str] | None = None  # for operators; None: that of the exception
    on_end: Callable[[str], object] | None = None  # called in a thread with the id of a job whose end is stored

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly, as in a unit test."""
        return self.function(*args, **kwargs)

    async def submit(
        self,
        queue: Ledger,
        input: Any = None,
        *,
        idempotency_key: KeyLike | None = None,
        **options: Unpack[SubmissionOptions],
    ) -> Receipt:
        """Submit a job for this handler; what is not given is as the handler was registered."""
        merged: SubmissionOptions = {**self.submission_options(), **options}
        return await queue.submit(self.type, input, idempotency_key=idempotency_key, **merged)

    def submission_options(self) -> JobOptions:
        """The options of its jobs where a submission has none of its own."""
        return {"delivery": self.delivery, "max_attempts": self.max_attempts, "timeout": self.timeout}

    def arguments(self, input: bytes, context: Context) -> dict[str, Any]:
        """The keyword arguments for the function."""
        arguments: dict[str, Any] = {}
        if self.input_name is not None:
            arguments[self.input_name] = self._decode_input(input)
        if self.context_name is not None:
            arguments[self.context_name] = context
        return arguments

    def _decode_input(self, input: bytes) -> Any:
        try:
            return self.decode_input(input)
        except JsonMismatch as error:
            raise WrongInput(f"the input does not match the type that {self.type} expects, {error}") from None


def build_handler(
    type: str,
    function: Callable[..., Any],
    *,
    delivery: Delivery | str = Delivery.AT_LEAST_ONCE,
    max_attempts: int = ATTEMPTS_DEFAULT,
    timeout: timedelta | float | None = None,
) -> Handler:
    """Read the signature: at most one input, and a context by its annotation or by the name `ctx`."""
    hints = _type_hints(type, function)
    context_name = input_name = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise Invalid("job", f"{type}: a handler takes an input and a context by name; replace {parameter}")
        if hints.get(name) is Context or (name == _CONTEXT_NAME and name not in hints):
            context_name = name
        elif input_name is None:
            input_name = name
        elif parameter.default is parameter.empty:
            raise Invalid("job", f"{type}: a handler takes one input; put {input_name} and {name} into a Struct")
    _check_result_type(type, hints.get("return", Any))
    return Handler(
        type=checked_name("type", type),
        function=function,
        input_name=input_name,
        decode_input=_build_input_decoder(type, hints.get(input_name, Any) if input_name else Any),
        context_name=context_name,
        is_async=inspect.iscoroutinefunction(function),
        delivery=Delivery(delivery),
        max_attempts=max_attempts,
        timeout=timedelta(seconds=timeout) if isinstance(timeout, (int, float)) else timeout,
    )


def _type_hints(type: str, function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise Invalid("job", f"{type}: an annotation of its handler is unknown ({error}); define it first") from error


def _build_input_decoder(type: str, expected: Any) -> Callable[[bytes], Any]:
    try:
        return build_json_decoder(expected)
    except Invalid as error:
        raise Invalid(
            "job", f"{type}: the input of its handler cannot be read from JSON ({error}); {_USE_INSTEAD}"
        ) from error


def _check_result_type(type: str, declared: Any) -> None:
    try:
        check_encodable(declared)
    except Invalid as error:
        raise Invalid(
            "job", f"{type}: the result of its handler cannot be written as JSON ({error}); {_USE_INSTEAD}"
        ) from error


def describe_exception(error: BaseException) -> str:
    """The type and place of an exception; its message is left out because it may repeat the input."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"[:_ERROR_CHARS_MAX]


def exception_message(error: BaseException) -> str:
    """The message of an exception; empty if it has none, or cannot be converted to text."""
    try:
        return str(error)[:MESSAGE_CHARS_MAX]
    except Exception:  # noqa: BLE001 - an exception may fail at anything, and its job must be reported all the same
        return ""
