"""JSON to and from typed values: Structs, dataclasses, TypedDicts, and the models of Pydantic where a caller has them.

msgspec converts all of these but models, which bring their own conversion. Pydantic is not a dependency: a model is recognised
by its methods, and the module `pydantic` is used only where the caller has loaded it.
"""

import sys
import typing
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.inspect import CustomType, DataclassType, type_info

from .errors import Invalid

_NAMED_MAX: Final = 5
_UNTYPED: Final = (Any, object, None, type(None), typing.NoReturn, typing.Never)
_INSIDE_MODEL: Final = "inside a model: "


class JsonMismatch(ValueError):
    """A JSON text that is not of the expected type: where, but not what, because the value may be confidential."""

    def __init__(self, place: str) -> None:
        super().__init__(f"at `{place}`")
        self.place = place


def to_encodable(value: Any) -> Any:
    """The `enc_hook` of msgspec: a Pydantic model as what JSON has."""
    if _is_model(type(value)):
        return value.model_dump(mode="json", by_alias=True)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def encode_safely(encoder: msgspec.json.Encoder | msgspec.msgpack.Encoder, value: object) -> bytes:
    """What `encoder.encode(value)` returns, for a value of any size.

    msgspec 0.22 crashes the process if `encode` cannot grow its buffer; `encode_into` raises MemoryError.
    """
    buffer = bytearray()
    encoder.encode_into(value, buffer)
    return bytes(buffer)


def build_json_decoder(expected: Any) -> Callable[[bytes], Any]:
    """A function from JSON text to this type, which raises JsonMismatch; Invalid if there is no such conversion."""
    expected = Any if expected is object else expected
    decoder: msgspec.json.Decoder[Any] | None = None
    classes: tuple[type, ...] = ()
    try:
        decoder = msgspec.json.Decoder(expected, dec_hook=_from_builtins)
        classes = tuple(_foreign_classes(type_info(expected)))
        problem = _name_unknown(classes)
    except (TypeError, NameError) as error:
        problem = str(error)
    if any(map(_is_model, (*classes, *_mentioned_classes(expected)))):
        # As a whole, because msgspec knows no union of models; in parts if Pydantic does not know the rest.
        decode = _build_pydantic_decoder(expected)
        if decode is not None:
            return decode
    if problem or decoder is None:
        raise Invalid("type", problem)
    return partial(_decode, decoder)


def check_encodable(declared: Any) -> None:
    """Refuse a declared type of which no value can be written as JSON."""
    if declared in _UNTYPED:
        return
    try:
        problem = _name_unknown(tuple(_foreign_classes(type_info(declared))))
    except (TypeError, NameError):
        return  # it cannot be decoded, such as a union of two Structs; its values may well be encoded
    if problem:
        raise Invalid("type", problem)


def _is_model(cls: Any) -> bool:
    """True for a Pydantic model, version 2, and for a dataclass of Pydantic, whose checks msgspec would not run."""
    return isinstance(cls, type) and hasattr(cls, "__pydantic_validator__")


def _foreign_classes(node: Any, seen: set[int] | None = None) -> Iterator[type]:
    """The classes in a described type that msgspec does not convert itself, or not as their author meant it."""
    seen = set() if seen is None else seen
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, CustomType) or (isinstance(node, DataclassType) and _is_model(node.cls)):
        yield node.cls
    elif isinstance(node, Struct):
        for name in node.__struct_fields__:
            yield from _foreign_classes(getattr(node, name), seen)
    elif isinstance(node, tuple):
        for item in node:
            yield from _foreign_classes(item, seen)


def _mentioned_classes(expected: Any) -> Iterator[Any]:
    yield expected
    for argument in typing.get_args(expected):
        yield from _mentioned_classes(argument)


def _name_unknown(classes: tuple[type, ...]) -> str:
    names = sorted({getattr(cls, "__name__", str(cls)) for cls in classes if not _is_model(cls) and cls is not object})
    return f"JSON cannot be converted to or from {', '.join(names[:_NAMED_MAX])}" if names else ""


def _build_pydantic_decoder(expected: Any) -> Callable[[bytes], Any] | None:
    """None if Pydantic does not know the whole type: a Struct that has a model, for example."""
    pydantic: Any = sys.modules["pydantic"]
    try:
        adapter = pydantic.TypeAdapter(expected)
    except (pydantic.PydanticUserError, NameError, TypeError):
        return None

    def decode(text: bytes) -> Any:
        try:
            return adapter.validate_json(text)
        except pydantic.ValidationError as error:
            raise JsonMismatch(_place_of(error)) from None

    return decode


def _from_builtins(cls: Any, value: Any) -> Any:
    """The `dec_hook` of msgspec: a model from what was decoded for it."""
    if cls is object:
        return value
    try:
        return cls.__pydantic_validator__.validate_json(msgspec.json.encode(value))
    except ValueError as error:
        raise ValueError(f"{_INSIDE_MODEL}{_place_of(error)}") from None


def _decode(decoder: "msgspec.json.Decoder[Any]", text: bytes) -> Any:
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `")
        inside = message.removeprefix(f"{_INSIDE_MODEL}$") if message.startswith(_INSIDE_MODEL) else ""
        raise JsonMismatch((place.removesuffix("`") or "$") + inside) from None


def _place_of(error: Any) -> str:
    """Where the first error of Pydantic is, as msgspec writes places."""
    location = error.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)
