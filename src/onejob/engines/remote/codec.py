"""Commands, queries and replies as msgpack: strict for what is executed, lenient for what is read.

A gate may be newer or older than its manager. It must never be obeyed in part, so commands and queries are refused if
the manager does not know all of them; while of a reply only what the gate knows is read.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, Union

import msgspec
from msgspec import Raw, Struct, msgpack

from onejob.core import (
    activity,
    credentials,
    lookup,
    maintenance,
    memo,
    replies,
    reserve,
    sequence,
    site_delivery,
    slots,
    submit,
    work,
)
from onejob.core.command import Command
from onejob.core.facts import KINDS, Attachment, Job, Kind
from onejob.core.replies import AnyReply, Defect
from onejob.engine import (
    Backlog,
    CountCommits,
    CountJobs,
    CountKeys,
    CountLiveKeys,
    CountReadyJobs,
    JobCount,
    ListAttachments,
    ListBacklogs,
    ListDueFacts,
    ListFacts,
    ListInputs,
    ListJobs,
    ListLeasedJobs,
    ListReadyJobs,
    LiveKeyCount,
    Page,
    Query,
    ReadyCount,
)
from onejob.errors import FactsLocked, TenantRefused, Unavailable, Unknown

from .messages import WIRE_VERSION, NotExecuted, OutcomeUnknown, UnsupportedCommand

T = TypeVar("T")
Result = AnyReply | Exception

_GENERATION_BYTES: Final = 8

COMMANDS: Final[tuple[type[Struct], ...]] = (
    submit.Submit, submit.StoreKey, reserve.Reserve, reserve.Renew, reserve.Settle, reserve.TakeOver,
    sequence.SubmitSequence, sequence.LookUpStream, sequence.Evict,
    lookup.LookUpKey, lookup.LookUpJob, lookup.LookUpAnswer, lookup.DryRun,
    credentials.LookUpPolicy, credentials.SetPolicy, credentials.DropPolicy,
    slots.LookUpUsage, slots.SetLimits, slots.ReserveSlot, slots.RenewSlot, slots.ReleaseSlot, slots.ConsumeSlot,
    slots.Reconcile, slots.Backfill,
    work.Claim, work.Start, work.Extend, work.Release, work.Finish, work.Cancel, work.Resolve,
    maintenance.Expire, maintenance.Maintain, maintenance.Forget, maintenance.Purge, maintenance.CountHits,
    maintenance.ExpirePolicy, activity.AddActivity, memo.BeginStep, memo.FinishStep, memo.LookUpMemo,
    site_delivery.CancelAtSite, site_delivery.ReportDelivery,
)  # fmt: skip
QUERIES: Final[tuple[type[Struct], ...]] = (
    ListJobs, ListFacts, ListAttachments, ListDueFacts, ListReadyJobs, ListBacklogs, ListInputs, ListLeasedJobs,
    CountJobs, CountReadyJobs, CountKeys, CountLiveKeys, CountCommits,
)  # fmt: skip
REPLIES: Final[tuple[type[Struct], ...]] = replies.AnyReply.__args__
# Replies that are newer than version 1, with the version that has them: an older gate gets a `Defect` instead.
REPLIES_SINCE: Final[Mapping[type[Any], int]] = {}

_FACT_TYPES: Final = {kind: fact for fact, kind in KINDS.items()}
_FAILURES: Final = frozenset((NotExecuted, OutcomeUnknown))
_ARRAY_LENGTH_BYTES: Final = {0xDC: 2, 0xDD: 4}  # by the first byte (the format of msgpack)
_encode = msgpack.Encoder().encode


class Malformed(Exception):
    """Bytes that no gate or manager sends."""


class WireCodec:
    """Encodes and decodes batches. `extra` types are those of tests, which have commands and replies of their own."""

    def __init__(
        self,
        *,
        commands: Sequence[type[Struct]] = COMMANDS,
        replies: Sequence[type[Struct]] = REPLIES,
        replies_since: Mapping[type[Any], int] = REPLIES_SINCE,
    ) -> None:
        self._replies_since = replies_since
        command = Union[(*commands,)]  # type: ignore[valid-type]
        answers = Union[(*replies, UnsupportedCommand, NotExecuted, OutcomeUnknown)]  # type: ignore[valid-type]
        self._decode_command = msgpack.Decoder(command).decode
        self._decode_commands = msgpack.Decoder(list[command]).decode
        self._decode_query = msgpack.Decoder(Union[QUERIES]).decode  # noqa: UP007
        self._decode_answer = msgpack.Decoder(answers).decode
        self._decode_answers = msgpack.Decoder(list[answers]).decode

    def encode_commands(self, commands: Sequence[Command[Any]]) -> bytes:
        """Raises if one has a value that cannot be sent, and that no store could hold either."""
        return _encode(commands)

    def decode_commands(self, data: bytes) -> list[Command[Any] | UnsupportedCommand]:
        try:
            commands: list[Command[Any] | UnsupportedCommand] = self._decode_commands(data)
        except msgspec.DecodeError:  # then each alone, so that one which is not understood does not stop the others
            return [self._decode_one(raw) for raw in _decode_parts(data)]
        return commands

    def _decode_one(self, raw: Raw) -> Command[Any] | UnsupportedCommand:
        try:
            command: Command[Any] = self._decode_command(raw)
        except msgspec.DecodeError as error:
            return UnsupportedCommand(f"this manager does not know all of a command ({error}); upgrade it")
        return command

    def encode_results(self, results: Sequence[Any], version: int = WIRE_VERSION) -> bytes:
        if all(self._is_sent_as_it_is(kind, version) for kind in set(map(type, results))):
            return _encode(results)
        return _encode([self._to_answer(result, version) for result in results])

    def _is_sent_as_it_is(self, kind: type[Any], version: int) -> bool:
        return not issubclass(kind, BaseException) and self._replies_since.get(kind, 0) <= version

    def _to_answer(self, result: Any, version: int) -> Any:
        match result:
            case TenantRefused():
                return NotExecuted(str(result), is_forbidden=True)
            case FactsLocked():
                return NotExecuted(str(result), is_locked=True)
            case Unavailable():
                return NotExecuted(str(result))
            case BaseException():
                return OutcomeUnknown(str(result))
        if self._replies_since.get(type(result), 0) > version:
            return Defect(f"this gate is too old for the reply {type(result).__name__}; upgrade it", retryable=True)
        return result

    def decode_results(self, data: bytes) -> list[Result | UnsupportedCommand]:
        try:
            answers: list[Any] = self._decode_answers(data)
        except msgspec.ValidationError:  # one that a newer manager made; the others can be read
            answers = [self._try_decode_answer(raw) for raw in _decode_parts(data)]
        if _FAILURES.isdisjoint(map(type, answers)):
            return answers
        return [_to_result(answer) for answer in answers]

    def _try_decode_answer(self, raw: Raw) -> Any:
        try:
            return self._decode_answer(raw)
        except msgspec.ValidationError as error:
            return OutcomeUnknown(f"the manager's reply is not known here ({error}); upgrade this program")

    def encode_query(self, query: Query[Any]) -> bytes:
        return _encode(query)

    def decode_query(self, data: bytes) -> Query[Any] | UnsupportedCommand:
        try:
            query: Query[Any] = self._decode_query(data)
        except msgspec.DecodeError as error:
            return UnsupportedCommand(f"this manager does not know all of a query ({error}); upgrade it")
        return query


def encode_page(page: Page[Any]) -> bytes:
    return _encode((page.items, page.more, page.scanned_to))


def decode_page(data: bytes, query: Query[T]) -> Page[T]:
    """The items have no tags: the query says what they are."""
    items: Any
    items, more, scanned_to = decode_struct(data, tuple[list[_item_type(query)], bool, bytes])  # type: ignore[misc]
    return Page(items, more, scanned_to)


def _item_type(query: Query[Any]) -> Any:
    match query:
        case ListFacts() | ListDueFacts():
            return _FACT_TYPES[Kind(query.kind)]
        case ListAttachments() | ListInputs():
            return Attachment
        case ListBacklogs():
            return Backlog
        case CountJobs():
            return JobCount
        case CountReadyJobs():
            return ReadyCount
        case CountKeys() | CountCommits():
            return int
        case CountLiveKeys():
            return LiveKeyCount
    return Job


def encode_struct(message: object) -> bytes:
    return _encode(message)


def decode_struct(data: bytes, kind: Any) -> Any:
    try:
        return msgpack.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise Malformed(str(error)) from error


def array_length(data: bytes) -> int:
    """How many items the array has that begins here, without decoding them."""
    first = data[0] if data else 0
    if first & 0xF0 == 0x90:
        return first & 0x0F
    width = _ARRAY_LENGTH_BYTES.get(first, 0)
    if not width or len(data) <= width:
        raise Malformed("an array is expected")
    return int.from_bytes(data[1 : 1 + width], "big")


def _decode_parts(data: bytes) -> list[Raw]:
    parts: list[Raw] = decode_struct(data, list[Raw])
    return parts


def _to_result(answer: Any) -> Result | UnsupportedCommand:
    match answer:
        case NotExecuted(message, is_locked, is_forbidden):
            if is_forbidden:
                return TenantRefused(message)
            return FactsLocked(message) if is_locked else Unavailable(message)
        case OutcomeUnknown(message):
            return Unknown(message)
    result: Result | UnsupportedCommand = answer
    return result


def add_generation(generation: int, result: bytes) -> bytes:
    """A result, after the number of commits that the manager knows."""
    return generation.to_bytes(_GENERATION_BYTES) + result


def split_generation(result: bytes) -> tuple[int, bytes]:
    return int.from_bytes(result[:_GENERATION_BYTES]), result[_GENERATION_BYTES:]
