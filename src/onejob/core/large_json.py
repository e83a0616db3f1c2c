"""The canonical form of a large JSON text, made piece by piece.

The decoder keeps the interpreter lock from the first byte to the last: a megabyte of `[[],[],…]` would stop every other
thread for 50 ms and more. So a text of many values is cut into pieces first, and each piece is canonicalized alone. Between
them `pause` is called: whoever works in a thread beside an event loop lets the others have the lock there.

1. `_find_large_containers` scans the text for brackets, strings and commas. It notes the lists and objects that are larger
   than a piece, and at which of their own commas they may be cut. A large container inside another is alone between two cuts.
2. `_render` canonicalizes what is between two cuts as a small list or object, and joins the results; the members of a large
   object are merged in their order.

Nothing is judged here but what spans pieces: depth, members of one name, and what is missing between two cuts.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Final

from msgspec import Raw
from msgspec.json import Decoder, encode

PIECE_BYTES: Final = 8 << 10

# Possessive and bounded: nothing is tried again in another way.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_SIMPLE_LEVELS: Final = 4


def _simple_container(levels: int) -> bytes:
    """The pattern of a small list or object that is nested no deeper than this."""
    inner = b"|" + _simple_container(levels - 1) if levels > 1 else b""
    return rb'[\[{](?:[^\[\]{}"]{1,256}+|' + _STRING + inner + rb"){0,64}+[\]}]"


# Whole elements, each with its comma, where they are simple; else one part of an element.
_TOKENS = re.compile(
    rb'(?P<elements>(?:(?:[^\[\]{}",]{1,256}+|'
    + _STRING
    + rb"|"
    + _simple_container(_SIMPLE_LEVELS)
    + rb"){0,8}+,){1,256}+)"
    rb"|(?P<open>[\[{])|(?P<close>[\]}])|" + _STRING + rb'|[^\[\]{}",]{1,4096}+',
    re.DOTALL,
)
_STRINGS = re.compile(_STRING, re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")
_CLOSING: Final = {ord("["): ord("]"), ord("{"): ord("}")}
_SPACE: Final = b" \t\r\n"
_MEMBERS = Decoder(dict[str, Raw])

Canonicalize = Callable[[bytes], bytes]
Pause = Callable[[], object]


def do_not_pause() -> None:
    pass


class MalformedText(ValueError):
    """The text is not JSON."""


class TooDeep(ValueError):
    """The text is nested deeper than the limit."""


class DuplicateMember(ValueError):
    """An object has two members of one name."""


class _Container:
    """An open list or object, and the positions of the commas at which it is cut."""

    __slots__ = ("cuts", "end", "large_after_cut", "last_comma", "must_cut", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = -1
        self.cuts = [start]  # its opening bracket counts as one
        self.last_comma = start
        self.must_cut = False  # at the next comma, because a large container stands before it
        self.large_after_cut: dict[int, _Container] = {}

    def note_comma(self, position: int, piece_bytes: int) -> None:
        self.last_comma = position
        if self.must_cut or position - self.cuts[-1] >= piece_bytes:
            self.cuts.append(position)
            self.must_cut = False

    def isolate(self, element: "_Container") -> None:
        """Cut before the large element that ends here, and at the next comma."""
        if self.last_comma > self.cuts[-1]:
            self.cuts.append(self.last_comma)
        self.large_after_cut.setdefault(self.cuts[-1], element)
        self.must_cut = True


def canonicalize_in_pieces(
    data: bytes,
    canonicalize: Canonicalize,
    *,
    depth_max: int,
    piece_bytes: int = PIECE_BYTES,
    pause: Pause = do_not_pause,
) -> bytes:
    """What `canonicalize(data)` would return, without one long call of the decoder."""

    def canonicalize_after_pause(piece: bytes) -> bytes:
        pause()
        return canonicalize(piece)

    root = _find_large_containers(data, depth_max, piece_bytes, pause)
    if root is None:
        return canonicalize(data)
    _refuse_text(data, 0, root.start)
    _refuse_text(data, root.end, len(data))
    return _render(data, root, canonicalize_after_pause)


def _find_large_containers(data: bytes, depth_max: int, piece_bytes: int, pause: Pause) -> _Container | None:
    """The outermost list or object, with the large ones inside; None if it is small or the text is a scalar."""
    stack: list[_Container] = []
    after_value = False
    for token in _iter_tokens(data):
        pause()
        match token.lastgroup:
            case "elements" if stack:
                if len(stack) + _SIMPLE_LEVELS > depth_max and len(stack) + _levels(token[0]) > depth_max:
                    raise TooDeep
                if stack[-1].must_cut:
                    # The token begins behind the large container, so its first comma is the next one.
                    stack[-1].note_comma(data.index(b",", token.start()), piece_bytes)
                stack[-1].note_comma(token.end() - 1, piece_bytes)
                after_value = False
            case "open":
                # Refused here, because a megabyte of [][][]… would be scanned slowly.
                if after_value:
                    raise MalformedText("a comma is missing")
                if len(stack) == depth_max:
                    raise TooDeep
                stack.append(_Container(token.start()))
            case "close":
                if not stack or data[token.start()] != _CLOSING[data[stack[-1].start]]:
                    raise MalformedText("a bracket is closed that was not opened")
                closed = stack.pop()
                closed.end = token.end()
                after_value = True
                is_large = closed.end - closed.start > piece_bytes
                if not stack:
                    return closed if is_large else None
                if is_large:
                    stack[-1].isolate(closed)
            case _ if b":" in token[0]:
                after_value = False
    if stack:
        raise MalformedText("a bracket is not closed")
    return None


def _iter_tokens(data: bytes) -> Iterator[re.Match[bytes]]:
    """The tokens of a text. Each is searched for in a window, because a match holds the interpreter lock too."""
    position = 0
    while position < len(data):
        token = _TOKENS.match(data, position, position + PIECE_BYTES) or _STRINGS.match(data, position)
        if token is None:
            raise MalformedText("a string has no end")
        yield token
        position = token.end()


def _levels(elements: bytes) -> int:
    """How deep the brackets in simple elements are nested."""
    level = deepest = 0
    for bracket in _BRACKETS.findall(_STRINGS.sub(b"", elements)):
        level += 1 if bracket in b"[{" else -1
        deepest = max(deepest, level)
    return deepest


def _render(data: bytes, container: _Container, canonicalize: Canonicalize) -> bytes:
    begins, ends = container.cuts, [*container.cuts[1:], container.end - 1]
    pieces = [(begin + 1, end, container.large_after_cut.get(begin)) for begin, end in zip(begins, ends, strict=True)]
    if len(pieces) > 1:
        for begin, end, _ in pieces:
            if not data[begin:end].strip(_SPACE):
                raise MalformedText("nothing stands before or after a comma")
    if data[container.start] == ord("["):
        return b"[" + b",".join([_render_elements(data, *piece, canonicalize) for piece in pieces]) + b"]"
    members = [_sorted_members(data, *piece, canonicalize) for piece in pieces]
    return b"{" + b",".join(_unique_members(merge(*members))) + b"}"


def _render_elements(data: bytes, begin: int, end: int, large: _Container | None, canonicalize: Canonicalize) -> bytes:
    if large is None:
        return canonicalize(b"[" + data[begin:end] + b"]")[1:-1]
    _refuse_text(data, begin, large.start)
    _refuse_text(data, large.end, end)
    return _render(data, large, canonicalize)


def _sorted_members(
    data: bytes, begin: int, end: int, large: _Container | None, canonicalize: Canonicalize
) -> list[tuple[bytes, bytes]]:
    """The members as (name in UTF-16, canonical text), in the order of their names."""
    text = data[begin:end] if large is None else data[begin : large.start] + b"null"
    members = {name: bytes(value) for name, value in _MEMBERS.decode(canonicalize(b"{" + text + b"}")).items()}
    if large is not None:
        _refuse_text(data, large.end, end)
        if len(members) != 1:
            raise MalformedText("a comma is missing")
        members = dict.fromkeys(members, _render(data, large, canonicalize))
    return sorted((name.encode("utf-16-be"), encode(name) + b":" + value) for name, value in members.items())


def _unique_members(members: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    previous = None
    for name, text in members:
        if name == previous:
            raise DuplicateMember
        previous = name
        yield text


def _refuse_text(data: bytes, begin: int, end: int) -> None:
    if data[begin:end].strip(_SPACE):
        raise MalformedText("there is text between a value and the next comma or the end")
