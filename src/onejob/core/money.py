"""Money: whole micro-units inside, decimal numbers outside. Never a float in between that could round."""

import math
from decimal import Context, Decimal

from .invalid import Invalid

MICRO = 1_000_000
UNITS_MAX = 1_000_000_000

_STEP = Decimal(1) / MICRO
_EXACT = Context(prec=40)  # whatever context the caller's thread has

Amount = int | float | str | Decimal  # in units


def micro_of(what: str, amount: Amount) -> int:
    """The micro-units of an amount, which is not negative and has at most six decimals."""
    wrong = Invalid(what, f"{what} is a number from 0 to {UNITS_MAX} with at most six decimals; give one")
    if isinstance(amount, bool) or not isinstance(amount, (int, float, str, Decimal)):
        raise wrong
    try:
        # By its text: 0.1 means a tenth, not the double that is nearest to it.
        exact = Decimal(str(_steady(amount) if isinstance(amount, float) else amount), _EXACT)
        # Compared as it is: to calculate with 1e999999 overflows, with 1e-999999 gives 0.
        if not 0 <= exact <= UNITS_MAX or exact != exact.quantize(_STEP, context=_EXACT):
            raise wrong
    except (ArithmeticError, ValueError):
        raise wrong from None
    return int(_EXACT.multiply(exact, MICRO))


def _steady(amount: float) -> float:
    """A sum of floats without the noise of adding them: 0.1 + 0.2 means 0.3."""
    plain = round(amount, 6)
    return (
        plain
        if math.isfinite(amount) and amount >= 0 and abs(amount - plain) <= 4 * math.ulp(amount)
        else amount
    )


def units_of(micro: int) -> Decimal:
    return Decimal(micro) / MICRO


def text_of(micro: int) -> str:
    """As people write it: two decimals, more only where they say something."""
    whole, part = divmod(micro, MICRO)
    return f"{whole}.{f'{part:06d}'.rstrip('0').ljust(2, '0')}"
