"""Sites: one job with deliveries to other data centres, what is sent to them, and what their answers mean."""

from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from onejob.core.callback import callback_job_id
from onejob.core.errors import Invalid
from onejob.core.facts import AttachmentKind, Kind, Policy
from onejob.core.identity import checked_name, format_job_id, policy_id
from onejob.core.limits import QUOTA_POLICY_NAME
from onejob.core.lookup import LookUpJob
from onejob.core.replies import (
    AnyReply,
    Cancelled,
    Claimed,
    Conflict,
    Created,
    Defect,
    Finished,
    Found,
    InProgress,
    Missing,
    Reason,
    Refused,
    Rejected,
    Released,
    Replayed,
)
from onejob.core.site_delivery import (
    CancelAtSite,
    ReportDelivery,
    answer_after,
    command_for_site,
    delay_ms_after,
    failed_answer,
)
from onejob.core.sites import (
    DELIVERY_MS_DEFAULT,
    OTHER_JOB,
    REFUSED,
    UNKNOWN,
    SiteAnswer,
    SiteDelivery,
    Sites,
    SiteTargets,
    decode_answer,
    delivery_job_ids,
    fingerprint_with_sites,
)
from onejob.core.states import JobState
from onejob.core.submit import Submit
from onejob.core.work import Cancel, Claim, Finish, FinishOutcome, Resolution, Resolve, Start, progress_bytes_max
from onejob.runtime.present import to_site_views
from tests.core.world import ACTOR, FINGERPRINT, JOB, JOB2, KEY, NOW, RECORD_ID, SCOPE, TENANT, USAGE_ID, USER, World

FRA, IAD = delivery_job_ids(JOB, 2)
WINDOW = 2 * DELIVERY_MS_DEFAULT
SMALLER = bytes(len(JOB))  # an id that was made before the others
AT_SITE: dict[str, Any] = {
    "tenant": TENANT,
    "type": "charge",
    "record_id": RECORD_ID,
    "scope": SCOPE,
    "key": KEY,
    "fingerprint": FINGERPRINT,
    "actor": ACTOR,
    "user": USER,
}
LIMIT = Policy(
    policy_id(TENANT, QUOTA_POLICY_NAME), TENANT, QUOTA_POLICY_NAME, b'{"default":{"max_concurrent":5}}', NOW
)


def submit(job_id: bytes = JOB, *, runs_here: bool = False, **more: Any) -> Submit:
    targets = SiteTargets(("fra", "iad"), runs_here)
    return Submit(job_id=job_id, attempts_max=3, sites=targets, **AT_SITE | more)


def submitted_world(**more: Any) -> World:
    world = World(LIMIT)
    assert isinstance(world.execute(submit(usage_id=USAGE_ID, policy_id=LIMIT.id, **more)), Created)
    return world


def report(world: World, delivery_id: bytes, state: str, at: int = NOW, **more: Any) -> AnyReply:
    reply = world.execute(Claim(tenant=TENANT, job_id=delivery_id, holder=b"me", lease_ms=1000), at)
    assert isinstance(reply, Claimed)
    return world.execute(
        ReportDelivery(
            tenant=TENANT,
            job_id=delivery_id,
            token=reply.job.token,
            holder=b"me",
            home_id=JOB,
            deliveries=2,
            answer=SiteAnswer(state, at, **more),
        ),
        at,
    )


def test_one_step_stores_the_record_the_job_and_a_delivery_for_each_site() -> None:
    world = submitted_world()
    assert world.jobs() == sorted((JOB, FRA, IAD))
    assert world.record().expires_at == NOW + WINDOW
    assert [world.job(id).type for id in (FRA, IAD)] == ["onejob.site.fra", "onejob.site.iad"]
    delivery = json.decode(world.attachments[FRA, AttachmentKind.INPUT, 0], type=SiteDelivery)
    assert (delivery.site, delivery.job_id, delivery.attempts_max, delivery.ttl_ms) == ("fra", JOB, 3, WINDOW)
    assert (delivery.deliver_until, delivery.follow_until) == (NOW + DELIVERY_MS_DEFAULT, NOW + WINDOW)
    assert world.usage().live == 1  # the deliveries are not counted


def test_a_repetition_changes_nothing_and_other_sites_are_another_submission() -> None:
    world = submitted_world()
    before = dict(world.facts)
    assert isinstance(world.execute(submit()), Created)
    assert isinstance(world.execute(submit(JOB2)), Replayed)
    other = submit(JOB2, fingerprint=fingerprint_with_sites(FINGERPRINT, ("fra",)))
    assert isinstance(world.execute(other), Conflict)
    assert world.facts == before


def test_a_job_that_runs_elsewhere_cannot_be_claimed_started_finished_or_run_again_at_home() -> None:
    world = submitted_world()
    home = world.job()
    assert (home.state, home.attempts_max, home.due_at) == (JobState.RUNNING, 0, 0)
    assert isinstance(world.execute(Claim(tenant=TENANT, job_id=JOB, holder=b"me", start=True)), Refused)
    forged = Finish(tenant=TENANT, job_id=JOB, token=0, holder=b"", outcome=FinishOutcome.SUCCESS, actor=ACTOR)
    assert isinstance(world.execute(forged), Refused)
    report(world, FRA, JobState.FAILED)
    report(world, IAD, JobState.SUCCESS)
    assert world.job().state is JobState.FAILED
    rerun = Resolve(tenant=TENANT, job_id=JOB, resolution=Resolution.RERUN, actor=ACTOR)
    assert isinstance(world.execute(rerun), Refused)


def test_a_delivery_that_is_claimed_cannot_be_started_by_who_knows_its_token() -> None:
    world = submitted_world()
    assert isinstance(world.execute(Claim(tenant=TENANT, job_id=FRA, holder=b"me")), Claimed)
    for holder in (b"thief", b"me"):
        reply = world.execute(Start(tenant=TENANT, job_id=FRA, token=1, holder=holder))
        assert isinstance(reply, Refused)
        assert reply.reason is Reason.NOT_ALLOWED
    finish = Finish(tenant=TENANT, job_id=FRA, token=1, holder=b"thief", outcome=FinishOutcome.SUCCESS, actor=ACTOR)
    assert isinstance(world.execute(finish), Refused)
    assert isinstance(report(world, FRA, JobState.SUCCESS), Finished), "it is still the sender's"


def test_a_listed_home_runs_the_job_itself() -> None:
    world = submitted_world(runs_here=True)
    assert world.job().state is JobState.PENDING
    assert isinstance(world.execute(Claim(tenant=TENANT, job_id=JOB, holder=b"me")), Claimed)
    report(world, FRA, JobState.FAILED)
    report(world, IAD, JobState.FAILED)
    assert world.job().state is JobState.PENDING


@pytest.mark.parametrize(
    ("states", "end"),
    [
        (("success", "success"), JobState.SUCCESS),
        (("cancelled", "cancelled"), JobState.CANCELLED),
        (("success", "failed"), JobState.FAILED),
        (("success", "cancelled"), JobState.FAILED),
        (("success", OTHER_JOB), JobState.FAILED),
        (("success", REFUSED), JobState.FAILED),
        ((UNKNOWN, UNKNOWN), JobState.FAILED),
    ],
)
def test_the_last_final_answer_ends_the_job_and_frees_its_slot(states: tuple[str, str], end: JobState) -> None:
    world = submitted_world(callback="https://a.example/x")
    report(world, FRA, states[0])
    assert world.job().state is JobState.RUNNING
    report(world, IAD, states[1])
    assert world.job().state is end
    assert world.usage().live == 0
    assert world.job(callback_job_id(JOB)).state is JobState.PENDING
    if end is JobState.FAILED:
        assert all(state in world.job().error for state in states if state != "success")


@pytest.mark.parametrize("state", ["", "pending", "running", "lost", "scheduled"])
def test_an_answer_that_is_not_final_is_stored_and_asked_for_again(state: str) -> None:
    world = submitted_world()
    reply = report(world, FRA, state)
    assert isinstance(reply, Released)
    delivery = world.job(FRA)
    assert decode_answer(delivery).state == state
    assert delivery.run_at == NOW + delay_ms_after(NOW, NOW)
    assert isinstance(report(world, FRA, JobState.SUCCESS, at=delivery.run_at), Finished)


def test_a_repeated_report_changes_nothing_and_one_of_an_older_claim_is_refused() -> None:
    world = submitted_world()
    for state in ("pending", "success"):
        at = world.job(FRA).run_at or NOW
        first = report(world, FRA, state, at=at)
        before, token = dict(world.facts), world.job(FRA).token
        command = ReportDelivery(
            tenant=TENANT,
            job_id=FRA,
            token=token,
            holder=b"me",
            home_id=JOB,
            deliveries=2,
            answer=SiteAnswer(state, at),
        )
        assert type(world.execute(command, at)) is type(first)
        stale = world.execute(replace(command, token=token - 1, answer=SiteAnswer("failed")), at)
        assert isinstance(stale, Refused)
        assert world.facts == before


def test_a_delivery_can_neither_be_cancelled_nor_run_again() -> None:
    world = submitted_world()
    assert isinstance(world.execute(Cancel(tenant=TENANT, job_id=FRA, actor=ACTOR)), Refused)
    report(world, FRA, REFUSED)
    again = Resolve(tenant=TENANT, job_id=FRA, resolution=Resolution.RERUN, actor=ACTOR)
    assert isinstance(world.execute(again), Refused)


def test_after_a_cancel_the_answers_change_the_deliveries_alone() -> None:
    world = submitted_world()
    assert isinstance(world.execute(Cancel(tenant=TENANT, job_id=JOB, actor=ACTOR)), Cancelled)
    assert world.usage().live == 0
    report(world, FRA, JobState.CANCELLED)
    report(world, IAD, JobState.SUCCESS)
    assert world.job().state is JobState.CANCELLED


def cancel_at_site() -> CancelAtSite:
    return CancelAtSite(job_id=JOB, ttl_ms=WINDOW, **AT_SITE)


def submit_at_site(job_id: bytes = JOB) -> Submit:
    return Submit(job_id=job_id, ttl_ms=WINDOW, **AT_SITE)


def test_a_cancel_that_overtakes_leaves_a_cancelled_job_for_the_late_submission() -> None:
    site = World()
    assert isinstance(site.execute(cancel_at_site()), Cancelled)
    assert (site.job().state, site.job().version) == (JobState.CANCELLED, 1)
    assert site.record().job_id == JOB
    assert site.job().due_at >= site.record().expires_at == NOW + WINDOW
    late = site.execute(submit_at_site())
    assert isinstance(late, Created)
    assert late.job.state is JobState.CANCELLED
    before = dict(site.facts)
    assert isinstance(site.execute(cancel_at_site()), Cancelled)
    assert site.facts == before


def test_a_cancel_ends_a_job_that_has_arrived_even_if_its_key_was_forgotten() -> None:
    for forgotten in (False, True):
        site = World()
        site.execute(submit_at_site())
        if forgotten:
            del site.facts[Kind.RECORD, RECORD_ID]
            site.execute(submit_at_site(JOB2))
        assert isinstance(site.execute(cancel_at_site()), Cancelled)
        assert site.job().state is JobState.CANCELLED
        if forgotten:
            assert site.job(JOB2).state is JobState.PENDING


def test_another_job_under_the_key_is_never_cancelled() -> None:
    site = World()
    site.execute(submit_at_site(JOB2))
    reply = site.execute(cancel_at_site())
    assert answer_after(reply, SiteAnswer(), JOB, NOW).state == OTHER_JOB
    assert site.jobs() == [JOB2]
    assert site.job(JOB2).state is JobState.PENDING


def test_what_is_sent_depends_on_the_last_answer_the_cancel_and_the_time() -> None:
    world = submitted_world(run_at=0)
    delivery = json.decode(world.attachments[FRA, AttachmentKind.INPUT, 0], type=SiteDelivery)

    def sent(state: str, at: int) -> str:
        command = command_for_site(delivery, SiteAnswer(state), world.job(), b"null", at, record_id=RECORD_ID)
        return type(command).__name__

    middle, end = delivery.deliver_until, delivery.follow_until
    assert [sent("", at) for at in (NOW, middle, middle + 1)] == ["Submit", "Submit", "NoneType"]
    assert [sent("running", at) for at in (NOW, end, end + 1)] == ["LookUpJob", "LookUpJob", "NoneType"]
    world.execute(Cancel(tenant=TENANT, job_id=JOB, actor=ACTOR))
    assert [sent("", at) for at in (NOW, middle + 1)] == ["CancelAtSite", "NoneType"]
    assert [sent("running", at) for at in (end, end + 1)] == ["CancelAtSite", "NoneType"]
    command = command_for_site(delivery, SiteAnswer(), world.job(), b"[1]", NOW, record_id=RECORD_ID)
    assert isinstance(command, Submit)
    assert (command.job_id, command.key, command.scope, command.actor, command.user) == (JOB, KEY, SCOPE, ACTOR, USER)
    assert (command.input, command.attempts_max, command.usage_id, command.policy_id) == (b"[1]", 3, b"", b"")
    assert command.fingerprint == FINGERPRINT


@pytest.mark.parametrize(
    ("reply", "state"),
    [
        (Conflict(JOB2, "", NOW), OTHER_JOB),
        (Conflict(b"", "theirs", NOW), OTHER_JOB),
        (Rejected(JOB2, b"", NOW, NOW), OTHER_JOB),
        (Replayed(None, NOW, NOW, "theirs"), OTHER_JOB),
        (Refused(Reason.IDEMPOTENCY_KEY_REUSED, "no", NOW), REFUSED),
        (Missing(NOW), UNKNOWN),
        (InProgress(JOB2, 5, NOW), "running"),
        (Defect("later", retryable=True), "running"),
    ],
)
def test_every_reply_of_a_site_has_a_meaning(reply: AnyReply, state: str) -> None:
    assert answer_after(reply, SiteAnswer("running", 1), JOB, NOW).state == state


def test_the_jobs_of_replies_are_recognised_by_their_id() -> None:
    site = World()
    created = site.execute(submit_at_site())
    assert answer_after(created, SiteAnswer(), JOB, NOW) == SiteAnswer("pending", NOW)
    found = site.execute(LookUpJob(tenant=TENANT, job_id=JOB))
    assert isinstance(found, Found)
    assert answer_after(found, SiteAnswer(error="x"), JOB, NOW) == SiteAnswer("pending", NOW)
    replayed = site.execute(submit_at_site(JOB2))
    assert answer_after(replayed, SiteAnswer(), JOB2, NOW).state == OTHER_JOB


def test_the_home_shows_what_each_site_answered_and_what_is_on_its_way() -> None:
    world = submitted_world(runs_here=True)
    report(world, FRA, "running")
    report(world, IAD, "", error="no route", error_at=NOW)

    def rows() -> list[tuple[str, str | None, str | None, str | None]]:
        views = to_site_views(world.job(), (world.job(FRA), world.job(IAD)), Sites(here="ber"))
        return [(one.site, one.state, one.on_its_way, one.error) for one in views]

    assert rows() == [
        ("ber", "pending", None, None),
        ("fra", "running", None, None),
        ("iad", None, "submission", "no route"),
    ]
    world.execute(Cancel(tenant=TENANT, job_id=JOB, actor=ACTOR))
    assert rows()[1:] == [("fra", "running", "cancel", None), ("iad", None, "cancel", "no route")]
    refused = failed_answer(SiteAnswer(), "no", NOW, is_refused=True)
    assert not refused.is_final


@pytest.mark.parametrize(
    ("other", "home", "is_ours", "cancel_at", "command"),
    [
        (JOB2, False, True, "fra", "onejob cancel {other} --url https://jobs.fra.example"),
        (JOB2, True, True, "iad", "onejob cancel {other}"),
        (SMALLER, True, False, "ber", "onejob cancel {own}"),
    ],
)
def test_of_two_jobs_under_a_key_the_one_with_the_smaller_id_prevails(
    other: bytes, home: bool, is_ours: bool, cancel_at: str, command: str
) -> None:
    world = submitted_world(runs_here=True)
    own_id, other_id = format_job_id(JOB), format_job_id(other)
    report(world, FRA, OTHER_JOB, other_job=other_id)
    report(world, IAD, OTHER_JOB, other_job=other_id, is_other_home=home)
    sites = Sites(here="ber", others=("fra", "iad"), urls={"fra": "https://jobs.fra.example"})
    fra = to_site_views(world.job(), (world.job(FRA), world.job(IAD)), sites)[1]
    assert (fra.other_job, fra.prevailing_job) == (other_id, own_id if is_ours else other_id)
    assert (fra.cancel_at, fra.cancel_command) == (cancel_at, command.format(own=own_id, other=other_id))
    world.execute(Cancel(tenant=TENANT, job_id=JOB, actor=ACTOR))
    ended = to_site_views(world.job(), (world.job(FRA), world.job(IAD)), sites)[1]
    assert ended.prevailing_job == fra.prevailing_job
    assert (ended.cancel_at, ended.cancel_command) == (None, None), "of two jobs one is left, or none"


@pytest.mark.parametrize("state", [*JobState, OTHER_JOB, REFUSED, UNKNOWN, ""])
@pytest.mark.parametrize("runs_here", [True, False])
def test_no_command_cancels_the_only_job_that_is_left(state: str, runs_here: bool) -> None:
    world = submitted_world(runs_here=runs_here)
    report(world, FRA, OTHER_JOB, other_job=format_job_id(JOB2))
    job, iad = world.job(), replace(world.job(IAD), progress=f'{{"state":"{state}"}}')
    may_succeed = state not in (JobState.FAILED, JobState.CANCELLED, JobState.LOST, OTHER_JOB, REFUSED)
    for own in JobState:
        ended_here = own in (JobState.FAILED, JobState.CANCELLED, JobState.LOST)
        is_needed = own is not JobState.CANCELLED and (may_succeed or (runs_here and not ended_here))
        (fra,) = [
            one for one in to_site_views(replace(job, state=own), (world.job(FRA), iad), Sites()) if one.site == "fra"
        ]
        assert (fra.prevailing_job, bool(fra.cancel_command)) == (format_job_id(JOB), is_needed), own


def test_a_job_of_another_system_under_the_key_is_named_and_not_compared() -> None:
    world = submitted_world()
    answer = answer_after(Conflict(b"", "theirs", NOW), SiteAnswer(), JOB, NOW)
    report(world, FRA, OTHER_JOB, other_job=answer.other_job, is_external=answer.is_external)
    (fra,) = to_site_views(world.job(), (world.job(FRA),), Sites(here="ber"))
    assert (fra.other_job, fra.prevailing_job, fra.cancel_command) == ("theirs", None, None)
    report(world, IAD, JobState.SUCCESS)
    assert world.job().error == "fra: other job theirs"


def test_the_paths_of_a_conflict_at_a_site_never_exceed_the_room_of_its_delivery() -> None:
    paths = tuple(f"/input/{n}" + "ä" * 100 for n in range(9))
    answer = answer_after(Conflict(JOB2, "", NOW, paths), SiteAnswer(), JOB, NOW)
    assert answer.paths == (*paths[:3], "…")
    for stored, kept in (
        (answer.paths, (paths[0], "…")),
        (("/input/" + "ä" * 300,), ("…",)),
        (("/input/a",), ("/input/a",)),
    ):
        world = submitted_world()
        report(world, FRA, OTHER_JOB, other_job=format_job_id(JOB2), paths=stored)
        delivery = world.job(FRA)
        assert decode_answer(delivery).paths == kept
        assert len(delivery.progress.encode()) <= progress_bytes_max(delivery)


def test_an_answer_that_an_older_program_stored_is_read() -> None:
    delivery = replace(submitted_world().job(FRA), progress='{"state":"other job","at":5}')
    (fra,) = to_site_views(submitted_world().job(), (delivery,), Sites(here="ber"))
    assert (fra.state, fra.other_job, fra.prevailing_job, fra.cancel_command) == (OTHER_JOB, None, None, None)


def test_a_scheduled_job_is_delivered_at_once_and_followed_from_its_time_on() -> None:
    world = World()
    world.execute(submit(run_at=NOW + WINDOW))
    delivery = json.decode(world.attachments[FRA, AttachmentKind.INPUT, 0], type=SiteDelivery)
    assert delivery.deliver_until == NOW + WINDOW + DELIVERY_MS_DEFAULT
    assert world.record().expires_at == delivery.follow_until == NOW + 2 * WINDOW
    assert world.job(FRA).run_at == 0


def test_the_sites_of_a_submission_are_checked() -> None:
    sites = Sites(here="ber", others=("fra", "iad"))
    assert sites.checked_names(["iad", "ber"]) == ("ber", "iad")
    assert sites.targets(("ber", "iad")) == SiteTargets(("iad",), True)
    wrong: list[Any] = [[], ["fra", "fra"], ["sfo"], "fra", ["fra"] * 17]
    for names in wrong:
        with pytest.raises(Invalid):
            sites.checked_names(names)
    with pytest.raises(Invalid, match="configured"):
        Sites().checked_names(["fra"])
    for options in ({"here": "FRA"}, {"here": "fra", "others": ("fra",)}, {"here": "fra", "delivery_ms": 1}):
        with pytest.raises(Invalid):
            Sites(**options)
    with pytest.raises(Invalid):
        checked_name("type", "onejob.site.fra")
