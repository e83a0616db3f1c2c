"""Rules of identities: nothing collides, names are one namespace, and ordered keys stay ordered."""

from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onejob.core.errors import Invalid
from onejob.core.identity import (
    GLOBAL_SCOPE,
    NAME_CHARS_MAX,
    TYPE_QUEUE_SCOPE,
    checked_name,
    policy_id,
    record_id,
    resolve_scope,
    stream_id,
    tenant_prefix,
    usage_id,
)

# What could be mistaken for a boundary: separators, the bytes of the prefixes, parts that continue each other.
PARTS = st.lists(
    st.sampled_from(["a", "b", "ab", ":", "/", "|", " ", "::", "\x00", "\x01", "\xff", "é", "😀", "record"]),
    max_size=5,
).map("".join)
KEYS = st.one_of(PARTS, st.sampled_from(["k" * n for n in (31, 32, 33, 63, 64, 65, 255)]))
PLACES = st.tuples(PARTS, PARTS, KEYS, PARTS)  # tenant, scope, key, owner


@settings(deadline=None, max_examples=300)
@given(st.lists(PLACES, min_size=2, max_size=40, unique=True))
def test_no_two_tenants_scopes_keys_or_owners_share_a_record(places: list[tuple[str, str, str, str]]) -> None:
    assert len({record_id(*place) for place in places}) == len(places)


def test_a_separator_moves_no_border() -> None:
    parts = ["a:b:c:d", "a::b:c", "abcd", "a/b", "", ":"]
    places = set(product(parts, repeat=4))
    assert len({record_id(*place) for place in places}) == len(places)


@pytest.mark.parametrize("letter", ["k", "é", "😀"])
def test_a_long_key_does_not_collide_with_a_short_one(letter: str) -> None:
    keys = [letter * n for n in range(1, 256)]
    ids = [record_id("t", "s", key) for key in keys]
    assert len(set(ids)) == len(keys)
    assert max(map(len, ids)) <= 24 + 1 + 64
    # Neither does a short key that is spelled like the digest of a long one.
    assert len({id[25:] for id in ids}) == len(keys)
    assert {id[24] for id, key in zip(ids, keys, strict=True) if len(key.encode()) <= 64} == {0}
    assert {id[24] for id, key in zip(ids, keys, strict=True) if len(key.encode()) > 64} == {1}


def test_two_long_keys_differ_by_their_last_character() -> None:
    assert record_id("t", "s", "k" * 254 + "a") != record_id("t", "s", "k" * 254 + "b")


def test_keys_are_compared_byte_for_byte() -> None:
    spellings = ["Order", "order", "order ", "é", "e\u0301", "ｏrder"]
    assert all(record_id("t", "s", a) != record_id("t", "s", b) for a, b in combinations(spellings, 2))


def test_an_owner_separates_keys_and_none_shares_them() -> None:
    shared, anns, bobs = (record_id("t", "s", "k", owner) for owner in ("", "ann", "bob"))
    assert len({shared, anns, bobs}) == 3
    assert shared == record_id("t", "s", "k")


def test_other_facts_are_kept_apart_by_all_their_parts() -> None:
    ids = [
        *(stream_id(*place) for place in product(["a", "ab", "a:b"], ["b", "bc", ""], ["c", "b:c", ""])),
        *(usage_id(*place) for place in product(["a", "ab"], ["b", "bc"])),
        *(policy_id(*place) for place in product(["a", "ab"], ["b", "bc"])),
    ]
    assert len(set(ids)) == len(ids)


def test_a_tenants_facts_are_one_range() -> None:
    ids = [
        record_id("acme", "s", "k"),
        record_id("acme", "s", "k" * 99, "ann"),
        stream_id("acme", "s", "c"),
        usage_id("acme", "ann"),
        policy_id("acme", "limits"),
    ]
    assert all(id.startswith(tenant_prefix("acme")) for id in ids)
    assert not any(id.startswith(tenant_prefix("acme2")) for id in ids)


@given(st.lists(st.text("0123456789abcdef-", min_size=1, max_size=64), min_size=2, max_size=20))
def test_ordered_keys_give_ordered_identities(keys: list[str]) -> None:
    assert sorted(keys) == sorted(keys, key=lambda key: record_id("t", "s", key))


# Scopes and names


def test_the_scope_is_the_type_unless_said_and_both_are_one_namespace() -> None:
    assert resolve_scope("charge", None) == "charge"
    assert resolve_scope("refund", "charge") == "charge"
    assert record_id("t", resolve_scope("charge", None), "k") == record_id("t", resolve_scope("x", "charge"), "k")


def test_the_global_scope_is_shared_by_all_types_and_a_type_of_its_name_is_kept_apart() -> None:
    assert resolve_scope("charge", "queue") == resolve_scope("queue", "queue") == GLOBAL_SCOPE == "queue"
    assert resolve_scope("queue", None) == TYPE_QUEUE_SCOPE
    assert record_id("t", resolve_scope("queue", None), "k") != record_id("t", resolve_scope("charge", "queue"), "k")


@pytest.mark.parametrize("what", ["tenant", "user", "type", "scope"])
def test_the_reserved_name_cannot_be_taken(what: str) -> None:
    with pytest.raises(Invalid, match="reserved") as caught:
        checked_name(what, TYPE_QUEUE_SCOPE)
    assert caught.value.what == what
    with pytest.raises(Invalid, match="reserved"):
        resolve_scope("charge", TYPE_QUEUE_SCOPE)


@pytest.mark.parametrize(
    "name", ["", "x" * (NAME_CHARS_MAX + 1), "a\nb", "a\x00", "\x7f", "\ud800", "\u2028", "\u202e"]
)
def test_a_name_that_is_empty_long_or_unprintable_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="1 to 100 printable"):
        checked_name("scope", name)


@pytest.mark.parametrize("name", ["a", "x" * NAME_CHARS_MAX, "with space", "a:b/c", "ключ", "type:queues"])
def test_an_ordinary_name_is_itself(name: str) -> None:
    assert checked_name("type", name) == name
