"""What a service does besides answering requests: one row each. What is switched off is not imported."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from onejob.ledger import Ledger

from .config import ServiceConfig


@asynccontextmanager
async def running_services(ledger: Ledger, config: ServiceConfig) -> AsyncIterator[None]:
    """Run the services that the settings switch on inside this context."""
    async with AsyncExitStack() as stack:
        if config.callbacks != "none":
            from .callbacks import callback_delivery

            await stack.enter_async_context(callback_delivery(ledger, config))
        if config.sites is not None:
            from .site_delivery import site_delivery

            await stack.enter_async_context(site_delivery(ledger, config.sites))
        yield
