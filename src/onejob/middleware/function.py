"""Plain functions, called once for a key: `@idempotent(ledger, key=…, scope=…)`."""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from msgspec import Struct, json

from onejob.core.fingerprint import encode_input
from onejob.core.invalid import Invalid
from onejob.core.views import Reservation
from onejob.errors import SubmissionError
from onejob.intake import Submission
from onejob.keeping import Final, Keeping, carried_out
from onejob.ledger import Ledger
from onejob.sync import Ledger as SyncLedger

from .asked import scope_name
from .retained import Retained, packed, unpacked

P = ParamSpec("P")
R = TypeVar("R")

PREFIX = "call:"
DONE = 200
NAME_CHARS_MAX = 90


class NotRetained(SubmissionError):
    """The call was done before, and its result could not be kept: no JSON, or too large."""


class _Calls(Struct, frozen=True, kw_only=True):
    """What is known of a function that is called once for a key."""

    name: str
    signature: inspect.Signature
    key: Callable[..., str]
    scope: Callable[..., str]
    asks: Callable[..., Any] | None
    window: timedelta | None
    final: tuple[type[Exception], ...]
    returns: Any

    def submission(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Submission:
        whose = self.scope(*args, **kwargs)
        if not isinstance(whose, str) or not whose:
            raise Invalid("scope", "nobody knows whose key this is: it was not called; give scope a text")
        return Submission(
            type=self.name,
            input=self._asked(args, kwargs),
            idempotency_key=self.key(*args, **kwargs),
            idempotency_ttl=self.window,
            scope=scope_name(whose, f"{PREFIX}{self.name}:"),
        )

    def _asked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self.asks is not None:
            return self.asks(*args, **kwargs)
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return dict(bound.arguments)

    def result(self, key: str, receipt: bytes) -> Any:
        kept = unpacked(receipt)
        if kept.body is None:
            raise NotRetained("this call was done, and its result was not kept; do not repeat it", key=key)
        return json.decode(kept.body, type=self.returns)

    def refused(self, error: Exception) -> Final:
        return Final(packed(Retained(0, body=encode_input(f"{type(error).__name__}: {error}"))))


def idempotent(
    ledger: Ledger | SyncLedger,
    *,
    key: Callable[..., str],
    scope: str | Callable[..., str],
    name: str = "",
    asks: Callable[..., Any] | None = None,
    window: timedelta | None = None,
    lease: timedelta | None = None,
    final: tuple[type[Exception], ...] = (),
    returns: Any = Any,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Call a function once for a key; who repeats the call gets the JSON of its result.

    An exception gives the key up, to be tried again; one of `final` rejects it.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        calls = _Calls(
            name=name or f"{function.__module__}.{function.__qualname__}"[-NAME_CHARS_MAX:],
            signature=inspect.signature(function),
            key=key,
            scope=scope if callable(scope) else lambda *_, **__: scope,
            asks=asks,
            window=window,
            final=final,
            returns=returns,
        )
        if inspect.iscoroutinefunction(function):
            if not isinstance(ledger, Ledger):
                raise Invalid("ledger", "a coroutine needs the ledger of onejob.open, not of onejob.sync")
            return cast(Callable[P, R], _async(ledger, calls, function, lease))
        if not isinstance(ledger, SyncLedger):
            raise Invalid("ledger", "a plain function needs the ledger of onejob.sync.open")
        return cast(Callable[P, R], _sync(ledger, calls, function, lease))

    return decorated


def _async(
    ledger: Ledger, calls: _Calls, function: Callable[..., Any], lease: timedelta | None
) -> Callable[..., Any]:
    @wraps(function)
    async def once(*args: Any, **kwargs: Any) -> Any:
        submission = calls.submission(args, kwargs)
        found = await ledger.reserve(submission, lease=lease, job=False)
        if not isinstance(found, Reservation):
            return calls.result(submission.idempotency_key or "", found.receipt)
        result: Any = None

        async def work(_: Keeping) -> bytes:
            nonlocal result
            try:
                result = await function(*args, **kwargs)
            except calls.final as error:
                raise calls.refused(error) from error
            return _kept(result)

        try:
            await carried_out(ledger, found, work)
        except Final as verdict:
            raise cast(BaseException, verdict.__cause__) from None
        return result

    return once


def _sync(
    ledger: SyncLedger, calls: _Calls, function: Callable[..., Any], lease: timedelta | None
) -> Callable[..., Any]:
    @wraps(function)
    def once(*args: Any, **kwargs: Any) -> Any:
        submission = calls.submission(args, kwargs)
        found = ledger.reserve(submission, lease=lease, job=False)
        if not isinstance(found, Reservation):
            return calls.result(submission.idempotency_key or "", found.receipt)
        result: Any = None

        def work() -> bytes:
            nonlocal result
            try:
                result = function(*args, **kwargs)
            except calls.final as error:
                raise calls.refused(error) from error
            return _kept(result)

        try:
            ledger.carry_out(found, work)
        except Final as verdict:
            raise cast(BaseException, verdict.__cause__) from None
        return result

    return once


def _kept(result: Any) -> bytes:
    """The result as a receipt; what is no JSON leaves a tombstone, for the call was done."""
    try:
        return packed(Retained(DONE, body=encode_input(result)))
    except Invalid:
        return packed(Retained(DONE))
