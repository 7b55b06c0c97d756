"""Alerts and silences, as they are stored in their topic."""

import json
import time
import uuid
from contextlib import suppress
from typing import Any

from runnel.client.moments import InvalidMoment, parse_duration_ms
from runnel.gateway.alerts.state_topic import TOPIC, object_of, read_records, write_silence
from runnel.gateway.console.dialogs import Done, Form, required
from runnel.gateway.console.pages import Content, Refused, Visit
from runnel.observe.alerts.alert import FIRING, PENDING, RESOLVED, Alert
from runnel.observe.alerts.alert import PREFIX as ALERT
from runnel.observe.alerts.silences import PREFIX as SILENCE
from runnel.observe.alerts.silences import BadSilence, Matcher, Silence

STATES = (FIRING, PENDING, RESOLVED)


async def alerts(visit: Visit) -> Content:
    """Firing, pending and resolved alerts, and silences."""
    is_set_up = TOPIC in (await visit.data.catalogue.get()).by_name
    records = await visit.data.alert_records.get() if is_set_up else {}
    now_ms = _now_ms()
    active = [each for each in _silences(records) if each.is_active(now_ms)]
    rows = [_alert_row(alert, active) for alert in _alerts(records)]
    rows.sort(key=lambda row: (STATES.index(row["state"]), row["severity"], row["name"], -row["since_ms"]))
    values = {"is_set_up": is_set_up, "rows": rows, "silences": [_silence_row(each) for each in active]}
    return Content("alerts.html", {**values, "firing": sum(row["state"] == FIRING for row in rows)})


def _alerts(records: dict[str, str]) -> list[Alert]:
    found = []
    for key, text in records.items():
        if key.startswith(ALERT):
            with suppress(ValueError, KeyError, TypeError, AttributeError):
                found.append(Alert.from_record(text))
    return found


def _silences(records: dict[str, str]) -> list[Silence]:
    found = []
    for key, text in records.items():
        if key.startswith(SILENCE):
            with suppress(BadSilence):
                found.append(Silence.from_record(key, text))
    return found


def _alert_row(alert: Alert, silences: list[Silence]) -> dict[str, Any]:
    ended_ms = alert.resolved_ms if alert.state == RESOLVED else None
    labels = alert.labels
    return {
        "name": alert.name,
        "severity": labels["severity"],
        "shown_labels": {
            name: value for name, value in labels.items() if name not in ("alertname", "severity")
        },
        "state": alert.state,
        "since_ms": ended_ms or alert.fired_ms or alert.active_ms,
        "summary": alert.summary,
        "description": alert.description,
        "key": json.dumps(labels, sort_keys=True),
        "is_silenced": any(each.matches(labels) for each in silences),
    }


def _silence_row(silence: Silence) -> dict[str, Any]:
    return {
        "id": silence.id,
        "text": ", ".join(f"{each.name}{each.operator}{each.value}" for each in silence.matchers),
        "left_s": (silence.ends_ms - _now_ms()) / 1000,
        "why": silence.why,
        "who": silence.who,
    }


async def show_silence(visit: Visit, form: Form) -> dict[str, Any]:
    """Which alerts would be silenced."""
    return {"labels": _labels(form), "labels_text": form.get("labels", "")}


def _labels(form: Form) -> dict[str, str]:
    labels = object_of(form.get("labels", ""))
    if not labels:
        raise Refused("no alert was given", 404)
    return {str(name): str(value) for name, value in labels.items()}


async def silence(visit: Visit, form: Form) -> Done:
    """Silence the alerts that have these labels."""
    labels = _labels(form)
    why = required(form, "why", "a reason: it is shown to other users")
    try:
        duration_ms = parse_duration_ms(required(form, "for", "how long"))
    except InvalidMoment as error:
        raise Refused(str(error)) from None
    chosen = {name: value for name, value in labels.items() if f"label:{name}" in form}
    if not chosen:
        raise Refused("choose at least one label: otherwise all alerts would be silenced")
    now_ms = _now_ms()
    matchers = tuple(Matcher(name, "=", value) for name, value in sorted(chosen.items()))
    who = visit.session.name or "console"
    await write_silence(
        visit.cluster, Silence(str(uuid.uuid4()), matchers, now_ms, now_ms + duration_ms, why, who)
    )
    return Done(f"silenced {labels.get('alertname', 'alerts')} for {form['for'].strip()}")


async def show_end(visit: Visit, form: Form) -> dict[str, Any]:
    """The silence that would be ended."""
    return {"silence": _silence_row(await _find(visit, form))}


async def end_silence(visit: Visit, form: Form) -> Done:
    """End a silence now."""
    await write_silence(visit.cluster, (await _find(visit, form)).expired(_now_ms()))
    return Done("ended the silence")


async def _find(visit: Visit, form: Form) -> Silence:
    for each in _silences(await read_records(visit.cluster)):
        if each.id == form.get("id"):
            return each
    raise Refused("there is no such silence", 404)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
