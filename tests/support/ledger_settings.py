"""Changes the settings of an open ledger, as an operator does."""

import onejob
from onejob.runtime.settings import SettingsChange, change_settings


async def set_settings(queue: onejob.Ledger, **said: object) -> SettingsChange:
    """Change them, and let this process adopt them at once."""
    change = await change_settings(queue.runtime.gate, said, actor="client:admin")
    await queue.runtime.reload_settings()
    return change
