"""Two tables: which requests take a key, and which responses are stored."""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache

from msgspec import Struct

from onejob.core.errors import Invalid
from onejob.core.reserve import Verdict
from onejob.ledger.parse import parse_window_ms

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
PATTERNS_MAX = 1024


class Need(StrEnum):
    REQUIRED = "required"
    OPTIONAL = "optional"
    OFF = "off"


class Rule(Struct, frozen=True):
    """`POST|PATCH /orders/*`: methods, then a path in which `*` is one segment and `**` any number of them."""

    where: str
    key: Need = Need.OPTIONAL
    window: timedelta | None = None  # None: the default of the ledger, 24 hours unless it was opened with another

    def __post_init__(self) -> None:
        methods, _ = _pattern(self.where)
        if self.key not in set(Need):
            raise Invalid("key", f"key is not one of {', '.join(Need)}; choose one")
        if self.key is not Need.OFF and methods & SAFE_METHODS:
            raise Invalid(
                "where", f"{', '.join(sorted(methods & SAFE_METHODS))} is a safe method and takes no key; remove it"
            )
        if self.window is not None:
            window_ms(self.window)

    def covers(self, method: str, path: str) -> bool:
        methods, pattern = _pattern(self.where)
        return method in methods and pattern.fullmatch(path) is not None


# By status, else by status class. A committed response is replayed; after a failed one the key may be used again.
# A 4xx is failed if it does not depend on the request alone: authentication, size, media type, rate.
VERDICTS: Mapping[int, Verdict] = {
    2: Verdict.COMMIT,
    3: Verdict.COMMIT,
    4: Verdict.COMMIT,
    5: Verdict.FAIL,
    **dict.fromkeys((401, 403, 407, 408, 413, 415, 421, 425, 429), Verdict.FAIL),
}


def verdict_of(verdicts: Mapping[int, Verdict], status: int) -> Verdict:
    return verdicts.get(status) or verdicts.get(status // 100) or Verdict.FAIL


def checked_verdicts(verdicts: Mapping[int, Verdict]) -> Mapping[int, Verdict]:
    """The default table with these rows replaced."""
    if not set(verdicts.values()) <= {Verdict.COMMIT, Verdict.FAIL}:
        raise Invalid("verdicts", "a verdict is neither COMMIT nor FAIL; choose one of these for every status")
    return {**VERDICTS, **verdicts}


@lru_cache(PATTERNS_MAX)
def window_ms(window: timedelta) -> int:
    return parse_window_ms("window", window)


@lru_cache(PATTERNS_MAX)
def _pattern(where: str) -> tuple[frozenset[str], re.Pattern[str]]:
    methods, space, path = where.partition(" ")
    if not space or not methods.replace("|", "").isalpha() or not path.startswith("/"):
        raise Invalid("where", f"{where!r} is not a rule; write methods and a path, such as 'POST|PATCH /orders/*'")
    wildcards = {"**": ".*", "*": "[^/]+"}
    parts = (wildcards.get(part, re.escape(part)) for part in re.split(r"(\*\*|\*)", path))
    return frozenset(methods.upper().split("|")), re.compile("".join(parts), re.DOTALL)


DEFAULT_RULES = (Rule("POST|PATCH /**"),)
