"""Acts of which nothing else would tell: erasing, forgetting, and what is done to credentials.

Each is one record of the logger `onejob.audit`, at level INFO; the service writes it to its log. A key is told by the
first 16 hex digits of its SHA-256, so that whoever knows it can find it, and nobody else can read it.
"""

import logging
from hashlib import sha256

audit_log = logging.getLogger("onejob.audit")

KEY_DIGEST_CHARS = 16


def write_audit_record(action: str, *, tenant: str, actor: str, **details: object) -> None:
    facts = {"what": action, "tenant": tenant, "actor": actor, **details}
    audit_log.info(" ".join(f"{name}={value!r}" for name, value in facts.items()), extra={"audit": facts})


def key_digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:KEY_DIGEST_CHARS]
