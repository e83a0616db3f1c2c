"""What submissions were answered with, counted since the start: in all, and for each tenant."""

from collections import Counter

TENANTS_MAX = 10_000


class Outcomes(Counter[str]):
    """By word. Of tenants, those that came first leave when there are too many; then they count from zero."""

    def __init__(self) -> None:
        super().__init__()
        self._tenants: dict[str, Counter[str]] = {}

    def count(self, tenant: str, word: str) -> None:
        self[word] += 1
        own = self._tenants.get(tenant)
        if own is None:
            own = self._tenants[tenant] = Counter()
            if len(self._tenants) > TENANTS_MAX:
                del self._tenants[next(iter(self._tenants))]
        own[word] += 1

    def of(self, tenant: str) -> Counter[str]:
        return self._tenants.get(tenant, Counter())
