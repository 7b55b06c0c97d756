"""A notification of an alert that does not exist, to try a receiver with."""

import time

from runnel.observe.alerts.alert import FIRING, RESOLVED, Alert
from runnel.observe.alerts.groups import Notification, group_key
from runnel.observe.alerts.rules import WARNING

NAME = "TestAlert"


def trial_notifications(receiver: str) -> list[Notification]:
    """One that fires, and one that resolves it."""
    now_ms = time.time_ns() // 1_000_000
    labels = {"alertname": NAME, "severity": WARNING}
    firing, resolved = (
        Alert(
            labels,
            state,
            now_ms,
            1.0,
            now_ms,
            "This is a test",
            "It was sent by `runnel alert test`.",
            fired_ms=now_ms,
            resolved_ms=ended_ms,
        )
        for state, ended_ms in ((FIRING, None), (RESOLVED, now_ms))
    )
    group = {"alertname": NAME}
    return [
        Notification(receiver, group_key(group), group, (firing,), ()),
        Notification(receiver, group_key(group), group, (), (resolved,)),
    ]
