"""Purges, forgotten keys and changes of credentials are written to the audit log, with their actor."""

import json
import logging
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import onejob
from onejob.core.identity import Actor
from onejob.ledger.api_keys import ApiKeys
from tests.support.raw_http import run_server

KEY = "canary-key-4711"
KEY_DIGEST = sha256(KEY.encode()).hexdigest()[:16]


def audit_records(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.audit for record in caplog.records if hasattr(record, "audit")]


@pytest.fixture
def audit_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "onejob.audit")
    return caplog


async def test_forgetting_a_key_is_logged_even_without_a_job(
    queue: onejob.Ledger, audit_log: pytest.LogCaptureFixture
) -> None:
    ledger = queue.acting_as(tenant="acme", user="ann", actor=Actor.user("ann"))
    held = await ledger.check_or_reserve("t", idempotency_key=KEY, job=False)
    assert isinstance(held, onejob.HeldKey)
    await ledger.commit(held)
    with pytest.raises(onejob.NotFound):
        await ledger.forget("another", scope="t")
    await ledger.forget(KEY, scope="t")
    assert audit_records(audit_log) == [
        {"what": "forget", "tenant": "acme", "actor": "user:ann", "scope": "t", "key": KEY_DIGEST}
    ]
    assert KEY not in audit_log.text


async def test_a_purge_is_logged_with_the_number_of_deleted_facts(
    queue: onejob.Ledger, audit_log: pytest.LogCaptureFixture
) -> None:
    ledger = queue.acting_as(tenant="acme", user="ann", actor=Actor.client("cleaner"))
    await ledger.submit("t", idempotency_key=KEY)
    assert (await ledger.admin.purge()).erased == 1
    assert audit_records(audit_log) == [{"what": "purge", "tenant": "acme", "actor": "client:cleaner", "erased": 1}]


async def test_api_key_changes_are_logged_without_the_secret(
    queue: onejob.Ledger, audit_log: pytest.LogCaptureFixture
) -> None:
    keys = ApiKeys(queue)
    created = await keys.create("ci", roles=["worker", "submitter"])
    rotated = await keys.rotate(created.key.id)
    await keys.revoke(created.key.id)
    records = audit_records(audit_log)
    assert [record["what"] for record in records] == ["apikey create", "apikey rotate", "apikey revoke"]
    for record in records:
        assert (record["tenant"], record["actor"]) == ("default", "client:local")
        assert (record["id"], record["name"], record["roles"]) == (created.key.id, "ci", "submitter,worker")
    for text in (created.text, rotated.text):
        assert text.rpartition(".")[2] not in audit_log.text


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_server_writes_audit_records_to_its_log(tmp_path: Path, settings: str, log_format: str) -> None:
    with run_server(tmp_path, f'{settings}log_format = "{log_format}"\n') as server:
        assert server.submit(KEY).status == 202
        assert server.ask("DELETE", f"/api/keys/{KEY}?scope=charge").status == 200
        assert server.ask("DELETE", "/api/tenants/default").status == 200
        assert server.stop() == 0
    lines = [line for line in server.log.read_text().splitlines() if "audit" in line]
    assert len(lines) == 2
    if log_format == "json":
        forget, purge = (json.loads(line)["audit"] for line in lines)
        assert forget == {
            "what": "forget", "tenant": "default", "actor": "client:local", "scope": "charge", "key": KEY_DIGEST,
        }  # fmt: skip
        assert (purge["what"], purge["erased"] > 0) == ("purge", True)
    else:
        assert lines[0].endswith(
            f"info audit what='forget' tenant='default' actor='client:local' scope='charge' key='{KEY_DIGEST}'"
        )
        assert "what='purge'" in lines[1]
    assert KEY not in server.log.read_text()
