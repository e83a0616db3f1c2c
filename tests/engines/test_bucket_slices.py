"""Tests of the ledger, of workers, and of services and workers that are killed, once more on a bucket.

They are the tests of the other engines, imported. Those that move the clock use a folder, whose clock they have in hand;
those that start processes use a real S3 server.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

import onejob
from onejob.clock import FakeClock
from tests.campaigns.worker.campaign import run_campaign
from tests.http.endpoints.test_quota_races import (
    test_fifty_racers_for_five_slots_over_several_servers_make_five_jobs as test_fifty_racers_for_five_slots_make_five_jobs,
)
from tests.http.endpoints.test_sequence_crashes import (
    test_a_hundred_copies_over_three_servers_are_executed_once as test_a_hundred_copies_of_a_number_are_executed_once,
)
from tests.ledger.test_ledger import (
    test_a_closed_ledger_is_unavailable,
    test_a_dry_run_returns_what_would_happen_and_changes_nothing,
    test_a_key_lives_until_the_last_millisecond_of_its_window,
    test_a_purged_tenant_has_nothing_left,
    test_a_race_of_duplicates_makes_one_job,
    test_a_repeated_submission_gets_the_same_job,
    test_another_body_under_the_same_key_is_a_conflict,
    test_duplicates_get_the_cancelled_job,
    test_jobs_are_listed_newest_first_and_by_state,
    test_maintenance_removes_what_has_expired,
    test_submit_many_has_a_verdict_for_each,
    test_tenants_and_owners_of_keys_never_meet,
)
from tests.ledger.test_quotas import (
    test_a_job_that_is_being_prepared_counts_when_its_user_gets_limits,
    test_a_preparing_job_holds_a_slot_that_ends_with_its_lease,
    test_a_stored_key_replays_the_external_job,
    test_maintenance_reconciles_usage_and_finds_no_drift,
    test_the_seeds_flow_runs_as_printed,
)
from tests.ledger.test_sequences import (
    test_a_batch_over_quota_leaves_its_number_free_for_another_payload,
    test_a_gap_is_refused_and_the_client_recovers_from_its_state,
    test_a_hundred_copies_of_one_number_are_executed_once,
    test_an_idle_client_goes_on_after_three_windows,
    test_numbers_sent_at_once_are_executed_in_their_order_or_refused,
)
from tests.ledger.test_work import (
    test_a_failure_is_tried_again_after_a_while_until_it_is_final,
    test_a_job_goes_from_claim_to_result,
    test_an_at_most_once_job_is_lost_right_after_its_lease_without_a_sweep,
    test_log_lines_sent_twice_are_stored_once,
    test_two_deliveries_of_one_claim_start_it_once,
)
from tests.support.raw_http import engine_line
from tests.worker.test_worker import (
    test_a_cancelled_job_stops_its_handler_within_a_heartbeat,
    test_fatal_ends_the_job_and_retry_runs_it_again,
    test_plain_functions_run_in_threads,
    test_the_context_describes_the_job_and_accepts_progress_and_log_lines,
)

__all__ = [
    "test_a_batch_over_quota_leaves_its_number_free_for_another_payload",
    "test_a_cancelled_job_stops_its_handler_within_a_heartbeat",
    "test_a_closed_ledger_is_unavailable",
    "test_a_dry_run_returns_what_would_happen_and_changes_nothing",
    "test_a_failure_is_tried_again_after_a_while_until_it_is_final",
    "test_a_gap_is_refused_and_the_client_recovers_from_its_state",
    "test_a_hundred_copies_of_a_number_are_executed_once",
    "test_a_hundred_copies_of_one_number_are_executed_once",
    "test_a_job_goes_from_claim_to_result",
    "test_a_job_that_is_being_prepared_counts_when_its_user_gets_limits",
    "test_a_key_lives_until_the_last_millisecond_of_its_window",
    "test_a_preparing_job_holds_a_slot_that_ends_with_its_lease",
    "test_a_purged_tenant_has_nothing_left",
    "test_a_race_of_duplicates_makes_one_job",
    "test_a_repeated_submission_gets_the_same_job",
    "test_a_stored_key_replays_the_external_job",
    "test_an_at_most_once_job_is_lost_right_after_its_lease_without_a_sweep",
    "test_an_idle_client_goes_on_after_three_windows",
    "test_another_body_under_the_same_key_is_a_conflict",
    "test_duplicates_get_the_cancelled_job",
    "test_fatal_ends_the_job_and_retry_runs_it_again",
    "test_fifty_racers_for_five_slots_make_five_jobs",
    "test_jobs_are_listed_newest_first_and_by_state",
    "test_log_lines_sent_twice_are_stored_once",
    "test_maintenance_reconciles_usage_and_finds_no_drift",
    "test_maintenance_removes_what_has_expired",
    "test_numbers_sent_at_once_are_executed_in_their_order_or_refused",
    "test_plain_functions_run_in_threads",
    "test_submit_many_has_a_verdict_for_each",
    "test_tenants_and_owners_of_keys_never_meet",
    "test_the_context_describes_the_job_and_accepts_progress_and_log_lines",
    "test_the_seeds_flow_runs_as_printed",
    "test_two_deliveries_of_one_claim_start_it_once",
]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path / 'bucket'}"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def queue(url: str, clock: FakeClock, request: pytest.FixtureRequest) -> AsyncIterator[onejob.Ledger]:
    is_worker_test = request.function.__module__.startswith("tests.worker")
    config = onejob.IdempotencyConfig(pending_wait_timeout=0)
    day = timedelta(days=1)  # the window that these tests expect
    async with onejob.open(
        url, config=config, sweep=False, window=day, clock=None if is_worker_test else clock
    ) as ledger:
        yield ledger


@pytest.fixture
def settings(bucket_url: str) -> str:
    return engine_line(bucket_url)


def test_killed_workers_leave_every_job_as_its_delivery_promises(bucket_url: str, tmp_path: Path) -> None:
    verdict = run_campaign(bucket_url, tmp_path, jobs=20, workers=2, seed=7, seconds_max=60)
    assert verdict.violations == []
    assert verdict.kills > 0
