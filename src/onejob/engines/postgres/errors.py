"""Classifies the errors of PostgreSQL, the driver and the network, and translates them with the next act."""

import asyncpg

from onejob.errors import FactsLocked, OnejobError, StoreRefused, Unavailable

SQLSTATE_STAMP_TOO_OLD = "OJ001"  # raised by onejob_stamp
SQLSTATE_ASSUMPTION_FAILED = "OJ002"
SQLSTATE_LOCK_TIMEOUT = "55P03"
SQLSTATE_STATEMENT_TIMEOUT = "57014"  # also of a statement that an operator cancelled
# The server ends this session or all sessions: a commit that was sent may have happened.
_SESSION_END_STATES = ("57P", "08", "XX", "F0", "58")
_RETRYABLE_STATES = ("40001", "40P01")
_COMMAND_ERROR_STATES = ("22", "23", "54")
_DRIVER_ERRORS = (asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, EOFError, OnejobError)
_READ_ONLY_STATE = "25006"
_ATTACHMENT_CONSTRAINT = "attachment_place"
_NEXT_ACTS = {
    "25006": "it accepts no writes: it is a standby, or was demoted; name all hosts in the URL, then retry",
    "28": "authentication failed; fix the user or the password in the URL, and pg_hba.conf",
    "3D": "the database does not exist; create it, or fix the URL",
    "3F": "the schema does not exist; create it, or run `onejob migrate`",
    "42501": "this role lacks a privilege; grant it what docs/production.md names, then retry",
    "42P01": "the tables do not exist; run `onejob migrate`",
    "42883": "the functions do not exist; run `onejob migrate`",
    "53100": "its disk is full; free some space, then retry",
    "53300": "it has no connections left; raise max_connections or use fewer processes, then retry",
    SQLSTATE_LOCK_TIMEOUT: "another transaction has held locks on the same rows for too long; retry, and see what hangs",
    SQLSTATE_STATEMENT_TIMEOUT: "a statement timed out; retry, and see what it waits for",
}


def sqlstate_of(error: BaseException) -> str:
    return getattr(error, "sqlstate", None) or ""


def is_connection_loss(error: BaseException) -> bool:
    """True if the connection is lost or ending, or leads to a server that accepts no writes."""
    if isinstance(error, asyncpg.PostgresError):
        return sqlstate_of(error).startswith(_SESSION_END_STATES) or sqlstate_of(error) == _READ_ONLY_STATE
    return isinstance(error, _DRIVER_ERRORS) and not isinstance(error, (ValueError, OnejobError))


def is_missing_table(error: BaseException) -> bool:
    """True if a table, a function or the schema is gone."""
    return sqlstate_of(error) in ("42P01", "42883", "3F000")


def is_write_conflict(error: BaseException) -> bool:
    """True for a race with another transaction: loading the facts again will show its result."""
    if isinstance(error, asyncpg.UniqueViolationError):
        return bool(error.constraint_name != _ATTACHMENT_CONSTRAINT)
    return sqlstate_of(error).startswith(_RETRYABLE_STATES)


def is_optimistic_failure(error: BaseException) -> bool:
    """True if a batch that was decided before it was sent met another one, or came too late: under locks it may succeed."""
    if isinstance(error, asyncpg.UniqueViolationError):
        return True  # of an attachment, too: another batch may have added to the same job
    return is_write_conflict(error) or sqlstate_of(error) in (SQLSTATE_STAMP_TOO_OLD, SQLSTATE_ASSUMPTION_FAILED)


def is_command_error(error: BaseException) -> bool:
    """True if a command asked for what cannot be stored, and the store itself is healthy."""
    if isinstance(error, asyncpg.PostgresError):
        return sqlstate_of(error).startswith(_COMMAND_ERROR_STATES)
    # For a value that it cannot encode, the driver raises a class that is a ValueError and an InterfaceError.
    return isinstance(error, ValueError) or not isinstance(error, _DRIVER_ERRORS)


def is_unstorable_text(error: BaseException) -> bool:
    """True for a text that PostgreSQL cannot store: with a NUL, or with a lone surrogate."""
    return sqlstate_of(error) == "22021" or isinstance(error, UnicodeEncodeError)


def is_outcome_unknown(error: BaseException) -> bool:
    """True if a commit that failed with this error may have happened all the same."""
    return not isinstance(error, asyncpg.PostgresError) or sqlstate_of(error).startswith(_SESSION_END_STATES)


def to_postgres_failure(display_url: str, error: BaseException) -> Unavailable:
    """The error for a batch that was certainly not committed."""
    state = sqlstate_of(error)
    act = next((act for begin, act in _NEXT_ACTS.items() if state.startswith(begin)), "")
    text = f"{display_url} cannot be used ({_describe(error)}): nothing was done; {act or 'fix it, then retry'}"
    if state in (SQLSTATE_LOCK_TIMEOUT, SQLSTATE_STATEMENT_TIMEOUT):  # some command of the batch waits, not all of them
        return FactsLocked(text, getattr(error, "locked_ids", ()))
    # A retry does not help; an operator must act.
    return StoreRefused(text) if state[:2] in ("28", "3D", "3F", "42") else Unavailable(text)


def to_url_error(display_url: str, error: ValueError) -> StoreRefused:
    """The error for a URL with a parameter that the driver refuses."""
    return StoreRefused(
        f"{display_url} cannot be used: a parameter of its URL is invalid ({_describe(error)}); correct it"
    )


def _describe(error: BaseException) -> str:
    """The type and the message of an error; without a message that may quote the password of a URL."""
    is_quoting = isinstance(error, ValueError) and not isinstance(error, asyncpg.InterfaceError)
    if is_quoting or "password=" in str(error).lower():
        return type(error).__name__
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
