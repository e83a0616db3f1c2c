"""Clients behind a faulty proxy. The long form is `python -m tests.campaigns.client`."""

import asyncio
from pathlib import Path

import onejob
from onejob.cli.commands.prove.faulty_proxy import ECHO, LOSE, PASS, NetworkFault, cut
from tests.campaigns.client.campaign import ANSWER_BYTES, QUICK, run_campaign
from tests.campaigns.client.faulty_proxy import seeded_faults
from tests.support.faulty_proxy import run_faulty_proxy
from tests.support.serve_process import run_serve_process


def test_a_response_cut_at_any_byte_is_no_response(tmp_path: Path) -> None:
    """At every third byte; the long form cuts at every byte."""

    def choose(key: str, attempt: int) -> NetworkFault:
        return cut(3 * int(key[-6:])) if attempt == 0 else PASS

    result = run_campaign(tmp_path, ANSWER_BYTES // 3, choose)
    assert result.answer_bytes_max < ANSWER_BYTES, "then not every byte was cut at"
    assert result.attempts > ANSWER_BYTES // 3 + 250


def test_one_submission_is_one_job_under_every_fault(tmp_path: Path) -> None:
    result = run_campaign(tmp_path, 200, seeded_faults(1, faults_max=6, answer_bytes=ANSWER_BYTES, delay_seconds=0.6))
    assert result.attempts > 250
    assert {"drop", "lose", "twice", "echo", "cut", "delay"} <= result.fault_counts.keys()


def test_five_lost_responses_create_one_job(tmp_path: Path) -> None:
    def choose(key: str, attempt: int) -> NetworkFault:
        return LOSE if attempt < 5 else PASS

    assert run_campaign(tmp_path, 4, choose).attempts == 4 * 6


def test_a_response_to_another_call_is_discarded(tmp_path: Path) -> None:
    async def submitted(url: str) -> list[str]:
        async with onejob.AsyncClient(url, retry=QUICK) as client:
            return [(await client.submit("t", n, idempotency_key=f"k-{n}")).job_id for n in range(20)]

    with run_serve_process(tmp_path) as server, run_faulty_proxy(server.port, lambda key, attempt: ECHO) as proxy:
        ids = asyncio.run(submitted(proxy.url))
        assert len(set(ids)) == 20
        assert [server.submit("t", n, f"k-{n}").json["job"]["id"] for n in range(20)] == ids
