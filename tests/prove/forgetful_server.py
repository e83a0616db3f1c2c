"""`onejob serve` on a store that forgets: now and then a batch is acknowledged and not stored."""

import itertools
import sys

from onejob.cli import main
from onejob.engines.sqlite import SqliteStore

FORGETS_EVERY = 4
batches = itertools.count(1)
commit = SqliteStore._commit


def forget_some(store: SqliteStore) -> None:
    if next(batches) % FORGETS_EVERY:
        commit(store)
    else:
        store.rollback()


if __name__ == "__main__":
    setattr(SqliteStore, "_commit", forget_some)  # noqa: B010 - the bug
    sys.exit(main(sys.argv[1:]))
