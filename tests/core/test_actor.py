"""Rules of actors."""

import msgspec
import pytest

from onejob.core.errors import Invalid
from onejob.core.identity import Actor, ActorKind


def test_an_actor_is_read_as_it_is_written() -> None:
    for text, actor in [
        ("user:42", Actor.user("42")),
        ("client:api_key_abc", Actor.client("api_key_abc")),
        ("system:sweep", Actor.system("sweep")),
        ("user:auth0|a:b", Actor.user("auth0|a:b")),
        ("user:Zoë 😀", Actor.user("Zoë 😀")),
    ]:
        assert str(actor) == text
        assert Actor.parse(text) == actor
        assert hash(Actor.parse(text)) == hash(actor)


def test_two_kinds_with_one_name_are_two_actors() -> None:
    assert len({Actor.user("a"), Actor.client("a"), Actor.system("a")}) == 3


def test_an_unknown_kind_is_refused() -> None:
    for text in ["", "42", "user", "root:1", "User:42", " user:42", ":42"]:
        with pytest.raises(Invalid) as caught:
            Actor.parse(text)
        assert caught.value.what == "actor"


def test_a_name_has_1_to_200_printable_characters() -> None:
    assert Actor.user("é" * 200).name == "é" * 200
    for name in ["", "x" * 201, "a\n", "\x00", "\x7f", "\x85", "a\u2028b", "a\u202eb", "\ud800"]:
        with pytest.raises(Invalid):
            Actor.user(name)
        with pytest.raises(Invalid):
            Actor.parse(f"user:{name}")


def test_an_untyped_caller_makes_no_actor_of_another_shape() -> None:
    for kind, name in [("user", "42"), (ActorKind.USER, 42), (ActorKind.USER, None)]:
        with pytest.raises(Invalid):
            Actor(kind, name)  # type: ignore[arg-type]  # what untyped callers do


def test_an_actor_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Actor.user("42").name = "43"  # type: ignore[misc]  # that is the point


def test_an_actor_survives_storage_and_a_forged_one_does_not() -> None:
    stored = msgspec.json.encode(Actor.user("42"))
    assert msgspec.json.decode(stored, type=Actor) == Actor.user("42")
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"kind":"user","name":"a\\nb"}', type=Actor)
