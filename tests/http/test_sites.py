"""Submissions to several data centres: a home and two sites with managers on sockets, and relays between them."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.clock import FakeClock
from onejob.core.facts import Job, Kind, Record
from onejob.core.identity import SETTINGS_POLICY_NAME, SYSTEM_TENANT, format_job_id
from onejob.core.ledger_settings import changed_settings, closed_settings, encode_settings, owner_of_key
from onejob.core.sites import DELIVERY_MS_DEFAULT, Sites, site_type
from onejob.core.states import JobState
from onejob.core.submit import Submit
from onejob.engine import ListJobs
from onejob.engines.memory import MemoryEngine
from onejob.engines.remote import RemoteEngine
from onejob.errors import IdempotencyConflict, Invalid, TenantRefused
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig, SiteConfig, SitesConfig
from onejob.http.services import running_services
from onejob.http.site_delivery import SiteSender
from onejob.ids import SystemIds, new_job_id
from onejob.ledger import Ledger
from onejob.ledger.base import runtime_of
from onejob.ledger.service import ServiceLedger
from onejob.manager.gate_keys import GateKeys
from onejob.runtime import Runtime
from onejob.runtime.callers import Caller
from onejob.runtime.policies import try_set_policy
from onejob.runtime.settings import open_settings
from onejob.settings import IdempotencyConfig, exposed_secrets, load_service_config
from tests.support.app_server import Client, serve_app
from tests.support.command_line import ONEJOB
from tests.support.managers import running_manager
from tests.support.relay import Relay, running_relay

DAY = timedelta(days=1)
NAMES = ["fra", "iad"]
NOBODY = "http://127.0.0.1:1"


class Site:
    """A data centre: its store, and the line to it."""

    def __init__(self, name: str, url: str, store: MemoryEngine, relay: Relay, key: str) -> None:
        self.name = name
        self.url = url
        self.store = store
        self.relay = relay
        self.config = SiteConfig(managers=relay.url, gate_key=key)

    def jobs(self) -> dict[str, Job]:
        return {format_job_id(job.id): job for job in self.store.facts[Kind.JOB].values()}

    def ledger(self, tenant: str = "default") -> Ledger:
        """A local caller at the site."""
        runtime = Runtime(self.store, IdempotencyConfig(), clock=FakeClock(), ids=SystemIds())
        return Ledger(runtime, Caller(tenant=tenant))


class Home:
    def __init__(self, ledger: Ledger, clocks: list[FakeClock], sites: list[Site]) -> None:
        self.ledger = ledger
        self.clocks = clocks
        self.sites = sites
        runtime = runtime_of(ledger)
        self.senders = [
            SiteSender(site.name, site.config, runtime.gate, runtime.ids, retention_ms=runtime.retention_ms)
            for site in sites
        ]

    async def submit(self, key: str = "k", sites: list[str] = NAMES, **options: Any) -> str:
        receipt = await self.ledger.submit("charge", {"n": 1}, idempotency_key=key, sites=sites, **options)
        return receipt.job_id

    async def deliver(self, *, after: timedelta = timedelta(seconds=20)) -> None:
        """Let time pass, so that everything is ready, and deliver it."""
        for clock in self.clocks:
            clock.advance(after.total_seconds())
        await asyncio.gather(*(sender.deliver_ready() for sender in self.senders))

    async def states(self, job_id: str) -> dict[str, str | None]:
        return {one.site: one.state for one in await self.ledger.sites(job_id)}

    async def end(self, site: Site, job_id: str, error: str | None = None) -> None:
        """Run the job at a site."""
        (attempt,) = await site.ledger().claim("charge", start=True)
        assert format_job_id(attempt.job_row.id) == job_id
        await site.ledger().finish(attempt, error=error, final=True)


@asynccontextmanager
async def running_site(name: str, clock: FakeClock, **said: Any) -> AsyncIterator[Site]:
    store = MemoryEngine(clock=clock)
    made = await GateKeys(store, SystemIds(), actor="client:admin").create("ber", tenants=["default"], is_site=True)
    async with (
        running_manager(store, clock=clock, needs_gate_key=True, said=said) as url,
        running_relay(url) as relay,
    ):
        yield Site(name, url, store, relay, made.text)


@asynccontextmanager
async def running_home(*, off: timedelta = timedelta(0), **settings: Any) -> AsyncIterator[Home]:
    """A home and two sites; the clock of the first site is `off`."""
    clock, wrong = FakeClock(), FakeClock()
    wrong.jump_wall(round(off.total_seconds() * 1000))
    async with running_site("fra", wrong, **settings) as fra, running_site("iad", clock, **settings) as iad:
        sites = Sites(here="ber", others=("fra", "iad"))
        async with onejob.open("memory://", clock=clock, sweep=False, sites=sites) as ledger:
            home = Home(ledger, [clock, wrong], [fra, iad])
            try:
                yield home
            finally:
                for sender in home.senders:
                    await sender.aclose()


class OtherHome:
    """A data centre with a service of its own, which delivers to the other one."""

    def __init__(self, site: Site, other: Site, service: Client, sender: SiteSender, clock: FakeClock) -> None:
        self.name = site.name
        self.site = site
        self.other = other
        self.service = service
        self.url = f"http://127.0.0.1:{service.port}"
        self._sender = sender
        self._clock = clock

    async def submit(self, input: int) -> str:
        body = {"type": "charge", "input": input, "idempotencyKey": "k", "sites": NAMES}
        made = await self.service.post("/api/jobs", body)
        assert made.status == 202, made.body
        return str(made.body["job"]["id"])

    async def deliver(self) -> None:
        self._clock.advance(60)
        await self._sender.deliver_ready()

    async def row(self, job_id: str) -> dict[str, Any]:
        """What this home shows of the other one."""
        rows = (await self.service.get(f"/api/jobs/{job_id}/sites")).body["sites"]
        return next(row for row in rows if row["site"] == self.other.name)

    async def state_of_other(self, job_id: str) -> str | None:
        state: str | None = (await self.row(job_id))["state"]
        return state


@asynccontextmanager
async def two_homes() -> AsyncIterator[list[OtherHome]]:
    """Each is a site of the other, and its settings name the address of the other's service."""
    clock = FakeClock()
    async with running_site("fra", clock) as fra, running_site("iad", clock) as iad, AsyncExitStack() as stack:
        homes: list[OtherHome] = []
        urls: dict[str, str] = {}
        for site, other in ((fra, iad), (iad, fra)):
            runtime = Runtime(site.store, IdempotencyConfig(), clock=clock, ids=SystemIds())
            runtime.sites = Sites(here=site.name, others=(other.name,), urls=urls)
            service = await stack.enter_async_context(serve_app(HttpApp(Ledger(runtime, Caller()))))
            sender = SiteSender(other.name, other.config, runtime.gate, runtime.ids, retention_ms=runtime.retention_ms)
            stack.push_async_callback(sender.aclose)
            homes.append(OtherHome(site, other, service, sender, clock))
            urls[site.name] = homes[-1].url
        yield homes


async def run_cli(*words: str) -> str:
    """The output of the command line, which must succeed."""
    program = await asyncio.create_subprocess_exec(*ONEJOB, *words, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(program.communicate(), 60)
    assert program.returncode == 0, out
    return out.decode()


async def test_each_site_gets_the_same_job_once_and_the_home_follows_them() -> None:
    async with running_home() as home:
        job_id = await home.submit(labels={"a": "b"}, max_attempts=2)
        assert (await home.ledger.job(job_id)).state == "running"
        assert await home.states(job_id) == {"fra": None, "iad": None}
        await home.deliver()
        assert await home.states(job_id) == {"fra": "pending", "iad": "pending"}
        for site in home.sites:
            (job,) = site.jobs().values()
            assert (format_job_id(job.id), job.key, job.scope, job.user) == (job_id, "k", "charge", "local")
            assert (job.actor, job.attempts_max, job.usage_id, job.labels) == ("client:local", 2, b"", b'{"a":"b"}')
        await home.end(home.sites[0], job_id)
        await home.deliver()
        assert await home.states(job_id) == {"fra": "success", "iad": "pending"}
        assert (await home.ledger.job(job_id)).state == "running"
        assert await home.submit() == job_id  # a repetition at home is the same job
        await home.end(home.sites[1], job_id)
        await home.deliver()
        assert (await home.ledger.job(job_id)).state == "success"
        await home.deliver()  # nothing is left to send
        assert all(len(site.jobs()) == 1 for site in home.sites)


async def test_lost_answers_and_a_dead_line_make_no_second_job_and_delay_no_other_site() -> None:
    async with running_home() as home:
        fra, iad = home.sites
        fra.relay.cut_answer = lambda request: b"/execute" in request
        job_id = await home.submit()
        await home.deliver()
        await home.deliver()
        (first, second) = await home.ledger.sites(job_id)
        assert (first.state, first.on_its_way, second.state) == (None, "submission", "pending")
        assert first.error
        fra.relay.cut_answer = lambda request: False
        await home.deliver()
        assert await home.states(job_id) == {"fra": "pending", "iad": "pending"}
        assert list(fra.jobs()) == list(iad.jobs()) == [job_id]


async def test_a_cancel_reaches_every_site_and_one_that_overtakes_is_found_by_the_submission() -> None:
    async with running_home() as home:
        fra, iad = home.sites
        fra.relay.cut_answer = lambda request: True
        job_id = await home.submit()
        await home.deliver()
        assert iad.jobs()[job_id].state is JobState.PENDING
        await home.ledger.cancel(job_id)
        assert [one.on_its_way for one in await home.ledger.sites(job_id)] == ["cancel", "cancel"]
        fra.relay.cut_answer = lambda request: False
        await home.deliver()
        assert await home.states(job_id) == {"fra": "cancelled", "iad": "cancelled"}
        assert [one.on_its_way for one in await home.ledger.sites(job_id)] == [None, None]
        assert [site.jobs()[job_id].state for site in home.sites] == [JobState.CANCELLED] * 2
        with pytest.raises(IdempotencyConflict):  # the record is there
            await fra.ledger().submit("charge", {"n": 1}, idempotency_key="k")


async def test_a_local_job_under_the_key_is_shown_and_never_merged_or_cancelled() -> None:
    async with running_home() as home:
        fra, iad = home.sites
        local = (await fra.ledger().submit("charge", {"n": 1}, idempotency_key="k")).job_id
        job_id = await home.submit()
        await home.deliver()
        assert await home.states(job_id) == {"fra": "other job", "iad": "pending"}
        with pytest.raises(IdempotencyConflict) as conflict:
            await iad.ledger().submit("charge", {"n": 1}, idempotency_key="k")
        assert conflict.value.job_id == job_id
        await home.ledger.cancel(job_id)
        await home.deliver()
        assert {id: job.state for id, job in fra.jobs().items()} == {local: JobState.PENDING}
        assert await home.states(job_id) == {"fra": "other job", "iad": "cancelled"}


async def test_a_submission_that_differs_in_its_sites_alone_is_a_conflict_with_that_path() -> None:
    async with running_home() as home:
        await home.submit()
        await home.deliver()
        fra = home.sites[0].ledger()
        runtime_of(fra).sites = Sites(here="fra", others=("ber", "iad"))
        submissions: list[tuple[Ledger, Any, dict[str, Any], tuple[str, ...]]] = [
            (home.ledger, {"n": 1}, {}, ("/sites",)),
            (home.ledger, {"n": 1}, {"sites": ["fra"]}, ("/sites",)),
            (home.ledger, {"n": 2}, {"sites": ["fra"]}, ("/input/n",)),
            (fra, {"n": 1}, {}, ("/sites",)),
            (fra, {"n": 1}, {"sites": ["fra"]}, ("/sites",)),
        ]
        for ledger, input, options, paths in submissions:
            with pytest.raises(IdempotencyConflict) as conflict:
                await ledger.submit("charge", input, idempotency_key="k", **options)
            assert conflict.value.paths == paths


@pytest.mark.parametrize(
    ("type", "input", "options", "paths"),
    [
        ("charge", {"n": 1}, {}, ("/sites",)),
        ("charge", {"n": 2}, {}, ("/input/n",)),
        ("refund", {"n": 2, "to": "ann"}, {"scope": "charge"}, ("/type", "/input/n", "/input/to")),
    ],
)
async def test_the_home_is_told_where_the_other_job_at_a_site_differs(
    type: str, input: Any, options: dict[str, Any], paths: tuple[str, ...]
) -> None:
    async with running_home() as home:
        local = await home.sites[0].ledger().submit(type, input, idempotency_key="k", **options)
        job_id = await home.submit()
        await home.deliver()
        fra, iad = await home.ledger.sites(job_id)
        assert (fra.state, fra.other_job, fra.paths) == ("other job", local.job_id, paths)
        assert (iad.state, iad.other_job, iad.paths) == ("pending", None, ())
        assert fra.prevailing_job == min(local.job_id, job_id)
        await home.end(home.sites[1], job_id)
        await home.deliver()
        assert (await home.ledger.job(job_id)).error == f"fra: other job {local.job_id}"


async def test_the_command_cancels_the_other_job_at_its_home_whichever_site_named_it() -> None:
    async with running_home() as home:
        fra, iad = home.sites
        job_id = await home.submit(sites=["ber", *NAMES])
        other_home = iad.ledger()
        runtime_of(other_home).sites = Sites(here="iad", others=("fra",))
        other = await other_home.submit("charge", {"n": 1}, idempotency_key="k", sites=["fra", "iad"])
        assert job_id < other.job_id
        runtime = runtime_of(other_home)
        sender = SiteSender("fra", fra.config, runtime.gate, runtime.ids, retention_ms=runtime.retention_ms)
        await sender.deliver_ready()
        await sender.aclose()
        await home.deliver()
        _, *rows = await home.ledger.sites(job_id)
        assert [(one.site, one.other_job, one.cancel_at) for one in rows] == [
            (name, other.job_id, "iad") for name in NAMES
        ]


async def test_a_key_that_is_stored_at_a_site_shows_the_external_job() -> None:
    async with running_home() as home:
        await home.sites[0].ledger().store_idempotency_key("k", "ec2-77", scope="charge")
        job_id = await home.submit()
        await home.deliver()
        fra, _ = await home.ledger.sites(job_id)
        assert (fra.state, fra.other_job, fra.prevailing_job, fra.cancel_command) == ("other job", "ec2-77", None, None)


@pytest.mark.parametrize(("first", "other_input"), [(0, 1), (1, 2)], ids=["same body", "other body"])
@pytest.mark.usefixtures("clean_environment")
async def test_one_key_at_two_homes_that_were_cut_off_is_settled_by_one_command(first: int, other_input: int) -> None:
    async with two_homes() as homes:
        for home in homes:
            home.site.relay.redirect(NOBODY)
        prevailing, other = homes[first], homes[1 - first]
        small = await prevailing.submit(1)
        large = await other.submit(other_input)
        assert small < large
        await asyncio.gather(*(home.deliver() for home in homes))
        assert [await home.state_of_other(id) for home, id in ((prevailing, small), (other, large))] == [None, None]
        for home in homes:
            home.site.relay.redirect(home.site.url)
        await asyncio.gather(*(home.deliver() for home in homes))

        seen_by_prevailing, seen_by_other = await prevailing.row(small), await other.row(large)
        common = {
            "state": "other job",
            "prevailingJob": small,
            "cancelAt": other.name,
            "paths": [] if other_input == 1 else ["/input"],
        }
        assert seen_by_prevailing | common == seen_by_prevailing
        assert seen_by_other | common == seen_by_other
        assert (seen_by_prevailing["otherJob"], seen_by_other["otherJob"]) == (large, small)
        assert seen_by_prevailing["cancelCommand"] == f"onejob cancel {large} --url {other.url}"
        assert seen_by_other["cancelCommand"] == f"onejob cancel {large}"
        shown = await run_cli("job", small, "--sites", "--url", prevailing.url)
        assert f"{other.name}: the key belongs to job {large} there" in shown
        assert f"the smaller id prevails: {small}" in shown
        assert f"to cancel the other one, at {other.name}: {seen_by_prevailing['cancelCommand']}" in shown

        await run_cli(*shlex.split(seen_by_prevailing["cancelCommand"])[1:])
        assert {id: job.state for home in homes for id, job in home.site.jobs().items() if job.key} == {
            small: JobState.PENDING,
            large: JobState.CANCELLED,
        }
        assert (await other.row(large))["cancelCommand"] is None


async def test_who_repeats_the_submission_at_a_site_gets_the_same_job() -> None:
    async with running_home() as home:
        job_id = await home.submit()
        await home.deliver()
        local = home.sites[0].ledger()
        runtime_of(local).sites = Sites(here="fra", others=("ber", "iad"))
        repeated = await local.submit("charge", {"n": 1}, idempotency_key="k", sites=NAMES)
        assert (repeated.outcome, repeated.job_id) == ("replayed", job_id)


@pytest.mark.parametrize("off", [DAY, -DAY])
async def test_a_site_whose_clock_is_a_day_off_changes_nothing(off: timedelta) -> None:
    async with running_home(off=off) as home:
        job_id = await home.submit()
        await home.deliver()
        assert await home.states(job_id) == {"fra": "pending", "iad": "pending"}
        for site in home.sites:
            (record,) = site.store.facts[Kind.RECORD].values()
            assert record.expires_at - record.created_at >= 2 * DELIVERY_MS_DEFAULT
        await home.deliver(after=DAY)
        await home.ledger.cancel(job_id)
        await home.deliver()
        assert await home.states(job_id) == {"fra": "cancelled", "iad": "cancelled"}


async def test_after_three_days_without_an_answer_a_site_is_unknown_and_hears_nothing_more() -> None:
    async with running_home() as home:
        fra, _ = home.sites
        fra.relay.cut_answer = lambda request: True
        job_id = await home.submit()
        await home.deliver()
        await home.deliver(after=3 * DAY)
        assert await home.states(job_id) == {"fra": "unknown", "iad": "pending"}
        fra.relay.cut_answer = lambda request: False
        sent = len(fra.relay.requests)
        await home.deliver()
        assert len(fra.relay.requests) == sent
        await home.deliver(after=3 * DAY)
        assert await home.states(job_id) == {"fra": "unknown", "iad": "unknown"}
        job = await home.ledger.job(job_id)
        assert (job.state, job.error) == ("failed", "fra: unknown; iad: unknown")


async def test_a_credential_for_one_tenant_delivers_for_no_other() -> None:
    async with running_home() as home:
        other = ServiceLedger.of(home.ledger).for_caller(Caller(tenant="other"))
        refused = (await other.submit("charge", {"n": 1}, idempotency_key="k", sites=NAMES)).job_id
        job_id = await home.submit()
        await home.deliver()
        views = await other.sites(refused)
        assert [one.state for one in views] == ["refused", "refused"]
        assert "may not act for this tenant" in str(views[0].error)
        await home.deliver()
        assert await home.states(job_id) == {"fra": "pending", "iad": "pending"}
        assert all(list(site.jobs()) == [job_id] for site in home.sites)


async def test_the_credential_of_a_site_may_deliver_and_nothing_else() -> None:
    async with running_home() as home:
        site = home.sites[0]
        engine = await RemoteEngine.open(site.relay.url, gate_key=str(site.config.gate_key))
        ledger = Ledger(Runtime(engine, IdempotencyConfig(), clock=FakeClock(), ids=SystemIds()), Caller())
        try:
            for work in (ledger.admin.purge(), ledger.jobs(), ledger.claim("charge"), ledger.quota("ann")):
                with pytest.raises(TenantRefused):
                    await work
        finally:
            await engine.aclose()
        with pytest.raises(Invalid, match="tenants"):
            await GateKeys(site.store, SystemIds(), actor="client:a").create("x", is_site=True)


async def test_a_job_that_is_no_delivery_ends_as_failed_and_stops_no_other() -> None:
    async with running_home() as home:
        gate = runtime_of(home.ledger).gate
        for input in (b"null", b"{", b'{"site":"fra"}'):
            await gate.execute(
                [
                    Submit(
                        job_id=new_job_id(),
                        tenant="aaa",
                        type=site_type("fra"),
                        input=input,
                        actor="client:a",
                        user="u",
                    )
                ]
            )
        job_id = await home.submit()
        await home.deliver()
        assert await home.states(job_id) == {"fra": "pending", "iad": "pending"}
        page = await gate.scan(ListJobs(tenant="aaa"))
        assert [job.state for job in page.items] == [JobState.FAILED] * 3


async def test_large_inputs_are_delivered_in_several_requests() -> None:
    async with running_home() as home:
        for n in range(6):
            await home.ledger.submit("charge", "x" * 1_000_000, idempotency_key=f"k{n}", sites=["iad"])
        await home.deliver()
        assert len(home.sites[1].jobs()) == 6
        assert sum(b"/execute" in request for request in home.sites[1].relay.requests) >= 2


async def test_a_wrong_credential_is_shown_and_a_corrected_file_is_read(tmp_path: Path) -> None:
    async with running_home() as home:
        file = tmp_path / "key"
        runtime = runtime_of(home.ledger)
        config = SiteConfig(managers=home.sites[0].relay.url, gate_key_file=str(file))
        home.senders[0] = SiteSender("fra", config, runtime.gate, runtime.ids, retention_ms=0)
        job_id = await home.submit(sites=["fra"])
        await home.deliver()
        assert "No such file" in str((await home.ledger.sites(job_id))[0].error)
        file.write_text("ojg_wrong")
        await home.deliver()
        assert await home.states(job_id) == {"fra": "refused"}
        file.write_text(f"{home.sites[0].config.gate_key}\n")
        await home.deliver()
        assert await home.states(job_id) == {"fra": "pending"}


async def test_where_keys_belong_to_users_the_record_of_a_site_is_that_of_the_user() -> None:
    async with running_home(key_owner="user") as home:
        job_id = await home.submit()
        await home.deliver()
        runtime = runtime_of(home.sites[0].ledger())
        await runtime.open_settings({})
        local = Ledger(runtime, Caller())
        with pytest.raises(IdempotencyConflict) as conflict:
            await local.submit("charge", {"n": 1}, idempotency_key="k")
        assert conflict.value.job_id == job_id
        await Ledger(runtime, Caller(user="ann")).submit("charge", {"n": 1}, idempotency_key="k")


async def test_nothing_is_delivered_while_the_settings_of_a_site_are_changed() -> None:
    """Its keys were counted, so a delivery under the older owner would be one key with two jobs."""
    async with running_home() as home:
        site, name = home.sites[0], SETTINGS_POLICY_NAME
        stored = await open_settings(site.store, {})
        closed = encode_settings(closed_settings(stored.settings, stored.at, by="client:admin"))
        marker = await try_set_policy(site.store, SYSTEM_TENANT, name, closed, expected_version=stored.version)
        assert marker is not None
        job_id = await home.submit()
        await home.deliver()
        assert site.jobs() == {}
        assert list(home.sites[1].jobs()) == [job_id]
        changed = encode_settings(
            changed_settings(stored.settings, {"key_owner": "user"}, stored.at, by="client:admin")
        )
        await try_set_policy(site.store, SYSTEM_TENANT, name, changed, expected_version=marker.version)
        await home.deliver(after=timedelta(minutes=10))
        assert list(site.jobs()) == [job_id]
        (record,) = site.store.facts[Kind.RECORD].values()
        assert isinstance(record, Record)
        assert owner_of_key(record) == "user"


async def test_a_listed_home_runs_the_job_too() -> None:
    async with running_home() as home:
        job_id = await home.submit(sites=["iad", "ber"])
        await home.deliver()
        (attempt,) = await home.ledger.claim("charge", start=True)
        await home.ledger.finish(attempt)
        assert await home.states(job_id) == {"ber": "success", "iad": "pending"}
        assert not home.sites[0].jobs()
        alone = await home.submit("alone", sites=["ber"])
        assert await home.states(alone) == {}


async def test_the_members_of_a_submission_that_do_not_go_together_are_refused() -> None:
    async with running_home() as home:
        wrong: list[list[str]] = [["sfo"], [], ["fra", "fra"]]
        for names in wrong:
            with pytest.raises(Invalid, match="site"):
                await home.ledger.submit("charge", idempotency_key="k", sites=names)
        with pytest.raises(Invalid, match="key"):
            await home.ledger.submit("charge", sites=["fra"])
        with pytest.raises(Invalid, match="held key"):
            await home.ledger.reserve(onejob.Submission(type="charge", idempotency_key="k", sites=["fra"]))
        job_id = await home.submit(sites=["fra"])
        with pytest.raises(IdempotencyConflict) as conflict:
            await home.submit(sites=["iad"])
        assert conflict.value.job_id == job_id


async def test_the_service_delivers_and_shows_the_sites() -> None:
    async with running_home() as home:
        ledgers = {site.name: site.config for site in home.sites}
        config = ServiceConfig(sites=SitesConfig(here="ber", ledgers=ledgers))
        app = HttpApp(home.ledger, config=config)
        async with serve_app(app) as client:
            body = {"type": "charge", "input": 1, "sites": NAMES, "idempotencyKey": "k"}
            made = await client.post("/api/jobs", body)
            assert made.status == 202, made.body
            path = f"/api/jobs/{made.body['job']['id']}/sites"
            rows: list[dict[str, Any]] = []
            async with running_services(home.ledger, config):
                for _ in range(100):
                    rows = (await client.get(path)).body["sites"]
                    if all(row["state"] for row in rows):
                        break
                    await asyncio.sleep(0.05)
            assert [(row["site"], row["state"], row["onItsWay"]) for row in rows] == [
                ("fra", "pending", None),
                ("iad", "pending", None),
            ]
            assert (await client.get(path.replace(made.body["job"]["id"], "0" * 8))).status == 400


def test_the_credentials_of_sites_are_never_printed(tmp_path: Path) -> None:
    file = tmp_path / "onejob.toml"
    file.write_text(
        "[sites]\nhere = 'ber'\ndelivery = '2d'\n[sites.ledgers.fra]\nmanagers = 'http://a:8002'\ngate_key = 'ojg_secret'\n"
    )
    config = load_service_config(str(file), environ={})
    assert config.ledger_options()["sites"] == Sites(here="ber", others=("fra",), delivery_ms=2 * 86_400_000)
    assert "ojg_secret" not in repr(config)
    file.chmod(0o644)
    assert exposed_secrets(str(file)) == ["sites.ledgers.fra.gate_key"]
    for wrong in ("postgresql://a", "http://a,a"):
        with pytest.raises(Invalid):
            SiteConfig(managers=wrong)


def test_the_address_of_a_service_is_safe_to_paste_into_a_shell() -> None:
    site = SiteConfig(managers="http://a:8002", url="https://jobs.fra.example:8001/v2")
    assert SitesConfig(here="ber", ledgers={"fra": site}).to_sites().urls == {"fra": site.url}
    for wrong in (
        "jobs.fra.example",
        "https://a; rm -rf .",
        "https://a$(b)",
        "https://u:p@a",
        "https://a\n",
        "file:///a",
    ):
        with pytest.raises(Invalid, match="url"):
            SiteConfig(managers="http://a:8002", url=wrong)
