"""Request and response bodies of the cloud contract, and how a body becomes a submission."""

from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct, json

from onejob.core.errors import Invalid
from onejob.core.fingerprint import explain_decode_error
from onejob.core.identity import FORBIDDEN_CHARACTERS
from onejob.core.states import JobState
from onejob.core.submit import LABELS_BYTES_MAX
from onejob.idempotency_key_header import resolve_key
from onejob.ledger.parse import Submission

from .types import Key, round_to_micro

TYPE_PREFIX = "cloud."  # a job's type is this and its provider
PROVIDER_CHARS_MAX = 80
HOURS_MAX = 365 * 24

RawMembers = dict[str, Raw]


class CloudStatus(StrEnum):
    PENDING = "pending"
    UPLOADING = "uploading"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


CLOUD_STATUS_BY_STATE = {
    JobState.PREPARING: CloudStatus.UPLOADING,
    JobState.SCHEDULED: CloudStatus.QUEUED,
    JobState.PENDING: CloudStatus.PENDING,
    JobState.RUNNING: CloudStatus.RUNNING,
    JobState.SUCCESS: CloudStatus.COMPLETED,
    JobState.FAILED: CloudStatus.FAILED,
    JobState.CANCELLED: CloudStatus.CANCELLED,
    # The contract has no such status. The job does not run, and will not unless an operator resolves it.
    JobState.LOST: CloudStatus.FAILED,
}


class CloudBody(Struct, frozen=True):
    """Send `config` or `config_name_to_load`; unknown members are stored as labels."""

    config: Annotated[Any, Meta(description="The configuration itself.")] = None
    config_name_to_load: str | None = None
    dataloader_config: Annotated[Any, Meta(description="The part of the configuration that names the data.")] = None
    tracker_run_name: str | None = None
    idempotency_key: Key | None = None
    idempotency_ttl_hours: (
        Annotated[float, Meta(extra_json_schema={"minimum": 1 / 3600, "maximum": HOURS_MAX})] | None
    ) = None
    estimated_cost: float | str | None = None


class CloudOut(Struct, frozen=True):
    success: bool
    job_id: str | None = None
    status: CloudStatus | None = None
    data_uploaded: bool = False
    idempotent_hit: bool = False
    error: str | None = None
    quota_warnings: list[str] = []
    cost_limit_warning: str | None = None


_MEMBER_TYPES = {field.name: field.type for field in msgspec.structs.fields(CloudBody)}
_INPUT_MEMBERS = (
    "config",
    "config_name_to_load",
    "dataloader_config",
)  # the input of the job: the fingerprint covers it
_LABEL_MEMBERS = ("tracker_run_name",)
_IGNORED_MEMBERS = ("actor",)  # the server takes the actor from the credential


def checked_provider(name: str | None) -> str:
    if name is None or not 1 <= len(name) <= PROVIDER_CHARS_MAX or FORBIDDEN_CHARACTERS.search(name):
        raise Invalid("provider", f"?provider= is 1 to {PROVIDER_CHARS_MAX} printable characters; name one")
    # Prepare steps use the name in paths.
    if name.startswith(".") or ".." in name or "/" in name or "\\" in name:
        raise Invalid("provider", "?provider= is a name and no path; send it without dots in front, `..` and slashes")
    return name


def build_cloud_submission(provider: str, members: RawMembers, key: str | None) -> Submission:
    # Clients send null for members they leave out.
    members = {name: raw for name, raw in members.items() if bytes(raw) != b"null"}
    body = CloudBody(**{name: _decode_member(name, raw) for name, raw in members.items() if name in _MEMBER_TYPES})
    input_members = {name: members[name] for name in _INPUT_MEMBERS if name in members}
    if not input_members.keys() & {"config", "config_name_to_load"}:
        raise Invalid("config", "there is no configuration; send config or config_name_to_load")
    hours = body.idempotency_ttl_hours
    return Submission(
        type=f"{TYPE_PREFIX}{provider}",
        input=Raw(json.encode(input_members)),
        idempotency_key=resolve_key(key, body.idempotency_key, "idempotency_key"),
        idempotency_ttl=None if hours is None else _parse_ttl_hours(hours),
        labels=_collect_labels(members) or None,
        estimated_cost=_round_cost(body.estimated_cost),
    )


def _decode_member(name: str, raw: Raw) -> Any:
    if name in ("config", "dataloader_config"):
        return None  # it stays as it was sent
    try:
        return json.decode(raw, type=_MEMBER_TYPES[name])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Invalid(name, f"{name} is not valid: {explain_decode_error(bytes(raw), error)}") from error


def _collect_labels(members: Mapping[str, Raw]) -> dict[str, str]:
    """Every member that the contract does not define; a value that is not a string is stored as its JSON text."""
    labels = {
        name: _to_text(bytes(raw))
        for name, raw in members.items()
        if name in _LABEL_MEMBERS or (name not in _MEMBER_TYPES and name not in _IGNORED_MEMBERS)
    }
    if len(json.encode(labels)) > LABELS_BYTES_MAX:
        names = ", ".join(sorted(labels))[:200]
        raise Invalid(
            "labels",
            f"the members beside the configuration ({names}) take more than {LABELS_BYTES_MAX} bytes as JSON; "
            "leave some out, or put it into config",
        )
    return labels


def _to_text(raw: bytes) -> str:
    return json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()


def _round_cost(cost: float | str | None) -> float | str | None:
    return round_to_micro(cost) if isinstance(cost, float) else cost


def _parse_ttl_hours(hours: float) -> timedelta:
    if not 0 < hours <= HOURS_MAX:
        raise Invalid(
            "idempotency_ttl_hours", f"idempotency_ttl_hours is above 0 up to {HOURS_MAX}; choose one in between"
        )
    return timedelta(hours=hours)
