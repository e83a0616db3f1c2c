"""Backups, restores and accepted losses that are killed before each of their file operations, and what is found then.

A program of its own, without threads: it forks a child for each run.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import onejob
from onejob.engines.sqlite import backup, schema
from onejob.errors import StoreRefused

OLD_KEYS = {f"k{n}" for n in range(20)}
NEW_KEYS = OLD_KEYS | {f"k{n}" for n in range(20, 30)}
OPERATIONS = ("close", "fsync", "ftruncate", "link", "pwrite", "remove", "rename", "replace")


def main(folder: Path) -> None:
    master = folder / "master"
    master.mkdir()
    store, copy = str(master / "a.db"), str(master / "b.db")
    run_child(lambda: asyncio.run(submit(store, sorted(OLD_KEYS))))
    backup.back_up(store, copy)
    run_child(lambda: asyncio.run(submit(store, sorted(NEW_KEYS))))
    assert os.stat(f"{store}-wal").st_size, "the last commits should be in the journal"
    found: Counter[str] = Counter()
    lossy = folder / "lossy"
    shutil.copytree(master, lossy)
    put_older_in_place(str(lossy))
    campaigns: list[tuple[str, Path, Callable[[str], None], Callable[[str], str]]] = [
        ("backup", master, back_up, examine_backup),
        ("restore", master, restore, examine_restore),
        ("restore over nothing", master, restore_over_nothing, examine_restore_over_nothing),
        ("accept", lossy, accept_loss, examine_accepted_loss),
    ]
    for name, prepared, work, examine in campaigns:
        for number in range(1, 100):
            place = folder / f"{name.replace(' ', '-')}-{number}"
            shutil.copytree(prepared, place)
            status = run_child(partial(killed_at, number, work, str(place)))
            found[f"{name}: {examine(str(place))}"] += 1
            if status == 0:
                break
        else:
            raise AssertionError(f"{name} never came to its end")
    for text, count in sorted(found.items()):
        print(count, text)


def back_up(place: str) -> None:
    backup.back_up(f"{place}/a.db", f"{place}/new.db")


def restore(place: str) -> None:
    backup.restore(f"{place}/b.db", f"{place}/a.db")


def restore_over_nothing(place: str) -> None:
    backup.restore(f"{place}/b.db", f"{place}/c.db")


def accept_loss(place: str) -> None:
    backup.accept_loss(f"{place}/a.db")


def put_older_in_place(place: str) -> None:
    shutil.move(f"{place}/a.db", f"{place}/newest.db")
    shutil.move(f"{place}/a.db-wal", f"{place}/newest.db-wal")
    Path(f"{place}/a.db-shm").unlink()
    shutil.copy(f"{place}/b.db", f"{place}/a.db")


def put_newest_back(place: str) -> None:
    for suffix in ("-wal", "-shm"):
        Path(f"{place}/a.db{suffix}").unlink(missing_ok=True)
    shutil.copy(f"{place}/newest.db", f"{place}/a.db")
    shutil.copy(f"{place}/newest.db-wal", f"{place}/a.db-wal")


async def submit(path: str, keys: list[str]) -> None:
    """Submit, and be killed with the store open."""
    ledger = await onejob.open(f"sqlite:///{path}", sweep=False)
    for key in keys:
        await ledger.submit("t", {"key": key}, idempotency_key=key)
    os.kill(os.getpid(), signal.SIGKILL)


def run_child(work: Callable[[], Any]) -> int:
    pid = os.fork()
    if not pid:
        try:
            work()
            os._exit(0)
        except BaseException:  # noqa: BLE001 - it is printed, and a forked child must end here
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in (0, -signal.SIGKILL), f"exit status {status}"
    return status


def killed_at(number: int, work: Callable[[str], Any], place: str) -> None:
    """Die before the operation with this number."""
    left = number

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def count(*args: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **options)

        return count

    for name in OPERATIONS:
        setattr(os, name, counted(getattr(os, name)))
    work(place)


def examine_backup(place: str) -> str:
    """A file that has the name is complete, and the next run succeeds whatever was left."""
    target = f"{place}/new.db"
    assert read_keys(f"{place}/a.db") == NEW_KEYS
    was_there = os.path.exists(target)
    if was_there:
        assert backup.verify_copy(target).keys == len(NEW_KEYS)
    backup.back_up(f"{place}/a.db", target, force=True)
    assert backup.verify_copy(target).keys == len(NEW_KEYS)
    assert not os.path.exists(target + backup.PARTIAL_SUFFIX)
    return "complete" if was_there else "nothing there"


def examine_restore(place: str) -> str:
    """The old store with all it had, or the restored one, or one that is refused until it is restored again."""
    store = f"{place}/a.db"
    try:
        keys = asyncio.run(open_and_read(store))
    except StoreRefused:
        assert os.path.exists(store + schema.RESTORE_NOTE_SUFFIX)
        backup.restore(f"{place}/b.db", store)
        assert asyncio.run(open_and_read(store)) == OLD_KEYS
        assert_set_aside(place)
        return "refused until it is repeated"
    if keys == OLD_KEYS:
        assert_set_aside(place)
        return "restored"
    assert keys == NEW_KEYS
    return "as before"


def examine_restore_over_nothing(place: str) -> str:
    """Nothing that was acknowledged is there, so that only the restored store may be served."""
    store = f"{place}/c.db"
    was_there = os.path.exists(store)
    if not was_there:
        backup.restore(f"{place}/b.db", store)
    assert asyncio.run(open_and_read(store)) == OLD_KEYS
    return "restored" if was_there else "nothing there"


def examine_accepted_loss(place: str) -> str:
    """Either another ledger, beside which the newest file is refused, or refused until the newest is back or it is accepted."""
    store, other = f"{place}/a.db", f"{place}-newest"
    shutil.copytree(place, other)
    put_newest_back(other)
    if is_refused(store):
        assert asyncio.run(open_and_read(f"{other}/a.db")) == NEW_KEYS
        backup.accept_loss(store)
        assert asyncio.run(open_and_read(store)) == OLD_KEYS
        return "refused until it is repeated"
    assert asyncio.run(open_and_read(store)) == OLD_KEYS
    assert is_refused(f"{other}/a.db")
    return "accepted"


def is_refused(path: str) -> bool:
    try:
        asyncio.run(open_and_read(path))
    except StoreRefused as refused:
        return "onejob restore --accept-loss" in str(refused)
    return False


def assert_set_aside(place: str) -> None:
    (aside,) = [name for name in os.listdir(place) if name.startswith("a.db.before-restore-") and name.endswith("Z")]
    assert read_keys(f"{place}/{aside}") == NEW_KEYS


async def open_and_read(path: str) -> set[str]:
    ledger = await onejob.open(f"sqlite:///{path}", sweep=False)
    await ledger.aclose()
    return read_keys(path)


def read_keys(path: str) -> set[str]:
    db = schema.connect(path)
    try:
        return {key for (key,) in db.execute("SELECT key FROM record")}
    finally:
        db.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
