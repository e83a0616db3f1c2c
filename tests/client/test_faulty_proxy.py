"""Clients behind a proxy that spoils what passes. The long form is `python -m tests.client`."""

import asyncio
from pathlib import Path

import onejob
from tests.client.campaign import ANSWER_BYTES, QUICK, run_campaign
from tests.support.serve_process import run_serve_process

from .faulty_proxy import ECHO, LOSE, PASS, Fault, cut, run_faulty_proxy, seeded_faults


def test_an_answer_cut_at_any_place_is_no_answer(tmp_path: Path) -> None:
    """At every third byte; the long form cuts everywhere."""

    def choose(key: str, attempt: int) -> Fault:
        return cut(3 * int(key[-6:])) if attempt == 0 else PASS

    told = run_campaign(tmp_path, ANSWER_BYTES // 3, choose)
    assert told.answer_bytes_max < ANSWER_BYTES, "then not every place was cut at"
    assert told.attempts > ANSWER_BYTES // 3 + 250


def test_whatever_a_proxy_does_one_submission_is_one_job(tmp_path: Path) -> None:
    told = run_campaign(tmp_path, 200, seeded_faults(1, faults_max=6, answer_bytes=ANSWER_BYTES, delay_seconds=0.6))
    assert told.attempts > 250
    assert {"drop", "lose", "twice", "echo", "cut", "delay"} <= told.fates.keys()


def test_five_lost_answers_make_one_job(tmp_path: Path) -> None:
    def choose(key: str, attempt: int) -> Fault:
        return LOSE if attempt < 5 else PASS

    assert run_campaign(tmp_path, 4, choose).attempts == 4 * 6


def test_an_answer_meant_for_another_call_is_not_taken(tmp_path: Path) -> None:
    async def submitted(url: str) -> list[str]:
        async with onejob.AsyncClient(url, retry=QUICK) as client:
            return [(await client.submit("t", n, idempotency_key=f"k-{n}")).job_id for n in range(20)]

    with run_serve_process(tmp_path) as server, run_faulty_proxy(server.port, lambda key, attempt: ECHO) as proxy:
        ids = asyncio.run(submitted(proxy.url))
        assert len(set(ids)) == 20
        assert [server.submit("t", n, f"k-{n}").json["job"]["id"] for n in range(20)] == ids
