"""The only file that reads the environment."""

import os
import re
from collections.abc import Mapping
from typing import Final, Self

from msgspec import Struct

from onejob.core.invalid import Invalid

PREFIX: Final = "IDEMPOTENCY_"
SECONDS_MAX: Final = 365 * 86_400
ENTRIES_MAX: Final = 10_000_000

_DECIMAL = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"[0-9]{1,20}")
_BOOLEANS = {
    "true": True, "1": True, "yes": True, "on": True,
    "false": False, "0": False, "no": False, "off": False,
}  # fmt: skip


class IdempotencyConfig(Struct, frozen=True, kw_only=True):
    """How long the gate waits and remembers, and how much."""

    pending_ttl_seconds: float = 60.0
    committed_ttl_seconds: float = 300.0
    rejected_ttl_seconds: float = 60.0
    max_entries: int = 100_000
    cleanup_interval_seconds: float = 10.0
    wait_for_pending: bool = True
    pending_wait_timeout: float = 30.0

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            _check(field, field, getattr(self, field))

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read the IDEMPOTENCY_ variables; a value that cannot be meant stops the start and is named."""
        source = os.environ if environ is None else environ
        given: dict[str, float | bool] = {}
        for field in cls.__struct_fields__:
            variable = PREFIX + field.upper()
            if variable in source:
                given[field] = _check(field, variable, _read(field, source[variable]))
        return cls(**given)  # type: ignore[arg-type]  # _check has matched every value with its field


def _read(field: str, text: str) -> object:
    """Give the value that a text spells for this field, or the text where it spells none."""
    text = text.strip()
    if field == "wait_for_pending":
        return _BOOLEANS.get(text.lower(), text)
    if field == "max_entries":
        return int(text) if _WHOLE.fullmatch(text) else text
    # float() alone would also take nan, inf, 1_000 and the digits of other scripts.
    return float(text) if _DECIMAL.fullmatch(text) else text


def _check(field: str, name: str, value: object) -> float | bool:
    """Return the value if this field can hold it; else refuse it under the name by which it was given."""
    if field == "wait_for_pending":
        if isinstance(value, bool):
            return value
        raise Invalid(name, f"{name} is {value!r}; set it to true or false")
    if field == "max_entries":
        if type(value) is int and 1 <= value <= ENTRIES_MAX:
            return value
        raise Invalid(name, f"{name} is {value!r}; set it to a whole number from 1 to {ENTRIES_MAX}")
    # Not to wait at all makes sense; not to remember at all does not.
    zero_fits = field == "pending_wait_timeout"
    # NaN and infinity fail the comparison, and a bool is not of either type.
    if type(value) is float or type(value) is int:  # noqa: SIM102 - the type is narrowed first
        if 0 < value <= SECONDS_MAX or (zero_fits and value == 0):
            return value
    least = "from 0" if zero_fits else "above 0"
    raise Invalid(name, f"{name} is {value!r}; set it to a number of seconds {least} up to {SECONDS_MAX}")
