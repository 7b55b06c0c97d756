"""Notifications as receivers expect them: Alertmanager's webhook JSON, Slack's, and an e-mail."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any

from runnel.observe.alerts.alert import Alert
from runnel.observe.alerts.groups import Notification

VERSION = "4"
ALERTS_MAX = 100
"""Alerts of one notification; `truncatedAlerts` is the number of further ones."""
SLACK_ALERTS_MAX = 20
SUBJECT_CHARACTERS_MAX = 200
NEVER = "0001-01-01T00:00:00Z"
"""The end of an alert that fires, as Alertmanager writes it."""
COLOURS = {True: "danger", False: "good"}


def alertmanager(notification: Notification, external_url: str = "") -> dict[str, Any]:
    """The body of a webhook, version 4."""
    alerts = _alerts(notification)
    return {
        "version": VERSION,
        "groupKey": notification.group_key,
        "truncatedAlerts": max(len(alerts) - ALERTS_MAX, 0),
        "status": _status(notification.is_firing),
        "receiver": notification.receiver,
        "groupLabels": notification.group_labels,
        "commonLabels": _common(alert.labels for alert, _ in alerts),
        "commonAnnotations": _common(_annotations(alert) for alert, _ in alerts),
        "externalURL": external_url,
        "alerts": [_alert(alert, is_firing, external_url) for alert, is_firing in alerts[:ALERTS_MAX]],
    }


def _alert(alert: Alert, is_firing: bool, external_url: str) -> dict[str, Any]:
    return {
        "status": _status(is_firing),
        "labels": alert.labels,
        "annotations": _annotations(alert),
        "startsAt": time_text(alert.fired_ms),
        "endsAt": NEVER if is_firing else time_text(alert.resolved_ms),
        "generatorURL": external_url,
        "fingerprint": alert.fingerprint,
    }


def slack(notification: Notification) -> dict[str, Any]:
    """The body of a request to an incoming webhook of Slack."""
    alerts = _alerts(notification)
    attachments: list[dict[str, Any]] = [
        {
            "color": COLOURS[is_firing],
            "title": _slack_text(alert.summary if is_firing else f"Resolved: {alert.summary}"),
            "text": _slack_text(alert.description),
            "fallback": _slack_text(alert.summary),
            "footer": _slack_text(_labels_text(alert)),
            "ts": (alert.fired_ms or alert.active_ms) // 1000,
        }
        for alert, is_firing in alerts[:SLACK_ALERTS_MAX]
    ]
    if len(alerts) > SLACK_ALERTS_MAX:
        attachments.append({"text": f"and {len(alerts) - SLACK_ALERTS_MAX} more", "fallback": "and more"})
    return {"text": _slack_text(title(notification)), "attachments": attachments}


def email(notification: Notification, sender: str, recipients: Sequence[str]) -> EmailMessage:
    """A message in plain text."""
    message = EmailMessage()
    message["Subject"] = title(notification)
    message["From"] = sender
    message["To"] = ", ".join(recipients)
    message["Date"] = formatdate()
    message["Message-ID"] = make_msgid(domain="runnel")
    alerts = _alerts(notification)
    parts = []
    for alert, is_firing in alerts[:ALERTS_MAX]:
        ended = "" if is_firing else f"\nresolved {time_text(alert.resolved_ms)}"
        parts.append(
            f"{_status(is_firing).upper()}: {alert.summary}\n{alert.description}\n"
            f"since {time_text(alert.fired_ms)}{ended}\n{_labels_text(alert)}\n"
        )
    if len(alerts) > ALERTS_MAX:
        parts.append(f"and {len(alerts) - ALERTS_MAX} more\n")
    message.set_content("\n".join(parts))
    return message


def title(notification: Notification) -> str:
    """One line: [FIRING:2] DiskSpaceLow."""
    count = f":{len(notification.firing)}" if notification.is_firing else ""
    about = " ".join(notification.group_labels.values()) or "alerts"
    # Labels are chosen by users: a line end would begin another header of an e-mail.
    text = " ".join(f"[{_status(notification.is_firing).upper()}{count}] {about}".split())
    return text[:SUBJECT_CHARACTERS_MAX]


def time_text(at_ms: int | None) -> str:
    """RFC 3339, in UTC."""
    moment = datetime.fromtimestamp((at_ms or 0) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _alerts(notification: Notification) -> list[tuple[Alert, bool]]:
    firing = [(alert, True) for alert in notification.firing]
    return firing + [(alert, False) for alert in notification.resolved]


def _annotations(alert: Alert) -> dict[str, str]:
    return {"summary": alert.summary, "description": alert.description}


def _common(mappings: Iterable[Mapping[str, str]]) -> dict[str, str]:
    pairs = [set(mapping.items()) for mapping in mappings]
    return dict(sorted(set.intersection(*pairs))) if pairs else {}


def _labels_text(alert: Alert) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(alert.labels.items()))


def _status(is_firing: bool) -> str:
    return "firing" if is_firing else "resolved"


def _slack_text(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
