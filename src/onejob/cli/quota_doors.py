"""Quotas behind the two doors: an engine, and a server."""

from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import json
from msgspec.structs import replace

from onejob.core.identity import usage_id_of_reservation
from onejob.core.limits import Limits
from onejob.core.states import SlotState
from onejob.http.quota_wire import (
    QuotaOut,
    ReservationSettledOut,
    ReservationsOut,
    TenantQuotaOut,
    UsageOut,
    limits_out,
    quota_out,
    reservation_out,
    tenant_quota_out,
    usage_out,
)
from onejob.ledger import Ledger
from onejob.quotas import user_name

from .calls import ServerClient, ServerReply

T = TypeVar("T")
_NO_REQUEST = ""


class QuotaBackend(Protocol):
    """The part of a door that is about quotas."""

    def quota(self, user: str) -> QuotaOut: ...

    def set_quota(self, user: str, limits: Limits) -> QuotaOut: ...

    def tenant_quota(self) -> TenantQuotaOut: ...

    def set_tenant_quota(self, half: str, limits: Limits) -> TenantQuotaOut: ...

    def usage(self, user: str | None) -> UsageOut: ...

    def reservations(self, user: str | None) -> ReservationsOut: ...

    def release(self, reservation_id: str) -> ReservationSettledOut: ...


class EngineQuotas(ABC):
    ledger: Ledger

    @abstractmethod
    def wait(self, work: Coroutine[Any, Any, T]) -> T: ...

    def quota(self, user: str) -> QuotaOut:
        return quota_out(self.wait(self.ledger.quota(user)), _NO_REQUEST)

    def set_quota(self, user: str, limits: Limits) -> QuotaOut:
        return quota_out(self.wait(self.ledger.set_quota(user, limits)), _NO_REQUEST)

    def tenant_quota(self) -> TenantQuotaOut:
        return tenant_quota_out(self.wait(self.ledger.tenant_quota()), _NO_REQUEST)

    def set_tenant_quota(self, half: str, limits: Limits) -> TenantQuotaOut:
        both = replace(self.wait(self.ledger.tenant_quota()), **{half: limits})
        return tenant_quota_out(self.wait(self.ledger.set_tenant_quota(both)), _NO_REQUEST)

    def usage(self, user: str | None) -> UsageOut:
        return usage_out(self.wait(self.ledger.usage(user)), _NO_REQUEST)

    def reservations(self, user: str | None) -> ReservationsOut:
        found = self.wait(self.ledger.reservations(user))
        return ReservationsOut(_NO_REQUEST, [reservation_out(slot) for slot in found])

    def release(self, reservation_id: str) -> ReservationSettledOut:
        self.wait(self.ledger.release_reservation(reservation_id))
        return ReservationSettledOut(_NO_REQUEST, reservation_id, SlotState.RELEASED)


class ServerQuotas(ABC):
    """Each of these changes nothing more when it is repeated."""

    _server: ServerClient

    @abstractmethod
    def _get(self, path: str, kind: type[T], **query: object) -> T: ...

    @abstractmethod
    def _read(self, said: ServerReply, kind: type[T]) -> T: ...

    def quota(self, user: str) -> QuotaOut:
        return self._get(_quota_path(user), QuotaOut)

    def set_quota(self, user: str, limits: Limits) -> QuotaOut:
        if limits == Limits():
            return self._read(self._server.send("DELETE", _quota_path(user), repeat=True), QuotaOut)
        return self._put(_quota_path(user), limits_out(limits), QuotaOut)

    def tenant_quota(self) -> TenantQuotaOut:
        return self._get("/api/quotas", TenantQuotaOut)

    def set_tenant_quota(self, half: str, limits: Limits) -> TenantQuotaOut:
        before = msgspec.to_builtins(self.tenant_quota())
        both = {name: before[name] for name in ("default", "ceiling")} | {half: limits_out(limits)}
        return self._put("/api/quotas", both, TenantQuotaOut)

    def usage(self, user: str | None) -> UsageOut:
        return self._get("/api/usage", UsageOut, user=user)

    def reservations(self, user: str | None) -> ReservationsOut:
        return self._get("/api/reservations", ReservationsOut, user=user)

    def release(self, reservation_id: str) -> ReservationSettledOut:
        usage_id_of_reservation("", reservation_id)  # checked here, as an engine would
        path = f"/api/reservations/{reservation_id}/release"
        return self._read(self._server.send("POST", path, repeat=True), ReservationSettledOut)

    def _put(self, path: str, body: Any, kind: type[T]) -> T:
        return self._read(self._server.send("PUT", path, json.encode(body), repeat=True), kind)


def _quota_path(user: str) -> str:
    return f"/api/quotas/{quote(user_name(user), safe='')}"
