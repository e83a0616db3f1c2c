"""Runs the service on uvicorn. Without authentication it binds to loopback and to nothing else."""

import asyncio
import ipaddress
import socket

from onejob.errors import Invalid
from onejob.opening import open as open_ledger

from .app import App


def loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


async def serve(url: str, host: str, port: int) -> None:
    import uvicorn

    if not loopback(host):
        raise Invalid(
            "host", f"nobody is authenticated here, so {host} would be open to all; bind to 127.0.0.1"
        )
    async with open_ledger(url) as ledger:
        config = uvicorn.Config(
            App(ledger), host=host, port=port, log_level="warning", lifespan="off", access_log=False
        )
        listener = config.bind_socket()
        listener.listen(config.backlog)  # whoever reads the next line may connect at once
        print(f"onejob serves {url} at {address(listener)} (durability: {ledger.durability})", flush=True)
        await uvicorn.Server(config).serve(sockets=[listener])


def address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run(url: str, host: str, port: int) -> None:
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(url, host, port))
    else:
        uvloop.run(serve(url, host, port))
