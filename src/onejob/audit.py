"""Acts of which nothing else would tell: erasing, forgetting, and what is done to credentials.

Each is one record of the logger `onejob.audit`, at level INFO; the service writes it to its log. A key is told by the
first 16 hex digits of its SHA-256, so that whoever knows it can find it, and nobody else can read it.
"""

import logging
from hashlib import sha256

log = logging.getLogger("onejob.audit")

KEY_DIGITS = 16


def told(what: str, *, tenant: str, actor: str, **details: object) -> None:
    facts = {"what": what, "tenant": tenant, "actor": actor, **details}
    log.info(" ".join(f"{name}={value!r}" for name, value in facts.items()), extra={"audit": facts})


def hidden(key: str) -> str:
    return sha256(key.encode()).hexdigest()[:KEY_DIGITS]
