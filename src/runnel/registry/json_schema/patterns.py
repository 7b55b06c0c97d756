"""Regular expressions of schemas."""

from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

_PATTERN_BYTES_MAX = 1024 * 1024
_PATTERNS_MAX = 200
_PATTERN_CHARACTERS_MAX = 10_000
"""Longer ones are not compiled: compiled ones are kept."""


def matches(pattern: str, text: str) -> bool | None:
    """Whether a text contains a match; None if RE2, which matches in linear time, lacks what it uses,
    or it is long.
    """
    compiled = _compiled(pattern) if len(pattern) <= _PATTERN_CHARACTERS_MAX else None
    return None if compiled is None else compiled.search(text) is not None


@lru_cache(maxsize=_PATTERNS_MAX)
def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _PATTERN_BYTES_MAX
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return None
