"""Alerts and silences, as they are stored in their topic."""

import json
import secrets
import time
from typing import Any

from runnel.client.moments import InvalidMoment, parse_duration_ms
from runnel.client.offsets import READ_COMMITTED, end_offsets, start_offsets
from runnel.client.producer import Producer
from runnel.gateway.console.dialogs import Done, Form, required
from runnel.gateway.console.message_reading import Source
from runnel.gateway.console.pages import Content, Refused, Visit
from runnel.model.ids import TopicPartition

TOPIC = "__runnel_alerts"
PARTITION = TopicPartition(TOPIC, 0)
ALERT, SILENCE = "alert/", "silence/"
RECORDS_MAX = 100_000
STATES = ("firing", "pending", "resolved")
DELIVERY_TIMEOUT_S = 10.0


async def read_records(visit: Visit) -> dict[str, dict[str, Any]] | None:
    """The current records by key; None if alerts were never evaluated in this cluster."""
    if TOPIC not in (await visit.data.catalogue.get()).by_name:
        return None
    starts = await start_offsets(visit.cluster, [PARTITION])
    ends = await end_offsets(visit.cluster, [PARTITION], isolation=READ_COMMITTED)
    # The topic is compacted; what is older than this was replaced.
    first = max(starts[PARTITION], ends[PARTITION] - RECORDS_MAX)
    found = await Source(visit.cluster, READ_COMMITTED).read({PARTITION: (first, ends[PARTITION])})
    records: dict[str, dict[str, Any]] = {}
    for message in found[PARTITION]:
        key = (message.key or b"").decode("utf-8", "replace")
        records.pop(key, None)
        if (value := _object(message.value)) is not None:
            records[key] = value
    return records


def _object(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"null")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


async def alerts(visit: Visit) -> Content:
    """What fires, is pending or was resolved; and what is silenced."""
    records = await read_records(visit)
    now_ms = time.time_ns() // 1_000_000
    found = [
        row for key, value in (records or {}).items() if key.startswith(ALERT) and (row := _alert(value))
    ]
    found.sort(key=lambda row: (STATES.index(row["state"]), row["severity"], row["name"], -row["since_ms"]))
    silences = [
        _silence(key, value, now_ms) for key, value in (records or {}).items() if key.startswith(SILENCE)
    ]
    active = [row for row in silences if row is not None and row["is_active"]]
    for row in found:
        row["is_silenced"] = any(_matches(each["matchers"], row["labels"]) for each in active)
    values = {"is_set_up": records is not None, "rows": found, "silences": active}
    return Content("alerts.html", {**values, "firing": sum(row["state"] == "firing" for row in found)})


def _alert(value: dict[str, Any]) -> dict[str, Any] | None:
    labels = value.get("labels")
    if not isinstance(labels, dict) or value.get("state") not in STATES:
        return None
    own = {str(name): str(label) for name, label in labels.items()}
    ended = value.get("resolved_ms") if value["state"] == "resolved" else None
    since = ended or value.get("fired_ms") or value.get("active_ms") or 0
    return {
        "name": own.get("alertname", "alert"),
        "severity": own.get("severity", ""),
        "labels": own,
        "shown_labels": {name: label for name, label in own.items() if name not in ("alertname", "severity")},
        "state": value["state"],
        "since_ms": int(since),
        "summary": str(value.get("summary", "")),
        "description": str(value.get("description", "")),
        "key": json.dumps(own, sort_keys=True),
    }


def _silence(key: str, value: dict[str, Any], now_ms: int) -> dict[str, Any] | None:
    try:
        matchers = [(str(name), str(operator), str(label)) for name, operator, label in value["matchers"]]
        starts_ms, ends_ms = int(value["starts_ms"]), int(value["ends_ms"])
    except (KeyError, TypeError, ValueError):
        return None
    return {
        "key": key,
        "matchers": matchers,
        "text": ", ".join(f"{name}{operator}{label}" for name, operator, label in matchers),
        "ends_ms": ends_ms,
        "left_s": (ends_ms - now_ms) / 1000,
        "is_active": starts_ms <= now_ms < ends_ms,
        "why": str(value.get("why", "")),
        "who": str(value.get("who", "")),
    }


def _matches(matchers: list[tuple[str, str, str]], labels: dict[str, str]) -> bool:
    """Do matchers of equality hold? Those with patterns are left to the evaluator."""
    return all(
        (labels.get(name, "") == value) is (operator == "=") if operator in ("=", "!=") else False
        for name, operator, value in matchers
    )


async def show_silence(visit: Visit, form: Form) -> dict[str, Any]:
    """Which alerts would be silenced."""
    return {"labels": _labels(form), "labels_text": form.get("labels", "")}


def _labels(form: Form) -> dict[str, str]:
    labels = _object(form.get("labels", "").encode())
    if not labels:
        raise Refused("no alert was given", 404)
    return {str(name): str(value) for name, value in labels.items()}


async def silence(visit: Visit, form: Form) -> Done:
    """Silence the alerts that have these labels."""
    labels = _labels(form)
    why = required(form, "why", "a reason: others will read it")
    try:
        duration_ms = parse_duration_ms(required(form, "for", "how long"))
    except InvalidMoment as error:
        raise Refused(str(error)) from None
    chosen = {name: value for name, value in labels.items() if f"label:{name}" in form}
    if not chosen:
        raise Refused("choose at least one label: else everything would be silenced")
    now_ms = time.time_ns() // 1_000_000
    value = {
        "matchers": [[name, "=", label] for name, label in sorted(chosen.items())],
        "starts_ms": now_ms,
        "ends_ms": now_ms + duration_ms,
        "why": why,
        "who": visit.session.name or "console",
    }
    await _write(visit, SILENCE + secrets.token_hex(8), value)
    return Done(f"silenced {labels.get('alertname', 'alerts')} for {form['for'].strip()}")


async def show_end(visit: Visit, form: Form) -> dict[str, Any]:
    """A silence that would end."""
    return {"silence": await _find(visit, form.get("key", ""))}


async def end_silence(visit: Visit, form: Form) -> Done:
    """End a silence now."""
    key = form.get("key", "")
    await _find(visit, key)
    value = ((await read_records(visit)) or {})[key]
    value["ends_ms"] = max(min(int(value["ends_ms"]), time.time_ns() // 1_000_000), int(value["starts_ms"]))
    await _write(visit, key, value)
    return Done("ended the silence")


async def _find(visit: Visit, key: str) -> dict[str, Any]:
    value = ((await read_records(visit)) or {}).get(key) if key.startswith(SILENCE) else None
    found = None if value is None else _silence(key, value, time.time_ns() // 1_000_000)
    if found is None:
        raise Refused("there is no such silence", 404)
    return found


async def _write(visit: Visit, key: str, value: dict[str, Any]) -> None:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    async with Producer(visit.cluster, delivery_timeout_s=DELIVERY_TIMEOUT_S) as producer:
        await producer.send_and_wait(TOPIC, text.encode(), key=key.encode(), partition=0)
