"""The ledger for callers without an event loop has the same methods and the same answers."""

import inspect
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from types import ModuleType

import pytest

import onejob
from onejob.ledger.base import runtime_of


def test_every_method_of_the_ledger_is_there() -> None:
    names = {name for name in dir(onejob.Ledger) if name[0] != "_" and callable(getattr(onejob.Ledger, name))}
    there = {name for name in vars(onejob.sync.SyncLedger) if not name.startswith("_")}
    names -= {"prepare", "replay_now"}  # for servers, which answer in an event loop
    assert names - {"aclose", "for_caller"} <= there
    for name in names - {"aclose", "acting_as", "for_caller"}:
        ours, theirs = getattr(onejob.sync.SyncLedger, name), getattr(onejob.Ledger, name)
        assert inspect.signature(ours) == inspect.signature(theirs)


def test_threads_share_one_ledger(durable_url: str) -> None:
    with onejob.sync.open(durable_url) as queue, ThreadPoolExecutor(32) as threads:
        receipts = list(threads.map(lambda n: queue.submit("t", n % 10, idempotency_key=str(n % 10)), range(200)))
        assert len({receipt.job_id for receipt in receipts}) == 10
        assert len(queue.jobs()) == 10
        assert sum(receipt.created for receipt in receipts) == 10
        assert queue.admin.cache_stats().total == 10


def test_statistics_are_those_of_the_ledger() -> None:
    with onejob.sync.open("memory://") as queue:
        queue.submit("t", idempotency_key="k")
        assert queue.admin.cache_stats().committed == 1
        assert queue.admin.runtime_stats().gate == queue.admin.cache_stats()


def test_errors_come_through_and_opening_fails_cleanly(tmp_path: Path) -> None:
    with onejob.sync.open("memory://") as queue:
        queue.submit("t", 1, idempotency_key="k")
        with pytest.raises(onejob.IdempotencyConflict):
            queue.submit("t", 2, idempotency_key="k")
    with pytest.raises(onejob.Invalid):
        onejob.sync.open("mysql://nowhere")
    (tmp_path / "not.db").write_bytes(b"this is not a database, but it is long enough to look at" * 100)
    with pytest.raises(onejob.StoreRefused):
        onejob.sync.open(f"sqlite:///{tmp_path / 'not.db'}")


def test_a_submission_is_still_there_after_a_restart(durable_url: str) -> None:
    with onejob.sync.open(durable_url) as queue:
        first = queue.submit("t", {"a": [1, 2.5, None]}, idempotency_key="k")
    with onejob.sync.open(durable_url) as queue:
        again = queue.submit("t", {"a": [1, 2.5, None]}, idempotency_key="k")
        assert again.job_id == first.job_id
        assert again.expires_at == first.expires_at


def test_a_forked_child_must_open_its_own_ledger(durable_url: str) -> None:
    with onejob.sync.open(durable_url) as queue:
        queue.submit("t", idempotency_key="k")
        child = os.fork()
        if child == 0:
            status = 0
            try:
                queue.submit("t", idempotency_key="k")
            except onejob.Unavailable:
                status = 7
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_the_module_is_there_without_an_import_of_its_own() -> None:
    program = "import onejob; print(onejob.sync.open('memory://').submit('t').outcome)"
    assert (
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
        == "created\n"
    )


def test_a_closed_ledger_says_so() -> None:
    queue = onejob.sync.open("memory://")
    other = queue.acting_as(tenant="t", user="u", actor=onejob.Actor.client("c"))
    held = queue.check_or_reserve("t", idempotency_key="held")
    assert isinstance(held, onejob.HeldKey)
    queue.close()
    queue.close()
    for call in (
        queue.jobs,
        other.jobs,
        lambda: queue.submit("t"),
        lambda: queue.run_under_lease(held, lambda: b""),
        onejob.sync.SyncApiKeys(queue).list,
    ):
        with pytest.raises(onejob.Unavailable, match="this ledger is closed: nothing was done"):
            call()


def test_work_whose_lease_is_lost_raises_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onejob.ledger.leases.RENEWAL_PAUSE_SECONDS_MAX", 0.1)
    with onejob.sync.open("memory://") as queue:
        held = queue.check_or_reserve("t", idempotency_key="held", job=False)
        assert isinstance(held, onejob.HeldKey)

        def work() -> bytes:
            queue.fail(held)
            time.sleep(1)  # the next renewal is refused
            return b""

        with pytest.raises(onejob.LeaseLost):
            queue.run_under_lease(held, work)


def test_a_call_in_progress_ends_when_the_ledger_is_closed() -> None:
    queue = onejob.sync.open("memory://")
    job_id = queue.submit("t").job_id
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(queue.wait, job_id)
        while not runtime_of(queue.async_ledger).job_watcher.watcher_count:
            sleep(0.01)
        queue.close()
        with pytest.raises((onejob.Unavailable, onejob.Unknown), match="closed"):
            waiting.result(10)


def test_pages_can_be_iterated() -> None:
    with onejob.sync.open("memory://") as queue:
        made = [queue.submit("t", n, idempotency_key=str(n)).job_id for n in range(3)]
        jobs, keys = queue.jobs(limit=2), queue.keys(limit=2)
        assert [job.id for job in jobs] == made[:0:-1]
        assert (len(jobs), len(keys), jobs[0].has_ended) == (2, 2, False)
        assert {history.key for page in (keys, queue.keys(cursor=keys.next)) for history in page} == {"0", "1", "2"}
        assert (queue.jobs(before=jobs.next).next, queue.keys(cursor=keys.next).next) == (None, None)


@pytest.mark.parametrize(
    ("module", "function"), [("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")]
)
def test_green_threads_are_refused_before_they_block_each_other(
    monkeypatch: pytest.MonkeyPatch, module: str, function: str
) -> None:
    patched = ModuleType(module)
    setattr(patched, function, lambda name: name in ("threading", "thread"))
    monkeypatch.setitem(sys.modules, module, patched)
    with pytest.raises(onejob.errors.StoreRefused, match="gthread"):
        onejob.sync.open("memory://")
