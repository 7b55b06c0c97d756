"""Silences: alerts that match them are not notified until they end."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

PREFIX = "silence/"
OPERATORS = ("=~", "!~", "!=", "=")
RETENTION_MS = 5 * 86_400_000
"""How long ended silences are shown."""


class BadSilence(ValueError):
    """A silence is not valid."""


@dataclass(frozen=True, slots=True)
class Matcher:
    """A condition on a label, as Alertmanager's: =, != or, with regular expressions, =~ and !~."""

    name: str
    operator: str
    value: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the label has, or does not have, the value. A missing label is empty."""
        given = labels.get(self.name, "")
        if "~" in self.operator:
            is_equal = _pattern(self.value).fullmatch(given) is not None
        else:
            is_equal = given == self.value
        return is_equal != self.operator.startswith("!")

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{json.dumps(self.value, ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Silence:
    """A silence: which alerts, from when to when, why, and whose."""

    id: str
    matchers: tuple[Matcher, ...]
    starts_ms: int
    ends_ms: int
    why: str
    who: str

    def is_active(self, now_ms: int) -> bool:
        """Whether it is in effect."""
        return self.starts_ms <= now_ms < self.ends_ms

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether all its matchers match."""
        return all(matcher.matches(labels) for matcher in self.matchers)

    def expired(self, now_ms: int) -> "Silence":
        """The same silence, ended now."""
        return replace(self, ends_ms=max(min(self.ends_ms, now_ms), self.starts_ms))

    def to_record(self) -> tuple[str, str]:
        """Its key and value."""
        value = {
            "matchers": [[each.name, each.operator, each.value] for each in self.matchers],
            "starts_ms": self.starts_ms,
            "ends_ms": self.ends_ms,
            "why": self.why,
            "who": self.who,
        }
        return PREFIX + self.id, json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_record(cls, key: str, text: str) -> "Silence":
        """Parse a record; BadSilence if it is not one."""
        try:
            value: dict[str, Any] = json.loads(text)
            matchers = tuple(Matcher(*map(str, each)) for each in value["matchers"])
            silence = cls(
                key.removeprefix(PREFIX),
                matchers,
                int(value["starts_ms"]),
                int(value["ends_ms"]),
                str(value["why"]),
                str(value["who"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadSilence(f"{key} is not a silence: {error!r}") from None
        if not matchers:
            raise BadSilence(f"{key} has no matcher: it would silence everything")
        for matcher in matchers:
            _check(matcher)
        return silence


def parse_matcher(text: str) -> Matcher:
    """Parse topic=orders, broker!=1, alertname=~"Disk.*"."""
    at = min((text.find(sign) for sign in "=!" if sign in text), default=-1)
    operator = next((sign for sign in OPERATORS if at > 0 and text.startswith(sign, at)), None)
    if operator is None:
        raise BadSilence(f"{text!r} is not a matcher; examples: topic=orders, alertname=~Disk.*, broker!=1")
    value = text[at + len(operator) :].strip()
    if len(value) >= 2 and value[0] == value[-1] == '"':
        value = value[1:-1]
    matcher = Matcher(text[:at].strip(), operator, value)
    _check(matcher)
    return matcher


def _check(matcher: Matcher) -> None:
    if not matcher.name.isidentifier() or matcher.operator not in OPERATORS:
        raise BadSilence(f"{matcher} is not a matcher: {matcher.name!r} is not the name of a label")
    if "~" in matcher.operator:
        try:
            _pattern(matcher.value)
        except re2.error:
            raise BadSilence(f"{matcher}: invalid or unsupported regular expression") from None


def silenced_by(silences: Iterable[Silence], labels: Mapping[str, str], now_ms: int) -> list[str]:
    """The ids of the silences that are in effect for these labels."""
    return sorted(each.id for each in silences if each.is_active(now_ms) and each.matches(labels))


@lru_cache(maxsize=256)
def _pattern(text: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    return re2.compile(text, options)
