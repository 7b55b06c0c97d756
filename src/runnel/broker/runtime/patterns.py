"""Regular expressions of strangers, for names of topics and transactional ids."""

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1000)
def compiled(pattern: str) -> Any:
    """RE2, whose time does not explode, imported when somebody has a pattern. ValueError if it is none."""
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from error
