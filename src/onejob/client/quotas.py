"""Acts about limits and slots, by the ledger's names. Each is harmless when repeated: a slot is taken under a key."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Protocol

from msgspec import json

from onejob.core.key import checked_key
from onejob.errors import Invalid, Reason, SubmissionRefused

from . import calls, wire
from .calls import Call
from .verbs import Steps, Verbs

User = str | int
SLOT_SECONDS: Final = 300.0
_MICRO: Final = 1_000_000


class CostLimit(Protocol):
    """A limit of money, as `onejob.CostLimit` has it: in micro-units."""

    @property
    def amount(self) -> int: ...
    @property
    def period(self) -> str: ...
    @property
    def action(self) -> str: ...


class Limits(Protocol):
    """What a user may hold, as `onejob.Limits` has it; None: unlimited."""

    @property
    def max_concurrent(self) -> int | None: ...
    @property
    def jobs_per_hour(self) -> int | None: ...
    @property
    def jobs_per_day(self) -> int | None: ...
    @property
    def cost_limit(self) -> CostLimit | None: ...


class TenantLimits(Protocol):
    """For users without limits of their own, and above which nobody's reach, as `onejob.TenantLimits` has it."""

    @property
    def default(self) -> Limits: ...
    @property
    def ceiling(self) -> Limits: ...


class Quotas:
    def __init__(self, verbs: Verbs, draw: Callable[[], str]) -> None:
        self._verbs = verbs
        self._draw = draw

    def reserve_job_slot(
        self, user_id: User | None, max_concurrent: int | None, ttl_seconds: float, key: str | None
    ) -> Steps[str | None]:
        try:
            return (yield from self.hold(user_id, max_concurrent, ttl_seconds, key)).id
        except SubmissionRefused as error:
            if error.reason is not Reason.QUOTA_EXCEEDED:
                raise
            return None

    def hold(
        self, user_id: User | None, max_concurrent: int | None, ttl_seconds: float, key: str | None
    ) -> Steps[wire.SlotHeld]:
        asked = {"user": _name(user_id), "maxConcurrent": max_concurrent, "ttlSeconds": ttl_seconds}
        # Without a key a lost answer would leave a slot that nobody knows of.
        call = calls.keyed("/api/reservations", _said(asked), self._draw() if key is None else _ascii(key))
        held: wire.SlotHeld = yield from self._verbs.ask(call)
        return held

    def consume_reservation(self, reservation_id: str, job_id: str | None) -> Steps[None]:
        yield from self._settled(reservation_id, "consume", {"jobId": job_id})

    def release_reservation(self, reservation_id: str) -> Steps[None]:
        yield from self._settled(reservation_id, "release", {})

    def renew_reservation(self, reservation_id: str, ttl_seconds: float) -> Steps[datetime]:
        path = f"/api/reservations/{calls.quoted(reservation_id)}/renew"
        renewed: wire.SlotHeld = yield from self._verbs.ask(
            _act("POST", path, wire.SlotHeld, {"ttlSeconds": ttl_seconds})
        )
        return renewed.expires_at

    def reservations(self, user_id: User | None) -> Steps[list[wire.Slot]]:
        found: wire.Slots = yield from self._verbs.ask(
            calls.get("/api/reservations", wire.Slots, user=_name(user_id))
        )
        return found.reservations

    def usage(self, user_id: User | None) -> Steps[wire.Usage]:
        found: wire.Usage = yield from self._verbs.ask(
            calls.get("/api/usage", wire.Usage, user=_name(user_id))
        )
        return found

    def quota(self, user_id: User) -> Steps[wire.Quota]:
        found: wire.Quota = yield from self._verbs.ask(calls.get(_path(user_id), wire.Quota))
        return found

    def set_quota(self, user_id: User, limits: Limits | wire.Limits) -> Steps[wire.Quota]:
        call = _act("PUT", _path(user_id), wire.Quota, _limits(limits))
        found: wire.Quota = yield from self._verbs.ask(call)
        return found

    def tenant_quota(self) -> Steps[wire.TenantQuota]:
        found: wire.TenantQuota = yield from self._verbs.ask(calls.get("/api/quotas", wire.TenantQuota))
        return found

    def set_tenant_quota(self, limits: TenantLimits | wire.TenantQuota) -> Steps[wire.TenantQuota]:
        both = {"default": _limits(limits.default), "ceiling": _limits(limits.ceiling)}
        found: wire.TenantQuota = yield from self._verbs.ask(
            _act("PUT", "/api/quotas", wire.TenantQuota, both)
        )
        return found

    def _settled(self, reservation_id: str, act: str, asked: dict[str, Any]) -> Steps[None]:
        path = f"/api/reservations/{calls.quoted(reservation_id)}/{act}"
        yield from self._verbs.ask(_act("POST", path, wire.SlotSettled, asked))


def _act(method: str, path: str, gives: Any, asked: dict[str, Any]) -> Call:
    """A change that is the same however often it is made; nothing is said where there is nothing to say."""
    said = {name: value for name, value in asked.items() if value is not None}
    return Call(
        method=method, path=path, gives=gives, body=json.encode(said) if said or method == "PUT" else b""
    )


def _said(asked: dict[str, Any]) -> bytes:
    return json.encode({name: value for name, value in asked.items() if value is not None})


def _path(user_id: User) -> str:
    name = _name(user_id)
    return f"/api/quotas/{calls.quoted('' if name is None else name)}"


def _name(user_id: User | None) -> str | None:
    """A user by its name or its number."""
    if isinstance(user_id, bool) or not isinstance(user_id, (str, int, type(None))):
        raise Invalid("user", "a user is named by a text or a number; give one")
    return str(user_id) if isinstance(user_id, int) else user_id


def _ascii(key: str) -> str:
    """A key that a header can carry."""
    if not (checked_key(key).isascii() and key.isprintable()):
        raise Invalid("key", "the key of a slot travels in a header: plain ASCII only; choose another")
    return checked_key(key)


def _limits(limits: Limits | wire.Limits) -> dict[str, Any]:
    cost = limits.cost_limit
    # What the ledger's own Struct says is in micro-units; what a server told is in units, as it goes back.
    unit = 1 if isinstance(limits, wire.Limits) else _MICRO
    return {
        "maxConcurrent": limits.max_concurrent,
        "jobsPerHour": limits.jobs_per_hour,
        "jobsPerDay": limits.jobs_per_day,
        "costLimit": None
        if cost is None
        else {"amount": cost.amount / unit, "period": cost.period, "action": cost.action},
    }
