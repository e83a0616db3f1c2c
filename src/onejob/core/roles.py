"""Who may do what, as one table."""

from enum import StrEnum
from functools import lru_cache


class Role(StrEnum):
    SUBMITTER = "submitter"
    WORKER = "worker"
    OPERATOR = "operator"
    ADMIN = "admin"


class Act(StrEnum):
    SUBMIT = "submit"
    READ = "read"  # jobs, keys and their stories
    OVERSEE = "oversee"  # also those of other users, where each has its own
    CANCEL = "cancel"
    WORK = "work"  # claim, start, extend, finish, release
    FORGET = "forget"
    RESOLVE = "resolve"  # decide about lost jobs, run failed ones again
    ADMINISTER = "administer"  # credentials, limits, purging a tenant


# Whoever may submit may read: a replay shows a job.
ALLOWED: dict[Role, frozenset[Act]] = {
    Role.SUBMITTER: frozenset({Act.SUBMIT, Act.READ, Act.CANCEL}),
    Role.WORKER: frozenset({Act.READ, Act.WORK}),
    Role.OPERATOR: frozenset({Act.SUBMIT, Act.READ, Act.OVERSEE, Act.CANCEL, Act.FORGET, Act.RESOLVE}),
    Role.ADMIN: frozenset(Act),
}


def may(roles: frozenset[Role], act: Act) -> bool:
    return act in _acts(roles)


@lru_cache(256)
def _acts(roles: frozenset[Role]) -> tuple[Act, ...]:
    # A tuple: to hash a member of an enum costs more than to compare it with all of them.
    return tuple(act for act in Act if any(act in ALLOWED[role] for role in roles))
