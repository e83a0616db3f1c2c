"""The services that run beside the API: started by the settings, and not even imported without them."""

import asyncio
import subprocess
import sys

import pytest

import onejob
from onejob.http.config import ServiceConfig
from onejob.http.services import running_services

SERVICES = {"onejob.http.callbacks", "onejob.http.site_delivery", "onejob.runtime.service_loop"}
LIST_MODULES = "import sys, onejob.http.serve, onejob.http.worker_processes; print(*sys.modules)"


def test_a_server_does_not_import_what_is_switched_off() -> None:
    listed = subprocess.run([sys.executable, "-c", LIST_MODULES], check=True, capture_output=True, text=True).stdout
    assert "onejob.http.services" in listed.split()
    assert not SERVICES & set(listed.split())


@pytest.mark.parametrize("callbacks", ["none", "any"])
async def test_the_settings_say_which_services_run(queue: onejob.Ledger, callbacks: str) -> None:
    before = len(asyncio.all_tasks())
    async with running_services(queue, ServiceConfig(callbacks=callbacks)):  # type: ignore[arg-type]  # one of its literals
        assert len(asyncio.all_tasks()) - before == (callbacks != "none")
    assert len(asyncio.all_tasks()) == before
