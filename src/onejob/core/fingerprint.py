"""Fingerprints: the canonical JSON of a submission and its digest, the same for every entry point.

1. Two texts that mean the same have one canonical form (RFC 8785), and so one fingerprint.
2. Two texts that mean different things never share one: integer literals keep all their digits, and what a parser
   would silently drop or change (duplicate members, NaN, 1e400, lone surrogates) is refused.
3. Messages and paths never contain values: inputs are the caller's secret.
4. Every submission passes through here. A common text takes a few calls into C; rare ones may be slow.
"""

import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from hashlib import sha256
from itertools import islice
from typing import Any, Final

import msgspec

from .errors import Invalid
from .large_json import DuplicateMember, MalformedText, Pause, TooDeep, canonicalize_in_pieces, do_not_pause
from .typed_json import encode_safely, to_encodable

INPUT_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 128
DIGITS_MAX: Final = 1_000
CONTAINERS_AND_MEMBERS_AT_ONCE_MAX: Final = 1 << 13
PATHS_MAX: Final = 20
PATH_NAME_CHARS_MAX: Final = 100
LONE_SURROGATE: Final = "it has a lone surrogate; send only whole characters"
VERSION: Final = b"\x01"

_INTEGRAL_MAX: Final = 2**53
_ENCODE_SAFELY_ABOVE_BYTES: Final = 64 << 10
# Below this size the canonical form fits, even if every number grows, e.g. 1e20.
_PLAIN_BYTES_MAX: Final = INPUT_BYTES_MAX // 8
# ECMAScript prints whole numbers below this without an exponent.
_EXPONENT_FROM: Final = 1e21

# An integer: searching for one byte is four times as fast as for a bytes object.
_BACKSLASH: Final = 0x5C
_DIGITS_AS_ZERO: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_DIGITS_TOO_MANY: Final = b"0" * (DIGITS_MAX + 1)
_LEADS_ASTRAL = re.compile(rb"[\xf0-\xf4]")
_LEADS_E000_TO_FFFF = re.compile(rb"[\xee\xef]")


def canonical_json(data: bytes, *, pause: Pause = do_not_pause) -> bytes:
    """The canonical form of a JSON text: RFC 8785, with integer literals in full digits.

    While a large text is read, `pause` is called every now and then (see large_json.py).
    """
    if len(data) > CONTAINERS_AND_MEMBERS_AT_ONCE_MAX and _has_many_values(data):
        return _canonicalize_large(data, pause)
    return _canonicalize_at_once(data)


def _canonicalize_large(data: bytes, pause: Pause) -> bytes:
    """Equal to `_canonicalize_at_once`, which would hold the interpreter lock for tens of milliseconds.

    Equivalence: test_a_text_canonicalized_in_pieces_equals_the_whole.
    """
    if len(data) > INPUT_BYTES_MAX:
        raise Invalid("input", _TOO_LARGE)
    text = _process_in_pieces(data, _canonicalize_at_once, DEPTH_MAX, pause)
    if len(text) > INPUT_BYTES_MAX:
        raise Invalid("input", _TOO_LARGE)
    return text


def _process_in_pieces(data: bytes, process: Callable[[bytes], bytes], depth_max: int, pause: Pause) -> bytes:
    try:
        return canonicalize_in_pieces(data, process, depth_max=depth_max, pause=pause)
    except (TooDeep, RecursionError) as error:
        raise Invalid("input", _TOO_DEEP) from error
    except DuplicateMember as error:
        raise Invalid("input", _DUPLICATE_MEMBER) from error
    except MalformedText as error:
        raise _not_json(error) from error


def _has_many_values(data: bytes) -> bool:
    """True if decoding may take more than a millisecond or two: lists and members cost ten times as much as other values."""
    return data.count(b"[") + data.count(b"{") + data.count(b":") > CONTAINERS_AND_MEMBERS_AT_ONCE_MAX


def _canonicalize_at_once(data: bytes) -> bytes:
    value = _decode_within_limits(data, _CANONICAL_DECODER)
    text = _encode_sized(_SORTED_ENCODER, value, len(data))
    _refuse_duplicate_members(data, text)
    # UTF-8 sorts like UTF-16 except for astral characters, which UTF-16 puts before U+E000.
    if not text.isascii() and _LEADS_ASTRAL.search(text) and _LEADS_E000_TO_FFFF.search(text):
        text = _encode_sized(_PLAIN_ENCODER, _sorted_by_utf16(value), len(data))
    # Numbers may grow (1e20), and the canonical form must itself be a valid input.
    if len(text) > INPUT_BYTES_MAX:
        raise Invalid("input", _TOO_LARGE)
    return text


def check_strict_json(data: bytes, *, pause: Pause = do_not_pause) -> None:
    """Refuse a JSON text of which a parser would drop or change something; its size and depth are not checked."""
    if len(data) > CONTAINERS_AND_MEMBERS_AT_ONCE_MAX and _has_many_values(data):
        _process_in_pieces(data, _decode_and_encode_strictly, sys.getrecursionlimit(), pause)
    else:
        _decode_and_encode_strictly(data)


def _decode_and_encode_strictly(data: bytes) -> bytes:
    _refuse_long_integers(data)
    try:
        text = _encode_sized(_PLAIN_ENCODER, _PLAIN_DECODER.decode(data), len(data))
    except RecursionError as error:
        raise Invalid("input", _TOO_DEEP) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_json(explain_decode_error(data, error)) from error
    _refuse_duplicate_members(data, text)
    return text


def encode_input(value: object) -> bytes:
    """Encode a Python value as JSON, refusing what JSON cannot express; bytes are a value, not JSON text."""
    try:
        text = encode_safely(_PLAIN_ENCODER, value)
        # Equality proves the common case: a NaN would come back as null, and two keys of one text as one.
        if _decode_within_limits(text, _PLAIN_DECODER) == value:
            return text
        canonical_json(text)
        # A set has no order of its own, but a retry from another process must encode it in the same order.
        plain = msgspec.to_builtins(value, str_keys=True, order="deterministic", enc_hook=to_encodable)
    except RecursionError as error:
        raise Invalid("input", _TOO_DEEP) from error
    except UnicodeEncodeError as error:
        raise Invalid("input", "the input has a lone surrogate; send only whole characters") from error
    except Invalid:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise Invalid("input", f"the input cannot be written as JSON ({error}); convert it first") from error
    if b"null" in text:
        _refuse_not_finite(plain)
    return encode_safely(_PLAIN_ENCODER, plain)


def encode_and_canonicalize(value: object) -> tuple[bytes, bytes]:
    """`encode_input` and `canonical_json` at once; plain JSON is decoded and encoded only once.

    Equivalence: test_encoding_and_canonicalizing_at_once_equals_both_steps.
    """
    buffer = bytearray()
    try:
        _PLAIN_ENCODER.encode_into(value, buffer)  # as `encode_safely`, without the call
        text = bytes(buffer)
        if len(text) < _PLAIN_BYTES_MAX and text.isascii():
            plain = _decode_within_limits(text, _CANONICAL_DECODER)
            if plain == value:  # see encode_input
                return text, _encode_sized(_SORTED_ENCODER, plain, len(text))
    except (RecursionError, TypeError, ValueError, OverflowError):
        pass  # encode_input raises the proper error
    text = encode_input(value)
    return text, canonical_json(text)


def fingerprint(type: str, canonical_input: bytes) -> bytes:
    """The digest of the canonical JSON of {"input": …, "type": …}, prefixed with the version of this scheme."""
    try:
        name = _PLAIN_ENCODER.encode(type)
    except UnicodeEncodeError as error:
        raise Invalid("type", "the type has a lone surrogate; send only whole characters") from error
    return VERSION + sha256(b'{"input":' + canonical_input + b',"type":' + name + b"}").digest()


def batch_fingerprint(fingerprints: Sequence[bytes]) -> bytes:
    """The digest of a batch's fingerprints, in order. A batch of one has the fingerprint of its only job."""
    return fingerprints[0] if len(fingerprints) == 1 else VERSION + sha256(b"".join(fingerprints)).digest()


def differing_paths(before: bytes, after: bytes) -> tuple[str, ...]:
    """The first places where two inputs differ, as JSON Pointers (RFC 6901): paths, never values."""
    paths = _iter_differing_paths(
        "/input", _decode_within_limits(before, _COMPARISON_DECODER), _decode_within_limits(after, _COMPARISON_DECODER)
    )
    return tuple(islice(paths, PATHS_MAX))


def explain_decode_error(data: bytes, error: Exception) -> str:
    """The message of the decoder, except for a lone surrogate, which it reports as a truncated text."""
    return LONE_SURROGATE if b"\\u" in data and _has_lone_surrogate(data) else str(error)


def _has_lone_surrogate(data: bytes) -> bool:
    try:
        # This parser accepts a lone surrogate; the text then has no UTF-8 form.
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False


_DUPLICATE_MEMBER: Final = "the input has two members of one name in an object; send each name once"
_TOO_LARGE: Final = f"the input is larger than {INPUT_BYTES_MAX} bytes; store it elsewhere, send a reference"
_TOO_DEEP: Final = f"the input is nested deeper than {DEPTH_MAX} levels; flatten it"
_INTEGER_TOO_LONG: Final = f"the input has an integer of more than {DIGITS_MAX} digits; send it as a string"


def _decode_within_limits(data: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """Decode a JSON text within the limits of size, depth and digits."""
    size = len(data)
    if size > INPUT_BYTES_MAX:
        raise Invalid("input", _TOO_LARGE)
    _refuse_long_integers(data)
    try:
        value = decoder.decode(data)
    except RecursionError as error:
        raise Invalid("input", _TOO_DEEP) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_json(explain_decode_error(data, error)) from error
    # Each level takes two bytes and one opening bracket, so most texts need no traversal.
    if size > 2 * DEPTH_MAX and data.count(b"[") + data.count(b"{") > DEPTH_MAX and _is_too_deep(value):
        raise Invalid("input", _TOO_DEEP)
    return value


def _encode_sized(encoder: msgspec.json.Encoder, value: object, size: int) -> bytes:
    """Encode a value of about this size; a small one takes the faster call."""
    return encoder.encode(value) if size <= _ENCODE_SAFELY_ABOVE_BYTES else encode_safely(encoder, value)


def _not_json(reason: object) -> Invalid:
    return Invalid("input", f"the input is not JSON that can be stored ({reason}); correct it")


def _parse_number(literal: str) -> int | float:
    """A literal with point or exponent as the int that ECMAScript would print, else as a float."""
    number = float(literal)
    if math.isinf(number):
        raise ValueError("a number exceeds the range of a double")
    if not number.is_integer() or abs(number) >= _EXPONENT_FROM:
        return number
    if abs(number) <= _INTEGRAL_MAX:
        return int(number)
    # The shortest digits that identify this double, padded with zeros: not its exact value.
    return int(Decimal(repr(number)))


def _canonical_number(literal: str) -> int | msgspec.Raw:
    text = repr(float(literal))
    # Nearly all are neither integral nor infinite nor printed with an exponent.
    if text[-2:] != ".0" and text[-1] != "f" and "e" not in text:
        return msgspec.Raw(text)
    number = _parse_number(literal)
    return number if isinstance(number, int) else msgspec.Raw(_format_ecmascript(number))


def _format_ecmascript(number: float) -> str:
    """Print a double as ECMAScript does, if it is not integral or at least 1e21."""
    text = repr(number)
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    power = int(exponent)
    if power < -6 or power > 0:
        return f"{mantissa}e{power:+d}"
    sign = "-" if number < 0 else ""
    return f"{sign}0.{'0' * (-power - 1)}{mantissa.lstrip('-').replace('.', '')}"


_CANONICAL_DECODER: Final = msgspec.json.Decoder(float_hook=_canonical_number)
_COMPARISON_DECODER: Final = msgspec.json.Decoder(float_hook=_parse_number)
_PLAIN_DECODER: Final = msgspec.json.Decoder()
_SORTED_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
_PLAIN_ENCODER: Final = msgspec.json.Encoder(enc_hook=to_encodable)


def _refuse_duplicate_members(data: bytes, text: bytes) -> None:
    """Refuse a text with two members of one name; `text` is `data` decoded and encoded again.

    The decoder keeps only the last of them. A dropped member loses the quotes of its name, and every other quote
    is encoded as one quote, unless it was written as \\u0022. So without that spelling, equal counts prove that
    nothing was dropped, and unequal counts that something was.
    """
    if _BACKSLASH in data and b"\\u0022" in data:
        _check_every_literal(data)
    elif data.count(b'"') != text.count(b'"'):
        raise Invalid("input", _DUPLICATE_MEMBER)


def _refuse_long_integers(data: bytes) -> None:
    if len(data) > DIGITS_MAX and _DIGITS_TOO_MANY in data.translate(_DIGITS_AS_ZERO):
        _check_every_literal(data)


def _check_every_literal(data: bytes) -> None:
    """Check each literal for what the fast decoder does not report: duplicate members, very long integers."""
    try:
        json.loads(
            data.decode(), object_pairs_hook=_check_unique_names, parse_int=_check_integer_length, parse_float=str
        )
    except RecursionError as error:
        raise Invalid("input", _TOO_DEEP) from error
    except Invalid:
        raise
    except ValueError as error:
        raise _not_json(error) from error


def _check_unique_names(members: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in members}) != len(members):
        raise Invalid("input", _DUPLICATE_MEMBER)


def _check_integer_length(literal: str) -> None:
    if len(literal.lstrip("-")) > DIGITS_MAX:
        raise Invalid("input", _INTEGER_TOO_LONG)


def _is_too_deep(value: Any) -> bool:
    level = [value] if type(value) in (dict, list) else []
    for _ in range(DEPTH_MAX):
        # Breadth first: every value is visited once.
        level = [child for item in level for child in _children(item) if type(child) in (dict, list)]
        if not level:
            return False
    return True


def _refuse_not_finite(plain: Any) -> None:
    pending = [plain]
    while pending:
        item = pending.pop()
        if isinstance(item, float) and not math.isfinite(item):
            raise Invalid("input", "the input has a NaN or an infinity; send null or a string")
        if isinstance(item, dict | list | tuple):
            pending.extend(_children(item))


def _children(item: dict[str, Any] | list[Any] | tuple[Any, ...]) -> Any:
    return item.values() if isinstance(item, dict) else item


def _sorted_by_utf16(value: Any) -> Any:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: name.encode("utf-16-be"))
        return {name: _sorted_by_utf16(value[name]) for name in names}
    if isinstance(value, list):
        return [_sorted_by_utf16(item) for item in value]
    return value


def _iter_differing_paths(path: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before | after:
            child = f"{path}/{_pointer_token(name)}"
            if name in before and name in after:
                yield from _iter_differing_paths(child, before[name], after[name])
            else:
                yield child
    elif isinstance(before, list) and isinstance(after, list):
        for index, (left, right) in enumerate(zip(before, after, strict=False)):
            yield from _iter_differing_paths(f"{path}/{index}", left, right)
        for index in range(*sorted((len(before), len(after)))):
            yield f"{path}/{index}"
    # Types are compared as well, because True == 1 in Python.
    elif type(before) is not type(after) or before != after:
        yield path


def _pointer_token(name: str) -> str:
    if len(name) > PATH_NAME_CHARS_MAX:
        name = name[:PATH_NAME_CHARS_MAX] + "…"
    return name.replace("~", "~0").replace("/", "~1")
