"""The commands of a delivery to a site: what is sent there, what its answer means, and what is stored of it at home.

1. The submission is sent until the site has answered that it has the job, then only questions how the job stands.
2. If the job was cancelled at home, `CancelAtSite` is sent instead. It stores the key with a cancelled job where the
   submission has not arrived, so that a late copy of that finds it.
3. A key that names another job at the site is a final answer: that job is neither taken for this one nor cancelled. Both
   homes show both jobs, and the same rule says which one prevails: the one with the smaller id.
4. Nothing is decided by the clock of a site. Windows are durations, and the home counts its own time.
5. A site checks what it is sent as if a caller had submitted it there: the credential of another data centre vouches for
   its tenants, not for the values in a command.
"""

from hashlib import sha256
from typing import Final

from msgspec import DecodeError, Raw, json
from msgspec.structs import replace

from .callback import callback_job_id
from .command import Facts, Footprint, Step
from .errors import Invalid
from .facts import JOB_ID_BYTES, Fact, Job, Record, is_live
from .fingerprint import INPUT_BYTES_MAX
from .identity import (
    SITE_TYPE_PREFIX,
    Actor,
    ActorKind,
    check_caller_text_size,
    checked_name,
    format_job_id,
    parse_job_id,
    record_id,
    resolve_scope,
)
from .key import checked_key
from .lookup import LookUpJob
from .maintenance import shorten_paths
from .replies import (
    AnyReply,
    Cancelled,
    Conflict,
    Created,
    Finished,
    Found,
    InProgress,
    Missing,
    Reason,
    Refused,
    Rejected,
    Released,
    Replayed,
)
from .sites import (
    ANSWER_CHARS_MAX,
    DELIVERY_MS_MAX,
    OTHER_JOB,
    REFUSED,
    UNKNOWN,
    SiteAnswer,
    SiteDelivery,
    decode_answer,
    delivery_job_ids,
    is_site_delivery,
    move_after_sites,
    runs_elsewhere,
)
from .states import ENDED_STATES, JobState, Move, is_allowed, state_after
from .submit import (
    ATTEMPTS_MAX,
    LABELS_BYTES_MAX,
    PRIORITY_MAX,
    TIMEOUT_MS_MAX,
    TTL_MS_MAX,
    TTL_MS_MIN,
    ExistingKeyReply,
    Submit,
)
from .timestamps import to_utc
from .work import (
    RELEASE_DIGEST,
    RETENTION_MS,
    RETENTION_MS_MAX,
    JobHolderCommand,
    end_job,
    progress_bytes_max,
    released_job,
    to_storable_text,
)

DELAY_MS_MIN: Final = 500
DELAY_MS_MAX: Final = 15_000
ACTOR: Final = "system:sites"
SITE_TTL_MS_MAX: Final = TTL_MS_MAX + 2 * DELIVERY_MS_MAX  # of a key at a site: it outlives every delivery
_DIGEST_BYTES: Final = 8
_FINGERPRINT_BYTES_MAX: Final = 64


class CancelAtSite(Submit, frozen=True, gc=False, kw_only=True):
    """Cancel a job at a site, whether its submission has arrived there or not. Every other job stays as it is."""

    retention_ms: int = RETENTION_MS

    @property
    def footprint(self) -> Footprint:
        plain = super().footprint
        jobs = dict.fromkeys((*plain.jobs, callback_job_id(self.job_id)))
        return replace(plain, jobs=tuple(jobs), follow_usage=True)

    def decide(self, facts: Facts, now: int) -> Step[Cancelled | Created | ExistingKeyReply]:  # type: ignore[override]  # a job that was created is cancelled
        own = facts.jobs.get(self.job_id)  # its key may have been forgotten, and name another job since
        if own is not None and not self._made(own, facts.record, now):
            return Step(Refused(Reason.NOT_ALLOWED, "the id names a job that this delivery has not made", now))
        step = super().decide(facts, now) if own is None else Step(Created(own, own.keep_until, now))
        if not isinstance(step.reply, Created):
            return step
        job = step.reply.job
        if not is_allowed(job.state, Move.CANCEL):
            return Step(Cancelled(job, False, now))
        end = end_job(
            job,
            facts.usage,
            now,
            move=Move.CANCEL,
            actor=self.actor,
            retention_ms=self.retention_ms,
            callback=facts.jobs.get(callback_job_id(job.id)),
        )
        if not step.puts:  # it had arrived
            return Step(Cancelled(end.job, True, now), end.puts, attachments=end.attachments, trims=end.trims)
        cancelled = replace(end.job, version=1)
        puts: tuple[Fact, ...] = tuple(cancelled if fact.id == job.id else fact for fact in step.puts)
        return Step(Cancelled(cancelled, True, now), puts, attachments=(*step.attachments, *end.attachments))

    def _made(self, job: Job, record: Record | None, now: int) -> bool:
        """True if the submission of this delivery made the job. A live key that names the job has its fingerprint, too."""
        if (job.type, job.scope, job.key, job.user) != (self.type, self.scope, self.key, self.user):
            return False
        names_job = record is not None and is_live(record, now) and record.job_id == job.id
        return not names_job or record.fingerprint == self.fingerprint  # type: ignore[union-attr]  # it names the job


def check_delivered(command: Submit) -> None:
    """Refuse a submission from another data centre that `command_for_site` would not have made; raises Invalid."""
    extras = (command.callback, command.precondition, command.sites, command.reservation, command.key_limit)
    has_lookup = command.external_job or command.free_version is not None
    if any(extras) or has_lookup or command.usage_id or command.policy_id or command.cost:
        raise Invalid("delivery", "a delivered job has no callback, sites, limits or cost of its own; leave them out")
    type, scope, key, user = command.type, command.scope, checked_key(command.key), command.user
    if checked_name("type", type) and scope != resolve_scope(type, None):
        checked_name("scope", scope)
    owners = ("", checked_name("user", user))
    if command.key != key or command.record_id not in [
        record_id(command.tenant, scope, key, owner) for owner in owners
    ]:
        raise Invalid("key", "the record of a delivered job is that of its tenant, scope and key; correct it")
    if len(command.job_id) != JOB_ID_BYTES or not 1 <= len(command.fingerprint) <= _FINGERPRINT_BYTES_MAX:
        raise Invalid("delivery", f"a delivered job has an id of {JOB_ID_BYTES} bytes, and a fingerprint; correct it")
    if Actor.parse(command.actor).kind is ActorKind.SYSTEM:
        raise Invalid("actor", "the actor of a delivered job is a user or a client; correct it")
    check_caller_text_size(command.tenant, type, scope, key, command.actor, user, labels=command.labels)
    _check_numbers(command)
    _check_json(command)


def _check_numbers(command: Submit) -> None:
    bounds = (
        ("priority", command.priority, -PRIORITY_MAX, PRIORITY_MAX),
        ("attempts", command.attempts_max, 1, ATTEMPTS_MAX),
        ("timeout", command.timeout_ms, 0, TIMEOUT_MS_MAX),
        ("window", command.ttl_ms, TTL_MS_MIN, SITE_TTL_MS_MAX),
        ("retention", getattr(command, "retention_ms", 0), 0, RETENTION_MS_MAX),
    )
    for what, value, least, most in bounds:
        if not least <= value <= most:
            raise Invalid(what, f"the {what} of a delivered job is {least} to {most}; correct it")
    to_utc(command.run_at)


def _check_json(command: Submit) -> None:
    if len(command.input) > INPUT_BYTES_MAX or len(command.labels) > LABELS_BYTES_MAX:
        raise Invalid("delivery", "the input or the labels of a delivered job are too large; make them smaller")
    try:
        command.input.decode()
        json.decode(command.input, type=Raw)
        json.decode(command.labels or b"{}", type=dict[str, str])
    except (DecodeError, ValueError, RecursionError):
        raise Invalid("delivery", "input and labels of a delivered job are JSON; correct them") from None


def command_for_site(
    delivery: SiteDelivery,
    answer: SiteAnswer,
    home: Job,
    input: bytes,
    now: int,
    *,
    record_id: bytes,
    settings: bytes = b"",
) -> Submit | LookUpJob | None:
    """What to send now; None: nothing any more."""
    is_cancelled = home.state is JobState.CANCELLED
    has_job = bool(answer.state)
    if now > (delivery.follow_until if has_job else delivery.deliver_until):
        return None
    if has_job and not is_cancelled:
        return LookUpJob(tenant=home.tenant, job_id=home.id)
    return (CancelAtSite if is_cancelled else Submit)(
        job_id=home.id,
        type=home.type,
        input=input,
        delivery=home.delivery,
        priority=home.priority,
        run_at=home.run_at,
        attempts_max=delivery.attempts_max,
        timeout_ms=home.timeout_ms,
        labels=home.labels,
        tenant=home.tenant,
        record_id=record_id,
        scope=home.scope,
        key=home.key,
        fingerprint=delivery.fingerprint,
        actor=home.actor,
        user=home.user,
        ttl_ms=min(delivery.ttl_ms, SITE_TTL_MS_MAX),
        settings=settings,
    )


def answer_after(reply: AnyReply, earlier: SiteAnswer, job_id: bytes, now: int) -> SiteAnswer:
    """What a site's reply says about the job."""
    match reply:
        case Created(job) | Cancelled(job) | Found(job=Job() as job) if job.id == job_id:
            return SiteAnswer(job.state, now)
        case Conflict(job_id=other, external_id=external):
            return _other_job_answer(other, external, now, reply.paths)
        case Replayed(job=other_job, external_id=external):
            return _other_job_answer(b"" if other_job is None else other_job.id, external, now)
        case Rejected(job_id=other):
            return _other_job_answer(other, "", now)
        case Refused(reason=Reason.SETTINGS_CHANGED, message=message):
            return failed_answer(earlier, message, now)
        case Refused(message=message):
            return SiteAnswer(REFUSED, now, _shortened(message), now)
        case Missing():
            return SiteAnswer(UNKNOWN, now, "the site no longer has the job", now)
        case InProgress():
            return failed_answer(earlier, "the key is held by another submission there", now)
    return failed_answer(earlier, str(getattr(reply, "message", type(reply).__name__)), now)


def _other_job_answer(job_id: bytes, external_id: str, now: int, paths: tuple[str, ...] = ()) -> SiteAnswer:
    other_job = format_job_id(job_id) if job_id else _shortened(external_id)
    stored = tuple(to_storable_text(path) for path in shorten_paths(paths))
    return SiteAnswer(OTHER_JOB, now, other_job=other_job, is_external=bool(external_id), paths=stored)


def question_after(answer: SiteAnswer, tenant: str) -> LookUpJob | None:
    """Whether the site is the home of the other job, which then has a delivery job there; None: nothing to ask."""
    if not answer.other_job or answer.is_external:
        return None
    return LookUpJob(tenant=tenant, job_id=delivery_job_ids(parse_job_id(answer.other_job), 1)[0])


def answer_with_home(answer: SiteAnswer, reply: AnyReply) -> SiteAnswer:
    is_home = isinstance(reply, Found) and reply.job is not None and is_site_delivery(reply.job)
    return replace(answer, is_other_home=is_home)


def _encode_answer(answer: SiteAnswer, delivery: Job) -> str:
    """The answer as the progress of its delivery, with as many paths as the job row has room for."""
    room, kept, encoded = progress_bytes_max(delivery), len(answer.paths), json.encode(answer)
    while len(encoded) > room and kept:
        kept -= 1
        encoded = json.encode(replace(answer, paths=(*answer.paths[:kept], "…")))
    return encoded.decode()


def failed_answer(earlier: SiteAnswer, error: str, now: int, *, is_refused: bool = False) -> SiteAnswer:
    """Nothing new was heard: what the site answered before stays."""
    return replace(earlier, error=_shortened(error), error_at=now, is_refused=is_refused)


def unknown_answer(earlier: SiteAnswer, now: int) -> SiteAnswer:
    """The delivery is given up."""
    return SiteAnswer(UNKNOWN, now, earlier.error or "it has not ended there in time", now)


def delay_ms_after(created_at: int, now: int) -> int:
    """A tenth of the job's age: often at first, and every few seconds later."""
    return min(max((now - created_at) // 10, DELAY_MS_MIN), DELAY_MS_MAX)


def _shortened(text: str) -> str:
    return to_storable_text(text[:ANSWER_CHARS_MAX])


class ReportDelivery(JobHolderCommand, frozen=True, gc=False, kw_only=True):
    """Store what a site answered. A final answer ends the delivery; the last one ends a job that does not run at home."""

    home_id: bytes
    deliveries: int
    answer: SiteAnswer
    retention_ms: int = RETENTION_MS

    @property
    def footprint(self) -> Footprint:
        jobs = (self.home_id, callback_job_id(self.home_id), *delivery_job_ids(self.home_id, self.deliveries))
        return Footprint(self.tenant, jobs=tuple(dict.fromkeys((*jobs, self.job_id))), follow_usage=True)

    def decide(self, facts: Facts, now: int) -> Step[Finished | Released | Refused | Missing]:
        delivery = facts.jobs.get(self.job_id)
        if delivery is None:
            return Step(Missing(now))
        digest = sha256(self.answer.state.encode()).digest()[:_DIGEST_BYTES]
        if (delivery.token, delivery.holder) == (self.token, self.holder):
            if delivery.finish_digest == digest:
                return Step(Finished(delivery, now))
            if delivery.finish_digest == RELEASE_DIGEST:
                return Step(Released(delivery, now))
        if self.held_job(delivery) is None:
            return Step(self.stale_refusal(delivery, now))
        delivery = replace(delivery, progress=_encode_answer(self.answer, delivery))
        if not self.answer.is_final:
            delay_ms = delay_ms_after(delivery.created_at, now)
            released = released_job(delivery, now, delay_ms=delay_ms, finish_digest=RELEASE_DIGEST)
            return Step(Released(released, now), (released,))
        return self._finish(delivery, digest, facts, now)

    def _finish(
        self, delivery: Job, digest: bytes, facts: Facts, now: int
    ) -> Step[Finished | Released | Refused | Missing]:
        is_known = self.answer.state in frozenset(JobState)
        end = end_job(
            replace(delivery, state=state_after(delivery.state, Move.START)),
            None,
            now,
            move=Move.SUCCEED if is_known else Move.FAIL,
            actor=ACTOR,
            retention_ms=self.retention_ms,
            error="" if is_known else self.answer.error or self.answer.state,
            finish_digest=digest,
        )
        jobs = dict(facts.jobs) | {delivery.id: end.job}
        puts, attachments, trims = end.puts, end.attachments, end.trims
        home = facts.jobs.get(self.home_id)
        states = self._final_states(jobs)
        if home is not None and states and home.state is JobState.RUNNING and runs_elsewhere(home):
            move, error = move_after_sites(states)
            home_end = end_job(
                home,
                facts.usage,
                now,
                move=move,
                actor=ACTOR,
                retention_ms=self.retention_ms,
                error=error,
                callback=facts.jobs.get(callback_job_id(home.id)),
            )
            puts, trims = (*puts, *home_end.puts), (*trims, *home_end.trims)
            attachments = (*attachments, *home_end.attachments)
        return Step(Finished(end.job, now), puts, attachments=attachments, trims=trims)

    def _final_states(self, jobs: dict[bytes, Job]) -> dict[str, str]:
        """The state at each site; empty while a delivery has not ended. One that was deleted counts as unknown."""
        states: dict[str, str] = {}
        for n, id in enumerate(delivery_job_ids(self.home_id, self.deliveries)):
            job = jobs.get(id)
            if job is None:
                states[f"site {n + 1}"] = UNKNOWN
            elif job.state not in ENDED_STATES:
                return {}
            else:
                answer = decode_answer(job)
                state = f"{answer.state} {answer.other_job}" if answer.other_job else answer.state
                states[job.type.removeprefix(SITE_TYPE_PREFIX)] = state or UNKNOWN
        return states
