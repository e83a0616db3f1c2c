"""All rules of an engine in one class."""

import pytest

from .atomicity import Atomicity
from .closing import Closing
from .culprit import Culprit
from .echo import Echo
from .fences import Fences
from .following import Following
from .mixed import Mixed
from .order import Order
from .queries import Queries
from .quotas import Quotas
from .races import Races
from .sequences import Sequences
from .tenants import Tenants
from .time import Time
from .values import Values
from .warrants import Warrants
from .work import Work


@pytest.mark.asyncio
class EngineContract(
    Atomicity,
    Closing,
    Culprit,
    Echo,
    Fences,
    Following,
    Mixed,
    Order,
    Queries,
    Quotas,
    Races,
    Sequences,
    Tenants,
    Time,
    Values,
    Warrants,
    Work,
):
    """Subclass it, and give it a fixture `world`."""
