"""Managers on real sockets in this process, with the commands of the conformance suite."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, ClassVar

from msgspec import Struct

from onejob.clock import Clock, FakeClock, SystemClock
from onejob.conformance import commands as suite
from onejob.core.replies import Cancelled
from onejob.core.submit import SubmissionCommand, Submit
from onejob.core.work import Cancel
from onejob.engine import Engine, GateSettings
from onejob.engines.remote import RemoteEngine
from onejob.engines.remote.codec import COMMANDS, REPLIES, WireCodec
from onejob.manager.ledger import ManagerIdempotencyLedger
from onejob.manager.server import ManagerServer
from onejob.runtime.settings import Said, open_settings

SUITE_COMMANDS: tuple[type[Struct], ...] = (
    suite.WriteFacts, suite.ReadFacts, suite.IncrementCounter, suite.FaultyWrite, suite.FaultyRead,
    suite.NoFootprintWrite, suite.NoFootprintRead, suite.WritingRead, suite.CreateFacts,
)  # fmt: skip
SUITE_CODEC = WireCodec(commands=COMMANDS + SUITE_COMMANDS, replies=(*REPLIES, suite.FactsRead))


class OlderSubmit(SubmissionCommand, frozen=True, gc=False, kw_only=True, tag="Submit"):
    """Submit as a program knows it that has no callbacks and no preconditions."""

    callback: ClassVar[str] = ""
    precondition: ClassVar[None] = None
    sites: ClassVar[None] = None
    decide = Submit.decide
    _create = Submit._create
    _take_over_and_commit = Submit._take_over_and_commit
    _quota_request = Submit._quota_request


# Of a program that has no callbacks and does not know how to cancel a job, on either side of the wire.
OLDER_CODEC = WireCodec(
    commands=(OlderSubmit, *(one for one in COMMANDS if one not in (Submit, Cancel))),
    replies=tuple(one for one in REPLIES if one is not Cancelled),
)


@asynccontextmanager
async def running_manager(
    engine: Engine,
    *,
    clock: Clock | None = None,
    codec: WireCodec = SUITE_CODEC,
    said: Said = MappingProxyType({}),
    **changes: Any,
) -> AsyncIterator[str]:
    """The URL of a manager of this engine; it closes the engine."""
    options: dict[str, Any] = {"settings": GateSettings(), "needs_gate_key": False, "needs_settings": False} | changes
    await open_settings(engine, said)
    ledger = ManagerIdempotencyLedger(engine, clock=clock or SystemClock(), codec=codec, **options)
    server = ManagerServer(ledger)
    host, port = await server.listen("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        await server.aclose(drain_seconds=1)
        await ledger.aclose()


async def open_remote(url: str, codec: WireCodec = SUITE_CODEC, silence_seconds_max: float = 10.0) -> RemoteEngine:
    """Patient with silence, because a test may run on a busy machine."""
    return await RemoteEngine.open(url, codec=codec, silence_seconds_max=silence_seconds_max)


OpenEngine = Callable[[FakeClock], Awaitable[Engine]]
