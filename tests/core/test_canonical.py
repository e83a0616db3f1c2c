"""Rules of the canonical form: RFC 8785, and what is refused."""

import json
import struct
from collections.abc import Callable

import pytest

from onejob.core.errors import Invalid
from onejob.core.fingerprint import DEPTH_MAX, DIGITS_MAX, INPUT_BYTES_MAX, canonical_json

# RFC 8785, appendix B: the bits of a double, and how it is printed.
RFC_NUMBERS = {
    "0000000000000000": "0", "8000000000000000": "0",
    "0000000000000001": "5e-324", "8000000000000001": "-5e-324",
    "7fefffffffffffff": "1.7976931348623157e+308", "ffefffffffffffff": "-1.7976931348623157e+308",
    "4340000000000000": "9007199254740992", "c340000000000000": "-9007199254740992",
    "4430000000000000": "295147905179352830000",
    "44b52d02c7e14af5": "9.999999999999997e+22", "44b52d02c7e14af6": "1e+23",
    "44b52d02c7e14af7": "1.0000000000000001e+23",
    "444b1ae4d6e2ef4e": "999999999999999700000", "444b1ae4d6e2ef4f": "999999999999999900000",
    "444b1ae4d6e2ef50": "1e+21",
    "3eb0c6f7a0b5ed8c": "9.999999999999997e-7", "3eb0c6f7a0b5ed8d": "0.000001",
    "41b3de4355555553": "333333333.3333332", "41b3de4355555554": "333333333.33333325",
    "41b3de4355555555": "333333333.3333333", "41b3de4355555556": "333333333.3333334",
    "41b3de4355555557": "333333333.33333343",
    "becbf647612f3696": "-0.0000033333333333333333", "43143ff3c1cb0959": "1424953923781206.2",
}  # fmt: skip


def test_the_rfc_sample_has_the_rfc_form() -> None:
    text = rb"""{
      "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
      "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
      "literals": [null, true, false]
    }"""
    form = '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
    form += '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
    assert canonical_json(text) == form.encode()


def test_members_are_sorted_by_utf16_code_units_as_in_the_rfc() -> None:
    text = rb"""{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
      "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
      "\u00f6": "Latin Small Letter O With Diaeresis"}"""
    assert list(json.loads(canonical_json(text))) == ["\r", "1", "\u0080", "ö", "€", "😀", "\ufb33"]
    assert canonical_json('[{"\ue000":{"\uffff":1,"𐀀":2},"😀":[]}]'.encode()) == (
        '[{"😀":[],"\ue000":{"𐀀":2,"\uffff":1}}]'.encode()
    )


@pytest.mark.parametrize(("bits", "printed"), RFC_NUMBERS.items())
def test_numbers_are_printed_as_in_the_rfc(bits: str, printed: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    for literal in [
        f"{number:.17e}",
        f"{number:.25E}",
        repr(number) if "e" in repr(number) else f"{number!r}e0",
    ]:
        assert canonical_json(literal.encode()) == printed.encode()


def test_spellings_of_one_number_are_one() -> None:
    for spellings, form in [
        (["0", "-0", "0.0", "-0.0", "0e5", "-0E-5", "1e-400"], "0"),
        (["1", "1.0", "1e0", "10e-1", "0.1e1", "1.00000000000000000000"], "1"),
        (["-15e-1", "-1.5", "-1.50"], "-1.5"),
        (["1e20", "100000000000000000000", "1.0e+20"], "100000000000000000000"),
        (["9007199254740992", "9007199254740992.0", "9.007199254740992e15"], "9007199254740992"),
        (["1e-6", "0.000001"], "0.000001"),
        (["1e-7", "0.0000001"], "1e-7"),
    ]:
        assert {canonical_json(spelling.encode()) for spelling in spellings} == {form.encode()}


def test_integer_literals_keep_all_their_digits() -> None:
    for literal in [
        2**53 + 1,
        -(2**53) - 1,
        2**63,
        2**64,
        2**64 + 1,
        -(2**70),
        10**21,
        10**999,
        1 - 10**1000,
    ]:
        assert canonical_json(str(literal).encode()) == str(literal).encode()
    assert canonical_json(b"9007199254740993") != canonical_json(b"9007199254740992")


def test_a_whole_double_is_printed_from_its_shortest_digits() -> None:
    assert canonical_json(b"123456789012345678901.0") == b"123456789012345680000"
    assert canonical_json(b"9007199254740993.0") == b"9007199254740992"
    assert canonical_json(b"-1e20") == b"-100000000000000000000"


def test_spacing_order_and_escapes_do_not_matter() -> None:
    form = '{"a":[1,{"b":"é/\\n"}],"c":null}'.encode()
    for text in [
        form,
        b' {"c" :null ,\n"a":\t[ 1 , {"b" : "\\u00e9\\/\\u000a"} ] } \r\n',
        b'{"\\u0063":null,"\\u0061":[1.0,{"\\u0062":"\\u00E9/\\n"}]}',
    ]:
        assert canonical_json(text) == form


def test_strings_are_escaped_only_where_they_must_be() -> None:
    every = "".join(map(chr, range(0x20))) + '"\\/\x7f\x80\u2028\ufeff😀'
    short = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}
    form = '"' + "".join(short.get(code, f"\\u{code:04x}") for code in range(0x20))
    form += '\\"\\\\/\x7f\x80\u2028\ufeff😀"'
    assert canonical_json(json.dumps(every).encode()) == form.encode()


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"a":1,"a":2}',
        '{"a":1 , "b":2, "a" :3}',
        '{"a":1,"\\u0061":2}',
        '{"\\"":1,"\\u0022":2}',
        '{"\\u0022":1,"\\u0022":2}',
        '{"x":"\\u0022\\u0022","a":1,"a":2}',
        '{"":0,"":0}',
        '{":":1,":":2}',
        '[[[{"deep":[{"a":{"b":1,"b":1}}]}]]]',
        '{"é":1,"\\u00e9":2}',
        '{"😀":1,"\\ud83d\\ude00":2}',
        '{"a":{"x":1},"a":{"x":1}}',
        '{"a":1,"a":{"p":1,"q":2}}',
        '{"a":{"p":1,"q":2},"a":1}',
    ],
)
def test_duplicate_members_are_refused(text: str) -> None:
    refused(lambda: canonical_json(text.encode()), "two members of one name")


def test_equal_names_in_different_objects_are_no_duplicates() -> None:
    text = b'[{"a":1},{"a":1},{"b":{"a":1},"a":"\\u0022a\\u0022:"}]'
    assert canonical_json(text) == b'[{"a":1},{"a":1},{"a":"\\"a\\":","b":{"a":1}}]'


@pytest.mark.parametrize(
    "text",
    [
        b"", b" ", b"NaN", b"Infinity", b"-Infinity", b"[NaN]", b"nan", b"1e400", b"-1e400", b'{"a":[1e309]}',
        b"1" * 400 + b".0", b'"\\ud800"', b'"\\udc00"', b'"\\ud800\\ud800"', b'"\\ud800x"',
        b'"\\ude00\\ud83d"',
        b'{"\\ud800":1}', b'"\\uD800\\u0041"', b'"\xff"', b'{"\xff":1}', b'"\xc0\x80"', b'"\xed\xa0\x80"',
        b'"\xf4\x90\x80\x80"', b'"\xe2\x82"', b"\xef\xbb\xbf{}", b"\xff\xfe1\x00", b"[1,]", b'{"a":1,}',
        b"{a:1}",
        b"{'a':1}", b"[1] 2", b"01", b"+1", b"1.", b".5", b"1e", b"- 1", b"0x1", b'"\t"', b'"\x00"',
        b'"\\x41"',
        b"True", b"tru", b"[", b"]", b'"', b"\x0c1", b"1\x00", b"/**/1", b"undefined", b'{"a"}', b"{1:2}",
        b'"\\u00g0"', b'"\\u12"',
    ],
)  # fmt: skip
def test_what_is_not_json_that_can_be_kept_is_refused(text: bytes) -> None:
    refused(lambda: canonical_json(text), "not JSON that can be stored")


def test_nesting_has_a_limit() -> None:
    for opening, closing in [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")]:
        pairs = DEPTH_MAX // (opening.count(b"[") + opening.count(b"{"))
        inner = b"" if opening.endswith(b"[") else b"0"
        deepest = opening * pairs + inner + closing * pairs
        assert canonical_json(deepest) == deepest
        refused(lambda: canonical_json(b"[" + deepest + b"]"), "nested deeper")  # noqa: B023 - called at once
    for levels in [DEPTH_MAX + 1, 1_000, 100_000, 500_000]:
        refused(lambda: canonical_json(b"[" * levels + b"]" * levels), "nested deeper")  # noqa: B023 - called at once
    wide = b"[" + b"[]," * 1_000 + b'"' + b"[{" * 1_000 + b'"]'
    assert canonical_json(wide) == wide


def test_integers_have_a_limit_of_digits_and_strings_do_not() -> None:
    longest = b"9" * DIGITS_MAX
    for fine in [
        longest,
        b"-" + longest,
        b'["' + longest * 3 + b'",' + longest + b"]",
        b"0." + longest * 5 + b"e-1",
    ]:
        canonical_json(fine)
    for literal in [longest + b"9", b"-" + longest + b"9", b"9" * 5_000, b"9" * 1_000_000]:
        refused(lambda: canonical_json(b'{"a":[' + literal + b"]}"), "more than 1000 digits")  # noqa: B023 - called at once


def test_size_has_a_limit_and_so_has_the_form() -> None:
    largest = b'"' + b"x" * (INPUT_BYTES_MAX - 2) + b'"'
    assert canonical_json(largest) == largest
    refused(lambda: canonical_json(largest + b" "), "larger than")
    refused(lambda: canonical_json(b"[" + b"1e20," * 100_000 + b"1]"), "larger than")


def test_refusals_never_quote_the_input() -> None:
    for text in [b'{"secret":1,"secret":2}', b'{"secret":', b'["secret", 1e999]', b'"secret\xff"', b"secret"]:
        with pytest.raises(Invalid) as caught:
            canonical_json(text)
        assert "secret" not in str(caught.value)


def refused(act: Callable[[], object], why: str) -> None:
    with pytest.raises(Invalid, match=why) as caught:
        act()
    assert caught.value.what == "input"
