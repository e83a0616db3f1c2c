"""API keys: which texts are keys, and which secrets are valid when."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from onejob.core import credentials
from onejob.core.credentials import (
    ApiKey,
    ParsedApiKey,
    Role,
    api_key_policy_name,
    is_valid_secret,
    new_api_key,
    parse_api_key,
    revoked_api_key,
    rotated_api_key,
)
from onejob.core.errors import Invalid
from onejob.core.identity import FORBIDDEN_CHARACTERS, TYPE_QUEUE_SCOPE

NOW, HOUR = 1_000_000_000_000, 3_600_000
OLD, NEW, NEWEST = "o" * 43, "n" * 43, "N" * 43
ID = "0123456789ab"


def a_key(**changes: Any) -> ApiKey:
    plain = new_api_key(
        id=ID, name="ci", user="", roles=frozenset({Role.SUBMITTER}), secret=OLD, by="client:local", now=NOW
    )
    return replace(plain, **changes)


def test_the_user_of_an_unbound_key_fits_into_a_name() -> None:
    make = {"id": ID, "roles": frozenset({Role.SUBMITTER}), "secret": OLD, "by": "client:local", "now": NOW}
    assert new_api_key(name="n" * 92, user="", **make).name == "n" * 92  # type: ignore[arg-type]  # of many types
    assert new_api_key(name="n" * 100, user="ann", **make).user == "ann"  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="92"):
        new_api_key(name="n" * 93, user="", **make)  # type: ignore[arg-type]


tenants = st.text(min_size=1, max_size=100).filter(
    lambda text: not FORBIDDEN_CHARACTERS.search(text) and text != TYPE_QUEUE_SCOPE
)


@given(tenant=tenants, id=st.from_regex(r"[0-9a-f]{12}", fullmatch=True))
def test_a_text_is_read_as_it_was_written(tenant: str, id: str) -> None:
    text = ParsedApiKey(tenant, id, NEW)
    assert len(str(text)) <= credentials.API_KEY_CHARS_MAX
    assert str(text).isascii()
    assert parse_api_key(str(text)) == text


@given(text=st.text(max_size=700) | st.from_regex(r"oj_[\w-]{1,9}\.[0-9a-f]{12}\.[\w-]{43}", fullmatch=True))
def test_no_other_text_means_the_same_key(text: str) -> None:
    read = parse_api_key(text)
    assert read is None or str(read) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "oj_",
        f"YWNtZQ.{ID}.{NEW}",
        f"oj_YWNtZQ_{ID}_{NEW}",
        f"oj_YWNtZQ==.{ID}.{NEW}",
        f"oj_YWNtZR.{ID}.{NEW}",  # spare bits set: another spelling of acme
        f"oj_YWNtZ.{ID}.{NEW}",  # no length that base64 has
        f"oj_.{ID}.{NEW}",
        f"oj__w.{ID}.{NEW}",  # not UTF-8
        f"oj_Cg.{ID}.{NEW}",  # a tenant of one line feed
        f"oj_YWNtZQ.{ID.upper()}.{NEW}",
        f"oj_YWNtZQ.{ID}.{NEW}x",
        f"oj_YWNtZQ.{ID}.{NEW[1:]}",
        f"oj_YWNtZQ.{ID}.{NEW}\n",
        f"oj_{'YWFh' * 200}.{ID}.{NEW}",
    ],
)
def test_a_malformed_text_is_no_key(text: str) -> None:
    assert parse_api_key(text) is None


def test_only_its_own_secret_opens_a_key_and_nothing_opens_none() -> None:
    assert is_valid_secret(a_key(), OLD, NOW)
    assert not is_valid_secret(a_key(), NEW, NOW)
    assert not is_valid_secret(a_key(), "", NOW)
    assert not is_valid_secret(None, OLD, NOW)
    assert not is_valid_secret(None, "", NOW), "the dummy secret is never valid"


def test_a_stored_key_has_nothing_of_its_secret() -> None:
    assert OLD.encode() not in credentials.encode_api_key(a_key())
    assert credentials.decode_api_key(credentials.encode_api_key(a_key())) == a_key()


def test_after_a_rotation_the_old_secret_opens_for_the_overlap_and_the_key_stays_who_it_is() -> None:
    key = rotated_api_key(a_key(), NEW, overlap_ms=HOUR, now=NOW)
    assert (key.id, key.name, key.user, key.roles) == (ID, "ci", "", (Role.SUBMITTER,))
    assert is_valid_secret(key, NEW, NOW)
    assert is_valid_secret(key, OLD, NOW)
    assert is_valid_secret(key, OLD, NOW + HOUR)
    assert not is_valid_secret(key, OLD, NOW + HOUR + 1)
    assert is_valid_secret(key, NEW, NOW + HOUR + 1)


def test_a_rotation_without_overlap_shuts_the_old_secret_at_once() -> None:
    key = rotated_api_key(a_key(), NEW, overlap_ms=0, now=NOW)
    assert is_valid_secret(key, NEW, NOW)
    assert not is_valid_secret(key, OLD, NOW)
    assert not is_valid_secret(
        rotated_api_key(rotated_api_key(a_key(), NEW, overlap_ms=HOUR, now=NOW), NEWEST, overlap_ms=0, now=NOW),
        OLD,
        NOW,
    )


def test_a_repeated_rotation_leaves_the_secret_that_clients_know() -> None:
    lost = rotated_api_key(a_key(), "nobody got it", overlap_ms=HOUR, now=NOW)
    key = rotated_api_key(lost, NEW, overlap_ms=2 * HOUR, now=NOW + 1)
    assert is_valid_secret(key, NEW, NOW + 1)
    assert [is_valid_secret(key, OLD, NOW + HOUR + ms) for ms in (0, 1)] == [True, False]


def test_a_shorter_overlap_shortens_the_earlier_ones() -> None:
    key = rotated_api_key(a_key(), NEW, overlap_ms=HOUR, now=NOW)
    key = rotated_api_key(key, NEWEST, overlap_ms=1000, now=NOW)
    assert [is_valid_secret(key, secret, NOW + 1001) for secret in (OLD, NEW, NEWEST)] == [False, False, True]


def test_expired_secrets_and_the_oldest_of_too_many_are_removed() -> None:
    key = rotated_api_key(a_key(), NEW, overlap_ms=HOUR, now=NOW)
    assert len(rotated_api_key(key, NEWEST, overlap_ms=HOUR, now=NOW + HOUR + 1).secrets) == 2
    for n in range(5):
        key = rotated_api_key(key, f"{n}", overlap_ms=HOUR, now=NOW)
    assert len(key.secrets) == credentials.SECRETS_MAX
    assert [is_valid_secret(key, f"{n}", NOW) for n in range(5)] == [False, True, True, True, True]


def test_a_revoked_key_is_shut_for_good() -> None:
    key = revoked_api_key(rotated_api_key(a_key(), NEW, overlap_ms=HOUR, now=NOW), by="user:ann", now=NOW)
    assert not is_valid_secret(key, OLD, NOW)
    assert not is_valid_secret(key, NEW, NOW)
    assert revoked_api_key(key, by="user:bob", now=NOW + 1) == key, "the first revocation stays on record"
    with pytest.raises(Invalid, match="revoked"):
        rotated_api_key(key, NEWEST, overlap_ms=0, now=NOW)


@pytest.mark.parametrize("overlap_ms", [-1, credentials.ROTATION_OVERLAP_MS_MAX + 1])
def test_an_overlap_is_bounded(overlap_ms: int) -> None:
    with pytest.raises(Invalid, match="90 days"):
        rotated_api_key(a_key(), NEW, overlap_ms=overlap_ms, now=NOW)


@pytest.mark.parametrize(
    "changes", [{"name": ""}, {"name": "a\nb"}, {"name": "x" * 101}, {"user": "\x00"}, {"roles": frozenset()}]
)
def test_a_key_that_cannot_be_meant_is_not_made(changes: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"name": "ci", "user": "", "roles": frozenset({Role.WORKER})}
    with pytest.raises(Invalid):
        new_api_key(id=ID, secret=OLD, by="client:local", now=NOW, **(plain | changes))


@pytest.mark.parametrize("id", ["", "x", ID.upper(), ID + "0", ID + "\n"])
def test_the_id_of_a_key_has_one_form(id: str) -> None:
    with pytest.raises(Invalid, match="12 hex"):
        api_key_policy_name(id)
    assert api_key_policy_name(ID).startswith(credentials.API_KEY_POLICY_PREFIX)
