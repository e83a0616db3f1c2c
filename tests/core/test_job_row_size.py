"""A job row stays small, whatever script its names are written in."""

from contextlib import suppress

import msgspec
import pytest
from msgspec.structs import astuple, replace

from onejob.core.command import Facts
from onejob.core.errors import Invalid
from onejob.core.facts import JOB_ROW_BYTES_MAX, Job, new_job
from onejob.core.identity import ACTOR_NAME_CHARS_MAX as ACTOR_CHARS_MAX
from onejob.core.identity import CALLER_TEXT_BYTES_MAX, NAME_CHARS_MAX, Actor, check_caller_text_size
from onejob.core.key import KEY_CHARS_MAX
from onejob.core.replies import Extended, Reason, Refused
from onejob.core.states import JobState, Move
from onejob.core.submit import LABELS_BYTES_MAX, Submit
from onejob.core.work import PROGRESS_BYTES_MAX, VERB_KEYS_MAX, Extend, end_job, progress_bytes_max
from onejob.ledger.parse import Submission, build_submit
from onejob.ledger.work import HOLDER_BYTES_MAX
from onejob.runtime.callers import Caller

LARGE_NUMBER = 253_402_300_799_999  # the last millisecond that can be shown
JOB_ID = b"0123456789abcdef"


def submit_with_names(letter: str, *, names: int, key: int, labels: int = 0) -> Submit:
    name = letter * names
    caller = Caller(name, name, str(Actor.user(name)))
    submission = Submission(
        type=name,
        scope=name,
        idempotency_key=letter * key,
        labels={"x": "y" * labels} if labels else None,
        priority=-1000,
        max_attempts=100,
    )
    return build_submit(submission, caller, JOB_ID)


def encoded_size(job: Job) -> int:
    return len(msgspec.msgpack.encode(astuple(job)))


def largest_job(command: Submit) -> Job:
    """The job of a submission, with every number and mark at its largest, and an error that was far too long."""
    job = new_job(command, command, JobState.PREPARING, LARGE_NUMBER, keep_until=LARGE_NUMBER, due_at=LARGE_NUMBER)
    most = replace(
        job,
        run_at=LARGE_NUMBER,
        timeout_ms=LARGE_NUMBER,
        version=LARGE_NUMBER,
        token=LARGE_NUMBER,
        attempts=LARGE_NUMBER,
        cost_held=LARGE_NUMBER,
        events=LARGE_NUMBER,
    )
    error = "\N{SNOWMAN}" * 1000
    end = end_job(most, None, LARGE_NUMBER, move=Move.REJECT, actor="system:x", retention_ms=0, error=error)
    return replace(
        end.job,
        holder=b"h" * HOLDER_BYTES_MAX,
        lease_until=LARGE_NUMBER,
        usage_id=b"s" * 32,
        started_at=LARGE_NUMBER,
        logs=LARGE_NUMBER,
        finish_digest=b"s" * 8,
        verb_keys=b"k" * 7 * VERB_KEYS_MAX,
        progress="p" * progress_bytes_max(end.job),
    )


def test_the_longest_ascii_names_fit_and_so_does_the_job_row() -> None:
    labels = LABELS_BYTES_MAX - len('{"x":""}')
    job = largest_job(submit_with_names("a", names=NAME_CHARS_MAX, key=KEY_CHARS_MAX, labels=labels))
    assert len(job.labels) == LABELS_BYTES_MAX
    assert encoded_size(job) <= JOB_ROW_BYTES_MAX
    actor = str(Actor.client("a" * ACTOR_CHARS_MAX))
    name = "a" * NAME_CHARS_MAX
    chosen = (name, name, name, "a" * KEY_CHARS_MAX, actor, name)
    assert sum(map(len, chosen)) + LABELS_BYTES_MAX <= CALLER_TEXT_BYTES_MAX


@pytest.mark.parametrize("letter", ["é", "ключ"[0], "鍵", "\N{KEY}"])
def test_names_of_any_script_make_no_job_row_too_large(letter: str) -> None:
    accepted = 0
    for names in range(1, NAME_CHARS_MAX + 1, 9):
        for key in (1, 100, KEY_CHARS_MAX):
            with suppress(Invalid):
                command = submit_with_names(letter, names=names, key=key)
                accepted += 1
                assert encoded_size(largest_job(command)) <= JOB_ROW_BYTES_MAX
    assert accepted


def test_what_is_too_long_in_bytes_is_refused_by_name() -> None:
    with pytest.raises(Invalid, match=f"at most {CALLER_TEXT_BYTES_MAX} bytes in UTF-8.*shorten") as caught:
        submit_with_names("鍵", names=NAME_CHARS_MAX, key=KEY_CHARS_MAX)
    assert caught.value.what == "names"


def test_the_last_byte_counts() -> None:
    check_caller_text_size("é" * (CALLER_TEXT_BYTES_MAX // 2), labels=b"")
    with pytest.raises(Invalid):
        check_caller_text_size("é" * (CALLER_TEXT_BYTES_MAX // 2), labels=b"1")


@pytest.mark.parametrize(("names", "labels", "room"), [(10, 0, PROGRESS_BYTES_MAX), (100, 400, 300)])
def test_progress_takes_no_more_than_the_job_row_has_left(names: int, labels: int, room: int) -> None:
    command = submit_with_names("a", names=names, key=names * 2, labels=labels)
    job = new_job(command, command, JobState.PENDING, 1, keep_until=2, due_at=0)
    running = replace(job, state=JobState.RUNNING, token=1, holder=b"h", lease_until=LARGE_NUMBER)
    assert 0 < progress_bytes_max(running) <= room

    def extend_with(size: int) -> object:
        command = Extend(tenant=job.tenant, job_id=job.id, token=1, holder=b"h", progress=f'"{"p" * (size - 2)}"')
        return command.decide(Facts(jobs={job.id: running}), 5).reply

    assert isinstance(extend_with(progress_bytes_max(running)), Extended)
    refused = extend_with(progress_bytes_max(running) + 1)
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.details) == (Reason.NOT_ALLOWED, {"room": progress_bytes_max(running)})
