"""`retentionPolicy` ↔ Kafka's topic settings. No I/O.

| policy                             | settings                                                        |
|------------------------------------|-----------------------------------------------------------------|
| `"7d"`                             | cleanup.policy=delete, retention.ms                             |
| `{"time": "7d", "size": "10GiB"}`  | cleanup.policy=delete, retention.ms, retention.bytes (partition) |
| `"compact"`                        | cleanup.policy=compact                                          |
| `"forever"`                        | cleanup.policy=delete, retention.ms=-1, retention.bytes=-1      |
"""

import re
from collections.abc import Mapping

from runnel.client.moments import InvalidMoment, parse_duration_ms
from runnel.gateway.http.models import RetentionLimits
from runnel.gateway.http.problems import Problem

COMPACT = "compact"
FOREVER = "forever"
POLICY, TIME, SIZE = "cleanup.policy", "retention.ms", "retention.bytes"
LONG_MAX = 2**63 - 1
_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"(\d{1,18}) ?([a-z]*)")
_DURATIONS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))


def to_settings(policy: str | RetentionLimits) -> dict[str, str]:
    """The settings of a policy; 422 if it has no meaning."""
    if policy == COMPACT:
        return {POLICY: COMPACT}
    if policy == FOREVER:
        return {POLICY: "delete", TIME: "-1", SIZE: "-1"}
    if isinstance(policy, str):
        return {POLICY: "delete", TIME: str(_ms(policy))}
    if policy.time is None and policy.size is None:
        raise Problem(422, "retentionPolicy: give time, size, or both")
    settings = {POLICY: "delete"}
    # A size alone is no reason to delete by the default time as well.
    settings[TIME] = "-1" if policy.time is None else str(_ms(policy.time))
    if policy.size is not None:
        settings[SIZE] = str(_bytes(policy.size))
    return settings


def _ms(text: str) -> int:
    try:
        ms = parse_duration_ms(text)
    except (InvalidMoment, OverflowError):
        raise Problem(
            422, f"retentionPolicy: {text!r} is neither a duration such as 7d, nor {COMPACT}, nor {FOREVER}"
        ) from None
    if not 0 < ms <= LONG_MAX:
        raise Problem(422, f"retentionPolicy: {text!r} is out of range")
    return ms


def _bytes(size: str | int) -> int:
    if isinstance(size, int):
        return size
    found = _SIZE.fullmatch(size.strip().lower())
    if found is None or found[2] not in _UNITS or not 0 < int(found[1]) * _UNITS[found[2]] <= LONG_MAX:
        raise Problem(422, f"retentionPolicy: {size!r} is not a size; examples: 10GiB, 500MB, 1048576")
    return int(found[1]) * _UNITS[found[2]]


def to_policy(settings: Mapping[str, str | None]) -> str | RetentionLimits:
    """The policy that settings in force amount to."""
    if COMPACT in (settings.get(POLICY) or ""):
        return COMPACT
    ms, size = int(settings.get(TIME) or -1), int(settings.get(SIZE) or -1)
    if size < 0:
        return FOREVER if ms < 0 else duration_text(ms)
    return RetentionLimits(None if ms < 0 else duration_text(ms), size)


def duration_text(ms: int) -> str:
    """A duration in the largest unit that it is a multiple of."""
    unit, size = next((unit, size) for unit, size in _DURATIONS if ms % size == 0)
    return f"{ms // size}{unit}"
