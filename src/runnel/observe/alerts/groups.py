"""Groups of alerts, and when a receiver is to be notified of one.

A group waits for `group_wait` after its first alert, so that alerts of one cause arrive together. From then
on it is evaluated every `group_interval`: its receivers are notified if alerts fired or were resolved of
which they were not notified, and every `repeat_interval` while any fires. A receiver counts as notified when
a delivery has succeeded; a notification that fails is retried, with the group's state at that time.
"""

import json
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field, fields

from runnel.observe.alerts.alert import FIRING, Alert
from runnel.observe.alerts.settings import AlertSettings

PREFIX = "group/"
RETRY_MIN_MS, RETRY_MAX_MS = 5_000, 300_000
ERROR_CHARACTERS_MAX = 500


@dataclass(frozen=True, slots=True)
class Notification:
    """The notifications of one receiver about a group."""

    receiver: str
    group_key: str
    group_labels: dict[str, str]
    firing: tuple[Alert, ...]
    resolved: tuple[Alert, ...]

    @property
    def is_firing(self) -> bool:
        """False: all is resolved."""
        return bool(self.firing)


@dataclass(slots=True)
class Notified:
    """What a receiver was notified of, and what it is still to be notified of."""

    at_ms: int | None = None
    """The last delivery."""
    firing: list[str] = field(default_factory=list)
    """Fingerprints of the alerts it was notified of as firing, and not yet as resolved."""
    owed: list[str] = field(default_factory=list)
    """Alerts that are to be delivered, even if they are resolved before that succeeds."""
    attempts: int = 0
    retry_ms: int | None = None
    """When a notification is to be delivered; None if none is due."""
    error: str | None = None

    def settle(self) -> None:
        """Nothing is due."""
        self.owed, self.attempts, self.retry_ms, self.error = [], 0, None, None


@dataclass(slots=True)
class Group:
    """Alerts with the same values of the labels by which they are grouped."""

    labels: dict[str, str]
    flush_ms: int
    notified: dict[str, Notified] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """As Alertmanager's: the route, and the labels."""
        return group_key(self.labels)

    def flush(self, alerts: Sequence[Alert], receiver: str, now_ms: int, settings: AlertSettings) -> None:
        """Decide whether the receiver is to be notified of these alerts, which are not silenced."""
        notified = self.notified.get(receiver) or Notified()
        firing = {alert.fingerprint for alert in alerts if alert.state == FIRING}
        resolved = {alert.fingerprint for alert in alerts if alert.has_ended}
        news = (firing - set(notified.firing)) | (resolved & set(notified.firing))
        is_repeated = (
            bool(firing)
            and notified.at_ms is not None
            and now_ms - notified.at_ms >= settings.repeat_interval_ms
        )
        if news or is_repeated:
            notified.owed = sorted({*notified.owed, *news})
            notified.retry_ms = now_ms if notified.retry_ms is None else notified.retry_ms
            self.notified[receiver] = notified

    def notification(self, receiver: str, alerts: Sequence[Alert]) -> Notification:
        """What is to be delivered to the receiver now."""
        notified = self.notified[receiver]
        known = {*notified.firing, *notified.owed}
        return Notification(
            receiver,
            self.key,
            dict(self.labels),
            tuple(alert for alert in alerts if alert.state == FIRING),
            tuple(alert for alert in alerts if alert.has_ended and alert.fingerprint in known),
        )

    def delivered(self, notification: Notification, now_ms: int) -> None:
        """The receiver has accepted a notification."""
        notified = self.notified.setdefault(notification.receiver, Notified())
        firing = {alert.fingerprint for alert in notification.firing}
        resolved = {alert.fingerprint for alert in notification.resolved}
        notified.firing = sorted((set(notified.firing) | firing) - resolved)
        notified.at_ms = now_ms
        notified.settle()

    def failed(self, notification: Notification, error: str, now_ms: int) -> None:
        """A notification could not be delivered."""
        notified = self.notified.setdefault(notification.receiver, Notified())
        notified.attempts += 1
        notified.retry_ms = now_ms + min(RETRY_MIN_MS * 2 ** min(notified.attempts - 1, 16), RETRY_MAX_MS)
        notified.error = error[:ERROR_CHARACTERS_MAX]

    def forget(self, fingerprints: Set[str], receivers: Set[str]) -> None:
        """Forget alerts and receivers other than these."""
        self.notified = {
            receiver: notified for receiver, notified in self.notified.items() if receiver in receivers
        }
        for notified in self.notified.values():
            notified.firing = [each for each in notified.firing if each in fingerprints]
            notified.owed = [each for each in notified.owed if each in fingerprints]

    def to_record(self) -> tuple[str, str]:
        """Its key and value."""
        return PREFIX + self.key, json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_record(cls, text: str) -> "Group":
        """Parse a value; ValueError, KeyError or TypeError if it is not a group."""
        value = json.loads(text)
        notified = {
            name: Notified(**{part.name: each[part.name] for part in fields(Notified) if part.name in each})
            for name, each in value["notified"].items()
        }
        return cls(dict(value["labels"]), int(value["flush_ms"]), notified)


def group_key(labels: dict[str, str]) -> str:
    """`{}:{alertname="DiskSpaceLow"}`"""
    inner = ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(labels.items()))
    return f"{{}}:{{{inner}}}"
