"""`python -m tests.support.patient_server serve …`: runs `onejob` with limits on locks that no stall reaches.

On a machine with many times more work than processors, a transaction may hold its locks for longer than the 2 s that others
wait, though nothing hangs; the service then says *unavailable*, as it should. A test of contention wants to see deadlocks.
"""

import sys

_PATIENCE = {"lock_timeout": "60s", "statement_timeout": "90s", "idle_in_transaction_session_timeout": "90s"}


def be_patient() -> None:
    from onejob.engines import batcher, postgres
    from onejob.engines.postgres import connection

    assert _PATIENCE.keys() <= connection._SESSION_SETTINGS.keys()
    connection._SESSION_SETTINGS.update(_PATIENCE)
    assert (batcher.STALL_SECONDS, postgres.ANSWER_SECONDS) < (60, 60)
    batcher.STALL_SECONDS = postgres.ANSWER_SECONDS = 120.0


if __name__ == "__main__":
    be_patient()
    from onejob.cli import main

    sys.exit(main(sys.argv[1:]))
