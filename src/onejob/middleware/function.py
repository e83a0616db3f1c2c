"""Plain functions, called once for a key: `@idempotent(ledger, key=…, scope=…)`."""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from msgspec import Struct, json

from onejob.core.errors import Invalid
from onejob.core.fingerprint import encode_input
from onejob.core.views import HeldKey
from onejob.errors import SubmissionError
from onejob.ledger import Ledger
from onejob.ledger.leases import FinalRejection, LeaseRenewal, run_under_lease
from onejob.ledger.parse import Submission
from onejob.sync import SyncLedger as SyncLedger

from .request_fingerprint import scope_name
from .stored_response import StoredResponse, pack_response, unpack_response

P = ParamSpec("P")
R = TypeVar("R")

CALL_SCOPE_PREFIX = "call:"
DONE_STATUS = 200
NAME_CHARS_MAX = 90


class ResultNotRetained(SubmissionError):
    """The call was done before, and its result could not be kept: no JSON, or too large."""


class _CallSpec(Struct, frozen=True, kw_only=True):
    """What is known of a function that is called once for a key."""

    name: str
    signature: inspect.Signature
    key: Callable[..., str]
    scope: Callable[..., str]
    fingerprint_input: Callable[..., Any] | None
    window: timedelta | None
    final: tuple[type[Exception], ...]
    returns: Any

    def submission(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Submission:
        whose = self.scope(*args, **kwargs)
        if not isinstance(whose, str) or not whose:
            raise Invalid("scope", "nobody knows whose key this is: it was not called; give scope a text")
        return Submission(
            type=self.name,
            input=self._build_input(args, kwargs),
            idempotency_key=self.key(*args, **kwargs),
            idempotency_ttl=self.window,
            scope=scope_name(whose, f"{CALL_SCOPE_PREFIX}{self.name}:"),
        )

    def _build_input(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self.fingerprint_input is not None:
            return self.fingerprint_input(*args, **kwargs)
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def decode_result(self, key: str, receipt: bytes) -> Any:
        kept = unpack_response(receipt)
        if kept.body is None:
            raise ResultNotRetained("this call was done, and its result was not kept; do not repeat it", key=key)
        return json.decode(kept.body, type=self.returns)

    def rejection(self, error: Exception) -> FinalRejection:
        return FinalRejection(pack_response(StoredResponse(0, body=encode_input(f"{type(error).__name__}: {error}"))))


def idempotent(
    ledger: Ledger | SyncLedger,
    *,
    key: Callable[..., str],
    scope: str | Callable[..., str],
    name: str = "",
    fingerprint_input: Callable[..., Any] | None = None,
    window: timedelta | None = None,
    lease: timedelta | None = None,
    final: tuple[type[Exception], ...] = (),
    returns: Any = Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Call a function once for a key; who repeats the call gets the JSON of its result.

    An exception gives the key up, to be tried again; one of `final` rejects it.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        calls = _CallSpec(
            name=name or f"{function.__module__}.{function.__qualname__}"[-NAME_CHARS_MAX:],
            signature=inspect.signature(function),
            key=key,
            scope=scope if callable(scope) else lambda *_, **__: scope,
            fingerprint_input=fingerprint_input,
            window=window,
            final=final,
            returns=returns,
        )
        if inspect.iscoroutinefunction(function):
            if not isinstance(ledger, Ledger):
                raise Invalid("ledger", "a coroutine needs the ledger of onejob.open, not of onejob.sync")
            return cast(Callable[P, R], _wrap_async(ledger, calls, function, lease))
        if not isinstance(ledger, SyncLedger):
            raise Invalid("ledger", "a plain function needs the ledger of onejob.sync.open")
        return cast(Callable[P, R], _wrap_sync(ledger, calls, function, lease))

    return decorated


def _wrap_async(
    ledger: Ledger, spec: _CallSpec, function: Callable[..., Any], lease: timedelta | None
) -> Callable[..., Any]:
    @wraps(function)
    async def once(*args: Any, **kwargs: Any) -> Any:
        submission = spec.submission(args, kwargs)
        found = await ledger.reserve(submission, lease=lease, job=False)
        if not isinstance(found, HeldKey):
            return spec.decode_result(submission.idempotency_key or "", found.receipt)
        result: Any = None

        async def work(_: LeaseRenewal) -> bytes:
            nonlocal result
            try:
                result = await function(*args, **kwargs)
            except spec.final as error:
                raise spec.rejection(error) from error
            return _pack_result(result)

        try:
            await run_under_lease(ledger, found, work)
        except FinalRejection as verdict:
            raise cast(BaseException, verdict.__cause__) from None
        return result

    return once


def _wrap_sync(
    ledger: SyncLedger, spec: _CallSpec, function: Callable[..., Any], lease: timedelta | None
) -> Callable[..., Any]:
    @wraps(function)
    def once(*args: Any, **kwargs: Any) -> Any:
        submission = spec.submission(args, kwargs)
        found = ledger.reserve(submission, lease=lease, job=False)
        if not isinstance(found, HeldKey):
            return spec.decode_result(submission.idempotency_key or "", found.receipt)
        result: Any = None

        def work() -> bytes:
            nonlocal result
            try:
                result = function(*args, **kwargs)
            except spec.final as error:
                raise spec.rejection(error) from error
            return _pack_result(result)

        try:
            ledger.run_under_lease(found, work)
        except FinalRejection as verdict:
            raise cast(BaseException, verdict.__cause__) from None
        return result

    return once


def _pack_result(result: Any) -> bytes:
    """The result as a receipt; what is no JSON leaves a tombstone, for the call was done."""
    try:
        return pack_response(StoredResponse(DONE_STATUS, body=encode_input(result)))
    except Invalid:
        return pack_response(StoredResponse(DONE_STATUS))
