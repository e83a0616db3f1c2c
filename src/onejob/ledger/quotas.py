"""Quota operations of the ledger: limits, usage, slot reservations, and keys of external jobs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from hashlib import sha256

from onejob.core.credentials import DropPolicy, LookUpPolicy, SetPolicy
from onejob.core.facts import NewerFormat
from onejob.core.identity import (
    GLOBAL_SCOPE,
    SLOT_NONCE_BYTES,
    check_key_owner,
    checked_name,
    encode_reservation_id,
    is_reservation_id,
    parse_job_id,
    policy_id,
    resolve_scope,
    usage_id,
    usage_id_of_reservation,
)
from onejob.core.key import KeyLike, checked_key
from onejob.core.limits import (
    LIMIT_MAX,
    QUOTA_POLICY_NAME,
    Limits,
    TenantLimits,
    checked_limits,
    checked_tenant_limits,
    decode_tenant_limits,
    encode_limits,
)
from onejob.core.replies import (
    AnyReply,
    KeySettled,
    Maintained,
    Missing,
    PolicyFound,
    Reason,
    Refused,
    SlotHeld,
    SlotSettled,
    UsageFound,
)
from onejob.core.slots import (
    SLOT_TTL_MS_MAX,
    SLOT_TTL_MS_MIN,
    ConsumeSlot,
    LookUpUsage,
    ReleaseSlot,
    RenewSlot,
    ReserveSlot,
    SetLimits,
)
from onejob.core.submit import TTL_MS_MAX, TTL_MS_MIN, StoreKey
from onejob.core.timestamps import to_utc
from onejob.errors import Invalid, NotFound, Outdated, SubmissionRefused
from onejob.resources.quotas import SlotReservation
from onejob.runtime.callers import key_record_id
from onejob.runtime.maintenance import backfill_usage
from onejob.runtime.present import to_exception
from onejob.runtime.quota_views import Quota, UsageView, to_quota, to_slot_reservations, to_usage_view
from onejob.runtime.receipts import Receipt, build_settled_receipt

from .base import LedgerBase, check_job_visible, repeated_under_new_settings
from .parse import caller_for_user

UserId = str | int

_SLOT_GONE_REASONS = (Reason.SLOT_LOST, Reason.ALREADY_SETTLED)


class TenantQuotaOperations(LedgerBase):
    async def tenant_quota(self) -> TenantLimits:
        tenant = self._caller.tenant
        reply = await self._execute(LookUpPolicy(tenant=tenant, policy_id=policy_id(tenant, QUOTA_POLICY_NAME)))
        match reply:
            case Missing():
                return TenantLimits()
            case PolicyFound():
                with _translate_newer_format():
                    return decode_tenant_limits(reply.policy.body)
        raise to_exception(reply, "")

    async def set_tenant_quota(self, limits: TenantLimits) -> TenantLimits:
        """Set the default limits for users without their own, and the ceiling for each user."""
        tenant, limits = self._caller.tenant, checked_tenant_limits(limits)
        policy = policy_id(tenant, QUOTA_POLICY_NAME)
        reply: AnyReply
        if limits == TenantLimits():  # without a policy, submissions need not load or count usage
            reply = await self._execute(DropPolicy(tenant=tenant, policy_id=policy))
        else:
            body = encode_limits(limits)
            reply = await self._execute(SetPolicy(tenant=tenant, policy_id=policy, name=QUOTA_POLICY_NAME, body=body))
        if not isinstance(reply, (PolicyFound, Maintained)):
            raise to_exception(reply, "")
        if isinstance(reply, PolicyFound):
            await backfill_usage(self._gate, tenant)
        return limits


class QuotaOperations(LedgerBase):
    async def reserve_job_slot(
        self,
        user_id: UserId,
        max_concurrent: int | None = None,
        ttl_seconds: float = 300,
        *,
        idempotency_key: KeyLike | None = None,
    ) -> str | None:
        """Reserve a slot until its TTL ends; None if the user has none left. With a key, a retry gets the same slot."""
        reply = await self._reserve_slot(user_id, max_concurrent, ttl_seconds, idempotency_key)
        if isinstance(reply, Refused) and reply.reason is Reason.QUOTA_EXCEEDED:
            return None
        return _expect_slot_held(reply).reservation

    async def reserve_job_slot_or_raise(
        self,
        user_id: UserId,
        max_concurrent: int | None = None,
        ttl_seconds: float = 300,
        *,
        idempotency_key: KeyLike | None = None,
    ) -> SlotHeld:
        """`reserve_job_slot` with deadline and warnings in its result, and with every refusal raised."""
        return _expect_slot_held(await self._reserve_slot(user_id, max_concurrent, ttl_seconds, idempotency_key))

    async def consume_reservation(self, reservation_id: str, job_id: str | None = None) -> bool:
        """Turn a reserved slot into the slot of a job. Without a job it ends: the job is counted elsewhere.

        False if there is no such slot any more: it expired, was released, or was used for another job.
        """
        if not is_reservation_id(reservation_id):
            return False
        try:
            await self.consume_reservation_or_raise(reservation_id, job_id)
        except SubmissionRefused as error:
            if error.reason not in _SLOT_GONE_REASONS:
                raise
            return False
        return True

    async def consume_reservation_or_raise(self, reservation_id: str, job_id: str | None = None) -> None:
        """`consume_reservation` with every refusal raised."""
        tenant, usage = self._parse_reservation_id(reservation_id)
        job = b"" if job_id is None else await check_job_visible(self._gate, self._caller, parse_job_id(job_id))
        command = ConsumeSlot(tenant=tenant, usage_id=usage, reservation=reservation_id, job_id=job)
        reply = await self._execute(command)
        if isinstance(reply, Missing):
            raise NotFound("no such job here; consume the reservation with one that was submitted")
        _expect_slot_settled(reply)

    async def release_reservation(self, reservation_id: str) -> bool:
        """Free a slot, also once more. False if there is none to free: it is unknown, expired or consumed."""
        if not is_reservation_id(reservation_id):
            return False
        try:
            return await self.release_reservation_or_raise(reservation_id)
        except SubmissionRefused as error:
            if error.reason not in _SLOT_GONE_REASONS:
                raise
            return False

    async def release_reservation_or_raise(self, reservation_id: str) -> bool:
        """`release_reservation` with every refusal raised; an unknown or expired slot is free all the same."""
        tenant, usage = self._parse_reservation_id(reservation_id)
        command = ReleaseSlot(tenant=tenant, usage_id=usage, reservation=reservation_id)
        return _expect_slot_settled(await self._execute(command)).was_known

    async def renew_reservation(self, reservation_id: str, ttl_seconds: float = 300) -> datetime:
        """Extend a slot that has not expired; returns its new deadline."""
        tenant, usage = self._parse_reservation_id(reservation_id)
        command = RenewSlot(
            tenant=tenant, usage_id=usage, reservation=reservation_id, ttl_ms=_parse_slot_ttl_ms(ttl_seconds)
        )
        return to_utc(_expect_slot_held(await self._execute(command)).expires_at)

    async def reservations(self, user_id: UserId | None = None) -> Sequence[SlotReservation]:
        """The reservations of a user (by default the caller), oldest first."""
        user = self._resolve_user(user_id)
        return to_slot_reservations(user, await self._load_usage(user))

    async def usage(self, user_id: UserId | None = None) -> UsageView:
        """What a user (by default the caller) uses of its limits."""
        user = self._resolve_user(user_id)
        found = await self._load_usage(user)
        with _translate_newer_format():
            return to_usage_view(user, found)

    async def quota(self, user_id: UserId) -> Quota:
        user = user_name(user_id)
        found = await self._load_usage(user)
        with _translate_newer_format():
            return to_quota(user, found)

    async def set_quota(self, user_id: UserId, limits: Limits) -> Quota:
        """Replace a user's own limits. With `Limits()` the tenant's defaults apply again."""
        user, tenant, limits = user_name(user_id), self._caller.tenant, checked_limits(limits)
        command = SetLimits(
            tenant=tenant,
            usage_id=usage_id(tenant, user),
            policy_id=policy_id(tenant, QUOTA_POLICY_NAME),
            user=user,
            limits=b"" if limits == Limits() else encode_limits(limits),
        )
        reply = await self._execute(command)
        if not isinstance(reply, UsageFound):
            raise to_exception(reply, "")
        if limits != Limits():
            await backfill_usage(self._gate, tenant, user)
        with _translate_newer_format():
            return to_quota(user, reply)

    @repeated_under_new_settings
    async def store_idempotency_key(
        self, key: KeyLike, job_id: str, user_id: UserId | None = None, ttl_hours: float = 24, scope: str = GLOBAL_SCOPE
    ) -> Receipt:
        """Store a key for a job that was made elsewhere: submissions of the key, of any type, are answered with this job id.

        A reservation of the key that failed, or whose lease ran out, is over; a key that is held in this scope is refused.
        """
        caller = self._caller
        key, scope = checked_key(key), resolve_scope("", scope)
        check_key_owner(scope, key, caller.actor)
        user = self._resolve_user(user_id)
        command = StoreKey(
            tenant=caller.tenant,
            record_id=key_record_id(caller_for_user(caller, user), scope, key),
            scope=scope,
            key=key,
            external_id=_checked_external_id(job_id),
            actor=caller.actor,
            user=user,
            ttl_ms=_parse_duration_ms("ttl_hours", ttl_hours, 3_600_000, TTL_MS_MIN, TTL_MS_MAX),
            settings=caller.settings,
            retention_ms=self._runtime.retention_ms,
        )
        if scope == GLOBAL_SCOPE:
            await self._runtime.external_keys.announce(caller.tenant, ttl_ms=command.ttl_ms)
        reply = await self._execute(self._runtime.key_limit.apply(command))
        if isinstance(reply, KeySettled):
            return build_settled_receipt(reply)
        raise to_exception(reply, key)

    async def _reserve_slot(
        self, user_id: UserId, max_concurrent: int | None, ttl_seconds: float, key: KeyLike | None
    ) -> AnyReply:
        user, tenant = user_name(user_id), self._caller.tenant
        Limits(max_concurrent=max_concurrent)  # raises if it is invalid
        usage = usage_id(tenant, user)
        nonce = self._runtime.ids.holder() if key is None else sha256(checked_key(key).encode()).digest()
        command = ReserveSlot(
            tenant=tenant,
            usage_id=usage,
            policy_id=policy_id(tenant, QUOTA_POLICY_NAME),
            user=user,
            reservation=encode_reservation_id(usage, nonce[:SLOT_NONCE_BYTES]),
            ttl_ms=_parse_slot_ttl_ms(ttl_seconds),
            max_concurrent=max_concurrent,
        )
        return await self._execute(command)

    async def _load_usage(self, user: str) -> UsageFound:
        tenant = self._caller.tenant
        policy = policy_id(tenant, QUOTA_POLICY_NAME)
        reply = await self._execute(LookUpUsage(tenant=tenant, usage_id=usage_id(tenant, user), policy_id=policy))
        if isinstance(reply, UsageFound):
            return reply
        raise to_exception(reply, "")

    def _parse_reservation_id(self, reservation_id: str) -> tuple[str, bytes]:
        return self._caller.tenant, usage_id_of_reservation(self._caller.tenant, reservation_id)

    def _resolve_user(self, user_id: UserId | None) -> str:
        return self._caller.user if user_id is None else user_name(user_id)


def user_name(user_id: UserId) -> str:
    """The name of a user that is given by name or number."""
    is_number = isinstance(user_id, int) and not isinstance(user_id, bool)
    return checked_name("user", str(user_id) if is_number else user_id)  # type: ignore[arg-type]  # checked there


@contextmanager
def _translate_newer_format() -> Iterator[None]:
    """Raise Outdated, as the engine does, if a stored fact has a newer format than this program knows."""
    try:
        yield
    except NewerFormat as error:
        raise Outdated(str(error)) from error


def _expect_slot_held(reply: AnyReply) -> SlotHeld:
    if isinstance(reply, SlotHeld):
        return reply
    raise _to_slot_exception(reply)


def _expect_slot_settled(reply: AnyReply) -> SlotSettled:
    if isinstance(reply, SlotSettled):
        return reply
    raise _to_slot_exception(reply)


def _to_slot_exception(reply: AnyReply) -> BaseException:
    """Refusals of slots keep their own message: `to_exception` would report the lost lease of a key."""
    if isinstance(reply, Refused):
        return SubmissionRefused(key="", reason=reply.reason, message=reply.message, details=reply.details)
    return to_exception(reply, "")


def _parse_slot_ttl_ms(seconds: float) -> int:
    return _parse_duration_ms("ttl_seconds", seconds, 1000, SLOT_TTL_MS_MIN, SLOT_TTL_MS_MAX)


def _parse_duration_ms(name: str, value: float, unit_ms: int, least: int, most: int) -> int:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and -LIMIT_MAX < value < LIMIT_MAX
    ms = round(value * unit_ms) if is_number else -1
    if not least <= ms <= most:
        raise Invalid(name, f"{name} is a number from {least / unit_ms:g} to {most / unit_ms:g}; choose one")
    return ms


def _checked_external_id(job_id: str) -> str:
    try:
        checked_key(job_id)
    except Invalid as error:
        raise Invalid("job_id", f"the id of an external job has the form of a key: {error}") from None
    return job_id
