"""Every state and every legal move of keys and jobs, as tables; no other file decides what is legal.

A record:  PENDING ──commit──▶ COMMITTED      A job:  preparing ▶ pending ▶ running ▶ success
              │ ╲──reject──▶ REJECTED                     scheduled ──╯         ├──▶ failed
              ╰─fail, take over─▶ PENDING                 any live ──cancel──▶ cancelled
                                                          running ──lose──▶ lost
"""

from enum import StrEnum


class IdempotencyStatus(StrEnum):
    PENDING = "pending"
    COMMITTED = "committed"
    REJECTED = "rejected"


class RecordMove(StrEnum):
    RENEW = "renew"
    TAKE_OVER = "take_over"
    COMMIT = "commit"
    REJECT = "reject"
    FAIL = "fail"


class JobState(StrEnum):
    PREPARING = "preparing"
    SCHEDULED = "scheduled"
    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


class Move(StrEnum):
    COMMIT = "commit"  # the submission is settled: the job is ready
    SCHEDULE = "schedule"  # the job is ready later: at its run_at, or after a delay or backoff
    REJECT = "reject"  # the submission is rejected for good
    ABANDON = "abandon"  # the key expired before the preparation was finished
    CLAIM = "claim"
    START = "start"
    EXTEND = "extend"
    REVIVE = "revive"  # the holder of an expired lease reports before anybody else has claimed the job
    RELEASE = "release"  # given back, or the lease expired with attempts left
    SUCCEED = "succeed"
    FAIL = "fail"
    LOSE = "lose"  # the lease of an at-most-once job expired after its start
    CANCEL = "cancel"
    RERUN = "rerun"  # by an operator


class SlotState(StrEnum):
    """Of a reservation. Expiry is not a state: it follows from the time."""

    ACTIVE = "active"
    CONSUMED = "consumed"
    RELEASED = "released"


class Delivery(StrEnum):
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


class IllegalMove(Exception):
    """A move that is not in the tables: a bug in the caller."""


_P, _C, _R = IdempotencyStatus.PENDING, IdempotencyStatus.COMMITTED, IdempotencyStatus.REJECTED

RECORD_MOVES: dict[IdempotencyStatus, dict[RecordMove, IdempotencyStatus]] = {
    _P: {
        RecordMove.RENEW: _P,
        RecordMove.TAKE_OVER: _P,
        RecordMove.COMMIT: _C,
        RecordMove.REJECT: _R,
        RecordMove.FAIL: _P,
    },
    _C: {},
    _R: {},
}

JOB_MOVES: dict[JobState, dict[Move, JobState]] = {
    JobState.PREPARING: {
        Move.COMMIT: JobState.PENDING,
        Move.SCHEDULE: JobState.SCHEDULED,
        Move.REJECT: JobState.FAILED,
        Move.ABANDON: JobState.FAILED,
        Move.CANCEL: JobState.CANCELLED,
    },
    JobState.SCHEDULED: {Move.CLAIM: JobState.PENDING, Move.CANCEL: JobState.CANCELLED},
    JobState.PENDING: {
        Move.CLAIM: JobState.PENDING,
        Move.START: JobState.RUNNING,
        Move.EXTEND: JobState.PENDING,
        Move.REVIVE: JobState.RUNNING,
        Move.RELEASE: JobState.PENDING,
        Move.SCHEDULE: JobState.SCHEDULED,
        Move.CANCEL: JobState.CANCELLED,
    },
    JobState.RUNNING: {
        Move.EXTEND: JobState.RUNNING,
        Move.RELEASE: JobState.PENDING,
        Move.SCHEDULE: JobState.SCHEDULED,
        Move.SUCCEED: JobState.SUCCESS,
        Move.FAIL: JobState.FAILED,
        Move.LOSE: JobState.LOST,
        Move.CANCEL: JobState.CANCELLED,
    },
    JobState.LOST: {Move.SUCCEED: JobState.SUCCESS, Move.FAIL: JobState.FAILED, Move.RERUN: JobState.PENDING},
    JobState.FAILED: {Move.RERUN: JobState.PENDING},
    JobState.SUCCESS: {},
    JobState.CANCELLED: {},
}

# States from which a job can be claimed, if its run_at has passed and no lease is running.
CLAIMABLE_STATES = frozenset(state for state, moves in JOB_MOVES.items() if Move.CLAIM in moves)

# States without a slot, in which no worker can change the job.
ENDED_STATES = frozenset({JobState.SUCCESS, JobState.FAILED, JobState.CANCELLED, JobState.LOST})

# States without a legal move: an answer that shows one may be served from a cache.
IMMUTABLE_STATES = frozenset(state for state, moves in JOB_MOVES.items() if not moves)


def is_allowed(state: JobState, move: Move) -> bool:
    return move in JOB_MOVES[state]


def state_after(state: JobState, move: Move) -> JobState:
    try:
        return JOB_MOVES[state][move]
    except KeyError:
        raise IllegalMove(f"a {state} job cannot {move}") from None


def status_after(status: IdempotencyStatus, move: RecordMove) -> IdempotencyStatus:
    try:
        return RECORD_MOVES[status][move]
    except KeyError:
        raise IllegalMove(f"a {status} record cannot {move}") from None
