"""Why a JSON text cannot be read, where the decoder's own words lead astray."""

import json

LONE_SURROGATE = "it has a lone surrogate; send only whole characters"


def explain_decode_error(data: bytes, error: Exception) -> str:
    """What the decoder said; of a lone surrogate it says that the text was cut short."""
    return LONE_SURROGATE if b"\\u" in data and _has_lone_surrogate(data) else str(error)


def _has_lone_surrogate(data: bytes) -> bool:
    try:
        # This parser takes one, and only then its text has no UTF-8 form.
        json.dumps(json.loads(data), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False
