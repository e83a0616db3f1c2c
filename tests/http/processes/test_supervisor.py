"""The parts of the supervisor: restarts, sums of statistics, shares of a rate limit."""

import asyncio
import logging
import os
import sys
from pathlib import Path

import pytest

import onejob
from onejob import logs
from onejob.clock import FakeClock, SystemClock
from onejob.core.errors import Invalid
from onejob.core.maintenance import CountHits, Expire
from onejob.errors import Unavailable
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.http.metrics import MetricFamily, MetricSample
from onejob.http.serve import worker_count
from onejob.http.stats import ServiceStats, StatsSnapshot, counters_only, sum_snapshots
from onejob.http.worker_processes import share_of_rates
from onejob.ids import SystemIds
from onejob.ledger import Ledger
from onejob.logs import split_for_pipe
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from onejob.server import workers as restarts
from onejob.server.workers import (
    BACKOFF_SECONDS_MAX,
    STABLE_UPTIME_SECONDS,
    HangDetector,
    RestartBackoff,
    Supervisor,
    SupervisorLink,
    Totals,
    WorkerStart,
    open_listeners,
)
from tests.support.recording_engine import RecordingEngine


def test_a_worker_is_started_again_at_once_and_ever_later_if_it_keeps_dying_young() -> None:
    found = RestartBackoff(2)
    found.reset_failed_starts()
    pauses = [found.next_delay(1, uptime_seconds=0.1, ready=True) for _ in range(9)]
    assert pauses[:4] == [0.0, 0.5, 1.0, 2.0]
    assert pauses[-1] == BACKOFF_SECONDS_MAX
    assert found.next_delay(2, uptime_seconds=0.1, ready=True) == 0, "each for itself"
    assert found.next_delay(1, uptime_seconds=STABLE_UPTIME_SECONDS, ready=True) == 0, "it had recovered"
    assert not found.should_give_up


def test_it_gives_up_only_when_no_process_becomes_ready() -> None:
    found = RestartBackoff(2)
    for _ in range(restarts.FAILED_STARTS_MAX):
        assert not found.should_give_up
        found.next_delay(1, uptime_seconds=0.1, ready=False)
        found.next_delay(2, uptime_seconds=0.1, ready=False)
    assert found.should_give_up
    found.reset_failed_starts()
    assert not found.should_give_up


async def test_when_no_worker_can_be_started_it_gives_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(restarts, "BACKOFF_SECONDS_MIN", 0.001)
    with open_listeners("127.0.0.1", 0, 2) as listeners, caplog.at_level(logging.WARNING):
        failing = [sys.executable, "-c", "raise SystemExit(3)"]
        supervisor = Supervisor(failing, b"", 2, listeners, drain_seconds_max=1, on_ready=lambda: None)
        with pytest.raises(Unavailable, match="no worker could be started"):
            await asyncio.wait_for(supervisor.run(), 60)
    assert caplog.text.count("exited with code 3") == 2 * restarts.FAILED_STARTS_MAX


class WatchedWorker:
    def __init__(self, *, ready: bool = True) -> None:
        self.ready = ready
        self.last_message_at = 0.0


def test_a_worker_that_is_silent_for_ten_seconds_is_killed() -> None:
    hung, healthy = WatchedWorker(), WatchedWorker()
    detector = HangDetector[WatchedWorker](0.0)
    for second in range(1, 10):
        healthy.last_message_at = second
        assert detector.tick([hung, healthy], second) is None
    assert detector.tick([hung, healthy], 10) is hung


def test_a_worker_that_reports_late_lives() -> None:
    slow = WatchedWorker()
    detector = HangDetector[WatchedWorker](0.0)
    for second in range(1, 100):
        assert detector.tick([slow], second) is None
        if second % 9 == 0:
            slow.last_message_at = second


def test_a_worker_that_is_starting_is_not_killed() -> None:
    starting = WatchedWorker(ready=False)
    detector = HangDetector[WatchedWorker](0.0)
    assert not any(detector.tick([starting], second) for second in range(1, 100))


def test_a_pause_of_the_supervisor_does_not_count() -> None:
    worker = WatchedWorker()
    detector = HangDetector[WatchedWorker](0.0)
    for second in range(1, 10):
        detector.tick([worker], second)
    # It was stopped for a minute, and has not read the messages of that minute yet.
    assert detector.tick([worker], 70) is None
    assert not any(detector.tick([worker], second) for second in range(71, 80))
    assert detector.tick([worker], 80) is worker


def test_hung_workers_are_killed_one_at_a_time() -> None:
    workers = [WatchedWorker(), WatchedWorker()]
    detector = HangDetector[WatchedWorker](0.0)
    killed: list[int] = []
    for second in range(1, 40):
        hung = detector.tick(workers, second)
        if hung is not None:
            workers.remove(hung)
            killed.append(second)
    assert killed == [10, 20], "the second had its time again: what the first held may have been the reason"


@pytest.fixture
async def process_stats() -> StatsSnapshot:
    engine = RecordingEngine(FakeClock())
    host = Runtime(engine, onejob.IdempotencyConfig(), clock=SystemClock(), ids=SystemIds())
    ledger = Ledger(host, Caller())
    for key in ("a", "a", "b"):
        await ledger.submit("t", idempotency_key=key)
    counted = HttpApp(ledger).collect_stats(("default", "other"))
    await ledger.aclose()
    return counted


def sample_value(counted: StatsSnapshot, name: str, **labels: str) -> float:
    (found,) = [
        sample.value
        for family in counted.families
        for sample in family.samples
        if sample.name == name and sample.labels == labels
    ]
    return found


def test_counts_are_added_and_descriptions_are_not(process_stats: StatsSnapshot) -> None:
    both = sum_snapshots([process_stats, process_stats])
    assert sample_value(both, "onejob_submissions_total", outcome="created") == 4
    assert sample_value(both, "onejob_batch_commands_count", queue="write") == 2 * sample_value(
        process_stats, "onejob_batch_commands_count", queue="write"
    )
    assert both.process.outcomes["replayed"] == 2
    assert both.process.gate.limit == 2 * process_stats.process.gate.limit
    assert both.tenants["default"].outcomes == {"created": 4, "replayed": 2}
    assert both.tenants["other"].outcomes == {}
    for name in ("process_start_time_seconds", "process_max_fds"):
        assert sample_value(both, name) == sample_value(process_stats, name)
    infos = [sample for family in both.families for sample in family.samples if sample.name.endswith("_info")]
    assert {info.value for info in infos} == {1.0}


def test_of_a_process_that_ended_the_counts_stay_and_the_states_go(process_stats: StatsSnapshot) -> None:
    left = counters_only(process_stats)
    assert sample_value(left, "onejob_submissions_total", outcome="created") == 2
    assert left.process.outcomes == process_stats.process.outcomes
    assert left.process.gate.committed == 0
    assert left.process.queues["write"].commands == process_stats.process.queues["write"].commands
    names = {sample.name for family in left.families for sample in family.samples}
    assert "onejob_gate_entries" not in names
    assert "process_resident_memory_bytes" not in names


class LinkToNowhere(SupervisorLink):
    def __init__(self) -> None:
        self.totals = Totals([], [], 0, 0)

    async def collect(self, tenant: str) -> Totals:
        return self.totals


async def test_aggregated_counters_only_grow_while_processes_come_and_go(process_stats: StatsSnapshot) -> None:
    link = LinkToNowhere()
    previous, earlier, total = 0.0, b"", process_stats
    for n in range(1, 11):
        report = ServiceStats(link, earlier).report(process_stats)
        link.totals = Totals([report], [], 1, n) if n % 3 else Totals([], [report], 0, n)
        total = await ServiceStats(link, b"").collect_stats("default")
        now = sample_value(total, "onejob_submissions_total", outcome="created")
        assert now == previous + sample_value(process_stats, "onejob_submissions_total", outcome="created")
        previous, earlier = now, report
    assert len(total.families) == len(process_stats.families) + 2, "exited processes add no families"


def test_a_metric_missing_in_one_process_is_no_error(process_stats: StatsSnapshot) -> None:
    other = StatsSnapshot(
        [MetricFamily("onejob_new", "", "counter", [MetricSample("onejob_new_total", {}, 1.0)])],
        process_stats.process,
        {},
    )
    assert sample_value(sum_snapshots([process_stats, other]), "onejob_new_total") == 1


@pytest.mark.parametrize(("workers", "burst"), [(1, 20), (3, 20), (4, 20), (7, 8)])
def test_the_shares_of_a_rate_are_the_whole_rate(workers: int, burst: int) -> None:
    whole = ServiceConfig(rate_per_second=6.0, rate_burst=burst)
    shares = [share_of_rates(whole, WorkerStart(b"", number, workers, 1, 0.0, b"")) for number in range(1, workers + 1)]
    assert sum(share.rate_burst for share in shares) == burst
    assert sum(share.rate_per_second or 0.0 for share in shares) == pytest.approx(6.0)


def test_every_process_grants_something_and_no_rate_stays_no_rate() -> None:
    small = ServiceConfig(rate_per_second=1.0, rate_burst=1)
    assert {share_of_rates(small, WorkerStart(b"", n, 4, 1, 0.0, b"")).rate_burst for n in (1, 2, 3, 4)} == {1}
    assert share_of_rates(ServiceConfig(), WorkerStart(b"", 1, 4, 1, 0.0, b"")).rate_per_second is None


@pytest.mark.parametrize(("turn", "due"), [(0, 1), (1, 2), (2, 3)])
async def test_one_process_maintains_the_store_and_each_its_own_memory(turn: int, due: int) -> None:
    config = onejob.IdempotencyConfig(cleanup_interval_seconds=0.1)
    engine = RecordingEngine(FakeClock())
    host = Runtime(engine, config, clock=SystemClock(), ids=SystemIds())
    ledger = Ledger(host, Caller())
    await ledger.submit("t", idempotency_key="old")
    engine.clock.advance(10 * 86_400)
    await ledger.submit("t", idempotency_key="new")
    host.start_maintenance(process_index=turn, process_count=3)
    async with asyncio.timeout(10):
        for _ in range(1000):
            await ledger.submit("t", idempotency_key="new")  # a cache hit, which every maintenance run stores
            if engine.commands_of_type(Expire):
                break
            await asyncio.sleep(0.005)
    assert len(engine.commands_of_type(CountHits)) == due, "hits are stored before the sweep"
    await host.aclose()


def test_lines_are_written_whole_in_pieces_that_a_pipe_takes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "PIPE_WRITE_BYTES_MAX", 10)
    lines = [b"one\n", b"two\n", b"three\n", b"a line that is longer than all that\n", b"end\n"]
    found = list(split_for_pipe(b"".join(lines)))
    assert b"".join(found) == b"".join(lines)
    assert found == [b"one\ntwo\n", b"three\n", lines[3], b"end\n"]
    assert list(split_for_pipe(b"short\n")) == [b"short\n"]


def test_as_many_workers_as_there_are_cores_where_an_engine_is_shared(tmp_path: Path) -> None:
    assert worker_count(ServiceConfig(workers="auto")) == len(os.sched_getaffinity(0))
    assert worker_count(ServiceConfig(workers="auto", engine="memory://")) == 1
    assert worker_count(ServiceConfig(engine="memory://")) == 1
    with pytest.raises(Invalid, match="memory:// supports one process only"):
        ServiceConfig(workers=2, engine="memory://")
    for wrong in (0, -1, 257):
        with pytest.raises(Invalid, match="workers"):
            ServiceConfig(workers=wrong)
