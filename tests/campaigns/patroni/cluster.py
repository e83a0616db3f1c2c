"""Three sites on loopback, each with etcd, Patroni and PostgreSQL, which are killed together."""

import asyncio
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import asyncpg

from tests.campaigns.failover.cluster import child_processes, stop_replication
from tests.support.leftovers import new_folder

from .recipe import PAGE, PORTS, POSTGRES, SITES, Place, Recipe, localize, read_recipe

WHOLE_SECONDS_MAX = 180.0
_POLL_SECONDS = 0.25
_REPLICATION = """
SELECT count(*) FILTER (WHERE state = 'streaming') AS streaming,
    count(*) FILTER (WHERE state = 'streaming' AND sync_state IN ('sync', 'quorum')) AS synchronous,
    current_setting('synchronous_standby_names') AS names
FROM pg_stat_replication
"""


def find_missing_program(patroni: str) -> str:
    """What the campaign needs and this machine does not have; empty: nothing."""
    missing = [name for name in ("etcd", patroni) if shutil.which(name) is None]
    if find_postgres() is None:
        missing.append("PostgreSQL in /usr/lib/postgresql")
    return ", ".join(missing)


def find_postgres() -> Path | None:
    """The programs of the newest PostgreSQL that Debian has installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


def draw_port() -> int:
    """A free port that no outgoing connection gets, so that whoever is killed can have it again."""
    while True:
        port = random.randrange(10_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Site:
    def __init__(self, name: str, place: Place, etcd: list[str], patroni: list[str]) -> None:
        self.name = name
        self.place = place
        self._commands = (etcd, patroni)
        # PostgreSQL refuses to run as root.
        self._user = pwd.getpwnam("nobody").pw_name if os.geteuid() == 0 else None
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        if self._user is not None:
            shutil.chown(self.place.folder, self._user)
        folder = self.place.folder
        environ = os.environ | {"HOME": str(folder)}  # libpq looks for certificates there
        with (folder / "log").open("ab") as log:
            self._processes = [
                subprocess.Popen(command, stdout=log, stderr=log, user=self._user, cwd=folder, env=environ)
                for command in self._commands
            ]

    def kill(self) -> None:
        """SIGKILL all of it, so that nothing can clean up: a power cut, but for what the kernel still writes."""
        postmaster = self._postmaster()
        pids = [process.pid for process in self._processes]
        pids += [child for pid in pids for child in child_processes(pid)]
        if postmaster is not None:
            pids += [postmaster, *child_processes(postmaster)]
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._processes:
            process.wait()
        self._processes = []

    def stop_replication(self) -> None:
        """Stop sending to standbys, as if the line were cut shortly before the site fails."""
        if (postmaster := self._postmaster()) is not None:
            stop_replication(postmaster)

    def log(self) -> str:
        lines = (self.place.folder / "log").read_text(errors="replace").splitlines()[-40:]
        return "\n".join(line[:200] for line in lines)  # PostgreSQL logs whole statements

    def _postmaster(self) -> int | None:
        """Its process id, which Patroni has started and is no child of it."""
        try:
            pid = int((self.place.folder / "postgresql" / "postmaster.pid").read_text().split()[0])
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (OSError, IndexError, ValueError):
            return None
        return pid if str(self.place.folder).encode() in command else None  # the file may be older than a crash


class ThreeSites:
    def __init__(self, *, patroni: str = "patroni", is_synchronous: bool = True) -> None:
        self.folder = new_folder("patroni")
        self.folder.chmod(0o755)
        self._is_synchronous = is_synchronous
        places = {name: Place(self.folder / name, {port: draw_port() for port in PORTS}) for name in SITES}
        recipe = adapt(read_recipe(PAGE.read_text()), patroni, is_synchronous=is_synchronous)
        self._sql = recipe.sql
        self.url = localize(recipe.ledger, SITES[0], places)
        programs = find_postgres()
        assert programs is not None
        self.sites: dict[str, Site] = {}
        for name, place in places.items():
            place.folder.mkdir()
            config = place.folder / "patroni.yml"
            config.write_text(recipe.patroni_file(name, places, programs))
            self.sites[name] = Site(name, place, recipe.etcd_command(name, places), [patroni, str(config)])

    def __enter__(self) -> Self:
        try:
            for site in self.sites.values():
                site.start()
            asyncio.run(self._create_database())
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        for site in self.sites.values():
            site.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def wait_until_whole(self) -> str:
        """The site of the primary, once both standbys stream from it, and Patroni has chosen who confirms commits."""
        return await self._wait_for_primary(len(SITES) - 1, is_chosen=True)

    async def wait_until_elected(self) -> str:
        """The site of a primary that a standby follows, so that it can confirm commits."""
        return await self._wait_for_primary(1, is_chosen=False)

    async def _wait_for_primary(self, standbys: int, *, is_chosen: bool) -> str:
        deadline = time.monotonic() + WHOLE_SECONDS_MAX
        while (primary := await self._find_primary(standbys, is_chosen=is_chosen)) is None:
            if time.monotonic() > deadline:
                logs = "\n".join(f"--- {name}\n{site.log()}" for name, site in self.sites.items())
                raise AssertionError(f"no primary with {standbys} standbys after {WHOLE_SECONDS_MAX:g} s\n{logs}")
            await asyncio.sleep(_POLL_SECONDS)
        return primary

    def database(self, site: str, *, name: str = "onejob") -> str:
        return f"postgresql://postgres:change-me@127.0.0.1:{self.sites[site].place.ports[POSTGRES]}/{name}"

    async def _find_primary(self, standbys: int, *, is_chosen: bool) -> str | None:
        for name in self.sites:
            row = await self._ask(name, _REPLICATION)
            if row is not None and row["streaming"] >= standbys:
                confirms = row["synchronous"] > 0 and (row["names"] != "*" or not is_chosen)
                return name if confirms or not self._is_synchronous else None
        return None

    async def _ask(self, site: str, sql: str) -> Any:
        """One row; None: nothing answers."""
        try:
            connection = await asyncpg.connect(self.database(site, name="postgres"), timeout=2)
        except (asyncpg.PostgresError, OSError, TimeoutError):
            return None
        try:
            return await connection.fetchrow(sql, timeout=2)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError):
            return None
        finally:
            connection.terminate()

    async def _create_database(self) -> None:
        primary = await self.wait_until_whole()
        connection = await asyncpg.connect(self.database(primary, name="postgres"))
        for statement in filter(str.strip, self._sql.split(";")):
            await connection.execute(statement)
        await connection.close()


def adapt(recipe: Recipe, patroni: str, *, is_synchronous: bool) -> Recipe:
    """For Patroni 4, as the recipe says; or without a quorum, as a control that must lose answers."""
    version = subprocess.run([patroni, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    mode = "quorum" if int(version.partition(".")[0]) >= 4 else "true"
    if not is_synchronous:
        mode = "false"
        recipe = recipe._replace(ledger=recipe.ledger.partition("?")[0])
    lines = recipe.patroni.replace("synchronous_mode: true", f"synchronous_mode: {mode}")
    return recipe._replace(patroni=lines)
