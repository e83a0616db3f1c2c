"""Money: whole micro-units inside, decimal numbers outside. Never a float in between that could round."""

import math
from decimal import Context, Decimal

from .invalid import Invalid

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
        exact = Decimal(
            str(_without_float_noise(amount) if isinstance(amount, float) else amount), _DECIMAL_CONTEXT
        )
        # Compared as it is: to calculate with 1e999999 overflows, with 1e-999999 gives 0.
        if not 0 <= exact <= UNITS_MAX or exact != exact.quantize(_MICRO_UNIT, context=_DECIMAL_CONTEXT):
            raise wrong
    except (ArithmeticError, ValueError):
        raise wrong from None
    return int(_DECIMAL_CONTEXT.multiply(exact, MICROS_PER_UNIT))


def _without_float_noise(amount: float) -> float:
    """A sum of floats without the noise of adding them: 0.1 + 0.2 means 0.3."""
    plain = round(amount, 6)
    return (
        plain
        if math.isfinite(amount) and amount >= 0 and abs(amount - plain) <= 4 * math.ulp(amount)
        else amount
    )


def to_units(micros: int) -> Decimal:
    return Decimal(micros) / MICROS_PER_UNIT


def format_units(micros: int) -> str:
    """As people write it: two decimals, more only where they say something."""
    whole, part = divmod(micros, MICROS_PER_UNIT)
    return f"{whole}.{f'{part:06d}'.rstrip('0').ljust(2, '0')}"
