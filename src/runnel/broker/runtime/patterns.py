"""Untrusted regular expressions for topics and transactional ids."""

from functools import lru_cache
from typing import Any

PATTERN_BYTES_MAX = 1024 * 1024
"""Memory of one compiled pattern and of its cached states; a longer list of literal names than fits into a
string takes less. What needs more is refused."""

PATTERNS_MAX = 200
"""Compiled patterns that are kept."""


@lru_cache(maxsize=PATTERNS_MAX)
def compiled(pattern: str) -> Any:
    """Compile with RE2, which matches in linear time; imported on first use. Raises ValueError."""
    import re2  # type: ignore[import-untyped]

    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from error
