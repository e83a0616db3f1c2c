"""Schedules as the ledger knows them: since when they tick, and whether they are paused. There is no calendar.

A schedule is a policy of its tenant. Workers register it; an operator pauses and resumes it. Submissions of its ticks carry
the policy as their precondition, so that a pause takes effect at once.
"""

from collections.abc import Callable, Sequence
from datetime import datetime

from msgspec import Struct, json
from msgspec.structs import replace

from onejob.core.credentials import ABSENT, DropPolicy, LookUpPolicy, SetPolicy
from onejob.core.facts import Kind, Policy
from onejob.core.identity import checked_name, policy_id
from onejob.core.replies import Maintained, Missing, PolicyFound, Reason, Refused
from onejob.core.timestamps import to_utc
from onejob.engine import PAGE_MAX, ListFacts
from onejob.errors import Invalid, NotFound, Unavailable
from onejob.runtime.present import to_exception

from .base import LedgerBase

PREFIX = "schedule/"
TIMETABLES_MAX = 8  # of a schedule: during a deployment, workers with the old and with the new one run
_ATTEMPTS_MAX = 100


class ScheduleEntry(Struct, frozen=True, omit_defaults=True):
    """The stored form of a schedule."""

    type: str
    timetable: str  # of the worker that was started last
    catch_up: int
    since: dict[str, int]  # by timetable: earlier ticks are never submitted
    paused_at: int = 0
    paused_by: str = ""
    resumed_at: int = 0


class ScheduleView(Struct, frozen=True, rename="camel"):
    name: str
    type: str
    timetable: str
    catch_up: int
    since: datetime
    paused_at: datetime | None
    paused_by: str | None


class StoredSchedule(Struct, frozen=True):
    """A schedule as it was read, and when."""

    entry: ScheduleEntry
    policy: Policy
    at: int


def schedule_look_up(tenant: str, name: str) -> LookUpPolicy:
    return LookUpPolicy(tenant=tenant, policy_id=policy_id(tenant, PREFIX + name))


def decode_schedule(reply: PolicyFound) -> StoredSchedule:
    return StoredSchedule(json.decode(reply.policy.body, type=ScheduleEntry), reply.policy, reply.at)


class ScheduleOperations(LedgerBase):
    async def schedules(self) -> Sequence[ScheduleView]:
        """The schedules of the tenant that a worker has registered, by name."""
        views: list[ScheduleView] = []
        after = b""
        while True:
            query = ListFacts(tenant=self._caller.tenant, kind=Kind.POLICY, after=after, limit=PAGE_MAX)
            page = await self._gate.scan(query)
            policies = [fact for fact in page.items if isinstance(fact, Policy)]
            views += (_to_view(policy) for policy in policies if policy.name.startswith(PREFIX))
            if not page.more:
                return sorted(views, key=lambda view: view.name)
            after = policies[-1].id

    async def pause_schedule(self, name: str) -> ScheduleView:
        """Submit no tick of this schedule until it is resumed. One that is paused stays as it is."""

        def pause(entry: ScheduleEntry, now: int) -> ScheduleEntry:
            return entry if entry.paused_at else replace(entry, paused_at=now, paused_by=self._caller.actor)

        return await self._change_schedule(name, pause)

    async def resume_schedule(self, name: str) -> ScheduleView:
        """Submit ticks again; of those that were missed, as many as the schedule catches up."""

        def resume(entry: ScheduleEntry, now: int) -> ScheduleEntry:
            return replace(entry, paused_at=0, paused_by="", resumed_at=now) if entry.paused_at else entry

        return await self._change_schedule(name, resume)

    async def delete_schedule(self, name: str) -> None:
        """Forget a schedule that no worker has any more; a worker that has it registers it again, as new.

        One that is paused is not deleted: a worker that still has it would continue it.
        """
        tenant, id = self._caller.tenant, self._schedule_id(name)
        for _ in range(_ATTEMPTS_MAX):
            found = await self._find_schedule(id)
            if isinstance(found, Missing):
                raise _unknown_schedule(name)
            if found.entry.paused_at:
                message = f"schedule {name!r} is paused, and a worker that still has it would go on; resume it first"
                raise Invalid("schedule", message)
            reply = await self._execute(DropPolicy(tenant=tenant, policy_id=id, expected_version=found.policy.version))
            if isinstance(reply, Maintained):
                return
            if not _is_stale(reply):
                raise to_exception(reply, "")
        raise _contested_schedule(name)

    async def register_schedule(self, name: str, *, type: str, timetable: str, catch_up: int) -> StoredSchedule:
        """Make this the timetable of the schedule. Under a timetable that it did not have, it ticks from now on."""

        def register(entry: ScheduleEntry | None, now: int) -> ScheduleEntry:
            if entry is None:
                return ScheduleEntry(type, timetable, catch_up, {timetable: now})
            since = entry.since
            if entry.timetable != timetable or timetable not in since:
                others = [item for item in since.items() if item[0] != timetable]
                since = dict([*others, (timetable, now)][-TIMETABLES_MAX:])
            return replace(entry, type=type, timetable=timetable, catch_up=catch_up, since=since)

        return await self._write_schedule(name, register)

    def _schedule_id(self, name: str) -> bytes:
        return policy_id(self._caller.tenant, PREFIX + checked_name("schedule", name))

    async def _change_schedule(self, name: str, change: Callable[[ScheduleEntry, int], ScheduleEntry]) -> ScheduleView:
        def change_known(entry: ScheduleEntry | None, now: int) -> ScheduleEntry:
            if entry is None:
                raise _unknown_schedule(name)
            return change(entry, now)

        return _to_view((await self._write_schedule(name, change_known)).policy)

    async def _write_schedule(
        self, name: str, change: Callable[[ScheduleEntry | None, int], ScheduleEntry]
    ) -> StoredSchedule:
        """Read, change and write, again if another process wrote meanwhile."""
        tenant, id = self._caller.tenant, self._schedule_id(name)
        for _ in range(_ATTEMPTS_MAX):
            found = await self._find_schedule(id)
            before = None if isinstance(found, Missing) else found
            entry = change(before.entry if before else None, found.at)
            if before is not None and entry == before.entry:
                return before
            reply = await self._execute(
                SetPolicy(
                    tenant=tenant,
                    policy_id=id,
                    name=PREFIX + name,
                    body=json.encode(entry),
                    expected_version=before.policy.version if before else ABSENT,
                )
            )
            if isinstance(reply, PolicyFound):
                return decode_schedule(reply)
            if not _is_stale(reply):
                raise to_exception(reply, "")
        raise _contested_schedule(name)

    async def _find_schedule(self, id: bytes) -> StoredSchedule | Missing:
        found = await self._execute(LookUpPolicy(tenant=self._caller.tenant, policy_id=id))
        if isinstance(found, Missing):
            return found
        if isinstance(found, PolicyFound):
            return decode_schedule(found)
        raise to_exception(found, "")


def _is_stale(reply: object) -> bool:
    return isinstance(reply, Refused) and reply.reason is Reason.STALE


def _contested_schedule(name: str) -> Unavailable:
    return Unavailable(f"schedule {name} is being changed all the time: nothing was done; retry")


def _unknown_schedule(name: str) -> NotFound:
    return NotFound(f"no worker has registered a schedule {name!r}; `onejob schedules list` shows those there are")


def _to_view(policy: Policy) -> ScheduleView:
    entry = json.decode(policy.body, type=ScheduleEntry)
    return ScheduleView(
        name=policy.name.removeprefix(PREFIX),
        type=entry.type,
        timetable=entry.timetable,
        catch_up=entry.catch_up,
        since=to_utc(entry.since[entry.timetable]),
        paused_at=to_utc(entry.paused_at) if entry.paused_at else None,
        paused_by=entry.paused_by or None,
    )
