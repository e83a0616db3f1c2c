"""Rules of keys."""

import pickle
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onejob.core.errors import Invalid
from onejob.core.key import KEY_CHARS_MAX, SEQUENCE_MAX, IdempotencyKey, checked_key

UUID = "0190163d-8694-739b-aea5-966c26f8ad91"
NONCE = "a1b2c3d4e5f60718"


def test_an_ordinary_key_is_itself() -> None:
    for key in [
        "charge-ORD-123",
        "a",
        " ",
        'with "quotes" and \\',
        "ключ",
        "鍵😀",
        "é",
        "e\u0301",
        "Case",
        "x" * 255,
    ]:
        assert checked_key(key) == key


def test_keys_are_compared_byte_for_byte() -> None:
    assert checked_key("Order-1") != checked_key("order-1")
    assert checked_key("é") != checked_key("e\u0301")
    assert checked_key("k ") != checked_key("k")


def test_a_uuid_in_any_case_is_the_same_uuid() -> None:
    assert checked_key(UUID.upper()) == checked_key(UUID.title()) == checked_key(UUID) == UUID


def test_the_uuid_of_a_broken_generator_is_refused() -> None:
    nil = "00000000-0000-0000-0000-000000000000"
    with pytest.raises(Invalid, match="nil UUID"):
        checked_key(nil)
    for near in (nil[:-1] + "1", nil.replace("-", ""), nil + "0"):
        assert checked_key(near) == near


def test_what_only_resembles_a_uuid_keeps_its_case() -> None:
    upper = UUID.upper()
    near = [upper.replace("-", ""), "{" + upper + "}", "urn:uuid:" + upper, upper + "0", upper[:-1] + "G"]
    near += [
        upper.replace("-", "_"),
        upper[:-1] + "\uff11",
        upper[1:9] + upper[0] + upper[9:],
        " " + upper[1:],
    ]
    for key in near:
        assert checked_key(key) == key


def test_a_key_has_1_to_255_characters() -> None:
    assert KEY_CHARS_MAX == 255
    for key in ["", "x" * 256, "é" * 256]:
        with pytest.raises(Invalid, match="1 to 255") as caught:
            checked_key(key)
        assert caught.value.what == "key"
    assert checked_key("😀" * 255) == "😀" * 255


def test_control_characters_are_refused_anywhere_in_a_key() -> None:
    controls = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == "Cc"]
    assert len(controls) == 65
    for control in controls:
        for key in [control, f"a{control}", f"{control}é", f"é{control}b", UUID[:-1] + control]:
            with pytest.raises(Invalid, match="control character"):
                checked_key(key)


def test_lone_surrogates_are_refused() -> None:
    for key in ["\ud800", "a\udfff", "\udc00\ud800"]:
        with pytest.raises(Invalid, match="surrogate"):
            checked_key(key)


def test_what_is_no_string_is_no_key() -> None:
    for key in [None, 5, b"key", ["key"], True]:
        with pytest.raises(Invalid, match="string"):
            checked_key(key)  # type: ignore[arg-type]  # what untyped callers do
    assert checked_key(IdempotencyKey("c", 1, NONCE)) == f"c:1:{NONCE}"


@given(st.text(min_size=1, max_size=300))
def test_a_checked_key_checks_to_itself_and_has_a_utf8_form(text: str) -> None:
    try:
        key = checked_key(text)
    except Invalid:
        assert len(text) > 255 or any(unicodedata.category(char) in {"Cc", "Cs"} for char in text)
    else:
        assert checked_key(key) == key
        assert key.encode()
        assert key.lower() == text.lower()


def test_a_structured_key_is_written_as_client_sequence_nonce() -> None:
    key = IdempotencyKey("host1.dc1:12345", 42, NONCE)
    assert str(key) == f"host1.dc1:12345:42:{NONCE}"
    assert checked_key(str(key)) == str(key)


def test_a_structured_key_is_read_from_the_right() -> None:
    key = IdempotencyKey.parse(f"a:b::7:c:1:{NONCE}")
    assert key == IdempotencyKey("a:b::7:c", 1, NONCE)
    assert IdempotencyKey.parse(f":1:{NONCE}:2:{NONCE}").client_id == f":1:{NONCE}"


def test_equal_keys_hash_alike_and_a_key_cannot_be_changed() -> None:
    key = IdempotencyKey("c", 1, NONCE.upper())
    assert key == IdempotencyKey("c", 1, NONCE)
    assert len({key, IdempotencyKey("c", 1, NONCE), IdempotencyKey("c", 2, NONCE)}) == 2
    with pytest.raises(AttributeError):
        key.sequence = 2  # type: ignore[misc]  # that is the point
    assert pickle.loads(pickle.dumps(key)) == key


def test_a_nonce_is_16_hex_characters_in_lower_case() -> None:
    assert IdempotencyKey.parse(f"c:1:{NONCE.upper()}").nonce == NONCE
    for nonce in [
        "",
        NONCE[1:],
        NONCE + "0",
        NONCE[1:] + "g",
        NONCE[1:] + "\uff11",
        f" {NONCE[1:]}",
        "a1b2c3d4e5f6g7h8",
    ]:
        with pytest.raises(Invalid, match="nonce"):
            IdempotencyKey("c", 1, nonce)


def test_a_sequence_is_a_whole_number_from_1_to_64_bits() -> None:
    assert IdempotencyKey("c", SEQUENCE_MAX, NONCE).sequence == 2**64 - 1
    for sequence in [0, -1, 2**64, True, False, 1.0, 1.5, "1", None]:
        with pytest.raises(Invalid, match="sequence"):
            IdempotencyKey("c", sequence, NONCE)  # type: ignore[arg-type]  # what untyped callers do


def test_a_sequence_has_one_spelling() -> None:
    assert IdempotencyKey.parse(f"c:{SEQUENCE_MAX}:{NONCE}").sequence == SEQUENCE_MAX
    for text in [
        "01",
        "+1",
        "-1",
        "0",
        "",
        " 1",
        "1 ",
        "1_0",
        "1.0",
        "1e0",
        "\u0661",
        "\uff11",
        "0x1",
        "9" * 30,
        str(2**64),
    ]:
        with pytest.raises(Invalid, match="sequence"):
            IdempotencyKey.parse(f"c:{text}:{NONCE}")


def test_a_structured_key_has_all_its_parts() -> None:
    for text in ["", "c", f"1:{NONCE}", f":1:{NONCE}", "c:1:", "c:1", UUID, "::", f"c\n:1:{NONCE}"]:
        with pytest.raises(Invalid):
            IdempotencyKey.parse(text)


def test_a_structured_key_is_itself_a_valid_key() -> None:
    longest = 255 - len(f":1:{NONCE}")
    assert len(str(IdempotencyKey("c" * longest, 1, NONCE))) == 255
    for client_id in ["c" * (longest + 1), "", "a\x00", "\ud800"]:
        with pytest.raises(Invalid):
            IdempotencyKey(client_id, 1, NONCE)


@given(st.text(min_size=1, max_size=200), st.integers(1, SEQUENCE_MAX), st.binary(min_size=8, max_size=8))
def test_a_structured_key_is_read_as_it_was_written(client_id: str, sequence: int, nonce: bytes) -> None:
    try:
        key = IdempotencyKey(client_id, sequence, nonce.hex())
    except Invalid:
        assert any(unicodedata.category(char) in {"Cc", "Cs"} for char in client_id)
    else:
        assert IdempotencyKey.parse(str(key)) == key
