"""Acts about limits and slots, by the ledger's names. Each is harmless when repeated: a slot is taken under a key."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Protocol

from msgspec import json

from onejob.core.key import checked_key
from onejob.errors import Invalid, Reason, SubmissionRefused

from . import calls, wire
from .calls import Call
from .verbs import ClientOperations, Operation

UserId = str | int
SLOT_TTL_SECONDS: Final = 300.0
_MICRO: Final = 1_000_000


class CostLimitLike(Protocol):
    """A limit of money, as `onejob.CostLimit` has it: in micro-units."""

    @property
    def amount(self) -> int: ...
    @property
    def period(self) -> str: ...
    @property
    def action(self) -> str: ...


class LimitsLike(Protocol):
    """What a user may hold, as `onejob.Limits` has it; None: unlimited."""

    @property
    def max_concurrent(self) -> int | None: ...
    @property
    def jobs_per_hour(self) -> int | None: ...
    @property
    def jobs_per_day(self) -> int | None: ...
    @property
    def cost_limit(self) -> CostLimitLike | None: ...


class TenantLimitsLike(Protocol):
    """For users without limits of their own, and above which nobody's reach, as `onejob.TenantLimits` has it."""

    @property
    def default(self) -> LimitsLike: ...
    @property
    def ceiling(self) -> LimitsLike: ...


class ClientQuotas:
    def __init__(self, operations: ClientOperations, key_factory: Callable[[], str]) -> None:
        self._operations = operations
        self._key_factory = key_factory

    def reserve_job_slot(
        self, user_id: UserId | None, max_concurrent: int | None, ttl_seconds: float, key: str | None
    ) -> Operation[str | None]:
        try:
            return (yield from self.reserve_job_slot_or_raise(user_id, max_concurrent, ttl_seconds, key)).id
        except SubmissionRefused as error:
            if error.reason is not Reason.QUOTA_EXCEEDED:
                raise
            return None

    def reserve_job_slot_or_raise(
        self, user_id: UserId | None, max_concurrent: int | None, ttl_seconds: float, key: str | None
    ) -> Operation[wire.HeldSlotModel]:
        asked = {"user": _user_name(user_id), "maxConcurrent": max_concurrent, "ttlSeconds": ttl_seconds}
        # Without a key a lost answer would leave a slot that nobody knows of.
        call = calls.reserve_slot_call(
            "/api/reservations",
            _encode_given_fields(asked),
            self._key_factory() if key is None else _checked_header_key(key),
        )
        held: wire.HeldSlotModel = yield from self._operations.send_idempotent(call)
        return held

    def consume_reservation(self, reservation_id: str, job_id: str | None) -> Operation[None]:
        yield from self._settle_reservation(reservation_id, "consume", {"jobId": job_id})

    def release_reservation(self, reservation_id: str) -> Operation[None]:
        yield from self._settle_reservation(reservation_id, "release", {})

    def renew_reservation(self, reservation_id: str, ttl_seconds: float) -> Operation[datetime]:
        path = f"/api/reservations/{calls.quote_path_segment(reservation_id)}/renew"
        renewed: wire.HeldSlotModel = yield from self._operations.send_idempotent(
            _change_call("POST", path, wire.HeldSlotModel, {"ttlSeconds": ttl_seconds})
        )
        return renewed.expires_at

    def reservations(self, user_id: UserId | None) -> Operation[list[wire.SlotReservationModel]]:
        found: wire.SlotReservationsModel = yield from self._operations.send_idempotent(
            calls.get_call("/api/reservations", wire.SlotReservationsModel, user=_user_name(user_id))
        )
        return found.reservations

    def usage(self, user_id: UserId | None) -> Operation[wire.UsageModel]:
        found: wire.UsageModel = yield from self._operations.send_idempotent(
            calls.get_call("/api/usage", wire.UsageModel, user=_user_name(user_id))
        )
        return found

    def quota(self, user_id: UserId) -> Operation[wire.QuotaModel]:
        found: wire.QuotaModel = yield from self._operations.send_idempotent(
            calls.get_call(_quota_path(user_id), wire.QuotaModel)
        )
        return found

    def set_quota(self, user_id: UserId, limits: LimitsLike | wire.LimitsModel) -> Operation[wire.QuotaModel]:
        call = _change_call("PUT", _quota_path(user_id), wire.QuotaModel, _limits_body(limits))
        found: wire.QuotaModel = yield from self._operations.send_idempotent(call)
        return found

    def tenant_quota(self) -> Operation[wire.TenantQuotaModel]:
        found: wire.TenantQuotaModel = yield from self._operations.send_idempotent(
            calls.get_call("/api/quotas", wire.TenantQuotaModel)
        )
        return found

    def set_tenant_quota(
        self, limits: TenantLimitsLike | wire.TenantQuotaModel
    ) -> Operation[wire.TenantQuotaModel]:
        both = {"default": _limits_body(limits.default), "ceiling": _limits_body(limits.ceiling)}
        found: wire.TenantQuotaModel = yield from self._operations.send_idempotent(
            _change_call("PUT", "/api/quotas", wire.TenantQuotaModel, both)
        )
        return found

    def _settle_reservation(self, reservation_id: str, act: str, fields: dict[str, Any]) -> Operation[None]:
        path = f"/api/reservations/{calls.quote_path_segment(reservation_id)}/{act}"
        yield from self._operations.send_idempotent(_change_call("POST", path, wire.SettledSlotModel, fields))


def _change_call(method: str, path: str, response_type: Any, fields: dict[str, Any]) -> Call:
    """A change that is the same however often it is made; nothing is said where there is nothing to say."""
    said = {name: value for name, value in fields.items() if value is not None}
    return Call(
        method=method,
        path=path,
        response_type=response_type,
        body=json.encode(said) if said or method == "PUT" else b"",
    )


def _encode_given_fields(fields: dict[str, Any]) -> bytes:
    return json.encode({name: value for name, value in fields.items() if value is not None})


def _quota_path(user_id: UserId) -> str:
    name = _user_name(user_id)
    return f"/api/quotas/{calls.quote_path_segment('' if name is None else name)}"


def _user_name(user_id: UserId | None) -> str | None:
    """A user by its name or its number."""
    if isinstance(user_id, bool) or not isinstance(user_id, (str, int, type(None))):
        raise Invalid("user", "a user is named by a text or a number; give one")
    return str(user_id) if isinstance(user_id, int) else user_id


def _checked_header_key(key: str) -> str:
    """A key that a header can carry."""
    if not (checked_key(key).isascii() and key.isprintable()):
        raise Invalid("key", "the key of a slot travels in a header: plain ASCII only; choose another")
    return checked_key(key)


def _limits_body(limits: LimitsLike | wire.LimitsModel) -> dict[str, Any]:
    cost = limits.cost_limit
    # What the ledger's own Struct says is in micro-units; what a server told is in units, as it goes back.
    unit = 1 if isinstance(limits, wire.LimitsModel) else _MICRO
    return {
        "maxConcurrent": limits.max_concurrent,
        "jobsPerHour": limits.jobs_per_hour,
        "jobsPerDay": limits.jobs_per_day,
        "costLimit": None
        if cost is None
        else {"amount": cost.amount / unit, "period": cost.period, "action": cost.action},
    }
