"""What travels between gates and managers: a change of it is noticed here, and must be one that the version before survives."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import NODEFAULT, Struct, msgpack

from onejob.core.command import CommandBase, Precondition
from onejob.core.facts import KINDS, Attachment, JobSpec, KeyConflict
from onejob.core.quota import KeyLimit
from onejob.core.replies import Defect, Found, Missing, Reason, Refused, Reply
from onejob.core.sites import SiteAnswer, SiteTargets
from onejob.core.submit import ExternalJob
from onejob.core.work import Finish, FinishOutcome, Resolution, Resolve
from onejob.engine import Backlog, JobCount, LiveKeyCount, Query, ReadyCount
from onejob.engines.remote.codec import COMMANDS, QUERIES, REPLIES, Malformed, WireCodec
from onejob.engines.remote.messages import UnsupportedCommand
from onejob.errors import FactsLocked, Unavailable, Unknown

FORMAT_FILE = Path(__file__).parent / "wire_format.txt"
NESTED: tuple[type[Struct], ...] = (
    JobSpec,
    ExternalJob,
    Precondition,
    KeyLimit,
    *KINDS,
    KeyConflict,
    Attachment,
    Backlog,
    JobCount,
    ReadyCount,
    LiveKeyCount,
    SiteTargets,
    SiteAnswer,
)


def describe(kind: type[Struct]) -> str:
    fields = []
    for field in msgspec.structs.fields(kind):
        default = "" if field.default is NODEFAULT else f"={field.default!r}"
        fields.append(f"{field.encode_name}{default}")
    return f"{kind.__struct_config__.tag or kind.__name__}({', '.join(fields)})"


def all_below(kind: type[Any]) -> set[type[Any]]:
    own = {one for one in kind.__subclasses__() if one.__module__.startswith("onejob.")}
    return own | {deeper for one in own for deeper in all_below(one)}


def test_the_format_of_the_wire_is_the_one_on_record() -> None:
    """To change it: new fields have defaults, defaults never change, nothing is renamed or removed. Then write the file anew."""
    lines = [describe(kind) for kind in (*COMMANDS, *QUERIES, *REPLIES, *NESTED)]
    assert "\n".join(lines) + "\n" == FORMAT_FILE.read_text(encoding="utf-8")


@pytest.mark.parametrize(("base", "known"), [(CommandBase, COMMANDS), (Query, QUERIES), (Reply, REPLIES)])
def test_everything_that_can_be_sent_is_on_the_list(base: type[Any], known: tuple[type[Struct], ...]) -> None:
    # The suite's own commands, and replies that never leave the ledger.
    elsewhere = ("onejob.conformance", "onejob.ledger")
    shipped = {one for one in all_below(base) if not one.__module__.startswith(elsewhere)}
    concrete = {one for one in shipped if base is not CommandBase or hasattr(one, "decide")}
    assert concrete == set(known)


def test_names_are_unique() -> None:
    for kinds in (COMMANDS, QUERIES, REPLIES):
        names = [kind.__struct_config__.tag for kind in kinds]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", [*COMMANDS, *QUERIES, JobSpec, Precondition, KeyLimit], ids=lambda kind: kind.__name__)
def test_what_is_executed_is_decoded_strictly_and_sent_without_defaults(kind: type[Struct]) -> None:
    assert kind.__struct_config__.forbid_unknown_fields
    assert kind.__struct_config__.omit_defaults


CODEC = WireCodec()


def test_a_command_with_an_unknown_field_is_refused_alone() -> None:
    good = {"is": "LookUpJob", "tenant": "t", "job_id": b"1" * 16}
    bad = [good | {"newer": 1}, {"is": "Newer", "tenant": "t"}, {"is": "LookUpJob"}, 7, good | {"tenant": 1}]
    decoded = CODEC.decode_commands(msgpack.encode([good, *bad, good]))
    assert [type(one).__name__ for one in decoded] == ["LookUpJob", *["UnsupportedCommand"] * len(bad), "LookUpJob"]


def test_an_unknown_field_inside_a_command_is_refused_too() -> None:
    submit = {"is": "Submit", "tenant": "t", "job_id": b"1" * 16, "actor": "a", "user": "u"}
    precondition = {"policy_id": b"p", "expected_body": b"b", "newer": True}
    (decoded,) = CODEC.decode_commands(msgpack.encode([submit | {"precondition": precondition}]))
    assert isinstance(decoded, UnsupportedCommand)


@pytest.mark.parametrize("data", [b"", b"\xc1", b"\x93\x01", msgpack.encode({"a": 1}), b"R" * 100])
def test_bytes_that_are_no_batch_are_malformed(data: bytes) -> None:
    with pytest.raises(Malformed):
        CODEC.decode_commands(data)


class NewerReply(Reply, frozen=True, tag="NewerReply"):
    at: int


class NewerMissing(Reply, frozen=True, tag="Missing"):
    at: int
    more: str = "field"


def test_a_reply_of_a_newer_version_is_answered_to_an_older_gate_in_its_own() -> None:
    newer = WireCodec(replies=(*REPLIES, NewerReply), replies_since={NewerReply: 2})
    assert isinstance(CODEC.decode_results(newer.encode_results([NewerReply(1)], 1))[0], Defect)
    assert isinstance(newer.decode_results(newer.encode_results([NewerReply(1)], 2))[0], NewerReply)


def test_an_unknown_field_of_a_reply_is_ignored_and_an_unknown_reply_is_an_unknown_outcome() -> None:
    results = CODEC.decode_results(msgpack.encode([NewerMissing(1), NewerReply(1), Missing(2)]))
    assert [type(one) for one in results] == [Missing, Unknown, Missing]


def test_each_failure_keeps_its_meaning() -> None:
    results = CODEC.decode_results(
        CODEC.encode_results([Unavailable("a"), FactsLocked("b"), Unknown("c"), OSError("d")])
    )
    assert [type(one) for one in results] == [Unavailable, FactsLocked, Unknown, Unknown]


def test_free_text_is_cleaned_where_a_command_is_made() -> None:
    finish = Finish(
        tenant="t", job_id=b"1" * 16, token=1, holder=b"h", outcome=FinishOutcome.FAILED, error="a\ud800\x00", actor="a"
    )
    resolve = Resolve(tenant="t", job_id=b"1" * 16, actor="a", resolution=Resolution.FAILED, note="\udfff")
    assert (finish.error, resolve.note) == ("a\ufffd\ufffd", "\ufffd")
    sent: list[Any] = CODEC.decode_commands(CODEC.encode_commands((finish, resolve)))
    assert sent == [
        finish,
        resolve,
    ]


def test_every_reply_is_read_back() -> None:
    samples: list[Any] = [Missing(1), Found(None, None, 2), Refused(Reason.STALE, "m", 3, {"a": 1, "b": "x"})]
    assert CODEC.decode_results(msgpack.encode(samples)) == samples
