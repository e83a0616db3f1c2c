"""What PostgreSQL and the network complain about, in the words of the seam, with the next act."""

import asyncpg

from onejob.errors import OnejobError, StoreRefused, Unavailable

SQLSTATE_STAMP_TOO_OLD = "OJ001"  # raised by onejob_stamp
SQLSTATE_ASSUMPTION_FAILED = "OJ002"
# The server ends the session, or all of them: what it was about to commit may have been committed.
_SESSION_END_STATES = ("57P", "08", "XX", "F0", "58")
_RETRYABLE_STATES = ("40001", "40P01")
_COMMAND_ERROR_STATES = ("22", "23", "54")
_DRIVER_ERRORS = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError, OnejobError)
_READ_ONLY_STATE = "25006"
_ATTACHMENT_CONSTRAINT = "attachment_place"
_NEXT_ACTS = {
    "25006": "it takes no writes: it is a standby, or was demoted; name all hosts in the URL, then repeat",
    "28": "it does not let us in; mend the name or the password in the URL, and pg_hba.conf",
    "3D": "there is no such database; create it, or correct the URL",
    "3F": "there is no such schema; create it, or run `onejob migrate`",
    "42501": "this role may not do that; grant it what docs/production.md names, then repeat",
    "42P01": "the tables are not there; run `onejob migrate`",
    "42883": "the functions are not there; run `onejob migrate`",
    "53100": "its disk is full; make room, then repeat",
    "53300": "it has no connection left; raise max_connections or use fewer processes, then repeat",
    "55P03": "another transaction holds the same facts for too long; repeat, and see what hangs",
    "57014": "a statement took too long; repeat, and see what it waits for",
}


def sqlstate_of(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def is_connection_loss(error: BaseException) -> bool:
    """The connection is gone, or goes, or leads to a server that takes no writes."""
    if isinstance(error, asyncpg.PostgresError):
        return sqlstate_of(error).startswith(_SESSION_END_STATES) or sqlstate_of(error) == _READ_ONLY_STATE
    return isinstance(error, _DRIVER_ERRORS) and not isinstance(error, (ValueError, OnejobError))


def is_write_conflict(error: BaseException) -> bool:
    """Somebody else made the same fact at the same time, or stood in the way: what is loaded again will show it."""
    if isinstance(error, asyncpg.UniqueViolationError):
        return bool(error.constraint_name != _ATTACHMENT_CONSTRAINT)
    return sqlstate_of(error).startswith(_RETRYABLE_STATES)


def is_command_error(error: BaseException) -> bool:
    """A command asked for what cannot be stored; the store itself is well."""
    if isinstance(error, asyncpg.PostgresError):
        return sqlstate_of(error).startswith(_COMMAND_ERROR_STATES)
    # The driver calls a value that it cannot send a ValueError, and an InterfaceError as well.
    return isinstance(error, ValueError) or not isinstance(error, _DRIVER_ERRORS)


def is_unstorable_text(error: BaseException) -> bool:
    """It names a text that PostgreSQL cannot hold: with a NUL, or with half of a surrogate."""
    return sqlstate_of(error) == "22021" or isinstance(error, UnicodeEncodeError)


def is_outcome_unknown(error: BaseException) -> bool:
    """Said of what was sent to commit: whether it may have been committed all the same."""
    return not isinstance(error, asyncpg.PostgresError) or sqlstate_of(error).startswith(_SESSION_END_STATES)


def to_engine_error(display_url: str, error: BaseException) -> Unavailable:
    """Certainly not done."""
    state = sqlstate_of(error)
    act = next((act for begin, act in _NEXT_ACTS.items() if state.startswith(begin)), "")
    text = f"{display_url} cannot be used ({_describe(error)}): nothing was done; {act or 'mend it, then repeat'}"
    # What no repetition mends, only an operator.
    return StoreRefused(text) if state[:2] in ("28", "3D", "3F", "42") else Unavailable(text)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
