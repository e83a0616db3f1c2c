"""Changes the settings of an open ledger, as an operator does."""

import onejob
from onejob.ledger.base import runtime_of
from onejob.runtime.settings import SettingsChange, change_settings


async def set_settings(queue: onejob.Ledger, **said: object) -> SettingsChange:
    """Change them, and let this process adopt them at once."""
    change = await change_settings(runtime_of(queue).gate, said, actor="client:admin")
    await runtime_of(queue).reload_settings()
    return change
