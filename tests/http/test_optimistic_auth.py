"""Optimistic authentication gives the same responses as a credential that is checked first."""

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
from onejob.runtime import external_keys
from tests.support.app_server import Client, HttpResponse, serve_app

BODY = b'{"type": "charge", "input": {"amount": 42}}'
# Requests with a revoked key: a replay, and requests that would be refused for other reasons too.
REQUESTS_AFTER_REVOCATION = (
    ("first-ci", BODY, "/api/jobs"),
    ("other", b"{", "/api/jobs"),
    ("other", b'{"type": ""}', "/api/jobs"),
    ("not a key", BODY, "/api/jobs"),
    ("other", BODY, "/api/jobs?dryRun=true"),
    ("other", BODY, "/api/jobs?unknown=1"),
)


class ServiceAndLedgers(NamedTuple):
    """A service, its ledger, and the API keys of another ledger on the same store."""

    client: Client
    ledger: onejob.Ledger
    keys: ApiKeys

    async def submit(self, new_key: NewKey, key: str, body: bytes = BODY, target: str = "/api/jobs") -> HttpResponse:
        headers = (b"authorization: Bearer " + new_key.text.encode(), b"idempotency-key: " + key.encode())
        return await self.client.ask("POST", target, body, *headers)

    async def create_known_key(self, name: str = "ci") -> NewKey:
        """An API key that the service has in its cache."""
        new_key = await self.keys.create(name, roles=[Role.SUBMITTER])
        assert (await self.submit(new_key, f"first-{name}")).status == 202
        return new_key

    def read_count(self) -> int:
        return self.ledger.admin.runtime_stats().queues["read"].commands


@asynccontextmanager
async def run_service(url: str, rate: float | None = None) -> AsyncIterator[ServiceAndLedgers]:
    async with (
        onejob.open(url, sweep=False) as ledger,
        onejob.open(url, sweep=False) as other_ledger,
        serve_app(HttpApp(ledger, config=ServiceConfig(auth=True, rate_per_second=rate))) as client,
    ):
        yield ServiceAndLedgers(client, ledger, ApiKeys(other_ledger))


@pytest.fixture(params=["optimistic", "rate limited"])
def rate(request: pytest.FixtureRequest) -> float | None:
    """With a rate limit the credential is checked first: the responses must be the same."""
    return 1000.0 if request.param == "rate limited" else None


async def test_a_new_submission_of_a_known_key_is_one_statement(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        external_keys, "CACHE_SECONDS", 3600
    )  # that list is read now and then, not with every submission
    async with run_service(postgres_url) as service:
        new_key = await service.create_known_key()
        assert (await service.submit(new_key, "first")).status == 202
        before = service.read_count()
        answers = await asyncio.gather(*(service.submit(new_key, f"k{n}") for n in range(40)))
        assert {one.status for one in answers} == {202}
        assert {one.body["job"]["actor"] for one in answers} == {"client:ci"}
        assert service.read_count() == before


async def test_a_revocation_holds_for_whatever_is_sent_after_it(durable_url: str, rate: float | None) -> None:
    async with run_service(durable_url, rate) as service:
        new_key = await service.create_known_key()
        await service.keys.revoke(new_key.key.id)
        assert (await service.submit(new_key, "new")).status == 401
        for number, (key, body, target) in enumerate(REQUESTS_AFTER_REVOCATION):
            again = await service.create_known_key(f"n{number}")
            await service.keys.revoke(again.key.id)
            assert (await service.submit(again, key, body, target)).status == 401, (key, body, target)
        assert {job.key for job in await service.ledger.jobs()}.isdisjoint({"new", "other"})


async def test_a_cached_credential_reaches_no_other_tenant(durable_url: str) -> None:
    async with run_service(durable_url) as service:
        ours = await service.create_known_key()
        async with onejob.open(durable_url, tenant="globex", sweep=False) as other:
            theirs = await ApiKeys(other).create("ci", roles=[Role.SUBMITTER])
            first = await service.submit(theirs, "same")
            second = await service.submit(ours, "same")
            assert first.body["job"]["id"] != second.body["job"]["id"]
            assert [job.key for job in await other.jobs()] == ["same"]


async def test_a_rotated_key_goes_on_by_both_secrets_until_the_old_one_ends(durable_url: str) -> None:
    async with run_service(durable_url) as service:
        old = await service.create_known_key()
        new = await service.keys.rotate(old.key.id)
        for n in range(2):
            assert [(await service.submit(one, f"{n}")).status for one in (old, new)] == [202, 202]
        await service.keys.rotate(old.key.id, overlap=timedelta(0))
        assert [(await service.submit(one, "late")).status for one in (old, new)] == [401, 401]


async def test_concurrent_revocations_hold_at_once_and_affect_no_other_key(
    durable_url: str,
) -> None:
    async with run_service(durable_url) as service:
        remaining, going = (
            await service.create_known_key("kept"),
            [await service.create_known_key(f"going{n}") for n in range(6)],
        )
        over = asyncio.Event()

        async def hammer(new_key: NewKey, revoked: asyncio.Event | None) -> list[tuple[bool, int]]:
            statuses: list[tuple[bool, int]] = []
            while not over.is_set():
                sent_after = revoked is not None and revoked.is_set()
                answer = await service.submit(new_key, f"{new_key.key.name}-{len(statuses)}-{id(statuses)}")
                statuses.append((sent_after, answer.status))
            return statuses

        shuts = [asyncio.Event() for _ in going]
        tasks = [asyncio.create_task(hammer(remaining, None)) for _ in range(3)]
        tasks += [asyncio.create_task(hammer(new_key, revoked)) for new_key, revoked in zip(going, shuts, strict=True)]
        for new_key, revoked in zip(going, shuts, strict=True):
            await asyncio.sleep(0.05)
            await service.keys.revoke(new_key.key.id)
            revoked.set()
        await asyncio.sleep(0.1)
        over.set()
        statuses = await asyncio.gather(*tasks)
        assert {status for one in statuses[:3] for _, status in one} == {202}
        assert {status for one in statuses[3:] for after, status in one if after} == {401}
        assert {status for one in statuses[3:] for after, status in one if not after} <= {202, 401}
        created = sum(status == 202 for one in statuses for _, status in one)
        seen, page = 0, await service.ledger.jobs(limit=1000)
        seen += len(page)
        while page.next:
            page = await service.ledger.jobs(limit=1000, before=page.next)
            seen += len(page)
        assert seen == created + 1 + len(going)
