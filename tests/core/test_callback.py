"""Callback jobs: created with their job, not claimable until it ends, made ready once."""

from typing import Any

import pytest

from onejob.core.callback import callback_job_id, checked_callback_url
from onejob.core.errors import Invalid
from onejob.core.facts import Kind
from onejob.core.identity import CALLBACK_TYPE
from onejob.core.maintenance import Maintain
from onejob.core.replies import Created, Refused
from onejob.core.states import Delivery, JobState
from onejob.core.submit import Submit
from onejob.core.work import Cancel, Claim, Finish, FinishOutcome, Resolution, Resolve
from tests.core.world import World

TENANT, JOB = "acme", b"0123456789abcdef"
CALLBACK_JOB = callback_job_id(JOB)
HELD_UNTIL: dict[str, Any] = {"tenant": TENANT, "job_id": JOB, "token": 1, "holder": b"me"}
BY: dict[str, Any] = {"actor": "system:x"}


def submitted_world(**more: Any) -> World:
    world = World()
    command = Submit(
        tenant=TENANT, job_id=JOB, type="t", scope="t", user="u", callback="https://a.example/x", **BY, **more
    )
    assert isinstance(world.execute(command), Created)
    return world


def running_world(**more: Any) -> World:
    world = submitted_world(**more)
    world.execute(Claim(tenant=TENANT, job_id=JOB, holder=b"me", lease_ms=1000, start=True))
    return world


def callback_state(world: World) -> JobState:
    found: JobState = world.facts[Kind.JOB, CALLBACK_JOB].state
    return found


def test_a_callback_is_held_back_and_cannot_be_claimed() -> None:
    world = submitted_world()
    callback = world.facts[Kind.JOB, CALLBACK_JOB]
    assert (callback.type, callback.state, callback.due_at, callback.usage_id) == (
        CALLBACK_TYPE,
        JobState.PREPARING,
        0,
        b"",
    )
    assert isinstance(world.execute(Claim(tenant=TENANT, job_id=CALLBACK_JOB, holder=b"me")), Refused)
    world.execute(Maintain(tenant=TENANT, job_id=CALLBACK_JOB), 2 * 10**12)
    assert callback_state(world) is JobState.PREPARING


def test_every_end_releases_the_callback_in_the_same_step() -> None:
    world = running_world()
    world.execute(Finish(**HELD_UNTIL, outcome=FinishOutcome.SUCCESS, **BY))
    assert callback_state(world) is JobState.PENDING
    world = running_world()
    world.execute(Finish(**HELD_UNTIL, outcome=FinishOutcome.FAILED, final=True, **BY))
    assert callback_state(world) is JobState.PENDING
    world = submitted_world()
    world.execute(Cancel(tenant=TENANT, job_id=JOB, **BY))
    assert callback_state(world) is JobState.PENDING
    world = running_world()
    world.execute(Maintain(tenant=TENANT, job_id=JOB), 2 * 10**12)
    assert callback_state(world) is JobState.PENDING


def test_what_is_not_an_end_does_not() -> None:
    world = running_world(attempts_max=2)
    world.execute(Finish(**HELD_UNTIL, outcome=FinishOutcome.FAILED, **BY))
    assert callback_state(world) is JobState.PREPARING
    world = running_world(delivery=Delivery.AT_MOST_ONCE)
    world.execute(Maintain(tenant=TENANT, job_id=JOB), 2 * 10**12)
    assert world.facts[Kind.JOB, JOB].state is JobState.LOST
    assert callback_state(world) is JobState.PREPARING
    world.execute(Resolve(tenant=TENANT, job_id=JOB, resolution=Resolution.SUCCEEDED, **BY), 2 * 10**12 + 1)
    assert callback_state(world) is JobState.PENDING


def test_the_end_of_a_callback_does_nothing_to_its_job() -> None:
    world = running_world()
    world.execute(Finish(**HELD_UNTIL, outcome=FinishOutcome.SUCCESS, **BY))
    before = world.facts[Kind.JOB, JOB]
    world.execute(Claim(tenant=TENANT, job_id=CALLBACK_JOB, holder=b"n", start=True))
    world.execute(Finish(tenant=TENANT, job_id=CALLBACK_JOB, token=1, holder=b"n", outcome=FinishOutcome.SUCCESS, **BY))
    assert callback_state(world) is JobState.SUCCESS
    assert world.facts[Kind.JOB, JOB] == before


def test_a_job_without_a_callback_has_none() -> None:
    world = World()
    world.execute(Submit(tenant=TENANT, job_id=JOB, type="t", scope="t", user="u", **BY))
    assert (Kind.JOB, CALLBACK_JOB) not in world.facts


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://a.example/",
        "//a.example/",
        "https://",
        "https://a.example:0/",
        "https://a.example:99999/",
        "https://user:secret@a.example/",
        "https://a.example/#x",
        "https://a.example/ x",
        "https://a.example/\r\nX: y",
        "https://[::1",
        "https://\N{SNOWMAN}.example/",
        "https://a.example/" + "x" * 2000,
    ],
)
def test_a_url_that_cannot_be_meant_is_refused(url: str) -> None:
    with pytest.raises(Invalid):
        checked_callback_url(url)


def test_other_urls_are_taken() -> None:
    for url in ("https://a.example", "http://127.0.0.1:8001/x?y=1", "https://[::1]:8443/"):
        assert checked_callback_url(url) == url
