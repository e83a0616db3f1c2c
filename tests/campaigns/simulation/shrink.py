"""Shrinks a failing plan to a small one that violates the same invariant."""

from collections.abc import Callable, Iterator

from msgspec.structs import asdict, replace

from .plan import Faults, Op, Plan

TRIES_MAX = 1500
SALTS = 3  # a smaller plan runs in another order, so several orders are tried

FindViolation = Callable[[Plan], str | None]  # name of the invariant that a plan violates


def shrink(plan: Plan, find_violation: FindViolation) -> Plan:
    """Remove clients, operations and faults while the same invariant is violated."""
    invariant = find_violation(plan)
    assert invariant is not None, "this plan does not fail"
    tries = 0
    shrunk = True
    while shrunk:
        shrunk = False
        for smaller in _smaller_plans(plan):
            found = next((p for p in _reorderings(smaller) if find_violation(p) == invariant), None)
            tries += 1
            if found is not None:
                plan, shrunk = found, True
                break
            if tries >= TRIES_MAX:
                return plan
    return plan


def size(plan: Plan) -> int:
    """A measure of what a reader must understand."""
    faults = sum(bool(weight) for weight in asdict(plan.faults).values())
    operations = sum(len(ops) for ops in plan.clients)
    return operations + len(plan.clients) + faults + plan.processes + plan.keys


def _reorderings(plan: Plan) -> Iterator[Plan]:
    return (replace(plan, salt=plan.salt + n) for n in range(SALTS))


def _smaller_plans(plan: Plan) -> Iterator[Plan]:
    """Smaller plans, the largest reductions first."""
    clients = plan.clients
    for n in range(len(clients)):
        if len(clients) > plan.tenants:
            yield replace(plan, clients=clients[:n] + clients[n + 1 :])
    if plan.faults != Faults():
        yield replace(plan, faults=Faults())
    for name, weight in asdict(plan.faults).items():
        if weight:
            yield replace(plan, faults=replace(plan.faults, **{name: 0.0}))
    for parts in (2, 4, 8, 64):
        for n, ops in enumerate(clients):
            for fewer in _without_one_part(ops, parts):
                yield replace(plan, clients=(*clients[:n], fewer, *clients[n + 1 :]))
    for name in ("processes", "keys", "users"):
        if getattr(plan, name) > 1:
            yield replace(plan, **{name: getattr(plan, name) - 1})
    if plan.quota is not None:
        yield replace(plan, quota=None)
    if plan.has_sequenced_key:
        yield replace(plan, has_sequenced_key=False)


def _without_one_part(ops: tuple[Op, ...], parts: int) -> Iterator[tuple[Op, ...]]:
    """All results of leaving out one of `parts` parts."""
    step = max(1, len(ops) // parts)
    return (ops[:n] + ops[n + step :] for n in range(0, len(ops), step))
