"""The canonical form equals that of a naive implementation, for unusual and damaged texts."""

import json
import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onejob.core.errors import Invalid
from onejob.core.fingerprint import canonical_json

# Few names, many spellings, odd spacing.
NAMES = ["", "a", "b", ":", '":', '"', "\\", "é", "\ue000", "\uffff", "😀", "a\n", "0", "ab"]
spaces = st.sampled_from(["", "", "", " ", "\n", "\t \r"])
numbers = st.one_of(
    st.integers().map(str),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda number: f"{number:.3E}"),
    st.sampled_from(["-0", "1.0", "1e0", "1e20", "1e21", "123456789012345680000", "9007199254740993.0", "1e400"]),
)


@st.composite
def spelled(draw: st.DrawFn, strings: st.SearchStrategy[str]) -> str:
    """A string literal in which each character is written plainly or as an escape."""
    parts = []
    for char in draw(strings):
        units = char.encode("utf-16-be")
        escape = "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
        plain = json.dumps(char, ensure_ascii=False)[1:-1]
        parts.append(draw(st.sampled_from([plain, plain, escape, escape.upper().replace("\\U", "\\u")])))
    return '"' + "".join(parts) + '"'


names = spelled(st.sampled_from(NAMES))
scalars = st.one_of(names, spelled(st.text(max_size=5)), numbers, st.sampled_from(["null", "true", "false"]))


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def joined(parts: list[tuple[str, str]], brackets: str, space: str) -> str:
        return brackets[0] + space + ",".join(space + part + after for part, after in parts) + brackets[1]

    members = st.tuples(names, spaces, spaces, inner).map(lambda it: f"{it[0]}{it[1]}:{it[2]}{it[3]}")
    arrays = st.builds(joined, st.lists(st.tuples(inner, spaces), max_size=4), st.just("[]"), spaces)
    return arrays | st.builds(joined, st.lists(st.tuples(members, spaces), max_size=4), st.just("{}"), spaces)


texts = st.recursive(scalars, nested, max_leaves=12)


damage = st.sampled_from([b"", *(bytes([byte]) for byte in b'"\\:,{}[] 019.eE+-u\x00\n\xff\xed\xa0')])


@given(texts)
@example('{"\\u0022":1,"a":1,"a":"\\u0022"}')
def test_the_form_is_the_one_of_a_naive_implementation(text: str) -> None:
    same_as_naive(text.encode())


@given(texts, st.data())
def test_a_damaged_text_is_refused_as_by_a_naive_implementation(text: str, data: st.DataObject) -> None:
    raw = bytearray(text.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(damage)
    same_as_naive(bytes(raw))


@given(st.dictionaries(st.text(), st.integers() | st.text(), max_size=8))
def test_any_names_are_put_in_the_order_of_utf16(members: dict[str, Any]) -> None:
    same_as_naive(json.dumps(members).encode())


@given(texts)
def test_the_form_of_a_form_is_itself(text: str) -> None:
    try:
        form = canonical_json(text.encode())
    except Invalid:
        return
    assert canonical_json(form) == form


def same_as_naive(text: bytes) -> None:
    try:
        expected = naive(text)
    except (ValueError, OverflowError):
        with pytest.raises(Invalid):
            canonical_json(text)
    else:
        assert canonical_json(text) == expected


def naive(text: bytes) -> bytes:
    """The canonical form again, from the text of the RFC and of ECMA-262 and without a thought for speed."""

    def members(pairs: list[tuple[str, str]]) -> str:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("duplicate")
        pairs = sorted(pairs, key=lambda pair: list(struct.unpack(f">{len(utf16(pair[0])) // 2}H", utf16(pair[0]))))
        return "{" + ",".join(quoted(name) + ":" + written(value) for name, value in pairs) + "}"

    class Done(str):
        __slots__ = ()

    def constant(name: str) -> None:
        raise ValueError(name)

    def written(value: Any) -> str:
        if isinstance(value, Done):
            return value
        if isinstance(value, list):
            return "[" + ",".join(map(written, value)) + "]"
        if isinstance(value, str):
            return quoted(value)
        return {None: "null", True: "true", False: "false"}[value]

    loaded = json.loads(
        text.decode(),
        object_pairs_hook=lambda pairs: Done(members(pairs)),
        parse_int=lambda literal: Done(str(int(literal))),
        parse_float=lambda literal: Done(ecmascript(float(literal))),
        parse_constant=constant,
    )
    return written(loaded).encode()


def utf16(text: str) -> bytes:
    return text.encode("utf-16-be")


def quoted(text: str) -> str:
    text.encode()
    short = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
    return '"' + "".join(short.get(char, f"\\u{ord(char):04x}" if char < " " else char) for char in text) + '"'


def ecmascript(number: float) -> str:
    """Number::toString of ECMA-262, step by step; k, n and s are its names."""
    if math.isinf(number):
        raise ValueError("beyond a double")
    if number == 0:
        return "0"
    if number < 0:
        return "-" + ecmascript(-number)
    _, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    s, k = "".join(map(str, digits)), len(digits)
    n = exponent + k
    if k <= n <= 21:
        return s + "0" * (n - k)
    if 0 < n <= 21:
        return s[:n] + "." + s[n:]
    if -6 < n <= 0:
        return "0." + "0" * -n + s
    sign = "+" if n - 1 > 0 else "-"
    return s[0] + ("." + s[1:] if k > 1 else "") + f"e{sign}{abs(n - 1)}"
