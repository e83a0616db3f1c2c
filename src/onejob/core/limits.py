"""What a user may hold: limits of the user, defaults and ceilings of the tenant, and what follows from them.

A limit of 0 admits nothing, an absent one everything. A ceiling caps each user's limit, not their sum.
"""

import math
from decimal import Context, Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Self, TypeVar

from msgspec import MsgspecError, Struct, json

from .errors import Invalid
from .facts import NewerFormat

# Money: whole micro-units inside, decimal numbers outside. Never a float in between that could round.


MICROS_PER_UNIT = 1_000_000
UNITS_MAX = 1_000_000_000

_MICRO_UNIT = Decimal(1) / MICROS_PER_UNIT
_DECIMAL_CONTEXT = Context(prec=40)  # whatever context the caller's thread has

Amount = int | float | str | Decimal  # in units


def to_micros(what: str, amount: Amount) -> int:
    """The micro-units of an amount, which is not negative and has at most six decimals."""
    wrong = Invalid(what, f"{what} is a number from 0 to {UNITS_MAX} with at most six decimals; give one")
    if isinstance(amount, bool) or not isinstance(amount, (int, float, str, Decimal)):
        raise wrong
    try:
        # By its text: 0.1 means a tenth, not the double that is nearest to it.
        exact = Decimal(str(_without_float_noise(amount) if isinstance(amount, float) else amount), _DECIMAL_CONTEXT)
        # Compared as it is: to calculate with 1e999999 overflows, with 1e-999999 gives 0.
        if not 0 <= exact <= UNITS_MAX or exact != exact.quantize(_MICRO_UNIT, context=_DECIMAL_CONTEXT):
            raise wrong
    except (ArithmeticError, ValueError):
        raise wrong from None
    return int(_DECIMAL_CONTEXT.multiply(exact, MICROS_PER_UNIT))


def _without_float_noise(amount: float) -> float:
    """A sum of floats without the noise of adding them: 0.1 + 0.2 means 0.3."""
    plain = round(amount, 6)
    return plain if math.isfinite(amount) and amount >= 0 and abs(amount - plain) <= 4 * math.ulp(amount) else amount


def to_units(micros: int) -> Decimal:
    return Decimal(micros) / MICROS_PER_UNIT


def format_units(micros: int) -> str:
    """As people write it: two decimals, more only where they say something."""
    whole, part = divmod(micros, MICROS_PER_UNIT)
    return f"{whole}.{f'{part:06d}'.rstrip('0').ljust(2, '0')}"


QUOTA_POLICY_NAME = "quota"  # the tenant's defaults and ceilings
LIMIT_MAX = 1_000_000_000
_CACHE_MAX = 4096


class Period(StrEnum):
    """By the UTC calendar; a week begins on Monday."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class CostAction(StrEnum):
    WARN = "warn"
    BLOCK = "block"


# A limit that this program does not know must not be passed over: it would be no limit.
class CostLimit(Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    amount: int  # in micro-units
    period: Period
    action: CostAction = CostAction.BLOCK

    def __post_init__(self) -> None:
        if type(self.amount) is not int or not 0 <= self.amount <= UNITS_MAX * MICROS_PER_UNIT:
            raise Invalid("cost limit", f"a cost limit is 0 to {UNITS_MAX}; choose one in between")
        if type(self.period) is not Period or type(self.action) is not CostAction:
            words = "the period of a cost limit is a Period, its action a CostAction"
            raise Invalid("cost limit", f"{words}; CostLimit.of takes them as words")

    @classmethod
    def of(cls, amount: Amount, period: Period | str, action: CostAction | str = CostAction.BLOCK) -> Self:
        """A limit in units, as people say it."""
        try:
            return cls(to_micros("cost limit", amount), Period(period), CostAction(action))
        except ValueError as error:
            if isinstance(error, Invalid):
                raise
            words = f"a period is {', '.join(Period)}, an action {' or '.join(CostAction)}"
            raise Invalid("cost limit", f"{words}; choose among them") from None


class Limits(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """None: unlimited."""

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
    """For users without limits of their own, and above which nobody's reach."""

    default: Limits = Limits()
    ceiling: Limits = Limits()

    def __post_init__(self) -> None:
        if type(self.default) is not Limits or type(self.ceiling) is not Limits:
            raise Invalid("limits", "default and ceiling are Limits each; leave out what is not limited")


class EffectiveLimits(Struct, frozen=True, gc=False):
    """What holds for one user. Two cost limits of different periods hold both."""

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
    """A user's limits. What cannot be read again would stop every submission of the user."""
    if type(limits) is not Limits:
        raise Invalid("limits", "a user's limits are Limits(...); Limits() clears them, and the tenant's defaults hold")
    return limits


def checked_tenant_limits(limits: TenantLimits) -> TenantLimits:
    if type(limits) is not TenantLimits:
        raise Invalid(
            "limits",
            "a tenant's limits are TenantLimits(default=..., ceiling=...); TenantLimits() clears them",
        )
    return limits


@lru_cache(_CACHE_MAX)
def decode_limits(body: bytes) -> Limits:
    """The limits of a user, as they stand on the tally; none: all comes from the tenant."""
    return _decode_as(body, Limits) if body else Limits()


@lru_cache(_CACHE_MAX)
def decode_tenant_limits(body: bytes) -> TenantLimits:
    return _decode_as(body, TenantLimits) if body else TenantLimits()


@lru_cache(_CACHE_MAX)
def effective_limits(user_body: bytes, tenant_body: bytes) -> EffectiveLimits:
    """A user's limits, from what is stored for the user and for the tenant."""
    if not user_body and not tenant_body:
        return _UNLIMITED
    mine, tenant = decode_limits(user_body), decode_tenant_limits(tenant_body)
    usual, ceiling = tenant.default, tenant.ceiling
    cost = mine.cost_limit or usual.cost_limit
    return EffectiveLimits(
        _capped_limit(_or_default(mine.max_concurrent, usual.max_concurrent), ceiling.max_concurrent),
        _capped_limit(_or_default(mine.jobs_per_hour, usual.jobs_per_hour), ceiling.jobs_per_hour),
        _capped_limit(_or_default(mine.jobs_per_day, usual.jobs_per_day), ceiling.jobs_per_day),
        tuple(limit for limit in dict.fromkeys((cost, ceiling.cost_limit)) if limit is not None),
    )


def _decode_as(body: bytes, kind: type[L]) -> L:
    try:
        return json.decode(body, type=kind)
    except (MsgspecError, UnicodeDecodeError):
        whose = "a user" if kind is Limits else "the tenant"
        raise NewerFormat(
            f"the limits of {whose} are stored in a way that this program does not know; upgrade it, or set them anew"
        ) from None


def _or_default(own: int | None, default: int | None) -> int | None:
    return default if own is None else own


def _capped_limit(limit: int | None, ceiling: int | None) -> int | None:
    if limit is None or ceiling is None:
        return ceiling if limit is None else limit
    return min(limit, ceiling)
