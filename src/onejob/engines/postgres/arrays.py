"""Columns as the texts of arrays: the driver looks at every value of an array twice, and most columns of a batch
have one value."""

from collections.abc import Callable, Sequence
from typing import Any

# These may be long: they travel as they are.
RAW_COLUMNS = ("data", "body", "receipt")


def array_placeholder(name: str, kind: str, number: int) -> str:
    return f"${number}::bytea[]" if name in RAW_COLUMNS else f"${number}::text::{kind}[]"


def encode_column(name: str, kind: str, values: Sequence[Any]) -> Sequence[Any] | str:
    """The values of a column, as its placeholder takes them."""
    if name in RAW_COLUMNS:
        return list(values)
    spell = _ENCODERS[kind]
    first = values[0]
    # Equal is not enough: an enumeration's member equals its text, and is spelled the same.
    if values.count(first) == len(values):
        return "{" + ",".join([spell(first)] * len(values)) + "}"
    return "{" + ",".join(map(spell, values)) + "}"


def _encode_int(value: int) -> str:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} is no integer")
    return str(int(value))


def _encode_text(value: str) -> str:
    value.encode()  # a text that has no UTF-8 form is refused before it is sent
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _encode_bytes(value: bytes) -> str:
    return f'"\\\\x{value.hex()}"'


_ENCODERS: dict[str, Callable[[Any], str]] = {
    "bigint": _encode_int,
    "text": _encode_text,
    "bytea": _encode_bytes,
}
