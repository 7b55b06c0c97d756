"""One alert: a rule and the labels of a series for which its condition holds, or held.

States:

    inactive ─ condition holds ─► pending ─ for as long as the rule says ─► firing ─ it ends ─► resolved
        ▲                          │   ▲                                                            │
        └───────── it ends ────────┘   └───────────────── the condition holds again ────────────────┘

An alert that is pending again after it was resolved is still a resolved one to its receivers.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from typing import Any

from runnel.observe.alerts.rules import Rule
from runnel.observe.alerts.series import Labels, labels_of
from runnel.observe.alerts.templates import rendered

PREFIX = "alert/"
PENDING, FIRING, RESOLVED = "pending", "firing", "resolved"

VALUE_INTERVAL_MS = 60_000
"""The value of an alert is updated this often: each update is a record."""
RESOLVED_RETENTION_MS = 15 * 60_000
"""How long a resolved alert is kept."""

_FNV_OFFSET, _FNV_PRIME = 14695981039346656037, 1099511628211
_SEPARATOR = b"\xff"


@dataclass(slots=True)
class Alert:
    """An alert that is not inactive."""

    labels: dict[str, str]
    """`alertname` and `severity` included."""
    state: str
    active_ms: int
    """When the condition was first found to hold."""
    value: float
    value_ms: int
    summary: str = ""
    description: str = ""
    fired_ms: int | None = None
    resolved_ms: int | None = None
    """When it ceased to fire; kept while it is pending again."""
    missing_ms: int | None = None
    """Since when there are no data about it; None if there are."""

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.labels["alertname"]

    @property
    def fingerprint(self) -> str:
        """Identifies its labels, as Prometheus and Alertmanager compute it."""
        return fingerprint(self.labels)

    @property
    def has_ended(self) -> bool:
        """It has fired, and does not fire now."""
        return self.resolved_ms is not None

    # Transitions.

    def observed(self, rule: Rule, value: float, now_ms: int) -> None:
        """The condition holds."""
        self.missing_ms = None
        if self.state == RESOLVED:
            self.state, self.active_ms = PENDING, now_ms
            self._describe(rule, value, now_ms)
        if self.state == PENDING and now_ms - self.active_ms >= rule.for_ms:
            self.state, self.fired_ms, self.resolved_ms = FIRING, now_ms, None
            self._describe(rule, value, now_ms)
        if now_ms - self.value_ms >= VALUE_INTERVAL_MS:
            self._describe(rule, value, now_ms)

    def ended(self, now_ms: int) -> bool:
        """The condition no longer holds. Returns whether the alert is inactive from here on."""
        self.missing_ms = None
        if self.state == FIRING:
            self.resolved_ms = now_ms
        if self.has_ended:
            self.state = RESOLVED
        return self.state == PENDING

    def missed(self, now_ms: int, stale_after_ms: int) -> bool:
        """There are no data about it. Returns whether that has lasted too long."""
        if self.state == RESOLVED:
            return False
        if self.missing_ms is None:
            self.missing_ms = now_ms
        return now_ms - self.missing_ms >= stale_after_ms

    def _describe(self, rule: Rule, value: float, now_ms: int) -> None:
        self.value, self.value_ms = value, now_ms
        self.summary = rendered(rule.summary, self.labels, value)
        self.description = rendered(rule.description, self.labels, value)

    # Records.

    def to_record(self) -> tuple[str, str]:
        """Its key and value."""
        return PREFIX + self.fingerprint, json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_record(cls, text: str) -> "Alert":
        """Parse a value; ValueError, KeyError or TypeError if it is not an alert."""
        value: dict[str, Any] = json.loads(text)
        alert = cls(**{each.name: value[each.name] for each in fields(cls) if each.name in value})
        if {"alertname", "severity"} <= alert.labels.keys() and alert.state in (PENDING, FIRING, RESOLVED):
            return alert
        raise ValueError("an alert has a name, a severity and a state")


def new_alert(rule: Rule, labels: Labels, value: float, now_ms: int) -> Alert:
    """A pending alert, or a firing one if the rule does not wait."""
    names = {**dict(labels), "alertname": rule.name, "severity": rule.severity}
    alert = Alert(names, PENDING, now_ms, value, now_ms)
    alert._describe(rule, value, now_ms)
    alert.observed(rule, value, now_ms)
    return alert


def fingerprint(labels: Mapping[str, str]) -> str:
    """64 bits of FNV-1a over names and values, in hexadecimal digits."""
    return _fingerprint(labels_of(labels))


@lru_cache(maxsize=10_000)
def _fingerprint(labels: Labels) -> str:
    state = _FNV_OFFSET
    for name, value in labels:
        for octet in name.encode() + _SEPARATOR + value.encode() + _SEPARATOR:
            state = ((state ^ octet) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"{state:016x}"
