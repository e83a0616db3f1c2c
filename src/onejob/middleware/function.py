"""The decorator `@idempotent(ledger, key=…, scope=…)`: a function is called once per key."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from msgspec import Struct

from onejob.core.errors import Invalid
from onejob.core.fingerprint import encode_input
from onejob.core.key import KeyLike
from onejob.core.typed_json import build_json_decoder
from onejob.errors import IdempotencyConflict, SubmissionError
from onejob.ledger import Ledger
from onejob.ledger.leases import FinalRejection, LeaseRenewal, run_under_lease
from onejob.ledger.parse import Submission
from onejob.runtime.receipts import HeldKey
from onejob.sync import SyncLedger

from .request_fingerprint import scope_name
from .stored_response import StoredResponse, pack_response, unpack_response

P = ParamSpec("P")
R = TypeVar("R")

CALL_SCOPE_PREFIX = "call:"
DONE_STATUS = 200
NAME_CHARS_MAX = 90


class ResultNotRetained(SubmissionError):
    """The call has completed, but its result could not be stored: it is not JSON, or too large."""


class _CallSpec(Struct, frozen=True, kw_only=True):
    name: str
    signature: inspect.Signature
    key: Callable[..., KeyLike]
    scope: Callable[..., str]
    fingerprint_input: Callable[..., Any] | None
    window: timedelta | None
    final: tuple[type[Exception], ...]
    decode_returned: Callable[[bytes], Any]

    def submission(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Submission:
        scope = self.scope(*args, **kwargs)
        if not isinstance(scope, str) or not scope:
            raise Invalid(
                "scope", "scope is empty or not a string: the function was not called; return the key's owner"
            )
        return Submission(
            type=self.name,
            input=self._build_input(args, kwargs),
            idempotency_key=self.key(*args, **kwargs),
            idempotency_ttl=self.window,
            scope=scope_name(scope, f"{CALL_SCOPE_PREFIX}{self.name}:"),
        )

    def _build_input(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self.fingerprint_input is not None:
            return self.fingerprint_input(*args, **kwargs)
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def decode_result(self, key: str, receipt: bytes) -> Any:
        stored = unpack_response(receipt)
        if stored.body is None:
            raise ResultNotRetained("this call has completed, but its result was not stored; do not retry it", key=key)
        return self.decode_returned(stored.body)

    def rejection(self, error: Exception) -> FinalRejection:
        return FinalRejection(pack_response(StoredResponse(0, body=encode_input(f"{type(error).__name__}: {error}"))))


def idempotent(
    ledger: Ledger | SyncLedger,
    *,
    key: Callable[..., KeyLike],
    scope: str | Callable[..., str],
    name: str = "",
    fingerprint_input: Callable[..., Any] | None = None,
    window: timedelta | None = None,
    lease: timedelta | None = None,
    final: tuple[type[Exception], ...] = (),
    returns: Any = Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Call the function once per key; a repeated call returns the stored JSON of the result.

    An exception releases the key, so that the call can be retried; one of `final` rejects it for good.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        spec = _CallSpec(
            name=name or f"{function.__module__}.{function.__qualname__}"[-NAME_CHARS_MAX:],
            signature=inspect.signature(function),
            key=key,
            scope=scope if callable(scope) else lambda *_, **__: scope,
            fingerprint_input=fingerprint_input,
            window=window,
            final=final,
            decode_returned=build_json_decoder(returns),
        )
        if inspect.iscoroutinefunction(function):
            if not isinstance(ledger, Ledger):
                raise Invalid(
                    "ledger", "a coroutine function needs a ledger from onejob.open; got one from onejob.sync"
                )
            return cast(Callable[P, R], _wrap_async(ledger, spec, function, lease))
        if not isinstance(ledger, SyncLedger):
            raise Invalid("ledger", "a plain function needs a ledger from onejob.sync.open; got an asynchronous one")
        return cast(Callable[P, R], _wrap_sync(ledger, spec, function, lease))

    return decorate


def _wrap_async(
    ledger: Ledger, spec: _CallSpec, function: Callable[..., Any], lease: timedelta | None
) -> Callable[..., Any]:
    @wraps(function)
    async def once(*args: Any, **kwargs: Any) -> Any:
        submission = spec.submission(args, kwargs)
        with _describing_conflict(spec.name):
            reserved = await ledger.reserve(submission, lease=lease, job=False)
        if not isinstance(reserved, HeldKey):
            return spec.decode_result(str(submission.idempotency_key or ""), reserved.receipt)
        result: Any = None

        async def work(_: LeaseRenewal) -> bytes:
            nonlocal result
            try:
                result = await function(*args, **kwargs)
            except spec.final as error:
                raise spec.rejection(error) from error
            return _pack_result(result)

        try:
            await run_under_lease(ledger, reserved, work)
        except FinalRejection as rejection:
            raise cast(BaseException, rejection.__cause__) from None
        return result

    return once


def _wrap_sync(
    ledger: SyncLedger, spec: _CallSpec, function: Callable[..., Any], lease: timedelta | None
) -> Callable[..., Any]:
    @wraps(function)
    def once(*args: Any, **kwargs: Any) -> Any:
        submission = spec.submission(args, kwargs)
        with _describing_conflict(spec.name):
            reserved = ledger.reserve(submission, lease=lease, job=False)
        if not isinstance(reserved, HeldKey):
            return spec.decode_result(str(submission.idempotency_key or ""), reserved.receipt)
        result: Any = None

        def work() -> bytes:
            nonlocal result
            try:
                result = function(*args, **kwargs)
            except spec.final as error:
                raise spec.rejection(error) from error
            return _pack_result(result)

        try:
            ledger.run_under_lease(reserved, work)
        except FinalRejection as rejection:
            raise cast(BaseException, rejection.__cause__) from None
        return result

    return once


@contextmanager
def _describing_conflict(name: str) -> Iterator[None]:
    """A conflict of calls concerns arguments: there is neither a job nor a body."""
    try:
        yield
    except IdempotencyConflict as conflict:
        message = (
            f"this key was used to call {name} with other arguments; use a new key, or call it with the same arguments"
        )
        raise IdempotencyConflict(key=conflict.key, job_id="", message=message) from None


def _pack_result(result: Any) -> bytes:
    """The result as a receipt; a tombstone if it is not JSON, because the call has completed."""
    try:
        return pack_response(StoredResponse(DONE_STATUS, body=encode_input(result)))
    except Invalid:
        return pack_response(StoredResponse(DONE_STATUS))
