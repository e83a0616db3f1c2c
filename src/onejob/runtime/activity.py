"""Reports a process's activity: what it has counted since its last report is added to the totals that all processes share.

A report that got no answer is sent again unchanged, which counts it once. So that many tenants cost no more than a few
writes a second, one turn reports only the tenants with the most to report; the others keep counting.
"""

from collections import Counter
from collections.abc import Mapping

from onejob.core.activity import ACTIVITY_POLICY_NAME, Activity, AddActivity, advanced_activity
from onejob.core.facts import Job
from onejob.core.identity import policy_id
from onejob.engines.gate import Gate
from onejob.errors import OnejobError
from onejob.ids import Ids

from .attempt_stats import end_of_attempt
from .policies import decode_body, load_policy

TENANTS_PER_TURN_MAX = 100
TENANTS_MAX = 10_000  # with counted ends; those of further tenants are not reported
_SOURCE_CHARS = 16


class ActivityReporter:
    def __init__(self, gate: Gate, ids: Ids) -> None:
        self._gate = gate
        self._source = ids.holder().hex()[:_SOURCE_CHARS]
        self._reported: dict[str, Mapping[str, int]] = {}  # outcomes of a tenant that were reported
        self._number = 0  # of the last report; those to one tenant only grow
        self._ends: dict[str, dict[str, Counter[str]]] = {}  # by tenant and type
        self._unanswered: list[AddActivity] = []

    def count_end(self, job: Job) -> None:
        types = self._ends.get(job.tenant)
        if types is None:
            if len(self._ends) >= TENANTS_MAX:
                return
            types = self._ends[job.tenant] = {}
        types.setdefault(job.type, Counter())[end_of_attempt(job)] += 1

    async def report(self) -> None:
        """Send one turn of reports; what got no answer is sent again by the next."""
        reports = self._unanswered or [self._build_report(tenant) for tenant in self._busiest_tenants()]
        self._unanswered = reports  # also if this call is cancelled
        replies = await self._gate.execute_each(reports)
        self._unanswered = [
            report for report, reply in zip(reports, replies, strict=True) if isinstance(reply, OnejobError)
        ]

    async def load(self, tenant: str) -> tuple[Activity, int]:
        """A tenant's activity as all processes see it, and the engine's time."""
        policy, now = await load_policy(self._gate, tenant, ACTIVITY_POLICY_NAME)
        activity = Activity(0) if policy is None else decode_body(policy, Activity)
        return advanced_activity(activity, now), now

    def _busiest_tenants(self) -> list[str]:
        outcomes = self._gate.outcomes
        self._reported = {tenant: self._reported[tenant] for tenant in outcomes.tenants() if tenant in self._reported}
        pending: Counter[str] = Counter()
        for tenant in outcomes.tenants():
            news = sum(outcomes.for_tenant(tenant).values()) - sum(self._reported.get(tenant, {}).values())
            if news:
                pending[tenant] = abs(news)
        for tenant, types in self._ends.items():
            pending[tenant] += sum(counts.total() for counts in types.values())
        return [tenant for tenant, _ in pending.most_common(TENANTS_PER_TURN_MAX)]

    def _build_report(self, tenant: str) -> AddActivity:
        outcomes, before = dict(self._gate.outcomes.for_tenant(tenant)), self._reported.get(tenant, {})
        if sum(outcomes.values()) < sum(before.values()):
            before = {}  # the tenant was evicted from the counters, and started from zero
        counts = Counter({name: count - before.get(name, 0) for name, count in outcomes.items()})
        types = self._ends.pop(tenant, {})
        for ends in types.values():
            counts.update({f"end:{name}": count for name, count in ends.items()})
        self._reported[tenant] = outcomes
        self._number += 1
        return AddActivity(
            tenant=tenant,
            policy_id=policy_id(tenant, ACTIVITY_POLICY_NAME),
            source=self._source,
            number=self._number,
            counts={name: count for name, count in counts.items() if count > 0},
            type_counts={type: dict(ends) for type, ends in types.items()},
        )
