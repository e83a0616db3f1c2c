"""Facts as rows: the fields in their order, with what SQL cannot hold folded into what it can."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, get_type_hints

from msgspec import NODEFAULT, Struct, json
from msgspec.structs import astuple, fields

from onejob.core.batch import Changes
from onejob.core.facts import KINDS, U64, Fact, Kind, NewerFormat

_SIGNED_MAX = 2**63 - 1
_FIELDS: dict[Kind, tuple[type[Any], tuple[str, ...]]] = {
    kind: (cls, tuple(field.name for field in fields(cls))) for cls, kind in KINDS.items()
}

# The name of the table that holds each kind of fact.
TABLES = {kind: kind.name.lower() for kind in Kind}

Convert = Callable[[Any], Any]


def columns(kind: Kind) -> tuple[str, ...]:
    return _FIELDS[kind][1]


def u64_to_signed(value: int) -> int:
    """An unsigned 64-bit value as the signed integer of the same bits."""
    if not 0 <= value < 2**64:
        raise OverflowError(f"{value} is not an unsigned 64-bit integer")
    return value if value <= _SIGNED_MAX else value - 2**64


def u64_from_signed(value: int) -> int:
    return value if value >= 0 else value + 2**64


def fact_to_row(fact: Fact) -> Sequence[Any]:
    row = astuple(fact)
    converts = _TO_ROW[type(fact)]
    if not converts:
        return row
    values = list(row)
    for index, convert in converts:
        values[index] = convert(values[index])
    return values


# Submissions create these, and what they create differs only in the columns before the version.
NEW_FACT_KINDS = (Kind.RECORD, Kind.JOB)


def new_fact_columns(kind: Kind) -> tuple[str, ...]:
    """The columns in which new facts of a kind differ; the others nearly always have their defaults."""
    return columns(kind)[: columns(kind).index("version")]


def new_fact_defaults(kind: Kind) -> tuple[Any, ...]:
    """The values of all other columns."""
    cls, _ = _FIELDS[kind]
    return tuple(_DEFAULTS[cls][len(new_fact_columns(kind)) :])


def new_fact_rows(kind: Kind, facts: Iterable[Any]) -> list[tuple[Any, ...]] | None:
    """The values of `new_fact_columns`, which need no conversion; None unless all facts have the other defaults."""
    if kind not in _NEW_FACT_SHAPES:
        return None
    count, defaults = _NEW_FACT_SHAPES[kind]
    rows: list[tuple[Any, ...]] = []
    for fact in facts:
        row = astuple(fact)
        if row[count:] != defaults:
            return None
        rows.append(row[:count])
    return rows


class RowChanges(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The changes of a batch as rows. A row begins with the id of its fact."""

    inserts: dict[Kind, list[Sequence[Any]]]
    updates: dict[Kind, list[tuple[Sequence[Any], int]]]  # with the version that is replaced
    deletes: dict[Kind, list[tuple[bytes, int]]]
    attachments: list[tuple[bytes, int, int, bytes]]  # job id, kind, index, data
    trims: list[tuple[bytes, int, int]]


def to_row_changes(changes: Changes) -> RowChanges:
    return RowChanges(
        {kind: [fact_to_row(fact) for fact in facts] for kind, facts in changes.inserts.items()},
        {kind: [(fact_to_row(fact), was) for fact, was in pairs] for kind, pairs in changes.updates.items()},
        {kind: [(fact.id, was) for fact, was in pairs] for kind, pairs in changes.deletes.items()},
        [(add.job_id, int(add.kind), u64_to_signed(add.index), add.data) for add in changes.attachments],
        [(trim.job_id, int(trim.kind), u64_to_signed(trim.index)) for trim in changes.trims],
    )


def complete_row(kind: Kind, row: Sequence[Any]) -> Sequence[Any]:
    """A row of an older version, with the defaults of the fields that were added since."""
    cls, names = _FIELDS[kind]
    if len(row) == len(names):
        return row
    if len(row) > len(names):
        raise NewerFormat(f"a {cls.__name__} has fields that this program does not know; upgrade this program")
    return (*row, *_DEFAULTS[cls][len(row) :])


def check_storable(fact: Fact) -> None:
    """Refuse what no store can hold: integers beyond 64 bits, texts that have no UTF-8 form."""
    for value in fact_to_row(fact):
        if isinstance(value, str):
            value.encode()
        elif isinstance(value, int) and not -_SIGNED_MAX - 1 <= value <= _SIGNED_MAX:
            raise OverflowError(f"{value} does not fit 64 bits")


def fact_from_row(kind: Kind, row: Sequence[Any]) -> Any:
    cls, _ = _FIELDS[kind]
    values = list(row)
    try:
        for index, convert in _FROM_ROW[cls]:
            values[index] = convert(values[index])
    except (LookupError, ValueError):
        # A state, a delivery or a shape that only its writer knows: to call it a defect would be to blame the caller.
        raise NewerFormat(
            f"a {cls.__name__} holds a value that this program does not know; upgrade this program"
        ) from None
    return cls(*values)


def _conversions(hint: Any) -> tuple[Convert | None, Convert | None]:
    if hint is U64:
        return u64_to_signed, u64_from_signed
    if isinstance(hint, type) and issubclass(hint, Enum):
        return None, hint._value2member_map_.__getitem__
    if hint in (bytes, str, int):
        return None, None
    return (lambda value: json.encode(value).decode()), (lambda text: json.decode(text, type=hint))


_TO_ROW: dict[type[Any], list[tuple[int, Convert]]] = {}
_FROM_ROW: dict[type[Any], list[tuple[int, Convert]]] = {}
for _cls, _names in _FIELDS.values():
    _hints = get_type_hints(_cls)
    _both = [(index, *_conversions(_hints[name])) for index, name in enumerate(_names)]
    _TO_ROW[_cls] = [(index, to) for index, to, _ in _both if to is not None]
    _FROM_ROW[_cls] = [(index, back) for index, _, back in _both if back is not None]

# As rows; a field without a default has None, and was there from the beginning.
_DEFAULTS: dict[type[Any], list[Any]] = {}
for _cls, _names in _FIELDS.values():
    _values = [
        None if field.required else field.default_factory() if field.default is NODEFAULT else field.default
        for field in fields(_cls)
    ]
    for _index, _to in _TO_ROW[_cls]:
        if _values[_index] is not None:
            _values[_index] = _to(_values[_index])
    _DEFAULTS[_cls] = _values

_NEW_FACT_SHAPES = {kind: (len(new_fact_columns(kind)), new_fact_defaults(kind)) for kind in NEW_FACT_KINDS}
