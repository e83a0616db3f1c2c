"""Reads responses of servers of another version.

Unknown members are ignored, an unknown value of an enum stays text, and a member that may be null may be missing.
"""

from collections.abc import Sequence
from enum import EnumType
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from msgspec import DecodeError, Raw, Struct, ValidationError, convert, json
from msgspec.structs import fields

UNREADABLE = (DecodeError, UnicodeDecodeError, RecursionError)  # what `decode_response` raises

T = TypeVar("T")


def decode_response(data: bytes, response_type: type[T]) -> T:
    try:
        return json.decode(data, type=response_type)
    except ValidationError:
        # Rare, so it may be slow: the server has another version, or the body is another one.
        converted: T = _to_type(json.decode(data), response_type)
        return converted


def _to_type(value: Any, wanted: Any) -> Any:
    """Like `msgspec.convert`, with text for unknown values of enums."""
    if get_origin(wanted) is Annotated:
        wanted = get_args(wanted)[0]
    if wanted is Raw:
        return Raw(json.encode(value))
    if isinstance(wanted, EnumType):
        text = convert(value, str)
        return wanted._value2member_map_.get(text, text)
    if isinstance(wanted, type) and issubclass(wanted, Struct):
        return _to_struct(value, wanted)
    origin, arguments = get_origin(wanted), get_args(wanted)
    if origin in (Union, UnionType) and len(arguments) == 2 and arguments[1] is NoneType:
        return None if value is None else _to_type(value, arguments[0])
    if origin in (list, tuple, Sequence) and isinstance(value, list):
        items = [_to_type(item, arguments[0]) for item in value]
        return tuple(items) if origin is tuple else items
    return convert(value, wanted)


def _to_struct(value: Any, wanted: type[Struct]) -> Struct:
    sent = convert(value, dict[str, Any])
    members = {field.name: None for field in fields(wanted) if field.required and NoneType in get_args(field.type)}
    for field in fields(wanted):
        if field.encode_name in sent:
            members[field.name] = _to_type(sent[field.encode_name], field.type)
    try:
        return wanted(**members)
    except TypeError as error:
        raise ValidationError(f"the response has no {wanted.__name__}: {error}") from None
