"""Rules of loading: what a batch loads, in which order, and what following adds."""

from onejob.core.batch import LoadRequest, empty_working_set, load_facts_sync, single_fact_request
from onejob.core.command import JOBS_MAX, Facts, Footprint, Precondition
from onejob.core.facts import Kind, Usage
from onejob.core.identity import usage_id
from onejob.core.replies import Defect, Maintained
from tests.core.scripted import FULL_FOOTPRINT, POLICY_ID, STREAM_ID, RecordFacts, a_policy, a_stream, scripted
from tests.core.world import (
    JOB,
    JOB2,
    JOB3,
    RECORD_ID,
    TENANT,
    USAGE_ID,
    World,
    a_job,
    a_record,
    a_usage,
    expect_type,
)


def test_facts_are_loaded_in_the_order_record_job_stream_usage_policy_each_sorted() -> None:
    others = [Footprint(TENANT, b"r9", (JOB3, JOB), b"s9", b"t9", b"p9"), Footprint(TENANT, b"r1", (JOB,))]
    world = World(a_record(), a_job(usage_id=USAGE_ID), a_usage())
    world.load_facts([*others, FULL_FOOTPRINT, *others])
    assert world.load_requests == [
        LoadRequest(Kind.RECORD, sorted([RECORD_ID, b"r1", b"r9"])),
        LoadRequest(Kind.JOB, [JOB, JOB2, JOB3]),
        LoadRequest(Kind.STREAM, sorted([STREAM_ID, b"s9"])),
        LoadRequest(Kind.USAGE, sorted([USAGE_ID, b"t9"])),
        LoadRequest(Kind.POLICY, sorted([POLICY_ID, b"p9"])),
    ]


def test_nothing_is_asked_for_that_nobody_named() -> None:
    world = World(a_record(), a_job(usage_id=USAGE_ID), a_usage())
    world.load_facts([Footprint(TENANT, RECORD_ID)])
    assert world.load_requests == [LoadRequest(Kind.RECORD, [RECORD_ID])]
    world.load_facts([Footprint(TENANT)])
    assert world.load_requests == []


def test_an_empty_working_set_equals_one_loaded_from_an_empty_store() -> None:
    named = [
        FULL_FOOTPRINT,
        Footprint(TENANT, b"r9", (JOB3, JOB), b"s9", b"t9", b"p9"),
        Footprint(TENANT),
        FULL_FOOTPRINT,
    ]
    assert empty_working_set(named).tables == load_facts_sync(named, lambda request: ()).tables


def test_a_single_fact_is_requested_as_by_load_facts() -> None:
    world = World(a_record(), a_job(usage_id=USAGE_ID), a_usage())
    for single in (
        Footprint(TENANT, jobs=(JOB,)),
        Footprint(TENANT, policy=POLICY_ID),
        Footprint(TENANT, b"", (JOB2,)),
    ):
        world.load_facts([single])
        assert world.load_requests == [single_fact_request(single)]
    for more in (
        Footprint(TENANT),
        Footprint(TENANT, RECORD_ID),
        Footprint(TENANT, jobs=(JOB, JOB2)),
        Footprint(TENANT, jobs=(JOB,), follow_usage=True),
        Footprint(TENANT, jobs=(JOB,), policy=POLICY_ID),
        Footprint(TENANT, jobs=(JOB,), precondition=Precondition(POLICY_ID, b"")),
        Footprint(TENANT, stream=STREAM_ID),
        Footprint(TENANT, usage=USAGE_ID),
        Footprint(TENANT, memo=b"m"),
        FULL_FOOTPRINT,
    ):
        assert single_fact_request(more) is None


def test_following_goes_from_the_record_to_its_jobs_to_their_usage() -> None:
    record = a_record(job_ids=JOB3 + JOB)
    jobs = a_job(), a_job(id=JOB2), a_job(id=JOB3, usage_id=USAGE_ID)
    world = World(record, *jobs, a_usage(), a_stream(), a_policy())
    seen: list[Facts] = []
    world.execute(RecordFacts(tenant=TENANT, requested=FULL_FOOTPRINT, recorded=seen))
    (facts,) = seen
    assert (facts.record, facts.stream, facts.policy) == (record, a_stream(), a_policy())
    assert facts.jobs == {job.id: job for job in jobs}
    assert facts.job == jobs[2]  # the first that the record names
    assert facts.usage == a_usage()


def test_a_named_usage_is_not_replaced_by_following() -> None:
    other = usage_id(TENANT, "bob")
    world = World(a_job(usage_id=USAGE_ID), a_usage(), a_usage(id=other, user="bob"))
    seen: list[Facts] = []
    footprint = Footprint(TENANT, jobs=(JOB,), usage=other, follow_usage=True)
    world.execute(RecordFacts(tenant=TENANT, requested=footprint, recorded=seen))
    assert expect_type(seen[0].usage, Usage).user == "bob"


def test_a_footprint_names_at_most_a_hundred_jobs() -> None:
    ids = tuple(f"job-{n:012}".encode() for n in range(JOBS_MAX + 1))
    assert JOBS_MAX == 100
    assert expect_type(World().execute(scripted(Footprint(TENANT, jobs=ids[:-1]))), Maintained)
    assert expect_type(World().execute(scripted(Footprint(TENANT, jobs=ids))), Defect)
