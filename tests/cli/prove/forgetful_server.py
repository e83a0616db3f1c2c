"""`onejob serve` on a store that forgets: every second batch is acknowledged and not stored."""

import itertools
import sys

from onejob.cli import main
from onejob.engines.codec import RowChanges
from onejob.engines.sqlite import SqliteStore

batches = itertools.count(1)
save = SqliteStore.save


def forget_some(store: SqliteStore, changes: RowChanges) -> None:
    if next(batches) % 2:
        save(store, changes)


if __name__ == "__main__":
    setattr(SqliteStore, "save", forget_some)  # noqa: B010 - the bug
    sys.exit(main(sys.argv[1:]))
