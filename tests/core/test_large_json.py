"""A large text is canonicalized in pieces, with the same result as at once."""

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.core import fingerprint
from onejob.core.errors import Invalid
from onejob.core.fingerprint import DEPTH_MAX, canonical_json, check_strict_json
from onejob.core.large_json import PIECE_BYTES, DuplicateMember, MalformedText, TooDeep, canonicalize_in_pieces

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner), max_leaves=40
)
FRAGMENTS = ["[", "]", "{", "}", ",", '"', ":", "\\", " ", "1", '"a":1', "[]", '"a":[],', "null", "{},"]


def outcome(text: bytes, piece_bytes: int) -> bytes | None:
    """None: refused."""
    try:
        if not piece_bytes:
            return canonical_json(text)
        return canonicalize_in_pieces(text, canonical_json, depth_max=DEPTH_MAX, piece_bytes=piece_bytes)
    except (Invalid, MalformedText, TooDeep, DuplicateMember):
        return None


@given(VALUES, st.sampled_from([None, 1]), st.integers(1, 40))
def test_a_text_canonicalized_in_pieces_equals_the_whole(value: Any, indent: int | None, piece_bytes: int) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False).encode(errors="surrogatepass")
    assert outcome(text, piece_bytes) == outcome(text, 0)


@given(VALUES, st.randoms(use_true_random=False), st.integers(1, 40))
def test_a_broken_text_is_refused_in_pieces_as_at_once(value: Any, chance: random.Random, piece_bytes: int) -> None:
    text = json.dumps(value, ensure_ascii=False)
    for _ in range(chance.randint(1, 3)):
        place = chance.randint(0, len(text))
        text = text[:place] + chance.choice(FRAGMENTS) + text[place + chance.randint(0, 2) :]
    data = text.encode(errors="surrogatepass")
    assert outcome(data, piece_bytes) == outcome(data, 0)


@pytest.mark.parametrize("levels", [DEPTH_MAX, DEPTH_MAX + 1])
@pytest.mark.parametrize("innermost", [b"1,2", b'"[",{}', b"{},1", b'"[",2'])
def test_the_limit_of_depth_counts_across_pieces(levels: int, innermost: bytes) -> None:
    text = b"[" * levels + innermost + b"]" * levels
    assert outcome(text, 3) == outcome(text, 0)


BROKEN = {
    "no commas": b"[" + b"[]" * 500_000,
    "not closed": b"[" + b"[]," * 349_000,
    "trailing comma": b"[" + b"[]," * 349_000 + b"]",
    "strings without end": b"[" + b"[]," * 150_000 + b'"' + b'\\"' * 250_000,
}
LARGE = {
    "lists": b"[" + b"[]," * 349_000 + b"[]]",
    "objects": b"[" + b"{}," * 349_000 + b"{}]",
    "nested lists": b'{"a":' * 100 + b"[" + b"[]," * 300_000 + b"[]]" + b"}" * 100,
    "members": b"{" + b",".join(b'"%x":[]' % number for number in range(90_000)) + b"}",
    "deep lists": b"[" + b"[[[[[]]]]]," * 90_000 + b"[]]",
} | BROKEN


@pytest.mark.parametrize(("text", "is_broken"), [(text, name in BROKEN) for name, text in LARGE.items()], ids=LARGE)
@pytest.mark.parametrize("check", [canonical_json, check_strict_json])
def test_no_large_text_of_many_values_is_decoded_in_one_call(
    text: bytes, is_broken: bool, check: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def count(process: Callable[[bytes], bytes], piece: bytes) -> bytes:
        sizes.append(len(piece))
        return process(piece)

    for name in ("_canonicalize_at_once", "_decode_and_encode_strictly"):
        monkeypatch.setattr(fingerprint, name, partial(count, getattr(fingerprint, name)))
    try:
        check(text)
    except Invalid:
        assert is_broken
    else:
        assert not is_broken
    assert max(sizes, default=0) <= 2 * PIECE_BYTES
