"""Quotas at the front door: limits, what is used of them, and slots that are reserved before a submission."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256

from .adoption import adopt
from .core.arrival import TTL_MS_MAX, TTL_MS_MIN
from .core.facts import NewerFormat
from .core.foreign import StoreKey
from .core.identity import (
    GLOBAL_SCOPE,
    SLOT_NONCE_BYTES,
    checked_name,
    policy_id,
    scope_of,
    slot_name,
    slot_tally,
    tally_id,
)
from .core.ids import parse_id
from .core.invalid import Invalid
from .core.key import checked_key
from .core.limits import (
    LIMIT_MAX,
    POLICY_NAME,
    Limits,
    TenantLimits,
    checked_limits,
    checked_tenant_limits,
    encoded,
    tenant_limits_of,
)
from .core.moment import utc
from .core.policy import DropPolicy, LookUpPolicy, SetPolicy
from .core.receipt import (
    AnyReply,
    Missing,
    PolicyFound,
    Reason,
    Refused,
    Settled,
    SlotHeld,
    SlotSettled,
    TallyFound,
    Tended,
)
from .core.slots import (
    SLOT_TTL_MS_MAX,
    SLOT_TTL_MS_MIN,
    ConsumeSlot,
    LookUpTally,
    ReleaseSlot,
    RenewSlot,
    ReserveSlot,
    SetLimits,
)
from .core.usage import Quota, Slot, Usage, quota_of, slots_of, usage_of
from .core.views import Receipt
from .errors import NotFound, Outdated, SubmissionRefused
from .front import Front
from .intake import key_id
from .outcome import failure, settled_of
from .sight import check_sight

User = str | int


class Quotas(Front):
    async def reserve_job_slot(
        self,
        user_id: User,
        max_concurrent: int | None = None,
        ttl_seconds: float = 300,
        *,
        idempotency_key: str | None = None,
    ) -> str | None:
        """Take a slot for a while; None when the user has none left. With a key it is the same slot when repeated."""
        reply = await self._reserved(user_id, max_concurrent, ttl_seconds, idempotency_key)
        if isinstance(reply, Refused) and reply.reason is Reason.QUOTA_EXCEEDED:
            return None
        return _held(reply).reservation

    async def hold(
        self,
        user_id: User,
        max_concurrent: int | None = None,
        ttl_seconds: float = 300,
        *,
        idempotency_key: str | None = None,
    ) -> SlotHeld:
        """`reserve_job_slot` for edges: with its deadline and cautions, and a refusal that is raised."""
        return _held(await self._reserved(user_id, max_concurrent, ttl_seconds, idempotency_key))

    async def consume_reservation(self, reservation_id: str, job_id: str | None = None) -> None:
        """Turn a slot into that of a job; without one it ends, for the job is counted elsewhere."""
        tenant, tally = self._slot(reservation_id)
        job = b"" if job_id is None else await check_sight(self._gate, self._caller, parse_id(job_id))
        command = ConsumeSlot(tenant=tenant, tally_id=tally, reservation=reservation_id, job_id=job)
        reply = await self._ask(command)
        if isinstance(reply, Missing):
            raise NotFound("no such job here; consume the reservation with one that was submitted")
        _settled(reply)

    async def release_reservation(self, reservation_id: str) -> None:
        """Free a slot; one that is free already, or has expired, stays so."""
        tenant, tally = self._slot(reservation_id)
        _settled(await self._ask(ReleaseSlot(tenant=tenant, tally_id=tally, reservation=reservation_id)))

    async def renew_reservation(self, reservation_id: str, ttl_seconds: float = 300) -> datetime:
        """Prolong a slot that has not expired; returns its new deadline."""
        tenant, tally = self._slot(reservation_id)
        command = RenewSlot(
            tenant=tenant, tally_id=tally, reservation=reservation_id, ttl_ms=_slot_ms(ttl_seconds)
        )
        return utc(_held(await self._ask(command)).expires_at)

    async def reservations(self, user_id: User | None = None) -> Sequence[Slot]:
        """The reservations of a user, oldest first; without one the caller's own."""
        user = self._user(user_id)
        return slots_of(user, await self._looked_up(user))

    async def usage(self, user_id: User | None = None) -> Usage:
        """What a user holds, and may hold; without one the caller itself."""
        user = self._user(user_id)
        found = await self._looked_up(user)
        with _readable():
            return usage_of(user, found)

    async def quota(self, user_id: User) -> Quota:
        user = user_name(user_id)
        found = await self._looked_up(user)
        with _readable():
            return quota_of(user, found)

    async def set_quota(self, user_id: User, limits: Limits) -> Quota:
        """Give a user limits of its own, instead of those before; none at all: the tenant's defaults hold."""
        user, tenant, limits = user_name(user_id), self._caller.tenant, checked_limits(limits)
        command = SetLimits(
            tenant=tenant,
            tally_id=tally_id(tenant, user),
            policy_id=policy_id(tenant, POLICY_NAME),
            user=user,
            limits=b"" if limits == Limits() else encoded(limits),
        )
        reply = await self._ask(command)
        if not isinstance(reply, TallyFound):
            raise failure(reply, "")
        if limits != Limits():
            await adopt(self._gate, tenant, user)
        with _readable():
            return quota_of(user, reply)

    async def tenant_quota(self) -> TenantLimits:
        tenant = self._caller.tenant
        reply = await self._ask(LookUpPolicy(tenant=tenant, policy_id=policy_id(tenant, POLICY_NAME)))
        match reply:
            case Missing():
                return TenantLimits()
            case PolicyFound():
                with _readable():
                    return tenant_limits_of(reply.policy.body)
        raise failure(reply, "")

    async def set_tenant_quota(self, limits: TenantLimits) -> TenantLimits:
        """Set the limits of users without their own, and the ceiling over all of them."""
        tenant, limits = self._caller.tenant, checked_tenant_limits(limits)
        policy = policy_id(tenant, POLICY_NAME)
        reply: AnyReply
        if limits == TenantLimits():  # nobody is counted any more, so nobody pays for it
            reply = await self._ask(DropPolicy(tenant=tenant, policy_id=policy))
        else:
            body = encoded(limits)
            reply = await self._ask(SetPolicy(tenant=tenant, policy_id=policy, name=POLICY_NAME, body=body))
        if not isinstance(reply, (PolicyFound, Tended)):
            raise failure(reply, "")
        if isinstance(reply, PolicyFound):
            await adopt(self._gate, tenant)
        return limits

    async def store_idempotency_key(
        self,
        key: str,
        job_id: str,
        user_id: User | None = None,
        ttl_hours: float = 24,
        scope: str = GLOBAL_SCOPE,
    ) -> Receipt:
        """Remember a key for a job that was made elsewhere: submissions of it are answered with this id."""
        caller = self._caller
        key, scope = checked_key(key), scope_of("", scope)
        command = StoreKey(
            tenant=caller.tenant,
            record_id=key_id(caller, scope, key),
            scope=scope,
            key=key,
            foreign_id=_foreign(job_id),
            actor=caller.actor,
            user=self._user(user_id),
            ttl_ms=_number("ttl_hours", ttl_hours, 3_600_000, TTL_MS_MIN, TTL_MS_MAX),
        )
        reply = await self._ask(command)
        if isinstance(reply, Settled):
            return settled_of(reply)
        raise failure(reply, key)

    async def _reserved(
        self, user_id: User, max_concurrent: int | None, ttl_seconds: float, key: str | None
    ) -> AnyReply:
        user, tenant = user_name(user_id), self._caller.tenant
        Limits(max_concurrent=max_concurrent)  # says what is wrong with it
        tally = tally_id(tenant, user)
        nonce = self._host.ids.holder() if key is None else sha256(checked_key(key).encode()).digest()
        command = ReserveSlot(
            tenant=tenant,
            tally_id=tally,
            policy_id=policy_id(tenant, POLICY_NAME),
            user=user,
            reservation=slot_name(tally, nonce[:SLOT_NONCE_BYTES]),
            ttl_ms=_slot_ms(ttl_seconds),
            max_concurrent=max_concurrent,
        )
        return await self._ask(command)

    async def _looked_up(self, user: str) -> TallyFound:
        tenant = self._caller.tenant
        policy = policy_id(tenant, POLICY_NAME)
        reply = await self._ask(LookUpTally(tenant=tenant, tally_id=tally_id(tenant, user), policy_id=policy))
        if isinstance(reply, TallyFound):
            return reply
        raise failure(reply, "")

    def _slot(self, reservation_id: str) -> tuple[str, bytes]:
        return self._caller.tenant, slot_tally(self._caller.tenant, reservation_id)

    def _user(self, user_id: User | None) -> str:
        return self._caller.user if user_id is None else user_name(user_id)


def user_name(user_id: User) -> str:
    """A user by its name or its number."""
    number = isinstance(user_id, int) and not isinstance(user_id, bool)
    return checked_name("user", str(user_id) if number else user_id)  # type: ignore[arg-type]  # checked there


@contextmanager
def _readable() -> Iterator[None]:
    """What is read outside of a decision, and is not for this program to read, is told as a decision tells it."""
    try:
        yield
    except NewerFormat as error:
        raise Outdated(str(error)) from error


def _held(reply: AnyReply) -> SlotHeld:
    if isinstance(reply, SlotHeld):
        return reply
    raise _failure(reply)


def _settled(reply: AnyReply) -> None:
    if not isinstance(reply, SlotSettled):
        raise _failure(reply)


def _failure(reply: AnyReply) -> BaseException:
    """A reservation is no lease of a key: whatever is refused about it is said in its own words."""
    if isinstance(reply, Refused):
        return SubmissionRefused(key="", reason=reply.reason, message=reply.message, details=reply.details)
    return failure(reply, "")


def _slot_ms(seconds: float) -> int:
    return _number("ttl_seconds", seconds, 1000, SLOT_TTL_MS_MIN, SLOT_TTL_MS_MAX)


def _number(what: str, value: float, unit_ms: int, least: int, most: int) -> int:
    wrong = Invalid(what, f"{what} is a number from {least / unit_ms:g} to {most / unit_ms:g}; choose one")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -LIMIT_MAX < value < LIMIT_MAX:
        raise wrong
    ms = round(value * unit_ms)
    if not least <= ms <= most:
        raise wrong
    return ms


def _foreign(job_id: str) -> str:
    try:
        checked_key(job_id)
    except Invalid as error:
        raise Invalid("job_id", f"a foreign job's id is like a key: {error}") from None
    return job_id
