"""Who may do what, as one table."""

from enum import StrEnum
from functools import lru_cache


class Role(StrEnum):
    SUBMITTER = "submitter"
    WORKER = "worker"
    OPERATOR = "operator"
    ADMIN = "admin"


class Permission(StrEnum):
    SUBMIT = "submit"
    READ = "read"  # jobs, keys and their stories
    OVERSEE = "oversee"  # also those of other users, where each has its own
    CANCEL = "cancel"
    WORK = "work"  # claim, start, extend, finish, release
    FORGET = "forget"
    RESOLVE = "resolve"  # decide about lost jobs, run failed ones again
    ADMINISTER = "administer"  # credentials, limits, purging a tenant


# Whoever may submit may read: a replay shows a job.
ROLE_PERMISSIONS: dict[Role, frozenset[Permission]] = {
    Role.SUBMITTER: frozenset({Permission.SUBMIT, Permission.READ, Permission.CANCEL}),
    Role.WORKER: frozenset({Permission.READ, Permission.WORK}),
    Role.OPERATOR: frozenset(
        {
            Permission.SUBMIT,
            Permission.READ,
            Permission.OVERSEE,
            Permission.CANCEL,
            Permission.FORGET,
            Permission.RESOLVE,
        }
    ),
    Role.ADMIN: frozenset(Permission),
}


def has_permission(roles: frozenset[Role], permission: Permission) -> bool:
    return permission in _permissions_of(roles)


@lru_cache(256)
def _permissions_of(roles: frozenset[Role]) -> tuple[Permission, ...]:
    # A tuple: to hash a member of an enum costs more than to compare it with all of them.
    return tuple(act for act in Permission if any(act in ROLE_PERMISSIONS[role] for role in roles))
