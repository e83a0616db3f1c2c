"""The idempotency policy that a server publishes, as the IETF draft on `Idempotency-Key` asks."""

from onejob.codes import CODES, HTTP_API_CODES
from onejob.core.fingerprint import INPUT_BYTES_MAX
from onejob.core.identity import GLOBAL_SCOPE, NAME_CHARS_MAX
from onejob.core.key import KEY_CHARS_MAX
from onejob.core.submit import TTL_MS_MAX, TTL_MS_MIN
from onejob.http.config import ServiceConfig
from onejob.runtime.callers import DefaultWindows
from onejob.settings import IdempotencyConfig

from .types import ResponseBody


class KeyRules(ResponseBody, frozen=True, rename="camel"):
    header: str
    body_field: str
    required: bool
    chars_min: int
    chars_max: int
    format: str
    advice: str


class ScopeRules(ResponseBody, frozen=True, rename="camel"):
    default: str
    all_types: str
    chars_max: int
    shared_by: str
    text: str


class FingerprintRules(ResponseBody, frozen=True, rename="camel"):
    algorithm: str
    covers: list[str]
    text: str


class WindowRules(ResponseBody, frozen=True, rename="camel"):
    body_field: str
    default_seconds: float
    default_seconds_by_type: dict[str, float]
    min_seconds: float
    max_seconds: float
    text: str


class InProgressRules(ResponseBody, frozen=True, rename="camel"):
    wait_seconds_max: float
    status: int
    code: str
    text: str


class MismatchRules(ResponseBody, frozen=True, rename="camel"):
    status: int
    code: str
    text: str


class RejectedRules(ResponseBody, frozen=True, rename="camel"):
    remembered_seconds: float
    status: int
    code: str
    text: str


class ReplayRules(ResponseBody, frozen=True, rename="camel"):
    status: int
    headers: dict[str, str]
    text: str


class ErrorCodeOut(ResponseBody, frozen=True, rename="camel"):
    code: str
    status: int
    title: str


class IdempotencyPolicyOut(ResponseBody, frozen=True, rename="camel"):
    key: KeyRules
    scope: ScopeRules
    fingerprint: FingerprintRules
    window: WindowRules
    in_progress: InProgressRules
    mismatch: MismatchRules
    rejected: RejectedRules
    replay: ReplayRules
    errors: list[ErrorCodeOut]
    body_bytes_max: int
    input_bytes_max: int


def build_idempotency_policy(
    service: ServiceConfig, idempotency: IdempotencyConfig, windows: DefaultWindows, key_owner: str
) -> IdempotencyPolicyOut:
    return IdempotencyPolicyOut(
        key=_KEY,
        scope=_scope_rules(key_owner),
        fingerprint=_FINGERPRINT,
        window=_window_rules(windows),
        in_progress=_in_progress_rules(idempotency),
        mismatch=MismatchRules(
            service.mismatch_status,
            "CONFLICT",
            "the key was used with another body; the response names the paths that differ, and the first job stays",
        ),
        rejected=RejectedRules(
            idempotency.rejected_ttl_seconds,
            CODES["REJECTED"].status,
            "REJECTED",
            "a final rejection is remembered; a refusal (validation, quota, rate limit, store failure) is not, and "
            "leaves the key unused",
        ),
        replay=_REPLAY,
        errors=[ErrorCodeOut(code, status_of(code, service), CODES[code].title) for code in HTTP_API_CODES],
        body_bytes_max=service.body_bytes_max,
        input_bytes_max=min(service.body_bytes_max, INPUT_BYTES_MAX),
    )


def status_of(code: str, service: ServiceConfig) -> int:
    """The HTTP status of an error code; a setting chooses that of a mismatch."""
    return service.mismatch_status if code == "CONFLICT" else CODES[code].status


_KEY = KeyRules(
    header="Idempotency-Key",
    body_field="idempotencyKey",
    required=False,
    chars_min=1,
    chars_max=KEY_CHARS_MAX,
    format="a structured-field string in quotes, or the same text bare; no control characters; compared byte for "
    "byte, a UUID in any case being the same UUID",
    advice="one key per intended job, the same on every retry; without a key every submission is a new job",
)

_FINGERPRINT = FingerprintRules(
    algorithm="SHA-256 over canonical JSON (RFC 8785, integers in full)",
    covers=["type", "input"],
    text="the order of members, white space and escapes do not matter; labels, priority and other delivery options "
    "are not covered",
)

_REPLAY = ReplayRules(
    status=202,
    headers={
        "Idempotent-Replayed": "`true` if and only if the job existed before",
        "Idempotency-Expires": "when the window of the key ends",
        "Location": "the path of the job",
    },
    text="the same job in its current state, with a new request id; the credential is checked first",
)


def _window_rules(windows: DefaultWindows) -> WindowRules:
    return WindowRules(
        body_field="idempotencyTtlSeconds",
        default_seconds=windows.ttl_ms / 1000,
        default_seconds_by_type={type: ttl_ms / 1000 for type, ttl_ms in windows.by_type.items()},
        min_seconds=TTL_MS_MIN / 1000,
        max_seconds=TTL_MS_MAX / 1000,
        text="counts from the creation of the job; until it ends every submission with the key returns that job, "
        "afterwards the same key creates a new one",
    )


def _scope_rules(key_owner: str) -> ScopeRules:
    return ScopeRules(
        default="the job's type",
        all_types=GLOBAL_SCOPE,
        chars_max=NAME_CHARS_MAX,
        shared_by=key_owner,
        text=f"a key is unique in its tenant and scope; the scope is the job's type, {GLOBAL_SCOPE!r} for all "
        "types, or any other text",
    )


def _in_progress_rules(idempotency: IdempotencyConfig) -> InProgressRules:
    return InProgressRules(
        wait_seconds_max=idempotency.pending_wait_timeout if idempotency.wait_for_pending else 0.0,
        status=CODES["IN_PROGRESS"].status,
        code="IN_PROGRESS",
        text="a duplicate waits for the request that holds the key, then gets this status with Retry-After; it never "
        "creates a second job",
    )
