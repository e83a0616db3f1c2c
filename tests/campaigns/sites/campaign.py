"""A home and two sites as processes, with relays between them: lines are cut and processes killed while jobs are submitted.

Afterwards each site must have exactly the jobs that the home acknowledged, with the same ids and in the state that the home
shows; jobs that were cancelled at home are cancelled at both.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from onejob import Job, sync
from onejob.ids import SystemIds
from onejob.ledger.base import runtime_of
from onejob.manager.gate_keys import GateKeys
from onejob.sync import SyncLedger
from tests.support.manager_process import ManagerProcess
from tests.support.postgres_server import BackgroundLoop
from tests.support.raw_http import HttpResponse, Server, engine_line
from tests.support.relay import Relay, running_relay

NAMES = ("fra", "iad")
CANCEL_EVERY = 5
HEAL_SECONDS_MAX = 120.0


class Verdict(NamedTuple):
    jobs: int
    cancelled: int
    kills: int
    cuts: int
    seconds: float
    violations: list[str]


class SiteProcess:
    """A manager on a file, behind a relay: it can be killed and started again at the same address, or cut off."""

    def __init__(self, name: str, folder: Path, loop: BackgroundLoop) -> None:
        self.name = name
        self.engine = f"sqlite:///{folder / name}.db"
        with sync.open(self.engine, sweep=False) as ledger:
            keys = GateKeys(runtime_of(ledger.async_ledger).gate, SystemIds(), actor="client:campaign")
            self.key = ledger.run(keys.create("home", tenants=["default"], is_site=True)).text
        self._manager = ManagerProcess("--engine", self.engine)
        self._bind = self._manager.url.removeprefix("http://")
        self._loop = loop
        self._context = running_relay(self._manager.url)
        self.relay: Relay = loop.call(self._context.__aenter__())

    def kill_and_restart(self) -> None:
        self._manager.kill()
        self._manager.stop()  # closes its pipe
        self._manager = ManagerProcess("--engine", self.engine, bind=self._bind)

    def cut_off(self, seconds: float) -> None:
        """Requests arrive, and no answer comes back."""
        self.relay.cut_answer = lambda request: True
        time.sleep(seconds)
        self.relay.cut_answer = lambda request: False

    def freeze(self, seconds: float) -> None:
        self._manager.freeze()
        time.sleep(seconds)
        self._manager.wake()

    def close(self) -> None:
        self._loop.call(self._context.__aexit__(None, None, None))
        self._manager.stop()


class HomeProcess:
    """`onejob serve` with these sites; what it does not answer is submitted again, under the same key."""

    def __init__(self, folder: Path, sites: list[SiteProcess]) -> None:
        self._folder = folder
        self.engine = f"sqlite:///{folder / 'home'}.db"
        tables = [
            f'[sites.ledgers.{one.name}]\nmanagers = "{one.relay.url}"\ngate_key = "{one.key}"\n' for one in sites
        ]
        self._settings = engine_line(self.engine) + '[sites]\nhere = "ber"\n' + "".join(tables)
        self._server = Server(folder, self._settings)
        self._lock = threading.Lock()

    def kill_and_restart(self) -> None:
        with self._lock:
            self._server.kill()
            self._server = Server(self._folder, self._settings)

    def submit(self, n: int) -> str:
        body = {"type": "charge", "input": {"n": n}, "sites": list(NAMES)}
        return self._repeat(lambda: self._job_id(self._server.submit(f"key-{n}", body)))

    def cancel(self, job_id: str) -> None:
        path = f"/api/jobs/{job_id}/cancel"
        self._repeat(lambda: self._job_id(self._server.ask("POST", path, idempotency_key="cancel")))

    @staticmethod
    def _job_id(response: HttpResponse) -> str:
        if response.status not in (200, 202):
            raise OSError(f"{response.status}: {response.body}")
        return str(response.body["job"]["id"])

    def _repeat(self, act: Callable[[], str]) -> str:
        until = time.monotonic() + 60
        while True:
            try:
                return act()
            except (OSError, IndexError, ValueError):  # killed before, during or after it
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def close(self) -> None:
        self._server.stop()


def run_campaign(folder: Path, *, jobs: int, seed: int, pause: float, acts_min: int) -> Verdict:
    """Submit with a pause before each; at least `acts_min` kills and cuts happen."""
    begin, rng = time.monotonic(), random.Random(seed)
    with ExitStack() as stack:
        loop = stack.enter_context(BackgroundLoop())
        sites = []
        for name in NAMES:
            sites.append(SiteProcess(name, folder, loop))
            stack.callback(sites[-1].close)
        home = HomeProcess(folder, sites)
        stack.callback(home.close)
        trouble = Trouble(home, sites, rng, acts_min)
        with trouble.running():
            submitted = {n: home.submit(n) for n in _paced(range(jobs), pause)}
            cancelled = {job_id for n, job_id in submitted.items() if n % CANCEL_EVERY == 0}
            for job_id in sorted(cancelled):
                home.cancel(job_id)
        with suppress(TimeoutError):
            _wait_until_healed(home.engine, submitted, cancelled)
        violations = check(home.engine, sites, submitted, cancelled)
    seconds = time.monotonic() - begin
    return Verdict(len(submitted), len(cancelled), trouble.kills, trouble.cuts, seconds, violations)


def _paced(numbers: range, pause: float) -> Iterator[int]:
    for n in numbers:
        time.sleep(pause)
        yield n


class Trouble:
    """Kills and cuts off the sites and the home in turn, as long as it runs."""

    def __init__(self, home: HomeProcess, sites: list[SiteProcess], rng: random.Random, acts_min: int) -> None:
        fra, iad = sites
        self._acts: list[Callable[[], None]] = [
            lambda: fra.cut_off(rng.uniform(0.3, 1.5)),
            iad.kill_and_restart,
            home.kill_and_restart,
            lambda: iad.cut_off(rng.uniform(0.3, 1.5)),
            fra.kill_and_restart,
            lambda: fra.freeze(rng.uniform(0.5, 3.0)),
            home.kill_and_restart,
        ]
        self._stopped = threading.Event()
        self._acts_min = acts_min
        self.kills = self.cuts = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()

    def _run(self) -> None:
        for n in range(1_000_000):
            act = self._acts[n % len(self._acts)]
            act()
            if getattr(act, "__name__", "") == "kill_and_restart":
                self.kills += 1
            else:
                self.cuts += 1
            if self._stopped.wait(0.3) and n + 1 >= self._acts_min:
                return


def _wait_until_healed(engine: str, submitted: dict[int, str], cancelled: set[str]) -> None:
    until = time.monotonic() + HEAL_SECONDS_MAX
    with sync.open(engine, sweep=False) as ledger:
        for job_id in submitted.values():
            wanted = "cancelled" if job_id in cancelled else "pending"
            while {one.state for one in ledger.sites(job_id)} != {wanted}:
                if time.monotonic() > until:
                    raise TimeoutError
                time.sleep(0.2)


def check(engine: str, sites: list[SiteProcess], submitted: dict[int, str], cancelled: set[str]) -> list[str]:
    wrong: list[str] = []
    expected = {job_id: "cancelled" if job_id in cancelled else "pending" for job_id in submitted.values()}
    if len(expected) != len(submitted):
        wrong.append("one job for two keys")
    for site in sites:
        with sync.open(site.engine, sweep=False) as ledger:
            found = {job.id: str(job.state) for job in _all_jobs(ledger)}
            if found != expected:
                missing, strange = expected.keys() - found.keys(), found.keys() - expected.keys()
                other = [id for id in expected.keys() & found.keys() if expected[id] != found[id]]
                wrong.append(
                    f"{site.name}: {len(missing)} missing, {len(strange)} too many, {len(other)} in another state"
                )
            for n, job_id in submitted.items():
                record = ledger.explain(f"key-{n}", scope="charge")
                if record.job is None or record.job.id != job_id:
                    wrong.append(f"{site.name}: key-{n} names another job")
    with sync.open(engine, sweep=False) as ledger:
        for job_id, state in expected.items():
            shown = {one.site: (one.state, one.on_its_way) for one in ledger.sites(job_id)}
            if shown != dict.fromkeys(NAMES, (state, None)):
                wrong.append(f"the home shows {shown} for {job_id}, which is {state}")
    return wrong


def _all_jobs(ledger: SyncLedger) -> Iterator[Job]:
    before = None
    while True:
        page = ledger.jobs(limit=1000, before=before)
        yield from page
        before = page.next
        if before is None:
            return
