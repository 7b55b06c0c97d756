"""JSON as people read it."""

import json
from typing import Any

INDENTED_CHARACTERS_MAX = 4 * 1024 * 1024
"""An indented text. Every line begins with its level: half a megabyte can become half a gigabyte."""

_ENCODER = json.JSONEncoder(indent=2, ensure_ascii=False)


def indented(value: Any) -> str:
    """A value on many lines, or on one if that would be too much. Takes long: not for the event loop."""
    parts, characters = [], 0
    for part in _ENCODER.iterencode(value):
        characters += len(part)
        if characters > INDENTED_CHARACTERS_MAX:
            return json.dumps(value, ensure_ascii=False)
        parts.append(part)
    return "".join(parts)
