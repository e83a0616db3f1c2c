"""Rules of ids, nonces, holders and generated keys."""

import copy
import os
import pickle
import uuid
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob import ids
from onejob.clock import SystemClock
from onejob.core.errors import Invalid
from onejob.core.identity import format_job_id, parse_job_id
from onejob.core.key import SEQUENCE_MAX, IdempotencyKey
from onejob.ids import (
    Ids,
    KeyGenerator,
    SeededIds,
    SystemIds,
    new_holder,
    new_job_id,
    new_nonce,
    new_request_id,
)


def test_a_job_id_is_a_uuid_of_version_7_with_the_time_in_front() -> None:
    clock = SystemClock()
    before = clock.wall_ms()
    drawn = uuid.UUID(bytes=new_job_id())
    assert drawn.version == 7
    assert drawn.variant == uuid.RFC_4122
    # A counter that has run ahead may be a little in the future.
    assert before <= drawn.int >> 80 <= clock.wall_ms() + 1_000


def test_job_ids_only_grow() -> None:
    drawn = [new_job_id() for _ in range(20_000)]
    assert drawn == sorted(set(drawn))


def test_job_ids_grow_within_one_millisecond_and_when_the_wall_clock_steps_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_ns = 1_800_000_000_000_000_000
    monkeypatch.setattr(ids, "_last_stamp", 0)
    monkeypatch.setattr(ids, "_wall_ns", lambda: now_ns)
    drawn = [new_job_id() for _ in range(10_000)]
    now_ns -= 3_600_000_000_000
    drawn += [new_job_id() for _ in range(10_000)]
    assert drawn == sorted(set(drawn))
    # 20,000 ids in a standing millisecond borrow from the next ones, and no more than they must.
    assert int.from_bytes(drawn[-1][:6], "big") - 1_800_000_000_000 <= 5
    assert all(uuid.UUID(bytes=job_id).version == 7 for job_id in drawn)


def test_threads_never_share_a_job_id() -> None:
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: [new_job_id() for _ in range(2_000)], range(8)))
    assert len({job_id for some in drawn for job_id in some}) == 16_000
    assert all(some == sorted(some) for some in drawn)


def test_a_forked_child_draws_other_job_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ids, "_wall_ns", lambda: 1_800_000_000_000_000_000)
    monkeypatch.setattr(ids, "_last_stamp", 0)
    new_job_id()
    theirs = in_child(lambda: b"".join(new_job_id() for _ in range(100)))
    ours = {new_job_id() for _ in range(100)}
    assert len(theirs) == 1_600
    assert ours.isdisjoint(theirs[at : at + 16] for at in range(0, 1_600, 16))


def test_a_copy_of_the_machine_draws_other_job_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have the same memory, the same process id and, by bad luck, the same millisecond."""
    now_ns = 1_800_000_000_000_000_000
    monkeypatch.setattr(ids, "_wall_ns", lambda: now_ns)
    monkeypatch.setattr(ids, "_pool_owner", (0, 0))
    monkeypatch.setattr(ids, "_last_stamp", 0)
    new_job_id()
    pool, owner, stamp = list(ids._pool), ids._pool_owner, ids._last_stamp
    assert len(pool) == ids._POOL_IDS - 1

    def draw_in_copy(*, later_ns: int) -> list[bytes]:
        nonlocal now_ns
        for name, value in {"_pool": iter(pool), "_pool_owner": owner, "_last_stamp": stamp}.items():
            monkeypatch.setattr(ids, name, value)
        now_ns = 1_800_000_000_000_000_000 + later_ns
        return [new_job_id() for _ in pool]

    copies = [draw_in_copy(later_ns=later_ns) for later_ns in (1, 2, 1_000_001, 1_000_002)]
    assert len({job_id for drawn in copies for job_id in drawn}) == 4 * len(pool)
    # From the next millisecond on, not a bit comes from the pool that both have.
    used = {id[8:] for id in copies[2]}
    assert used.isdisjoint(
        (0x8000_0000_0000_0000 | (tail ^ now_ns) & ids._TAIL_MASK).to_bytes(8, "big") for tail, _ in pool
    )


def test_bits_that_another_process_drew_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that was forked without Python's knowledge has the pool of its parent."""
    monkeypatch.setattr(ids, "_wall_ns", lambda: 1_800_000_000_000_000_000)
    monkeypatch.setattr(ids, "_pool_owner", (0, 0))
    monkeypatch.setattr(ids, "_last_stamp", 0)
    new_job_id()
    left = list(ids._pool)
    monkeypatch.setattr(ids, "_pool", iter(left))
    monkeypatch.setattr(os, "getpid", lambda: 1)
    new_job_id()
    assert list(ids._pool) != left[1:]


def test_a_fork_while_a_thread_draws_leaves_the_child_able_to_draw() -> None:
    with ids._lock:
        assert len(in_child(new_job_id)) == 16


def test_nonces_and_holders_are_drawn_anew() -> None:
    assert len({new_nonce() for _ in range(1_000)}) == len({new_holder() for _ in range(1_000)}) == 1_000
    assert IdempotencyKey("c", 1, new_nonce())
    assert len(new_holder()) == 16


def test_request_ids_never_repeat_and_a_child_draws_its_own() -> None:
    drawn = [new_request_id() for _ in range(3 * ids.REQUEST_IDS_PER_DRAW)]
    assert len(set(drawn)) == len(drawn)
    assert all(len(one) == 16 and int(one, 16) >= 0 for one in drawn)
    left = set(ids._request_ids)
    assert in_child(lambda: new_request_id().encode()).decode() not in left


def test_system_and_seeded_ids_have_one_shape() -> None:
    sources: list[Ids] = [SystemIds(), SeededIds(Random(1))]
    for source in sources:
        first, second = source.job_id(), source.job_id()
        assert first < second
        assert uuid.UUID(bytes=first).version == 7
        assert uuid.UUID(bytes=first).variant == uuid.RFC_4122
        assert len(source.holder()) == 16
        assert IdempotencyKey("c", 1, source.nonce())


def test_one_seed_gives_the_same_names_again() -> None:
    def drawn(seed: int) -> list[object]:
        source = SeededIds(Random(seed))
        return [name for _ in range(50) for name in (source.job_id(), source.holder(), source.nonce())]

    assert drawn(7) == drawn(7)
    assert set(drawn(7)).isdisjoint(drawn(8))


@given(st.binary(min_size=16, max_size=16))
def test_a_job_id_is_read_as_it_was_written(job_id: bytes) -> None:
    text = format_job_id(job_id)
    assert text == str(uuid.UUID(bytes=job_id))
    assert parse_job_id(text) == parse_job_id(text.upper()) == job_id


def test_a_malformed_job_id_is_refused() -> None:
    good = format_job_id(new_job_id())
    wrong = [
        "",
        good[:-1],
        good + "0",
        good.replace("-", ""),
        "{" + good + "}",
        good[:-1] + "g",
        " " + good[1:],
    ]
    wrong += [good + "\n", good[:-1] + "\uff11", good.replace("-", " "), "urn:uuid:" + good, "-" * 36]
    for text in wrong:
        with pytest.raises(Invalid) as caught:
            parse_job_id(text)
        assert caught.value.what == "job id"


def test_a_generator_counts_from_its_first_number_under_one_nonce() -> None:
    keys = KeyGenerator("host1.dc1:12345", first=41)
    first, second = next(keys), next(keys)
    assert (first.client_id, first.sequence, second.sequence) == ("host1.dc1:12345", 41, 42)
    assert first.nonce == second.nonce
    assert [key.sequence for key, _ in zip(KeyGenerator("c"), range(3), strict=False)] == [1, 2, 3]


def test_a_restarted_client_repeats_no_key() -> None:
    def life() -> set[IdempotencyKey]:
        keys = KeyGenerator("c")
        return {next(keys) for _ in range(100)}

    assert len(set.union(*(life() for _ in range(50)))) == 5_000


def test_a_forked_child_repeats_no_key_and_neither_does_its_parent() -> None:
    keys = KeyGenerator("c")
    before = next(keys)
    theirs = in_child(lambda: "\n".join(str(next(keys)) for _ in range(3)).encode()).decode().split("\n")
    ours = [next(keys) for _ in range(3)]
    assert {key.nonce for key in ours} == {before.nonce}
    children = [IdempotencyKey.parse(text) for text in theirs]
    assert len({key.nonce for key in children} - {before.nonce}) == 1
    assert [key.sequence for key in children] == [2, 3, 4]


def test_threads_never_share_a_generated_key() -> None:
    keys = KeyGenerator("c")
    with ThreadPoolExecutor(8) as pool:
        drawn = list(pool.map(lambda _: [next(keys) for _ in range(1_000)], range(8)))
    assert sorted(key.sequence for some in drawn for key in some) == list(range(1, 8_001))


def test_a_generator_cannot_be_copied() -> None:
    keys = KeyGenerator("c")
    ways: list[Callable[[object], object]] = [copy.copy, copy.deepcopy, pickle.dumps]
    for duplicate in ways:
        with pytest.raises(TypeError, match="repeat its keys"):
            duplicate(keys)


def test_a_generator_that_could_not_go_on_is_refused_at_once() -> None:
    for client_id in ["", "a\n", "c" * 220]:
        with pytest.raises(Invalid):
            KeyGenerator(client_id)
    for first in [0, -1, True, 2**64, 1.0]:
        with pytest.raises(Invalid):
            KeyGenerator("c", first=first)  # type: ignore[arg-type]  # what untyped callers do


def test_a_generator_ends_loudly_at_the_last_number() -> None:
    keys = KeyGenerator("c", first=SEQUENCE_MAX)
    assert next(keys).sequence == SEQUENCE_MAX
    with pytest.raises(Invalid):
        next(keys)


def in_child(work: Callable[[], bytes]) -> bytes:
    """Fork, do the work in the child, and bring back what it made."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Python 3.12 warns of threads that other tests' tools may have started.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        try:
            os.write(writer, work())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        made = pipe.read()
    os.waitpid(pid, 0)
    return made
