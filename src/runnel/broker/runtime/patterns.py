"""Untrusted regular expressions for topics and transactional ids."""

from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1000)
def compiled(pattern: str) -> Any:
    """Compile with RE2, which matches in linear time; imported on first use. Raises ValueError."""
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
