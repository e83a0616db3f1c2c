"""A credential that was known lately is not read again before a submission: it is proved where that is decided."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

import pytest

import onejob
from onejob.core.credentials import Role
from onejob.http.app import HttpApp
from onejob.http.config import ServiceConfig
from onejob.ledger.api_keys import ApiKeys, NewKey
from tests.support.app_server import Client, HttpResponse, serve_app

BODY = b'{"type": "charge", "input": {"amount": 42}}'
# What may be sent with a key that opens no more: a replay, and all that is wrong in other ways, too.
REQUESTS_AFTER_REVOCATION = (
    ("first-ci", BODY, "/api/jobs"),
    ("other", b"{", "/api/jobs"),
    ("other", b'{"type": ""}', "/api/jobs"),
    ("not a key", BODY, "/api/jobs"),
    ("other", BODY, "/api/jobs?dryRun=true"),
    ("other", BODY, "/api/jobs?unknown=1"),
)


class ServiceAndLedgers(NamedTuple):
    """A service, its ledger, and another process on the same store."""

    client: Client
    ledger: onejob.Ledger
    keys: ApiKeys

    async def submit(self, made: NewKey, key: str, body: bytes = BODY, target: str = "/api/jobs") -> HttpResponse:
        headers = (b"authorization: Bearer " + made.text.encode(), b"idempotency-key: " + key.encode())
        return await self.client.ask("POST", target, body, *headers)

    async def create_known_key(self, name: str = "ci") -> NewKey:
        """A key that the service has seen."""
        made = await self.keys.create(name, roles=[Role.SUBMITTER])
        assert (await self.submit(made, f"first-{name}")).status == 202
        return made

    def read_count(self) -> int:
        return self.ledger.runtime_stats().queues["read"].commands


@asynccontextmanager
async def run_service(url: str, rate: float | None = None) -> AsyncIterator[ServiceAndLedgers]:
    async with (
        onejob.open(url, sweep=False) as ledger,
        onejob.open(url, sweep=False) as beside,
        serve_app(HttpApp(ledger, config=ServiceConfig(auth=True, rate_per_second=rate))) as client,
    ):
        yield ServiceAndLedgers(client, ledger, ApiKeys(beside))


@pytest.fixture(params=["presumed", "limited"])
def rate(request: pytest.FixtureRequest) -> float | None:
    """A service that limits rates looks at a credential first: what is told must be the same."""
    return 1000.0 if request.param == "limited" else None


async def test_a_new_submission_of_a_known_key_is_one_statement(postgres_url: str) -> None:
    async with run_service(postgres_url) as place:
        made = await place.create_known_key()
        before = place.read_count()
        answers = await asyncio.gather(*(place.submit(made, f"k{n}") for n in range(40)))
        assert {one.status for one in answers} == {202}
        assert {one.body["job"]["actor"] for one in answers} == {"client:ci"}
        assert place.read_count() == before


async def test_a_revocation_holds_for_whatever_is_sent_after_it(durable_url: str, rate: float | None) -> None:
    async with run_service(durable_url, rate) as place:
        made = await place.create_known_key()
        await place.keys.revoke(made.key.id)
        assert (await place.submit(made, "new")).status == 401
        for number, (key, body, target) in enumerate(REQUESTS_AFTER_REVOCATION):
            again = await place.create_known_key(f"n{number}")
            await place.keys.revoke(again.key.id)
            assert (await place.submit(again, key, body, target)).status == 401, (key, body, target)
        assert {job.key for job in await place.ledger.jobs()}.isdisjoint({"new", "other"})


async def test_a_cached_credential_reaches_no_other_tenant(durable_url: str) -> None:
    async with run_service(durable_url) as place:
        ours = await place.create_known_key()
        async with onejob.open(durable_url, tenant="globex", sweep=False) as other:
            theirs = await ApiKeys(other).create("ci", roles=[Role.SUBMITTER])
            first = await place.submit(theirs, "same")
            second = await place.submit(ours, "same")
            assert first.body["job"]["id"] != second.body["job"]["id"]
            assert [job.key for job in await other.jobs()] == ["same"]


async def test_a_rotated_key_goes_on_by_both_secrets_until_the_old_one_ends(durable_url: str) -> None:
    async with run_service(durable_url) as place:
        old = await place.create_known_key()
        new = await place.keys.rotate(old.key.id)
        for n in range(2):
            assert [(await place.submit(one, f"{n}")).status for one in (old, new)] == [202, 202]
        await place.keys.rotate(old.key.id, overlap=timedelta(0))
        assert [(await place.submit(one, "late")).status for one in (old, new)] == [401, 401]


async def test_concurrent_revocations_hold_at_once_and_affect_no_other_key(
    durable_url: str,
) -> None:
    async with run_service(durable_url) as place:
        kept, going = (
            await place.create_known_key("kept"),
            [await place.create_known_key(f"going{n}") for n in range(6)],
        )
        over = asyncio.Event()

        async def hammer(made: NewKey, shut: asyncio.Event | None) -> list[tuple[bool, int]]:
            told: list[tuple[bool, int]] = []
            while not over.is_set():
                sent_after = shut is not None and shut.is_set()
                answer = await place.submit(made, f"{made.key.name}-{len(told)}-{id(told)}")
                told.append((sent_after, answer.status))
            return told

        shuts = [asyncio.Event() for _ in going]
        tasks = [asyncio.create_task(hammer(kept, None)) for _ in range(3)]
        tasks += [asyncio.create_task(hammer(made, shut)) for made, shut in zip(going, shuts, strict=True)]
        for made, shut in zip(going, shuts, strict=True):
            await asyncio.sleep(0.05)
            await place.keys.revoke(made.key.id)
            shut.set()
        await asyncio.sleep(0.1)
        over.set()
        told = await asyncio.gather(*tasks)
        assert {status for one in told[:3] for _, status in one} == {202}
        assert {status for one in told[3:] for after, status in one if after} == {401}
        assert {status for one in told[3:] for after, status in one if not after} <= {202, 401}
        created = sum(status == 202 for one in told for _, status in one)
        seen, page = 0, await place.ledger.jobs(limit=1000)
        seen += len(page)
        while page.next:
            page = await place.ledger.jobs(limit=1000, before=page.next)
            seen += len(page)
        assert seen == created + 1 + len(going)
