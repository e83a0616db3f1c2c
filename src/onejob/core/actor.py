"""Actors: who did it, as the server derived it from the credential."""

import re
from enum import StrEnum
from typing import Final, Self, final

from msgspec import Struct

from onejob.core.invalid import Invalid

ACTOR_NAME_CHARS_MAX: Final = 200

# Controls, line and paragraph separators, direction overrides, lone surrogates: whatever could forge a line
# of a log. Spelled out rather than asked of str.isprintable, whose answer changes with Python's Unicode
# tables: an actor that one process has stored must be readable by all.
FORBIDDEN_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class ActorKind(StrEnum):
    USER = "user"
    CLIENT = "client"
    SYSTEM = "system"


@final
class Actor(Struct, frozen=True):
    """Who acted: `user:42`, `client:api_key_abc`, `system:sweep`."""

    kind: ActorKind
    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.kind, ActorKind):
            raise Invalid("actor", "the kind of an actor is user, client or system; choose one")
        if not isinstance(self.name, str) or not 0 < len(self.name) <= ACTOR_NAME_CHARS_MAX:
            raise Invalid(
                "actor", f"the name of an actor has 1 to {ACTOR_NAME_CHARS_MAX} characters; give one"
            )
        if FORBIDDEN_CHARACTERS.search(self.name):
            raise Invalid("actor", "the name of an actor has only printable characters; clean it")

    @classmethod
    def user(cls, name: str) -> Self:
        return cls(ActorKind.USER, name)

    @classmethod
    def client(cls, name: str) -> Self:
        return cls(ActorKind.CLIENT, name)

    @classmethod
    def system(cls, name: str) -> Self:
        return cls(ActorKind.SYSTEM, name)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `kind:name`; the name may contain colons."""
        written, _, name = text.partition(":")
        try:
            kind = ActorKind(written)
        except ValueError as error:
            next_act = "an actor is user:NAME, client:NAME or system:NAME; write one of these"
            raise Invalid("actor", next_act) from error
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"
