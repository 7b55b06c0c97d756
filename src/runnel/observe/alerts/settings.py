"""Settings of alerts: properties whose names begin with `alerts.`

    alerts.interval=15s                     how often the rules are evaluated
    alerts.stale.after=5m                   how long an alert stays as it is without data
    alerts.admin.addresses=1=10.0.0.1:9644  admin listeners by broker, where they are not those of its configs
    alerts.group.by=alertname               alerts with equal values of these labels share notifications
    alerts.group.wait=30s                   before the first notification of a group
    alerts.group.interval=5m                before the next one, if something has changed
    alerts.repeat.interval=4h               before the same notification is repeated
    alerts.<rule>.enabled=false             a rule that is not evaluated
    alerts.<rule>.for=2m                    how long its condition must hold
    alerts.<rule>.severity=warning
    alerts.<rule>.<threshold>=5             one of its thresholds; `runnel alert rules` lists them

Receivers (`alerts.receiver.<name>.…`) are read elsewhere.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from runnel.observe.alerts.rules import CRITICAL, RULES, WARNING, Rule

PREFIX = "alerts."
RECEIVER = "alerts.receiver."
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d|w)")
_RULE_PARTS = ("enabled", "for", "severity")


class BadAlertSettings(Exception):
    """A setting of alerts is unknown, or has a value that is not valid."""


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """Rules as they are to be evaluated, and the times of notifications."""

    rules: tuple[Rule, ...] = RULES
    interval_ms: int = 15_000
    stale_after_ms: int = 300_000
    group_by: tuple[str, ...] = ("alertname",)
    group_wait_ms: int = 30_000
    group_interval_ms: int = 300_000
    repeat_interval_ms: int = 4 * 3_600_000
    admin_addresses: tuple[tuple[int, str, int], ...] = ()
    """Node id, host and port."""


_DURATIONS = {
    "alerts.interval": "interval_ms",
    "alerts.stale.after": "stale_after_ms",
    "alerts.group.wait": "group_wait_ms",
    "alerts.group.interval": "group_interval_ms",
    "alerts.repeat.interval": "repeat_interval_ms",
}
_GROUP_BY = "alerts.group.by"
_ADDRESSES = "alerts.admin.addresses"
_ADDRESS = re.compile(r"(\d+)=(\[[^\]]+\]|[^:]+):(\d{1,5})")


def alert_settings(properties: Mapping[str, str], rules: Iterable[Rule] = RULES) -> AlertSettings:
    """The settings with the changes of the properties; those with other prefixes are ignored."""
    changed = {rule.name: rule for rule in rules}
    disabled: set[str] = set()
    given: dict[str, Any] = {}
    for name, text in properties.items():
        if not name.startswith(PREFIX) or name.startswith(RECEIVER):
            continue
        if name in _DURATIONS:
            given[_DURATIONS[name]] = duration_ms(name, text)
        elif name == _GROUP_BY:
            given["group_by"] = tuple(label.strip() for label in text.split(",") if label.strip())
        elif name == _ADDRESSES:
            given["admin_addresses"] = tuple(_address(each.strip()) for each in text.split(","))
        else:
            _change(name, text, changed, disabled)
    if given.get("interval_ms", 1) <= 0:
        raise BadAlertSettings("alerts.interval must be longer than 0")
    active = tuple(rule for rule in changed.values() if rule.name not in disabled)
    return replace(AlertSettings(rules=active), **given)


def _change(name: str, text: str, rules: dict[str, Rule], disabled: set[str]) -> None:
    """Apply `alerts.<rule>.<part>`."""
    rule_name, _, part = name.removeprefix(PREFIX).partition(".")
    rule = rules.get(rule_name)
    if rule is None:
        raise _unknown(
            name, [*_DURATIONS, _GROUP_BY, _ADDRESSES, *(f"{PREFIX}{known}.{part}" for known in rules)]
        )
    if part == "enabled":
        if text not in ("true", "false"):
            raise BadAlertSettings(f"{name} must be true or false, not {text!r}")
        disabled.discard(rule_name)
        if text == "false":
            disabled.add(rule_name)
    elif part == "for":
        rules[rule_name] = replace(rule, for_ms=duration_ms(name, text))
    elif part == "severity":
        if text not in (CRITICAL, WARNING):
            raise BadAlertSettings(f"{name} must be {CRITICAL} or {WARNING}, not {text!r}")
        rules[rule_name] = replace(rule, severity=text)
    elif part in rule.thresholds:
        rules[rule_name] = replace(rule, thresholds={**rule.thresholds, part: _number(name, text)})
    else:
        raise _unknown(name, [f"{PREFIX}{rule_name}.{known}" for known in (*rule.thresholds, *_RULE_PARTS)])


def _address(text: str) -> tuple[int, str, int]:
    found = _ADDRESS.fullmatch(text)
    if not found or not 0 < int(found[3]) < 65536:
        raise BadAlertSettings(f"{_ADDRESSES}: {text!r} is not of the form 1=host:9644")
    return int(found[1]), found[2].strip("[]"), int(found[3])


def duration_ms(name: str, text: str) -> int:
    """Parse 500ms, 30s, 15m, 4h or 1h30m."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        if text == "0":
            return 0
        raise BadAlertSettings(f"{name}: {text!r} is not a duration; examples: 30s, 15m or 4h")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


def duration_text(milliseconds: int) -> str:
    """A duration as Prometheus writes it: 1h30m."""
    text = ""
    for unit in ("d", "h", "m", "s", "ms"):
        count, milliseconds = divmod(milliseconds, _UNITS_MS[unit])
        text += f"{count}{unit}" if count else ""
    return text or "0s"


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadAlertSettings(f"{name}: {text!r} is not a number") from None


def _unknown(name: str, known: Iterable[str]) -> BadAlertSettings:
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    hint = f"; did you mean {close[0]}?" if close else "; `runnel alert rules` lists rules and thresholds"
    return BadAlertSettings(f"unknown setting {name}{hint}")
