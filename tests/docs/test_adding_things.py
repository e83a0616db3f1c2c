"""CONTRIBUTING.md shows how to add a job option, a command and a resource: its edits are made in a copy of the tree, and used."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.doc_pages import ROOT, Block, blocks_in
from tests.support.serve_process import ServeProcess, run_serve_process

SECTION = "Adding things, shown"
OPTION_FILES_MAX = 8
NOTE_CHARS_MAX = 100
NOTE = "Ada's birthday"
SUBMIT_IN_PYTHON = """
import asyncio, onejob

async def main():
    async with onejob.open("sqlite:///python.db") as queue:
        receipt = await queue.submit("mail", {"to": "ada"}, note="from Python")
        assert (await queue.job(receipt.job.id)).note == "from Python"
        one_number = await queue.submit_sequence("pump", 1, "k", scope="s", type="mail", note="numbered")
        assert one_number.job.note == "numbered"
        assert (await queue.submit("mail")).job.note == ""
        try:
            await queue.submit("mail", note="x" * 101)
        except onejob.Invalid as error:
            assert error.what == "note"
        else:
            raise AssertionError("a long note was accepted")

asyncio.run(main())
"""
SUBMIT_BY_CLIENT = """
import sys, onejob

with onejob.Client(sys.argv[1]) as client:
    receipt = client.submit("mail", idempotency_key="client", note="from a client")
    assert client.job(receipt.job.id).note == "from a client"
"""
LOAD_IN_PYTHON = """
import asyncio, onejob

async def main():
    async with onejob.open("sqlite:///python.db") as queue:
        load = await queue.admin.worker_load()
    assert type(load) is onejob.resources.operators.WorkerLoad and load.running == load.concurrency == 0

asyncio.run(main())
"""


class Copy(NamedTuple):
    """A copy of the tree, in which one part of the section has been followed."""

    folder: Path

    def run(self, *words: str) -> str:
        ran = subprocess.run(
            [sys.executable, *words], cwd=self.folder, capture_output=True, text=True, check=False, timeout=60
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def onejob(self, *words: str) -> str:
        return self.run("-m", "onejob.cli", *words)


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Copy:
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "src"))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return Copy(tmp_path)


def test_a_job_option_takes_eight_files(copy: Copy) -> None:
    assert len(follow("A job option", copy.folder)) <= OPTION_FILES_MAX
    copy.run("-c", SUBMIT_IN_PYTHON)
    with run_serve_process(copy.folder, "--engine", "sqlite:///served.db") as service:
        submit_over_http(copy, service)
        for target in (("--url", service.base_url), ("--engine", "sqlite:///here.db")):
            job_id = json.loads(copy.onejob("submit", "mail", "--note", NOTE, "--json", *target))["job"]["id"]
            assert json.loads(copy.onejob("job", job_id, "--json", *target))["job"]["note"] == NOTE
        schemas = openapi_schemas(service)
    assert "note" in schemas["JobOut"]["properties"]
    assert schemas["SubmitBody"]["properties"]["note"]["maxLength"] == NOTE_CHARS_MAX


def submit_over_http(copy: Copy, service: ServeProcess) -> None:
    sent = service.ask("POST", "/api/jobs", {"type": "mail", "note": NOTE}, idempotency_key="http").json["job"]
    assert sent["note"] == NOTE
    assert service.get(f"/api/jobs/{sent['id']}").json["job"]["note"] == NOTE
    assert service.ask("POST", "/api/jobs", {"type": "mail", "note": "x" * (NOTE_CHARS_MAX + 1)}).status == 400
    copy.run("-c", SUBMIT_BY_CLIENT, service.base_url)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_store_that_exists_gets_the_option(copy: Copy, request: pytest.FixtureRequest, database: str) -> None:
    url = "sqlite:///jobs.db" if database == "sqlite" else request.getfixturevalue("postgres").database()
    target = ("--json", "--engine", url)
    earlier = json.loads(copy.onejob("submit", "mail", *target))["job"]
    assert "note" not in earlier
    follow("A job option", copy.folder)
    copy.onejob("migrate", "--engine", url)
    assert json.loads(copy.onejob("job", earlier["id"], *target))["job"]["note"] == ""
    later = json.loads(copy.onejob("submit", "mail", "--note", NOTE, *target))["job"]
    assert json.loads(copy.onejob("job", later["id"], *target))["job"]["note"] == NOTE


def test_a_command_is_one_file(copy: Copy) -> None:
    assert len(follow("A command", copy.folder)) == 1
    assert re.search(r"^  busy +Show how busy the workers are\.$", copy.onejob("--help"), re.MULTILINE)
    copy.onejob("submit", "mail", "--engine", "sqlite:///jobs.db")
    assert copy.onejob("busy", "--engine", "sqlite:///jobs.db") == "0 jobs run on 0 workers\n"


def test_a_resource_is_one_struct(copy: Copy) -> None:
    edited = follow("A resource", copy.folder)
    structs = [line for block in edited for line in added_lines(block) if line.startswith("class ")]
    assert structs == ["class WorkerLoad(Resource, frozen=True):"]
    copy.run("-c", LOAD_IN_PYTHON)
    with run_serve_process(copy.folder, "--engine", "sqlite:///served.db") as service:
        sent, schemas = service.get("/api/workers/load").json, openapi_schemas(service)
    assert {name: sent[name] for name in sent if name != "requestId"} == {"running": 0, "concurrency": 0}
    assert {"running", "concurrency"} <= schemas["WorkerLoadOut"]["properties"].keys()


def test_an_edit_whose_place_is_gone_is_an_error() -> None:
    with pytest.raises(AssertionError, match="correct the edit"):
        edited_text("a\nb\n", Block("page", 1, "diff", "x.py", " c\n+d\n"))
    assert edited_text("a\nb\n", Block("page", 1, "diff", "x.py", " a\n-b\n+c\n")) == "a\nc\n"


def follow(part: str, folder: Path) -> list[Block]:
    """Make the edits of a part of the section; returns its blocks, one for each file."""
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = page.partition(f"## {SECTION}\n")[2].partition("\n## ")[0]
    blocks = blocks_in("CONTRIBUTING.md", section.partition(f"### {part}\n")[2].partition("\n### ")[0])
    assert len({block.title for block in blocks}) == len(blocks) > 0
    for block in blocks:
        path = folder / block.title
        if block.language == "diff":
            path.write_text(edited_text(path.read_text(encoding="utf-8"), block), encoding="utf-8")
        else:
            path = with_next_number(path)
            assert not path.exists()
            path.write_text(block.text, encoding="utf-8")
    return blocks


def edited_text(text: str, block: Block) -> str:
    """The text after a block's edits, which are made in their order: each where its lines are found next."""
    begin = 0
    for edit in block.text.split("@@\n"):
        lines = [line or " " for line in edit.splitlines()]
        old = "".join(f"{line[1:]}\n" for line in lines if line[0] in " -")
        new = "".join(f"{line[1:]}\n" for line in lines if line[0] in " +")
        found = text.find(old, begin)
        assert found >= 0, f"{block.title} has changed; correct the edit in CONTRIBUTING.md:\n{edit}"
        text, begin = text[:found] + new + text[found + len(old) :], found + len(new)
    return text


def with_next_number(path: Path) -> Path:
    """A migration is numbered when it is added."""
    migrations = len(list(path.parent.glob("[0-9]*.sql")))
    return path.with_name(path.name.replace("NNNN", f"{migrations + 1:04}"))


def added_lines(block: Block) -> list[str]:
    return [line[1:] for line in block.text.splitlines() if line.startswith("+")]


def openapi_schemas(service: ServeProcess) -> Any:
    return service.get("/openapi.json").json["components"]["schemas"]
