"""Sites: a submission to several data centres creates its job at home, and for each other site a delivery job.

A delivery job is stored in the step that creates its job, so it is as durable as that. It carries the same job id, scope and
key to its site until the site has answered, and then asks how the job stands there (site_delivery.py). Its type names the
site, so each site has a queue of its own; its progress is what the site answered last.

A job that does not run at home is `running` there, without a lease and with no attempts: nobody can claim, start or finish
it. Its state follows from its sites: it ends in the step that ends the last delivery.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from msgspec import DecodeError, Struct, convert, json
from msgspec.structs import replace

from .command import Step
from .errors import Invalid
from .facts import JOB_ID_BYTES, U64, Attachment, AttachmentKind, Fact, Job, Record
from .identity import SITE_TYPE_PREFIX
from .replies import Created
from .states import ENDED_STATES, JobState, Move

if TYPE_CHECKING:
    from .submit import Submit

SITES_MAX: Final = 16
DELIVERY_MS_DEFAULT: Final = 3 * 24 * 3600 * 1000
DELIVERY_MS_MIN: Final = 1000
DELIVERY_MS_MAX: Final = 30 * 24 * 3600 * 1000
ANSWER_CHARS_MAX: Final = 120  # of an error, so that the answer fits into the job row

# What a site can be, besides the states of a job.
OTHER_JOB: Final = "other job"  # the key belongs to another job there
REFUSED: Final = "refused"
UNKNOWN: Final = "unknown"

_SITE_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
WITHOUT_EFFECT: Final = frozenset({JobState.FAILED, JobState.CANCELLED, JobState.LOST, OTHER_JOB, REFUSED})
_FINAL: Final = frozenset({*ENDED_STATES - {JobState.LOST}, OTHER_JOB, REFUSED, UNKNOWN})


class SiteTargets(Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """The other data centres of a submission."""

    names: tuple[str, ...]
    runs_here: bool = False  # the home is one of its sites
    delivery_ms: int = DELIVERY_MS_DEFAULT

    def delivery_job_ids(self, job_id: bytes) -> tuple[bytes, ...]:
        return delivery_job_ids(job_id, len(self.names))

    def add_deliveries(self, fingerprint: bytes, step: Step[Any], now: int) -> Step[Any]:
        """The step that creates a job, with the deliveries to its sites; any other step as it is."""
        return add_site_deliveries(self, fingerprint, step, now) if step.puts else step


class SiteDelivery(Struct, frozen=True):
    """The input of a delivery job: what the job's row does not have, and until when to deliver."""

    site: str
    job_id: bytes
    deliveries: int  # how many the job has
    fingerprint: bytes
    ttl_ms: int
    attempts_max: int
    deliver_until: int  # afterwards the submission is not sent again
    follow_until: int  # afterwards nothing is sent


def decode_delivery(input: bytes) -> SiteDelivery | None:
    """The input of a delivery job; None if it is none that a submission has made."""
    try:
        delivery = json.decode(input, type=SiteDelivery)
    except (DecodeError, ValueError):
        return None
    return delivery if len(delivery.job_id) == JOB_ID_BYTES and 1 <= delivery.deliveries <= SITES_MAX else None


class SiteAnswer(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a site answered last, as the progress of its delivery job."""

    state: str = ""  # of its job, or one of the three above; empty: it has not answered
    at: int = 0  # when it answered, by the clock of the home
    error: str = ""  # why the latest attempt to reach it failed; empty: it was reached
    error_at: int = 0
    is_refused: bool = False  # the site does not accept the credential, or not for this tenant; it is asked again
    other_job: str = ""  # the id of the job that the key belongs to there
    is_external: bool = False  # that job is of another system: its id cannot be compared
    is_other_home: bool = False  # the site is the home of that job: cancelled there, it is cancelled at all its sites
    paths: tuple[str, ...] = ()  # where that submission differs, as JSON Pointers; none: nowhere, or it is not known

    @property
    def is_final(self) -> bool:
        return self.state in _FINAL


class Sites(Struct, frozen=True, kw_only=True):
    """The data centres that a ledger knows: itself, and those that it delivers to."""

    here: str = ""  # empty: none are configured
    others: tuple[str, ...] = ()
    delivery_ms: int = DELIVERY_MS_DEFAULT
    urls: Mapping[str, str] = {}  # of their services, as operators reach them; only shown

    def __post_init__(self) -> None:
        for name in (self.here, *self.others) if self.here or self.others else ():
            checked_site_name(name)
        if self.here in self.others:
            raise Invalid("sites", f"{self.here} is this data centre itself; leave it out of the others")
        if not DELIVERY_MS_MIN <= self.delivery_ms <= DELIVERY_MS_MAX:
            raise Invalid("sites", "a delivery is tried for 1 second to 30 days; choose a time in between")

    def apply(self, command: "Submit", names: Sequence[str]) -> "Submit":
        """A submission to the sites with these names."""
        if not command.record_id:
            raise Invalid(
                "sites", "a submission to sites needs an idempotency key, by which they know it again; give one"
            )
        checked = self.checked_names(names)
        digest = fingerprint_with_sites(command.fingerprint, checked)
        return replace(command, fingerprint=digest, sites=self.targets(checked))

    def checked_names(self, names: Sequence[str]) -> tuple[str, ...]:
        """The sites of a submission in sorted order, if all of them are known here."""
        if isinstance(names, str) or not 1 <= len(names) <= SITES_MAX or len(set(names)) < len(names):
            raise Invalid("sites", f"sites are a list of 1 to {SITES_MAX} names, each one once; correct it")
        if not self.here:
            raise Invalid("sites", "no sites are configured here; leave them out, or add [sites] to the settings")
        known = (self.here, *self.others)
        if unknown := [name for name in names if name not in known]:
            raise Invalid("sites", f"{unknown[0]!r} is not a site of this ledger; it knows {', '.join(sorted(known))}")
        return tuple(sorted(names))

    def targets(self, names: tuple[str, ...]) -> SiteTargets:
        others = tuple(name for name in names if name != self.here)
        return SiteTargets(others, self.here in names, self.delivery_ms)


NO_SITES: Final = Sites()


def checked_site_name(name: str) -> str:
    if not isinstance(name, str) or not _SITE_NAME.fullmatch(name):
        raise Invalid("sites", "the name of a site is 1 to 32 of a-z, 0-9 and -; correct it")
    return name


def fingerprint_with_sites(fingerprint: bytes, sites: tuple[str, ...]) -> bytes:
    """The fingerprint of a submission to these sites, in sorted order; the home is one of them if it runs the job."""
    return sha256(fingerprint + "\n".join(("sites", *sites)).encode()).digest()[: len(fingerprint)]


def site_type(site: str) -> str:
    return SITE_TYPE_PREFIX + site


def is_site_delivery(job: Job) -> bool:
    return job.type.startswith(SITE_TYPE_PREFIX)


def refusal_at_home(job: Job, move: Move) -> str:
    """Why an operator may not cancel or resolve a job here; empty: nothing prevents it."""
    if move is Move.CANCEL:
        is_delivery = is_site_delivery(job)
        return "a delivery to a site cannot be cancelled; cancel its job, and every site is told" if is_delivery else ""
    is_elsewhere = is_site_delivery(job) or runs_elsewhere(job)
    return "this job runs at its sites; resolve it there, or submit again with a new key" if is_elsewhere else ""


def runs_elsewhere(job: Job) -> bool:
    """True if this ledger never runs the job: its sites do."""
    return not job.attempts_max


def delivery_job_ids(job_id: bytes, count: int = SITES_MAX) -> tuple[bytes, ...]:
    """Computed from the id of the job, so that a command can name them."""
    return tuple(job_id[:-2] + bytes((job_id[-2] ^ 0xFF, job_id[-1] ^ n)) for n in range(count))


def add_site_deliveries(targets: SiteTargets, fingerprint: bytes, step: Step[Created], now: int) -> Step[Created]:
    """The step that creates a job, with the deliveries to its sites. Its key is remembered until they have ended."""
    job, delay_ms = step.reply.job, max(step.reply.job.run_at - now, 0)
    expires_at = max(step.reply.expires_at, now + delay_ms + 2 * targets.delivery_ms)
    home = replace(job, keep_until=expires_at)
    if not targets.runs_here:
        home = replace(home, state=JobState.RUNNING, attempts_max=0)
    delivery = SiteDelivery(
        "",
        job.id,
        len(targets.names),
        fingerprint,
        expires_at - now,
        job.attempts_max,
        now + delay_ms + targets.delivery_ms,
        now + delay_ms + 2 * targets.delivery_ms,
    )
    named = list(zip(targets.names, delivery_job_ids(job.id), strict=False))
    inputs = tuple(
        Attachment(id, AttachmentKind.INPUT, U64(0), json.encode(replace(delivery, site=name))) for name, id in named
    )
    puts = tuple(_with_window(fact, home, expires_at, now) for fact in step.puts)
    jobs = tuple(_delivery_job(home, id, name, now) for name, id in named)
    reply = replace(step.reply, job=home, expires_at=expires_at)
    return replace(step, reply=reply, puts=(*puts, *jobs), attachments=(*step.attachments, *inputs))


def _with_window(fact: Fact, home: Job, expires_at: int, now: int) -> Fact:
    if isinstance(fact, Record):
        return replace(fact, expires_at=expires_at, ttl_ms=expires_at - now)
    return home if fact.id == home.id else fact


def _delivery_job(job: Job, id: bytes, site: str, now: int) -> Job:
    """Ready at once, not counted by quotas, and never due for maintenance before it has ended."""
    type = site_type(site)
    return Job(
        id, job.tenant, type, JobState.PENDING, type, "", job.actor, job.user, now, now, job.keep_until,
        priority=job.priority,
    )  # fmt: skip


def decode_answer(delivery: Job) -> SiteAnswer:
    """What a newer program stored besides is not read."""
    stored = json.decode(delivery.progress) if delivery.progress else {}
    known = {name: stored[name] for name in SiteAnswer.__struct_fields__ if name in stored}
    return convert(known, SiteAnswer)


def move_after_sites(states: Mapping[str, str]) -> tuple[Move, str]:
    """How a job ends that does not run at home, and its error, once every site has its final state."""
    kinds = set(states.values())
    if kinds == {JobState.SUCCESS}:
        return Move.SUCCEED, ""
    if kinds == {JobState.CANCELLED}:
        return Move.CANCEL, ""
    return Move.FAIL, "; ".join(f"{site}: {state}" for site, state in states.items() if state != JobState.SUCCESS)


def site_of(delivery: Job) -> str:
    return delivery.type.removeprefix(SITE_TYPE_PREFIX)
