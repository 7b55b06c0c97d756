"""Values of Spark's types as JSON."""

import base64
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

Write = Callable[[Any], Any]
"""A value of a column as a value of JSON."""


def scalar_json(value: Any) -> Any:
    """Timestamps and dates in ISO 8601, bytes in base64; other values as they are."""
    match value:
        case datetime():
            if value.tzinfo is None:
                return value.isoformat()
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case Decimal():
            return int(value) if value == value.to_integral_value() else _number(value)
        case bytes():
            return base64.b64encode(value).decode()
    return value


def _number(value: Decimal) -> float:
    number = float(value)
    if Decimal(repr(number)) != value:
        raise ValueError(f"{value} has more digits than a number of JSON keeps")
    return number


def any_json(value: Any) -> Any:
    """A value of any type; members that are null are left out."""
    if isinstance(value, dict):
        return {key_text(name): any_json(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [any_json(one) for one in value]
    return scalar_json(value)


def key_text(key: Any) -> str:
    """The key of a map as the name of a member."""
    return str(key).lower() if isinstance(key, bool) else str(key)


def named_number(value: Any) -> Any:
    """A number that JSON does not have, as Protobuf's JSON mapping names it."""
    if not isinstance(value, float) or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
