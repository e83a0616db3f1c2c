"""Submits the ticks of an app's schedules. Every worker does, and each tick becomes one job.

1. A tick is a submission with the key `schedule@tick` in the scope `schedule`, so it does not matter how many workers submit it.
2. The time is the ledger's. A tick is submitted when the ledger's clock has passed it, and never before.
3. A worker submits the newest tick and as many earlier ones as the schedule catches up. A tick counts as done only once it is
   submitted: a worker that dies leaves it to the others.
4. The key of a tick outlives the time in which it may be submitted. The submission carries that time, and the schedule as it was
   read, as its precondition: a process that was stopped for a week, or a schedule that was paused meanwhile, submits nothing.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from onejob.backoff import Backoff
from onejob.core.command import Precondition
from onejob.core.identity import SCHEDULE_ACTOR, SCHEDULE_SCOPE, Actor
from onejob.core.replies import AnyReply, Missing, PolicyFound, Reason
from onejob.core.timestamps import to_utc
from onejob.errors import IdempotencyConflict, Invalid, OnejobError, SubmissionRefused, SubmissionRejected
from onejob.ledger import Ledger
from onejob.ledger.base import runtime_of
from onejob.ledger.parse import Submission
from onejob.ledger.schedules import StoredSchedule, decode_schedule, schedule_look_up
from onejob.runtime.present import to_exception

from .timetable import WINDOW_MS_MAX, Timetable, last_ticks, next_tick, tick_window_ms

CATCH_UP_MAX = 100
LOOK_SECONDS_MAX = 15.0  # how soon a schedule that was resumed is noticed
_PAUSE_FIRST = 0.1
_PAUSE_MAX = 5.0
_MS = 1000

log = logging.getLogger("onejob.worker")


class Schedule(Struct, frozen=True, kw_only=True):
    """A periodic job, as `App.every` registers it."""

    name: str
    timetable: Timetable
    catch_up: int
    submission: Submission  # without key and window


class ScheduleState:
    """What one worker knows of a schedule."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.watched_since: int | None = None  # None: not looked at yet
        self.done: set[int] = set()
        self.backoff = Backoff(_PAUSE_FIRST, _PAUSE_MAX)  # after a failure

    def due_ticks(self, stored: StoredSchedule) -> list[int]:
        """The ticks that this worker should submit now, oldest first."""
        schedule, entry, now = self.schedule, stored.entry, stored.at
        assert self.watched_since is not None
        since = max(entry.since[schedule.timetable.text], now - WINDOW_MS_MAX)
        ticks = last_ticks(schedule.timetable, after=since, until=now, count=schedule.catch_up + 1)
        # If the newest tick came while nobody watched, it was missed like those before it.
        if ticks and ticks[-1] <= max(self.watched_since, entry.resumed_at):
            ticks = ticks[-schedule.catch_up :] if schedule.catch_up else []
        self.done.intersection_update(ticks)
        return [tick for tick in ticks if tick not in self.done and now < tick + self.window_ms(tick)]

    def window_ms(self, tick: int) -> int:
        return tick_window_ms(self.schedule.timetable, tick, self.schedule.catch_up)


class Scheduler:
    def __init__(self, schedules: Sequence[Schedule], ledger: Ledger, *, tenant: str | None = None) -> None:
        caller = ledger.caller
        self._ledger = ledger.acting_as(
            tenant=tenant or caller.tenant, user=caller.user, actor=Actor.parse(SCHEDULE_ACTOR)
        )
        self._states = [ScheduleState(schedule) for schedule in schedules]

    async def run(self) -> None:
        """Submit ticks until cancelled; without schedules there is nothing to do."""
        while self._states:
            wait = await self.submit_due_ticks()
            await asyncio.sleep(wait)

    async def submit_due_ticks(self) -> float:
        """Submit what is due; returns the seconds until something may be due again."""
        tenant = self._ledger.caller.tenant
        look_ups = [schedule_look_up(tenant, state.schedule.name) for state in self._states]
        replies = await runtime_of(self._ledger).gate.execute_each(look_ups)
        waits = [LOOK_SECONDS_MAX]
        for state, reply in zip(self._states, replies, strict=True):
            try:
                waits.append(await self._submit_schedule(state, reply))
                state.backoff.reset()
            except OnejobError as error:  # the other schedules go on
                log.warning("schedule %s: submitting its jobs failed, will retry: %s", state.schedule.name, error)
                waits.append(next(state.backoff))
        return min(waits)

    async def _submit_schedule(self, state: ScheduleState, reply: AnyReply | BaseException) -> float:
        stored = await self._registered(state, reply)
        if stored.entry.paused_at:
            return LOOK_SECONDS_MAX
        wait = (next_tick(state.schedule.timetable, stored.at) - stored.at) / _MS
        for tick in state.due_ticks(stored):
            try:
                await self._submit_tick(state, stored, tick)
            except SubmissionRefused as error:
                if error.reason is Reason.CREDENTIAL_CHANGED:  # paused, resumed or registered meanwhile: look again
                    return _PAUSE_FIRST
                raise
            state.done.add(tick)
        return wait

    async def _registered(self, state: ScheduleState, reply: AnyReply | BaseException) -> StoredSchedule:
        schedule, text = state.schedule, state.schedule.timetable.text
        if not isinstance(reply, (PolicyFound, Missing)):
            raise to_exception(reply, "")
        stored = decode_schedule(reply) if isinstance(reply, PolicyFound) else None
        if stored is None or state.watched_since is None or text not in stored.entry.since:
            stored = await self._ledger.admin.register_schedule(
                schedule.name, type=schedule.submission.type, timetable=text, catch_up=schedule.catch_up
            )
        if state.watched_since is None:
            state.watched_since = stored.at
        return stored

    async def _submit_tick(self, state: ScheduleState, stored: StoredSchedule, tick: int) -> None:
        schedule, window_ms = state.schedule, state.window_ms(tick)
        text = f"{to_utc(tick):%Y-%m-%dT%H:%M:%SZ}"
        labels: Mapping[str, str] = schedule.submission.labels or {}
        submission = replace(
            schedule.submission,
            idempotency_key=f"{schedule.name}@{text}",
            scope=SCHEDULE_SCOPE,
            idempotency_ttl=to_utc(tick + window_ms) - to_utc(tick),
            labels={**labels, "schedule": schedule.name, "tick": text},
        )
        precondition = Precondition(stored.policy.id, stored.policy.body, tick + window_ms)
        try:
            receipt = await self._ledger.submit_prepared(submission, precondition)
        except (IdempotencyConflict, SubmissionRejected) as error:
            # Another version of the app has submitted this tick, with another type or input.
            runtime_of(self._ledger).attempt_stats.schedule_conflicts += 1
            log.warning(
                "schedule %s: the key for %s has another job or input, so no job was made for it: %s",
                schedule.name,
                text,
                error,
            )
            return
        if receipt.created:
            log.info("schedule %s: job %s for %s", schedule.name, receipt.job_id, text)


def checked_catch_up(catch_up: Any) -> int:
    if isinstance(catch_up, bool) or not isinstance(catch_up, int) or not 0 <= catch_up <= CATCH_UP_MAX:
        raise Invalid("catch_up", f"catch_up is the number of missed ticks to submit, 0 to {CATCH_UP_MAX}; choose one")
    return catch_up
