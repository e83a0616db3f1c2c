"""What the README and the help print is what a newcomer types: it must work as it stands there."""

import json
import re
import shlex
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import onejob
from onejob.cli import parser
from onejob.core.credentials import api_key_policy_name
from onejob.http.app import HttpApp
from tests.support.app_server import Client, serve_app

ROOT = Path(__file__).parents[1]


@pytest.fixture
async def client(url: str) -> AsyncIterator[Client]:
    async with onejob.open(url, sweep=False) as ledger, serve_app(HttpApp(ledger)) as client:
        yield client


def documented_curl() -> tuple[str, bytes, bytes]:
    """The path, the header and the body of the README's first curl."""
    (command,) = re.findall(r"^curl (?:.*\\\n)*.*$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    words = shlex.split(command.replace("\\\n", " "))
    header, body = words[words.index("-H") + 1], words[words.index("-d") + 1]
    (url,) = [word for word in words if word.startswith("http://127.0.0.1:8001/")]
    return url.removeprefix("http://127.0.0.1:8001"), header.encode(), body.encode()


async def test_the_curl_of_the_readme_makes_one_job_and_another_body_is_a_conflict(client: Client) -> None:
    path, header, body = documented_curl()
    first, again = [await client.ask("POST", path, body, header) for _ in range(2)]
    assert (first.status, again.status) == (202, 202)
    assert again.body["job"]["id"] == first.body["job"]["id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert "idempotent-replayed" not in first.headers
    said = json.loads(body)
    said["input"]["amount"] += 1
    other = await client.ask("POST", path, json.dumps(said).encode(), header)
    assert (other.status, other.code) == (409, "CONFLICT")
    assert other.body["error"]["details"]["paths"] == ["/input/amount"]


def all_parsers(of: ArgumentParser) -> Iterator[ArgumentParser]:
    for action in of._actions:
        if isinstance(action, _SubParsersAction):
            for command in action.choices.values():
                yield command
                yield from all_parsers(command)


def documented_examples() -> list[str]:
    told = [command.epilog or "" for command in all_parsers(parser.build_parser())]
    return [line.strip() for text in told for line in text.splitlines() if line.strip().startswith("onejob ")]


@pytest.mark.parametrize("example", documented_examples())
def test_an_example_of_the_help_parses_as_printed(example: str) -> None:
    read = parser.build_parser().parse_args(shlex.split(example)[1:])
    if read.command == "apikey" and hasattr(read, "id"):
        api_key_policy_name(read.id)  # refuses what no API key could be called
