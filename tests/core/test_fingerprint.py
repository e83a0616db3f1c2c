"""Rules of encoded inputs, of fingerprints, and of the paths that differ."""

import hashlib
import json
import math
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.core.errors import Invalid
from onejob.core.fingerprint import (
    DEPTH_MAX,
    DIGITS_MAX,
    INPUT_BYTES_MAX,
    PATHS_MAX,
    canonical_json,
    differing_paths,
    encode_and_canonicalize,
    encode_input,
    fingerprint,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)


@given(values)
def test_an_encoded_value_is_read_back_as_it_was(value: Any) -> None:
    text = encode_input(value)
    assert json.loads(text) == value
    assert canonical_json(text) == canonical_json(json.dumps(value).encode())


@given(values)
def test_encoding_and_canonicalizing_at_once_equals_both_steps(value: Any) -> None:
    text = encode_input(value)
    assert encode_and_canonicalize(value) == (text, canonical_json(text))


def test_encoding_and_canonicalizing_at_once_refuses_what_encoding_refuses() -> None:
    for value in [math.nan, [math.inf], "\ud800", {1: "a", "1": "b"}, object(), "x" * INPUT_BYTES_MAX, 10**DIGITS_MAX]:
        with pytest.raises(Invalid) as caught:
            encode_input(value)
        refused(lambda: encode_and_canonicalize(value), re.escape(str(caught.value)))  # noqa: B023 - called at once
    for value in [{1, 3, 2}, (1, (2,)), {2: "b", 1: "a"}, "é", {"😀": 1, "\uffff": 2}, 1e20, [1.0, -0.0]]:
        text = encode_input(value)
        assert encode_and_canonicalize(value) == (text, canonical_json(text))


def test_members_of_an_ordinary_value_keep_their_order() -> None:
    assert encode_input({"b": 1, "a": [None, 1.5, "é"]}) == '{"b":1,"a":[null,1.5,"é"]}'.encode()


def test_whatever_has_a_json_form_is_encoded() -> None:
    class Level(IntEnum):
        HIGH = 3

    class Colour(StrEnum):
        RED = "red"

    @dataclass
    class Point:
        x: int
        y: float | None

    class Order(msgspec.Struct):
        sku: str
        at: datetime

    for value, text in [
        ((1, (2, None)), b"[1,[2,null]]"),
        (Point(1, None), b'{"x":1,"y":null}'),
        ({"p": Point(1, 0.5)}, b'{"p":{"x":1,"y":0.5}}'),
        (Order("a", datetime(2024, 1, 2, tzinfo=UTC)), b'{"sku":"a","at":"2024-01-02T00:00:00Z"}'),
        (UUID(int=1), b'"00000000-0000-0000-0000-000000000001"'),
        ({date(2024, 1, 2): Colour.RED, Level.HIGH: Level.HIGH}, b'{"2024-01-02":"red","3":3}'),
        ({Colour.RED: Decimal("1.10")}, b'{"red":"1.10"}'),
        ({2: "b", 1: "a"}, b'{"1":"a","2":"b"}'),
        ({"raw": b"\x00\xff"}, b'{"raw":"AP8="}'),
    ]:
        assert canonical_json(encode_input(value)) == canonical_json(text)


def test_bytes_are_a_value_and_not_json_text() -> None:
    for value in [b'{"a":1}', bytearray(b'{"a":1}')]:
        assert encode_input(value) == b'"eyJhIjoxfQ=="'


def test_a_set_is_encoded_in_one_order_in_every_process() -> None:
    assert encode_input({"tags": {"c", "a", "b"}, "n": frozenset({3, 1, 2})}) == b'{"n":[1,2,3],"tags":["a","b","c"]}'
    script = "from onejob.core.fingerprint import encode_input as e; print(e({str(n) for n in range(50)}))"
    printed = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True, capture_output=True,
        ).stdout
        for seed in "123"
    }  # fmt: skip
    assert len(printed) == 1


def test_what_json_cannot_carry_is_refused() -> None:
    @dataclass
    class Reading:
        value: float

    for not_finite in [math.nan, math.inf, -math.inf]:
        for value in [
            not_finite,
            [None, not_finite],
            {"a": [{"b": not_finite}]},
            (not_finite,),
            Reading(not_finite),
        ]:
            refused(lambda: encode_input(value), "NaN or an infinity")  # noqa: B023 - called at once
    for text in ["\ud800", "a\udfff"]:
        for value in [text, [text], {text: 1}, (text,)]:
            refused(lambda: encode_input(value), "surrogate")  # noqa: B023 - called at once
    for strange in [
        object(),
        1j,
        {1: object()},
        {None: 1},
        {(1, 2): 3},
        range(3),
        {1, "a"},
        10**5_000,
        print,
    ]:
        refused(lambda: encode_input(strange), "cannot be written as JSON")  # noqa: B023 - called at once


def test_keys_that_collide_as_text_are_refused() -> None:
    for value in [{1: "a", "1": "b"}, [{"x": {2: 0, "2": 0}}], {UUID(int=1): 1, str(UUID(int=1)): 1}]:
        refused(lambda: encode_input(value), "two members of one name")  # noqa: B023 - called at once


def test_a_value_has_the_same_limits_as_a_text() -> None:
    looped: list[Any] = []
    looped.append(looped)
    deep: Any = 0
    for _ in range(DEPTH_MAX + 1):
        deep = [deep]
    for value in [looped, deep, (deep,)]:
        refused(lambda: encode_input(value), "nested deeper")  # noqa: B023 - called at once
    assert encode_input(deep[0])
    refused(lambda: encode_input("x" * INPUT_BYTES_MAX), "larger than")
    refused(lambda: encode_input({"a": 10**DIGITS_MAX}), "digits")
    assert encode_input({"a": 10**DIGITS_MAX - 1})


def test_unchecked_json_inside_a_value_is_not_let_through() -> None:
    for raw in [b"NaN", b"", b'{"a":1,"a":1}', b"1"]:
        with pytest.raises(Invalid):
            encode_input({"raw": msgspec.Raw(raw)})


def test_a_fingerprint_is_a_version_and_the_digest_of_type_and_input() -> None:
    text = b'{"input":{"a":1},"type":"charge \\"\xc3\xa9\\u0001"}'
    assert canonical_json(text) == text
    assert fingerprint('charge "é\x01', b'{"a":1}') == b"\x01" + hashlib.sha256(text).digest()


def test_type_and_input_both_count() -> None:
    assert len({fingerprint(type, text) for type in ["a", "b"] for text in [b"1", b"2", b'"1"', b"null"]}) == 8


def test_fingerprints_are_the_same_in_every_release() -> None:
    form = canonical_json(b'{"order": "ORD-123", "amount": 42.50, "id": 9007199254740993}')
    assert fingerprint("charge_customer", form).hex() == (
        "01384b3af92e88c5098d041f927d1c080491f17fd644961d056699b7ce85366721"
    )


def test_a_type_without_utf8_form_is_refused() -> None:
    with pytest.raises(Invalid) as caught:
        fingerprint("\ud800", b"1")
    assert caught.value.what == "type"


def test_paths_name_the_places_that_differ() -> None:
    before = b'{"amount":1,"items":[{"sku":"a"},{"sku":"b"},{"sku":"c","n":1}],"same":[1,{"x":null}]}'
    after = b'{"items":[{"sku":"a"},{"sku":"b"},{"n":1,"sku":"d"}],"amount":2,"same":[1,{"x":null}]}'
    assert differing_paths(before, after) == ("/input/amount", "/input/items/2/sku")
    assert differing_paths(before, before) == ()


def test_a_difference_of_the_whole_is_the_root() -> None:
    for before, after in [(b"1", b"2"), (b"{}", b"[]"), (b"null", b"{}"), (b'"1"', b"1"), (b"[]", b'""')]:
        assert differing_paths(before, after) == ("/input",)


def test_numbers_differ_by_value_and_not_by_spelling() -> None:
    before = b"[1,1.0,10e-1,0,-0,1e20,1.5,9007199254740993]"
    after = b"[1.0,1e0,1,-0.0,0.0,100000000000000000000,15e-1,9007199254740993]"
    assert differing_paths(before, after) == ()
    assert differing_paths(b"[9007199254740993,1]", b"[9007199254740992,1.0000001]") == (
        "/input/0",
        "/input/1",
    )


def test_true_is_not_one_and_null_is_not_absent() -> None:
    assert differing_paths(b"[true,false,1]", b"[1,0,true]") == ("/input/0", "/input/1", "/input/2")
    assert differing_paths(b'{"a":null,"b":0}', b'{"b":0}') == ("/input/a",)
    assert differing_paths(b'{"a":1}', b'{"a":[1]}') == ("/input/a",)


def test_a_member_or_index_on_one_side_only_is_its_own_path() -> None:
    assert differing_paths(b'{"z":1,"y":{"p":1}}', b'{"q":[],"z":1,"y":{}}') == ("/input/y/p", "/input/q")
    assert differing_paths(b"[1,2,3,[4]]", b"[1,5]") == ("/input/1", "/input/2", "/input/3")
    assert differing_paths(b'{"a":[]}', b'{"a":[{"b":1},2]}') == ("/input/a/0", "/input/a/1")


def test_names_are_escaped_as_json_pointers_and_long_ones_are_cut() -> None:
    before = json.dumps({"a/b": 1, "m~n": 1, "~1": 1, "": 1, "x" * 100: 1, "y" * 101: 1}).encode()
    assert differing_paths(before, b"{}") == (
        "/input/a~1b", "/input/m~0n", "/input/~01", "/input/",
        "/input/" + "x" * 100, "/input/" + "y" * 100 + "…",
    )  # fmt: skip


def test_at_most_twenty_paths_are_named_in_document_order() -> None:
    before = b"{" + b",".join(b'"%d":0' % n for n in range(99, 0, -1)) + b"}"
    paths = differing_paths(before, b"{}")
    assert PATHS_MAX == 20
    assert paths == tuple(f"/input/{n}" for n in range(99, 79, -1))
    assert len(differing_paths(b"[" + b"1," * 1_000 + b"1]", b"[]")) == 20


def test_paths_of_invalid_texts_are_refused() -> None:
    for before, after in [(b"{", b"{}"), (b"1", b"NaN"), (b"1", b"1e999"), (b"[" * 200 + b"]" * 200, b"1")]:
        with pytest.raises(Invalid):
            differing_paths(before, after)


@given(values, values)
def test_paths_differ_exactly_when_forms_differ(before: Any, after: Any) -> None:
    one, other = encode_input(before), encode_input(after)
    assert (differing_paths(one, other) == ()) == (canonical_json(one) == canonical_json(other))
    assert differing_paths(one, canonical_json(one)) == ()


def refused(act: Callable[[], object], why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        act()
    assert caught.value.what == "input"


@pytest.mark.parametrize(
    ("function", "argument"),
    [
        ("onejob.core.fingerprint:canonical_json", "b'\"' + b'x' * 1_000_000 + b'\"'"),
        ("onejob.core.fingerprint:encode_input", "'x' * 1_000_000"),
        ("onejob.core.fingerprint:encode_and_canonicalize", "['x' * 100_000] * 9"),
        ("onejob.http.responses:json_response", "200, 'x' * 1_000_000"),
        ("onejob.ledger.work:encode_result", "'x' * 1_000_000"),
    ],
)
def test_a_large_value_without_memory_for_it_is_an_error_and_no_crash(function: str, argument: str) -> None:
    code = f"""
import resource
from pkgutil import resolve_name
function = resolve_name({function!r})
arguments = {argument},
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 20_000_000,) * 2)
held, failed = [], 0
for _ in range(100):
    try:
        held.append(function(*arguments))
    except MemoryError:
        failed += 1
print(failed > 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
