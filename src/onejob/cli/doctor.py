"""The command `doctor`: examine a store or a server, and say the next act."""

import asyncio
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

from onejob.clock import SystemClock
from onejob.core.lookup import LookUpJob
from onejob.core.receipt import AnyReply
from onejob.engine import Durability, caveat_of
from onejob.engines import is_postgres, open_engine, public
from onejob.errors import OnejobError
from onejob.ids import new_job_id
from onejob.settings import CommandLine

from .doctor_files import of_file, of_folder
from .doctor_postgres import of_postgres
from .doctor_server import of_server
from .findings import Examination, Finding, Verdict, examination, fail, ok, show, warn
from .reach import TENANT_DEFAULT, engine_url, server_of
from .stores import file_of

__all__ = ["examine", "show"]

_OFFSET_MS_MAX = 2000


def examine(options: Namespace, settings: CommandLine) -> Examination:
    if options.url is not None:
        server = server_of(options, settings)
        return examination(server.url, of_server(server))
    url = engine_url(options, settings)
    return examination(public(url), of_engine(url))


def of_engine(url: str) -> Iterator[Finding]:
    file = file_of(url)
    if file is not None:
        looked = list(of_store(file))
        yield from looked
        # To open what is not sound could change what must first be looked at; to look makes no store.
        if not _sound(looked) or not file.exists():
            return
    if is_postgres(url):
        yield from of_postgres(url)
    try:
        durability, at, caveat = asyncio.run(_opened(url))
    except OnejobError as error:
        yield fail("engine", str(error))
        return
    yield ok("engine", "opens and answers")
    yield _durability(durability)
    if caveat:
        yield warn("failover", *caveat.rsplit("; ", 1))
    yield clock(at - SystemClock().wall_ms(), shared=is_postgres(url))


def of_store(file: Path) -> Iterator[Finding]:
    around = list(of_folder(file.absolute().parent))
    yield from around
    if not _sound(around):
        return
    if file.exists():
        yield from of_file(file)
    else:
        yield warn("store", f"there is none at {file} yet", "`onejob serve` or a submission makes it")


def _sound(findings: list[Finding]) -> bool:
    return all(one.verdict is not Verdict.FAIL for one in findings)


async def _opened(url: str) -> tuple[Durability, int, str]:
    """Open the engine and ask it for something that is not there: the answer tells its time."""
    # To look makes no tables.
    engine = await open_engine(f"{url}{'&' if '?' in url else '?'}migrate=off" if is_postgres(url) else url)
    try:
        replies: list[AnyReply] = list(
            await engine.execute([LookUpJob(tenant=TENANT_DEFAULT, job_id=new_job_id())])
        )
        return engine.durability, getattr(replies[0], "at", 0), caveat_of(engine)
    finally:
        await engine.aclose()


def _durability(declared: Durability) -> Finding:
    if declared is Durability.PROCESS:
        return warn("durability", "process: all is lost when it ends", "use sqlite:///file.db for real work")
    return ok("durability", f"{declared}: an answer survives")


def clock(offset_ms: int, *, shared: bool = False) -> Finding:
    seconds = offset_ms / 1000
    if abs(offset_ms) <= _OFFSET_MS_MAX:
        return ok("clock", f"the engine's time and the wall clock differ by {seconds:+.3f} s")
    if shared:
        return warn(
            "clock",
            f"the server's clock and this machine's differ by {seconds:+.1f} s",
            "keys expire by the server's: see that it is right",
        )
    return warn(
        "clock",
        f"the engine's time and the wall clock differ by {seconds:+.1f} s: the wall clock was set after the boot",
        "keys expire by the engine's time; restart the machine if the difference matters",
    )
