"""Limits of users, defaults and ceilings of the tenant, the limits in force, and amounts of money.

A limit of 0 admits nothing, an absent one everything. A ceiling caps each user's limit, not their sum.
Money is an integer number of micro-units inside and decimal units outside, never a float in between that could round.
"""

import math
from decimal import Context, Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Self, TypeVar

from msgspec import MsgspecError, Struct, json

from .errors import Invalid
from .facts import NewerFormat

QUOTA_POLICY_NAME = "quota"  # the policy with the tenant's defaults and ceilings
LIMIT_MAX = 1_000_000_000
MICROS_PER_UNIT = 1_000_000
UNITS_MAX = 1_000_000_000

_CACHE_MAX = 4096
_MICRO_UNIT = Decimal(1) / MICROS_PER_UNIT
_DECIMAL_CONTEXT = Context(prec=40)  # independent of the caller's thread context

Amount = int | float | str | Decimal  # in units


class Period(StrEnum):
    """Of the UTC calendar; a week begins on Monday."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class CostAction(StrEnum):
    WARN = "warn"
    BLOCK = "block"


# Unknown fields are forbidden: a limit that this program does not know must not be ignored.
class CostLimit(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    amount: int  # in micro-units
    period: Period
    action: CostAction = CostAction.BLOCK

    def __post_init__(self) -> None:
        if type(self.amount) is not int or not 0 <= self.amount <= UNITS_MAX * MICROS_PER_UNIT:
            raise Invalid("cost limit", f"a cost limit is 0 to {UNITS_MAX}; choose one in between")
        if type(self.period) is not Period or type(self.action) is not CostAction:
            message = "the period of a cost limit is a Period, its action a CostAction; CostLimit.of takes them as text"
            raise Invalid("cost limit", message)

    @classmethod
    def of(cls, amount: Amount, period: Period | str, action: CostAction | str = CostAction.BLOCK) -> Self:
        """A limit from an amount in units and texts."""
        try:
            return cls(to_micros("cost limit", amount), Period(period), CostAction(action))
        except ValueError as error:
            if isinstance(error, Invalid):
                raise
            message = f"a period is {', '.join(Period)}, an action {' or '.join(CostAction)}; choose among them"
            raise Invalid("cost limit", message) from None


class Limits(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of one user; None means unlimited."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limit: CostLimit | None = None

    def __post_init__(self) -> None:
        for what in ("max_concurrent", "jobs_per_hour", "jobs_per_day"):
            limit = getattr(self, what)
            if limit is not None and (type(limit) is not int or not 0 <= limit <= LIMIT_MAX):
                raise Invalid(what, f"{what} is a whole number from 0 to {LIMIT_MAX}, or left out for no limit")
        if self.cost_limit is not None and type(self.cost_limit) is not CostLimit:
            raise Invalid("cost_limit", "cost_limit is a CostLimit, such as CostLimit.of(250, 'month')")


class TenantLimits(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The defaults for users without limits of their own, and the ceilings of all users."""

    default: Limits = Limits()
    ceiling: Limits = Limits()

    def __post_init__(self) -> None:
        if type(self.default) is not Limits or type(self.ceiling) is not Limits:
            raise Invalid("limits", "default and ceiling are Limits each; leave out what is not limited")


class EffectiveLimits(Struct, frozen=True, gc=False):
    """The limits in force for one user. Cost limits of different periods apply both."""

    max_concurrent: int | None = None
    jobs_per_hour: int | None = None
    jobs_per_day: int | None = None
    cost_limits: tuple[CostLimit, ...] = ()

    def __bool__(self) -> bool:
        return self != _UNLIMITED


_UNLIMITED = EffectiveLimits()
L = TypeVar("L", Limits, TenantLimits)


def encode_limits(limits: Limits | TenantLimits) -> bytes:
    return json.encode(limits)


def checked_limits(limits: Limits) -> Limits:
    """The limits, if they can be decoded again: otherwise every submission of the user would fail."""
    if type(limits) is not Limits:
        raise Invalid(
            "limits", "a user's limits are Limits(...); Limits() clears them, and the tenant's defaults apply"
        )
    return limits


def checked_tenant_limits(limits: TenantLimits) -> TenantLimits:
    if type(limits) is not TenantLimits:
        raise Invalid(
            "limits", "a tenant's limits are TenantLimits(default=..., ceiling=...); TenantLimits() clears them"
        )
    return limits


@lru_cache(_CACHE_MAX)
def decode_limits(body: bytes) -> Limits:
    """The user's own limits from `Usage.limits`; empty: the tenant's defaults apply."""
    return _decode_as(body, Limits) if body else Limits()


@lru_cache(_CACHE_MAX)
def decode_tenant_limits(body: bytes) -> TenantLimits:
    return _decode_as(body, TenantLimits) if body else TenantLimits()


@lru_cache(_CACHE_MAX)
def effective_limits(user_body: bytes, tenant_body: bytes) -> EffectiveLimits:
    """The limits in force, from what is stored for the user and for the tenant."""
    if not user_body and not tenant_body:
        return _UNLIMITED
    user, tenant = decode_limits(user_body), decode_tenant_limits(tenant_body)
    default, ceiling = tenant.default, tenant.ceiling
    cost = user.cost_limit or default.cost_limit
    return EffectiveLimits(
        _capped_limit(_or_default(user.max_concurrent, default.max_concurrent), ceiling.max_concurrent),
        _capped_limit(_or_default(user.jobs_per_hour, default.jobs_per_hour), ceiling.jobs_per_hour),
        _capped_limit(_or_default(user.jobs_per_day, default.jobs_per_day), ceiling.jobs_per_day),
        tuple(limit for limit in dict.fromkeys((cost, ceiling.cost_limit)) if limit is not None),
    )


def _decode_as(body: bytes, kind: type[L]) -> L:
    try:
        return json.decode(body, type=kind)
    except (MsgspecError, UnicodeDecodeError):
        owner = "a user" if kind is Limits else "the tenant"
        raise NewerFormat(
            f"the limits of {owner} are stored in a format that this program does not know; upgrade it, or set them again"
        ) from None


def _or_default(limit: int | None, default: int | None) -> int | None:
    return default if limit is None else limit


def _capped_limit(limit: int | None, ceiling: int | None) -> int | None:
    if limit is None or ceiling is None:
        return ceiling if limit is None else limit
    return min(limit, ceiling)


def to_micros(what: str, amount: Amount) -> int:
    """An amount in micro-units; it is not negative and has at most six decimals."""
    invalid = Invalid(what, f"{what} is a number from 0 to {UNITS_MAX} with at most six decimals; give one")
    if isinstance(amount, bool) or not isinstance(amount, (int, float, str, Decimal)):
        raise invalid
    try:
        # From its text: 0.1 means a tenth, not the double that is nearest to it.
        exact = Decimal(str(_without_float_noise(amount) if isinstance(amount, float) else amount), _DECIMAL_CONTEXT)
        # Compared before any arithmetic: 1e999999 would overflow, 1e-999999 would become 0.
        if not 0 <= exact <= UNITS_MAX or exact != exact.quantize(_MICRO_UNIT, context=_DECIMAL_CONTEXT):
            raise invalid
    except (ArithmeticError, ValueError):
        raise invalid from None
    return int(_DECIMAL_CONTEXT.multiply(exact, MICROS_PER_UNIT))


def _without_float_noise(amount: float) -> float:
    """A sum of floats without its rounding error: 0.1 + 0.2 means 0.3."""
    rounded = round(amount, 6)
    is_noise = math.isfinite(amount) and amount >= 0 and abs(amount - rounded) <= 4 * math.ulp(amount)
    return rounded if is_noise else amount


def to_units(micros: int) -> Decimal:
    return Decimal(micros) / MICROS_PER_UNIT


def format_units(micros: int) -> str:
    """Units with two decimals, or more where they are not zero."""
    units, fraction = divmod(micros, MICROS_PER_UNIT)
    return f"{units}.{f'{fraction:06d}'.rstrip('0').ljust(2, '0')}"
