"""A cluster as rules see it, driven by the commands of a transcript.

rule DiskSpaceLow used=0.5          the rule, with thresholds; `for=1m` changes how long it waits
brokers 1 2                         the registered brokers
set 1 metric{label="value"} 5       a series of a broker
grow 1 metric{label="value"} 5      add to it now, or with `each` before every evaluation
unset 1 metric{label="value"}
lose 1 · find 1                     its metrics cannot be read, or again
fence 1 · unfence 1
run 2m                              evaluate every 15 seconds, and print what changes
restart                             continue from the records
"""

import re

from runnel.observe.alerts.alert import Alert
from runnel.observe.alerts.alerting import Alerting
from runnel.observe.alerts.rules import RULES
from runnel.observe.alerts.series import BrokerState, Labels, Snapshot
from runnel.observe.alerts.settings import AlertSettings, alert_settings, duration_ms, duration_text
from runnel.observe.exposition import parse

START_MS = 1_800_000_000_000
INTERVAL_MS = 15_000
Series = tuple[str, Labels]


class World:
    """Plays the commands of one transcript."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.values: dict[int, dict[Series, float]] = {}
        self.growth: dict[tuple[int, Series], float] = {}
        self.lost: set[int] = set()
        self.fenced: set[int] = set()
        self.settings = AlertSettings()
        self.alerting = Alerting(self.settings)

    def play(self, command: str) -> list[str]:
        verb, _, rest = command.partition(" ")
        return getattr(self, f"do_{verb}")(rest) or []

    def do_rule(self, text: str) -> None:
        name, *changes = text.split()
        properties = {f"alerts.{name}.{key}": value for key, value in (each.split("=") for each in changes)}
        [rule] = [rule for rule in RULES if rule.name == name]
        self.settings = alert_settings(properties, [rule])
        self.alerting = Alerting(self.settings)

    def do_brokers(self, text: str) -> None:
        self.values = {int(each): self.values.get(int(each), {}) for each in text.split()}

    def do_set(self, text: str) -> None:
        node, series, value = _sample(text)
        self.values[node][series] = value

    def do_unset(self, text: str) -> None:
        node, series, _ = _sample(f"{text} 0")
        del self.values[node][series]

    def do_grow(self, text: str) -> None:
        node, series, value = _sample(text.removesuffix(" each"))
        if text.endswith(" each"):
            self.growth[node, series] = value
        else:
            self.values[node][series] = self.values[node].get(series, 0) + value

    def do_lose(self, text: str) -> None:
        self.lost.add(int(text))

    def do_find(self, text: str) -> None:
        self.lost.discard(int(text))

    def do_fence(self, text: str) -> None:
        self.fenced.add(int(text))

    def do_unfence(self, text: str) -> None:
        self.fenced.discard(int(text))

    def do_restart(self, text: str) -> None:
        records = self.alerting.records()
        self.alerting = Alerting(self.settings)
        self.alerting.restore(records)
        assert self.alerting.records() == records

    def do_wait(self, text: str) -> None:
        """No evaluation for this time."""
        self.now_ms += duration_ms("wait", text)

    def do_run(self, text: str) -> list[str]:
        lines = []
        for _ in range(duration_ms("run", text) // INTERVAL_MS):
            self.now_ms += INTERVAL_MS
            for (node, series), value in self.growth.items():
                self.values[node][series] = self.values[node].get(series, 0) + value
            before = {key: alert.state for key, alert in self.alerting.alerts.items()}
            self.alerting.evaluate(self.snapshot())
            lines += self._changes(before)
        return lines

    def snapshot(self) -> Snapshot:
        brokers = []
        for node, values in self.values.items():
            metrics: dict[str, list[tuple[Labels, float]]] = {}
            for (name, labels), value in values.items():
                metrics.setdefault(name, []).append((labels, value))
            is_lost = node in self.lost
            brokers.append(BrokerState(node, None if is_lost else metrics, is_fenced=node in self.fenced))
        return Snapshot(self.now_ms, tuple(brokers))

    def _changes(self, before: dict[Labels, str]) -> list[str]:
        at = duration_text(self.now_ms - START_MS)
        after = self.alerting.alerts
        lines = [
            f"{at} {alert.state}: {shown(alert)}"
            for key, alert in sorted(after.items())
            if before.get(key) != alert.state
        ]
        return lines + [f"{at} gone" for key in sorted(before.keys() - after.keys())]


def shown(alert: Alert) -> str:
    labels = ", ".join(
        f"{name}={value}"
        for name, value in sorted(alert.labels.items())
        if name not in ("alertname", "severity")
    )
    return f"{alert.summary} ({labels})" if alert.state != "resolved" else labels or "-"


def _sample(text: str) -> tuple[int, Series, float]:
    found = re.fullmatch(r"(\d+) (.+) (\S+)", text)
    assert found, f"not NODE METRIC VALUE: {text}"
    # $t is the time at which a transcript starts, in seconds.
    value = found[3].replace("$t", str(START_MS // 1000))
    if "+" in value[1:] and "e+" not in value:
        value = str(sum(float(part) for part in value.split("+")))
    [(name, labels, number)] = parse(f"{found[2]} {value}")
    return int(found[1]), (name, tuple(sorted(labels))), number
