"""Alerting: the rules' states, silences and groups. Facts with their times in, notifications and records out.

    alerting.evaluate(snapshot)            the rules over the metrics of all brokers
    alerting.due(now_ms)                   notifications to deliver; then `delivered` or `failed` for each
    alerting.records()                     the whole state, to be stored; `restore` continues from it

Missing data: an alert whose series is not in the metrics has ended if all brokers could be read. While one
could not, and while a rule cannot be evaluated, the alert keeps its state, for `stale_after` at most.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runnel.observe.alerts.alert import (
    FIRING,
    RESOLVED,
    RESOLVED_RETENTION_MS,
    Alert,
    new_alert,
)
from runnel.observe.alerts.alert import PREFIX as ALERT
from runnel.observe.alerts.conditions import Observation
from runnel.observe.alerts.groups import PREFIX as GROUP
from runnel.observe.alerts.groups import Group, Notification, group_key
from runnel.observe.alerts.rules import Rule
from runnel.observe.alerts.series import History, Labels, Need, Snapshot, labels_of
from runnel.observe.alerts.settings import AlertSettings
from runnel.observe.alerts.silences import PREFIX as SILENCE
from runnel.observe.alerts.silences import RETENTION_MS as SILENCE_RETENTION_MS
from runnel.observe.alerts.silences import Silence, silenced_by

ALERTS_PER_RULE_MAX = 1000
"""Alerts of one rule; those beyond, in the order of their labels, are not considered."""

RESERVED = ("alertname", "severity")


@dataclass(frozen=True, slots=True)
class Route:
    """A receiver, and the severities that it is notified of."""

    receiver: str
    severities: frozenset[str] | None = None
    """None: all."""

    def accepts(self, alert: Alert) -> bool:
        """Whether the receiver is notified of this alert."""
        return self.severities is None or alert.labels["severity"] in self.severities


class Alerting:
    """The state of all alerts."""

    def __init__(self, settings: AlertSettings, routes: Sequence[Route] = ()) -> None:
        self.settings = settings
        self.routes = tuple(routes)
        self.alerts: dict[Labels, Alert] = {}
        self.silences: dict[str, Silence] = {}
        self.groups: dict[str, Group] = {}
        self.history = History(_needs(settings.rules))
        self._in_flight: set[tuple[str, str]] = set()

    # Evaluation.

    def evaluate(self, snapshot: Snapshot) -> None:
        """Evaluate all rules over a new snapshot."""
        now_ms = snapshot.at_ms
        self.history.add(snapshot)
        seen: set[Labels] = set()
        for rule in self.settings.rules:
            observed = sorted(rule.condition(self.history, rule.thresholds), key=lambda each: each.labels)
            active = 0
            for observation in observed:
                active += observation.is_active is True
                if active <= ALERTS_PER_RULE_MAX:
                    seen.add(self._observed(rule, observation, now_ms))
        complete = {rule.name for rule in self.settings.rules if rule.is_complete}
        evaluated = {rule.name for rule in self.settings.rules}
        for key, alert in list(self.alerts.items()):
            if key not in seen:
                is_missing = alert.name in evaluated - complete and bool(snapshot.missing)
                self._unseen(key, alert, is_missing, now_ms)
        self._forget(now_ms)

    def _observed(self, rule: Rule, observation: Observation, now_ms: int) -> Labels:
        names = {name: value for name, value in observation.labels if name not in RESERVED}
        key = labels_of({**names, "alertname": rule.name, "severity": rule.severity})
        alert = self.alerts.get(key)
        if observation.is_active is None:
            if alert is not None:
                self._unseen(key, alert, True, now_ms)
        elif not observation.is_active:
            if alert is not None and alert.ended(now_ms):
                del self.alerts[key]
        elif alert is None:
            self.alerts[key] = new_alert(rule, labels_of(names), observation.value, now_ms)
        else:
            alert.observed(rule, observation.value, now_ms)
        return key

    def _unseen(self, key: Labels, alert: Alert, is_missing: bool, now_ms: int) -> None:
        """An alert was not evaluated: data is missing, or its series no longer exists."""
        is_over = not is_missing or alert.missed(now_ms, self.settings.stale_after_ms)
        if is_over and alert.ended(now_ms):
            del self.alerts[key]

    def _forget(self, now_ms: int) -> None:
        for key, alert in list(self.alerts.items()):
            if alert.state != RESOLVED or now_ms - (alert.resolved_ms or 0) < RESOLVED_RETENTION_MS:
                continue
            if not self._is_owed(alert, now_ms):
                del self.alerts[key]
        for name, silence in list(self.silences.items()):
            if now_ms - silence.ends_ms >= SILENCE_RETENTION_MS:
                del self.silences[name]

    def _is_owed(self, alert: Alert, now_ms: int) -> bool:
        """Whether a receiver still has to be notified that the alert is resolved."""
        group = self.groups.get(group_key(self._group_labels(alert)))
        if group is None or self.silenced_by(alert, now_ms):
            return False
        accepting = {route.receiver for route in self.routes if route.accepts(alert)}
        return any(
            alert.fingerprint in (*notified.firing, *notified.owed)
            for receiver, notified in group.notified.items()
            if receiver in accepting
        )

    # Silences.

    def silence_changed(self, key: str, text: str | None) -> None:
        """A record of a silence was written, or deleted. BadSilence if it is not valid."""
        if text is None:
            self.silences.pop(key.removeprefix(SILENCE), None)
        else:
            silence = Silence.from_record(key, text)
            self.silences[silence.id] = silence

    def silenced_by(self, alert: Alert, now_ms: int) -> list[str]:
        """The ids of the silences in effect for an alert."""
        return silenced_by(self.silences.values(), alert.labels, now_ms)

    # Notifications.

    def due(self, now_ms: int) -> list[Notification]:
        """The notifications to deliver now. Each is in flight until `delivered` or `failed` is called."""
        by_group = self._by_group(now_ms)
        notifications = []
        for key, (labels, alerts) in by_group.items():
            group = self.groups.get(key)
            if group is None:
                if not any(alert.state == FIRING for alert in alerts):
                    continue
                group = self.groups[key] = Group(labels, now_ms + self.settings.group_wait_ms)
            for route in self.routes:
                accepted = [alert for alert in alerts if route.accepts(alert)]
                notification = self._due_to(group, route.receiver, accepted, now_ms)
                if notification is not None:
                    notifications.append(notification)
            if now_ms >= group.flush_ms:
                group.flush_ms = now_ms + self.settings.group_interval_ms
        self._forget_groups(set(by_group))
        return notifications

    def _due_to(
        self, group: Group, receiver: str, alerts: Sequence[Alert], now_ms: int
    ) -> Notification | None:
        if now_ms >= group.flush_ms:
            group.flush(alerts, receiver, now_ms, self.settings)
        notified = group.notified.get(receiver)
        if notified is None or notified.retry_ms is None or notified.retry_ms > now_ms:
            return None
        if (group.key, receiver) in self._in_flight:
            return None
        notification = group.notification(receiver, alerts)
        if not notification.firing and not notification.resolved:
            # Silenced since it was due, or forgotten.
            notified.settle()
            return None
        self._in_flight.add((group.key, receiver))
        return notification

    def delivered(self, notification: Notification, now_ms: int) -> None:
        """A receiver has accepted a notification."""
        self._in_flight.discard((notification.group_key, notification.receiver))
        group = self.groups.get(notification.group_key)
        if group is not None:
            group.delivered(notification, now_ms)

    def failed(self, notification: Notification, error: str, now_ms: int) -> None:
        """A notification could not be delivered; it will be due again."""
        self._in_flight.discard((notification.group_key, notification.receiver))
        group = self.groups.get(notification.group_key)
        if group is not None:
            group.failed(notification, error, now_ms)

    def next_due_ms(self) -> int | None:
        """When `due` has something to decide next."""
        times = [group.flush_ms for group in self.groups.values()]
        for group in self.groups.values():
            for receiver, notified in group.notified.items():
                if notified.retry_ms is not None and (group.key, receiver) not in self._in_flight:
                    times.append(notified.retry_ms)
        return min(times, default=None)

    def _by_group(self, now_ms: int) -> dict[str, tuple[dict[str, str], list[Alert]]]:
        """The alerts that fire or have ended, and are not silenced, by group."""
        found: dict[str, tuple[dict[str, str], list[Alert]]] = {}
        for alert in self.alerts.values():
            if alert.state == FIRING or alert.has_ended:
                labels = self._group_labels(alert)
                _, alerts = found.setdefault(group_key(labels), (labels, []))
                if not self.silenced_by(alert, now_ms):
                    alerts.append(alert)
        return found

    def _forget_groups(self, present: set[str]) -> None:
        """Forget groups without alerts, and in the others what no longer exists."""
        for key in [key for key in self.groups if key not in present]:
            if not any(group == key for group, _ in self._in_flight):
                del self.groups[key]
        fingerprints = {alert.fingerprint for alert in self.alerts.values()}
        names = {route.receiver for route in self.routes}
        for group in self.groups.values():
            group.forget(fingerprints, names)

    def _group_labels(self, alert: Alert) -> dict[str, str]:
        return {name: alert.labels[name] for name in self.settings.group_by if name in alert.labels}

    # Records.

    def records(self) -> dict[str, str]:
        """The whole state as records of a compacted topic."""
        return {**dict(self._own_records()), **self.history.records()}

    def _own_records(self) -> Iterator[tuple[str, str]]:
        for alert in self.alerts.values():
            yield alert.to_record()
        for group in self.groups.values():
            yield group.to_record()
        for silence in self.silences.values():
            yield silence.to_record()

    def restore(self, records: Mapping[str, str]) -> list[str]:
        """Continue from records. Returns the keys of those that are not valid and left out."""
        rejected = []
        for key, text in records.items():
            try:
                self._restore(key, text)
            except (ValueError, KeyError, TypeError, AttributeError):
                rejected.append(key)
        return rejected + self.history.restore(records)

    def _restore(self, key: str, text: str) -> None:
        if key.startswith(ALERT):
            alert = Alert.from_record(text)
            self.alerts[labels_of(alert.labels)] = alert
        elif key.startswith(GROUP):
            group = Group.from_record(text)
            self.groups[group.key] = group
        elif key.startswith(SILENCE):
            self.silence_changed(key, text)


def _needs(rules: Sequence[Rule]) -> tuple[Need, ...]:
    return tuple(dict.fromkeys(need for rule in rules for need in rule.needs))
