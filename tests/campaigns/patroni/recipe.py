"""The recipe for three sites, read from docs/scaling.md: what that page prints is what the campaign starts.

On one machine the sites differ by their ports and folders, so only these are replaced.
"""

import re
import shlex
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

PAGE = Path(__file__).parents[3] / "docs" / "scaling.md"
SECTION = "## One ledger over three sites"
SITES = ("site1", "site2", "site3")
ETCD, ETCD_PEER, PATRONI, POSTGRES = 2379, 2380, 8008, 5432
PORTS = (ETCD, ETCD_PEER, PATRONI, POSTGRES)
_FOLDER = "/var/lib/onejob"
_PROGRAMS = "/usr/lib/postgresql/15/bin"
_BLOCK = r"^( *)```{kind}\n(.*?)^ *```$"
_LEDGER = re.compile(r"'(postgresql://[^']+)'")


class Place(NamedTuple):
    """Where a site is on this machine."""

    folder: Path
    ports: dict[int, int]  # the port of the recipe: the port on loopback


class Recipe(NamedTuple):
    etcd: str  # the command
    patroni: str  # its configuration file
    sql: str  # for the first primary
    ledger: str  # the URL that managers open

    def etcd_command(self, site: str, places: dict[str, Place]) -> list[str]:
        return shlex.split(localize(self.etcd, site, places).replace("\\\n", " "))

    def patroni_file(self, site: str, places: dict[str, Place], programs: Path) -> str:
        return localize(self.patroni, site, places).replace(_PROGRAMS, str(programs))


def read_recipe(page: str) -> Recipe:
    section = page.partition(SECTION)[2].partition("\n## ")[0]
    found = _LEDGER.search(section)
    assert found, f"{SECTION!r} names no engine"
    etcd, patroni, sql = (_read_block(section, kind) for kind in ("sh", "yaml", "sql"))
    return Recipe(etcd, patroni, sql, ledger=found[1])


def _read_block(section: str, kind: str) -> str:
    found = re.search(_BLOCK.format(kind=kind), section, re.MULTILINE | re.DOTALL)
    assert found, f"{SECTION!r} has no block of {kind}"
    return dedent(found[2])


def localize(text: str, site: str, places: dict[str, Place]) -> str:
    """The text for one site, with the addresses and the folder that it has on this machine."""
    text = text.replace("$SITE", site).replace(_FOLDER, str(places[site].folder))
    hosts = {name: place.ports for name, place in places.items()} | {"0.0.0.0": places[site].ports}
    for host, ports in hosts.items():
        for port, actual in ports.items():
            text = text.replace(f"{host}:{port}", f"127.0.0.1:{actual}")
    return text
