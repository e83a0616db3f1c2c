"""The class `EngineContract`, which combines all rules."""

import pytest

from .atomicity import AtomicityRules
from .barrier import BarrierRules
from .closing import ClosingRules
from .failing_commands import FailingCommandRules
from .fences import FencingRules
from .footprints import FootprintRules
from .hints import HintRules
from .mixed_batches import MixedBatchRules
from .ordering import OrderingRules
from .preconditions import PreconditionRules
from .queries import QueryRules
from .quotas import QuotaRules
from .races import RaceRules
from .retries import RetryRules
from .sequences import SequenceRules
from .tenants import TenantRules
from .time import TimeRules
from .values import ValueRules
from .work import WorkRules


@pytest.mark.asyncio
class EngineContract(
    AtomicityRules,
    BarrierRules,
    ClosingRules,
    FailingCommandRules,
    RetryRules,
    FencingRules,
    FootprintRules,
    HintRules,
    MixedBatchRules,
    OrderingRules,
    QueryRules,
    QuotaRules,
    RaceRules,
    SequenceRules,
    TenantRules,
    TimeRules,
    ValueRules,
    PreconditionRules,
    WorkRules,
):
    """All rules of an engine; a subclass provides the fixture `world`."""
