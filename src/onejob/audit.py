"""The audit log: one record for each purge, forgotten key and change of a credential, which leave no other trace.

Each is a record of the logger `onejob.audit` at level INFO; the service writes it to its log. A key appears as the first
16 hex digits of its SHA-256: it can be found by its digest, and cannot be read from the log.
"""

import logging
from hashlib import sha256

audit_log = logging.getLogger("onejob.audit")

KEY_DIGEST_CHARS = 16


def write_audit_record(action: str, *, tenant: str, actor: str, **details: object) -> None:
    record = {"what": action, "tenant": tenant, "actor": actor, **details}
    audit_log.info(" ".join(f"{name}={value!r}" for name, value in record.items()), extra={"audit": record})


def key_digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:KEY_DIGEST_CHARS]
